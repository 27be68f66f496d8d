// Tests that stress-ng runs on its processor, that its time is counted, and that it ends.
#include "measuring/noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "measuring/cpu_time.h"
#include "measuring/processor_affinity.h"
#include "support/status_matchers.h"

namespace hyperloop::bench {
namespace {

using ::testing::HasSubstr;

class NoiseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v stress-ng >/dev/null") != 0) GTEST_SKIP() << "no stress-ng here";
  }
};

TEST_F(NoiseTest, WorkersRunOnTheProcessorGivenAndEndWithTheObject) {
  const int cpu = AllowedProcessors().back();
  const size_t before = Descendants(getpid());
  {
    const Result<std::unique_ptr<Noise>> noise = Noise::Start(cpu, 2);
    ASSERT_OK(noise);
    EXPECT_GE(Descendants(getpid()), before + 4) << "two workers, each below a stress-ng";
    const double first = (*noise)->CpuSeconds().value();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while ((*noise)->CpuSeconds().value() < first + 0.02 &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_GE((*noise)->CpuSeconds().value(), first + 0.02) << "the workers do nothing";
  }
  EXPECT_EQ(Descendants(getpid()), before);
}

TEST(NoiseTestWithoutStressNg, AMissingProgramIsNamedWithItsPackage) {
  const std::string path = getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const Status status = Noise::Start(0, 1).status();
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(status, StatusIs(Code::kNotFound, HasSubstr("install package stress-ng")));
}

TEST(ProcessorAffinityTest, EndsWithItsObject) {
  const std::vector<int> before = AllowedProcessors();
  {
    const Result<std::unique_ptr<ProcessorAffinity>> affinity =
        ProcessorAffinity::To(before.back());
    ASSERT_OK(affinity);
    EXPECT_EQ(AllowedProcessors(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(AllowedProcessors(), before);
  EXPECT_THAT(ProcessorAffinity::To(CPU_SETSIZE).status().message(), HasSubstr("processor"));
}

TEST(CpuTimeTest, GrowsWithWorkAndKnowsNoStranger) {
  const double before = CpuSeconds(getpid()).value();
  while (CpuSeconds(getpid()).value() < before + 0.01) {
  }
  EXPECT_THAT(CpuSeconds(0x3ffffff0).status(), StatusIs(Code::kNotFound));
}

}  // namespace
}  // namespace hyperloop::bench
