// Requests that wait behind a READ, which waits for a disk: how much a peer can make the engine
// hold, and what happens when memory runs out meanwhile. The test is the peer's engine.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "softrnic/engine/flusher.h"
#include "softrnic/engine/remote.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "softrnic/links/packet.h"
#include "support/failing_memory.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

constexpr LinkId kLink = 1;

// A link of which the test says what arrives; it keeps the newest answer to each queue pair.
class Wire final : public LinkPort {
 public:
  bool Ready(LinkId) override { return true; }
  void Send(LinkId, std::span<const std::byte> bytes) override {
    const auto packet = ParsePacket(bytes);
    ASSERT_TRUE(packet.ok());  // a matcher would allocate, where memory may be failing
    last[packet->dest_qpn] = *packet;
    last[packet->dest_qpn].payload = {};
  }
  void Flush() override {}
  bool Receive(LinkEvent* event) override {
    if (arriving_.empty()) return false;
    received_ = std::move(arriving_.front());
    arriving_.pop_front();
    *event = {LinkEvent::Kind::kPacket, kLink, received_};
    return true;
  }
  bool Pending() const override { return !arriving_.empty(); }
  void Arrive(const Packet& packet) { arriving_.push_back(EncodePacket(packet)); }

  std::map<uint32_t, Packet> last;

 private:
  std::deque<std::vector<std::byte>> arriving_;
  std::vector<std::byte> received_;  // the packet of the last event
};

struct SlowDisk final : Flusher {
  std::vector<std::shared_ptr<FlushJob>> jobs;
  bool Flush(uint64_t, FileRange, std::shared_ptr<FlushJob> job) override {
    jobs.push_back(std::move(job));
    return true;
  }
  void Gone(uint64_t) override {}
  void Finish() {
    for (const auto& job : std::exchange(jobs, {})) job->left.fetch_sub(1);
  }
};

// `count` queue pairs of host b, whose memory is on a disk. Their peers are queue pairs of the same
// numbers at host a.
struct HeldWorld {
  explicit HeldWorld(size_t count) : engine(Options()) {
    engine.AttachPort(&wire);
    EXPECT_OK(engine.AddRoute("a", kLink));
    engine.SetEvict([this](ContextId, const char*) { ++evicted; });
    b = std::make_unique<Client>(engine, "b", rnic::Media::kFile, nullptr, 0, -1,
                                 /*waits_for_disk=*/true);
    const TestCq cq = b->Cq();
    const uint64_t prefix = htobe64(GidPrefix("a"));
    for (size_t i = 0; i < count; ++i) {
      const TestQp qp = b->Qp(cq, cq, {.log_sq = 1, .has_rq = false});
      TestQp peer;
      peer.qpn = qp.qpn;
      std::memcpy(peer.gid.data(), &prefix, sizeof prefix);
      b->Connect(qp, peer);
      std::array<std::byte, 32> gids;
      std::memcpy(gids.data(), b->gid.data(), 16);
      std::memcpy(gids.data() + 16, peer.gid.data(), 16);
      wire.Arrive({.type = PacketType::kConnect,
                   .dest_qpn = qp.qpn,
                   .source_qpn = qp.qpn,
                   .session = 1,
                   .payload = gids});
      Run();
      EXPECT_EQ(wire.last[qp.qpn].type, PacketType::kAccept);
      sessions[qp.qpn] = wire.last[qp.qpn].addr;
    }
  }
  EngineOptions Options() {
    EngineOptions options;
    options.flusher = &disk;
    options.now_ns = [this] { return now; };
    return options;
  }
  void Run() {
    while (wire.Pending()) engine.Run(1000);
    for (int i = 0; i < 3; ++i) engine.Run(1000);
  }
  // Request number `index` of a queue pair.
  void Arrive(uint32_t qpn, PacketType type, uint32_t index, uint32_t length) {
    const std::vector<std::byte> payload(type == PacketType::kWrite ? length : 0);
    wire.Arrive({.type = type,
                 .dest_qpn = qpn,
                 .source_qpn = qpn,
                 .session = sessions[qpn],
                 .psn = kFirstPsn + index,
                 .seen = kFirstPsn,
                 .addr = reinterpret_cast<uint64_t>(b->memory + Client::kArena - 64),
                 .rkey = b->rkey,
                 .total = length,
                 .length = length,
                 .payload = payload});
  }
  // A WRITE, and a READ that waits for its flush.
  void Begin(uint32_t qpn) {
    Arrive(qpn, PacketType::kWrite, 0, 8);
    Arrive(qpn, PacketType::kRead, 1, 8);
    Run();
  }

  uint64_t now = 1'000'000'000;
  Wire wire;
  SlowDisk disk;
  Engine engine;
  std::unique_ptr<Client> b;
  std::map<uint32_t, uint64_t> sessions;
  size_t evicted = 0;
};

// The shortest requests are held until what they take in memory is the bound; the others are
// dropped, and would be sent again.
TEST(EngineHeldRequests, ShortOnesAreBoundedByTheMemoryThatTheyTake) {
  constexpr size_t kQueuePairs = 500;
  constexpr uint32_t kShort = kMaxUnacknowledged - 1;
  HeldWorld world(kQueuePairs);
  for (const auto& [qpn, session] : world.sessions) world.Begin(qpn);
  ASSERT_EQ(world.disk.jobs.size(), kQueuePairs);
  for (const auto& [qpn, session] : world.sessions) {
    for (uint32_t i = 0; i < kShort; ++i) world.Arrive(qpn, PacketType::kWrite, 2 + i, 0);
    world.Run();
  }
  world.disk.Finish();
  for (int i = 0; i < 2000; ++i) world.engine.Run(1000);
  size_t held = 0;
  for (const auto& [qpn, session] : world.sessions) {
    ASSERT_NE(world.wire.last[qpn].type, PacketType::kNak);
    held += world.wire.last[qpn].psn - (kFirstPsn + 1);
  }
  const size_t most = kMaxHeldBytes / (kPacketHeaderBytes + sizeof(HeldRequest));
  EXPECT_LT(most, kQueuePairs * kShort) << "too few were sent";
  EXPECT_LE(held, most);
  EXPECT_GT(held, most * 9 / 10);
  EXPECT_EQ(world.evicted, 0u);
}

// While several READs wait, one turn tells all requesters that this end is at work.
TEST(EngineHeldRequests, OutOfMemoryOnTheWayCostsTheClient) {
  for (const bool finished : {false, true}) {
    test::ForEachFailingAllocation({}, [&](test::Shortage& shortage) {
      HeldWorld world(4);
      for (const auto& [qpn, session] : world.sessions) {
        world.Begin(qpn);
        world.Arrive(qpn, PacketType::kWrite, 2, 8);
        world.Arrive(qpn, PacketType::kRead, 3, 8);
        world.Run();
      }
      if (finished) world.disk.Finish();
      world.now += 10 * kSignOfLifeNs;
      const auto run = [&] {
        for (int i = 0; i < 3; ++i) world.engine.Run(1000);
      };
      EXPECT_FALSE(shortage.Here(run)) << "the daemon would have ended";
      // What was held for the one that ended does not count any more.
      ExpectServed(world.engine, "next");
      return world.evicted == 0;
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
