#include "files/local_mender.h"

#include <utility>

#include "common/background_thread.h"
#include "files/file_store.h"
#include "files/held_files.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

LocalMender::LocalMender(Uses uses, ReadLocal read_local, Options options, std::shared_ptr<Log> log)
    : uses_(std::move(uses)),
      read_local_(std::move(read_local)),
      options_(std::move(options)),
      log_(std::move(log)),
      scrub_({uses_.listed, read_local_, [this](const WholeFile& file) {
                const MutexLock one(mend_mutex_);
                Mend(file).IgnoreError();
              }}) {
  scrubber_ = std::make_unique<PeriodicThread>(
      "hl-scrub",
      [this, yields = false]() mutable {
        if (!std::exchange(yields, true)) YieldToOtherThreads();
        scrub_.Tick();
        return options_.scrub_tick;
      },
      options_.avoid_cpu);
}

LocalMender::~LocalMender() {
  RequestStop();
  scrubber_.reset();
}

void LocalMender::RequestStop() {
  ends_ = true;
  scrubber_->RequestStop();
}

std::optional<Status> LocalMender::TryMend(const WholeFile& file) {
  if (!mend_mutex_.try_lock()) return std::nullopt;
  const MutexLock one(mend_mutex_, std::adopt_lock);
  return Mend(file);
}

Result<bool> LocalMender::IsSound(const WholeFile& file) const {
  std::vector<char> buffer(options_.piece);
  FileChecksum checksum;
  uint64_t at = 0;
  while (true) {
    const Result<uint64_t> got = read_local_(file.name, at, buffer);
    if (ends_) return Aborted("the lane ends");
    if (!got.ok())
      return got.status().code() == Code::kCorruption ? false : Result<bool>(got.status());
    if (*got == 0) return at == file.size && checksum.value() == file.checksum;
    checksum.Add(std::span(buffer).first(*got));
    at += *got;
  }
}

// A file that is gone is not mended, because RocksDB may have deleted it, and the list not changed
// yet. But an opening goes on without an archived log that cannot be had then.
Status LocalMender::Mend(const WholeFile& file) {
  const Result<bool> sound = IsSound(file);
  const bool missing = sound.status().code() == Code::kNotFound &&
                       BeforeArchived(file).has_value() && uses_.wanted(file);
  if (!sound.ok() && !missing) return sound.status();
  if (sound.ok() && *sound) {
    NoteDamage(file, {});
    return {};
  }
  const Status mended = Bring(file);
  if (!mended.ok() && ends_) return mended;
  const std::string text = Text("the primary's own file ", file.name, " (", file.size, " B) is ",
                                missing ? "missing" : "damaged");
  const bool is_new = NoteDamage(file, mended);
  if (log_ != nullptr && (mended.ok() || is_new)) {
    const char* const how =
        missing ? "; it was brought from a replica"
                : "; it was set aside, and a replica's sound bytes took its place; whoever has it "
                  "open reads the damaged one until the database is opened again";
    log_->Write(LogLevel::kError, mended.ok()
                                      ? Text(text, how)
                                      : Text(text, ", and cannot be mended: ", mended.message()));
  }
  return mended.ok() ? Status() : Corruption(Text(text, "; ", mended.message()));
}

Status LocalMender::Bring(const WholeFile& file) {
  std::vector<BulkConnect> holders = uses_.holders(file);
  // One time more, because several may give parts of wrong bytes together (HeldFiles::Fetch).
  size_t tries = holders.size() + 1;
  if (holders.empty()) return NotFound("no replica within reach holds it");
  HeldFiles held(std::move(holders), std::chrono::nanoseconds::max(), options_.now);
  Status wrong;
  for (; tries > 0; --tries) {
    const Status brought = options_.mend_local(
        file,
        [&](const HeldFiles::Sink& sink) {
          return held.Fetch(file, [&](std::span<const char> bytes) {
            return ends_ ? Aborted("the lane ends") : sink(bytes);
          });
        },
        [&] { return uses_.wanted(file); });
    if (brought.code() == Code::kNotFound && !wrong.ok()) return wrong;  // of all holders
    if (brought.code() != Code::kCorruption) return brought;
    wrong = brought;
  }
  return wrong;
}

bool LocalMender::NoteDamage(const WholeFile& file, const Status& why) {
  const MutexLock lock(damage_mutex_);
  const bool waits = !why.ok() && uses_.wanted(file);
  const bool is_new =
      waits ? damaged_.insert_or_assign(file, why.message()).second : damaged_.erase(file) != 0;
  if (waits || is_new) TellDamageLocked();
  return is_new;
}

void LocalMender::ForgetUnwanted() {
  const MutexLock lock(damage_mutex_);
  if (std::erase_if(damaged_, [&](const auto& each) { return !uses_.wanted(each.first); }) != 0)
    TellDamageLocked();
}

void LocalMender::TellDamageLocked() const {
  if (options_.tell_damage == nullptr) return;
  if (damaged_.empty()) return options_.tell_damage("");
  const auto& [file, why] = *damaged_.begin();
  options_.tell_damage(
      Text("files of the primary that are damaged and wait to be mended: ", damaged_.size(),
           "; the first is ", file.name, " (", file.size, " B): ", why));
}

size_t LocalMender::damaged() const {
  const MutexLock lock(damage_mutex_);
  return damaged_.size();
}

}  // namespace hyperloop
