// The data of the crash writer, which the checker can tell from any other: each thread counts its
// keys up, and a value follows from its key.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

namespace hyperloop::test {

inline constexpr uint32_t kMaxCrashThreads = 4;

// In a file that writer and checker map; survives the writer's SIGKILL. Each thread writes its
// numbers in this order: attempted = n, then Put, then acknowledged = n.
struct CrashProgress {
  std::atomic<uint32_t> ready;  // the database is open, writing begins
  std::atomic<uint32_t> early;  // set by the checker: acknowledge before the tail does
  struct Thread {
    std::atomic<uint64_t> attempted;
    std::atomic<uint64_t> acknowledged;
  } threads[kMaxCrashThreads];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline std::string CrashKey(uint32_t thread, uint64_t number) {
  char key[40];
  std::snprintf(key, sizeof key, "t%02u-%012llu", thread, static_cast<unsigned long long>(number));
  return key;
}

// Mostly small, some larger than a WAL block, a few larger than what RocksDB appends at once.
inline std::string CrashValue(uint32_t thread, uint64_t number) {
  uint64_t state = (number + 1) * 0x9e3779b97f4a7c15ull + thread;
  auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (int i = 0; i < 4; ++i) next();
  size_t size = 10 + next() % 500;
  if (number % 97 == 5) size = 40000 + next() % 60000;
  if (number % 1999 == 7) size = 1200000 + next() % 400000;
  std::string value(size, '\0');
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = next();
    for (size_t j = i; j < size && j < i + 8; ++j)
      value[j] = static_cast<char>(word >> (8 * (j - i)));
  }
  return value;
}

}  // namespace hyperloop::test
