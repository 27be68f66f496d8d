// hyperloopctl add, in a group of which one member's host lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <mutex>

#include "hyperloop/replication/options.h"
#include "integration/ctl_run.h"
#include "support/control_host.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using control::HelloReplyT;

// What the members of the group tell, which any of them may change, and what is proposed to them.
struct Group {
  static constexpr uint64_t kEpoch = 7;
  static constexpr uint64_t kClaim = 9;

  std::mutex mutex;  // guards what follows
  std::vector<std::string> members, nodes;
  bool has_newcomer = false;
  std::vector<uint64_t> proposed;  // the epochs of the proposals
};

// A replica's endpoint. Its heartbeat moves with each answer.
class Member {
 public:
  // `claims`: it is at an epoch to come, where the newcomer is a member or not.
  enum class Claims { kTruth, kEpoch, kNewcomer };
  Member(const control::Trust& trust, Group* group, std::string newcomer,
         Claims claims = Claims::kTruth)
      : group_(group),
        newcomer_(std::move(newcomer)),
        claims_(claims),
        host_(trust, [this](const control::BodyUnion& request) { return Answer(request); }) {}
  std::string address() const { return host_.endpoint().ToString(); }

 private:
  control::BodyUnion Answer(const control::BodyUnion& request) {
    const std::lock_guard lock(group_->mutex);
    if (const auto* const proposal = control::As<control::ProposeRequestT>(request)) {
      group_->proposed.push_back(proposal->epoch);
      group_->has_newcomer = true;
      return control::MakeBody(control::DoneT{});
    }
    HelloReplyT hello;
    hello.node_id = "node of " + address();
    hello.device = "ready";
    hello.region_size = 1 << 20;
    hello.heartbeat = ++heartbeat_;
    if (newcomer_.empty()) return control::MakeBody(std::move(hello));
    const bool truth = claims_ == Claims::kTruth;
    const bool has = truth ? group_->has_newcomer : claims_ == Claims::kNewcomer;
    hello.group = "group";
    hello.installed_replicas = group_->members;
    hello.installed_nodes = group_->nodes;
    if (has) {
      hello.installed_replicas.push_back(newcomer_);
      hello.installed_nodes.push_back("node of " + newcomer_);
    }
    hello.installed_epoch = hello.served_epoch =
        (truth ? Group::kEpoch : Group::kClaim) + (group_->has_newcomer ? 1 : 0);
    return control::MakeBody(std::move(hello));
  }

  Group* const group_;
  const std::string newcomer_;  // empty: it is the newcomer
  const Claims claims_;
  uint64_t heartbeat_ = 0;
  ControlHost host_;  // last: it uses the members above
};

class CtlAddTest : public testing::Test {
 protected:
  CtlAddTest() {
    std::string pattern = "/dev/shm/hyperloop-ctl-add-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"tool", "rep"}) EXPECT_OK(identity::MakeIdentity(Dir(name), name));
    Know("tool", "rep", identity::kRoleReplica);
    Know("rep", "tool", identity::kRolePrimary);
  }
  ~CtlAddTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string Dir(const std::string& name) const { return folder_ + "/" + name; }
  void Know(const std::string& who, const std::string& whom, identity::Roles roles) const {
    const auto ring = Must(identity::KeyRing::Load(Dir(whom)));
    EXPECT_OK(identity::Trust(Dir(who), {whom, ring->public_key(), roles, ""}));
  }
  control::Trust OfReplica() const { return Must(control::Trust::Load(Dir("rep"), nullptr)); }
  // Starts the newcomer and three members, of which the first one makes this claim.
  void StartGroup(Member::Claims claims) {
    newcomer_.emplace(OfReplica(), &group_, "");
    for (const Member::Claims each : {claims, Member::Claims::kTruth, Member::Claims::kTruth}) {
      members_.emplace_back(OfReplica(), &group_, newcomer_->address(), each);
      const std::lock_guard lock(group_.mutex);
      group_.members.push_back(members_.back().address());
      group_.nodes.push_back("node of " + members_.back().address());
    }
  }
  CtlRun Add() {
    StoreOptions options;
    for (const Member& each : members_) options.replicas.push_back(each.address());
    options.device = folder_ + "/none.sock";
    options.keys = Dir("tool");
    options.pool = folder_ + "/pool";
    options.ack_timeout = std::chrono::seconds(1);
    return RunCtl(folder_, {"add", "--uri", FormatStoreUri(options), newcomer_->address()});
  }

  // The newcomer becomes a member, by proposals of this epoch alone.
  void ExpectAddedBy(uint64_t epoch) {
    const CtlRun run = Add();
    EXPECT_EQ(run.exit_status, 0) << run.err;
    EXPECT_THAT(run.out, testing::HasSubstr("is in the group (epoch 8, 4 replicas)"));
    const std::lock_guard lock(group_.mutex);
    EXPECT_THAT(group_.proposed,
                testing::AllOf(testing::Not(testing::IsEmpty()), testing::Each(epoch)));
  }

  std::string folder_;
  Group group_;
  std::optional<Member> newcomer_;
  std::list<Member> members_;
};

// A voucher for an epoch to come would be one that the member keeps for later.
TEST_F(CtlAddTest, NoEpochIsVouchedForThatOneMemberClaims) {
  StartGroup(Member::Claims::kEpoch);
  ExpectAddedBy(Group::kEpoch);
}

TEST_F(CtlAddTest, OneMemberDoesNotSayThatTheReplicaIsIn) {
  StartGroup(Member::Claims::kNewcomer);
  ExpectAddedBy(Group::kEpoch);
}

TEST_F(CtlAddTest, AGroupOfTwoWhoseMembersDifferIsRefusedWithWhatEachTells) {
  StartGroup(Member::Claims::kEpoch);
  members_.pop_back();
  const CtlRun run = Add();
  EXPECT_NE(run.exit_status, 0);
  EXPECT_THAT(run.err,
              testing::AllOf(testing::HasSubstr("told by more than half"),
                             testing::HasSubstr(members_.front().address() + " tells epoch 9"),
                             testing::HasSubstr(members_.back().address() + " tells epoch 7")));
  EXPECT_THAT(group_.proposed, testing::IsEmpty());
}

}  // namespace
}  // namespace hyperloop::test
