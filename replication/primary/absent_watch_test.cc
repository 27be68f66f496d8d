#include "primary/absent_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <list>
#include <mutex>

#include "common/random_uuid.h"
#include "control/proposal.h"
#include "membership/replica_lists.h"
#include "support/control_host.h"
#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/must.h"
#include "support/silent_peer.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using control::HelloReplyT;
using identity::kRolePrimary;
using identity::kRoleReplica;
using test::Eventually;

TEST(AbsentWatchTest, EndsWhileAReplicaIsSilent) {
  test::SilentPeer peer;
  Configuration configuration;
  configuration.epoch = 2;
  configuration.absent.push_back({RandomUuid(), peer.endpoint()});
  {
    AbsentWatch watch(Must(control::Trust::Load("", nullptr)), {}, nullptr, -1);
    watch.Set(configuration, RandomUuid(), 1 << 20);
    peer.AwaitQuestion();
    peer.AwaitQuestion();  // the first one was given up
  }
}

// A replica that answers Hello as the test says. Its proposals move with each answer.
class Answering {
 public:
  Answering(const control::Trust& trust, HelloReplyT hello)
      : hello_(std::move(hello)), host_(trust, [this](const auto&) { return Answer(); }) {}
  std::string address() const { return host_.endpoint().ToString(); }
  uint64_t asked() {
    const std::lock_guard lock(mutex_);
    return hello_.proposals;
  }
  // Tells this proposal from now on.
  void Tell(const control::ProposeRequestT& request) {
    const std::lock_guard lock(mutex_);
    (request.leaves ? hello_.leaving_replica : hello_.proposed_replica) = request.replica;
    hello_.proposal_epoch = request.epoch;
    hello_.proposal_vouchers = request.vouchers;
  }

 private:
  control::BodyUnion Answer() {
    const std::lock_guard lock(mutex_);
    ++hello_.proposals;
    return control::MakeBody(HelloReplyT(hello_));
  }

  std::mutex mutex_;  // guards hello_
  HelloReplyT hello_;
  test::ControlHost host_;  // last: it uses the members above
};

// A group of one replica, or of three, whose hosts lie. They propose what they like. The primary is
// ann; tool is an operator's host.
class ProposalTest : public testing::Test {
 protected:
  static constexpr uint64_t kRegion = 1 << 20;
  static constexpr uint64_t kEpoch = 7;
  static constexpr const char* kLeftOut = "127.0.0.1:1";

  ProposalTest() {
    std::string pattern = "/dev/shm/hyperloop-watch-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"ann", "tool", "liar", "fresh"})
      EXPECT_OK(identity::MakeIdentity(Dir(name), name));
    for (const char* who : {"ann", "tool", "liar", "fresh"}) {
      Know(who, "ann", kRolePrimary);
      Know(who, "tool", kRolePrimary);
      Know(who, "liar", kRoleReplica);
      Know(who, "fresh", kRoleReplica);
    }
    configuration_.epoch = kEpoch;
    configuration_.owner = owner_;
    member_.emplace(Of("liar"), HelloOf(node_));
    configuration_.replicas.push_back({node_, member_->address()});
    newcomer_.emplace(Of("fresh"), HelloOf(RandomUuid()));
  }
  ~ProposalTest() override {
    watch_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string Dir(const std::string& name) const { return folder_ + "/" + name; }
  void Know(const std::string& who, const std::string& whom, identity::Roles roles,
            const std::string& endpoint = "") {
    const auto ring = Must(identity::KeyRing::Load(Dir(whom)));
    EXPECT_OK(identity::Trust(Dir(who), {whom, ring->public_key(), roles, endpoint}));
  }
  control::Trust Of(const std::string& name) const {
    return Must(control::Trust::Load(Dir(name), nullptr));
  }
  static HelloReplyT HelloOf(const Uuid& node) {
    HelloReplyT hello;
    hello.node_id = FormatUuid(node);
    hello.device = "ready";
    hello.region_size = kRegion;
    return hello;
  }
  // What a member tells of a configuration of this epoch.
  HelloReplyT Seen(uint64_t epoch = kEpoch) const {
    HelloReplyT seen;
    seen.group = FormatUuid(group_);
    seen.installed_epoch = seen.served_epoch = epoch;
    seen.served_owner.assign(owner_.begin(), owner_.end());
    return seen;
  }
  // The proposal of `who`, who saw this epoch, that the newcomer comes, or that kLeftOut leaves.
  control::ProposeRequestT ProposalOf(const std::string& who, uint64_t epoch = kEpoch,
                                      bool leaves = false) const {
    return control::MakeProposal(Of(who), Seen(epoch), leaves ? kLeftOut : newcomer_->address(),
                                 leaves);
  }
  control::ProposeRequestT RemovalOf(const std::string& who, uint64_t epoch = kEpoch) const {
    return ProposalOf(who, epoch, true);
  }
  void Watch() {
    watch_.emplace(Of("ann"), AbsentWatch::Options{std::chrono::milliseconds(1000)}, log_, -1);
    watch_->Set(configuration_, group_, kRegion);
  }
  // A group that has left kLeftOut out.
  void WatchShrunken() {
    configuration_.absent.push_back({RandomUuid(), kLeftOut});
    Watch();
  }
  bool IsAdded() const { return watch_->Offered().newcomer.has_value(); }
  bool IsLeaving() const { return watch_->Offered().leaver.has_value(); }
  // Whether the log says so before the group is changed.
  bool IsRefused(std::string_view why) const {
    const auto changes = [&] { return IsAdded() || IsLeaving(); };
    return Eventually([&] { return changes() || log_->Has(why); }) && !changes();
  }

  const Uuid node_ = RandomUuid(), group_ = RandomUuid(), owner_ = RandomUuid();
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  std::string folder_;
  Configuration configuration_;
  std::optional<Answering> member_, newcomer_;
  std::optional<AbsentWatch> watch_;
};

TEST_F(ProposalTest, WhatAnOperatorVouchesForIsAdded) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  member_->Tell(ProposalOf("tool"));
  Watch();
  EXPECT_TRUE(Eventually([&] { return IsAdded(); }));
}

