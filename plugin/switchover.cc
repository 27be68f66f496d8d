#include "switchover.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/prefetch.h"
#include "hyperloop/replication/replica_files.h"
#include "local_files.h"
#include "pairing_file.h"
#include "paths.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using Clock = Released::Clock;

constexpr std::chrono::milliseconds kLookInterval{50};
constexpr std::chrono::seconds kListInterval{1};
// A living primary that waits for a silent replica shows its life only once a second.
constexpr std::chrono::milliseconds kSilent{1500};

// Refuses a directory that Store::Take would refuse after the wait.
Status CheckDirectoryFits(FileSystem& fs, const std::string& directory, const std::string& group) {
  PairingFile file;
  HL_RETURN_IF_ERROR(ReadPairing(fs, directory, &file));
  if (!file.pairing.group.empty() && file.pairing.group != group)
    return InvalidArgument(Text(directory, " belongs to group ", file.pairing.group,
                                ", these replicas are group ", group, "; name another directory"));
  std::vector<std::string> logs;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &logs));
  if (!file.pairing.group.empty() || logs.empty()) return Status::Ok();
  return InvalidArgument(Text(directory, " holds a database that is of no group: ", Enumerate(logs),
                              "; name an empty directory"));
}

class Switchover {
 public:
  Switchover(FileSystem& fs, const SwitchoverRequest& request, Prefetch& prefetch)
      : fs_(fs), request_(request), prefetch_(prefetch) {
    if (!request.replica_files.empty()) out_.near.places.push_back(request.replica_files);
    out_.near.places.push_back(BroughtFiles(request.directory));
  }

  Result<Released> Run() {
    HL_ASSIGN_OR_RETURN(holder_, prefetch_.Look());
    HL_RETURN_IF_ERROR(CheckDirectoryFits(fs_, request_.directory, holder_.group));
    HL_RETURN_IF_ERROR(prefetch_.MakeOwnPool());
    changed_ = Clock::now();
    if (!IsFree()) HL_RETURN_IF_ERROR(WaitForRelease());
    out_.former = holder_.name;
    out_.released = Clock::now();
    return std::move(out_);
  }

 private:
  Status WaitForRelease() {
    if (!holder_.released) out_.held = Clock::now();
    HL_RETURN_IF_ERROR(BringFiles());
    const Clock::time_point until = Clock::now() + request_.wait;
    Clock::time_point list = Clock::now() + kListInterval;
    while (true) {
      std::this_thread::sleep_for(kLookInterval);
      last_look_ = LookAgain();
      if (last_look_.ok() && IsFree()) return Status::Ok();
      const bool known = lives_ || Clock::now() - changed_ >= kSilent;
      if (Clock::now() >= until && known) return Refusal();
      if (Clock::now() < list) continue;
      HL_RETURN_IF_ERROR(BringFiles());
      list = Clock::now() + kListInterval;
    }
  }

  Status LookAgain() {
    HL_ASSIGN_OR_RETURN(Holder now, prefetch_.Look());
    if (!now.released) out_.held = Clock::now();
    const bool same = now.epoch == holder_.epoch;
    if (!same || now.heartbeat != holder_.heartbeat) changed_ = Clock::now();
    lives_ = lives_ || (same && now.heartbeat != holder_.heartbeat);
    holder_ = std::move(now);
    return Status::Ok();
  }

  // Somebody who took the group and gave up before serving left it to a former primary, who takes
  // it back at once if it lives.
  bool IsFree() const {
    return holder_.released && (holder_.served || Clock::now() - changed_ >= kSilent);
  }

  Status Refusal() const {
    const std::string who = Text(holder_.name, " (epoch ", holder_.epoch, ")");
    const std::string kept = Text(". Nothing was taken; what was brought stays in ",
                                  BroughtFiles(request_.directory), " for the next call");
    if (!last_look_.ok())
      return {last_look_.code(),
              Text("waited for ", who, " in vain: ", last_look_.message(), kept)};
    const auto silent = Clock::now() - changed_;
    if (silent < kSilent)
      return Busy(Text(who, " still serves the group; close its database, and call again", kept));
    return Busy(Text(who, " has not closed its database, and has been silent for ",
                     std::chrono::duration_cast<std::chrono::seconds>(silent).count(),
                     " s; if it is dead, hyperloopctl promote takes its place", kept));
  }

