#include "replica/rdma_service.h"

#include <cstring>
#include <system_error>

#include "device/remote_access.h"
#include "hyperloop/core/text.h"
#include "inspect/service.h"

namespace hyperloop {
namespace {

// alive() is made for waiting loops, and checks the daemon only in some of its calls. So a caller
// that needs to know once a second calls it many times.
bool LooksAlive(const rnic::Device& device) {
  for (int i = 0; i < 64; ++i) {
    if (!device.alive()) return false;
  }
  return true;
}

Status TryToConnect(const DeviceOpener& open, const std::string& host, const std::string& service) {
  constexpr std::chrono::seconds kTimeout{5};
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<rnic::Device> device, open());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<RemoteAccess> access,
                      RemoteAccess::Create(*device, kTimeout));
  return device->ConnectService(host, service.empty() ? kInspectService : service, access->qp())
      .status();
}

}  // namespace

void RdmaService::Inspection::Drop() {
  page.reset();
  region.reset();
  pd.reset();
}

void RdmaService::Epoch::Drop() {
  member.reset();
  admin.reset();
  cq.reset();
  heartbeat.reset();
  region.reset();
  pd.reset();
}

RdmaService::~RdmaService() {
  End();
  inspection_.Drop();
}

Status RdmaService::Start() {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::Device> device, open_());
  Inspection made;
  HL_ASSIGN_OR_RETURN(made.pd, device->AllocatePd());
  const auto region = pool_.region();
  const auto page = pool_.node_page();
  HL_ASSIGN_OR_RETURN(made.region, made.pd->Register(region.data(), region.size(),
                                                     rnic::kRemoteRead, pool_.region_backing()));
  HL_ASSIGN_OR_RETURN(made.page, made.pd->Register(page.data(), page.size(), rnic::kRemoteRead,
                                                   pool_.node_page_backing()));
  const InspectInfo info{kInspectMagic,
                         kInspectVersion,
                         made.region->addr(),
                         region.size(),
                         made.page->addr(),
                         page.size(),
                         made.region->rkey(),
                         made.page->rkey(),
                         EncodeMedia(pool_.media().kind()),
                         0};
  HL_RETURN_IF_ERROR(
      device->Publish(kInspectService, *made.pd, std::as_bytes(std::span(&info, 1))));
  // There is a device only with all of it.
  device_ = std::move(device);
  inspection_ = std::move(made);
  down_ = {};
  return {};
}

Status RdmaService::StartPatiently(const std::function<bool()>& stop) {
  while (true) {
    const Status started = Start();
    if (started.code() != Code::kTimedOut || stop()) return started;
    LogLine(log_, LogLevel::kWarn, {started.message(), "; trying again"});
  }
}

void RdmaService::Watch() {
  if (const Status medium = pool_.media().state(); !medium.ok() && !medium_failed_) {
    LogLine(log_, LogLevel::kError, {"nothing is served any more: ", medium.message()});
    medium_failed_ = true;
  }
  if (device_ != nullptr && down_.ok()) {
    if (LooksAlive(*device_)) return;
    LogLine(log_, LogLevel::kError,
            {"the RNIC daemon is gone; nothing is replicated until it is back"});
  }
  End();
  inspection_.Drop();
  device_.reset();
  const bool first = down_.ok();
  down_ = Start();
  if (down_.ok()) {
    LogLine(log_, LogLevel::kInfo, {"registered with the RNIC daemon again"});
  } else if (first) {
    LogLine(log_, LogLevel::kWarn, {down_.message()});
  }
}

std::string RdmaService::state() const {
  const Status status = CheckDevice();
  return status.ok() ? "ready" : status.message();
}

Status RdmaService::CheckDevice() const {
  HL_RETURN_IF_ERROR(pool_.media().state());
  if (!down_.ok()) return Unavailable(Text("the replica has no RNIC: ", down_.message()));
  if (device_ == nullptr || !LooksAlive(*device_)) {
    return Unavailable("the replica's RNIC daemon is gone; start it again");
  }
  return {};
}

Status RdmaService::OpenEpoch() {
  HL_RETURN_IF_ERROR(CheckDevice());
  if (epoch_.pd != nullptr) return {};
  Epoch made;
  HL_ASSIGN_OR_RETURN(made.pd, device_->AllocatePd());
  const auto region = pool_.region();
  HL_ASSIGN_OR_RETURN(made.region, made.pd->Register(region.data(), region.size(),
                                                     rnic::kLocalWrite | rnic::kRemoteWrite |
                                                         rnic::kRemoteRead | rnic::kRemoteAtomic,
                                                     pool_.region_backing()));
  rnic::ProtectionDomain::Backing backing = pool_.node_page_backing();
  backing.fd_offset += kHeartbeatOffset;
  HL_ASSIGN_OR_RETURN(
      made.heartbeat,
      made.pd->Register(pool_.node_page().data() + kHeartbeatOffset, kOwnerBytes,
                        rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead, backing));
  HL_ASSIGN_OR_RETURN(made.cq, device_->CreateCq({.depth = 16}));
  epoch_ = std::move(made);
  return {};
}

Result<NodeService::Access> RdmaService::Attach(const rnic::QpAddress& peer) {
  HL_RETURN_IF_ERROR(OpenEpoch());
  epoch_.admin.reset();
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = epoch_.cq.get();
  attr.send_wqebbs = 16;
  attr.recv_wqes = 0;
  HL_ASSIGN_OR_RETURN(epoch_.admin, epoch_.pd->CreateQueuePair(attr));
  HL_RETURN_IF_ERROR(epoch_.admin->Connect(peer));
  return Access{epoch_.admin->address(),  epoch_.region->addr(),    epoch_.region->rkey(),
                epoch_.heartbeat->addr(), epoch_.heartbeat->rkey(), device_->rnic()};
}

Result<MemberInfo> RdmaService::Prepare(const MemberOptions& options) {
  HL_RETURN_IF_ERROR(OpenEpoch());
  epoch_.member.reset();
  MemberOptions own = options;
  own.cpu = datapath_cpu_;
  if (pool_.media().level() != rnic::Media::kRam) {
    own.persist = [this](uint64_t offset, uint64_t size) {
      return pool_.media().Persist(pool_.region().data() + offset, size);
    };
  }
  own.failed = [this](const Status& why) {
    LogLine(log_, LogLevel::kError,
            {"this replica no longer forwards the group's operations: ", why.message()});
  };
  HL_ASSIGN_OR_RETURN(epoch_.member, Member::Create(*device_, *epoch_.pd, *epoch_.region, own));
  return epoch_.member->info();
}

Status RdmaService::Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  HL_RETURN_IF_ERROR(CheckDevice());
  if (epoch_.member == nullptr) return InvalidArgument("ConnectMember without PrepareMember");
  return epoch_.member->Connect(primary, chain);
}

Status RdmaService::TryWay(const std::string& host, const std::string& service) {
  const std::string to = Text(host, "/", service);
  if (way_.valid() && way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    Status tried = way_.get();
    if (way_to_ == to) return tried;
  }
  if (!way_.valid()) {
    try {
      way_ = std::async(std::launch::async, TryToConnect, open_, host, service);
    } catch (const std::system_error& error) {
      return Unavailable(Text("no thread can be made: ", error.what()));
    }
    way_to_ = to;
  }
  return Busy(Text("the way to host ", way_to_, " is tried"));
}

}  // namespace hyperloop
