// Session: a taking in which the primary's own pool has what all replicas lost (own_content.h).
#include <algorithm>

#include "hyperloop/core/text.h"
#include "log/redo.h"
#include "primary/own_content.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

// What the member says, and what its node's answer and journal show.
Result<MemberProof> ProofOf(const MemberContent& member, const MemberLook& look, NodeView& view,
                            uint64_t journal_end) {
  MemberProof proof{.name = member.name,
                    .joins = member.joins,
                    .acked_seq = member.content.acked_seq,
                    .installed_epoch = member.content.installed_epoch,
                    .served_epoch = look.hello.served_epoch};
  if (look.hello.served_owner.size() == proof.served_owner.size())
    std::ranges::copy(look.hello.served_owner, proof.served_owner.begin());
  proof.journal.resize(std::min(journal_end, view.region_size()));
  HL_RETURN_IF_ERROR(view.Read(0, proof.journal));
  return proof;
}

}  // namespace

// The pool is only read. Null: it does not stand in; else a copy of it, redone.
Result<std::unique_ptr<Pool>> Session::JudgeOwnPool(const OwnJudge& judge) const {
  Result<std::unique_ptr<Pool>> own = Pool::OpenCopyOnWrite(options_.pool);
  if (own.status().code() == Code::kNotFound) return std::unique_ptr<Pool>();
  if (!own.ok()) return own;
  const std::span<std::byte> region = (*own)->region();
  HL_ASSIGN_OR_RETURN(const bool stands_in, judge(region));
  if (!stands_in) return std::unique_ptr<Pool>();
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(region, region.size()));
  HL_RETURN_IF_ERROR(Redo(region, info, 0).status());
  return own;
}

// One owner alone writes under its epoch. So two logs of it that end with the same record are one
// log.
std::unique_ptr<Pool> Session::OwnLikeBest(const TakePlan& plan, uint64_t last_seq) const {
  Result<std::unique_ptr<Pool>> own =
      JudgeOwnPool([&](std::span<const std::byte> region) -> Result<bool> {
        HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(region, region.size()));
        if (info.group != plan.group || region.size() != plan.region_size) return false;
        // The log first: what else there is takes longer to check.
        const Result<LogState> log = ScanLog(region, info);
        if (!log.ok() || log->tail.seq != last_seq || log->tail.epoch != plan.recorded.epoch)
          return false;
        // What is damaged here comes from the others.
        const MemberCheck check = CheckMember(region, info);
        return check.sound() && check.configuration.owner == plan.recorded.owner;
      });
  if (!own.ok() || *own == nullptr) return nullptr;
  const std::span<const std::byte> region = (*own)->region();
  const Result<RegionInfo> info = ParseSuperblock(region, region.size());
  const Result<Configuration> logged =
      ParseConfigurationBlock(region.subspan(info->geometry.configuration_offset()), *info);
  const bool same = logged.ok() && logged->branch == plan.recorded.branch;
  return same ? std::move(own).value() : nullptr;
}

Result<std::unique_ptr<Pool>> Session::JudgeOwnBeside(const TakePlan& plan, const BestLog& best) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Pool> own,
                      JudgeOwnPool([&](std::span<const std::byte> region) {
                        return OwnStandsIn(region, options_.pool, plan, best);
                      }));
  if (own != nullptr) stands_in_for_ = {true, best.last_seq};
  return own;
}

// A taking that was cut short while it sent the own log leaves logs that end before what they state
// as acknowledged. `refused`: that none of them will do.
Result<std::unique_ptr<Pool>> Session::JudgeOwnInstead(const TakePlan& plan, const Status& refused,
                                                       const std::vector<MemberContent>& members,
                                                       const Views& views,
                                                       const std::vector<MemberLook>& looks) {
  Result<std::unique_ptr<Pool>> own =
      JudgeOwnPool([&](std::span<const std::byte> region) -> Result<bool> {
        const Result<RegionInfo> info = ParseSuperblock(region, region.size());
        if (!info.ok()) return false;
        std::vector<MemberProof> proofs;
        for (size_t i = 0; i < members.size(); ++i) {
          HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, views(i));
          HL_ASSIGN_OR_RETURN(proofs.emplace_back(),
                              ProofOf(members[i], looks[i], *view, info->geometry.journal_end()));
        }
        return OwnReplaces(region, options_.pool, plan, proofs);
      });
  if (own.status().code() == Code::kCorruption)
    return Corruption(Text(refused.message(), "; ", own.status().message()));
  if (!own.ok()) return own;
  if (*own == nullptr) return refused;
  stands_in_for_ = EndOf(refused, members);
  return own;
}

Result<HeldProof> Session::ReadHeld(NodeView& view) const {
  constexpr size_t kPiece = 16u << 20;
  std::vector<std::byte> journal(sizeof(Superblock));
  HL_RETURN_IF_ERROR(view.Read(0, journal));
  const Result<RegionInfo> info = ParseSuperblock(journal, view.region_size());
  if (!info.ok()) return HeldProof();
  journal.resize(info->geometry.journal_end());
  for (size_t at = 0; at < journal.size(); at += kPiece) {
    if (ending_) return Aborted("the store is being closed");
    const size_t size = std::min(kPiece, journal.size() - at);
    HL_RETURN_IF_ERROR(view.Read(at, std::span(journal).subspan(at, size)));
  }
  return ProofHeld(journal, view.region_size());
}

Status Session::CheckDropsNothing(const std::string& replica, NodeView& view,
                                  std::span<const std::byte> region, const std::string& whose,
                                  HeldBy by) const {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(region, region.size()));
  HL_ASSIGN_OR_RETURN(const HeldProof held, ReadHeld(view));
  HL_RETURN_IF_ERROR(CheckNothingBehind(replica, held, region, info, whose));
  return CheckReplaceable(replica, held, region, info, by);
}

}  // namespace hyperloop
