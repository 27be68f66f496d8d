// The power fails at every step of a group's operations. Afterwards what was acknowledged as
// durable must be in every node's memory, and every other byte must be one that some operation put
// there. Negative controls show what makes it so.
//
// A failure prints its seed; HYPERLOOP_SEED=<seed> <this program> --gtest_filter=<test> repeats
// just that run. HYPERLOOP_SEEDS=<n> runs n seeds instead of the default number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <set>

#include "group/chain_fixture.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "support/seeds.h"

namespace hyperloop {
namespace {

using softrnic::EngineTestHooks;
using test::Replay;
using test::Seeds;

constexpr uint64_t kPowerRegion = 1024;  // so small that operations share lines and overlap

// Every value that a byte of a node had, and which operation put it there.
class NodeHistory {
 public:
  struct Value {
    Ticket ticket;
    std::byte byte;
    bool local;  // by a copy or CAS, which are durable once acknowledged, flush or not
  };

  explicit NodeHistory(std::span<const std::byte> initial)
      : settled_(initial.begin(), initial.end()) {
    for (const std::byte byte : initial) bytes_.push_back({{0, byte, false}});
  }
  std::byte newest(uint64_t at) const { return bytes_[at].back().byte; }
  void Put(uint64_t at, Value value) {
    bytes_[at].push_back(value);
    unsettled_.insert(at);
  }

  // What is wrong with `image` if operations up to `acknowledged` are acknowledged, and those up to
  // `durable` are flushed too. Empty: nothing.
  std::string Check(std::span<const std::byte> image, Ticket acknowledged, Ticket durable) {
    for (auto next = unsettled_.begin(); next != unsettled_.end();) {
      const uint64_t at = *next;
      std::deque<Value>& values = bytes_[at];
      const auto sure = [&](const Value& value) {
        return value.ticket <= durable || (value.local && value.ticket <= acknowledged);
      };
      size_t oldest = values.size() - 1;
      while (!sure(values[oldest])) --oldest;
      values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(oldest));
      const auto known = std::find_if(values.begin(), values.end(),
                                      [&](const Value& value) { return value.byte == image[at]; });
      if (known == values.end()) return Unknown(at, acknowledged, durable);
      settled_[at] = known->byte;
      next = values.size() == 1 ? unsettled_.erase(next) : std::next(next);
    }
    if (std::memcmp(settled_.data(), image.data(), image.size()) == 0) return {};
    const auto differs = std::mismatch(settled_.begin(), settled_.end(), image.begin()).first;
    return Unknown(static_cast<uint64_t>(differs - settled_.begin()), acknowledged, durable);
  }

 private:
  std::string Unknown(uint64_t at, Ticket acknowledged, Ticket durable) const {
    const Value& value = bytes_[at][0];
    return "byte " + std::to_string(at) + " is not what " +
           (value.local ? "the copy or CAS" : "the write") + " of operation " +
           std::to_string(value.ticket) + " made, nor any later; acknowledged are " +
           std::to_string(acknowledged) + ", flushed " + std::to_string(durable);
  }

