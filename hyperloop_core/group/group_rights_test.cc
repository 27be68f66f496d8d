// Tests what a node of a group may do through the queue pairs that other nodes connect to it: what
// its datapath needs, and nothing else. One node is the group's own. The other one has the right
// addresses and keys, and sends what it likes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "group/chain_fixture.h"
#include "group/cpu_message.h"
#include "group/result_area.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using rnic::Opcode;
using rnic::WcStatus;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A primary and the first replica of its group, neither connected yet, and two queue pairs on the
// host of either one. With a group of two the order is pipelined.
class Ends {
 public:
  explicit Ends(Datapath datapath, uint32_t group_size = 1)
      : program_(SlotProgram::For(Must(GroupGeometry::For(datapath, group_size, /*window=*/4, 0)))),
        primary_(Open("primary")),
        replica_(Open("replica")) {
    if (group_size == 2) program_.order = FlushOrder::kPipelined;
    group_ = Must(MakeGroup(*primary_.device, *primary_.pd, *primary_.mr, {}, program_));
    member_ = Must(MakeReplica(datapath));
  }

  // The replica's place is taken. Returns how the primary answers `request` on its queue pair to
  // the first replica (with fanout to the only one), or to the last one.
  WcStatus AskPrimary(bool last, Opcode opcode) {
    MemberInfo taken = member_->info();
    taken.up_qpn = replica_.qp->qpn();
    taken.down_qpn = replica_.second->qpn();
    EXPECT_OK(group_->Connect({&taken, 1}));
    const PrimaryInfo& info = group_->info();
    const uint32_t first = info.down_qpn != 0 ? info.down_qpn : info.direct_qpn[0];
    return Ask(replica_, last, {{info.gid}, last ? info.ack_qpn : first}, opcode, *primary_.mr);
  }
  // Asks on the queue pair by which the replica's proofs come. Of a group of two.
  WcStatus AskForProofs(Opcode opcode) {
    std::vector<MemberInfo> taken = Two();
    taken[0].ack_qpn = replica_.qp->qpn();
    EXPECT_OK(group_->Connect(taken));
    const PrimaryInfo& info = group_->info();
    return Ask(replica_, false, {{info.gid}, info.direct_qpn[0]}, opcode, *primary_.mr);
  }
  // Asks on the replica's end of that queue pair.
  WcStatus AskTheProofsSender(Opcode opcode) {
    PrimaryInfo taken = group_->info();
    taken.direct_qpn[0] = primary_.qp->qpn();
    const std::vector<MemberInfo> chain = Two();
    EXPECT_OK(member_->Connect(taken, chain));
    return Ask(primary_, false, {{chain[0].gid}, chain[0].ack_qpn}, opcode, *replica_.mr);
  }
  // Sends the primary `word` as the proof of slot `slot`. Of a group of two. Returns what the
  // primary makes of it; `submit`: while an operation is under way, which no replica has answered.
  Status Prove(bool submit, uint64_t word, uint32_t slot) {
    std::vector<MemberInfo> taken = Two();
    taken[0].ack_qpn = replica_.qp->qpn();
    EXPECT_OK(group_->Connect(taken));
    if (submit) {
      EXPECT_OK(group_->Write(0, 8, true));
    }
    const PrimaryInfo& info = group_->info();
    EXPECT_OK(replica_.qp->Connect({{info.gid}, info.direct_qpn[0]}));
    replica_.word(0) = word;
    const rnic::Sge sge = replica_.sge(0, 8);
    const rnic::SendRequest request{
        .opcode = Opcode::kWriteImm,
        .sges = {&sge, 1},
        .remote_addr = info.ack_addr + ProofOffset(info.slots, info.group_size, slot, 0),
        .rkey = info.ack_rkey,
        .imm = slot};
    EXPECT_OK(replica_.qp->Post({&request, 1}));
    while (rnic_.engine().Run(64) != 0) {
    }
    const auto newest = group_->Poll();
    EXPECT_EQ(newest.ok() ? *newest : 0, 0u) << "acknowledged by one proof alone";
    return group_->status();
  }
  // Answers the flush of the first operation with `word`, in the place of the first replica.
  // Returns what the primary makes of it.
  Status AnswerTheFlush(uint64_t word) {
    std::vector<MemberInfo> taken = Two();
    taken[0].up_qpn = replica_.qp->qpn();
    taken[0].staging_addr = replica_.mr->addr();
    taken[0].staging_rkey = replica_.mr->rkey();
    replica_.word(kStagingResult) = word;
    EXPECT_OK(group_->Connect(taken));
    EXPECT_OK(replica_.qp->Connect({{group_->info().gid}, group_->info().down_qpn}));
    const rnic::Sge message = replica_.sge(4096, 4096);
    const rnic::ReceiveRequest receive{.id = 0, .sges = {&message, 1}};
    EXPECT_OK(replica_.qp->PostReceive({&receive, 1}));
    EXPECT_OK(group_->Flush());
    while (rnic_.engine().Run(64) != 0) {
    }
    const auto newest = group_->Poll();
    EXPECT_EQ(newest.ok() ? *newest : 0, 0u) << "acknowledged by one proof alone";
    return group_->status();
  }
  // The primary's place is taken. Returns how the replica answers on `up`, or on `down`.
  WcStatus AskReplica(bool down, Opcode opcode) {
    PrimaryInfo taken = group_->info();
    taken.down_qpn = taken.direct_qpn[0] = primary_.qp->qpn();
    taken.ack_qpn = primary_.second->qpn();
    const MemberInfo& info = member_->info();
    EXPECT_OK(member_->Connect(taken, {&info, 1}));
    return Ask(primary_, down, {{info.gid}, down ? info.down_qpn : info.up_qpn}, opcode,
               *replica_.mr);
  }
  // The same on `up`, of the ring in which the replica's messages arrive.
  WcStatus AskTheRing(Opcode opcode) {
    PrimaryInfo taken = group_->info();
    taken.down_qpn = primary_.qp->qpn();
    taken.ack_qpn = primary_.second->qpn();
    const MemberInfo& info = member_->info();
    EXPECT_OK(member_->Connect(taken, {&info, 1}));
    return Ask(primary_, false, {{info.gid}, info.up_qpn}, opcode,
               {info.staging_addr, info.staging_rkey});
  }
  // A WRITE on `up` that misses the ring, or a WRITE_IMM that is no message. Returns how the
  // replica's member takes it.
  Status AfterABadRequest(Opcode opcode) {
    PrimaryInfo taken = group_->info();
    taken.down_qpn = primary_.qp->qpn();
    taken.ack_qpn = primary_.second->qpn();
    const MemberInfo& info = member_->info();
    EXPECT_OK(member_->Connect(taken, {&info, 1}));
    const bool misses = opcode == Opcode::kWrite;
    const Target target{info.staging_addr - (misses ? 4096 : 0), info.staging_rkey};
    EXPECT_EQ(Ask(primary_, false, {{info.gid}, info.up_qpn}, opcode, target),
              misses ? WcStatus::kRemoteAccess : WcStatus::kSuccess);
    Status status;
    // A polling member does not look at completions in every turn.
    for (int turn = 0; turn < 64 && status.ok(); ++turn)
      status = static_cast<CpuMember&>(*member_).Turn().status();
    return status;
  }
  // The replica was sealed: its member is gone. Another queue pair of the same protection domain,
  // by which everything may be done, is asked to write into the ring, or into the region.
  WcStatus AskTheProtectionDomainOfASealedReplica(bool ring) {
    const MemberInfo info = member_->info();
    member_.reset();
    EXPECT_OK(replica_.second->Connect(primary_.second->address()));
    const Target target = ring ? Target{info.staging_addr, info.staging_rkey} : *replica_.mr;
    return Ask(primary_, true, replica_.second->address(), Opcode::kWrite, target);
  }

