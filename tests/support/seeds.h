// Seeds of random tests. HYPERLOOP_SEEDS=<n> runs n of them instead of a test's own number, and
// HYPERLOOP_SEED=<seed> just that one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace hyperloop::test {

// 1 to `count`, unless the environment says otherwise.
inline std::vector<uint64_t> Seeds(uint64_t count) {
  if (const char* one = std::getenv("HYPERLOOP_SEED")) return {std::strtoull(one, nullptr, 0)};
  if (const char* many = std::getenv("HYPERLOOP_SEEDS")) count = std::strtoull(many, nullptr, 0);
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= count; ++seed) seeds.push_back(seed);
  return seeds;
}

// The command that runs the running test with this seed alone.
inline std::string Replay(uint64_t seed) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return "replay: HYPERLOOP_SEED=" + std::to_string(seed) + " " +
         std::filesystem::read_symlink("/proc/self/exe").string() +
         " --gtest_filter=" + test->test_suite_name() + "." + test->name();
}

}  // namespace hyperloop::test
