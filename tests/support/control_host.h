// ControlHost: answers the requests of the control plane on a thread of its own, as the test says.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "control/server.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

class ControlHost {
 public:
  ControlHost(control::Trust trust, control::ControlServer::Handler handler,
              std::shared_ptr<Log> log = nullptr)
      : wake_(eventfd(0, EFD_CLOEXEC)) {
    auto server = control::ControlServer::Listen({"127.0.0.1", 0}, std::move(trust),
                                                 std::move(handler), std::move(log));
    EXPECT_OK(server);
    server_ = std::move(server).value();
    thread_ = std::thread([this] {
      while (!stop_) EXPECT_OK(server_->Serve(control::Deadline::max(), wake_.get()));
    });
  }
  ~ControlHost() {
    stop_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), 8);
    thread_.join();
  }
  const control::Endpoint& endpoint() const { return server_->endpoint(); }

 private:
  std::atomic<bool> stop_{false};
  UniqueFd wake_;
  std::unique_ptr<control::ControlServer> server_;
  std::thread thread_;
};

}  // namespace hyperloop::test