  std::vector<std::deque<Value>> bytes_;
  std::set<uint64_t> unsettled_;  // the bytes that may have one of several values
  // The value of each byte that can have just one. Of another: the one that was seen last.
  std::vector<std::byte> settled_;
};

struct PowerOptions {
  uint32_t group_size = 0;  // 0: from the seed
  uint64_t operations = 60;
  Way datapath = Datapath::kOffload;
  // Each of these is false in a negative control.
  bool ask = true;            // operations ask for the flush that the check expects
  bool read_up = true;        // a READ on `up` flushes
  bool read_local = true;     // a READ on `local` flushes
  bool persist_own = true;    // the primary persists what its CPU stored
  bool persist_there = true;  // the replicas' CPUs persist too, with cpu-polling and cpu-event
  // At one step of the run, of the seed's choice, something fails at a node of the seed's choice.
  bool fault = false;
};

class PowerRun {
 public:
  PowerRun(uint64_t seed, const PowerOptions& options)
      : options_(options), random_(seed * 0x9e3779b97f4a7c15ull + 1) {
    ChainOptions chain;
    chain.engine.test.steps = softrnic::RandomSteps;
    chain.engine.test.fetch = EngineTestHooks::Fetch::kRandom;
    chain.engine.prefetch_depth = 1u << Pick(5);
    chain.engine.test.defer_delivery = true;
    chain.engine.test.retransmit = true;
    chain.engine.test.seed = seed;
    chain.engine.test.watch = &model_;
    chain.datapath = options.datapath;
    chain.persist = [this](uint32_t replica, uint64_t offset, uint64_t size) {
      if (options_.persist_there) model_.Persist(Bytes(replica + 1).data() + offset, size);
      return Status::Ok();
    };
    chain.group_size = options.group_size != 0 ? options.group_size : 1 + Pick(3);
    chain.window = 1 + Pick(8);
    chain.region_size = kPowerRegion;
    chain_ = std::move(Chain::Create(chain)).value();
    for (std::byte& byte : chain_->primary_bytes()) byte = static_cast<std::byte>(random_());
    for (uint32_t i = 0; i < chain_->size(); ++i) {
      std::memcpy(chain_->replica_bytes(i).data(), chain_->primary_bytes().data(), kPowerRegion);
      const MemberInfo& member = chain_->replica(i).member->info();
      if (!options.read_up) model_.IgnoreReadsOf(member.up_qpn);
      if (!options.read_local) model_.IgnoreReadsOf(member.local_qpn);
    }
    for (uint32_t node = 0; node <= chain_->size(); ++node) {
      model_.Watch(Bytes(node));
      history_.emplace_back(Bytes(node));
    }
    if (options.fault) fault_step_ = Pick(options.operations * 60);
  }
  ~PowerRun() {
    for (uint32_t node = 0; node <= chain_->size(); ++node) model_.Unwatch(Bytes(node));
  }

