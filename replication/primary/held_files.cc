#include "primary/held_files.h"

#include <algorithm>
#include <string>

namespace hyperloop {
namespace {

constexpr size_t kPiece = 256u << 10;

}  // namespace

void HeldFiles::AskAll() {
  if (std::exchange(asked_, true)) return;
  for (const BulkConnect& connect : connect_) {
    Result<std::unique_ptr<BulkTarget>> target = connect();
    if (!target.ok()) continue;
    const Result<std::vector<StoredFile>> files = (*target)->List();
    if (!files.ok()) continue;
    Replica& replica = replicas_.emplace_back();
    replica.target = std::move(*target);
    for (const StoredFile& each : *files)
      if (each.finished) replica.held.insert(each.file);
  }
}

bool HeldFiles::Holds(const WholeFile& file) {
  AskAll();
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const Replica& each) { return each.held.contains(file); });
}

// Once bytes went to the sink, another replica goes on where the one before ended.
Status HeldFiles::Fetch(const WholeFile& file, const Sink& sink) {
  AskAll();
  std::vector<char> buffer(kPiece);
  std::vector<Replica*> gave;
  FileChecksum checksum;
  uint64_t at = 0;
  Status last = NotFound("no replica within reach holds \"" + file.name + "\"");
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
