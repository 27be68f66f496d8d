#include "agent/history_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctl/agent_history.h"
#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

using test::Eventually;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() { std::filesystem::create_directory(folder_); }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }

  void Begin(size_t most_bytes = History::kMostBytes) {
    history_.emplace(path_, "a", log_, most_bytes);
  }
  // The texts of the events in a file; of one that is not there none.
  static std::vector<std::string> Of(const std::string& text) {
    std::vector<std::string> whys;
    size_t bad = 0;
    for (const auto& each : ctl::ParseAgentEvents(text, &bad)) whys.push_back(each.why);
    EXPECT_EQ(bad, 0u);
    return whys;
  }
  static std::vector<std::string> In(const std::string& path) {
    const auto text = ctl::ReadHistoryFile(path, 1 << 20);
    return Of(text.ok() ? *text : "");
  }
  // Ends the agent once that is in the file.
  void EndWith(const std::string& last) {
    EXPECT_TRUE(Eventually([&] {
      const auto in = In(path_);
      return !in.empty() && in.back() == last;
    }));
    history_.reset();
  }
  void Add(const std::string& why) { history_->Add("state", "follow", 7, why); }

  const std::string folder_ = testing::TempDir() + "/hyperloop-history-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/history";
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  std::optional<History> history_;
};

TEST_F(HistoryTest, WhatIsAddedIsInTheFileAndOnThePageAlsoOfTheNextAgent) {
  Begin();
  Add("one");
  Add("two");
  EXPECT_EQ(Of(history_->Page()), (std::vector<std::string>{"one", "two"}));
  EndWith("two");
  Begin();
  Add("three");
  const std::vector<std::string> all{"one", "two", "three"};
  EXPECT_TRUE(Eventually([&] { return Of(history_->Page()) == all; }));
  EndWith("three");
  EXPECT_EQ(In(path_), all);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(HistoryTest, ALineThatACrashCutSpoilsNoLaterOne) {
  Begin();
  Add("one");
  EndWith("one");
  std::ofstream(path_, std::ios::app) << R"({"time":"2026-11-)";
  Begin();
  Add("two");
  size_t bad = 0;
  EXPECT_TRUE(Eventually([&] {
    const auto text = ctl::ReadHistoryFile(path_, 1 << 20);
    return text.ok() && ctl::ParseAgentEvents(*text, &bad).size() == 2;
  }));
  EXPECT_EQ(bad, 1u);
  history_.reset();
}

TEST_F(HistoryTest, ThereAreTwoFilesOfBoundedSize) {
  constexpr size_t kMost = 2000;
  Begin(kMost);
  for (int i = 0; i < 100; ++i) Add("event " + std::to_string(i));
  EndWith("event 99");
  EXPECT_LE(std::filesystem::file_size(path_), kMost);
  EXPECT_LE(std::filesystem::file_size(ctl::OlderHistory(path_)), kMost);
  std::vector<std::string> both = In(ctl::OlderHistory(path_));
  for (const std::string& each : In(path_)) both.push_back(each);
  ASSERT_GT(both.size(), 10u);
  for (size_t i = 0; i < both.size(); ++i)
    EXPECT_EQ(both[i], "event " + std::to_string(100 - both.size() + i)) << "the newest, in order";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(HistoryTest, ThePageIsBounded) {
  history_.emplace("", "a", log_);
  for (size_t i = 0; i < 2 * History::kMostShown; ++i) Add(std::string(9999, 'x'));
  EXPECT_EQ(Of(history_->Page()).size(), History::kMostShown);
  EXPECT_LT(history_->Page().size(), 2 * History::kMostShown * ctl::kMostEventText);
}

// As one whose disk hangs.
TEST_F(HistoryTest, NobodyWaitsForAFileThatCannotBeWritten) {
  std::filesystem::create_directory(path_);
  Begin();
  Add("one");
  EXPECT_EQ(Of(history_->Page()).size(), 1u);
  EXPECT_TRUE(Eventually([&] { return log_->Has("the history waits for its file"); }));
  history_.reset();
  EXPECT_TRUE(std::filesystem::is_directory(path_));
}

TEST_F(HistoryTest, AFileThatOthersMayWriteIsNotWritten) {
  std::ofstream(path_) << "";
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  Begin();
  Add("one");
  EXPECT_TRUE(Eventually([&] { return log_->Has("may be written by others"); }));
  history_.reset();
  EXPECT_EQ(std::filesystem::file_size(path_), 0u);
}

}  // namespace
}  // namespace hyperloop::agent
