#include "ctl/log_seen.h"

#include "hyperloop/core/text.h"
#include "primary/asking.h"
#include "primary/own_content.h"
#include "region/region_layout.h"

namespace hyperloop::ctl {
namespace {

// Whether two owners wrote the newest epochs of the two logs, and these have one number.
bool AreOfRivals(const NodeStatus& a, const NodeStatus& b) {
  const NodeStatus::Recorded &one = a.configuration, &other = b.configuration;
  return one.epoch == other.epoch && !one.owner.empty() && !other.owner.empty() &&
         one.owner != other.owner;
}

// Whether one owner wrote the newest epochs of both. Then the shorter log is the longer one's
// beginning.
bool AreOfOneOwner(const NodeStatus& a, const NodeStatus& b) {
  const NodeStatus::Recorded &one = a.configuration, &other = b.configuration;
  return one.epoch == other.epoch && one.owner == other.owner;
}

}  // namespace

LogSeen::LogSeen(const std::string& name, const NodeStatus& status, NodeView& view)
    : name_(name), status_(status), view_(&view), region_size_(view.region_size()) {}
LogSeen::LogSeen(const std::string& name, const NodeStatus& status,
                 std::span<const std::byte> image)
    : name_(name), status_(status), image_(image), region_size_(image.size()) {}

Status LogSeen::Load() {
  if (view_ == nullptr) return {};
  std::vector<std::byte> bytes(sizeof(Superblock));
  HL_RETURN_IF_ERROR(view_->Read(0, bytes));
  if (const Result<RegionInfo> info = ParseSuperblock(bytes, region_size_); info.ok()) {
    bytes.resize(info->geometry.journal_end());
    HL_RETURN_IF_ERROR(view_->Read(0, bytes));
  }
  read_ = std::move(bytes);
  image_ = read_;
  view_ = nullptr;
  return {};
}

Status LogSeen::LoadForComparison(std::span<LogSeen> others) const {
  return AllAtOnce(others.size(), [&](size_t i) -> Status {
    LogSeen& other = others[i];
    if (IsBeyond(other)) return {};
    return other.Load().WithContext(other.name_);
  });
}

bool LogSeen::IsBeyond(const LogSeen& other) const {
  return AreOfOneOwner(status_, other.status_) || status_.branch_epoch > other.status_.branch_epoch;
}

Result<std::string> LogSeen::Lacks(LogSeen& other) {
  if (IsBeyond(other)) return std::string();
  HL_RETURN_IF_ERROR(Load().WithContext(name_));
  HL_RETURN_IF_ERROR(other.Load().WithContext(other.name_));
  const Result<RegionInfo> info = ParseSuperblock(image_, region_size_);
  if (!info.ok()) return std::string();  // who reads its status says so
  const HeldProof held = ProofHeld(other.image_, other.region_size_);
  const HeldBy by = AreOfRivals(status_, other.status_) ? HeldBy::kRival : HeldBy::kMember;
  if (CheckReplaceable(other.name_, held, image_, *info, by).code() != Code::kInvalidArgument)
    return std::string();
  return Text(other.name_, " holds other acknowledged records than ", name_,
              ": its log proves that everything up to record ", held.acked_seq,
              " of it was acknowledged");
}

Result<bool> LogSeen::IsAnotherHistoryThan(LogSeen& other) {
  HL_ASSIGN_OR_RETURN(const std::string lacks, Lacks(other));
  if (lacks.empty()) return false;
  HL_ASSIGN_OR_RETURN(const std::string other_lacks, other.Lacks(*this));
  return !other_lacks.empty();
}

}  // namespace hyperloop::ctl
