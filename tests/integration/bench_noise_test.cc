// Tests hyperloop-bench beside noise, where its RNIC daemon has a real-time priority. So it starves
// what runs beside it, and runs alone.
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/child_process.h"

namespace hyperloop::test {
namespace {

// The kernel counts the time of a thread that runs all along only at its ticks, up to 10 ms apart.
// In `offload` the RNIC is such a thread, so the operations must take longer than that. In
// `cpu-event` the RNIC gives the processor to the replica, and is counted exactly.
TEST(BenchNoiseTest, CountsWhatEachHadOfTheSharedProcessor) {
  if (std::system("command -v stress-ng >/dev/null") != 0) GTEST_SKIP() << "no stress-ng here";
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "noise needs two processors";
  if (geteuid() != 0) GTEST_SKIP() << "the RNIC daemon's priority needs root";
  const std::vector<std::pair<std::string, std::string>> runs{{"offload", "20000"},
                                                              {"cpu-event", "20"}};
  for (const auto& [datapath, number] : runs) {
    ChildProcess bench = ChildProcess::Spawn(
        {ProgramPath("hyperloop-bench"), "--noise=2", "--datapath=" + datapath, "--size=64",
         "--number=" + number, "--warmup=2", "--replicas=1", "--json"},
        ChildProcess::Priority::kMayRise);
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_EQ(json["datapath"], datapath);
    EXPECT_EQ(json["load"], "noise");
    ASSERT_EQ(json["cpu_share"].size(), 1u) << line;
    for (const auto& [processor, share] : json["cpu_share"].items()) {
      EXPECT_GT(share["rnic"], 0) << line;
      EXPECT_GE(share["noise"], 0) << line;
    }
    EXPECT_EQ(json["valid"].get<bool>(), json["reasons"].empty());
    EXPECT_EQ(bench.Wait(), 0);
  }
}

}  // namespace
}  // namespace hyperloop::test