TEST_F(ProposalTest, WhatThePrimarysOwnHostVouchesForIsAdded) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  member_->Tell(ProposalOf("ann"));
  Watch();
  EXPECT_TRUE(Eventually([&] { return IsAdded(); }));
}

TEST_F(ProposalTest, AMemberProposesNoReplicaByItself) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  member_->Tell(ProposalOf("liar"));
  Watch();
  EXPECT_TRUE(IsRefused("is not added: no host that is a primary in"));
}

TEST_F(ProposalTest, AProposalOfAnotherTimeIsNotRepeated) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  control::ProposeRequestT old = ProposalOf("tool", kEpoch - 1);
  old.epoch = kEpoch;
  member_->Tell(old);
  Watch();
  EXPECT_TRUE(IsRefused("is not added: no host that is a primary in"));
}

// As one of a primary that was to come, and that came to the epoch that a member had claimed.
TEST_F(ProposalTest, AProposalToAnotherPrimaryIsNotRepeated) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  HelloReplyT seen = Seen();
  seen.served_owner[0] ^= 1;
  member_->Tell(control::MakeProposal(Of("tool"), seen, newcomer_->address(), false));
  Watch();
  EXPECT_TRUE(IsRefused("is not added: no host that is a primary in"));
}

TEST_F(ProposalTest, AProposalOfAnOlderReleaseIsNamedAsSuch) {
  Know("ann", "fresh", kRoleReplica, newcomer_->address());
  control::ProposeRequestT old = ProposalOf("tool");
  old.vouchers.clear();
  member_->Tell(old);
  Watch();
  EXPECT_TRUE(IsRefused("is not added: it comes without a voucher, as from hyperloopctl or"));
}

// What nobody proposes any more, one that lies may tell for ever.
TEST_F(ProposalTest, WhatOneOfThreeMembersTellsDoesNotCount) {
  std::list<Answering> others;
  for (int i = 0; i < 2; ++i) {
    const Uuid node = RandomUuid();
    others.emplace_back(Of("liar"), HelloOf(node));
    configuration_.replicas.push_back({node, others.back().address()});
  }
  member_->Tell(RemovalOf("tool"));
  WatchShrunken();
  // The members are asked one after the other, and the last one's third answer ends a third round.
  EXPECT_TRUE(Eventually([&] { return IsLeaving() || others.back().asked() >= 4; }));
  EXPECT_FALSE(IsLeaving());
  others.front().Tell(RemovalOf("tool"));
  EXPECT_TRUE(Eventually([&] { return IsLeaving(); }));
}

TEST_F(ProposalTest, AReplicaWithoutAPlaceIsNotAdded) {
  member_->Tell(ProposalOf("tool"));
  Watch();
  EXPECT_TRUE(IsRefused("says that its ENDPOINT is " + newcomer_->address()));
}

// Its vote counts once.
TEST_F(ProposalTest, AHostGetsNoSecondReplica) {
  newcomer_.emplace(Of("liar"), HelloOf(RandomUuid()));
  const auto ring = Must(identity::KeyRing::Load(Dir("liar")));
  ASSERT_OK(identity::Trust(Dir("ann"),
                            {"other", ring->public_key(), kRoleReplica, newcomer_->address()}));
  member_->Tell(ProposalOf("tool"));
  Watch();
  EXPECT_TRUE(IsRefused("a host gets one vote in a group"));
}

TEST_F(ProposalTest, WhatAnOperatorVouchesForLeaves) {
  member_->Tell(RemovalOf("tool"));
  WatchShrunken();
  EXPECT_TRUE(Eventually([&] { return IsLeaving(); }));
  EXPECT_EQ(watch_->Offered().leaver, kLeftOut);
}

TEST_F(ProposalTest, AMemberHasNoReplicaLeaveByItself) {
  member_->Tell(RemovalOf("liar"));
  WatchShrunken();
  EXPECT_TRUE(IsRefused("says is to leave, does not leave the group: no host that is a primary"));
}

TEST_F(ProposalTest, ARemovalOfAnotherTimeIsNotRepeated) {
  control::ProposeRequestT old = RemovalOf("tool", kEpoch - 1);
  old.epoch = kEpoch;
  member_->Tell(old);
  WatchShrunken();
  EXPECT_TRUE(IsRefused("does not leave the group: no host that is a primary in"));
}

// Who wants a replica back must not have it removed.
TEST_F(ProposalTest, AnAdditionIsNoRemoval) {
  control::ProposeRequestT turned = control::MakeProposal(Of("tool"), Seen(), kLeftOut, false);
  turned.leaves = true;
  member_->Tell(turned);
  WatchShrunken();
  EXPECT_TRUE(IsRefused("does not leave the group: no host that is a primary in"));
}

}  // namespace
}  // namespace hyperloop
