#include "simulation/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperloop::simulation {
namespace {

using testing::HasSubstr;

class HistoryTest : public testing::Test {
 protected:
  std::string Append(bool acknowledged) {
    const History::Piece piece = history_.Begin("---");
    if (acknowledged) history_.Acknowledge(piece.number, 1);
    return piece.text;
  }
  History history_;
};

TEST_F(HistoryTest, WhatWasAcknowledgedMustBeThere) {
  const std::string one = Append(true), two = Append(true);
  EXPECT_EQ(history_.Check(one + two), "");
  EXPECT_THAT(history_.Check(one), HasSubstr("piece 2 was acknowledged"));
}

TEST_F(HistoryTest, WhatFailedMayBeThere) {
  const std::string one = Append(true), two = Append(false), three = Append(true);
  EXPECT_EQ(history_.Check(one + two + three), "");
  EXPECT_THAT(history_.Check(one + three), HasSubstr("piece 2")) << "it was read once";
}

TEST_F(HistoryTest, WhatIsGoneDoesNotComeBack) {
  const std::string one = Append(true), two = Append(false);
  EXPECT_EQ(history_.Check(one), "");
  EXPECT_THAT(history_.Check(one + two), HasSubstr("came back"));
}

TEST_F(HistoryTest, OrderAndWholenessCount) {
  const std::string one = Append(true), two = Append(true);
  EXPECT_THAT(history_.Check(two + one), HasSubstr("piece 1"));
  EXPECT_THAT(history_.Check(one + two.substr(0, 3)), HasSubstr("no whole piece"));
  EXPECT_THAT(history_.Check(one + two + "7---;"), HasSubstr("wrong place"));
}

TEST_F(HistoryTest, TheSmallFileHoldsTheLastAcknowledgedValueOrALaterOne) {
  EXPECT_EQ(history_.LookCurrent(""), "") << "there is none yet";
  const std::string one = history_.BeginCurrent();
  history_.AcknowledgeCurrent(one, 1);
  EXPECT_THAT(history_.LookCurrent(""), HasSubstr("and not '" + one + "'"));
  const std::string two = history_.BeginCurrent(), three = history_.BeginCurrent();
  for (const std::string& each : {one, two, three}) EXPECT_EQ(history_.LookCurrent(each), "");
  EXPECT_EQ(history_.CheckCurrent(two), "");
  EXPECT_NE(history_.LookCurrent(one), "") << "a later one was read";
  EXPECT_NE(history_.LookCurrent(three), "") << "it was not there, and does not come back";
  history_.AcknowledgeCurrent(one, 1);
  EXPECT_EQ(history_.LookCurrent(two), "")
      << "an acknowledgement that is heard late changes nothing";
}

TEST_F(HistoryTest, ALookChangesNothing) {
  const std::string one = Append(true), two = Append(false), three = Append(true);
  EXPECT_EQ(history_.Look(one + two + three), "");
  EXPECT_EQ(history_.Look(one + three), "") << "piece 2 was only looked at";
  EXPECT_THAT(history_.Look(one), HasSubstr("piece 3"));
  EXPECT_EQ(history_.Check(one + two + three), "") << "piece 2 was only not seen";
}

TEST_F(HistoryTest, WhoLooksMeanwhileMaySeeWhatHasBegunSince) {
  const std::string one = Append(true);
  History then = history_;
  const std::string two = Append(true), current = history_.BeginCurrent();
  history_.AcknowledgeCurrent(current, 1);
  then.GoesOnAs(history_);
  for (const std::string& seen : {one, one + two}) EXPECT_EQ(then.Look(seen), "");
  EXPECT_THAT(then.Look(two), HasSubstr("piece 1"));
  for (const std::string& seen : {std::string(), current}) EXPECT_EQ(then.LookCurrent(seen), "");
}

}  // namespace
}  // namespace hyperloop::simulation
