// Tests which flags a command line sets, and which command lines are refused.
#include "command_line/flags.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/status_matchers.h"

DEFINE_bool(fast, false, "as it says");
DEFINE_bool(noisy, false, "its name begins with no");
DEFINE_uint32(block_size, 16, "bytes");
DEFINE_int32(shift, 0, "any number");
DEFINE_double(share, 0.5, "of 1");
DEFINE_string(name, "none", "any text");

namespace hyperloop::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FlagsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/flags_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Status Set(const std::vector<std::string>& words) { return SetFlags(words, __FILE__); }
  static std::string Refusal(const std::vector<std::string>& words) {
    const Status status = Set(words);
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument));
    return status.message();
  }
  std::string File(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ + "/" + name) << content;
    return folder_ + "/" + name;
  }

  std::string folder_;
  gflags::FlagSaver saver_;
};

TEST_F(FlagsTest, EverySpellingSetsTheFlag) {
  ASSERT_OK(Set({"--block-size=1", "--fast", "--noisy", "-shift", "-5", "--share", "0.25"}));
  EXPECT_EQ(FLAGS_block_size, 1u);
  EXPECT_TRUE(FLAGS_fast && FLAGS_noisy);
  EXPECT_EQ(FLAGS_shift, -5);
  EXPECT_EQ(FLAGS_share, 0.25);
  ASSERT_OK(Set({"-block_size", "2", "--nofast", "--nonoisy", "--name=--x=y"}));
  EXPECT_EQ(FLAGS_block_size, 2u);
  EXPECT_FALSE(FLAGS_fast || FLAGS_noisy);
  EXPECT_EQ(FLAGS_name, "--x=y");
  ASSERT_OK(Set({"--fast=false", "--fast=true"}));
  EXPECT_TRUE(FLAGS_fast) << "the last counts";
}

TEST_F(FlagsTest, GivenIsWhatWasNamedWhateverTheValue) {
  EXPECT_FALSE(IsGiven("name"));
  ASSERT_OK(Set({"--name=none"}));
  EXPECT_TRUE(IsGiven("name"));
  EXPECT_FALSE(IsGiven("fast"));
}

TEST_F(FlagsTest, AFlagFileIsReadWhereItIsNamed) {
  const std::string inner = File("inner", "--shift=3\n");
  const std::string outer = File("outer",
                                 "# a comment\n"
                                 "\n"
                                 "  --block-size=32  \r\n"
                                 "--noisy\n"
                                 "--nofast\n"
                                 "--name=two words\n"
                                 "--flagfile=" +
                                     inner + "\n--share=1");
  ASSERT_OK(Set({"--fast", "--share=0", "--flagfile", outer, "--block_size=64"}));
  EXPECT_EQ(FLAGS_block_size, 64u) << "it comes after the file";
  EXPECT_EQ(FLAGS_share, 1) << "it comes before the file, whose last line has no end";
  EXPECT_TRUE(FLAGS_noisy);
  EXPECT_FALSE(FLAGS_fast);
  EXPECT_EQ(FLAGS_name, "two words");
  EXPECT_EQ(FLAGS_shift, 3);
  ASSERT_OK(Set({"--flagfile=" + inner + "," + File("second", "--shift=4")}));
  EXPECT_EQ(FLAGS_shift, 4);
}

TEST_F(FlagsTest, WhatIsWrongInAFlagFileIsNamedWithItsLine) {
  const std::pair<const char*, const char*> refusals[] = {
      {"--fast\n--blocksize=1\n", ":2: no flag --blocksize"},
      {"block_size=1\n", ":1: 'block_size=1' is no flag"},
      {"\n--block_size=many\n", ":2: --block_size='many'"},
      {"--block_size 32\n", ":1: no flag --block_size 32"},
      {"--block_size\n32\n", ":1: --block_size needs a value"},
  };
  for (const auto& [content, expected] : refusals) {
    const std::string file = File("flags", content);
    EXPECT_THAT(Refusal({"--flagfile=" + file}), HasSubstr(file + expected));
  }
  EXPECT_THAT(Refusal({"--flagfile=" + folder_ + "/missing"}),
              HasSubstr("/missing cannot be read"));
  EXPECT_THAT(Refusal({"--flagfile=" + folder_}), HasSubstr(folder_ + " cannot be read"));
  EXPECT_THAT(Refusal({"--flagfile="}), HasSubstr("--flagfile"));
  const std::string itself = folder_ + "/itself";
  File("itself", "--flagfile=" + itself + "\n");
  EXPECT_THAT(Refusal({"--flagfile=" + itself}), HasSubstr("name one another"));
}

