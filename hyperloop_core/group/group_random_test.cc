// Random overlapping operations with a full window must equal their serial execution on every node,
// in whatever order the RNICs work. Negative controls show what makes it so.
//
// A failure prints its seed; HYPERLOOP_SEED=<seed> <this program> --gtest_filter=<test> repeats
// just that run. HYPERLOOP_SEEDS=<n> runs n seeds instead of the default number. That is small,
// because most seeds find what the negative controls break.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#include "group/chain_fixture.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "support/seeds.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using softrnic::EngineTestHooks;
using test::Replay;
using test::Seeds;

constexpr uint64_t kRandomRegion = 2048;  // so small that nearly everything overlaps something

struct RunOptions {
  Way datapath = Datapath::kOffload;
  uint64_t operations = 300;
  uint32_t group_size = 0;  // 0: from the seed
  uint32_t window = 0;
  uint32_t slots = 0;
  bool check_ordering = true;
  std::function<void(SlotProgram&)> change_program = {};
  EngineTestHooks::Fetch fetch = EngineTestHooks::Fetch::kLate;
  bool flushes = true;  // false: no operation asks for a flush
  bool lazy = false;    // the CPU submits faster than the RNICs run
  bool late_acknowledgements = false;
};

// The group's memory as serial execution leaves it: image 0 is the primary's.
class Model {
 public:
  // `copies_of_primary`: with fanout replicas get the bytes that the primary copies.
  Model(uint32_t group_size, bool copies_of_primary)
      : copies_of_primary_(copies_of_primary),
        images_(group_size + 1, std::vector<std::byte>(kRandomRegion)) {}

  std::vector<std::byte>& image(size_t node) { return images_[node]; }
  void Apply(const Operation& op) {
    for (size_t node = 0; node < images_.size(); ++node) {
      std::vector<std::byte>& image = images_[node];
      if (op.write.size != 0 && node > 0) {
        std::memcpy(image.data() + op.write.offset, images_[0].data() + op.write.offset,
                    op.write.size);
      }
    }
    for (size_t node = 0; node < images_.size(); ++node) {
      std::vector<std::byte>& image = images_[node];
      if (op.copy.size != 0)
        std::memcpy(image.data() + op.copy.destination,
                    (copies_of_primary_ ? images_[0] : image).data() + op.copy.source,
                    op.copy.size);
      if (op.cas.present && node > 0 && (op.cas.execute_map >> (node - 1) & 1) != 0) {
        uint64_t value;
        std::memcpy(&value, image.data() + op.cas.offset, sizeof(value));
        originals[node - 1] = value;
        if (value == op.cas.expected)
          std::memcpy(image.data() + op.cas.offset, &op.cas.desired, sizeof(value));
      }
    }
  }
  std::array<uint64_t, kMaxGroupSize> originals{};

 private:
  const bool copies_of_primary_;
  std::vector<std::vector<std::byte>> images_;
};

class Run {
 public:
  Run(uint64_t seed, const RunOptions& options)
      : seed_(seed), options_(options), random_(seed * 0x9e3779b97f4a7c15ull + 1) {}

  // Runs the test. Returns what differs from serial execution; empty: nothing.
  std::string Execute() {
    ChainOptions chain_options;
    chain_options.datapath = options_.datapath;
    chain_options.engine.test.steps = softrnic::RandomSteps;
    chain_options.engine.test.fetch = options_.fetch;
    chain_options.engine.test.defer_delivery = true;
    chain_options.engine.test.retransmit = true;
    chain_options.engine.test.late_acknowledgements = options_.late_acknowledgements;
    chain_options.engine.prefetch_depth =
        options_.fetch == EngineTestHooks::Fetch::kLate ? 0 : 1u << Pick(6);
    chain_options.engine.test.seed = seed_;
    chain_options.group_size = options_.group_size != 0 ? options_.group_size : 1 + Pick(4);
    chain_options.window = options_.window != 0 ? options_.window : 1 + Pick(16);
    chain_options.slots = options_.slots;
    chain_options.region_size = kRandomRegion;
    chain_options.check_ordering = options_.check_ordering;
    chain_options.change_program = options_.change_program;
    chain_options.ack_timeout = std::chrono::seconds(20);
    idle_ = 0;
    chain_options.step = [this](softrnic::Engine&) { Step(1 + random_() % 4); };
    auto made = Chain::Create(chain_options);
    if (!made.ok()) return made.status().ToString();
    chain_ = std::move(made).value();
    model_ = std::make_unique<Model>(chain_->size(), !chain_->chained());
    everyone_ = (1u << chain_->size()) - 1;
    for (uint64_t at = 0; at < kRandomRegion; at += 8) Scribble({at, 8});
    for (uint32_t i = 0; i < chain_->size(); ++i) {
      std::memcpy(chain_->replica_bytes(i).data(), chain_->primary_bytes().data(), kRandomRegion);
      model_->image(i + 1) = model_->image(0);
    }
    for (uint64_t n = 0; n < options_.operations; ++n) {
      if (std::string wrong = One(); !wrong.empty()) return wrong;
    }
    if (!Finish(0)) return Stopped();
    return Compare();
  }