  // Makes each table, blob file and log that has left the region be in the directory, or near it.
  // What cannot be had now is tried again, and in the end the taking fetches it.
  Status BringFiles() {
    Status last;
    uint64_t here = 0, brought = 0, bytes = 0;
    const Result<std::vector<WholeFile>> files = prefetch_.Files();
    if (!files.ok()) return Warn(files.status());
    HL_RETURN_IF_ERROR(prefetch_.DropAllBut(*files));
    for (const WholeFile& file : *files) {
      if (!StaysAsListed(file.name)) continue;
      const bool there = IsHere(file);
      const Status got = there ? Status::Ok() : Bring(file);
      if (got.code() == Code::kNoSpace) return got;
      if (!got.ok()) last = got;
      here += got.ok() ? 1 : 0;
      brought += got.ok() && !there ? 1 : 0;
      bytes += got.ok() && !there ? file.size : 0;
    }
    if (!last.ok()) return Warn(last);
    if (ready_) return Status::Ok();
    ready_ = true;
    std::printf(
        "ready: %llu tables, blob files and logs are here, %llu of them (%llu B) were brought from "
        "replicas; waiting for %s to close the database\n",
        static_cast<unsigned long long>(here), static_cast<unsigned long long>(brought),
        static_cast<unsigned long long>(bytes), holder_.name.c_str());
    std::fflush(stdout);
    return Status::Ok();
  }

  // The same words are written once.
  Status Warn(const Status& status) {
    if (status.message() == warned_) return Status::Ok();
    warned_ = status.message();
    std::fprintf(stderr, "not everything is here yet: %s\n", warned_.c_str());
    return Status::Ok();
  }

  Status Bring(const WholeFile& file) {
    HL_RETURN_IF_ERROR(prefetch_.Bring(file));
    HL_ASSIGN_OR_RETURN(
        const std::string path,
        FindLinkableFile(out_.near.places.back(), holder_.group, file, request_.directory));
    out_.near.checked[path] = file;  // its checksum was compared when it arrived
    return Status::Ok();
  }

  bool IsHere(const WholeFile& file) {
    const std::string own = request_.directory + "/" + file.name;
    const Result<uint64_t> size = SizeOf(fs_, own);
    if (size.ok() && *size == file.size && IsSound(own, file)) return true;
    for (const std::string& place : out_.near.places) {
      const Result<std::string> path =
          FindLinkableFile(place, holder_.group, file, request_.directory);
      if (!path.ok()) continue;
      if (IsSound(*path, file)) return true;
      // A damaged file that an earlier call brought is brought again.
      if (place == out_.near.places.back())
        fs_.DeleteFile(*path, rocksdb::IOOptions(), nullptr).PermitUncheckedError();
    }
    return false;
  }
  bool IsSound(const std::string& path, const WholeFile& file) {
    const auto checked = out_.near.checked.find(path);
    if (checked != out_.near.checked.end() && checked->second == file) return true;
    const Result<WholeFile> found = Describe(fs_, path, file.name);
    if (!found.ok() || *found != file) return false;
    out_.near.checked[path] = file;
    return true;
  }

  FileSystem& fs_;
  const SwitchoverRequest& request_;
  Prefetch& prefetch_;
  Released out_;
  Holder holder_;  // as the last look that was answered saw it
  Status last_look_;
  Clock::time_point changed_;  // when the holder's heartbeat was last seen to move
  bool lives_ = false;         // it was seen to move
  bool ready_ = false;         // the line that says so was written
  std::string warned_;
};

}  // namespace

std::string BroughtFiles(const std::string& directory) {
  return directory + "/" + std::string(kSwitchoverName);
}

Result<Released> AwaitRelease(FileSystem& fs, const SwitchoverRequest& request) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Prefetch> prefetch,
                      Prefetch::Open(request.store, BroughtFiles(request.directory)));
  return Switchover(fs, request, *prefetch).Run();
}

}  // namespace hyperloop::plugin
