// A primary that serves one file, for tests of what its callers see while the group fails.
#pragma once

#include <memory>
#include <utility>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/append_loop.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

class ServingTest : public StoreTest {
 protected:
  // A primary with the file "f", which holds "one"; file_ is its id.
  std::unique_ptr<Store> Serving(const StoreOptions& options, std::shared_ptr<Log> log = nullptr) {
    auto store = Taken(options, std::move(log));
    if (store == nullptr) return nullptr;
    const auto file = store->Create("f");
    EXPECT_OK(file);
    file_ = file.ok() ? *file : FileId{};
    EXPECT_OK(AppendDurably(*store, file_, "one"));
    return store;
  }

  FileId file_{};
};

}  // namespace hyperloop::test
