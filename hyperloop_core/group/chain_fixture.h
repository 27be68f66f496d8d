// Chain: a whole group in this process, for tests and benchmarks. A primary and its replicas, each
// on an emulated host of one EmbeddedRnic, are connected and ready. Waiting calls step the engine,
// which is deterministic, or the engine runs on a thread.
//
// The group itself knows no provider. Tests reach the software RNIC through this header and
// softrnic/embedded/embedded.h; scripts/check-includes keeps both out of all other sources.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "group/cpu_member.h"
#include "group/datapaths.h"
#include "group/slot_program.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/softrnic.h"
#include "softrnic/embedded/embedded.h"

namespace hyperloop {

// A datapath; offload with either order of its flushes, where the order matters.
struct Way {
  Datapath datapath = Datapath::kOffload;
  FlushOrder order = FlushOrder::kByPlace;

  constexpr Way(Datapath path, FlushOrder flush_order = FlushOrder::kByPlace)
      : datapath(path), order(flush_order) {}
  constexpr operator Datapath() const { return datapath; }
};
inline constexpr Way kWays[] = {{Datapath::kOffload, FlushOrder::kHopByHop},
                                {Datapath::kOffload, FlushOrder::kPipelined},
                                Datapath::kFanout,
                                Datapath::kCpuPolling,
                                Datapath::kCpuEvent};
// For names of parameterised tests.
inline std::string TestName(const Way& way) {
  std::string name(DatapathName(way));
  std::replace(name.begin(), name.end(), '-', '_');
  return way.order == FlushOrder::kPipelined ? name + "_pipelined" : name;
}

struct ChainOptions {
  Way datapath = Datapath::kOffload;
  softrnic::EngineOptions engine = {};
  uint32_t group_size = 3;
  uint32_t window = 8;
  uint32_t slots = 0;
  uint64_t region_size = 1 << 16;
  rnic::Media media = rnic::Media::kRam;
  // Not empty: the devices are those of the hyperloop-rnicd at this socket, not embedded ones.
  std::string daemon_socket = {};
  // Not null: opens each host's device, instead of the embedded RNIC.
  std::function<Result<std::unique_ptr<rnic::Device>>(const std::string& host)> open_device = {};
  bool threaded = false;            // the engine runs on a thread of its own
  uint32_t spin_us = 50;            // of that thread
  WaitMode wait = WaitMode::kPoll;  // of the primary; the others need a thread or a daemon
  std::chrono::nanoseconds poll_time = std::chrono::microseconds(50);  // of WaitMode::kHybrid
  bool check_ordering = true;
  std::chrono::nanoseconds ack_timeout = std::chrono::seconds(10);
  std::vector<std::string> replica_names = {};
  // Changes the program that both ends run; for negative controls.
  std::function<void(SlotProgram&)> change_program = {};
  // Called while a call waits; null: Chain::Step(64).
  std::function<void(softrnic::Engine&)> step = {};
  // Called by Chain::Step when there was nothing to do, so that time can pass then.
  std::function<void()> at_rest = {};
  // As in MemberOptions, with the number of the replica as first argument.
  std::function<Status(uint32_t, uint64_t, uint64_t)> persist = {};
  std::function<void(uint32_t, const Status&)> failed = {};
};

class Chain {
 public:
  struct Node {
    std::unique_ptr<rnic::Device> device;
    std::unique_ptr<rnic::ProtectionDomain> pd;
    std::unique_ptr<rnic::Buffer> memory;
    std::unique_ptr<rnic::MemoryRegion> region;
    std::unique_ptr<Member> member;  // of a replica
    CpuMember* cpu = nullptr;        // the same member, if its CPU is stepped by hand
  };

  static Result<std::unique_ptr<Chain>> Create(const ChainOptions& options) {
    std::unique_ptr<Chain> chain(new Chain(options));
    HL_RETURN_IF_ERROR(chain->Build());
    return chain;
  }
  ~Chain() { rnic_.StopThread(); }

  Group& group() { return *group_; }
  softrnic::EmbeddedRnic& rnic() { return rnic_; }
  uint32_t size() const { return options_.group_size; }
  const GroupGeometry& geometry() const { return program_.geometry; }
  Node& replica(uint32_t i) { return replicas_[i]; }
  Node& primary() { return primary_; }
  std::span<std::byte> bytes(Node& node) { return {node.memory->data(), options_.region_size}; }
  std::span<std::byte> primary_bytes() { return bytes(primary_); }
  std::span<std::byte> replica_bytes(uint32_t i) { return bytes(replicas_[i]); }

