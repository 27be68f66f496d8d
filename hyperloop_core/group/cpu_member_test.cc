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
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "group/chain_fixture.h"
#include "group/cpu_message.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
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
  Operation back;
  ASSERT_OK(DecodeCpuMessage(EncodeCpuMessage(7, op), 7, kMemberRegion, 3, &back));
  EXPECT_EQ(back.write.size, 16u);
  EXPECT_EQ(back.copy.destination, 128u);
  EXPECT_EQ(back.cas.desired, 2u);
  EXPECT_EQ(back.cas.execute_map, 5u);
  EXPECT_TRUE(back.flush);
}

// Sizes and offsets from a peer are always checked.
TEST(CpuMessageTest, RefusesWhatNoPrimarySubmits) {
  const CpuMessage good = EncodeCpuMessage(1, {.write = {0, 8}, .copy = {}, .cas = {}});
  Operation op;
  const auto refused = [&op](CpuMessage message) {
    EXPECT_THAT(DecodeCpuMessage(message, 1, kMemberRegion, 3, &op), StatusIs(Code::kCorruption));
  };
  ASSERT_OK(DecodeCpuMessage(good, 1, kMemberRegion, 3, &op));
  EXPECT_THAT(DecodeCpuMessage(good, 2, kMemberRegion, 3, &op), StatusIs(Code::kCorruption));
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
  bad = good;
  bad.reserved = 1;
  refused(bad);
}

// --- the ring

// A slot, or the place of a message, with message number `sequence` of a group of 3.
class Slot {
 public:
  static constexpr uint32_t kGroupSize = 3, kBytes = CpuSlotBytes(kGroupSize);

