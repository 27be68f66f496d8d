// Memory runs out on the thread that serves the control plane: it costs the connection for which it
// was needed, and nobody else.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "control/client.h"
#include "control/server.h"
#include "support/failing_memory.h"
#include "support/keys.h"
#include "support/log_lines.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::control {
namespace {

constexpr std::chrono::seconds kControlPatience{30};

// A server on a thread of its own.
class ControlWorld {
 public:
  explicit ControlWorld(const Trust& trust) {
    server_ = Must(ControlServer::Listen(
        {"127.0.0.1", 0}, trust,
        [](const BodyUnion& request) {
          if (As<ChecksumsRequestT>(request) == nullptr) return MakeBody(HelloReplyT{});
          ChecksumsReplyT reply;
          reply.checksums.assign(64 << 10, 1);
          return MakeBody(std::move(reply));
        },
        log));
    thread_ = std::thread([this] {
      while (!stop_) failed_ = failed_ || !server_->Serve(Deadline::max(), wake_.get()).ok();
    });
  }
  ~ControlWorld() {
    stop_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), 8);
    thread_.join();
    EXPECT_FALSE(failed_);
  }
  auto Connect(const Trust& trust) const {
    return ControlClient::Connect(server_->endpoint(), trust, kControlPatience);
  }

  const std::shared_ptr<LogLines> log = std::make_shared<LogLines>();

 private:
  std::atomic<bool> stop_{false}, failed_{false};
  const UniqueFd wake_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

class ControlMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    test::MakeKeys(root_, {"ann", "rep"});
    ann_ = *Trust::Load(test::KeysDir(root_, "ann"), nullptr);
    rep_ = *Trust::Load(test::KeysDir(root_, "rep"), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static Status Hello(ControlClient& client) {
    return client.Call<HelloReplyT>(HelloRequestT{}, kControlPatience).status();
  }
  // A connection, a request with a long answer, and one that is refused as malformed. Not ok:
  // the connection ended before.
  Status Exchange(const ControlWorld& world) {
    HL_ASSIGN_OR_RETURN(auto client, world.Connect(ann_));
    HL_RETURN_IF_ERROR(Hello(*client));
    HL_RETURN_IF_ERROR(
        client->Call<ChecksumsReplyT>(ChecksumsRequestT{}, kControlPatience).status());
    SealRequestT malformed;
    malformed.owner_name = std::string(50'000, 'x');
    const Status refused = client->Call<DoneT>(std::move(malformed), kControlPatience).status();
    return refused.code() == Code::kUnavailable ? refused : Status();
  }

  std::string root_ = std::filesystem::temp_directory_path() / "hyperloop-control-XXXXXX";
  Trust ann_, rep_;
};

TEST_F(ControlMemoryExhaustion, ARequestCostsItsConnection) {
  for (const size_t count : {1, 8}) {
    const bool one = count == 1;
    size_t named = 0;
    // A client that is refused tries again a little later, which takes its time.
    const size_t runs = test::ForEachFailingAllocation(
        {.count = count, .step = one ? 1u : 5u, .harmed = one ? 11u : 3u},
        [&](test::Shortage& shortage) {
          const ControlWorld world(rep_);
          const auto bystander = Must(world.Connect(ann_));
          EXPECT_OK(Hello(*bystander));
          Status status;
          EXPECT_FALSE(shortage.Elsewhere([&] { status = Exchange(world); }));
          named += world.log->Has("out of memory") ? 1 : 0;
          EXPECT_OK(Hello(*bystander));
          EXPECT_TRUE(bystander->connected());
          EXPECT_OK(Exchange(world));
          return status.ok();
        });
    EXPECT_TRUE(!one || named > runs / 2) << named;  // lines take memory, too
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hyperloop::control
