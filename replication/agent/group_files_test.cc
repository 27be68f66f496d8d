#include "agent/group_files.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace hyperloop::agent {
namespace {

using Verdict = GroupFiles::Verdict;

const std::vector<std::string> kRecorded{"a:1", "b:1", "c:1"};

struct Files {
  NodeGroup group;
  StoreOptions store;
};
Files AtTheStart() {
  Files files;
  files.group.file = "/etc/hyperloop/groups/orders.conf";
  files.group.pool = "/var/lib/hyperloop/orders.pool";
  files.store.pool = "/var/lib/hyperloop/orders-primary.pool";
  files.store.replicas = kRecorded;
  return files;
}

class GroupFilesTest : public testing::Test {
 protected:
  Result<Verdict> Read() { return files_.Judge(says_.group, says_.store, kRecorded); }

  Files says_ = AtTheStart();
  GroupFiles files_{says_.group, says_.store};
};

TEST_F(GroupFilesTest, TakesWhatWasReadAlikeTwiceInARow) {
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  says_.store.replicas = {"a:1", "b:1", "c"};  // somebody is writing
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  says_.store.replicas = {"a:1", "b:1", "c:1", "d:1"};
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  files_.Forget();
  EXPECT_EQ(*Read(), Verdict::kGoOn) << "not in a row";
  EXPECT_EQ(*Read(), Verdict::kTake);
  EXPECT_EQ(files_.store().replicas, says_.store.replicas);
  EXPECT_EQ(files_.later(), "");
  EXPECT_EQ(*Read(), Verdict::kGoOn);
}

TEST_F(GroupFilesTest, AListWithoutAMajorityOfTheGroupIsRefused) {
  says_.store.replicas = {"a:1", "d:1", "e:1"};
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  EXPECT_EQ(Read().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Read().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(files_.store().replicas, kRecorded);
  says_.store.replicas = {"a:1", "b:1", "e:1"};
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  EXPECT_EQ(*Read(), Verdict::kTake);
}

TEST_F(GroupFilesTest, AHostThatIsTakenOutLeaves) {
  EXPECT_EQ(files_.JudgeLeft(), Verdict::kGoOn);
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  EXPECT_EQ(files_.JudgeLeft(), Verdict::kGoOn) << "not in a row";
  EXPECT_EQ(files_.JudgeLeft(), Verdict::kLeave);
}

TEST_F(GroupFilesTest, WhatTheAgentBeganWithStays) {
  const std::string pool = says_.store.pool;
  says_.group.pool = "/srv/orders.pool";
  says_.store.pool = "/srv/orders-primary.pool";
  says_.group.service = {"/bin/true"};
  says_.group.hooks = {"/bin/false"};
  says_.store.min_replicas = 3;
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  EXPECT_EQ(*Read(), Verdict::kTake);
  EXPECT_EQ(files_.store().pool, pool);
  EXPECT_EQ(files_.store().min_replicas, 3u);
  EXPECT_EQ(files_.later(), "folder, service, hook");
  says_ = AtTheStart();
  EXPECT_EQ(*Read(), Verdict::kGoOn);
  EXPECT_EQ(*Read(), Verdict::kTake);
  EXPECT_EQ(files_.later(), "");
}

using Residents = std::map<std::string, Resident>;
using List = std::vector<std::string>;

TEST(ReplicasToOpenTest, AreThoseThatTheGroupRecorded) {
  const Residents none;
  EXPECT_EQ(ReplicasToOpen({"a:1", "b:1", "c:1", "d:1"}, kRecorded, none, "one"), kRecorded);
  EXPECT_EQ(ReplicasToOpen({"a:1", "b:1"}, kRecorded, none, "one"), kRecorded);
}

TEST(ReplicasToOpenTest, OneOfAnotherGroupStaysToBeRefused) {
  const Residents residents{
      {"d:1", {"node d", "another"}}, {"e:1", {"node e", "one"}}, {"f:1", {"node f", ""}}};
  const List listed{"a:1", "d:1", "e:1", "f:1"};
  EXPECT_EQ(ReplicasToOpen(listed, kRecorded, residents, "one"),
            (List{"a:1", "d:1", "b:1", "c:1"}));
  // As if the other group were the one that the agent watches.
  EXPECT_EQ(ReplicasToOpen({"a:1", "d:1"}, {"d:1"}, {{"a:1", {"node a", "one"}}}, "another"),
            (List{"a:1", "d:1"}));
}

TEST(ReplicasToOpenTest, OneThatMovedIsWhereItIsListed) {
  const Residents residents{
      {"c:1", {"node c", "one"}}, {"c:2", {"node c", "one"}}, {"d:1", {"node d", "one"}}};
  const List listed{"a:1", "b:1", "c:2", "d:1"};
  EXPECT_EQ(ReplicasToOpen(listed, kRecorded, residents, "one"), (List{"a:1", "b:1", "c:2"}));
}

}  // namespace
}  // namespace hyperloop::agent
