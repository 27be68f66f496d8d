#include "files/held_files.h"

#include <algorithm>
#include <string>

#include "common/group_error.h"
#include "files/file_store.h"
#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

constexpr size_t kPiece = 256u << 10;
// A replica that gives less in a whole window (transfer_pace.h) is of no use.
constexpr uint64_t kLeastOfTurn = 32u << 10;

Status TooSlow(const WholeFile& file, uint64_t got) {
  return Unavailable(Text("\"", file.name,
                          "\" comes too slowly: each replica within reach that holds "
                          "it was asked for ",
                          TransferPace::kWindow.count(), " s, and ", got,
                          " B came from all of them; see to their disks and network"));
}

}  // namespace

HeldFiles::HeldFiles(std::vector<BulkConnect> replicas, std::chrono::nanoseconds pause, Now now)
    : pause_(pause), now_(std::move(now)) {
  for (BulkConnect& connect : replicas)
    replicas_.push_back({std::move(connect), nullptr, {}, {}, {}, {}});
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
  return FindHeld(replica.held, file);
}

void HeldFiles::Forget(Replica& replica, const WholeFile& file) {
  if (const WholeFile* const held = NameOf(replica, file); held != nullptr)
    replica.held.erase(WholeFile(*held));
}

HeldFiles::Replica* HeldFiles::HolderOf(const WholeFile& file, std::span<Replica* const> except) {
  const auto will_do = [&](Replica& replica) {
    return NameOf(replica, file) != nullptr &&
           std::find(except.begin(), except.end(), &replica) == except.end();
  };
  const auto good = std::ranges::find_if(
      replicas_, [&](Replica& each) { return will_do(each) && !each.pace.slow(); });
  if (good != replicas_.end()) return &*good;
  for (Replica& replica : replicas_) {
    if (replica.target != nullptr) continue;
    if (!replica.error.ok() && Clock::now() - replica.failed < pause_) continue;
    Ask(replica);
    if (will_do(replica)) return &replica;
  }
  const auto slow = std::ranges::find_if(replicas_, will_do);
  return slow == replicas_.end() ? nullptr : &*slow;
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

Status HeldFiles::Read(Replica& replica, Transfer* transfer) {
  const WholeFile& file = transfer->file;
  const WholeFile held = *NameOf(replica, file);
  while (transfer->at < file.size) {
    const auto piece =
        std::span(transfer->buffer).first(std::min<uint64_t>(kPiece, file.size - transfer->at));
    const Clock::time_point began = now_();
    const Result<uint64_t> got = replica.target->Get(held, transfer->at, piece);
    HL_RETURN_IF_ERROR(got.status());
    if (*got == 0) return Corruption("\"" + file.name + "\" is cut");
    const bool slow = replica.pace.Note(*got, piece.size(), now_() - began);
    transfer->givers.insert(&replica);
    const Status taken = transfer->sink(piece.first(*got));
    transfer->sink_failed = !taken.ok();
    HL_RETURN_IF_ERROR(taken);
    transfer->checksum.Add(piece.first(*got));
    transfer->at += *got;
    if (slow && (!from_one_.contains(file) || replica.pace.window_bytes() < kLeastOfTurn)) break;
  }
  return {};
}

// Whose bytes are wrong is known only if all are of one replica.
Status HeldFiles::CheckWhole(Replica& last, const Transfer& transfer) {
  const WholeFile& file = transfer.file;
  if (transfer.checksum.value() == file.checksum) return {};
  if (transfer.givers.size() > 1) {
    from_one_.insert(file);
  } else {
    Forget(last, file);
  }
  return Corruption("\"" + file.name + "\" came from a replica with bytes that fail its checksum");
}

// If a replica fails or is slow in the middle, the next one goes on where it ended.
Status HeldFiles::Fetch(const WholeFile& file, const Sink& sink) {
  Transfer transfer{file, sink, std::vector<char>(kPiece)};
  std::vector<Replica*> tried, slow;  // in this round; the slow ones are tried again in the next
  uint64_t round = 0;                 // where it began
  Status last;
  while (true) {
    Replica* const replica = HolderOf(file, tried);
    if (replica == nullptr && !slow.empty()) {
      if (transfer.at - round < kLeastOfTurn) return TooSlow(file, transfer.at - round);
      round = transfer.at;
      std::erase_if(tried, [&](Replica* each) { return std::ranges::count(slow, each) != 0; });
      slow.clear();
      continue;
    }
    if (replica == nullptr)
      return last.ok() || last.code() == Code::kNotFound ? NobodyHolds(file) : last;
    tried.push_back(replica);
    last = Read(*replica, &transfer);
    if (transfer.sink_failed) return last;
    if (last.ok() && transfer.at == file.size) return CheckWhole(*replica, transfer);
    const bool alone = from_one_.contains(file);
    if (last.ok() && !alone) {
      slow.push_back(replica);
      continue;
    }
    Forget(*replica, file);
    if (IsGroupError(last.code())) Lose(*replica, last);
    if (alone && transfer.at != 0)
      return Corruption("\"" + file.name + "\" did not come whole from one replica");
  }
}

}  // namespace hyperloop
