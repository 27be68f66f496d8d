// Tests the four primitives over every datapath, each alone and interleaved, and what is refused.
#include "hyperloop/core/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "group/chain_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

void Fill(std::span<std::byte> bytes, uint64_t offset, uint64_t size, uint8_t first) {
  for (uint64_t i = 0; i < size; ++i) bytes[offset + i] = static_cast<std::byte>(first + i * 7);
}

bool Same(std::span<const std::byte> a, std::span<const std::byte> b, uint64_t offset,
          uint64_t size) {
  return std::memcmp(a.data() + offset, b.data() + offset, size) == 0;
}

uint64_t Counter(Chain& chain, Chain::Node& node, const std::string& name) {
  auto counters = node.device->QueryCounters();
  EXPECT_OK(counters);
  EXPECT_TRUE(counters->contains(name)) << name;
  (void)chain;
  return (*counters)[name];
}

// --- every group size and several windows

struct Shape {
  Way datapath;
  uint32_t group_size, window, slots;
};

class GroupShapeTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    chain_ = MakeChain({.datapath = GetParam().datapath,
                        .group_size = GetParam().group_size,
                        .window = GetParam().window,
                        .slots = GetParam().slots});
    ASSERT_NE(chain_, nullptr);
  }
  std::unique_ptr<Chain> chain_;
};

TEST_P(GroupShapeTest, WriteReachesEveryReplica) {
  Group& group = chain_->group();
  for (const uint64_t size : {1u, 8u, 64u, 1000u, 16384u}) {
    for (const bool flush : {false, true}) {
      Fill(chain_->primary_bytes(), 40, size, static_cast<uint8_t>(size + flush));
      const auto ticket = group.Write(40, size, flush);
      ASSERT_OK(ticket);
      ASSERT_OK(group.Wait(*ticket)) << group.status().ToString();
      for (uint32_t i = 0; i < chain_->size(); ++i) {
        EXPECT_TRUE(Same(chain_->primary_bytes(), chain_->replica_bytes(i), 0,
                         chain_->group().region_size()))
            << size << " B at replica " << i;
      }
    }
  }
}

TEST_P(GroupShapeTest, CopyRunsOnEveryNode) {
  Group& group = chain_->group();
  // In a chain each replica copies its own bytes; only the order to do so travels. With fanout the
  // replicas get the primary's bytes.
  for (uint32_t i = 0; i < chain_->size(); ++i)
    Fill(chain_->replica_bytes(i), 512, 100, static_cast<uint8_t>(chain_->chained() ? i : 99));
  Fill(chain_->primary_bytes(), 512, 100, 99);
  const auto ticket = group.MemCopy(512, 4096, 100, true);
  ASSERT_OK(ticket);
  ASSERT_OK(group.Wait(*ticket)) << group.status().ToString();
  for (uint32_t i = 0; i < chain_->size(); ++i) {
    const auto bytes = chain_->replica_bytes(i);
    EXPECT_EQ(std::memcmp(bytes.data() + 512, bytes.data() + 4096, 100), 0);
    EXPECT_EQ(bytes[4096], static_cast<std::byte>(chain_->chained() ? i : 99));
  }
  const auto own = chain_->primary_bytes();
  EXPECT_EQ(std::memcmp(own.data() + 512, own.data() + 4096, 100), 0);
}

TEST_P(GroupShapeTest, CasObeysTheExecuteMapAndReturnsTheResultMap) {
  Group& group = chain_->group();
  for (uint32_t map = 0; map<(1u << chain_->size()); map += chain_->size()> 4 ? 37 : 1) {
    for (uint32_t i = 0; i < chain_->size(); ++i) {
      const uint64_t value = i == 1 ? 1000 : 500;  // replica 1 never matches
      std::memcpy(chain_->replica_bytes(i).data() + 24, &value, sizeof(value));
    }
    const auto ticket = group.CompareAndSwap(24, 500, 7, map);
    ASSERT_OK(ticket);
    OperationResult result;
    ASSERT_OK(group.Wait(*ticket, &result)) << group.status().ToString();
    for (uint32_t i = 0; i < kMaxGroupSize; ++i) {
      const bool runs = i < chain_->size() && (map >> i & 1) != 0;
      EXPECT_EQ(result.original[i], !runs    ? 0
                                    : i == 1 ? 1000
                                             : 500)
          << "map " << map << " replica " << i;
      if (i < chain_->size()) {
        EXPECT_EQ(Word(chain_->replica_bytes(i), 24), i == 1 ? 1000 : runs ? 7 : 500);
      }
    }
    EXPECT_EQ(Word(chain_->primary_bytes(), 24), 0u) << "gCAS leaves the primary alone";
  }
}

