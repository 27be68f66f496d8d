#include "agent/replica_way.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/uuid.h"
#include "control/client.h"
#include "control/directive.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::agent {
namespace {

constexpr std::chrono::seconds kPatience{2};
// A try takes seconds if the way to the replica's RNIC is cut. Its process answers meanwhile.
constexpr std::chrono::seconds kReachAgain{5};

std::string OwnerText(const std::vector<uint8_t>& digest) {
  Uuid uuid{};
  if (digest.size() != uuid.size()) return {};
  std::ranges::copy(digest, uuid.begin());
  return FormatUuid(uuid);
}

NodeStatus StatusOf(const control::HelloReplyT& hello) {
  NodeStatus status;
  status.node = hello.node_id;
  status.group = hello.group;
  status.sealed_epoch = hello.sealed_epoch;
  status.owner = OwnerText(hello.sealed_owner);
  status.owner_name = hello.sealed_owner_name;
  status.released = hello.released;
  status.heartbeat = hello.heartbeat;
  status.installed_epoch = hello.installed_epoch;
  status.replicas = hello.installed_replicas;
  status.absent = hello.absent_replicas;
  status.branch_epoch = hello.branch_epoch;
  status.branch_owner = OwnerText(hello.branch_owner);
  status.directive = control::FromMessage(hello.directive.get());
  status.media = hello.media;
  status.region_size = hello.region_size;
  return status;
}

}  // namespace

Result<std::unique_ptr<ReplicaWay>> ReplicaWay::Make(const StoreOptions& store,
                                                     const std::string& listen) {
  HL_ASSIGN_OR_RETURN(control::Endpoint endpoint, control::ParseEndpoint(listen));
  HL_ASSIGN_OR_RETURN(control::Trust trust, control::Trust::Load(store.keys, nullptr));
  std::unique_ptr<ReplicaWay> way(
      new ReplicaWay(DeviceChoice::Of(store), std::move(endpoint), std::move(trust)));
  // Thus one whose process is stopped is seen, too.
  if (store.provider != "softrnic" || store.keys.empty()) return way;
  HL_ASSIGN_OR_RETURN(const auto ring, identity::KeyRing::Load(store.keys));
  const std::vector<std::string> names = ring->NamesAt(listen);
  if (names.size() == 1) way->host_ = names.front();
  return way;
}

ReplicaWay::ReplicaWay(DeviceChoice choice, control::Endpoint endpoint, control::Trust trust)
    : choice_(std::move(choice)),
      endpoint_(std::move(endpoint)),
      trust_(std::move(trust)),
      address_(endpoint_.ToString()) {}

Result<NodeStatus> ReplicaWay::Look() {
  if (view_ != nullptr) {
    Result<NodeStatus> read = view_->ReadPage();
    if (read.ok()) return read;
    Drop();
  }
  Result<NodeStatus> asked = Ask();
  const bool late = std::chrono::steady_clock::now() < next_reach_;
  if (host_.empty() || (asked.ok() && late)) return asked;
  const Status reached = Reach();
  if (asked.ok() || !reached.ok()) return asked;
  return view_->ReadPage();
}

void ReplicaWay::Drop() {
  view_.reset();
  device_.reset();
}

Result<NodeStatus> ReplicaWay::Ask() {
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint_, trust_, kPatience));
  HL_ASSIGN_OR_RETURN(const auto hello,
                      client->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience));
  host_ = hello.host;
  return StatusOf(hello);
}

Status ReplicaWay::Reach() {
  const Status reached = [&]() -> Status {
    HL_ASSIGN_OR_RETURN(device_, OpenDevice(choice_));
    HL_ASSIGN_OR_RETURN(view_, NodeView::Connect(*device_, host_));
    return {};
  }();
  if (!reached.ok()) Drop();
  next_reach_ = std::chrono::steady_clock::now() + kReachAgain;
  return reached;
}

Result<bool> ReplicaWay::HoldsDatabase() {
  if (view_ == nullptr) return Unavailable(Text("replica ", address_, " cannot be read"));
  HL_ASSIGN_OR_RETURN(const NodeStatus status, view_->ReadStatus());
  if (!status.log_error.empty()) return Corruption(status.log_error);
  return std::ranges::any_of(status.files,
                             [](const FileInfo& file) { return file.name == "CURRENT"; });
}

Status ReplicaWay::Give(const std::string& group, const Directive& directive) {
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint_, trust_, kPatience));
  control::DirectRequestT request;
  request.group = group;
  request.count = directive.number.count;
  request.writer = directive.number.writer;
  request.directive = control::ToMessage(directive);
  HL_ASSIGN_OR_RETURN(const auto reply,
                      client->Call<control::DirectReplyT>(std::move(request), kPatience));
  if (reply.granted) return {};
  return Aborted(Text("replica ", address_, " has promised to take a newer one only"));
}

}  // namespace hyperloop::agent