 private:
  struct Target {
    Target(uint64_t at, uint32_t key) : addr(at), rkey(key) {}
    Target(const rnic::MemoryRegion& mr) : addr(mr.addr()), rkey(mr.rkey()) {}  // NOLINT
    uint64_t addr;
    uint32_t rkey;
  };
  // The replica, and another place in the chain that it seems to have, too.
  std::vector<MemberInfo> Two() const {
    std::vector<MemberInfo> chain(2, member_->info());
    chain[1].position = 1;
    return chain;
  }
  struct End : RnicEnd {
    std::unique_ptr<rnic::QueuePair> second;
  };
  End Open(const std::string& host) {
    End end{Must(RnicEnd::Make(Must(rnic_.OpenDevice(host)))), nullptr};
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = end.cq.get();
    end.second = Must(end.pd->CreateQueuePair(attr));
    return end;
  }
  // The CPU of a replica does nothing here.
  Result<std::unique_ptr<Member>> MakeReplica(Datapath datapath) {
    if (datapath == Datapath::kOffload || datapath == Datapath::kFanout)
      return MakeMember(*replica_.device, *replica_.pd, *replica_.mr, {}, program_);
    return CpuMember::Create(*replica_.device, *replica_.pd, *replica_.mr, {}, program_.geometry,
                             CpuMember::Driver::kCaller);
  }
  WcStatus Ask(End& from, bool second, const rnic::QpAddress& to, Opcode opcode,
               const Target& target) {
    rnic::QueuePair& qp = second ? *from.second : *from.qp;
    EXPECT_OK(qp.Connect(to));
    const rnic::Sge sge = from.sge(0, 8);
    const rnic::SendRequest request{.opcode = opcode,
                                    .signaled = true,
                                    .sges = {&sge, 1},
                                    .remote_addr = target.addr + 64,
                                    .rkey = target.rkey};
    EXPECT_OK(qp.Post({&request, 1}));
    while (rnic_.engine().Run(64) != 0) {
    }
    std::array<rnic::Completion, 1> completion;
    EXPECT_EQ(*from.cq->Poll(completion), 1u) << "no answer";
    return completion[0].status;
  }

