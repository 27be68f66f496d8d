#include "judge.h"

#include <algorithm>
#include <map>
#include <vector>

#include "hyperloop/replication/rocksdb_log.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;

ReadAt ReaderOf(const GroupFiles& group, const FileInfo& info) {
  return [&group, id = info.id](uint64_t offset, std::span<char> out) {
    return group.Read(id, offset, out);
  };
}

const FileInfo* Find(const std::vector<FileInfo>& files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const FileInfo& info) { return info.name == name; });
  return found == files.end() ? nullptr : &*found;
}

// Whether the number in the name is of the database's own, and not of a file that the program has
// put beside it.
bool IsNumberedByDatabase(std::string_view name) {
  return Classify(name) == FileClass::kLogLane || IsTableOrBlob(name) ||
         (name.starts_with("OPTIONS-") &&
          name.find_first_not_of("0123456789", 8) == std::string_view::npos);
}

// Nothing tells these two apart.
constexpr std::string_view kOrOlderPools =
    "; or the group's pools are older copies of themselves, and the directory alone has what was "
    "acknowledged since";

class Judge {
 public:
  Judge(FileSystem& fs, const std::string& directory, const GroupFiles& group)
      : fs_(fs), directory_(directory), group_(group) {
    for (FileInfo& info : group.Files()) {
      std::string name = info.name;
      files_[std::move(name)] = std::move(info);
    }
  }

  Status Decide() {
    if (files_.contains(std::string(kAdoptionMark))) return RefuseUnfinished();
    HL_ASSIGN_OR_RETURN(Current current, GroupCurrent(group_));
    manifest_ = std::move(current.manifest);
    HL_RETURN_IF_ERROR(FindMissing());
    if (current.opaque) FindScarceOfAll();
    HL_ASSIGN_OR_RETURN(const std::string history, OwnHistory());
    if (!history.empty())
      return InvalidArgument(
          WhyRefused("was changed without its group", history + std::string(kOrOlderPools)));
    HL_ASSIGN_OR_RETURN(const std::string lost, LostByGroup());
    if (!lost.empty())
      return Corruption(WhyRefused("holds what was acknowledged and its group has lost", lost));
    if (!scarce_.empty()) return RefuseRemoval();
    return missing_.empty() ? Status::Ok() : RefuseMissing();
  }

