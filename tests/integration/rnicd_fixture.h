// A hyperloop-rnicd of the test's own, in a directory of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/softrnic.h"
#include "support/child_process.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

// A peer on a device of a daemon. Usable in a forked child: no gtest inside.
struct RnicNode : RnicEnd {
  static Result<RnicNode> Open(const std::string& socket, const std::string& host,
                               const rnic::QpAttr& attr = {}) {
    RnicNode node;
    HL_ASSIGN_OR_RETURN(auto opened, softrnic::OpenDaemonDevice({socket, host}));
    HL_ASSIGN_OR_RETURN(static_cast<RnicEnd&>(node), Make(std::move(opened), attr));
    return node;
  }

  // The next completion; kTimedOut after 60 s. What takes more than a moment is not waited for at
  // the cost of a processor.
  Result<rnic::Completion> Await() {
    const auto begin = std::chrono::steady_clock::now();
    rnic::Completion completion;
    for (;;) {
      HL_ASSIGN_OR_RETURN(size_t n, cq->Poll({&completion, 1}));
      if (n == 1) return completion;
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited > std::chrono::seconds(60)) return TimedOut("no completion came");
      if (waited > std::chrono::milliseconds(5)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        sched_yield();
      }
    }
  }
  // Runs one request. kAborted with the status' name if it completes in error.
  Status Run(rnic::SendRequest request) {
    request.signaled = true;
    HL_RETURN_IF_ERROR(qp->Post({&request, 1}));
    HL_ASSIGN_OR_RETURN(rnic::Completion completion, Await());
    if (completion.status == rnic::WcStatus::kSuccess) return {};
    return Aborted(std::string(rnic::WcStatusName(completion.status)));
  }
  Status RunNop() { return Run({.opcode = rnic::Opcode::kNop}); }
  Status WriteWord(uint64_t remote_addr, uint32_t rkey, uint64_t value) {
    word(0) = value;
    const rnic::Sge local = sge(0, 8);
    return Run({.opcode = rnic::Opcode::kWrite,
                .sges = {&local, 1},
                .remote_addr = remote_addr,
                .rkey = rkey});
  }
};

// A daemon, as yet not started, and its directory.
class Rnicd {
 public:
  Rnicd() {
    std::string path = std::filesystem::temp_directory_path() / "hyperloop-rnicd-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
    socket_ = path + "/rnicd.sock";
  }
  Rnicd(const Rnicd&) = delete;
  Rnicd& operator=(const Rnicd&) = delete;
  ~Rnicd() {
    daemon_.Kill();
    std::filesystem::remove_all(folder_);
  }
  std::vector<std::string> DaemonArgs(std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {ProgramPath("hyperloop-rnicd"), "--socket", socket_,
                                     "--priority", "none"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void StartDaemon(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--spin-us", "0"});
    daemon_ = ChildProcess::Spawn(DaemonArgs(std::move(more)));
    ASSERT_EQ(daemon_.ReadLine(), "ready " + socket_);
  }
  // A node connected to itself.
  void OpenLoopback(RnicNode* node) {
    auto opened = RnicNode::Open(socket_, "loop");
    ASSERT_OK(opened);
    *node = std::move(*opened);
    ASSERT_OK(node->qp->Connect(node->qp->address()));
  }
  // The daemon serves a new client.
  void ExpectDaemonServes() {
    RnicNode node;
    ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
    EXPECT_OK(node.RunNop());
  }

  std::string folder_;
  std::string socket_;
  ChildProcess daemon_;
};

class RnicdTest : public testing::Test, protected Rnicd {};

// The tests of such a suite share one daemon, which serves new clients after each of them.
// `folder_` is the test's own.
class SharedRnicdTest : public RnicdTest {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<Rnicd>();
    shared_->StartDaemon();
  }
  static void TearDownTestSuite() { shared_.reset(); }
  void SetUp() override { socket_ = shared_->socket_; }
  void TearDown() override { ExpectDaemonServes(); }
  static ChildProcess& daemon() { return shared_->daemon_; }

 private:
  static inline std::unique_ptr<Rnicd> shared_;
};

}  // namespace hyperloop::test
