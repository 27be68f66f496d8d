#include "primary/held_files.h"

#include <algorithm>
#include <string>

namespace hyperloop {
namespace {

constexpr size_t kPiece = 256u << 10;

}  // namespace

HeldFiles::HeldFiles(std::vector<BulkConnect> replicas) {
  for (BulkConnect& connect : replicas) replicas_.push_back({std::move(connect), nullptr, {}});
}

Status HeldFiles::AskAll() {
  Status last;
  for (Replica& replica : replicas_) {
    if (replica.target != nullptr) continue;
    Result<std::unique_ptr<BulkTarget>> target = replica.connect();
    const Result<std::vector<StoredFile>> files =
        target.ok() ? (*target)->List() : Result<std::vector<StoredFile>>(target.status());
    if (!files.ok()) {
      last = files.status();
      continue;
    }
    replica.target = std::move(*target);
    for (const StoredFile& each : *files)
      if (each.finished) replica.held.insert(each.file);
  }
  return last;
}

bool HeldFiles::Holds(const WholeFile& file) {
  AskAll().IgnoreError();
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const Replica& each) { return each.held.contains(file); });
}

// If a replica fails in the middle, the next one goes on where it ended.
Status HeldFiles::Fetch(const WholeFile& file, const Sink& sink) {
  const Status asked = AskAll();
  std::vector<char> buffer(kPiece);
  std::vector<Replica*> gave;
  FileChecksum checksum;
  uint64_t at = 0;
  const std::string nobody = "no replica within reach holds \"" + file.name + "\"";
  Status last = asked.ok() ? NotFound(nobody) : Unavailable(nobody + "; " + asked.message());
  for (Replica& replica : replicas_) {
    if (!replica.held.contains(file)) continue;
    gave.push_back(&replica);
    last = {};
    while (at < file.size && last.ok()) {
      const auto piece = std::span(buffer).first(std::min<uint64_t>(kPiece, file.size - at));
      const Result<uint64_t> got = replica.target->Get(file, at, piece);
      last = got.ok() && *got == 0 ? Unavailable("\"" + file.name + "\" is cut") : got.status();
      if (!last.ok()) break;
      HL_RETURN_IF_ERROR(sink(piece.first(*got)));
      checksum.Add(piece.first(*got));
      at += *got;
    }
    if (at == file.size) break;
  }
  HL_RETURN_IF_ERROR(last);
  if (checksum.value() == file.checksum) return {};
  for (Replica* each : gave) each->held.erase(file);
  return Corruption("\"" + file.name + "\" came from a replica with bytes that fail its checksum");
}

}  // namespace hyperloop
