#include "ctl/agent_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace hyperloop::ctl {
namespace {

AgentEvent EventAt(const std::string& time, const std::string& node, uint64_t number) {
  return {"2026-11-30T20:45:" + time + "Z", "run", number, node, 7, "primary", "state", "why"};
}

TEST(AgentHistoryTest, AnEventIsReadAsItWasWritten) {
  AgentEvent event = EventAt("00.123", "a", 3);
  event.why = "the service ended with \"signal 9\"";
  size_t bad = 1;
  const std::string line = FormatAgentEvent(event);
  EXPECT_THAT(line, testing::EndsWith("}\n"));
  EXPECT_EQ(ParseAgentEvents(line, &bad), std::vector{event});
  EXPECT_EQ(bad, 0u);
  event.time = EventTimeNow();
  EXPECT_EQ(ParseAgentEvents(FormatAgentEvent(event), &bad), std::vector{event});
}

TEST(AgentHistoryTest, NothingThatIsWrittenSpeaksToATerminal) {
  AgentEvent event = EventAt("00.123", "a", 3);
  event.why = std::string("\x1b[2J\n\xff \xe2\x80\xae") + std::string(9999, 'x');
  const std::string line = FormatAgentEvent(event);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_LT(line.size(), 2 * kMostEventText);
  size_t bad = 0;
  const auto events = ParseAgentEvents(line, &bad);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].why, testing::StartsWith("\\x1b[2J\\x0a\\xff \\xe2\\x80\\xae"));
}

TEST(AgentHistoryTest, ATornLastLineIsNoErrorAndOtherLinesAreLeftOut) {
  const std::string whole = FormatAgentEvent(EventAt("00.123", "a", 3));
  size_t bad = 0;
  for (size_t cut = 1; cut < whole.size() - 1; ++cut) {
    EXPECT_EQ(ParseAgentEvents(whole + whole.substr(0, cut), &bad).size(), 1u) << cut;
    EXPECT_EQ(bad, 0u) << cut;
  }
  EXPECT_EQ(ParseAgentEvents(whole.substr(0, whole.size() - 1), &bad).size(), 1u) << "whole";
  EXPECT_EQ(ParseAgentEvents("\n\n", &bad).size(), 0u);
  EXPECT_EQ(bad, 0u);
  const std::string deep(15'000, '[');
  for (const std::string& other :
       {std::string("{}"), std::string("null"), std::string("[1]"), deep, std::string("\x01\xff"),
        "{\"time\":\"yesterday" + whole.substr(whole.find("\",\"run")),
        std::string("{\"time\":7") + whole.substr(whole.find(",\"run")),
        std::string(20'000, ' ') + whole.substr(0, whole.size() - 1)}) {
    EXPECT_EQ(ParseAgentEvents(other + "\n" + whole, &bad).size(), 1u) << other;
    EXPECT_EQ(bad, 1u) << other;
  }
}

TEST(AgentHistoryTest, EventsOfSeveralAgentsAreInTheOrderOfTheirTimesEachOnce) {
  const AgentEvent first = EventAt("00.123", "b", 9), second = EventAt("01.000", "a", 1),
                   third = EventAt("01.000", "a", 2), fourth = EventAt("59.000", "b", 10);
  EXPECT_EQ(MergeAgentEvents({fourth, second, first, second, third, second}),
            (std::vector{first, second, third, fourth}));
}

TEST(AgentHistoryTest, ALongFileIsReadFromItsEnd) {
  const std::string path = testing::TempDir() + "/hyperloop-history-" + std::to_string(getpid());
  EXPECT_EQ(ReadHistoryFile(path, 100).status().code(), Code::kNotFound);
  std::ofstream(path) << "first line\nsecond line\nthird";
  EXPECT_EQ(ReadHistoryFile(path, 100).value(), "first line\nsecond line\nthird");
  EXPECT_EQ(ReadHistoryFile(path, 18).value(), "second line\nthird");
  EXPECT_EQ(ReadHistoryFile(path, 16).value(), "third") << "of the second line a part was left";
  EXPECT_EQ(ReadHistoryFile(path, 3).value(), "");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadHistoryFile(path, 100).status().code(), Code::kInvalidArgument);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hyperloop::ctl
