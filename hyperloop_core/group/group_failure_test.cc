// Tests fail-stop: after the first failure anywhere nothing more is acknowledged, every wait ends,
// and no stale WQE runs. Two properties of RNICs endanger this: an error completion releases WAITs,
// and a queue in error flushes its receives. Time passes when nothing else happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "group/chain_test_util.h"
#include "group/cpu_message.h"
#include "support/held_clock.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr auto kShort = std::chrono::milliseconds(120);

std::unique_ptr<Chain> MakeTimedChain(ChainOptions options) {
  options.at_rest = [] { test::HeldClock::Pass(std::chrono::milliseconds(1)); };
  return hyperloop::MakeChain(options);
}

Operation FlushedCopyOf(uint64_t source, uint64_t destination, uint64_t size) {
  return {.write = {}, .copy = {source, destination, size}, .cas = {}, .flush = true};
}

// Expects that the group is broken with one of `codes`, for good, and that every call says so.
void ExpectBroken(Chain& chain, Ticket newest_good, testing::Matcher<Code> codes) {
  Group& group = chain.group();
  const Status first = group.WaitAll();
  EXPECT_THAT(first.code(), codes) << first.ToString();
  EXPECT_EQ(group.status().message(), first.message());
  EXPECT_THAT(group.Poll(), StatusIs(first.code()));
  EXPECT_EQ(group.Write(0, 8, false).status().message(), first.message())
      << "the first cause is kept";
  EXPECT_THAT(group.TrySubmit({.write = {0, 8}, .copy = {}, .cas = {}}), StatusIs(first.code()));
  if (newest_good > 0) {
    EXPECT_OK(group.Wait(newest_good)) << "what was acknowledged stays so";
  }
  EXPECT_THAT(group.Wait(newest_good + 1),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut),
                             StatusIs(Code::kProtection)));
}

class GroupFailureTest : public testing::TestWithParam<Way> {
 protected:
  std::unique_ptr<Chain> MakeTimedChain(ChainOptions options) const {
    options.datapath = GetParam();
    // Each dead replica fails its own queue, unless ack_timeout comes first.
    if (fanout()) options.ack_timeout = std::chrono::seconds(5);
    return hyperloop::MakeTimedChain(options);
  }
  bool fanout() const { return GetParam() == Datapath::kFanout; }
  bool offload() const { return GetParam() == Datapath::kOffload; }
  // What the primary sees when `victim` dies: an error of its own queue, an error that members pass
  // back when they give up, or no error at all.
  testing::Matcher<Code> CodeOfADeath(uint32_t victim) const {
    if (victim == 0 || fanout()) return Code::kUnavailable;
    return Code::kTimedOut;
  }

 private:
  const test::HeldClock clock_;
};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupFailureTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

class OffloadFailureTest : public testing::TestWithParam<FlushOrder> {
 protected:
  static Way Offload() { return {Datapath::kOffload, GetParam()}; }

 private:
  const test::HeldClock clock_;
};
INSTANTIATE_TEST_SUITE_P(Orders, OffloadFailureTest,
                         testing::Values(FlushOrder::kHopByHop, FlushOrder::kPipelined),
                         [](const auto& param) {
                           return TestName({Datapath::kOffload, param.param});
                         });

// A replica loses its region's key, so its own copies fail, or the WRITEs that come to it.
TEST_P(OffloadFailureTest, ACopyThatFailsIsNeverAcknowledged) {
  for (uint32_t victim = 0; victim < 3; ++victim) {
    const auto chain = MakeTimedChain({.datapath = Offload(), .window = 8, .ack_timeout = kShort});
    Group& group = chain->group();
    for (uint64_t i = 0; i < 20; ++i) ASSERT_OK(group.MemCopy(0, 1024, 64, true));
    ASSERT_OK(group.WaitAll());
    for (uint32_t i = 0; i < 3; ++i) SetWord(chain->replica_bytes(i), 0, 7);
    chain->replica(victim).region.reset();
    for (uint64_t i = 0; i < 8; ++i) ASSERT_OK(group.Submit(FlushedCopyOf(0, 2048 + 8 * i, 8)));
    chain->Settle();
    EXPECT_EQ(Word(chain->replica_bytes(victim), 2048), 0u);
    for (uint32_t later = victim + 1; later < 3; ++later) {
      EXPECT_EQ(Word(chain->replica_bytes(later), 2048), 0u)
          << "replica " << later << " was never told";
    }
    // The tail's ack needs no region, but its program stopped before it.
    ExpectBroken(*chain, 20, AnyOf(Code::kTimedOut, Code::kProtection));
  }
}

