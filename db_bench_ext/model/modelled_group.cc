#include "model/modelled_group.h"

#include <algorithm>
#include <utility>

#include "group/datapaths.h"

namespace hyperloop::model {
namespace {

// In the time of the machine that runs the model, which says nothing about that of the model.
constexpr auto kPatience = std::chrono::hours(1);
constexpr Nanoseconds kSettleNs = 20'000'000;

std::string HostOf(uint32_t replica) { return "replica" + std::to_string(replica); }

}  // namespace

Result<std::unique_ptr<ModelledGroup>> ModelledGroup::Create(const GroupSetup& setup,
                                                             const Costs& costs) {
  std::unique_ptr<ModelledGroup> group(new ModelledGroup(setup, costs));
  HL_RETURN_IF_ERROR(group->Build());
  return group;
}

// Every node reaches every other one.
Status ModelledGroup::Wire() {
  std::vector<std::pair<std::string, Nic*>> nics;
  for (uint32_t i = 0; i <= setup_.replicas; ++i) {
    Node& node = i == setup_.replicas ? primary_ : replicas_[i];
    node.nic = std::make_unique<Nic>(costs_, timeline_);
    nics.emplace_back(i == setup_.replicas ? "primary" : HostOf(i), node.nic.get());
  }
  for (const auto& from : nics)
    for (const auto& to : nics)
      if (from.second != to.second) HL_RETURN_IF_ERROR(from.second->Route(to.first, *to.second));
  return Status::Ok();
}

Status ModelledGroup::Open(Node* node, const std::string& host) {
  HL_ASSIGN_OR_RETURN(node->device, node->nic->OpenDevice(host));
  HL_ASSIGN_OR_RETURN(node->pd, node->device->AllocatePd());
  HL_ASSIGN_OR_RETURN(node->memory, node->device->AllocateBuffer(setup_.region_size));
  HL_ASSIGN_OR_RETURN(node->region, node->pd->Register(node->memory->data(), setup_.region_size,
                                                       rnic::kLocalWrite | rnic::kRemoteWrite |
                                                           rnic::kRemoteRead | rnic::kRemoteAtomic,
                                                       {.media = rnic::Media::kRam}));
  return Status::Ok();
}

Status ModelledGroup::MakeReplica(uint32_t i) {
  Node& node = replicas_[i];
  MemberOptions options;
  options.position = i;
  const bool polls = setup_.datapath == Datapath::kCpuPolling;
  if (!polls && setup_.datapath != Datapath::kCpuEvent) {
    HL_ASSIGN_OR_RETURN(node.member,
                        MakeMember(*node.device, *node.pd, *node.region, options, program_));
    return Status::Ok();
  }
  HL_ASSIGN_OR_RETURN(node.member,
                      CpuMember::Create(*node.device, *node.pd, *node.region, options,
                                        program_.geometry, CpuMember::Driver::kCaller));
  node.cpu = static_cast<CpuMember*>(node.member.get());
  node.processor = std::make_unique<Processor>(costs_, setup_.load, polls,
                                               setup_.seed * kMaxGroupSize + i, timeline_.now());
  const MemberInfo& info = node.member->info();
  const uint64_t ring = uint64_t{info.slots} * CpuSlotBytes(info.group_size);
  if (polls) node.nic->polled = {info.staging_addr, info.staging_addr + ring};
  node.nic->on_message = [this, &node](Nanoseconds at) {
    HaveTurn(node, std::max(node.processor->Begins(at), node.busy_until));
  };
  return Status::Ok();
}

Status ModelledGroup::Build() {
  HL_ASSIGN_OR_RETURN(
      const GroupGeometry geometry,
      GroupGeometry::For(setup_.datapath, setup_.replicas, setup_.window, /*slots=*/0));
  program_ = SlotProgram::For(geometry);
  if (setup_.datapath == Datapath::kOffload) program_.order = setup_.order;
  replicas_.resize(setup_.replicas);
  HL_RETURN_IF_ERROR(Wire());
  HL_RETURN_IF_ERROR(Open(&primary_, "primary"));
  std::vector<MemberInfo> infos;
  for (uint32_t i = 0; i < setup_.replicas; ++i) {
    HL_RETURN_IF_ERROR(Open(&replicas_[i], HostOf(i)));
    HL_RETURN_IF_ERROR(MakeReplica(i));
    infos.push_back(replicas_[i].member->info());
  }
  GroupOptions options;
  options.window = setup_.window;
  options.ack_timeout = kPatience;
  options.idle = [this] { timeline_.Step(); };
  HL_ASSIGN_OR_RETURN(
      group_, MakeGroup(*primary_.device, *primary_.pd, *primary_.region, options, program_));
  for (Node& replica : replicas_)
    HL_RETURN_IF_ERROR(replica.member->Connect(group_->info(), infos));
  HL_RETURN_IF_ERROR(group_->Connect(infos));
  Settle();
  return Status::Ok();
}

// What setting up has started comes to its end.
void ModelledGroup::Settle() {
  primary_.nic->RingAt(timeline_.now());
  for (Node& replica : replicas_) replica.nic->RingAt(timeline_.now());
  bool settled = false;
  timeline_.At(timeline_.now() + kSettleNs, [&settled] { settled = true; });
  while (!settled) timeline_.Step();
}

// `node`'s processor looks at its completions at `at`, and not later.
void ModelledGroup::HaveTurn(Node& node, Nanoseconds at) {
  if (node.turn_at != 0 && node.turn_at <= at) return;
  node.turn_at = at;
  timeline_.At(at, [this, &node, at] {
    if (node.turn_at == at) TakeTurn(node);
  });
}

void ModelledGroup::TakeTurn(Node& node) {
  const Nanoseconds now = timeline_.now();
  node.turn_at = 0;
  const auto taken = node.cpu->Turn();
  if (!taken.ok() || *taken == 0) return node.processor->Rests(now);
  const double each =
      costs_.message_ns + Costs::Transfer(static_cast<double>(copied_bytes_), costs_.copy_gbps);
  node.busy_until = now + Rounded(static_cast<double>(*taken) * each);
  node.processor->Works(node.busy_until);
  node.nic->RingAt(node.busy_until + Rounded(costs_.pcie_write_ns));
  HaveTurn(node, node.busy_until);
}

uint64_t ModelledGroup::wqes() const {
  uint64_t sum = primary_.nic->wqes();
  for (const Node& replica : replicas_) sum += replica.nic->wqes();
  return sum;
}

uint64_t ModelledGroup::round_trips() const {
  uint64_t sum = primary_.nic->round_trips();
  for (const Node& replica : replicas_) sum += replica.nic->round_trips();
  return sum;
}

}  // namespace hyperloop::model
