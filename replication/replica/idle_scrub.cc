#include "replica/idle_scrub.h"

#include "layout/record.h"

namespace hyperloop {

bool IdleScrub::Still(const RegionInfo& info) {
  const Result<Head> head = ReadHead(region_, info);
  // Damage to the head is damage: it is found by a pass, as long as it stays.
  const LogCursor now = head.ok() ? head->cursor : LogCursor{};
  const bool same = head_ == now;
  head_ = now;
  if (!same) return false;
  if (!head.ok()) return true;
  const uint64_t at = now.position % info.geometry.journal_size;
  RecordView next;
  const bool written =
      ParseRecord(region_.subspan(kJournalOffset + at, info.geometry.journal_size - at), info,
                  &next) == RecordCheck::kValid &&
      next.header.seq == now.seq + 1;
  return !written;
}

void IdleScrub::Tick() {
  const Result<RegionInfo> info = ParseSuperblock(region_, region_.size());
  if (!info.ok() || !Still(*info)) {
    scrubber_.reset();
    rest_ = 0;
    return;
  }
  if (rest_ > 0) {
    --rest_;
    return;
  }
  if (!scrubber_.has_value()) scrubber_.emplace(region_, *info);
  if (!scrubber_->Step(kBudget)) return;
  if (const std::optional<MemberCheck>& check = scrubber_->result()) {
    ++passes_;
    rest_ = kRestTicks;
    Report(*check, *info);
  }
  scrubber_.reset();
}

void IdleScrub::Report(const MemberCheck& check, const RegionInfo& info) {
  std::string text;
  for (const std::string& what : check.Damage(info)) text += (text.empty() ? "" : "; ") + what;
  if (text == said_) return;
  said_ = text;
  if (log_ == nullptr) return;
  if (text.empty()) {
    log_->Write(LogLevel::kInfo, "the region is sound again");
  } else {
    log_->Write(LogLevel::kError,
                "this replica's region is damaged: " + text +
                    "; hyperloopctl verify --repair, or the next opening of the database, takes "
                    "the bytes from a sound member");
  }
}

}  // namespace hyperloop
