// A primary that serves one file, for tests of what its callers see while the group fails.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
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

// A thread that appends 8 bytes again and again, until it is stopped or an append fails.
class AppendLoop {
 public:
  AppendLoop(Store& store, FileId file)
      : thread_([this, &store, file] {
          while (!stop_ && status_.ok()) {
            status_ = AppendDurably(store, file, "12345678");
            if (status_.ok()) ++appended_;
          }
        }) {}
  ~AppendLoop() {
    if (thread_.joinable()) Stop().IgnoreError();
  }
  // Whether twenty more appends are acknowledged within 20 s.
  bool Advances() const {
    const int before = appended_;
    return Eventually([&] { return appended_ > before + 20; });
  }
  // Returns the error that ended it; ok: there was none.
  Status Stop() {
    stop_ = true;
    thread_.join();
    return status_;
  }
  // How many bytes were acknowledged.
  size_t bytes() const { return 8 * static_cast<size_t>(appended_); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> appended_{0};
  Status status_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace hyperloop::test
