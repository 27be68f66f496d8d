// What a host vouches for: what more than half of a group's replicas tell alike.
#include "control/proposal.h"

#include <gtest/gtest.h>

#include <vector>

namespace hyperloop::control {
namespace {

HelloReplyT Tells(uint64_t epoch, const std::string& group = "g") {
  HelloReplyT hello;
  hello.group = group;
  hello.installed_epoch = hello.served_epoch = epoch;
  hello.served_owner = {1, 2};
  hello.installed_replicas = {"a:1", "b:1", "c:1"};
  return hello;
}

const HelloReplyT* ToldByMost(const std::vector<HelloReplyT>& answers, size_t of = 3) {
  return ToldByMost(std::span(answers), of);
}

TEST(ToldByMostTest, OneThatClaimsAnEpochToComeIsNotBelieved) {
  const std::vector<HelloReplyT> answers{Tells(9), Tells(7), Tells(7)};
  EXPECT_EQ(ToldByMost(answers), &answers[1]);
}

TEST(ToldByMostTest, NorIsOneWhoseReplicasAreOthersOrThatTellsOfAnotherPrimary) {
  HelloReplyT few = Tells(7), absent = Tells(7), owner = Tells(7), unserved = Tells(7);
  few.installed_replicas.pop_back();
  absent.absent_replicas.push_back("d:1");
  owner.served_owner = {1, 3};
  unserved.served_epoch = 6;
  for (const HelloReplyT& lies : {few, absent, owner, unserved, Tells(7, "h")}) {
    EXPECT_EQ(ToldByMost({lies, Tells(7)}, 2), nullptr);
    const std::vector<HelloReplyT> answers{lies, Tells(7), Tells(7)};
    EXPECT_EQ(ToldByMost(answers), &answers[1]);
  }
}

TEST(ToldByMostTest, HalfIsTooFew) {
  EXPECT_EQ(ToldByMost({Tells(7), Tells(7)}, 4), nullptr);
  EXPECT_NE(ToldByMost({Tells(7), Tells(7)}, 3), nullptr);
  EXPECT_EQ(ToldByMost({}, 3), nullptr);
}

}  // namespace
}  // namespace hyperloop::control