  Slot() : memory_(kBytes / sizeof(uint64_t)) {}
  Slot(uint64_t sequence, const Operation& op, uint64_t seed) : Slot() {
    place().message() = EncodeCpuMessage(sequence, op);
    const uint32_t carried = CarriedBytes(op.write.size);
    std::memset(place().carried(carried), static_cast<int>(sequence), carried);
    CheckedMessage(place(), {place().carried(carried), carried}).Finish(seed);
  }
  std::byte* begin() { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::byte* end() { return begin() + kBytes; }
  CpuPlace place() { return {end(), kGroupSize}; }
  uint64_t& word(size_t i) { return memory_[i]; }
  friend bool operator==(const Slot&, const Slot&) = default;

 private:
  std::vector<uint64_t> memory_;
};

Operation WriteOf(uint64_t size) {
  Operation op;
  op.write = {8, size};
  op.cas = {true, 3000, 1, 2, 7};
  return op;
}

// Whether the message in `slot` is whole; then `*number` is its number.
bool IsTaken(Slot& slot, uint64_t seed, uint64_t* number) {
  Slot copy;
  CheckedMessage message;
  if (!TakeCpuMessage(slot.end(), seed, copy.place(), &message)) return false;
  *number = message.place().message().result.sequence;
  return true;
}

// A device may place the bytes of a WRITE in any order. Whatever part of a message has arrived in a
// slot that still has the last lap's, it is taken for no message at all.
TEST(CpuRingTest, AMessageIsWholeOnlyWhenEachByteHasCome) {
  constexpr uint64_t kSeed = 99;
  std::mt19937_64 random(7);
  for (const uint64_t size : {0, 1, 7, 16, 100, 255, 256, 257}) {
    Slot before(1, WriteOf(100), kSeed), after(9, WriteOf(size), kSeed);
    const size_t bytes = CarriedBytes(size) + CpuMessageBytes(Slot::kGroupSize);
    // Below the message the slot keeps what it had.
    std::memcpy(after.begin(), before.begin(), Slot::kBytes - bytes);
    const auto check = [&](Slot& mixed) {
      uint64_t number = 0;
      const bool taken = IsTaken(mixed, kSeed, &number);
      if (mixed == after) {
        EXPECT_TRUE(taken && number == 9);
      } else if (taken) {
        EXPECT_EQ(number, 1u) << "half a message counts, of size " << size;
        EXPECT_EQ(mixed.place().tail().sequence, 1u) << "by which the last lap's is known";
      }
    };
    for (size_t n = 0; n <= bytes; ++n) {
      Slot front = before, back = before;
      std::memcpy(front.end() - bytes, after.end() - bytes, n);
      std::memcpy(back.end() - n, after.end() - n, n);
      check(front);
      check(back);
    }
    for (int i = 0; i < 2000; ++i) {
      Slot words = before;
      for (size_t w = 0; w < Slot::kBytes / 8; ++w)
        if ((random() & 7) != 0) words.word(w) = after.word(w);
      check(words);
      Slot one = after;
      one.end()[-1 - static_cast<ptrdiff_t>(random() % bytes)] ^= std::byte{1};
      check(one);
    }
  }
}

// No word of a message makes the check forget what comes before it: not the check's own numbers,
// and not the sum that it has there.
TEST(CpuRingTest, NoContentHidesWhatIsBeforeIt) {
  constexpr uint64_t kFirst = kCpuCheckFirst, kSecond = kCpuCheckSecond;
  constexpr size_t kWords = kMostCarried / sizeof(uint64_t);
  for (const uint64_t seed : {uint64_t{0}, kFirst, kSecond, kFirst ^ kSecond}) {
    std::vector<uint64_t> plain(kWords);
    for (size_t i = 0; i < kWords; ++i) plain[i] = 1000 + i;
    const auto check = [seed](const std::vector<uint64_t>& words) {
      return CpuCheck(seed, std::as_bytes(std::span(words)));
    };
    uint64_t even = seed ^ kFirst, odd = kSecond;  // the sums before the word at `at`
    for (size_t at = 0; at < kWords; ++at) {
      for (const uint64_t word : {uint64_t{0}, kFirst, kSecond, kFirst ^ seed, even, odd}) {
        std::vector<uint64_t> whole = plain;
        whole[at] = word;
        const uint64_t expected = check(whole);
        for (size_t torn_at = 0; torn_at < at; ++torn_at) {
          std::vector<uint64_t> torn = whole;
          torn[torn_at] ^= 1;
          EXPECT_NE(check(torn), expected) << "word " << at << " is " << word;
        }
      }
      uint64_t& sum = at % 2 == 0 ? even : odd;
      sum = CpuCheckStep(sum, plain[at], at % 2 == 0 ? kFirst : kSecond);
    }
  }
}

TEST(CpuRingTest, NoResultHidesItsOtherWord) {
  constexpr uint64_t kSeed = 5;
  for (uint32_t i = 0; i < Slot::kGroupSize; ++i) {
    for (const uint64_t special :
         {uint64_t{0}, kCpuCheckFirst, kCpuCheckSecond, kCpuCheckFirst + i, kCpuCheckSecond + i}) {
      for (const bool in_word : {false, true}) {
        Slot slot(1, WriteOf(40), kSeed), place;
        CheckedMessage message;
        ASSERT_TRUE(TakeCpuMessage(slot.end(), kSeed, place.place(), &message));
        message.SetResult(i, in_word ? ReplicaResult{7, special} : ReplicaResult{special, 7});
        message.Finish(kSeed);
        uint64_t number = 0;
        EXPECT_TRUE(IsTaken(place, kSeed, &number));
        ReplicaResult& result = place.place().results()[i];
        (in_word ? result.original : result.word) ^= 1;
        EXPECT_FALSE(IsTaken(place, kSeed, &number)) << "replica " << i << ", " << special;
      }
    }
  }
}

// A ring's key and queue are new each time a replica is armed, and they are in the check.
TEST(CpuRingTest, AMessageForAnotherRingIsNotWhole) {
  MemberInfo ours;
  ours.staging_addr = 4096, ours.staging_rkey = 77, ours.up_qpn = 5;
  Slot slot(1, WriteOf(40), CpuRingSeed(ours));
  uint64_t number = 0;
  EXPECT_TRUE(IsTaken(slot, CpuRingSeed(ours), &number));
  MemberInfo other = ours;
  other.staging_rkey = 78;
  EXPECT_FALSE(IsTaken(slot, CpuRingSeed(other), &number));
  other = ours;
  other.up_qpn = 6;
  EXPECT_FALSE(IsTaken(slot, CpuRingSeed(other), &number));
  other = ours;
  other.staging_addr = 8192;
  EXPECT_FALSE(IsTaken(slot, CpuRingSeed(other), &number));
}

// A replica changes its own result, and the check with it.
TEST(CpuRingTest, AMessageIsWholeAfterItsResultsWereSet) {
  Slot slot(1, WriteOf(40), 5), place;
  CheckedMessage message;
  ASSERT_TRUE(TakeCpuMessage(slot.end(), 5, place.place(), &message));
  for (uint32_t i = 0; i < Slot::kGroupSize; ++i) message.SetResult(i, {10u + i, 1});
  message.Finish(6);
  uint64_t number = 0;
  EXPECT_TRUE(IsTaken(place, 6, &number));
  for (uint32_t i = 0; i < Slot::kGroupSize; ++i) {
    EXPECT_EQ(place.place().results()[i].original, 10u + i);
    place.place().results()[i].original ^= 1;
    EXPECT_FALSE(IsTaken(place, 6, &number)) << i;
    place.place().results()[i].original ^= 1;
  }
}

TEST(CpuRingTest, AnEmptySlotHasNoMessage) {
  Slot slot;
  uint64_t number = 0;
  EXPECT_FALSE(IsTaken(slot, 0, &number));
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

std::unique_ptr<Chain> ChainBeyondItsWindow(Datapath datapath) {
  auto made =
      Chain::Create({.datapath = datapath,
                     .group_size = 2,
                     .window = 4,
                     .slots = 8,
                     .change_program = [](SlotProgram& program) { program.geometry.window = 1024; },
                     .step = [](softrnic::Engine& engine) { engine.Run(64); }});
  EXPECT_OK(made);
  return made.ok() ? std::move(*made) : nullptr;
}

// Replica 1 takes nothing. With events it posts no receives either, so that what replica 0 has to
// pass on piles up there.
TEST(CpuMemberTest, MoreThanAWindowEndsTheMemberNotItsMemory) {
  const auto chain = ChainBeyondItsWindow(Datapath::kCpuEvent);
  Status status;
  for (uint64_t n = 0; n < 200 && status.ok(); ++n) {
    ASSERT_OK(chain->group().Write(8 * n, 8, false));
    while (chain->rnic().engine().Run(64) != 0) {
    }
    status = chain->replica(0).cpu->Turn().status();
  }
  EXPECT_THAT(status, StatusIs(Code::kCorruption, HasSubstr("more than the window")));
}

// With polling it is replica 1's ring that is written over.
TEST(CpuMemberTest, ARingThatIsWrittenOverEndsTheMember) {
  const auto chain = ChainBeyondItsWindow(Datapath::kCpuPolling);
  for (uint64_t n = 0; n < 12; ++n) {
    ASSERT_OK(chain->group().Write(8 * n, 8, false));
    while (chain->rnic().engine().Run(64) != 0) {
    }
    ASSERT_OK(chain->replica(0).cpu->Turn());
    while (chain->rnic().engine().Run(64) != 0) {
    }
  }
  const Status status = chain->replica(1).cpu->Turn().status();
  EXPECT_THAT(status,
              StatusIs(Code::kCorruption,
                       HasSubstr("message number 9 (flags 0, 0, 0) came where operation 1")));
  EXPECT_EQ(chain->replica(1).cpu->Turn().status().message(), status.message()) << "for good";
  for (uint64_t n = 0; n < 12; ++n)
    EXPECT_EQ(chain->replica_bytes(1)[8 * n], std::byte{0}) << "something was done of it";
}

// --- devices that take fewer bytes inside a request, or none

class NarrowDevice final : public rnic::Device {
 public:
  NarrowDevice(std::unique_ptr<rnic::Device> device, uint32_t max_inline)
      : device_(std::move(device)), caps_(device_->caps()) {
    caps_.max_inline = max_inline;
  }
  const rnic::Caps& caps() const override { return caps_; }
  rnic::Gid gid() const override { return device_->gid(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    return device_->AllocatePd();
  }
  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr& attr) override {
    return device_->CreateCq(attr);
  }
  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t size) override {
    return device_->AllocateBuffer(size);
  }
  bool alive() const override { return device_->alive(); }
  Result<rnic::Counters> QueryCounters() override { return device_->QueryCounters(); }
  Status Publish(std::string_view, rnic::ProtectionDomain&, std::span<const std::byte>) override {
    return NotSupported("no agent");
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view, std::string_view,
                                                rnic::QueuePair&) override {
    return NotSupported("no agent");
  }

 private:
  const std::unique_ptr<rnic::Device> device_;
  rnic::Caps caps_;
};

class CpuInlineTest : public testing::TestWithParam<std::tuple<Datapath, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(
    Limits, CpuInlineTest,
    testing::Combine(testing::Values(Datapath::kCpuPolling, Datapath::kCpuEvent),
                     testing::Values(0u, 60u, CpuMessageBytes(3), CpuMessageBytes(3) + 100)),
    [](const auto& param) {
      return TestName(std::get<0>(param.param)) + "_" + std::to_string(std::get<1>(param.param));
    });

// A message that is not inline is read from its place when the request runs, which may be late.
TEST_P(CpuInlineTest, EveryLengthOfAMessageReachesAllReplicas) {
  const auto [datapath, max_inline] = GetParam();
  softrnic::EngineOptions engine;
  engine.test.steps = softrnic::RandomSteps;
  engine.test.defer_delivery = true;
  engine.test.retransmit = true;
  softrnic::EmbeddedRnic rnic(engine);
  std::unique_ptr<Chain> chain;
  const auto step = [&](softrnic::Engine&) {
    rnic.engine().Run(5);
    for (uint32_t i = 0; chain != nullptr && i < chain->size(); ++i) chain->StepCpu(i);
  };
  auto made = Chain::Create(
      {.datapath = datapath,
       .window = 4,
       .slots = 8,
       .open_device = [&, most = max_inline](
                          const std::string& host) -> Result<std::unique_ptr<rnic::Device>> {
         HL_ASSIGN_OR_RETURN(auto device, rnic.OpenDevice(host));
         return std::unique_ptr<rnic::Device>(new NarrowDevice(std::move(device), most));
       },
       .step = step});
  ASSERT_OK(made);
  chain = std::move(*made);
  std::mt19937_64 random(max_inline);
  for (uint64_t n = 0; n < 600; ++n) {
    const uint64_t size = 1 + n % 300, offset = n % 50 * 512;
    if (n % 50 == 0) {
      ASSERT_OK(chain->group().WaitAll());
    }
    for (uint64_t i = 0; i < size; ++i)
      chain->primary_bytes()[offset + i] = static_cast<std::byte>(random());
    ASSERT_OK(chain->group().Write(offset, size, n % 7 == 0));
  }
  ASSERT_OK(chain->group().WaitAll());
  for (uint32_t i = 0; i < chain->size(); ++i)
    EXPECT_EQ(std::memcmp(chain->replica_bytes(i).data(), chain->primary_bytes().data(), 50 * 512),
              0);
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
