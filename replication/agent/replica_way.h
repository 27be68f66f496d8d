// ReplicaWay: a way to look at one replica, which is made anew after it failed.
//
// It reads the replica's node page by RDMA, which also shows a replica whose process is stopped.
// Where that does not work, it asks the replica's process. Nobody is disturbed: no look writes
// anything, and no epoch is taken. Not thread safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "control/endpoint.h"
#include "control/trust.h"
#include "device/device_choice.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::agent {

class ReplicaWay {
 public:
  // `store`: of a primary on this machine, whose device and keys are used. `listen`: the replica's
  // control endpoint.
  static Result<std::unique_ptr<ReplicaWay>> Make(const StoreOptions& store,
                                                  const std::string& listen);

  // As the group's configurations name it.
  const std::string& address() const { return address_; }

  // What the replica says of itself, without what follows from its region. A replica whose process
  // is gone has no answer, and neither has one that this machine does not reach. Takes some seconds
  // if nobody answers.
  Result<NodeStatus> Look();
  // Whether the group as this replica has it holds a database: one that was formatted, or emptied
  // by hyperloopctl reset, does not. Reads the table of files.
  Result<bool> HoldsDatabase();
  // Gives it what a majority of the group's replicas tells agents already. kAborted: it waits for a
  // newer one.
  Status Give(const std::string& group, const Directive& directive);

 private:
  ReplicaWay(DeviceChoice choice, control::Endpoint endpoint, control::Trust trust);
  // By its process.
  Result<NodeStatus> Ask();
  Status Reach();
  void Drop();

  const DeviceChoice choice_;
  const control::Endpoint endpoint_;
  const control::Trust trust_;
  const std::string address_;
  std::string host_;                      // of the replica's device; empty: not known yet
  std::unique_ptr<rnic::Device> device_;  // outlives view_
  std::unique_ptr<NodeView> view_;
  std::chrono::steady_clock::time_point next_reach_{};  // when its RNIC is tried again
};

}  // namespace hyperloop::agent