 private:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  Status FindMissing() {
    HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> needed, NeededFiles(group_));
    for (const FileInfo& info : needed) {
      if (group_.Scarce({info.name, info.size, info.checksum})) scarce_.push_back(info.name);
      const Result<uint64_t> size = SizeOf(fs_, Path(info.name));
      bool as_listed = size.ok() && *size == info.size;
      std::string other = "with other bytes";
      if (as_listed && IsLiveLog(info.name)) {
        const Result<WholeFile> here = Describe(fs_, Path(info.name), info.name);
        as_listed = here.ok() && here->checksum == info.checksum;
        if (!here.ok()) other = "unreadable (" + here.status().message() + ")";
      }
      if (!as_listed && group_.Held({info.name, info.size, info.checksum})) continue;
      if (size.status().code() == Code::kNotFound) {
        missing_.push_back(info.name);
      } else if (!size.ok()) {
        return size.status();
      } else if (!as_listed) {
        const bool other_bytes = *size == info.size;
        missing_.push_back(info.name + " of " + std::to_string(info.size) + " B, here " +
                           (other_bytes ? other : std::to_string(*size) + " B"));
      }
    }
    return Status::Ok();
  }

  // Behind an opaque CURRENT each table or blob file may be needed. One that nobody has any more
  // counts as well: the replica that is to leave may be the only one that has it, and is not asked.
  // An opening without its removal asks it, and has the group forget what it lacks, too.
  void FindScarceOfAll() {
    for (const auto& [name, info] : files_) {
      if (info.lane != Lane::kBulk || !IsTableOrBlob(name)) continue;
      if (group_.Scarce({info.name, info.size, info.checksum})) scarce_.push_back(name);
    }
  }

  // Returns why neither the group nor a crash can explain the directory's logs; empty if one of
  // them can. An open without the group makes a MANIFEST of a greater number and has CURRENT name
  // it. A MANIFEST of the group's history is always in the group before it is in the directory.
  Result<std::string> OwnHistory() {
    HL_ASSIGN_OR_RETURN(const Current local, LocalCurrent(fs_, directory_));
    if (!local.manifest.empty() && files_.count(local.manifest) == 0 &&
        (manifest_.empty() || NumberOf(local.manifest) > NumberOf(manifest_))) {
      HL_ASSIGN_OR_RETURN(const bool written, IsWritten(local.manifest));
      if (written) {
        to_move_ = "CURRENT";
        return "its CURRENT names " + local.manifest + ", which the group never had" +
               (manifest_.empty() ? "" : " (the group's names " + manifest_ + ")");
      }
    }
    if (local.opaque) {
      HL_ASSIGN_OR_RETURN(std::string history, OwnOpaqueHistory());
      if (!history.empty()) return history;
    }
    for (const auto& [name, info] : files_) {
      if (info.lane != Lane::kLog || name == "CURRENT" || name.ends_with(".dbtmp")) continue;
      HL_ASSIGN_OR_RETURN(const Comparison found, Compare(fs_, Path(name), group_, info));
      if (!found.exists || found.equal == std::min(found.local_size, info.size)) continue;
      HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs_, Path(name)));
      HL_ASSIGN_OR_RETURN(const bool sound, IsSoundRecord(read, found.equal));
      if (!sound) continue;  // zeros or damage: the group's bytes replace them
      to_move_ = name;
      return "its " + name + " has another record than the group's at offset " +
             std::to_string(found.equal);
    }
    return std::string();
  }

  // The same where CURRENT does not tell what it names: it is not the group's, and there is a
  // MANIFEST that is newer than each of the group's. Where the group's CURRENT can be read, a local
  // one that cannot be is damage.
  Result<std::string> OwnOpaqueHistory() {
    HL_ASSIGN_OR_RETURN(const Current in_group, GroupCurrent(group_));
    if (!in_group.manifest.empty()) return std::string();
    const auto current = files_.find("CURRENT");
    if (current != files_.end()) {
      HL_ASSIGN_OR_RETURN(const bool same, IsSame(fs_, directory_, group_, current->second));
      if (same) return std::string();
    }
    const std::string newest = NewestManifest(group_);
    std::vector<std::string> names;
    HL_RETURN_IF_ERROR(LocalLogFiles(fs_, directory_, &names));
    for (const std::string& name : names) {
      if (!IsManifest(name) || files_.contains(name)) continue;
      if (!newest.empty() && NumberOf(name) <= NumberOf(newest)) continue;
      HL_ASSIGN_OR_RETURN(const bool written, IsWritten(name));
      if (!written) continue;
      to_move_ = "CURRENT";
      return "its CURRENT, which is encrypted or changed by another layer, is not the group's, and "
             "the group never had its " +
             name + (newest.empty() ? "" : " (the group's newest is " + newest + ")");
    }
    return std::string();
  }
  Result<bool> IsWritten(const std::string& name) const {
    const Result<uint64_t> size = SizeOf(fs_, Path(name));
    if (size.status().code() == Code::kNotFound) return false;
    HL_RETURN_IF_ERROR(size.status());
    return *size != 0;
  }

  // Returns how the directory proves that the group went back to an older state; empty if it does
  // not. A log is made in the group before it is made here, and its first bytes are written here
  // only then. So a log that begins with a record, and is newer than all that the group ever had,
  // was there; whoever deleted it knew a newer one. Only a DestroyDB that was cut short, of a
  // database that was closed in the middle of a flush, looks the same. Without its own CURRENT and
  // MANIFEST the directory proves nothing: then somebody chose the group's content.
  Result<std::string> LostByGroup() {
    HL_ASSIGN_OR_RETURN(const Current local, LocalCurrent(fs_, directory_));
    if (!files_.contains(local.manifest)) return std::string();
    const Status manifest = SizeOf(fs_, Path(local.manifest)).status();
    if (manifest.code() == Code::kNotFound) return std::string();
    HL_RETURN_IF_ERROR(manifest);
    HL_ASSIGN_OR_RETURN(const uint64_t next, NextFileOfGroup());
    if (next == 0) return std::string();
    std::vector<std::string> names;
    HL_RETURN_IF_ERROR(LocalLogFiles(fs_, directory_, &names));
    for (const std::string& name : names) {
      if (!name.ends_with(".log") || NumberOf(name) < next) continue;
      HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs_, Path(name)));
      HL_ASSIGN_OR_RETURN(const bool sound, IsSoundRecord(read, 0));
      if (!sound) continue;
      to_move_ = "CURRENT";
      return "its " + name + " is newer than every file that the group knows of";
    }
    if (local.manifest != manifest_) return std::string();
    HL_ASSIGN_OR_RETURN(const std::string table, TableLostByGroup());
    if (table.empty()) return table;
    to_move_ = "CURRENT";
    return "its " + manifest_ + " goes on where the group's ends, and names " + table +
           ", of which the group knows nothing";
  }

  // Returns a table or blob file that only the end of the directory's MANIFEST names, which goes on
  // where the group's ends, and that the group does not list; empty if there is none. Each file is
  // listed before a record of the MANIFEST names it, and until another one does not any more.
  Result<std::string> TableLostByGroup() const {
    const FileInfo& info = files_.at(manifest_);
    HL_ASSIGN_OR_RETURN(const Comparison found, Compare(fs_, Path(manifest_), group_, info));
    if (found.equal != info.size || found.local_size == info.size) return std::string();
    HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs_, Path(manifest_)));
    const Result<ManifestContent> here = ParseManifest(read);
    const Result<ManifestContent> there = ParseManifest(ReaderOf(group_, info));
    for (const Status& parsed : {here.status(), there.status()}) {
      if (parsed.code() == Code::kNotSupported) return std::string();
      HL_RETURN_IF_ERROR(parsed);
    }
    std::vector<std::string> names;
    HL_RETURN_IF_ERROR(
        FromIOStatus(fs_.GetChildren(directory_, rocksdb::IOOptions(), &names, nullptr),
                     "cannot list " + directory_));
    for (const std::string& name : names) {
      if (IsTableOrBlob(name) && NamesOrNeeds(*here, name) && !NamesOrNeeds(*there, name) &&
          !files_.contains(name))
        return name;
    }
    return std::string();
  }

  // All numbers from this one on are of files that the group does not know. 0: it cannot be told.
  Result<uint64_t> NextFileOfGroup() const {
    const auto manifest = files_.find(manifest_);
    if (manifest == files_.end()) return uint64_t{0};
    const Result<ManifestContent> content = ParseManifest(ReaderOf(group_, manifest->second));
    if (content.status().code() == Code::kNotSupported) return uint64_t{0};
    HL_RETURN_IF_ERROR(content.status());
    uint64_t next = content->next_file;
    for (const auto& [name, info] : files_)
      if (IsNumberedByDatabase(name)) next = std::max(next, NumberOf(name) + 1);
    return next;
  }

  std::string KeepDirectory() const {
    return "to keep what the directory holds: move " + Path(std::string(kPairingFileName)) +
           " out of it, and open it without the plugin, or take it into the emptied group "
           "(hyperloopctl reset, then adopt)";
  }

  std::string WhyRefused(const std::string& what, const std::string& history) const {
    if (!files_.contains("CURRENT")) {
      return directory_ +
             " holds a database, and its group none. Three ways out: to take the database into the "
             "group: hyperloopctl adopt, or adopt=true; to do without it: empty the directory; " +
             KeepDirectory() + ". Nothing was changed: " + history;
    }
    const std::string first = missing_.empty() ? "move " : "put back the files named below, move ";
    return directory_ + " " + what + ". Two ways out: to keep what the group holds: " + first +
           Path(to_move_) + " out of the directory, and open it again; " + KeepDirectory() +
           ". Nothing was changed: " + history +
           (missing_.empty()
                ? ". What else the group does not have is set aside in " +
                      Path(std::string(kSetAsideName)) + " when it is opened"
                : ". The group needs, and no replica within reach has, " + Enumerate(missing_));
  }

  Status RefuseRemoval() const {
    return InvalidArgument(
        "no replica is removed now: open without remove_replica, the replica listed and running "
        "(or lost, with on_replica_failure=continue), until the log says that another one holds "
        "all files; then remove it. Fewer than half of those that would stay hold " +
        Enumerate(scarce_));
  }

  Status RefuseUnfinished() const {
    return InvalidArgument(
        "taking a database into this group was cut short. Two ways out: hyperloopctl adopt, or "
        "adopt=true, goes on from the directory that holds the database; or move " +
        std::string(kPairingFileName) +
        " out of it, a plain directory then, and empty the group (hyperloopctl reset). "
        "Nothing was changed");
  }

  Status RefuseMissing() const {
    return InvalidArgument(
        directory_ + " lacks files that " +
        (manifest_.empty() ? "the group's database may need" : manifest_ + " of the group needs") +
        ". Two ways out: to keep what the group holds: put them into the directory, from a backup "
        "perhaps, and open it again; " +
        KeepDirectory() + " (ldb repair opens what is left). No replica within reach holds " +
        Enumerate(missing_));
  }

  FileSystem& fs_;
  const std::string directory_;
  const GroupFiles& group_;
  std::map<std::string, FileInfo> files_;
  std::string manifest_;              // the one that the group's CURRENT names
  std::vector<std::string> missing_;  // for the message
  std::vector<std::string> scarce_;   // as GroupFiles::Scarce
  std::string to_move_;  // the file that the user may move away to keep what the group holds
};