// When a WRITE from upstream is refused, `up` goes to ERROR and flushes all its receives at once. A
// WAIT for its receives in another queue would take these for messages. The device checks no WQE
// indexes here, so that only the program's own structure can stop stale work from running again.
TEST_P(OffloadFailureTest, AQueueInErrorRunsNoStaleSlot) {
  for (uint32_t victim = 0; victim < 3; ++victim) {
    ChainOptions options{.datapath = Offload(), .window = 8, .ack_timeout = kShort};
    options.engine.test.check_wqe_index = false;
    const auto chain = MakeTimedChain(options);
    Group& group = chain->group();
    // Two laps of slots are full of CASes that raise a counter; a stale one would raise it again.
    uint64_t n = 0;
    for (; n < 2 * chain->geometry().slots; ++n) ASSERT_OK(group.CompareAndSwap(8, n, n + 1, 7));
    ASSERT_OK(group.WaitAll());
    // The counter is set back, so that the CASes of old slots would match it.
    for (uint32_t i = 0; i < 3; ++i) SetWord(chain->replica_bytes(i), 8, n - 5);
    std::vector<std::vector<std::byte>> before;
    for (uint32_t i = 0; i < 3; ++i)
      before.emplace_back(chain->replica_bytes(i).begin(), chain->replica_bytes(i).end());
    chain->replica(victim).region.reset();
    SetWord(chain->primary_bytes(), 256, 99);
    ASSERT_OK(group.Write(256, 8, true));
    for (uint64_t i = 0; i < 7; ++i) ASSERT_OK(group.Flush());
    chain->Settle();
    for (uint32_t i = victim; i < 3; ++i) {
      EXPECT_EQ(std::memcmp(chain->replica_bytes(i).data(), before[i].data(), before[i].size()), 0)
          << "replica " << i << " behind the failure of " << victim;
    }
    ExpectBroken(*chain, n, victim == 0 ? Code::kProtection : Code::kTimedOut);
  }
}

TEST_P(GroupFailureTest, ThePrimarysOwnCopyCounts) {
  const auto chain = MakeTimedChain({.window = 8, .ack_timeout = kShort});
  ASSERT_OK(chain->group().MemCopy(0, 64, 8, true));
  ASSERT_OK(chain->group().WaitAll());
  chain->primary().region.reset();
  ASSERT_OK(chain->group().MemCopy(0, 64, 8, true));
  ExpectBroken(*chain, 1, Code::kProtection);
  if (!fanout()) {
    EXPECT_THAT(chain->group().status().message(), HasSubstr("loopback queue"));
  }
}

TEST_P(GroupFailureTest, ADeadReplicaEndsEveryWait) {
  for (const uint32_t victim : {0u, 1u, 2u}) {
    // With a long ack_timeout the first replica's death fails the primary's own queue.
    const auto chain = MakeTimedChain(
        {.window = 4, .ack_timeout = victim == 0 ? std::chrono::milliseconds(5000) : kShort});
    Group& group = chain->group();
    for (uint64_t i = 0; i < 30; ++i) ASSERT_OK(group.Write(64 * i, 64, true));
    ASSERT_OK(group.WaitAll());
    chain->Kill(victim);
    // A call that waits because the window is full ends too.
    Status last = Status::Ok();
    for (uint64_t i = 0; i < 10 && last.ok(); ++i) last = group.Write(64 * i, 64, true).status();
    EXPECT_THAT(last, testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
    EXPECT_THAT(last.message(), HasSubstr("30 of "));
    ExpectBroken(*chain, 30, CodeOfADeath(victim));
  }
}

TEST_P(GroupFailureTest, TrySubmitAndPollNoticeADeadReplicaToo) {
  const auto chain = MakeTimedChain({.window = 1, .ack_timeout = kShort});
  chain->Kill(2);
  ASSERT_OK(chain->group().Write(0, 8, true));
  Code code = Code::kBusy;
  while (code == Code::kBusy) {
    chain->Settle();
    code = chain->group().TrySubmit({.write = {64, 8}, .copy = {}, .cas = {}}).status().code();
  }
  EXPECT_THAT(code, CodeOfADeath(2));
}

TEST_P(GroupFailureTest, PollingEndsToo) {
  const auto chain = MakeTimedChain({.window = 2, .ack_timeout = kShort});
  chain->Kill(1);
  ASSERT_OK(chain->group().Write(0, 8, true));
  Result<Ticket> newest = 0;
  while ((newest = chain->group().Poll()).ok()) {
    EXPECT_EQ(*newest, 0u);
    chain->Settle();
  }
  EXPECT_THAT(newest.status().code(), CodeOfADeath(1));
}

// A device whose daemon can be said to be gone.
class MortalDevice final : public rnic::Device {
 public:
  explicit MortalDevice(rnic::Device& device) : device_(device) {}
  const rnic::Caps& caps() const override { return device_.caps(); }
  rnic::Gid gid() const override { return device_.gid(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    return device_.AllocatePd();
  }
  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr& a) override {
    return device_.CreateCq(a);
  }
  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t size) override {
    return device_.AllocateBuffer(size);
  }
  bool alive() const override { return alive_; }
  Result<rnic::Counters> QueryCounters() override { return device_.QueryCounters(); }
  Status Publish(std::string_view, rnic::ProtectionDomain&, std::span<const std::byte>) override {
    return NotSupported("no agent");
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view, std::string_view,
                                                rnic::QueuePair&) override {
    return NotSupported("no agent");
  }
  void Die() { alive_ = false; }

 private:
  rnic::Device& device_;
  bool alive_ = true;
};

