#include "primary/held_files.h"

#include <algorithm>
#include <string>

#include "common/group_error.h"
#include "pool/file_store.h"

namespace hyperloop {
namespace {

constexpr size_t kPiece = 256u << 10;

}  // namespace

HeldFiles::HeldFiles(std::vector<BulkConnect> replicas, std::chrono::nanoseconds pause)
    : pause_(pause) {
  for (BulkConnect& connect : replicas)
    replicas_.push_back({std::move(connect), nullptr, {}, {}, {}});
}

void HeldFiles::Lose(Replica& replica, const Status& error) {
  replica.target.reset();
  replica.held.clear();
  replica.error = error;
  replica.failed = Clock::now();
}

void HeldFiles::Ask(Replica& replica) {
  Result<std::unique_ptr<BulkTarget>> target = replica.connect();
  const Result<std::vector<StoredFile>> files =
      target.ok() ? (*target)->List() : Result<std::vector<StoredFile>>(target.status());
  if (!files.ok()) return Lose(replica, files.status());
  replica.target = std::move(*target);
  for (const StoredFile& each : *files)
    if (each.finished) replica.held.insert(each.file);
}

// A log that was archived a moment ago may still have its former name at a replica.
const WholeFile* HeldFiles::NameOf(const Replica& replica, const WholeFile& file) {
  if (const auto same = replica.held.find(file); same != replica.held.end()) return &*same;
  const std::optional<WholeFile> former = BeforeArchived(file);
  if (!former.has_value()) return nullptr;
  const auto held = replica.held.find(*former);
  return held == replica.held.end() ? nullptr : &*held;
}

HeldFiles::Replica* HeldFiles::HolderOf(const WholeFile& file, std::span<Replica* const> except) {
  const auto will_do = [&](Replica& replica) {
    return NameOf(replica, file) != nullptr &&
           std::find(except.begin(), except.end(), &replica) == except.end();
  };
  const auto known = std::find_if(replicas_.begin(), replicas_.end(), will_do);
  if (known != replicas_.end()) return &*known;
  for (Replica& replica : replicas_) {
    if (replica.target != nullptr) continue;
    if (!replica.error.ok() && Clock::now() - replica.failed < pause_) continue;
    Ask(replica);
    if (will_do(replica)) return &replica;
  }
  return nullptr;
}

bool HeldFiles::Holds(const WholeFile& file) { return HolderOf(file, {}) != nullptr; }

bool HeldFiles::FewHold(const WholeFile& file) {
  size_t holders = 0;
  for (Replica& replica : replicas_) {
    const bool asked = !replica.error.ok() && Clock::now() - replica.failed < pause_;
    if (replica.target == nullptr && !asked) Ask(replica);
    holders += NameOf(replica, file) != nullptr ? 1 : 0;
  }
  return 2 * holders < replicas_.size();
}

std::string HeldFiles::Unanswered() const {
  std::string why;
  for (const Replica& each : replicas_)
    if (!each.error.ok()) why += (why.empty() ? "" : ", ") + each.error.message();
  return why;
}

Status HeldFiles::NobodyHolds(const WholeFile& file) const {
  const std::string nobody = "no replica within reach holds \"" + file.name + "\"";
  for (const Replica& each : replicas_)
    if (each.target == nullptr) return Unavailable(nobody + "; " + each.error.message());
  return NotFound(nobody);
}

// If a replica fails in the middle, the next one goes on where it ended. Of several who gave parts
// of bytes that are wrong together, the first is not asked again: the others may be sound.
Status HeldFiles::Fetch(const WholeFile& file, const Sink& sink) {
  std::vector<char> buffer(kPiece);
  std::vector<Replica*> tried;
  Replica* began = nullptr;
  FileChecksum checksum;
  uint64_t at = 0;
  Status last;
  do {
    Replica* const replica = HolderOf(file, tried);
    if (replica == nullptr)
      return last.ok() || last.code() == Code::kNotFound ? NobodyHolds(file) : last;
    tried.push_back(replica);
    if (at == 0) began = replica;
    last = {};
    const WholeFile held = *NameOf(*replica, file);
    while (at < file.size && last.ok()) {
      const auto piece = std::span(buffer).first(std::min<uint64_t>(kPiece, file.size - at));
      const Result<uint64_t> got = replica->target->Get(held, at, piece);
      last = got.ok() && *got == 0 ? Corruption("\"" + file.name + "\" is cut") : got.status();
      if (!last.ok()) break;
      HL_RETURN_IF_ERROR(sink(piece.first(*got)));
      checksum.Add(piece.first(*got));
      at += *got;
    }
    if (!last.ok()) replica->held.erase(held);
    if (IsGroupError(last.code())) Lose(*replica, last);
  } while (at < file.size);
  if (checksum.value() == file.checksum) return {};
  if (const WholeFile* const held = NameOf(*began, file); held != nullptr)
    began->held.erase(WholeFile(*held));
  return Corruption("\"" + file.name + "\" came from a replica with bytes that fail its checksum");
}

}  // namespace hyperloop
