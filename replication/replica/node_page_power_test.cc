// The power fails while a node writes its promises: one of the two copies always holds the former
// state or the new one, and once Save has returned it is the new one.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "replica/node_state_store.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "support/status_matchers.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

// A page whose power can fail.
struct PowerPage {
  PowerPage() {
    power.Watch(page());
    media.on_persist = [this](const void* data, size_t size) {
      if (before_persist) before_persist();
      if (fail) return Unavailable("write error");
      power.Persist(data, size);
      return Status();
    };
  }
  std::span<std::byte> page() { return {memory.bytes, kNodePageSize}; }
  // The sealed epoch that a node finds after a power failure now; 0: page never written.
  Result<uint64_t> Left() {
    const std::vector<std::byte> left = power.PowerFailure(memory.bytes, random);
    const Result<NodeState> state = ReadNodeState(left);
    if (state.status().code() == Code::kNotFound) return uint64_t{0};
    if (!state.ok()) return state.status();
    directive = state->directive;
    return state->sealed_epoch;
  }
  void ExpectLeft(uint64_t least, uint64_t most, const char* when) {
    for (int i = 0; i < 20; ++i) {
      const Result<uint64_t> epoch = Left();
      ASSERT_OK(epoch) << " " << when << " " << most;
      ASSERT_GE(*epoch, least) << when;
      ASSERT_LE(*epoch, most) << when;
      ExpectDirective(least, most);
    }
  }

  // Of one of these promises, and whole.
  void ExpectDirective(uint64_t least, uint64_t most) const;

  struct alignas(64) Memory {
    std::byte bytes[kNodePageSize] = {};
  };
  Memory memory;
  softrnic::PersistenceModel power;
  RamMedia media;
  std::function<void()> before_persist;
  bool fail = false;
  std::mt19937_64 random{1};
  Directive directive;  // that Left found
};

// Its number is that of the promise.
Directive DirectiveOf(uint64_t epoch) {
  Directive directive;
  directive.number = {epoch, epoch};
  directive.by.assign(1 + epoch % 100, static_cast<char>('a' + epoch % 26));
  directive.drained.assign(epoch % 8, "node" + std::to_string(epoch));
  return directive;
}

void PowerPage::ExpectDirective(uint64_t least, uint64_t most) const {
  ASSERT_GE(directive.number.count, least);
  ASSERT_LE(directive.number.count, most);
  if (directive.number.count != 0) {
    ASSERT_EQ(directive, DirectiveOf(directive.number.count));
  }
}

// Large enough that its copy has many lines that differ from the one before.
NodeState Promise(uint64_t epoch) {
  NodeState state;
  state.node = {1, 2, 3};
  state.group = {4};
  state.sealed_epoch = epoch;
  state.installed = {epoch, {9}, {}, {}};
  for (uint64_t i = 0; i < 1 + epoch % 8; ++i)
    state.installed.replicas.push_back(
        {Uuid{static_cast<uint8_t>(i)}, "host" + std::to_string(epoch * 7 + i) + ":1234"});
  state.directive = DirectiveOf(epoch);
  return state;
}

TEST(NodePagePowerTest, OldOrNewWheneverThePowerFails) {
  PowerPage p;
  NodePageStore store(p.page(), p.media);
  for (uint64_t epoch = 1; epoch <= 100; ++epoch) {
    p.before_persist = [&] { p.ExpectLeft(epoch - 1, epoch, "while saving"); };
    NodeState state = Promise(epoch);
    ASSERT_OK(store.Save(&state));
    p.ExpectLeft(epoch, epoch, "saved");
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

// The negative control: one copy that is rewritten in place does not survive.
TEST(NodePagePowerTest, OneCopyAloneWouldBeTorn) {
  PowerPage p;
  NodePageStore store(p.page(), p.media);
  int torn = 0;
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    p.page()[kNodeCopyOffsets[1]] = std::byte{1};  // no state
    p.power.Persist(p.page().data(), p.page().size());
    std::vector<std::byte> scratch(kNodePageSize);
    NodeState state = Promise(epoch);
    ASSERT_OK(WriteNodeState(scratch, &state));
    std::copy_n(scratch.begin(), 1024, p.page().begin());
    for (int i = 0; i < 20; ++i) torn += p.Left().ok() ? 0 : 1;
  }
  EXPECT_GT(torn, 50);
}

// The process is killed between storing and persisting. The next process finds a newer copy that is
// not durable, and must make it durable before it writes over the other one.
TEST(NodePagePowerTest, AfterAKillInTheMiddleOfASaveToo) {
  for (uint64_t epoch = 2; epoch <= 30; ++epoch) {
    PowerPage p;
    NodePageStore store(p.page(), p.media);
    NodeState state = Promise(epoch - 1);
    ASSERT_OK(store.Save(&state));
    state = Promise(epoch);
    ASSERT_OK(WriteNodeState(p.page(), &state));  // and killed here
    NodePageStore restarted(p.page(), p.media);
    ASSERT_EQ(restarted.Load()->sealed_epoch, epoch);
    p.before_persist = [&] { p.ExpectLeft(epoch - 1, epoch + 1, "while saving"); };
    state = Promise(epoch + 1);
    ASSERT_OK(restarted.Save(&state));
    p.ExpectLeft(epoch + 1, epoch + 1, "saved");
    if (testing::Test::HasFatalFailure()) FAIL() << epoch;
  }
}

TEST(NodePagePowerTest, AFailedSaveLeavesTheFormerStateInForce) {
  PowerPage p;
  NodePageStore store(p.page(), p.media);
  NodeState state = Promise(1);
  ASSERT_OK(store.Save(&state));
  for (uint64_t epoch = 2; epoch <= 30; ++epoch) {
    int persists = 0;
    p.before_persist = [&] { p.fail = ++persists == 2; };  // the new copy's own
    state = Promise(epoch + 100);
    ASSERT_THAT(store.Save(&state), StatusIs(Code::kUnavailable));
    p.fail = false;
    EXPECT_EQ(store.Load()->sealed_epoch, epoch - 1);
    p.before_persist = [&] { p.ExpectLeft(epoch - 1, epoch, "while saving"); };
    state = Promise(epoch);
    ASSERT_OK(store.Save(&state));
    p.ExpectLeft(epoch, epoch, "saved");
    if (testing::Test::HasFatalFailure()) FAIL() << epoch;
  }
}

// A former owner's word of its group must not be taken for the next one's.
TEST(NodePage, ASealTakesAwayWhatTheFormerOwnerSaidOfAcknowledgedRecords) {
  PowerPage p;
  NodePageStore store(p.page(), p.media);
  const uint64_t said = MakeOwnerAcked(1, 5000);
  std::memcpy(p.page().data() + kOwnerAckedOffset, &said, sizeof(said));
  store.SetOwnerName("the next one");
  uint64_t left = 1;
  std::memcpy(&left, p.page().data() + kOwnerAckedOffset, sizeof(left));
  EXPECT_EQ(left, 0u);
}

}  // namespace
}  // namespace hyperloop
