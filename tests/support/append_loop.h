// AppendLoop: a load on a store while a test disturbs its group.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/append_durably.h"
#include "support/eventually.h"

namespace hyperloop::test {

// A thread that appends 8 bytes again and again, until it is stopped or an append fails.
class AppendLoop {
 public:
  AppendLoop(Store& store, FileId file)
      : thread_([this, &store, file] {
          while (!stop_ && status_.ok()) {
            status_ = AppendDurably(store, file, "12345678");
            if (status_.ok()) ++appended_;
          }
          ended_ = true;
        }) {}
  ~AppendLoop() {
    if (thread_.joinable()) Stop().IgnoreError();
  }
  // Whether twenty more appends are acknowledged in the end.
  bool Advances() const {
    const int before = appended_;
    EXPECT_TRUE(Eventually([&] { return ended_ || appended_ > before + 20; }));
    return !ended_;
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
  std::atomic<bool> stop_{false}, ended_{false};
  std::atomic<int> appended_{0};
  Status status_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace hyperloop::test
