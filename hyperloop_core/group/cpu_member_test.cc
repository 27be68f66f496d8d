// Tests the replica's end of cpu-polling and cpu-event: what it makes durable and when, what it
// refuses, and how its thread ends.
#include "group/cpu_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "group/chain_fixture.h"
#include "group/cpu_message.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMemberRegion = 4096;

// --- messages

TEST(CpuMessageTest, CarriesTheOperation) {
  Operation op;
  op.write = {8, 16};
  op.copy = {64, 128, 32};
  op.cas = {true, 256, 1, 2, 5};
  op.flush = true;
  const auto back = DecodeCpuMessage(EncodeCpuMessage(7, op), 7, kMemberRegion, 3);
  ASSERT_OK(back);
  EXPECT_EQ(back->write.size, 16u);
  EXPECT_EQ(back->copy.destination, 128u);
  EXPECT_EQ(back->cas.desired, 2u);
  EXPECT_EQ(back->cas.execute_map, 5u);
  EXPECT_TRUE(back->flush);
}

// Sizes and offsets from a peer are always checked.
TEST(CpuMessageTest, RefusesWhatNoPrimarySubmits) {
  const CpuMessage good = EncodeCpuMessage(1, {.write = {0, 8}, .copy = {}, .cas = {}});
  const auto refused = [](CpuMessage message) {
    const Status status = DecodeCpuMessage(message, 1, kMemberRegion, 3).status();
    EXPECT_THAT(status, StatusIs(Code::kCorruption));
  };
  ASSERT_OK(DecodeCpuMessage(good, 1, kMemberRegion, 3));
  EXPECT_THAT(DecodeCpuMessage(good, 2, kMemberRegion, 3), StatusIs(Code::kCorruption));
  CpuMessage bad = good;
  bad.write_size = kMemberRegion + 1;
  refused(bad);
  bad = good;
  bad.write_offset = ~uint64_t{0};
  refused(bad);
  bad = good;
  bad.copy_size = 8, bad.copy_source = 16, bad.copy_destination = kMemberRegion - 4;
  refused(bad);
  bad.copy_destination = 20;
  refused(bad);
  bad = good;
  bad.has_cas = 1, bad.cas_offset = 12;
  refused(bad);
  bad.cas_offset = 16, bad.execute_map = 8;
  refused(bad);
  bad.execute_map = 1, bad.has_cas = 2;
  refused(bad);
}

// --- durability

struct Persisted {
  uint32_t replica;
  uint64_t offset, size;
  friend bool operator==(const Persisted&, const Persisted&) = default;
};
void PrintTo(const Persisted& p, std::ostream* out) {
  *out << p.replica << ": " << p.offset << "+" << p.size;
}

TEST(CpuMemberTest, MakesDurableWhatAFlushCoversBeforeTheNextHopHearsOfIt) {
  std::vector<Persisted> persisted;
  Chain* chain_seen = nullptr;
  auto made = Chain::Create({.datapath = Datapath::kCpuPolling,
                             .group_size = 2,
                             .region_size = kMemberRegion,
                             .persist = [&](uint32_t replica, uint64_t offset, uint64_t size) {
                               persisted.push_back({replica, offset, size});
                               if (replica == 0) {
                                 EXPECT_EQ(chain_seen->replica_bytes(1)[offset], std::byte{0})
                                     << "told too early";
                               }
                               return Status::Ok();
                             }});
  ASSERT_OK(made);
  Chain& chain = **made;
  chain_seen = &chain;
  std::memset(chain.primary_bytes().data(), 1, 1024);
  ASSERT_OK(chain.group().Wait(*chain.group().Write(0, 64, false)));
  EXPECT_TRUE(persisted.empty()) << "not asked for";
  const std::byte first = chain.replica_bytes(1)[0];
  EXPECT_EQ(first, std::byte{1});
  std::memset(chain.replica_bytes(1).data(), 0, 64);  // for the check in persist
  ASSERT_OK(chain.group().Wait(*chain.group().Write(128, 64, true)));
  const std::vector<Persisted> flushed = {{0, 0, 64}, {0, 128, 64}, {1, 0, 64}, {1, 128, 64}};
  EXPECT_EQ(persisted, flushed) << "what was written before, too";
  persisted.clear();
  ASSERT_OK(chain.group().Wait(*chain.group().MemCopy(128, 2048, 64, false)));
  ASSERT_OK(chain.group().Wait(*chain.group().CompareAndSwap(3072, 0, 1, 3)));
  const std::vector<Persisted> unasked = {{0, 2048, 64}, {1, 2048, 64}, {0, 3072, 8}, {1, 3072, 8}};
  EXPECT_EQ(persisted, unasked);
}