  // Runs at most `steps` steps of the engine, then one turn of each replica's CPU where the
  // datapath uses it. False: there was nothing to do. The engine must not run on a thread.
  bool Step(size_t steps = 1) {
    bool worked = rnic_.engine().Run(steps) != 0;
    for (uint32_t i = 0; i < size(); ++i) worked |= StepCpu(i);
    if (!worked && options_.at_rest) options_.at_rest();
    return worked;
  }
  bool StepCpu(uint32_t i) {
    CpuMember* const cpu = replicas_[i].member != nullptr ? replicas_[i].cpu : nullptr;
    if (cpu == nullptr) return false;
    const auto taken = cpu->Turn();
    return taken.ok() && *taken != 0;
  }
  // Steps until nothing is left to do.
  void Settle() {
    while (Step(1024)) {
    }
  }
  bool chained() const { return options_.datapath != Datapath::kFanout; }
  bool by_cpu() const { return chained() && options_.datapath != Datapath::kOffload; }
  // Replica `i`'s process dies and leaves nothing behind.
  void Kill(uint32_t i) {
    // The destructor destroys a Node's members from the last to the first.
    const Node gone = std::move(replicas_[i]);
  }

 private:
  explicit Chain(const ChainOptions& options) : options_(options), rnic_(options.engine) {}

  Status Open(Node* node, const std::string& host) {
    if (options_.open_device) {
      HL_ASSIGN_OR_RETURN(node->device, options_.open_device(host));
    } else if (options_.daemon_socket.empty()) {
      HL_ASSIGN_OR_RETURN(node->device, rnic_.OpenDevice(host));
    } else {
      HL_ASSIGN_OR_RETURN(node->device, softrnic::OpenDaemonDevice({options_.daemon_socket, host}));
    }
    HL_ASSIGN_OR_RETURN(node->pd, node->device->AllocatePd());
    HL_ASSIGN_OR_RETURN(node->memory, node->device->AllocateBuffer(options_.region_size));
    HL_ASSIGN_OR_RETURN(node->region,
                        node->pd->Register(node->memory->data(), options_.region_size,
                                           rnic::kLocalWrite | rnic::kRemoteWrite |
                                               rnic::kRemoteRead | rnic::kRemoteAtomic,
                                           {.media = options_.media}));
    return Status::Ok();
  }

  bool stepped() const { return !options_.threaded && options_.daemon_socket.empty(); }

  Status MakeReplica(uint32_t i) {
    Node& node = replicas_[i];
    MemberOptions options;
    options.position = i;
    if (options_.persist) {
      options.persist = [this, i](uint64_t offset, uint64_t size) {
        return options_.persist(i, offset, size);
      };
    }
    if (options_.failed) options.failed = [this, i](const Status& s) { options_.failed(i, s); };
    if (!by_cpu() || !stepped()) {
      HL_ASSIGN_OR_RETURN(node.member,
                          MakeMember(*node.device, *node.pd, *node.region, options, program_));
      return Status::Ok();
    }
    HL_ASSIGN_OR_RETURN(node.member,
                        CpuMember::Create(*node.device, *node.pd, *node.region, options,
                                          program_.geometry, CpuMember::Driver::kCaller));
    node.cpu = static_cast<CpuMember*>(node.member.get());
    return Status::Ok();
  }

  Status Build() {
    HL_ASSIGN_OR_RETURN(const GroupGeometry geometry,
                        GroupGeometry::For(options_.datapath, options_.group_size, options_.window,
                                           options_.slots));
    program_ = SlotProgram::For(geometry);
    program_.order = options_.datapath.order;
    if (options_.change_program) options_.change_program(program_);
    HL_RETURN_IF_ERROR(Open(&primary_, "primary"));
    replicas_.resize(options_.group_size);
    std::vector<MemberInfo> infos;
    for (uint32_t i = 0; i < options_.group_size; ++i) {
      HL_RETURN_IF_ERROR(Open(&replicas_[i], "replica" + std::to_string(i)));
      HL_RETURN_IF_ERROR(MakeReplica(i));
      infos.push_back(replicas_[i].member->info());
    }
    GroupOptions group;
    group.window = options_.window;
    group.slots = options_.slots;
    group.ack_timeout = options_.ack_timeout;
    group.replica_names = options_.replica_names;
    group.wait = options_.wait;
    group.poll_time = options_.poll_time;
    group.check_ordering = options_.check_ordering;
    if (stepped()) {
      group.idle = [this] {
        if (options_.step) {
          options_.step(rnic_.engine());
        } else {
          Step(64);
        }
      };
    }
    HL_ASSIGN_OR_RETURN(
        group_, MakeGroup(*primary_.device, *primary_.pd, *primary_.region, group, program_));
    if (options_.threaded) HL_RETURN_IF_ERROR(rnic_.StartThread({.spin_us = options_.spin_us}));
    for (Node& replica : replicas_)
      HL_RETURN_IF_ERROR(replica.member->Connect(group_->info(), infos));
    return group_->Connect(infos);
  }

  const ChainOptions options_;
  SlotProgram program_;
  softrnic::EmbeddedRnic rnic_;
  Node primary_;
  std::vector<Node> replicas_;
  std::unique_ptr<Group> group_;
};

}  // namespace hyperloop
