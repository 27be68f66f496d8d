// Memory runs out at each allocation in turn of the thread that serves the control plane: it costs
// the connection for which it was needed, and nobody else.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "control/client.h"
#include "control/server.h"
#include "support/failing_memory.h"
#include "support/keys.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::control {
namespace {

using namespace std::chrono_literals;
using test::FailingMemory;

constexpr auto kPatience = 30s;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A server on a thread of its own.
class World {
 public:
  explicit World(const Trust& trust) {
    auto server = ControlServer::Listen(
        {"127.0.0.1", 0}, trust,
        [](const BodyUnion& request) {
          if (As<ChecksumsRequestT>(request) == nullptr) return MakeBody(HelloReplyT{});
          ChecksumsReplyT reply;
          reply.checksums.assign(64 << 10, 1);
          return MakeBody(std::move(reply));
        },
        log);
    EXPECT_OK(server);
    server_ = std::move(server).value();
    thread_ = std::thread([this] {
      while (!stop_) failed_ = failed_ || !server_->Serve(Deadline::max(), wake_.get()).ok();
    });
  }
  ~World() {
    stop_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), 8);
    thread_.join();
    EXPECT_FALSE(failed_);
  }
  const Endpoint& endpoint() const { return server_->endpoint(); }

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
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-control-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    test::MakeKeys(root_, {"ann", "rep"});
    ann_ = *Trust::Load(test::KeysDir(root_, "ann"), nullptr);
    rep_ = *Trust::Load(test::KeysDir(root_, "rep"), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // A connection, a request with a long answer, and one that is refused as malformed. Not ok:
  // the connection ended before.
  Status Exchange(const World& world) {
    HL_ASSIGN_OR_RETURN(auto client, ControlClient::Connect(world.endpoint(), ann_, kPatience));
    HL_RETURN_IF_ERROR(client->Call<HelloReplyT>(HelloRequestT{}, kPatience).status());
    HL_RETURN_IF_ERROR(client->Call<ChecksumsReplyT>(ChecksumsRequestT{}, kPatience).status());
    SealRequestT malformed;
    malformed.owner_name = std::string(50'000, 'x');
    const Status refused = client->Call<DoneT>(std::move(malformed), kPatience).status();
    return refused.code() == Code::kUnavailable ? refused : Status();
  }

  std::string root_;
  Trust ann_, rep_;
};

TEST_F(ControlMemoryExhaustion, ARequestCostsItsConnection) {
  for (const size_t count : {1, 8}) {
    size_t broken = 0, named = 0;
    // A client that is refused tries again a little later.
    for (size_t number = 0;; number += count == 1 ? 1 : 5) {
      SCOPED_TRACE("allocation " + std::to_string(number) + ", " + std::to_string(count));
      ASSERT_LT(number, 2000u);
      const long living = FailingMemory::living();
      const size_t descriptors = OpenDescriptors();
      {
        const World world(rep_);
        auto bystander = ControlClient::Connect(world.endpoint(), ann_, kPatience);
        ASSERT_OK(bystander);
        ASSERT_OK((*bystander)->Call<HelloReplyT>(HelloRequestT{}, kPatience));
        Status status;
        {
          const FailingMemory failing(FailingMemory::Where::kElsewhere, number, count);
          status = Exchange(world);
        }
        if (FailingMemory::failed() == 0) {
          EXPECT_OK(status);
        }
        broken += status.ok() ? 0 : 1;
        named += world.log->Has("out of memory") ? 1 : 0;
        EXPECT_OK((*bystander)->Call<HelloReplyT>(HelloRequestT{}, kPatience));
        EXPECT_TRUE((*bystander)->connected());
        EXPECT_OK(Exchange(world));
      }
      EXPECT_EQ(FailingMemory::living(), living) << "leaked, or freed twice";
      EXPECT_EQ(OpenDescriptors(), descriptors);
      if (HasFailure()) return;
      if (FailingMemory::failed() != 0) continue;
      EXPECT_GT(broken, count == 1 ? 10u : 2u) << "of " << number;
      EXPECT_TRUE(count != 1 || named > number / 2) << named;  // lines take memory, too
      break;
    }
  }
}

}  // namespace
}  // namespace hyperloop::control