TEST_P(GroupFailureTest, ADeadDaemonEndsEveryWaitBeforeTheTimeout) {
  const auto chain = MakeTimedChain({.group_size = 1, .window = 4});
  Chain::Node& primary = chain->primary();
  MortalDevice device(*primary.device);
  GroupOptions options;
  options.datapath = GetParam();
  options.window = 4;
  options.ack_timeout = std::chrono::hours(1);
  auto group = Group::Create(device, *primary.pd, *primary.region, options, 1);
  ASSERT_OK(group);
  Chain::Node& node = chain->replica(0);
  auto member =
      Member::Create(*node.device, *node.pd, *node.region, {.datapath = GetParam(), .window = 4});
  ASSERT_OK(member);
  const std::vector<MemberInfo> infos = {(*member)->info()};
  ASSERT_OK((*member)->Connect((*group)->info(), infos));
  ASSERT_OK((*group)->Connect(infos));
  ASSERT_OK((*group)->Write(0, 8, true));  // nobody steps the engine: it stays where it is
  device.Die();
  const Status gone = (*group)->WaitAll();
  EXPECT_THAT(gone, StatusIs(Code::kUnavailable, HasSubstr("RNIC is gone")));
}

// --- what a ring may hold (cpu-polling)

// One replica whose ring the test writes, as the node before it can at any time.
class RingFailureTest : public testing::Test {
 protected:
  void SetUp() override {
    chain_ = Arm();
    info_ = chain_->replica(0).member->info();
  }
  static std::unique_ptr<Chain> Arm() {
    return hyperloop::MakeChain(
        {.datapath = Datapath::kCpuPolling, .group_size = 1, .window = 4, .slots = 8});
  }
  std::byte* end_of_slot(uint32_t slot) const {
    return reinterpret_cast<std::byte*>(CpuSlotEnd(info_.staging_addr, slot, 1));
  }
  void PutLastWord(uint32_t slot, uint64_t word) const {
    std::memcpy(end_of_slot(slot) - sizeof(word), &word, sizeof(word));
  }
  // A message with a check that is right.
  void Put(CpuMessage message, uint64_t sequence = 1) const {
    message.result.sequence = sequence;
    alignas(64) std::array<std::byte, CpuSlotBytes(1)> slot{};
    const CpuPlace place(slot.data() + slot.size(), 1);
    place.message() = message;
    const uint32_t carried = CarriedBytes(message.write_size);
    CheckedMessage(place, {place.carried(carried), carried}).Finish(CpuRingSeed(info_));
    std::memcpy(end_of_slot(0) - slot.size(), slot.data(), slot.size());
  }
  Result<size_t> Turn() const { return chain_->replica(0).cpu->Turn(); }
  // What the member says for good, a little before and at the end of its patience.
  Status AfterItsPatience() const {
    EXPECT_THAT(Turn(), IsOkAndHolds(0u));
    test::HeldClock::Pass(CpuMember::kMostTorn - std::chrono::nanoseconds(1));
    EXPECT_THAT(Turn(), IsOkAndHolds(0u));
    test::HeldClock::Pass(std::chrono::nanoseconds(1));
    const Status status = Turn().status();
    EXPECT_EQ(Turn().status().message(), status.message());
    return status;
  }

  const test::HeldClock clock_;
  std::unique_ptr<Chain> chain_;
  MemberInfo info_;
};

TEST_F(RingFailureTest, WhatNeverBecomesAMessageEndsTheMember) {
  for (const uint64_t word : {uint64_t{1}, uint64_t{2}, uint64_t{9}, ~uint64_t{0}}) {
    chain_.reset();
    SetUp();
    PutLastWord(0, word);
    EXPECT_THAT(AfterItsPatience(),
                StatusIs(Code::kCorruption, HasSubstr("has been no whole message for 2 s")))
        << word;
  }
}

