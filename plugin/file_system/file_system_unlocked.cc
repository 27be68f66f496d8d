// What is read of a replicated directory without locking it, as DB::ListColumnFamilies reads
// CURRENT and MANIFEST, and DB::OpenForReadOnly the logs as well. After a kill or a power failure
// they may lack what the group holds. An opening that follows would find another MANIFEST than the
// one whose families it was given, and a reader would find older values than the group's.
#include <algorithm>
#include <cstring>

#include "file_system.h"
#include "local/local_files.h"
#include "local/status.h"
#include "opening/judge.h"
#include "opening/lock_holder.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// For how long readers of an unclean directory get what the group gave, or why it gave nothing,
// before it is asked again.
constexpr std::chrono::seconds kKept{5};

// A file whose bytes are in memory.
class BytesFile final : public rocksdb::FSSequentialFile {
 public:
  explicit BytesFile(std::shared_ptr<const std::string> bytes)
      : held_(std::move(bytes)), bytes_(*held_) {}
  IOStatus Read(size_t n, const IOOptions&, rocksdb::Slice* result, char* scratch,
                IODebugContext*) override {
    n = std::min(n, bytes_.size() - at_);
    std::memcpy(scratch, bytes_.data() + at_, n);
    *result = rocksdb::Slice(scratch, n);
    at_ += n;
    return IOStatus::OK();
  }
  IOStatus Skip(uint64_t n) override {
    at_ += static_cast<size_t>(std::min<uint64_t>(n, bytes_.size() - at_));
    return IOStatus::OK();
  }

 private:
  const std::shared_ptr<const std::string> held_;
  const std::string& bytes_;
  size_t at_ = 0;
};

// Whether CURRENT names a MANIFEST that has bytes. What an opaque one names cannot be told here,
// and the layer above finds it out.
bool NamesAreThere(rocksdb::FileSystem& fs, const std::string& directory) {
  const Result<Current> current = LocalCurrent(fs, directory);
  if (!current.ok()) return false;
  if (current->opaque) return true;
  if (current->manifest.empty()) return false;
  const Result<uint64_t> size = SizeOf(fs, directory + "/" + current->manifest);
  return size.ok() && *size != 0;
}

Result<std::string> ReadWhole(const GroupFiles& group, const FileInfo& info) {
  std::string bytes(info.size, '\0');
  for (uint64_t at = 0; at < info.size;) {
    HL_ASSIGN_OR_RETURN(const uint64_t got, group.Read(info.id, at, std::span(bytes).subspan(at)));
    if (got == 0) return Corruption("the group lists more of " + info.name + " than it holds");
    at += got;
  }
  return bytes;
}

}  // namespace

bool HyperloopFileSystem::IsUnclean(const std::string& directory) const {
  const auto exists = [&](std::string_view name) {
    return target()->FileExists(directory + "/" + std::string(name), IOOptions(), nullptr).ok();
  };
  return exists(kPairingFileName) && exists(kOpenMarkName) &&
         LockHolder(directory + "/" + std::string(kLockFileName)) == 0;
}

// The judgement ends the taking before anything changes, as in Examine.
Status HyperloopFileSystem::LookAtGroup(
    const std::string& directory, const std::function<Status(const GroupFiles&)>& look) const {
  TakeRequest request;
  PairingFile file;
  HL_RETURN_IF_ERROR(MakeRequest(directory, &request, &file));
  bool looked = false;
  request.judge = [&](const GroupFiles& group) -> Status {
    HL_RETURN_IF_ERROR(look(group));
    looked = true;
    return Aborted("the group was only looked at");
  };
  StoreOptions options = options_;
  options.takeover = false;
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, open_store_(options, nullptr));
  TakeResult taken;
  const Status refused = store->Take(request, &taken);
  store->Close().IgnoreError();
  if (looked) return Status::Ok();
  return refused.ok() ? Internal("the group was not looked at") : refused;
}

Result<HyperloopFileSystem::Names> HyperloopFileSystem::NamesOfGroup(
    const std::string& directory) const {
  Names read;
  HL_RETURN_IF_ERROR(LookAtGroup(directory, [&](const GroupFiles& group) -> Status {
    for (const FileInfo& info : group.Files()) {
      if (info.lane != Lane::kLog) continue;  // CURRENT names none that has left
      if (info.name == "CURRENT" || IsManifest(info.name)) {
        HL_ASSIGN_OR_RETURN(read.bytes[info.name], ReadWhole(group, info));
      } else if (IsLiveLog(info.name)) {
        // What cannot be read here is not what the group has.
        const Result<bool> same = IsSame(*target(), directory, group, info);
        read.logs[info.name] = same.ok() && *same;
      }
    }
    return CompareLogsThatLeft(directory, group, &read);
  }));
  const Current current = ReadCurrent(read.bytes["CURRENT"]);
  if (!current.opaque && !read.bytes.contains(current.manifest)) return Names();
  return read;
}