TEST(CpuMemberTest, WhatCannotBeMadeDurableIsNeverAcknowledged) {
  auto made = Chain::Create({.datapath = Datapath::kCpuPolling,
                             .group_size = 3,
                             .ack_timeout = std::chrono::milliseconds(30),
                             .persist = [](uint32_t replica, uint64_t, uint64_t) {
                               return replica == 1 ? Internal("the disk is gone") : Status::Ok();
                             }});
  ASSERT_OK(made);
  Chain& chain = **made;
  std::memset(chain.primary_bytes().data(), 1, 8);
  const auto ticket = chain.group().Write(0, 8, true);
  ASSERT_OK(ticket);
  EXPECT_THAT(chain.group().Wait(*ticket),
              StatusIs(Code::kTimedOut, HasSubstr("a replica's process does not run")));
  EXPECT_EQ(chain.replica_bytes(2)[0], std::byte{0}) << "behind the failure";
}

// --- a primary that keeps no rule

TEST(CpuMemberTest, MoreThanAWindowEndsTheMemberNotItsMemory) {
  auto made =
      Chain::Create({.datapath = Datapath::kCpuPolling,
                     .group_size = 2,
                     .window = 4,
                     .slots = 8,
                     .change_program = [](SlotProgram& program) { program.geometry.window = 1024; },
                     .step = [](softrnic::Engine& engine) { engine.Run(64); }});
  ASSERT_OK(made);
  Chain& chain = **made;
  // Replica 1 takes nothing, so that what replica 0 has to pass on piles up there.
  Status status;
  for (uint64_t n = 0; n < 200 && status.ok(); ++n) {
    ASSERT_OK(chain.group().Write(8 * n, 8, false));
    while (chain.rnic().engine().Run(64) != 0) {
    }
    status = chain.replica(0).cpu->Turn().status();
  }
  EXPECT_THAT(status, StatusIs(Code::kCorruption, HasSubstr("more than the window")));
}

// --- the thread

size_t ThreadsHere() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// Whether the one thread of a member here sleeps.
bool MemberSleeps() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    if (stat.find("(hyperloop-chain) ") == std::string::npos) continue;
    return stat.find("(hyperloop-chain) S") != std::string::npos;
  }
  return false;
}

class CpuThreadTest : public testing::TestWithParam<Datapath> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, CpuThreadTest,
                         testing::Values(Datapath::kCpuPolling, Datapath::kCpuEvent),
                         [](const auto& param) { return TestName(param.param); });

// Once the member is destroyed, nothing more is written here or passed on. Sealing a replica relies
// on that.
TEST_P(CpuThreadTest, NothingIsWrittenAfterTheMemberIsGone) {
  for (int round = 0; round < 5; ++round) {
    auto made = Chain::Create({.datapath = GetParam(),
                               .group_size = 2,
                               .window = 8,
                               .threaded = true,
                               .wait = WaitMode::kEvent,
                               .ack_timeout = std::chrono::milliseconds(100)});
    ASSERT_OK(made);
    Chain& chain = **made;
    std::memset(chain.primary_bytes().data(), 1, 64);
    for (uint64_t i = 0; i < 8; ++i) {
      Operation op;
      op.write = {64 * i, 64};
      op.copy = {4096, 8192 + 64 * i, 64};
      ASSERT_OK(chain.group().Submit(op));
    }
    chain.replica(0).member.reset();
    const std::vector<std::byte> own(chain.replica_bytes(0).begin(), chain.replica_bytes(0).end());
    // The primary may go on for as long as it likes.
    for (uint64_t i = 0; i < 4; ++i) {
      std::memset(chain.primary_bytes().data() + 512 + 64 * i, 2, 64);
      if (!chain.group().Write(512 + 64 * i, 64, true).ok()) break;
    }
    EXPECT_FALSE(chain.group().WaitAll().ok() && chain.group().status().ok() &&
                 *chain.group().Poll() > 8);
    EXPECT_EQ(std::memcmp(own.data(), chain.replica_bytes(0).data(), own.size()), 0);
  }
}