// The files that the directory lacks are written only after the group was taken. So a disk without
// room for them is refused here, while the former primary can still go on.
Status CheckRoom(FileSystem& fs, const std::string& directory, const GroupFiles& group,
                 const std::function<bool(const FileInfo&)>& links) {
  uint64_t lacking = 0;
  for (const FileInfo& info : group.Files()) {
    if (SizeOf(fs, directory + "/" + info.name).status().code() != Code::kNotFound) continue;
    if (links && links(info)) continue;
    // The replicas are asked last, because that takes time.
    if (info.lane == Lane::kLog || group.Held({info.name, info.size, info.checksum}))
      lacking += info.size;
  }
  uint64_t room = 0;
  const bool known = fs.GetFreeSpace(directory, rocksdb::IOOptions(), &room, nullptr).ok();
  if (lacking == 0 || !known || lacking <= room) return {};
  return NoSpace(directory + " lacks " + std::to_string(lacking) +
                 " B of the group's files, and its file system has " + std::to_string(room) +
                 " B free; make room, or name a directory elsewhere");
}

// What the MANIFEST of the group's CURRENT says. kNotFound: there is none. kNotSupported: it holds
// what this release does not understand.
Result<ManifestContent> ContentOfGroup(const GroupFiles& group) {
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(group));
  if (current.opaque) return NotSupported("the group's CURRENT is opaque");
  const std::vector<FileInfo> files = group.Files();
  const FileInfo* const manifest = Find(files, current.manifest);
  if (manifest == nullptr) return NotFound("the group has no MANIFEST");
  return ParseManifest(ReaderOf(group, *manifest));
}

}  // namespace