TEST_F(FlagsTest, WhatIsNoFlagOrNoValueOfItIsRefused) {
  const std::pair<std::vector<std::string>, const char*> refusals[] = {
      {{"--faster"}, "no flag --faster; did you mean --fast? --help"},
      {{"--blok-size=1"}, "no flag --blok-size; did you mean --block_size?"},
      {{"--far"}, "no flag --far; --help lists them"},
      {{"--faster=1"}, "no flag --faster;"},
      {{"---fast"}, "no flag ---fast"},
      {{"--no-fast"}, "no flag --no-fast"},
      {{"--nofast=1"}, "no flag --nofast"},
      {{"--noname"}, "no flag --noname"},
      {{"fast"}, "'fast' is no flag"},
      {{"--fast", "true"}, "'true' is no flag"},
      {{""}, "'' is no flag"},
      {{"--"}, "'--' is no flag"},
      {{"--fast=perhaps"}, "--fast='perhaps': the value must be true or false"},
      {{"--block_size"}, "--block_size needs a value"},
      {{"--block_size", "--fast"}, "--block_size needs a value"},
      {{"--block_size="}, "--block_size=''"},
      {{"--block_size=1x"}, "--block_size='1x'"},
      {{"--block_size=-1"}, "a whole number from 0 to 4294967295"},
      {{"--block_size=4294967296"}, "a whole number from 0 to 4294967295"},
      {{"--share=half"}, "--share='half': the value must be a number"},
      {{"--name="}, "--name='': the value must be a text that is not empty"},
      // gflags' own, which are no use here.
      {{"--undefok=faster"}, "no flag --undefok"},
      {{"--fromenv=fast"}, "no flag --fromenv"},
  };
  for (const auto& [words, expected] : refusals) EXPECT_THAT(Refusal(words), HasSubstr(expected));
}

TEST_F(FlagsTest, FlagsOfOtherFilesAreUnknown) {
  EXPECT_THAT(SetFlags({"--fast"}, "another.cc").message(), HasSubstr("no flag --fast"));
}

TEST_F(FlagsTest, ChecksNameTheFlag) {
  EXPECT_OK(CheckRange("threads", 4u, 1u, 4u));
  EXPECT_EQ(CheckRange("threads", 0u, 1u, 4u).message(), "--threads: 0 is not between 1 and 4");
  EXPECT_THAT(CheckRange("share", std::strtod("nan", nullptr), 0.0, 1.0),
              StatusIs(Code::kInvalidArgument));
  EXPECT_OK(CheckWords("mode", {"a", "b"}, {"a", "b", "c"}));
  EXPECT_EQ(CheckWords("mode", {"a", "d"}, {"a", "b"}).message(), "--mode: 'd' is none of a, b");
}

TEST_F(FlagsTest, ListsAreCommaSeparated) {
  EXPECT_THAT(SplitList("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitList("a"), ElementsAre("a"));
  EXPECT_THAT(SplitList(",a,"), ElementsAre("", "a", ""));
  EXPECT_THAT(*NumberList("window", "1,64", 1u, 64u), ElementsAre(1u, 64u));
  EXPECT_THAT(*NumberList("rate", "0,2.5", 0.0, 1e8), ElementsAre(0, 2.5));
  for (const char* list : {"", "0", "1,", "1,,2", "65", "1 2", "0x1", "-1", "4294967297"}) {
    EXPECT_THAT(NumberList("window", list, 1u, 64u).status().message(),
                AllOf(HasSubstr("--window: '"), HasSubstr("' is no number between 1 and 64")))
        << list;
  }
  EXPECT_THAT(NumberList("rate", "nan", 0.0, 1e8), StatusIs(Code::kInvalidArgument));
}

TEST_F(FlagsTest, FlagsThatExcludeOrRequireOneAnother) {
  EXPECT_OK(CheckApart("fast", {"shift", "name"}));
  EXPECT_OK(CheckNeeded("fast", "name"));
  ASSERT_OK(Set({"--fast"}));
  EXPECT_OK(CheckApart("fast", {"shift", "name"}));
  EXPECT_EQ(CheckNeeded("fast", "name").message(), "--fast requires --name");
  ASSERT_OK(Set({"--name=x"}));
  EXPECT_EQ(CheckApart("fast", {"shift", "name"}).message(), "--fast excludes --name");
  EXPECT_OK(CheckNeeded("fast", "name"));
}

}  // namespace
}  // namespace hyperloop::bench
