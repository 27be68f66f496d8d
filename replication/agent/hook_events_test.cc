#include "agent/hook_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hyperloop::agent {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Keys = std::vector<std::string>;

class HookEventsTest : public testing::Test {
 protected:
  HookEventsTest() {
    picture_.node = "a";
    picture_.group = "g";
    picture_.branch = 3;
    picture_.epoch = 7;
  }
  Keys Note() {
    Keys keys;
    for (const HookEvent& each : events_.Note(picture_, now_)) {
      EXPECT_EQ(each.epoch, picture_.epoch);
      keys.push_back(each.key);
    }
    return keys;
  }

  HookEvents events_{"run"};
  Picture picture_;
  Picture::Time now_{seconds(1000)};
};

TEST_F(HookEventsTest, AtTheStartIsSaidHowThingsAre) {
  picture_.group = "";
  picture_.branch = picture_.epoch = 0;
  EXPECT_THAT(Note(), ElementsAre("-/0.0/lost-primary/a/run.1")) << "also if nobody answers";
  EXPECT_THAT(Note(), IsEmpty());
  picture_.group = "g";
  picture_.branch = 3;
  picture_.epoch = 7;
  picture_.seen = now_;
  picture_.paused = true;
  EXPECT_THAT(Note(), ElementsAre("g/3.7/paused/a/run.2", "g/3.7/undrained/a/run.3"));
  EXPECT_THAT(Note(), IsEmpty());
}

TEST_F(HookEventsTest, APrimaryIsLostWhenItsLeaseEndsWhoeverSaysSo) {
  EXPECT_THAT(Note(), ElementsAre("g/3.7/lost-primary/a/run.1"));
  picture_.primary = true;
  picture_.lease_end = now_ + seconds(1);
  EXPECT_THAT(Note(), ElementsAre("g/3.7/became-primary/a/run.2"));
  now_ += seconds(1);
  EXPECT_THAT(Note(), ElementsAre("g/3.7/lost-primary/a/run.3"));
  picture_.lease_end = now_ + seconds(1);
  EXPECT_THAT(Note(), ElementsAre("g/3.7/became-primary/a/run.4"))
      << "of the same epoch, and with another key";
}

TEST_F(HookEventsTest, WhatOperatorsSayIsTold) {
  picture_.seen = now_;
  Note();
  picture_.drained = picture_.paused = true;
  EXPECT_THAT(Note(), ElementsAre("g/3.7/paused/a/run.4", "g/3.7/drained/a/run.5"));
  picture_.paused = false;
  EXPECT_THAT(Note(), ElementsAre("g/3.7/resumed/a/run.6"));
}

}  // namespace
}  // namespace hyperloop::agent
