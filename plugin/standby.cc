#include "standby.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "bringer.h"
#include "hyperloop/core/ready.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/prefetch.h"
#include "paths.h"

namespace hyperloop::plugin {
namespace {

constexpr std::chrono::seconds kInterval{1};

class Standby {
 public:
  Standby(rocksdb::FileSystem& fs, const StandbyRequest& request, Prefetch& prefetch)
      : directory_(request.directory),
        prefetch_(prefetch),
        bringer_(fs, prefetch, request.directory, request.replica_files) {}

  // Makes everything be here that the group holds now.
  Status Once() {
    HL_ASSIGN_OR_RETURN(const Holder holder, prefetch_.Look());
    HL_RETURN_IF_ERROR(bringer_.CheckDirectoryFits(holder.group));
    if (!has_pool_) HL_RETURN_IF_ERROR(prefetch_.MakeOwnPool());
    has_pool_ = true;
    HL_ASSIGN_OR_RETURN(const Bringer::Report report, bringer_.BringAll(holder.group));
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
  const std::string directory_;
  Prefetch& prefetch_;
  Bringer bringer_;
  bool has_pool_ = false;
  bool said_ready_ = false;
  std::string said_;  // why not everything is here
};

}  // namespace

Status KeepReady(rocksdb::FileSystem& fs, const StandbyRequest& request) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Prefetch> prefetch,
                      Prefetch::Open(request.store, BroughtFiles(request.directory)));
  Standby standby(fs, request, *prefetch);
  while (true) {
    const Status status = standby.Once();
    if (status.code() == Code::kInvalidArgument || status.code() == Code::kNoSpace) return status;
    standby.Tell(status);
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace hyperloop::plugin
