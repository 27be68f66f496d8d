#include "replica/idle_scrub.h"

#include <utility>

#include "hyperloop/core/out_of_memory.h"
#include "log/log_scan.h"
#include "region/record.h"

namespace hyperloop {

bool IdleScrub::EndsAt(const LogCursor& tail, const RegionInfo& info) const {
  const uint64_t at = tail.position % info.geometry.journal_size;
  const auto rest = region_.subspan(kJournalOffset + at, info.geometry.journal_size - at);
  RecordView next;
  return ParseRecord(rest, info, &next) != RecordCheck::kValid || next.header.seq != tail.seq + 1;
}

bool IdleScrub::Still(const RegionInfo& info) {
  const Result<Head> head = ReadHead(region_, info);
  // A damaged head or log has no end. It counts as still, and a pass finds out whether it is.
  const LogCursor begin = head.ok() ? head->cursor : LogCursor{};
  if (head_ == begin && tail_.has_value() && (!readable_ || EndsAt(*tail_, info))) return true;
  if (until_next_scan_-- > 0) return false;
  until_next_scan_ = kScanTicks;
  head_ = begin;
  const Result<LogState> log = ScanLog(region_, info);
  readable_ = log.ok();
  tail_ = log.ok() ? log->tail : begin;
  return false;
}

void IdleScrub::Forget() {
  scrubber_.reset();
  tail_.reset();
  rest_ = 0;
  if (said_.empty()) return;
  said_.clear();
  LogLine(log_, LogLevel::kInfo, {"the region that was damaged has been written anew"});
}

void IdleScrub::Tick(uint64_t installed, bool filling) {
  if (std::exchange(installed_, installed) != installed || filling) Forget();
  if (filling) return;
  if (RanOutOfMemory([this] { Step(); })) scrubber_.reset();
}

void IdleScrub::Step() {
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
  if (!readable_) tail_.reset();  // it is read again soon, as it may have been mended
  scrubber_.reset();
}

void IdleScrub::Report(const MemberCheck& check, const RegionInfo& info) {
  std::string text;
  for (const std::string& what : check.Damage(info)) text += (text.empty() ? "" : "; ") + what;
  if (text == said_) return;
  if (log_ != nullptr && text.empty()) {
    log_->Write(LogLevel::kInfo, "the region is sound again");
  } else if (log_ != nullptr) {
    log_->Write(LogLevel::kError,
                "this replica's region is damaged: " + text +
                    "; hyperloopctl verify --repair, or the next opening of the database, takes "
                    "the bytes from a sound member");
  }
  said_ = std::move(text);  // what could not be said is said the next time
}

}  // namespace hyperloop