 private:
  struct UnderWay {
    Ticket ticket;
    Operation op;
    std::array<uint64_t, kMaxGroupSize> originals;
  };

  uint32_t Pick(uint64_t below) { return static_cast<uint32_t>(random_() % below); }
  Range PickRange() {
    const uint64_t size = 1 + Pick(Pick(4) == 0 ? 256 : 24);
    return {Pick(kRandomRegion - size), size};
  }
  static bool Touch(const Range& a, const Range& b) {
    return a.size != 0 && b.size != 0 && a.offset < b.offset + b.size &&
           b.offset < a.offset + a.size;
  }
  Operation PickOperation() {
    for (;;) {
      Operation op;
      if (Pick(2) == 0) op.write = PickRange();
      if (Pick(2) == 0) {
        const Range from = PickRange();
        op.copy = {from.offset, Pick(kRandomRegion - from.size), from.size};
      }
      if (Pick(3) == 0) {
        const uint64_t at = 8 * Pick(kRandomRegion / 8);
        uint64_t expected;
        std::memcpy(&expected, model_->image(1).data() + at, 8);
        op.cas = {true, at, Pick(4) == 0 ? random_() : expected, random_(), Pick(everyone_ + 1)};
      }
      op.flush = options_.flushes && Pick(3) == 0;
      const Range source{op.copy.source, op.copy.size},
          destination{op.copy.destination, op.copy.size};
      const Range cas{op.cas.offset, op.cas.present ? 8u : 0u};
      if (Touch(source, destination) || Touch(op.write, source) || Touch(op.write, destination) ||
          Touch(op.write, cas))
        continue;
      return op;
    }
  }
  // New bytes at the primary, in memory and model.
  void Scribble(const Range& range) {
    for (uint64_t i = 0; i < range.size; ++i) {
      const auto value = static_cast<std::byte>(random_());
      chain_->primary_bytes()[range.offset + i] = value;
      model_->image(0)[range.offset + i] = value;
    }
  }
  // Whether no unacknowledged operation reads or writes these bytes at the primary. The caller of a
  // group must leave such bytes alone.
  bool Quiet(const Range& range) {
    const auto newest = chain_->group().Poll();
    if (!newest.ok()) return false;
    for (const UnderWay& other : under_way_) {
      if (other.ticket <= *newest) continue;
      if (Touch(range, other.op.write) ||
          Touch(range, {other.op.copy.source, other.op.copy.size}) ||
          Touch(range, {other.op.copy.destination, other.op.copy.size})) {
        return false;
      }
    }
    return true;
  }

