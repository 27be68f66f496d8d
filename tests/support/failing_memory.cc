#include "support/failing_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <string>

namespace hyperloop::test {
namespace {

enum class FailingThreads { kNone, kOne, kOthers };
std::atomic<FailingThreads> failing_threads{FailingThreads::kNone};
std::atomic<Shortage*> armed_shortage{nullptr};
thread_local bool is_the_one = false;
std::atomic<long> living_objects{0};

bool AllocationFails() {
  const FailingThreads now = failing_threads.load(std::memory_order_acquire);
  if (now == FailingThreads::kNone || (now == FailingThreads::kOne) != is_the_one) return false;
  return armed_shortage.load()->TakeOne();
}

#ifdef __SANITIZE_THREAD__
constexpr size_t kSanitizersThreads = 1;  // it begins with the first other one
#else
constexpr size_t kSanitizersThreads = 0;
#endif

// How often each thread of this process but the calling one has gone to sleep; none: one is awake.
std::optional<std::map<std::string, std::string>> Sleeps() {
  std::map<std::string, std::string> sleeps;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string id = thread.path().filename();
    if (id == std::to_string(gettid())) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:") && line.find("sleeping") == line.npos) return std::nullopt;
      if (line.find("ctxt_switches:") != line.npos) sleeps[id] += line;
    }
  }
  return sleeps;
}
// Whether there was a moment at which there were so many threads, and all others slept.
bool OthersSleep(size_t threads) {
  const auto before = Sleeps();
  if (!before || before->size() + 1 > threads + kSanitizersThreads) return false;
  return before->size() + 1 >= threads && before == Sleeps();
}

struct Belongings {
  long objects = living_objects;
  size_t descriptors = OpenDescriptors();
};

}  // namespace

bool Shortage::TakeOne() {
  const long number = left_.fetch_sub(1);
  if (number > 0 || static_cast<size_t>(-number) >= count_) return false;
  failed_.fetch_add(1);
  return true;
}

Shortage::Armed::Armed(Shortage* shortage, bool here) {
  is_the_one = true;
  armed_shortage = shortage;
  failing_threads.store(here ? FailingThreads::kOne : FailingThreads::kOthers,
                        std::memory_order_release);
}

Shortage::Armed::~Armed() {
  failing_threads = FailingThreads::kNone;
  is_the_one = false;
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

void AwaitThreads(size_t threads) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!OthersSleep(threads)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "not " << threads << " threads";
    sched_yield();
  }
}

size_t ForEachFailingAllocation(const ShortageRuns& runs,
                                const std::function<bool(Shortage&)>& scenario) {
  {
    SCOPED_TRACE("memory enough");  // whatever is made once, is made here
    Shortage none(kForGood, 0);
    EXPECT_TRUE(scenario(none));
    AwaitThreads(runs.threads);
    if (testing::Test::HasFailure()) return 0;
  }
  size_t harmed = 0, made = 0;
  for (bool failed = true; failed; ++made) {
    const size_t number = made * runs.step;
    SCOPED_TRACE("allocation " + std::to_string(number) + ", " + std::to_string(runs.count));
    Shortage shortage(number, runs.count);
    const Belongings before;
    const bool whole = scenario(shortage);
    AwaitThreads(runs.threads);
    failed = shortage.failed() != 0;
    EXPECT_TRUE(whole || failed) << "harmed by nothing";
    harmed += whole ? 0 : 1;
    const Belongings after;
    EXPECT_EQ(after.objects, before.objects) << "leaked, or freed twice";
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_LT(made, 10'000u);
    if (testing::Test::HasFailure()) return made;
  }
  EXPECT_GE(harmed, runs.harmed) << "of " << made;
  return made;
}

}  // namespace hyperloop::test

void* operator new(size_t size) {
  void* const at = hyperloop::test::AllocationFails() ? nullptr : std::malloc(size);
  if (at == nullptr) throw std::bad_alloc();
  hyperloop::test::living_objects.fetch_add(1, std::memory_order_relaxed);
  return at;
}
void operator delete(void* at) noexcept {
  if (at == nullptr) return;
  hyperloop::test::living_objects.fetch_sub(1, std::memory_order_relaxed);
  // So that nobody goes on with it unnoticed. The compiler would leave it out.
  std::memset(at, 0xdd, malloc_usable_size(at));
  asm volatile("" : : "r"(at) : "memory");
  std::free(at);
}
void operator delete(void* at, size_t) noexcept { operator delete(at); }