TEST_P(GroupShapeTest, PartsOfOneOperationTakeEffectInOrder) {
  Group& group = chain_->group();
  // The copy takes what an earlier operation wrote; the CAS finds what the copy brought.
  for (uint64_t round = 1; round <= 40; ++round) {
    std::memcpy(chain_->primary_bytes().data() + 128, &round, sizeof(round));
    ASSERT_OK(group.Write(128, 8, false));
    Operation op;
    op.write = {1024, 64};
    op.copy = {128, 256, 8};
    op.cas = {true, 256, round, round + 1000, (1u << chain_->size()) - 1};
    op.flush = true;
    const auto ticket = group.Submit(op);
    ASSERT_OK(ticket);
    OperationResult result;
    ASSERT_OK(group.Wait(*ticket, &result)) << group.status().ToString();
    for (uint32_t i = 0; i < chain_->size(); ++i) {
      EXPECT_EQ(result.original[i], round);
      EXPECT_EQ(Word(chain_->replica_bytes(i), 256), round + 1000);
    }
  }
}

TEST_P(GroupShapeTest, ManyLapsWithAFullWindow) {
  Group& group = chain_->group();
  const uint64_t blocks = 256;
  const uint64_t rounds = 10 * chain_->geometry().slots / blocks + 2;
  for (uint64_t n = 0; n < rounds * blocks; ++n) {
    const uint64_t offset = 64 * (n % blocks);
    if (offset == 0) {
      ASSERT_OK(group.WaitAll());
      Fill(chain_->primary_bytes(), 0, 64 * blocks, static_cast<uint8_t>(n / blocks));
    }
    const auto ticket = group.Write(offset, 64, n % 3 == 0);
    ASSERT_OK(ticket);
    ASSERT_EQ(*ticket, n + 1);
  }
  ASSERT_OK(group.WaitAll()) << group.status().ToString();
  for (uint32_t i = 0; i < chain_->size(); ++i) {
    EXPECT_TRUE(Same(chain_->primary_bytes(), chain_->replica_bytes(i), 0, group.region_size()));
    EXPECT_EQ(Counter(*chain_, chain_->replica(i), "ring_bytes_by_other"), 0u);
    EXPECT_EQ(Counter(*chain_, chain_->replica(i), "error_cqes"), 0u);
  }
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const Way& datapath : kWays) {
    for (uint32_t size = 1; size <= kMaxGroupSize; ++size) shapes.push_back({datapath, size, 8, 0});
    for (const uint32_t window : {1u, 2u, 3u, 4u, 5u, 64u, 100u})
      shapes.push_back({datapath, 3, window, 0});
    shapes.push_back({datapath, 3, 4, 8});
    shapes.push_back({datapath, 1, 1, 8});
    shapes.push_back({datapath, 2, 1, 64});
  }
  return shapes;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GroupShapeTest, testing::ValuesIn(Shapes()),
                         [](const auto& param) {
                           return TestName(param.param.datapath) + "_group" +
                                  std::to_string(param.param.group_size) + "_window" +
                                  std::to_string(param.param.window) + "_slots" +
                                  std::to_string(param.param.slots);
                         });

class GroupTest : public testing::TestWithParam<Way> {
 protected:
  std::unique_ptr<Chain> MakeChain(ChainOptions options) const {
    options.datapath = GetParam();
    return hyperloop::MakeChain(options);
  }
};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

// --- tickets, windows

TEST_P(GroupTest, TrySubmitIsBusyWhileTheWindowIsFull) {
  const auto chain = MakeChain({.window = 4});
  Group& group = chain->group();
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_OK(group.TrySubmit({.write = {i * 64, 64}, .copy = {}, .cas = {}}));
  const auto fifth = group.TrySubmit({.write = {512, 64}, .copy = {}, .cas = {}});
  EXPECT_THAT(fifth, StatusIs(Code::kBusy, HasSubstr("at most 4")));
  chain->Settle();
  EXPECT_OK(group.TrySubmit({.write = {512, 64}, .copy = {}, .cas = {}}));
  ASSERT_OK(group.WaitAll());
  const auto newest = group.Poll();
  ASSERT_OK(newest);
  EXPECT_EQ(*newest, 5u);
}

