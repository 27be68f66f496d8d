#include "hyperloop/replication/prefetch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/group_error.h"
#include "device/device_choice.h"
#include "files/bulk_connection.h"
#include "files/file_store.h"
#include "files/held_files.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "membership/strangers.h"
#include "primary/look.h"

namespace hyperloop {
namespace {

class ReplicaPrefetch final : public Prefetch {
 public:
  ReplicaPrefetch(const StoreOptions& options, std::string directory,
                  std::vector<std::unique_ptr<ReplicaHandle>> replicas)
      : options_(options), directory_(std::move(directory)), replicas_(std::move(replicas)) {}

  Result<Holder> Look() override {
    const FailureRules rules = RulesOf(options_);
    std::vector<MissingReplica> missing;
    HL_ASSIGN_OR_RETURN(std::vector<MemberLook> looks,
                        LookAtReplicas(replicas_, LookTimes(options_, rules.may_leave_out),
                                       rules.may_leave_out, &missing));
    if (rules.may_leave_out) LeaveOutUnfit(&looks, &missing);
    HL_ASSIGN_OR_RETURN(plan_, PlanTake(looks, missing, options_.region_size, rules,
                                        {options_.add_replica, options_.remove_replica}));
    if (plan_.format)
      return NotFound("the group holds no database; check which replicas the URI names");
    looks_ = std::move(looks);
    return HolderOf(looks_);
  }

  Status MakeOwnPool() override {
    std::unique_ptr<Pool> pool;
    return OpenOwnPool(options_, plan_, &pool, /*set_aside=*/nullptr);
  }

  // The bytes of the log lane need not be read for that, so it takes little of the replicas' RNICs.
  Result<std::vector<WholeFile>> Files() override {
    if (device_ == nullptr || !device_->alive()) {
      HL_ASSIGN_OR_RETURN(device_, OpenDevice(DeviceChoice::Of(options_)));
    }
    held_ = std::make_unique<HeldFiles>(BulkConnections());
    std::vector<Status> failed;
    for (const MemberLook& look : looks_) {
      if (!IsMember(look)) continue;
      const Result<NodeStatus> status = StatusOf(look);
      if (status.ok()) return WholeFilesOf(*status);
      failed.push_back(status.status());
    }
    if (failed.empty()) return Unavailable("no replica of the group's configuration answers");
    return AllReasons(failed);
  }

  Status Bring(const WholeFile& file) override {
    if (store_ == nullptr) HL_RETURN_IF_ERROR(OpenStore());
    HL_ASSIGN_OR_RETURN(uint64_t at, store_->Write(file, 0, {}));
    if (at == file.size) return {};
    HL_RETURN_IF_ERROR(store_->Remove(file));  // a part of it, which an earlier call left
    at = 0;
    return held_->Fetch(file, [&](std::span<const char> bytes) -> Status {
      HL_ASSIGN_OR_RETURN(const uint64_t arrived, store_->Write(file, at, std::as_bytes(bytes)));
      at += bytes.size();
      return arrived == at ? Status() : Internal(Text("\"", file.name, "\" was not written whole"));
    });
  }

  Status Link(const WholeFile& file, const std::string& path) override {
    if (store_ == nullptr) HL_RETURN_IF_ERROR(OpenStore());
    return store_->LinkFrom(path, file);
  }

  Status DropAllBut(const std::vector<WholeFile>& files) override {
    if (store_ == nullptr) {
      Result<std::unique_ptr<FileStore>> store = FileStore::OpenToRead(StoreDirectory());
      if (store.status().code() == Code::kNotFound) return {};
      if (!store.ok()) return store.status();
      store_ = std::move(*store);
    }
    HL_ASSIGN_OR_RETURN(const std::vector<FileStore::Stored> stored, store_->List());
    const std::set<WholeFile> kept(files.begin(), files.end());
    for (const FileStore::Stored& each : stored)
      if (!kept.contains(each.file)) HL_RETURN_IF_ERROR(store_->Remove(each.file));
    return {};
  }

 private:
  // A replica that was left out has an older epoch sealed, and says nothing of the holder.
  static Holder HolderOf(const std::vector<MemberLook>& looks) {
    Holder holder;
    for (const MemberLook& look : looks)
      holder.epoch = std::max(holder.epoch, look.hello.sealed_epoch);
    for (const MemberLook& look : looks) {
      if (look.hello.sealed_epoch != holder.epoch) continue;
      holder.group = look.hello.group;
      holder.name = look.hello.sealed_owner_name;
      holder.released = holder.released || look.hello.released;
      holder.served = holder.served || look.hello.served_owner == look.hello.sealed_owner;
      holder.heartbeat += look.hello.heartbeat;
    }
    return holder;
  }

  bool IsMember(const MemberLook& look) const {
    return std::any_of(plan_.recorded.replicas.begin(), plan_.recorded.replicas.end(),
                       [&](const Configuration::Replica& each) {
                         return FormatUuid(each.node) == look.hello.node_id;
                       });
  }

  Result<NodeStatus> StatusOf(const MemberLook& look) {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view,
                        NodeView::Connect(*device_, look.hello.host));
    HL_ASSIGN_OR_RETURN(NodeStatus status, view->ReadStatus());
    if (!status.log_error.empty()) return Unavailable(Text(look.name, ": ", status.log_error));
    return status;
  }

  static std::vector<WholeFile> WholeFilesOf(const NodeStatus& status) {
    std::vector<WholeFile> files;
    for (const FileInfo& info : status.files)
      if (info.lane == Lane::kBulk) files.push_back({info.name, info.size, info.checksum});
    return files;
  }

  std::vector<BulkConnect> BulkConnections() const {
    std::vector<BulkConnect> connections;
    for (const auto& replica : replicas_)
      connections.push_back(BulkConnectionTo(replica->endpoint(), replica->bulk_port(),
                                             replica->trust(), Ownership(), limit_));
    return connections;
  }

  std::string StoreDirectory() const { return GroupDirectory(directory_, plan_.group); }
  Status OpenStore() {
    HL_RETURN_IF_ERROR(MakeDurableDirectory(directory_));
    HL_ASSIGN_OR_RETURN(store_, FileStore::Open(StoreDirectory()));
    return {};
  }

  const StoreOptions options_;
  const std::string directory_;
  const std::vector<std::unique_ptr<ReplicaHandle>> replicas_;
  const CallLimit limit_{options_.ack_timeout};
  std::vector<MemberLook> looks_;  // of the last Look that was granted
  TakePlan plan_;                  // of the last Look
  std::unique_ptr<rnic::Device> device_;
  std::unique_ptr<HeldFiles> held_;   // since the last Files
  std::unique_ptr<FileStore> store_;  // null: nothing is known to have been brought
};

}  // namespace

Result<std::unique_ptr<Prefetch>> Prefetch::Open(const StoreOptions& options,
                                                 std::string directory) {
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options));
  HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(options.keys, nullptr));
  HL_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<ReplicaHandle>> replicas,
                      ReplicasOf(options, trust));
  return std::unique_ptr<Prefetch>(
      new ReplicaPrefetch(options, std::move(directory), std::move(replicas)));
}

}  // namespace hyperloop