  SlotProgram program_;
  softrnic::EmbeddedRnic rnic_;
  End primary_, replica_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Member> member_;
};

class GroupRightsTest : public testing::TestWithParam<Way> {
 protected:
  bool fanout() const { return GetParam() == Datapath::kFanout; }

  // Which requests `ask` of new ends succeeds with. All others must be refused for lack of a right.
  template <class Ask>
  std::vector<Opcode> Allowed(Ask&& ask, uint32_t group_size = 1) const {
    std::vector<Opcode> allowed;
    for (const Opcode opcode :
         {Opcode::kWrite, Opcode::kRead, Opcode::kCompareSwap, Opcode::kFetchAdd}) {
      Ends ends(GetParam(), group_size);
      const WcStatus status = ask(ends, opcode);
      if (status == WcStatus::kSuccess) {
        allowed.push_back(opcode);
      } else {
        EXPECT_EQ(status, WcStatus::kRemoteAccess) << static_cast<int>(opcode);
      }
    }
    return allowed;
  }
  std::vector<Opcode> AllowedAtPrimary(bool last) const {
    return Allowed([last](Ends& ends, Opcode opcode) { return ends.AskPrimary(last, opcode); });
  }
  std::vector<Opcode> AllowedAtReplica(bool down) const {
    return Allowed([down](Ends& ends, Opcode opcode) { return ends.AskReplica(down, opcode); });
  }
};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupRightsTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(GroupRightsTest, AReplicaReachesOnlyItsAcknowledgementsAtThePrimary) {
  EXPECT_THAT(AllowedAtPrimary(/*last=*/false), IsEmpty());
  if (fanout()) return;
  // With offload the last replica reads behind its acknowledgement.
  if (GetParam() == Datapath::kOffload) {
    EXPECT_THAT(AllowedAtPrimary(/*last=*/true), ElementsAre(Opcode::kWrite, Opcode::kRead));
  } else {
    EXPECT_THAT(AllowedAtPrimary(/*last=*/true), ElementsAre(Opcode::kWrite));
  }
}

TEST_P(GroupRightsTest, AReplicaIsReachedFromThePrimarysSideOnly) {
  if (fanout()) {
    EXPECT_THAT(AllowedAtReplica(/*down=*/false),
                ElementsAre(Opcode::kWrite, Opcode::kRead, Opcode::kCompareSwap, Opcode::kFetchAdd))
        << "the primary itself compares and swaps";
    return;
  }
  EXPECT_THAT(AllowedAtReplica(/*down=*/false), ElementsAre(Opcode::kWrite, Opcode::kRead));
  EXPECT_THAT(AllowedAtReplica(/*down=*/true), IsEmpty());
}