TEST_F(RingFailureTest, AMessageThatWasTornIsServedOnceItIsWhole) {
  for (uint64_t n = 0; n < 20; ++n) {
    PutLastWord(static_cast<uint32_t>(n % 8), n + 1);
    EXPECT_THAT(Turn(), IsOkAndHolds(0u));
    test::HeldClock::Pass(CpuMember::kMostTorn - std::chrono::nanoseconds(1));
    ASSERT_OK(chain_->group().Wait(*chain_->group().Write(8 * n, 8, false)));
  }
}

// The primary's caller changes bytes of a gWRITE before the device fetches them. The error names
// that cause, too.
TEST_F(RingFailureTest, BytesThatChangeUnderWayEndTheMember) {
  ASSERT_OK(chain_->group().Write(8, 8, false));
  chain_->primary_bytes()[8] ^= std::byte{1};
  while (chain_->rnic().engine().Run(64) != 0) {
  }
  EXPECT_THAT(
      AfterItsPatience(),
      StatusIs(Code::kCorruption, HasSubstr("changed bytes of a write that was under way")));
  EXPECT_EQ(chain_->replica_bytes(0)[8], std::byte{0});
}

// Nothing of such a message is done.
TEST_F(RingFailureTest, AWholeMessageThatNoPrimarySendsEndsTheMemberAtOnce) {
  const CpuMessage good = EncodeCpuMessage(1, {.write = {8, 8}, .copy = {}, .cas = {}});
  const auto expect = [&](const CpuMessage& message, uint64_t sequence, const char* says) {
    chain_.reset();
    SetUp();
    const std::vector<std::byte> before(chain_->replica_bytes(0).begin(),
                                        chain_->replica_bytes(0).end());
    Put(message, sequence);
    EXPECT_THAT(Turn(), StatusIs(Code::kCorruption, HasSubstr(says)));
    EXPECT_EQ(std::memcmp(before.data(), chain_->replica_bytes(0).data(), before.size()), 0);
  };
  expect(good, 9, "message number 9");
  expect(good, 2, "message number 2");
  CpuMessage bad = good;
  bad.write_offset = info_.region_size - 4;
  expect(bad, 1, "leaves the region");
  bad = good;
  bad.write_size = ~uint64_t{0};
  expect(bad, 1, "gWRITE");
  bad = good;
  bad.has_cas = 2;
  expect(bad, 1, "flags 2");
  bad = good;
  bad.reserved = 1;
  expect(bad, 1, "flags 0, 0, 1");
}

// What a slot held in an earlier arming is never served in a later one, not even if its number is
// due.
TEST_F(RingFailureTest, ARingServesNoMessageOfAnEarlierArming) {
  chain_->primary_bytes()[8] = std::byte{5};
  ASSERT_OK(chain_->group().Wait(*chain_->group().Write(8, 8, false)));
  std::vector<std::byte> old(end_of_slot(0) - CpuSlotBytes(1), end_of_slot(0));
  chain_.reset();
  SetUp();
  std::memcpy(end_of_slot(0) - old.size(), old.data(), old.size());
  EXPECT_THAT(AfterItsPatience(), StatusIs(Code::kCorruption, HasSubstr("no whole message")));
  EXPECT_EQ(chain_->replica_bytes(0)[8], std::byte{0});
}

// A member is destroyed in the middle of traffic. Its upstream queue pair goes first, and none of
// its queues runs afterwards.
TEST_P(GroupFailureTest, AMemberThatGoesMidwayLeavesNothingRunning) {
  for (uint64_t steps = 0; steps < (offload() ? 120 : 60); steps += offload() ? 3 : 1) {
    const auto chain = MakeTimedChain({.window = 8, .ack_timeout = kShort});
    Group& group = chain->group();
    for (uint64_t i = 0; i < 8; ++i) {
      SetWord(chain->primary_bytes(), 64 * i, i + 1);
      Operation op = FlushedCopyOf(2048, 4096, 64);
      op.write = {64 * i, 64};
      ASSERT_OK(group.Submit(op));
    }
    for (uint64_t i = 0; i < steps; ++i) chain->Step();
    chain->replica(1).member.reset();
    const std::vector<std::byte> own(chain->replica_bytes(1).begin(),
                                     chain->replica_bytes(1).end());
    SetWord(chain->replica_bytes(1), 2048, 1);
    chain->Settle();
    EXPECT_EQ(Word(chain->replica_bytes(1), 4096), 0u) << "no copy runs after the member is gone";
    for (uint32_t i = 0; i < 8; ++i)
      EXPECT_EQ(Word(chain->replica_bytes(1), 64 * i), Word(own, 64 * i));
    const auto newest = group.Poll();
    // Whatever was acknowledged is on every replica.
    for (uint64_t i = 0; newest.ok() && i < *newest; ++i)
      EXPECT_EQ(Word(chain->replica_bytes(2), 64 * i), i + 1);
  }
}

}  // namespace
}  // namespace hyperloop