Result<Current> GroupCurrent(const GroupFiles& group) {
  const std::vector<FileInfo> files = group.Files();
  const FileInfo* const current = Find(files, "CURRENT");
  if (current == nullptr) return Current();
  char bytes[kCurrentBytes];
  HL_ASSIGN_OR_RETURN(const uint64_t length, ReaderOf(group, *current)(0, bytes));
  return ReadCurrent({bytes, static_cast<size_t>(length)});
}

// A file is needed only if the group lists it: after a DestroyDB that was cut short, MANIFEST still
// names files that neither the group nor the directory has. Behind an opaque CURRENT no table is
// known to be needed. If each were taken to be, one that was being shipped when the primary's
// machine was lost, which nobody has and no MANIFEST names, would keep every other one from
// opening the database. A log is listed only once the replicas hold it, and RocksDB would go on
// without it.
Result<std::vector<FileInfo>> NeededFiles(const GroupFiles& group) {
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(group));
  const Result<ManifestContent> content = ContentOfGroup(group);
  const bool parsed = content.status().code() != Code::kNotSupported;
  std::vector<FileInfo> needed;
  if (content.status().code() == Code::kNotFound) return needed;
  if (parsed) HL_RETURN_IF_ERROR(content.status());
  for (const FileInfo& info : group.Files()) {
    const bool log = IsLiveLog(info.name);
    if (info.lane != Lane::kBulk || !(log || IsTableOrBlob(info.name))) continue;
    const bool may_need = current.opaque ? log : !parsed || NamesOrNeeds(*content, info.name);
    if (may_need) needed.push_back(info);
  }
  return needed;
}

Result<std::vector<std::string>> UnlistedFiles(FileSystem& fs, const std::string& directory,
                                               const GroupFiles& group) {
  const Result<ManifestContent> content = ContentOfGroup(group);
  const bool parsed = content.status().code() != Code::kNotSupported;
  std::vector<std::string> unlisted;
  if (content.status().code() == Code::kNotFound) return unlisted;
  if (parsed) HL_RETURN_IF_ERROR(content.status());
  HL_RETURN_IF_ERROR(
      FromIOStatus(fs.GetChildren(directory, rocksdb::IOOptions(), &unlisted, nullptr),
                   "cannot list " + directory));
  const std::vector<FileInfo> files = group.Files();
  std::erase_if(unlisted, [&](const std::string& name) {
    const bool wanted = IsTableOrBlob(name) && (!parsed || NamesOrNeeds(*content, name));
    return !wanted || Find(files, name) != nullptr;
  });
  return unlisted;
}

Status JudgeDirectory(FileSystem& fs, const std::string& directory, const GroupFiles& group,
                      const std::function<bool(const FileInfo&)>& links) {
  HL_RETURN_IF_ERROR(Judge(fs, directory, group).Decide());
  return CheckRoom(fs, directory, group, links);
}

}  // namespace hyperloop::plugin
