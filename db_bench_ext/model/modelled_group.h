// ModelledGroup: a whole group under the clock of a model. Each node has a Nic, and the replicas of
// cpu-polling and cpu-event a Processor; the ends of the group are the product's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "group/cpu_member.h"
#include "group/slot_program.h"
#include "hyperloop/core/group.h"
#include "model/costs.h"
#include "model/nic.h"
#include "model/processor.h"
#include "model/timeline.h"

namespace hyperloop::model {

struct GroupSetup {
  Datapath datapath = Datapath::kOffload;
  FlushOrder order = FlushOrder::kPipelined;  // offload
  uint32_t replicas = 3;
  uint32_t window = 1;
  uint64_t region_size = 1 << 20;
  // Threads that compute on the processor of each replica's thread.
  uint32_t load = 0;
  uint64_t seed = 1;
};

class ModelledGroup {
 public:
  // `costs` outlives it. The group is connected, and at rest.
  static Result<std::unique_ptr<ModelledGroup>> Create(const GroupSetup& setup, const Costs& costs);

  Group& group() { return *group_; }
  Timeline& timeline() { return timeline_; }
  Nic& primary_nic() { return *primary_.nic; }
  const Nic& nic(uint32_t replica) const { return *replicas_[replica].nic; }
  std::span<std::byte> primary_bytes() { return BytesOf(primary_); }
  std::span<std::byte> replica_bytes(uint32_t i) { return BytesOf(replicas_[i]); }
  // Bytes that a replica's processor copies for each message.
  void set_copied_bytes(uint64_t bytes) { copied_bytes_ = bytes; }
  uint64_t wqes() const;
  uint64_t round_trips() const;

 private:
  struct Node {
    std::unique_ptr<Nic> nic;
    std::unique_ptr<rnic::Device> device;
    std::unique_ptr<rnic::ProtectionDomain> pd;
    std::unique_ptr<rnic::Buffer> memory;
    std::unique_ptr<rnic::MemoryRegion> region;
    std::unique_ptr<Member> member;
    CpuMember* cpu = nullptr;  // the same, if a processor serves it
    std::unique_ptr<Processor> processor;
    Nanoseconds turn_at = 0;  // when its next turn is; 0: none is due
    Nanoseconds busy_until = 0;
  };

  ModelledGroup(const GroupSetup& setup, const Costs& costs) : setup_(setup), costs_(costs) {}
  Status Build();
  Status Wire();
  Status Open(Node* node, const std::string& host);
  Status MakeReplica(uint32_t i);
  void Settle();
  void HaveTurn(Node& node, Nanoseconds at);
  void TakeTurn(Node& node);
  std::span<std::byte> BytesOf(Node& node) { return {node.memory->data(), setup_.region_size}; }

  const GroupSetup setup_;
  const Costs& costs_;
  Timeline timeline_;
  uint64_t copied_bytes_ = 0;
  SlotProgram program_;
  Node primary_;
  std::vector<Node> replicas_;
  std::unique_ptr<Group> group_;
};

}  // namespace hyperloop::model
