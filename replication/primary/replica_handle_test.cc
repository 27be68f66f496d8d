// A replica may answer anything.
#include "primary/replica_handle.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <thread>

#include "control/server.h"
#include "softrnic/embedded/embedded.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using namespace std::chrono_literals;
using control::As;
using control::AttachReplyT;
using control::AttachRequestT;
using control::BodyUnion;
using control::ChecksumsReplyT;
using control::ControlServer;
using control::Deadline;
using control::DoneT;
using control::MakeBody;
using control::Trust;

// Gives access to a region of `region_size`, and answers everything else with `other`.
class ReplicaHandleTest : public testing::Test {
 protected:
  ReplicaHandleTest() {
    EXPECT_OK(rnic_.StartThread());
    device_ = rnic_.OpenDevice("primary").value();
    auto server =
        ControlServer::Listen({"127.0.0.1", 0}, Trust(), [this](const BodyUnion& request) {
          if (As<AttachRequestT>(request) == nullptr) return other_;
          const rnic::Gid gid = device_->gid();
          AttachReplyT reply;
          reply.gid.assign(gid.raw.begin(), gid.raw.end());
          reply.region_size = region_size_;
          return MakeBody(std::move(reply));
        });
    EXPECT_OK(server);
    server_ = std::move(server).value();
    thread_ = std::thread([this] {
      while (!stop_) EXPECT_OK(server_->Serve(Deadline::max(), wake_.get()));
    });
  }
  ~ReplicaHandleTest() override {
    stop_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), 8);
    thread_.join();
  }

  softrnic::EmbeddedRnic rnic_;
  std::unique_ptr<rnic::Device> device_;
  uint64_t region_size_ = 0;  // both are set before the first request
  BodyUnion other_ = MakeBody(DoneT{});
  const UniqueFd wake_{eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> stop_{false};
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

TEST_F(ReplicaHandleTest, AnEmptyListIsNoChecksumsOfTheLargestRegion) {
  region_size_ = std::numeric_limits<uint64_t>::max();
  other_ = MakeBody(ChecksumsReplyT{});
  ReplicaHandle replica(server_->endpoint(), Trust(), 20s);
  const Ownership own{7, Uuid{1}, "test"};
  ASSERT_OK(replica.Attach(*device_, own, 1s));
  EXPECT_THAT(replica.Checksums(own, {0, region_size_}, 4096), StatusIs(Code::kCorruption));
}

}  // namespace
}  // namespace hyperloop