// They are in the directory like tables, which are not compared here either.
Status HyperloopFileSystem::CompareLogsThatLeft(const std::string& directory,
                                                const GroupFiles& group, Names* read) const {
  const Result<std::vector<FileInfo>> needed = NeededFiles(group);
  if (!needed.ok()) return Status::Ok();  // of a MANIFEST that only RocksDB can read
  for (const FileInfo& info : *needed) {
    if (!IsLiveLog(info.name)) continue;
    const Result<uint64_t> size = SizeOf(*target(), directory + "/" + info.name);
    if (size.ok() && *size == info.size) {
      read->logs[info.name] = true;
    } else {
      read->lost_log = info.name;
    }
  }
  return Status::Ok();
}

std::shared_ptr<const Result<HyperloopFileSystem::Names>> HyperloopFileSystem::NamesFor(
    const std::string& directory, const std::string& name) {
  using Clock = std::chrono::steady_clock;
  {
    MutexLock lock(mutex_);
    const auto kept = names_of_group_.find(directory);
    if (kept != names_of_group_.end()) {
      const Result<Names>& names = *kept->second.names;
      // CURRENT was read before, and the MANIFEST that it names is of the same moment, as are logs.
      const bool named = name != "CURRENT" && names.ok() &&
                         (names->bytes.contains(name) || names->logs.contains(name));
      if (named || Clock::now() < kept->second.until) return kept->second.names;
    }
  }
  auto asked = std::make_shared<const Result<Names>>(NamesOfGroup(directory));
  MutexLock lock(mutex_);
  names_of_group_[directory] = {asked, Clock::now() + kKept};
  return asked;
}

void HyperloopFileSystem::WarnOfOldNames(const std::string& directory, const std::string& name,
                                         const Status& why) {
  {
    MutexLock lock(mutex_);
    if (!warned_unclean_.insert(directory).second) return;
  }
  log_->Write(LogLevel::kWarn, "the database in " + directory + " was not closed, and " + name +
                                   " does not come from its group, so what is read of it may be "
                                   "older than what the group holds: " +
                                   why.ToString());
}

IOStatus HyperloopFileSystem::OpenUnlocked(const std::string& path, const FileOptions& options,
                                           std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                           IODebugContext* dbg) {
  const std::string directory = ParentOf(path), name = BaseOf(path);
  if (!IsUnclean(directory)) return target()->NewSequentialFile(path, options, file, dbg);
  const std::shared_ptr<const Result<Names>> names = NamesFor(directory, name);
  Status why = names->status();
  if (why.ok()) {
    const auto found = (*names)->bytes.find(name);
    if (found != (*names)->bytes.end()) {
      if (name == "CURRENT" && !(*names)->lost_log.empty()) {
        WarnOfOldNames(directory, (*names)->lost_log,
                       NotFound("only its replicas hold it; opening the database brings it back"));
      }
      file->reset(new BytesFile({names, &found->second}));
      return IOStatus::OK();
    }
    const auto log = (*names)->logs.find(name);
    if (log != (*names)->logs.end() && log->second)
      return target()->NewSequentialFile(path, options, file, dbg);
    if (log != (*names)->logs.end()) {
      Result<std::string> bytes = LogOfGroup(directory, name);
      if (bytes.ok()) {
        file->reset(new BytesFile(std::make_shared<const std::string>(std::move(*bytes))));
        return IOStatus::OK();
      }
      why = bytes.status();
    } else {
      why = NotFound((*names)->bytes.empty() ? "the group holds no database"
                                             : "the group does not hold this file");
    }
  } else if (!NamesAreThere(*target(), directory)) {
    return ToIOStatus(why, "hyperloop: the database in " + directory +
                               " was not closed, and its CURRENT or MANIFEST is cut, as after a "
                               "power failure. The group has them, but cannot be asked now");
  }
  IOStatus opened = target()->NewSequentialFile(path, options, file, dbg);
  if (opened.ok()) WarnOfOldNames(directory, name, why);
  return opened;
}

Result<std::string> HyperloopFileSystem::LogOfGroup(const std::string& directory,
                                                    const std::string& name) const {
  Result<std::string> bytes = NotFound("the group does not hold this file any more");
  HL_RETURN_IF_ERROR(LookAtGroup(directory, [&](const GroupFiles& group) -> Status {
    for (const FileInfo& info : group.Files())
      if (info.name == name && info.lane == Lane::kLog) bytes = ReadWhole(group, info);
    return bytes.status();
  }));
  return bytes;
}

IOStatus HyperloopFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                          std::vector<std::string>* names, IODebugContext* dbg) {
  IOStatus listed = target()->GetChildren(path, options, names, dbg);
  const std::string directory = ParentOf(path + "/CURRENT");
  if (!listed.ok() || !IsUnclean(directory)) return listed;
  MutexLock lock(mutex_);
  const auto kept = names_of_group_.find(directory);
  if (kept == names_of_group_.end() || !kept->second.names->ok()) return listed;
  for (const auto& [log, same] : (*kept->second.names)->logs) {
    if (!same && std::find(names->begin(), names->end(), log) == names->end())
      names->push_back(log);
  }
  return listed;
}

}  // namespace hyperloop::plugin