// Completions are polled in batches: a run that fills the last batch exactly counts like any other.
TEST_P(GroupTest, OnePollTakesInAllThatHasArrived) {
  const auto chain = MakeChain({.window = 64});
  Ticket submitted = 0;
  for (uint64_t burst = 1; burst <= 64; ++burst) {
    for (uint64_t i = 0; i < burst; ++i) submitted = *chain->group().Write(64 * i, 64, false);
    chain->Settle();
    const auto newest = chain->group().Poll();
    ASSERT_OK(newest);
    ASSERT_EQ(*newest, submitted) << "burst of " << burst;
  }
}

TEST_P(GroupTest, TrySubmitIsBusyWhileAConflictIsUnderWay) {
  const auto chain = MakeChain({.window = 4});
  Group& group = chain->group();
  ASSERT_OK(group.MemCopy(0, 1024, 64, true));
  EXPECT_THAT(group.TrySubmit({.write = {63, 1}, .copy = {}, .cas = {}}), StatusIs(Code::kBusy));
  EXPECT_OK(group.TrySubmit({.write = {64, 1}, .copy = {}, .cas = {}}));
  EXPECT_OK(group.Write(63, 1, true)) << "Submit waits instead";
  ASSERT_OK(group.WaitAll());
}

TEST_P(GroupTest, AResultIsKeptForAWindowOfFurtherTickets) {
  const auto chain = MakeChain({.window = 4, .slots = 8});
  Group& group = chain->group();
  const uint64_t value = 55;
  for (uint32_t i = 0; i < 3; ++i) std::memcpy(chain->replica_bytes(i).data() + 8, &value, 8);
  const auto cas = group.CompareAndSwap(8, 55, 56, 7);
  ASSERT_OK(cas);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_OK(group.Write(1024 + i * 64, 64, false));
  ASSERT_OK(group.WaitAll());
  OperationResult result;
  ASSERT_OK(group.Wait(*cas, &result));
  EXPECT_EQ(result.original[2], 55u);
  ASSERT_OK(group.Write(2048, 64, false));
  EXPECT_THAT(group.Wait(*cas, &result), StatusIs(Code::kNotFound));
  EXPECT_OK(group.Wait(*cas));
}