TEST_P(CpuThreadTest, AMemberThatGivesUpSaysWhyOnceAndItsNeighbourNotices) {
  std::mutex mutex;
  std::vector<std::pair<uint32_t, std::string>> failures;
  auto made =
      Chain::Create({.datapath = GetParam(),
                     .group_size = 2,
                     .window = 4,
                     .threaded = true,
                     .wait = WaitMode::kEvent,
                     .ack_timeout = std::chrono::minutes(2),
                     .persist =
                         [](uint32_t replica, uint64_t, uint64_t) {
                           return replica == 1 ? Internal("the disk is gone") : Status::Ok();
                         },
                     .failed =
                         [&](uint32_t replica, const Status& why) {
                           const std::lock_guard lock(mutex);
                           failures.emplace_back(replica, why.message());
                         }});
  ASSERT_OK(made);
  Group& group = (*made)->group();
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return failures.size();
  };
  ASSERT_OK(group.Write(0, 8, true));
  EXPECT_TRUE(test::Eventually([&] { return count() >= 1; }));
  // The next operation meets replica 1's closed queue, the one after that replica 0's.
  ASSERT_OK(group.Write(64, 8, true));
  EXPECT_TRUE(test::Eventually([&] { return count() >= 2; }));
  ASSERT_OK(group.Write(128, 8, true));
  EXPECT_THAT(group.WaitAll(), StatusIs(Code::kUnavailable));
  const std::lock_guard lock(mutex);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].first, 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("the disk is gone"));
  EXPECT_EQ(failures[1].first, 0u);
  EXPECT_THAT(failures[1].second, HasSubstr("the queue to the next node failed"));
}

TEST_P(CpuThreadTest, OutOfMemoryEndsTheMemberAndNotItsProcess) {
  std::atomic<bool> said{false};
  auto made = Chain::Create(
      {.datapath = GetParam(),
       .group_size = 1,
       .threaded = true,
       .persist = [](uint32_t, uint64_t, uint64_t) -> Status { throw std::bad_alloc(); },
       .failed = [&](uint32_t, const Status& why) { said = why.message() == "out of memory"; }});
  ASSERT_OK(made);
  ASSERT_OK((*made)->group().Write(0, 8, true));
  EXPECT_TRUE(test::Eventually([&] { return said.load(); }));
}

TEST_P(CpuThreadTest, AnIdleMemberEndsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    auto made = Chain::Create({.datapath = GetParam(), .group_size = 1, .threaded = true});
    ASSERT_OK(made);
    if (round % 2 == 0) {
      ASSERT_OK((*made)->group().Wait(*(*made)->group().Write(0, 8, true)));
    }
  }
}

TEST_P(CpuThreadTest, AProcessorThatIsNotThereIsRefused) {
  auto made = Chain::Create({.datapath = GetParam(), .group_size = 1, .threaded = true});
  ASSERT_OK(made);
  Chain::Node& node = (*made)->replica(0);
  const auto create = [&](int cpu) {
    return Member::Create(*node.device, *node.pd, *node.region,
                          {.datapath = GetParam(), .group_size = 1, .window = 8, .cpu = cpu});
  };
  EXPECT_THAT(create(5000).status().message(), HasSubstr("processor 5000"));
  auto member = create(1000);
  ASSERT_OK(member);
  const std::vector<MemberInfo> infos = {(*member)->info()};
  // The fixture's own member and engine have threads, too.
  const size_t threads = ThreadsHere();
  const Status refused = (*member)->Connect((*made)->group().info(), infos);
  EXPECT_THAT(refused.message(), HasSubstr("processor 1000"));
  EXPECT_TRUE(test::Eventually([&] { return ThreadsHere() == threads; }))
      << "a thread serves all the same";
}

// An idle thread sleeps. A forked child that destroys the member must not wake it, although the
// child has the descriptor that ends the sleep too.
TEST(CpuEventTest, SleepsWhileIdleAndAForkedChildDoesNotWakeIt) {
  auto made = Chain::Create({.datapath = Datapath::kCpuEvent, .group_size = 1, .threaded = true});
  ASSERT_OK(made);
  Chain& chain = **made;
  ASSERT_OK(chain.group().Wait(*chain.group().Write(0, 8, true)));
  EXPECT_TRUE(test::Eventually(MemberSleeps));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    chain.replica(0).member.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(test::Eventually(MemberSleeps)) << "it wakes over and over";
  ASSERT_OK(chain.group().Wait(*chain.group().Write(64, 8, true)));
}

}  // namespace
}  // namespace hyperloop