  // Runs the test. Returns what a power failure at some step has lost or changed; empty: nothing.
  std::string Execute() {
    for (uint64_t n = 0; n < options_.operations && !broken_; ++n) {
      Submit();
      for (uint32_t steps = Pick(120); steps > 0 && wrong_.empty(); --steps) Step();
      if (!wrong_.empty()) return wrong_;
    }
    for (int idle = 0; acknowledged_ < submitted_ && wrong_.empty();) {
      idle = Step() ? 0 : idle + 1;
      if (idle > 100 && faulted_) break;  // what is left is never acknowledged
      if (idle > 10'000) return "the chain stands still with work left";
    }
    return wrong_;
  }
  // Whether the fault came while operations were under way.
  bool faulted() const { return faulted_; }
  uint64_t power_failures() const { return power_failures_; }
  uint64_t torn() const { return torn_; }

 private:
  struct UnderWay {
    Ticket ticket;
    Operation op;
  };

  uint32_t Pick(uint64_t below) { return static_cast<uint32_t>(random_() % below); }
  // The region of a node; 0 is the primary.
  std::span<std::byte> Bytes(uint32_t node) {
    return node == 0 ? chain_->primary_bytes() : chain_->replica_bytes(node - 1);
  }
  static bool Touch(const Range& a, const Range& b) {
    return a.size != 0 && b.size != 0 && a.offset < b.offset + b.size &&
           b.offset < a.offset + a.size;
  }
  Range PickRange() {
    const uint64_t size = 1 + Pick(Pick(3) == 0 ? 300 : 40);
    return {Pick(kPowerRegion - size), size};
  }
  Operation PickOperation() {
    for (;;) {
      Operation op;
      if (Pick(3) != 0) op.write = PickRange();
      if (Pick(2) == 0) {
        const Range from = PickRange();
        op.copy = {from.offset, Pick(kPowerRegion - from.size), from.size};
      }
      const uint64_t word = 8 * Pick(kPowerRegion / 8);
      if (Pick(3) == 0) {
        uint64_t expected = 0;
        for (uint64_t i = 8; i-- > 0;)
          expected = expected << 8 | std::to_integer<uint64_t>(history_[1].newest(word + i));
        op.cas = {true, word, expected, random_(), 1u + Pick((1u << chain_->size()) - 1)};
      }
      op.flush = Pick(2) == 0;
      const Range source{op.copy.source, op.copy.size};
      const Range destination{op.copy.destination, op.copy.size};
      if (!Touch(source, destination) && !Touch(op.write, source) &&
          !Touch(op.write, destination) && !Touch(op.write, {word, op.cas.present ? 8u : 0u}))
        return op;
    }
  }
  // Whether no operation under way reads or writes these bytes of the primary.
  bool Quiet(const Range& range) const {
    return std::none_of(under_way_.begin(), under_way_.end(), [&](const UnderWay& other) {
      return Touch(range, other.op.write) ||
             Touch(range, {other.op.copy.source, other.op.copy.size}) ||
             Touch(range, {other.op.copy.destination, other.op.copy.size});
    });
  }

  void Submit() {
    const Operation op = PickOperation();
    if (op.write.size != 0 && Quiet(op.write)) {
      for (uint64_t at = op.write.offset; at < op.write.offset + op.write.size; ++at) {
        Bytes(0)[at] = static_cast<std::byte>(random_());
        history_[0].Put(at, {submitted_ + 1, Bytes(0)[at], false});
      }
      Look();  // the CPU has stored, and not yet persisted
      if (options_.persist_own) model_.Persist(Bytes(0).data() + op.write.offset, op.write.size);
    }
    Operation asked = op;
    asked.flush = op.flush && options_.ask;
    for (int idle = 0; wrong_.empty();) {
      const auto ticket = chain_->group().TrySubmit(asked);
      if (ticket.ok()) break;
      if (ticket.status().code() != Code::kBusy) wrong_ = ticket.status().ToString();
      idle = Step() ? 0 : idle + 1;
      if (faulted_ && (broken_ || idle > 100)) {
        broken_ = true;
        wrong_.clear();
        return;
      }
      if (idle > 10'000) wrong_ = "the chain stands still";
    }
    under_way_.push_back({++submitted_, op});
    Note(op);
  }
  // Enters what the operation does to every node.
  void Note(const Operation& op) {
    const Ticket ticket = submitted_;
    for (uint32_t node = 0; node < history_.size(); ++node) {
      NodeHistory& history = history_[node];
      for (uint64_t i = 0; node > 0 && i < op.write.size; ++i) {
        const uint64_t at = op.write.offset + i;
        history.Put(at, {ticket, history_[0].newest(at), false});
      }
      for (uint64_t i = 0; i < op.copy.size; ++i)
        history.Put(
            op.copy.destination + i,
            {ticket, (chain_->chained() ? history : history_[0]).newest(op.copy.source + i), true});
      if (!op.cas.present || node == 0 || (op.cas.execute_map >> (node - 1) & 1) == 0) continue;
      uint64_t found = 0;
      for (uint64_t i = 8; i-- > 0;)
        found = found << 8 | std::to_integer<uint64_t>(history.newest(op.cas.offset + i));
      if (found != op.cas.expected) continue;
      for (uint64_t i = 0; i < 8; ++i)
        history.Put(op.cas.offset + i,
                    {ticket, static_cast<std::byte>(op.cas.desired >> (8 * i)), true});
    }
  }

  // Takes a node's region from its RNIC, so that WQEs that name it fail at either end, or takes a
  // replica's queues.
  void Fault() {
    faulted_ = true;
    const uint32_t node = Pick(chain_->size() + 1);
    if (node == 0) {
      chain_->primary().region.reset();
    } else if (Pick(4) != 0) {
      chain_->replica(node - 1).region.reset();
    } else {
      chain_->replica(node - 1).member.reset();
    }
  }

  // Runs one step of the engine, and then checks what a power failure would leave.
  bool Step() {
    if (options_.fault && !faulted_ && steps_++ == fault_step_) Fault();
    const bool ran = chain_->Step();
    const auto newest = chain_->group().Poll();
    if (!newest.ok()) {
      broken_ = true;
      if (!faulted_) wrong_ = newest.status().ToString();
      Look();
      return ran;
    }
    acknowledged_ = *newest;
    while (!under_way_.empty() && under_way_.front().ticket <= acknowledged_) {
      if (under_way_.front().op.flush) durable_ = under_way_.front().ticket;
      under_way_.pop_front();
    }
    Look();
    return ran;
  }
  // Checks what would be left on each node if the power failed now: at worst, and by chance.
  void Look() {
    ++power_failures_;
    for (uint32_t node = 0; node < history_.size() && wrong_.empty(); ++node) {
      const std::byte* const base = Bytes(node).data();
      const std::vector<std::byte> certain = model_.Durable(base);
      wrong_ = history_[node].Check(certain, acknowledged_, durable_);
      if (wrong_.empty()) {
        const std::vector<std::byte> left = model_.PowerFailure(base, random_);
        torn_ += left != certain;
        wrong_ = history_[node].Check(left, acknowledged_, durable_);
      }
      if (!wrong_.empty()) wrong_ = (node == 0 ? "primary: " : "replica: ") + wrong_;
    }
  }

  const PowerOptions options_;
  std::mt19937_64 random_;
  softrnic::PersistenceModel model_;
  std::unique_ptr<Chain> chain_;
  std::vector<NodeHistory> history_;
  std::deque<UnderWay> under_way_;
  Ticket submitted_ = 0, acknowledged_ = 0, durable_ = 0;
  uint64_t power_failures_ = 0, torn_ = 0;
  uint64_t steps_ = 0, fault_step_ = 0;
  bool faulted_ = false, broken_ = false;
  std::string wrong_;
};

void ExpectDurable(uint64_t seeds, const PowerOptions& options) {
  uint64_t failures = 0, torn = 0;
  for (const uint64_t seed : Seeds(seeds)) {
    PowerRun run(seed, options);
    ASSERT_EQ(run.Execute(), "") << "seed " << seed << "\n" << Replay(seed);
    failures += run.power_failures();
    torn += run.torn();
  }
  EXPECT_GT(torn, failures / 10) << "too few of them left anything undecided to prove anything";
}

// How many of `seeds` fail. All failures must say `what`.
uint64_t CountLost(uint64_t seeds, const PowerOptions& options, const std::string& what) {
  uint64_t lost = 0;
  for (const uint64_t seed : Seeds(seeds)) {
    const std::string wrong = PowerRun(seed, options).Execute();
    if (wrong.empty()) continue;
    ++lost;
    EXPECT_THAT(wrong, testing::HasSubstr(what)) << "seed " << seed << ": " << wrong;
  }
  return lost;
}

class GroupPowerDatapathTest : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupPowerDatapathTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(GroupPowerDatapathTest, WhatAFlushAcknowledgedIsDurableOnEveryNode) {
  for (uint32_t group_size = 1; group_size <= 3; ++group_size)
    ExpectDurable(GetParam() == Datapath::kOffload ? 6 : 3,
                  {.group_size = group_size, .datapath = GetParam()});
}
// Whatever fails, and whenever, nothing is acknowledged as durable that is not durable on every
// node. A SEND that ran behind a WRITE that failed would tell the next replica of bytes that it
// never got.
TEST_P(GroupPowerDatapathTest, AFaultAtAnyStepAcknowledgesNothingUnflushed) {
  uint64_t faults = 0, seeds = 0;
  for (const uint64_t seed : Seeds(GetParam() == Datapath::kOffload ? 120 : 40)) {
    PowerRun run(seed, {.operations = 12, .datapath = GetParam(), .fault = true});
    ASSERT_EQ(run.Execute(), "") << "seed " << seed << "\n" << Replay(seed);
    faults += run.faulted();
    ++seeds;
  }
  EXPECT_GT(faults, seeds / 2) << "the others ended before their fault's step came";
}
// With fanout a READ makes writes durable; with cpu-polling and cpu-event the replicas' CPUs do.
TEST(GroupPowerTest, WithoutItsMeansAnyDatapathLosesWrites) {
  EXPECT_GT(CountLost(6, {.datapath = Datapath::kFanout, .read_up = false}, "replica: byte"), 4u);
  EXPECT_GT(
      CountLost(6, {.datapath = Datapath::kCpuPolling, .persist_there = false}, "replica: byte"),
      4u);
}

// The negative controls: each takes away one thing that the guarantee rests on.
TEST(GroupPowerTest, WithoutTheFlushAWriteIsLost) {
  EXPECT_GT(CountLost(12, {.ask = false}, "replica: byte"), 10u);
}
// A flush covers one queue pair: the READs on `down`, which the next hop's `up` serves, flush
// nothing that came by `local`.
TEST(GroupPowerTest, WithTheFlushOnDownOnlyACopyIsLost) {
  EXPECT_GT(CountLost(12, {.read_local = false}, "the copy or CAS"), 10u);
}
TEST(GroupPowerTest, WithTheFlushOnLocalOnlyAWriteIsLost) {
  EXPECT_GT(CountLost(12, {.read_up = false}, "the write"), 10u);
}
// No RNIC flushes what the primary's CPU stores in its own region.
TEST(GroupPowerTest, WithoutPersistingItsStoresThePrimaryLosesThem) {
  EXPECT_GT(CountLost(12, {.persist_own = false}, "primary: byte"), 10u);
}

}  // namespace
}  // namespace hyperloop