TEST_P(GroupTest, WaitRefusesTicketsThatWereNeverGivenOut) {
  const auto chain = MakeChain({});
  EXPECT_THAT(chain->group().Wait(0), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(chain->group().Wait(1), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(chain->group().WaitAll());
}

// --- lock

TEST_P(GroupTest, LockTakesAllOrPutsBack) {
  const auto chain = MakeChain({});
  Group& group = chain->group();
  ASSERT_OK(group.Lock(0, 0, 41));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(Word(chain->replica_bytes(i), 0), 41u);
  ASSERT_OK(group.Lock(0, 41, 0)) << "unlock";

  const uint64_t other = 77;
  std::memcpy(chain->replica_bytes(1).data(), &other, sizeof(other));
  EXPECT_THAT(group.Lock(0, 0, 41), StatusIs(Code::kBusy, HasSubstr("replica 1 holds 77")));
  EXPECT_EQ(Word(chain->replica_bytes(0), 0), 0u) << "undone";
  EXPECT_EQ(Word(chain->replica_bytes(1), 0), 77u);
  EXPECT_EQ(Word(chain->replica_bytes(2), 0), 0u) << "undone";
}

// --- refusals

TEST_P(GroupTest, RefusesBadOperationsAndStartsNothing) {
  const auto chain = MakeChain({.region_size = 4096});
  Group& group = chain->group();
  struct Case {
    Operation op;
    const char* says;
  };
  const uint64_t huge = ~uint64_t{0};
  std::vector<Case> cases = {
      {{.write = {4096, 1}, .copy = {}, .cas = {}}, "leaves the region of 4096 B"},
      {{.write = {4000, 97}, .copy = {}, .cas = {}}, "leaves the region"},
      {{.write = {huge, 2}, .copy = {}, .cas = {}}, "leaves the region"},
      {{.write = {0, kMaxPart + 1}, .copy = {}, .cas = {}}, "at most 1073741824"},
      {{.write = {}, .copy = {4090, 0, 8}, .cas = {}}, "source"},
      {{.write = {}, .copy = {0, huge - 4, 8}, .cas = {}}, "destination"},
      {{.write = {}, .copy = {0, 7, 8}, .cas = {}}, "overlap"},
      {{.write = {96, 8}, .copy = {0, 100, 8}, .cas = {}}, "overlaps the gMEMCPY"},
      {{.write = {7, 8}, .copy = {0, 100, 8}, .cas = {}}, "overlaps the gMEMCPY"},
      {{.write = {}, .copy = {}, .cas = {true, 4, 0, 1, 1}}, "multiple of 8"},
      {{.write = {}, .copy = {}, .cas = {true, 4096, 0, 1, 1}}, "leaves the region"},
      {{.write = {}, .copy = {}, .cas = {true, 8, 0, 1, 8}}, "beyond the 3"},
      {{.write = {0, 9}, .copy = {}, .cas = {true, 8, 0, 1, 1}}, "overlaps the gCAS"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(group.Submit(c.op), StatusIs(Code::kInvalidArgument, HasSubstr(c.says))) << c.says;
  }
  EXPECT_THAT(group.Flush(0, 0), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(group.Flush(4000, 100), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(group.status());
  const auto first = group.Flush(0, 4096);
  ASSERT_OK(first);
  EXPECT_EQ(*first, 1u) << "nothing was started before";
  EXPECT_OK(group.WaitAll());
}

TEST_P(GroupTest, EndsThatDisagreeAreRefused) {
  auto chain = MakeChain({.group_size = 2, .window = 4});
  Chain::Node& node = chain->replica(0);
  const auto create = [&](uint32_t position, uint32_t group_size, uint32_t window, uint32_t slots) {
    return Member::Create(*node.device, *node.pd, *node.region,
                          {.datapath = GetParam(),
                           .position = position,
                           .group_size = group_size,
                           .window = window,
                           .slots = slots});
  };
  EXPECT_THAT(create(2, 2, 4, 0).status().message(), HasSubstr("position 2"));
  EXPECT_THAT(create(0, 2, kMaxWindow + 1, 0).status().message(),
              HasSubstr("1 to " + std::to_string(kMaxWindow)));
  const auto member = create(0, 2, 8, 0);
  ASSERT_OK(member);
  const std::vector<MemberInfo> infos = {(*member)->info(), chain->replica(1).member->info()};
  EXPECT_THAT((*member)->Connect(chain->group().info(), infos),
              StatusIs(Code::kInvalidArgument, HasSubstr("window 4")));

  if (chain->chained()) {
    const auto same = create(0, 2, 4, 0);
    ASSERT_OK(same);
    PrimaryInfo small = chain->group().info();
    --small.ack_size;
    const std::vector<MemberInfo> both = {(*same)->info(), chain->replica(1).member->info()};
    EXPECT_THAT((*same)->Connect(small, both),
                StatusIs(Code::kInvalidArgument, HasSubstr("the primary's ack area")));
  }

  GroupOptions options;
  options.datapath = GetParam();
  options.window = 4;
  Chain::Node& primary = chain->primary();
  auto group = Group::Create(*primary.device, *primary.pd, *primary.region, options, 2);
  ASSERT_OK(group);
  EXPECT_THAT((*group)->Connect(infos).message(), HasSubstr("window 8"));
  EXPECT_THAT((*group)->Connect(std::span(infos).first(1)).message(), HasSubstr("chain of 1"));
  EXPECT_THAT((*group)->Write(0, 8, false), StatusIs(Code::kInvalidArgument)) << "not connected";
  std::vector<MemberInfo> other = {chain->replica(0).member->info(),
                                   chain->replica(1).member->info()};
  other[1].region_size *= 2;
  EXPECT_THAT((*group)->Connect(other).message(), HasSubstr("region of replica 1"));
  other[1].datapath = 77;
  EXPECT_THAT((*group)->Connect(other).message(), HasSubstr("same datapath option"));
  other[1].version = 9;
  EXPECT_THAT((*group)->Connect(other).message(), HasSubstr("version 9"));
}

// A device that offers less; by default no cross-channel operations, as libibverbs would.
class PlainDevice final : public rnic::Device {
 public:
  explicit PlainDevice(rnic::Device& device, const rnic::Caps& caps = {.provider = "plain"})
      : device_(device), caps_(caps) {}
  const rnic::Caps& caps() const override { return caps_; }
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
  bool alive() const override { return device_.alive(); }
  Result<rnic::Counters> QueryCounters() override { return device_.QueryCounters(); }
  Status Publish(std::string_view, rnic::ProtectionDomain&, std::span<const std::byte>) override {
    return NotSupported("no agent");
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view, std::string_view,
                                                rnic::QueuePair&) override {
    return NotSupported("no agent");
  }

 private:
  rnic::Device& device_;
  rnic::Caps caps_;
};

TEST(OffloadTest, OffloadNamesTheCapabilityThatADeviceLacks) {
  auto chain = MakeChain({.group_size = 1});
  PlainDevice plain(*chain->replica(0).device);
  const auto member =
      Member::Create(plain, *chain->replica(0).pd, *chain->replica(0).region, {.window = 4});
  EXPECT_THAT(member, StatusIs(Code::kNotSupported, HasSubstr("cross-channel")));
  EXPECT_THAT(member.status().message(), HasSubstr("'plain'"));
}

TEST(OffloadTest, ADeviceWhoseReceivesHaveTooFewPlacesIsRefused) {
  auto chain = MakeChain({.group_size = 1});
  const auto create = [&](uint32_t places) {
    rnic::Caps caps = chain->replica(0).device->caps();
    caps.max_sge = places;
    PlainDevice device(*chain->replica(0).device, caps);
    return Member::Create(device, *chain->replica(0).pd, *chain->replica(0).region, {.window = 4})
        .status();
  };
  EXPECT_THAT(create(27), StatusIs(Code::kNotSupported, HasSubstr("up to 28 places")));
  EXPECT_OK(create(28));
}

TEST(DatapathTest, AllButOffloadNeedNoCrossChannel) {
  for (const Datapath datapath : {Datapath::kFanout, Datapath::kCpuPolling}) {
    auto chain = MakeChain({.group_size = 1});
    PlainDevice plain(*chain->replica(0).device);
    const MemberOptions options{.datapath = datapath, .window = 4};
    EXPECT_OK(Member::Create(plain, *chain->replica(0).pd, *chain->replica(0).region, options));
    GroupOptions group;
    group.datapath = datapath;
    group.window = 4;
    PlainDevice primary(*chain->primary().device);
    EXPECT_OK(Group::Create(primary, *chain->primary().pd, *chain->primary().region, group, 1));
  }
  auto chain = MakeChain({.group_size = 1});
  PlainDevice plain(*chain->replica(0).device);
  const Status refused = Member::Create(plain, *chain->replica(0).pd, *chain->replica(0).region,
                                        {.datapath = Datapath::kCpuEvent, .window = 4})
                             .status();
  EXPECT_THAT(refused, StatusIs(Code::kNotSupported, HasSubstr("completion channels")));
}

TEST(DatapathTest, Names) {
  for (const Way& datapath : kWays) {
    ASSERT_OK(ParseDatapath(DatapathName(datapath)));
    EXPECT_EQ(*ParseDatapath(DatapathName(datapath)), datapath);
  }
  EXPECT_THAT(
      ParseDatapath("magic"),
      StatusIs(Code::kInvalidArgument, HasSubstr("offload, fanout, cpu-polling, cpu-event")));
}

// --- honesty

class OffloadOrderTest : public testing::TestWithParam<FlushOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, OffloadOrderTest,
                         testing::Values(FlushOrder::kHopByHop, FlushOrder::kPipelined),
                         [](const auto& param) {
                           return TestName({Datapath::kOffload, param.param});
                         });

TEST_P(OffloadOrderTest, ThePrimarySendsEachByteOnceAndEveryHopReadsItsFlush) {
  const bool pipelined = GetParam() == FlushOrder::kPipelined;
  const auto chain =
      MakeChain({.datapath = {Datapath::kOffload, GetParam()}, .group_size = 3, .window = 8});
  Group& group = chain->group();
  const uint64_t operations = 500, size = 4096;
  const uint64_t sent = Counter(*chain, chain->primary(), "bytes_sent");
  const uint64_t received = Counter(*chain, chain->replica(2), "bytes_received");
  const uint64_t reads[] = {Counter(*chain, chain->replica(0), "read_responses_nonzero"),
                            Counter(*chain, chain->replica(1), "read_responses_nonzero"),
                            Counter(*chain, chain->replica(2), "read_responses_nonzero")};
  for (uint64_t n = 0; n < operations; ++n) ASSERT_OK(group.Write(size * (n % 8), size, true));
  ASSERT_OK(group.WaitAll());
  const uint64_t data = operations * size;
  const uint64_t by_primary = Counter(*chain, chain->primary(), "bytes_sent") - sent;
  EXPECT_GE(by_primary, data);
  EXPECT_LE(by_primary, data + operations * (3 * (pipelined ? 150 : 300) + 64))
      << "data once, and the message";
  EXPECT_GE(Counter(*chain, chain->replica(2), "bytes_received") - received, data);
  for (uint32_t i = 0; i < 3; ++i) {
    // One on `up` from the previous hop, one on `local`.
    EXPECT_GE(Counter(*chain, chain->replica(i), "read_responses_nonzero") - reads[i],
              2 * operations)
        << i;
    EXPECT_EQ(Counter(*chain, chain->replica(i), "ring_bytes_by_other"), 0u);
    EXPECT_GT(Counter(*chain, chain->replica(i), "ring_bytes_by_scatter"),
              operations * (pipelined ? 75 : 200));
    EXPECT_EQ(Counter(*chain, chain->replica(i), "doorbells"), 1u)
        << "the replica's CPU rang once, at set-up";
  }
}

// A flush covers one queue: a READ on `down` proves nothing about what came through `local`. The
// test counts the flushes of the media at each replica, and at the primary for its own copies.
TEST(OffloadTest, AFlushReachesWhatArrivedByEachQueue) {
  const auto chain = MakeChain({.group_size = 3, .window = 8, .media = rnic::Media::kFile});
  Group& group = chain->group();
  ASSERT_OK(group.Wait(*group.Flush()));  // the first operation of a lap is flushed in any case
  const auto flushes = [&](Chain::Node& node) { return Counter(*chain, node, "media_flushes"); };
  const auto all = [&] {
    std::vector<uint64_t> counts = {flushes(chain->primary())};
    for (uint32_t i = 0; i < 3; ++i) counts.push_back(flushes(chain->replica(i)));
    return counts;
  };
  struct Case {
    const char* what;
    Operation op;
    std::vector<uint64_t> more;  // primary, replicas
  };
  const Case cases[] = {
      {"write", {.write = {0, 64}, .copy = {}, .cas = {}, .flush = false}, {0, 0, 0, 0}},
      {"flush of what was written before",
       {.write = {}, .copy = {}, .cas = {}, .flush = true},
       {0, 1, 1, 1}},
      {"write and flush", {.write = {0, 64}, .copy = {}, .cas = {}, .flush = true}, {0, 1, 1, 1}},
      {"copy, flushed everywhere unasked",
       {.write = {}, .copy = {0, 4096, 64}, .cas = {}, .flush = false},
       {1, 1, 1, 1}},
      {"cas, flushed unasked",
       {.write = {}, .copy = {}, .cas = {true, 8192, 0, 1, 5}, .flush = false},
       {0, 1, 0, 1}},
      {"write, copy and flush",
       {.write = {0, 64}, .copy = {4096, 8192, 64}, .cas = {}, .flush = true},
       {1, 2, 2, 2}},
  };
  for (const Case& c : cases) {
    const std::vector<uint64_t> before = all();
    const auto ticket = group.Submit(c.op);
    ASSERT_OK(ticket);
    ASSERT_OK(group.Wait(*ticket)) << group.status().ToString();
    std::vector<uint64_t> more = all();
    for (size_t i = 0; i < more.size(); ++i) more[i] -= before[i];
    EXPECT_EQ(more, c.more) << c.what;
  }
}

TEST(FanoutTest, NoReplicaCpuAndEachReplicaFlushedByThePrimary) {
  const auto chain =
      MakeChain({.datapath = Datapath::kFanout, .group_size = 3, .media = rnic::Media::kFile});
  Group& group = chain->group();
  const auto flushes = [&](Chain::Node& node) { return Counter(*chain, node, "media_flushes"); };
  ASSERT_OK(group.Wait(*group.Write(0, 64, false)));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(flushes(chain->replica(i)), 0u) << "not asked for";
  ASSERT_OK(group.Wait(*group.Flush()));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(flushes(chain->replica(i)), 1u);
  ASSERT_OK(group.Wait(*group.MemCopy(0, 4096, 64, false)));
  ASSERT_OK(group.Wait(*group.CompareAndSwap(8192, 0, 1, 5)));
  EXPECT_EQ(flushes(chain->replica(0)), 3u) << "copy and CAS are flushed unasked";
  EXPECT_EQ(flushes(chain->replica(1)), 2u) << "the CAS was not for this one";
  EXPECT_EQ(flushes(chain->primary()), 1u) << "its own copy";
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Counter(*chain, chain->replica(i), "doorbells"), 0u)
        << "a replica's CPU started something";
    EXPECT_EQ(Counter(*chain, chain->replica(i), "sends"), 0u);
  }
}

// The last replica gets the key of the ack area, because it writes there. The key must give access
// to nothing else of the primary, above all not to the messages that tell replicas what to do.
TEST_P(GroupTest, TheAckAreasKeyOpensTheAckAreaAlone) {
  const auto chain = MakeChain({.group_size = 1, .window = 4});
  const PrimaryInfo& info = chain->group().info();
  if (!chain->chained()) {
    EXPECT_EQ(info.ack_rkey, 0u);
    return;
  }
  ASSERT_OK(chain->group().Wait(*chain->group().Write(0, 8, true)));
  Chain::Node& peer = chain->replica(0);
  const auto completes = [&](rnic::Opcode opcode, uint64_t addr) {
    rnic::QpAttr attr;
    auto cq = std::move(peer.device->CreateCq({.depth = 16})).value();
    auto own_cq = std::move(chain->primary().device->CreateCq({.depth = 16})).value();
    attr.send_cq = attr.recv_cq = cq.get();
    auto from = std::move(peer.pd->CreateQueuePair(attr)).value();
    attr.send_cq = attr.recv_cq = own_cq.get();
    auto to = std::move(chain->primary().pd->CreateQueuePair(attr)).value();
    EXPECT_OK(from->Connect(to->address()));
    EXPECT_OK(to->Connect(from->address()));
    const rnic::Sge sge{peer.region->addr(), 8, peer.region->lkey()};
    rnic::SendRequest request;
    request.opcode = opcode;
    request.signaled = true;
    request.sges = std::span(&sge, 1);
    request.remote_addr = addr;
    request.rkey = info.ack_rkey;
    EXPECT_OK(from->Post(std::span(&request, 1)));
    chain->Settle();
    std::array<rnic::Completion, 1> completion;
    EXPECT_EQ(cq->Poll(completion).value(), 1u);
    return completion[0].status;
  };
  using rnic::WcStatus;
  EXPECT_EQ(completes(rnic::Opcode::kWrite, info.ack_addr + info.ack_size - 8), WcStatus::kSuccess);
  EXPECT_EQ(completes(rnic::Opcode::kWrite, info.ack_addr + info.ack_size),
            WcStatus::kRemoteAccess);
  EXPECT_EQ(completes(rnic::Opcode::kRead, info.ack_addr + info.ack_size), WcStatus::kRemoteAccess);
  // With offload alone the tail reads it, for an answer behind its acknowledgement.
  EXPECT_EQ(completes(rnic::Opcode::kRead, info.ack_addr),
            chain->by_cpu() ? WcStatus::kRemoteAccess : WcStatus::kSuccess);
}

// Indexes have 16 bits, and each operation takes one or more of every queue's. The test runs past
// the indexes' end, on rings of the smallest and of another size.
TEST_P(GroupTest, RunsPastEveryIndexWrap) {
  constexpr uint64_t kOperations = 70'000;
  for (const uint32_t slots : {8u, 64u}) {
    const auto chain =
        MakeChain({.group_size = 2, .window = 4, .slots = slots, .region_size = 4096});
    Group& group = chain->group();
    for (uint64_t n = 0; n < kOperations; ++n) {
      // A counter that only CASes move, so that no operation may be lost, doubled or reordered.
      const auto ticket = group.CompareAndSwap(64, n, n + 1, 3);
      ASSERT_OK(ticket);
    }
    OperationResult result;
    const auto last = group.CompareAndSwap(64, 0, 0, 3);
    ASSERT_OK(last);
    ASSERT_OK(group.Wait(*last, &result)) << group.status().ToString();
    EXPECT_EQ(result.original[0], kOperations);
    EXPECT_EQ(result.original[1], kOperations);
  }
}

}  // namespace
}  // namespace hyperloop