  std::string One() {
    UnderWay next{.ticket = 0, .op = PickOperation(), .originals = {}};
    if (next.op.write.size != 0 && Quiet(next.op.write)) Scribble(next.op.write);
    Result<Ticket> ticket = Busy("");
    do {
      ticket = chain_->group().TrySubmit(next.op);
      if (ticket.ok() || ticket.status().code() != Code::kBusy) break;
      Step();
    } while (!stuck_);
    if (!ticket.ok()) return Stopped() + ": " + ticket.status().ToString();
    model_->originals = {};
    model_->Apply(next.op);
    next.ticket = *ticket;
    next.originals = model_->originals;
    under_way_.push_back(next);
    if (!options_.lazy) {
      for (uint32_t steps = Pick(24); steps > 0; --steps) Step();
    }
    // Results are kept for a window of operations, so each is looked at before that.
    if (!Finish(chain_->geometry().window)) return Stopped();
    return wrong_;
  }
  // Steps the engine or, where the datapath needs it, a replica's CPU; the choice is random.
  void Step(size_t steps = 1) {
    bool worked = false;
    if (chain_->by_cpu() && Pick(3) != 0) {
      worked = chain_->StepCpu(Pick(chain_->size()));
    } else {
      worked = chain_->rnic().engine().Run(steps) != 0;
    }
    // A chain that stands still has nothing left to run. A wait would then never end.
    idle_ = worked ? 0 : idle_ + 1;
    if (idle_ > 10'000) stuck_ = true;
  }
  // Waits until at most `left` operations are unfinished here and compares their result maps.
  // False: broken or stuck.
  bool Finish(size_t left) {
    while (under_way_.size() > left) {
      const UnderWay& oldest = under_way_.front();
      for (;;) {
        const auto newest = chain_->group().Poll();
        if (!newest.ok() || stuck_) return false;
        if (*newest >= oldest.ticket) break;
        Step();
      }
      OperationResult result;
      if (const Status got = chain_->group().Wait(oldest.ticket, &result); !got.ok()) {
        wrong_ = got.ToString();
        return true;
      }
      if (result.original != oldest.originals && wrong_.empty()) {
        wrong_ = "the result map of operation " + std::to_string(oldest.ticket) + " differs";
      }
      under_way_.pop_front();
    }
    return true;
  }
  std::string Stopped() {
    return stuck_ ? "the chain stands still with work left"
                  : "the group broke: " + chain_->group().status().ToString();
  }
  std::string Compare() {
    if (!wrong_.empty()) return wrong_;
    for (size_t node = 0; node <= chain_->size(); ++node) {
      const auto bytes = node == 0 ? chain_->primary_bytes()
                                   : chain_->replica_bytes(static_cast<uint32_t>(node - 1));
      for (uint64_t i = 0; i < kRandomRegion; ++i) {
        if (bytes[i] == model_->image(node)[i]) continue;
        return (node == 0 ? std::string("the primary") : "replica " + std::to_string(node - 1)) +
               " differs at offset " + std::to_string(i);
      }
    }
    return {};
  }

  const uint64_t seed_;
  const RunOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<Chain> chain_;
  std::unique_ptr<Model> model_;
  uint32_t everyone_ = 0;
  std::deque<UnderWay> under_way_;
  std::string wrong_;
  uint32_t idle_ = 0;
  bool stuck_ = false;
};

void ExpectSerial(uint64_t seeds, const RunOptions& options) {
  for (const uint64_t seed : Seeds(seeds)) {
    const std::string wrong = Run(seed, options).Execute();
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << Replay(seed);
  }
}

// Whether more than `share` of `seeds` go wrong.
bool MostGoWrong(uint64_t seeds, const RunOptions& options, double share = 0.5) {
  const std::vector<uint64_t> all = Seeds(seeds);
  uint64_t wrong = 0;
  for (const uint64_t seed : all) wrong += Run(seed, options).Execute().empty() ? 0 : 1;
  return static_cast<double>(wrong) > share * static_cast<double>(all.size());
}

class GroupRandomTest : public testing::TestWithParam<Way> {
 protected:
  void ExpectSerial(uint64_t seeds, RunOptions options) const {
    options.datapath = GetParam();
    // The queues of the other datapaths have less that could go wrong.
    hyperloop::ExpectSerial(GetParam() == Datapath::kOffload ? seeds : seeds / 2, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupRandomTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(GroupRandomTest, EqualsSerialExecutionWithLateFetch) {
  ExpectSerial(16, {.fetch = EngineTestHooks::Fetch::kLate});
}
TEST_P(GroupRandomTest, EqualsSerialExecutionWithEarlyFetch) {
  ExpectSerial(16, {.fetch = EngineTestHooks::Fetch::kEarly});
}
TEST_P(GroupRandomTest, EqualsSerialExecutionWithRandomFetch) {
  ExpectSerial(16, {.fetch = EngineTestHooks::Fetch::kRandom});
}
TEST_P(GroupRandomTest, EqualsSerialExecutionWithAFullWindow) {
  ExpectSerial(12, {.window = 16, .fetch = EngineTestHooks::Fetch::kRandom, .lazy = true});
}
TEST_P(GroupRandomTest, EqualsSerialExecutionOnTheSmallestRings) {
  ExpectSerial(6, {.operations = 1000,
                   .group_size = 2,
                   .window = 4,
                   .slots = 8,
                   .fetch = EngineTestHooks::Fetch::kRandom});
}

// Devices fetch WQEs again until they are answered. Without flushes the answers come late.
TEST_P(GroupRandomTest, EqualsSerialExecutionWithoutFlushes) {
  ExpectSerial(10, {.operations = 600, .window = 4, .slots = 8, .flushes = false, .lazy = true});
}

// Devices fetch WQEs again, and the other ends acknowledge as late as they may. A WQE that is
// fetched again must still be there: every N/2-th operation has a READ, which is answered before
// the slot is rewritten.
TEST_P(GroupRandomTest, EqualsSerialExecutionWithLateAcknowledgements) {
  for (const uint32_t group_size : {1u, 2u, 3u}) {
    ExpectSerial(4, {.operations = 400,
                     .group_size = group_size,
                     .window = 4,
                     .slots = 8,
                     .flushes = false,
                     .lazy = true,
                     .late_acknowledgements = true});
  }
}
TEST(OffloadRandomTest, WithoutTheForcedReadsASlotIsFetchedAgainAfterItsReuse) {
  for (const uint32_t group_size : {2u, 3u}) {
    const bool wrong = MostGoWrong(
        8,
        {.operations = 400,
         .group_size = group_size,
         .window = 4,
         .slots = 8,
         .change_program = [](SlotProgram& program) { program.geometry.flush_interval = 1u << 31; },
         .flushes = false,
         .lazy = true,
         .late_acknowledgements = true},
        0.8);
    EXPECT_TRUE(wrong) << group_size;
  }
}

// The same for the ring that the primary posts to itself.
TEST_P(GroupRandomTest, ThePrimarysRingIsReusedOnlyBehindAnAnswer) {
  for (const uint64_t seed : Seeds(8)) {
    ChainOptions options;
    options.datapath = GetParam();
    options.engine.test.steps = softrnic::RandomSteps;
    options.engine.test.defer_delivery = true;
    options.engine.test.retransmit = true;
    options.engine.test.late_acknowledgements = true;
    options.engine.test.seed = seed;
    options.group_size = 1;
    options.window = 33;  // 128 slots, a READ every 64 operations, and 66 blocks under way
    options.region_size = kRandomRegion;
    auto chain = Chain::Create(options);
    ASSERT_OK(chain);
    for (uint64_t n = 0; n < 1000; ++n) {
      const Operation write{.write = {n % 33 * 56, 56}, .copy = {}, .cas = {}, .flush = false};
      auto ticket = (*chain)->group().TrySubmit(write);
      for (; !ticket.ok() && ticket.status().code() == Code::kBusy;
           ticket = (*chain)->group().TrySubmit(write))
        (*chain)->Step();
      ASSERT_OK(ticket) << "\n" << Replay(seed);
    }
    EXPECT_OK((*chain)->group().WaitAll());
  }
}

// An acknowledgement covers the primary's own copy, however late its loopback queue runs.
TEST_P(GroupRandomTest, AnAcknowledgedCopyIsDoneAtThePrimaryToo) {
  for (const uint64_t seed : Seeds(100)) {
    ChainOptions options;
    options.datapath = GetParam();
    options.engine.test.steps = softrnic::RandomSteps;
    options.engine.test.defer_delivery = true;
    options.engine.test.seed = seed;
    options.group_size = 1;
    options.region_size = kRandomRegion;
    auto chain = Chain::Create(options);
    ASSERT_OK(chain);
    Group& group = (*chain)->group();
    std::memset((*chain)->primary_bytes().data(), 0x5a, 64);
    for (uint64_t i = 0; i < 4; ++i) ASSERT_OK(group.MemCopy(0, 256 + 64 * i, 64, true));
    Ticket seen = 0;
    while (seen < 4) {
      const auto newest = group.Poll();
      ASSERT_OK(newest);
      for (; seen < *newest; ++seen) {
        ASSERT_EQ((*chain)->primary_bytes()[256 + 64 * seen + 63], std::byte{0x5a}) << Replay(seed);
      }
      (*chain)->Step();
    }
  }
}

// In the negative controls most seeds go wrong.
TEST_P(GroupRandomTest, WithoutTheOrderingCheckItDiffers) {
  const bool wrong = MostGoWrong(10, {.datapath = GetParam(),
                                      .check_ordering = false,
                                      .fetch = EngineTestHooks::Fetch::kRandom,
                                      .lazy = true});
  EXPECT_TRUE(wrong);
}

// RECV m re-arms up's WQEs of an operation that is known to be past them. With a distance of
// window - 1 that operation need not be acknowledged.
TEST(OffloadRandomTest, RearmingAnUnacknowledgedOperationBreaks) {
  const bool wrong = MostGoWrong(10, {.group_size = 2,
                                      .window = 2,
                                      .slots = 8,
                                      .change_program =
                                          [](SlotProgram& program) {
                                            program.rearm_distance = program.geometry.window - 1;
                                            program.lookahead =
                                                program.geometry.slots - program.rearm_distance;
                                          },
                                      .fetch = EngineTestHooks::Fetch::kLate,
                                      .lazy = true});
  EXPECT_TRUE(wrong);
}

// The distance in use, window + 1, has one operation to spare in this layout, where nothing stands
// behind SEND_EN(local) in up's slot: its acknowledgement proves that it ran. With a SEND_EN(up)
// behind it the acknowledgement would not prove that.
TEST(OffloadRandomTest, RearmingTheNewestAcknowledgedOperationWouldDo) {
  hyperloop::ExpectSerial(8, {.operations = 1000,
                              .group_size = 2,
                              .window = 2,
                              .slots = 8,
                              .change_program =
                                  [](SlotProgram& program) {
                                    program.rearm_distance = program.geometry.window;
                                    program.lookahead =
                                        program.geometry.slots - program.rearm_distance;
                                  },
                              .fetch = EngineTestHooks::Fetch::kLate,
                              .lazy = true});
}

}  // namespace
}  // namespace hyperloop
