// A stand-in for the conformance program, for the test of scripts/conformance: providers "one" and
// "two", of which "two" does what the environment variable SAMPLE names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

class SampleTest : public testing::TestWithParam<std::string> {
 protected:
  static bool Asked(const std::string& what) {
    const char* sample = std::getenv("SAMPLE");
    return GetParam() == "two" && sample != nullptr && what == sample;
  }
};

TEST_P(SampleTest, Always) { EXPECT_EQ(GetParam().size(), 3u); }

TEST_P(SampleTest, Sometimes) {
  if (Asked("skip")) GTEST_SKIP() << "the device has no such thing";
  if (Asked("crash")) std::abort();
  if (Asked("exit")) std::exit(0);
  if (Asked("late")) std::atexit([] { _exit(3); });
  EXPECT_FALSE(Asked("fail")) << "asked to fail";
}

INSTANTIATE_TEST_SUITE_P(Providers, SampleTest, testing::Values("one", "two"),
                         [](const auto& param) { return param.param; });

}  // namespace