class RingRightsTest : public GroupRightsTest {};
INSTANTIATE_TEST_SUITE_P(ByCpu, RingRightsTest,
                         testing::Values(Datapath::kCpuPolling, Datapath::kCpuEvent),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(RingRightsTest, ARingIsWrittenAndNothingElse) {
  EXPECT_THAT(Allowed([](Ends& ends, Opcode opcode) { return ends.AskTheRing(opcode); }),
              ElementsAre(Opcode::kWrite));
}

// Nothing more can come by a queue in error. A member that polls memory only would never know.
TEST_P(RingRightsTest, ARefusedWriteEndsTheMember) {
  EXPECT_THAT(Ends(GetParam(), 1).AfterABadRequest(Opcode::kWrite),
              StatusIs(Code::kAborted, HasSubstr("the queue from the previous node failed")));
}

TEST_P(RingRightsTest, ARequestThatTakesAReceiveAndBringsNoMessageEndsTheMember) {
  EXPECT_THAT(Ends(GetParam(), 1).AfterABadRequest(Opcode::kWriteImm),
              StatusIs(Code::kCorruption,
                       HasSubstr(GetParam() == Datapath::kCpuPolling ? "takes a receive"
                                                                     : "no whole message")));
}

// A primary that does not know yet that it was followed by another still has the ring's address and
// key.
TEST_P(RingRightsTest, ARingsKeyEndsWithItsMember) {
  EXPECT_EQ(Ends(GetParam()).AskTheProtectionDomainOfASealedReplica(/*ring=*/true),
            WcStatus::kRemoteAccess);
  EXPECT_EQ(Ends(GetParam()).AskTheProtectionDomainOfASealedReplica(/*ring=*/false),
            WcStatus::kSuccess)
      << "by the same queue pair";
}

class ProofRightsTest : public GroupRightsTest {};
INSTANTIATE_TEST_SUITE_P(Pipelined, ProofRightsTest,
                         testing::Values(Way(Datapath::kOffload, FlushOrder::kPipelined)),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(ProofRightsTest, AReplicaReachesOnlyItsProofsAtThePrimary) {
  EXPECT_THAT(Allowed([](Ends& ends, Opcode opcode) { return ends.AskForProofs(opcode); }, 2),
              ElementsAre(Opcode::kWrite, Opcode::kRead));
  EXPECT_THAT(Allowed([](Ends& ends, Opcode opcode) { return ends.AskTheProofsSender(opcode); }, 2),
              IsEmpty());
}

// A proof counts for the operation that is due alone, and with that operation's number alone.
TEST_P(ProofRightsTest, AProofThatIsNotDueBreaksTheGroup) {
  const auto prove = [](bool submit, uint64_t word, uint32_t slot) {
    return Ends(GetParam(), 2).Prove(submit, word, slot);
  };
  EXPECT_OK(prove(true, 1, 0));
  EXPECT_THAT(prove(false, 1, 0), StatusIs(Code::kCorruption, HasSubstr("operation 1")));
  EXPECT_THAT(prove(true, 1, 1), StatusIs(Code::kCorruption, HasSubstr("acknowledged slot 1")));
  for (const uint64_t other : {uint64_t{0}, uint64_t{2}, ~uint64_t{0}}) {
    EXPECT_THAT(prove(true, other, 0),
                StatusIs(Code::kUnavailable, HasSubstr("read number " + std::to_string(other))));
  }
}

TEST_P(ProofRightsTest, AFlushThatBringsAnotherNumberBreaksTheGroup) {
  EXPECT_OK(Ends(GetParam(), 2).AnswerTheFlush(1));
  for (const uint64_t other : {uint64_t{0}, uint64_t{2}, ~uint64_t{0}}) {
    EXPECT_THAT(
        Ends(GetParam(), 2).AnswerTheFlush(other),
        StatusIs(Code::kCorruption, HasSubstr("answered the flush of operation 1 with number " +
                                              std::to_string(other))));
  }
}

}  // namespace
}  // namespace hyperloop
