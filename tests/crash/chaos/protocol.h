// The operations of the chaos writer and their outcomes, from which the checker knows the possible
// states of the database. Operations follow from thread and number alone, and their outcomes are
// kept in memory that outlives the writer's SIGKILL.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

namespace hyperloop::chaos {

inline constexpr uint32_t kThreads = 2;
inline constexpr uint32_t kMaxNumber = 1 << 20;  // operations of one thread in one world
inline constexpr std::array<const char*, 3> kFamilies = {"default", "one", "two"};
inline constexpr uint64_t kKeys = 120;      // of each thread, over all families
inline constexpr uint64_t kBatchKeys = 15;  // of each thread, in every family
// Of a value of more than 1 MiB RocksDB makes several appends. The first one, and how often.
inline constexpr uint64_t kFirstLarge = 7, kLargeEvery = 1999;

// A thread stores kAttempted before the call and another outcome after it returned. An operation
// that a kill leaves as kAttempted may be in the database or not.
enum class Outcome : uint8_t { kNone, kAttempted, kAcknowledged, kFailed };

enum class Phase : uint32_t { kStarting, kOpening, kWriting, kClosing, kClosed };

// What becomes of logs that are flushed: they are deleted, are kept in the archive, or are kept
// until the next opening.
enum class Archive : uint32_t { kNone, kKept, kEmptiedByOpening };

// All threads read and write these keys of the first family, each value being written once.
inline constexpr uint64_t kSharedKeys = 3;
inline constexpr uint32_t kShared = 7;  // in the place of the thread, in keys and values
inline constexpr uint32_t kMaxShared = 1 << 18;

inline std::string SharedKey(uint64_t which) {
  return "s" + std::to_string(kShared) + "-" + std::to_string(which);
}

// A read or write of a shared key. Times are of Progress::clock; 0: not yet.
struct SharedOperation {
  std::atomic<bool> write;
  std::atomic<uint32_t> key;
  std::atomic<uint64_t> value;       // its number; of a read, valid from its end on
  std::atomic<uint64_t> begin, end;  // a write that failed has no end
};

// In a file that writer and checker map.
struct Progress {
  std::atomic<Phase> phase;
  std::atomic<uint32_t> stop;  // set by the checker: close and end
  // Set by the checker: nothing goes through the log, so that what is acknowledged is not there
  // yet. That is the defect that the checker must find.
  std::atomic<uint32_t> without_log;
  std::atomic<uint32_t> pause_us;  // of each thread between two operations; set by the checker
  std::atomic<Archive> archive;
  std::atomic<uint64_t> acknowledged, failed;
  std::atomic<Outcome> outcomes[kThreads][kMaxNumber];
  std::atomic<uint64_t> clock;
  std::atomic<uint32_t> shared_count;  // may become greater than kMaxShared
  SharedOperation shared[kMaxShared];
};
static_assert(std::atomic<Outcome>::is_always_lock_free);

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a + 0x9e3779b97f4a7c15ull) ^ (b * 0xbf58476d1ce4e5b9ull);
  for (const int shift : {30, 27, 31}) x = (x ^ (x >> shift)) * 0x94d049bb133111ebull;
  return x ^ (x >> 29);
}

struct Operation {
  enum class Kind { kPut, kDelete, kBatch, kBatchDelete } kind = Kind::kPut;
  uint32_t family = 0;  // of a put or delete; a batch does the same in all families
  std::string key;
  bool sync = false;
  bool flush_after = false;
};

inline Operation OperationOf(uint32_t thread, uint64_t number) {
  const uint64_t dice = Mix(thread + 1, number);
  const uint64_t percent = number % kLargeEvery == kFirstLarge ? 0 : dice % 100;
  Operation operation;
  const bool batch = percent >= 84;
  if (percent >= 72 && !batch) operation.kind = Operation::Kind::kDelete;
  if (batch) operation.kind = Operation::Kind::kBatch;
  if (percent >= 97) operation.kind = Operation::Kind::kBatchDelete;
  const uint64_t which = (dice >> 16) % (batch ? kBatchKeys : kKeys);
  operation.family = static_cast<uint32_t>(which % kFamilies.size());
  operation.key = (batch ? "b" : "k") + std::to_string(thread) + "-" + std::to_string(which);
  operation.sync = (dice >> 40) % 2 == 0;
  operation.flush_after = (dice >> 44) % 300 == 0;
  return operation;
}

// Begins with "thread:number:"; the rest follows from these. Mostly small, some larger than a WAL
// block, a few larger than what RocksDB appends at once.
inline std::string ValueOf(uint32_t thread, uint64_t number) {
  uint64_t state = Mix(number, thread + 77) | 1;
  const auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  size_t size = number % 61 == 5 ? 33000 + next() % 30000 : 20 + next() % 700;
  if (number % kLargeEvery == kFirstLarge && thread < kThreads) size = 1'200'000 + next() % 400'000;
  std::string value = std::to_string(thread) + ":" + std::to_string(number) + ":";
  value.resize(std::max(size, value.size() + 1), '\0');
  for (size_t i = value.find('\0'); i < value.size(); ++i) value[i] = static_cast<char>(next());
  return value;
}

// The number whose value this is; 0 when no operation ever wrote these bytes.
inline uint64_t NumberOf(const std::string& value, uint32_t thread) {
  unsigned found_thread = 0;
  unsigned long long number = 0;
  if (std::sscanf(value.c_str(), "%u:%llu:", &found_thread, &number) != 2) return 0;
  return found_thread == thread && value == ValueOf(thread, number) ? number : 0;
}

// Exit statuses of the writer.
inline constexpr int kDone = 0;
inline constexpr int kRefused = 3;       // the open; the reason is its output
inline constexpr int kReadWrong = 5;     // a read did not give a value acknowledged to this process
inline constexpr int kCloseFailed = 6;   // closing did not end in order
inline constexpr int kFencedOff = 7;     // another primary took the group
inline constexpr int kOutOfNumbers = 8;  // kMaxNumber is too low for this machine

}  // namespace hyperloop::chaos
