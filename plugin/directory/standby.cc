#include "standby.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "bringer.h"
#include "hyperloop/core/ready.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/replication/prefetch.h"
#include "local/local_files.h"
#include "local/paths.h"

namespace hyperloop::plugin {
namespace {

constexpr std::chrono::seconds kInterval{1};
// After a full disk.
constexpr std::chrono::minutes kLongInterval{1};
constexpr int kNice = 10;
// The class IDLE of the kernel, for this process.
constexpr int kIdle = 3 << 13, kProcess = 1;

// Those who serve come first, at the disk, too.
void StepBack() {
  ::setpriority(PRIO_PROCESS, 0, kNice);
  ::syscall(SYS_ioprio_set, kProcess, 0, kIdle);
}

class Standby {
 public:
  Standby(rocksdb::FileSystem& fs, const StandbyRequest& request, Prefetch& prefetch)
      : fs_(fs),
        directory_(request.directory),
        prefetch_(prefetch),
        bringer_(fs, prefetch, request.directory, request.replica_files) {}
  ~Standby() { Unlock(); }

  // Makes everything be here that the group holds now.
  Status Once() {
    const Result<Holder> holder = prefetch_.Look();
    // Somebody is to open the database for the first time, or to adopt one, perhaps here.
    if (holder.status().code() == Code::kNotFound) Unlock();
    HL_RETURN_IF_ERROR(holder.status());
    HL_RETURN_IF_ERROR(Lock());
    HL_RETURN_IF_ERROR(bringer_.CheckDirectoryFits(holder->group));
    if (!has_pool_) HL_RETURN_IF_ERROR(prefetch_.MakeOwnPool());
    has_pool_ = true;
    HL_ASSIGN_OR_RETURN(const Bringer::Report report, bringer_.BringAll(holder->group));
    if (report.brought > 0)
      std::fprintf(stderr, "%llu of %llu tables, blob files and logs (%llu B) were brought\n",
                   static_cast<unsigned long long>(report.brought),
                   static_cast<unsigned long long>(report.here),
                   static_cast<unsigned long long>(report.bytes));
    return Status::Ok();
  }

  // The same words are written once.
  void Tell(const Status& status) {
    if (status.ok() && !said_ready_) SayReady(directory_);
    said_ready_ = said_ready_ || status.ok();
    if (status.message() == said_) return;
    said_ = status.message();
    std::fprintf(
        stderr, "%s\n",
        status.ok() ? "everything is here" : Text("not everything is here: ", said_).c_str());
  }

 private:
  Status Lock() {
    if (lock_ != nullptr) return Status::Ok();
    const std::string path = directory_ + "/" + std::string(kLockFileName);
    const rocksdb::IOStatus locked = fs_.LockFile(path, rocksdb::IOOptions(), &lock_, nullptr);
    return locked.ok() ? Status::Ok() : Busy(InAnotherProcess(directory_, locked));
  }
  void Unlock() {
    if (lock_ != nullptr)
      fs_.UnlockFile(lock_, rocksdb::IOOptions(), nullptr).PermitUncheckedError();
    lock_ = nullptr;
  }

  rocksdb::FileSystem& fs_;
  const std::string directory_;
  rocksdb::FileLock* lock_ = nullptr;
  Prefetch& prefetch_;
  Bringer bringer_;
  bool has_pool_ = false;
  bool said_ready_ = false;
  std::string said_;  // why not everything is here
};

}  // namespace

Status KeepReady(rocksdb::FileSystem& fs, const StandbyRequest& request) {
  if (const auto own = CheckDirectory(request.directory, DirectoryRule::kOwn); !own.ok())
    return InvalidArgument("run it as the user of the service: " + own.status().message());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Prefetch> prefetch,
                      Prefetch::Open(request.store, BroughtFiles(request.directory)));
  StepBack();
  Standby standby(fs, request, *prefetch);
  while (true) {
    const Status status = standby.Once();
    if (status.code() == Code::kInvalidArgument || status.code() == Code::kBusy) return status;
    standby.Tell(status);
    const bool full = status.code() == Code::kNoSpace;
    std::this_thread::sleep_for(full ? kLongInterval : kInterval);
  }
}

}  // namespace hyperloop::plugin
