// World: the hosts of a group in one simulated process, and what can happen to them. Replicas are
// numbered; each keeps its pool and its port while it is down.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/replication/store.h"
#include "simulation/fabric.h"
#include "support/embedded_replica.h"

namespace hyperloop::simulation {

// The hosts on which primaries run. Each has a pool.
inline constexpr std::array<const char*, 2> kPrimaries{"p0", "p1"};

class World {
 public:
  static constexpr uint64_t kRegion = 9 << 20;  // bytes of each replica's region

  // `folder` is empty, and gets the pools. `log`: null: silence.
  World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log);
  ~World();

  int count() const { return static_cast<int>(replicas_.size()); }  // of replicas
  bool up(int replica) const { return replicas_[Index(replica)] != nullptr; }
  bool AllUp() const;
  void Start(int replica);
  // The process ends; what the host's memory held stays.
  void Kill(int replica);
  // The host ends, and loses what was not durable.
  void LosePower(int replica);
  // Cuts or heals the control connections to a replica.
  void SetReachable(int replica, bool reachable) const;
  // Changes some bytes of a pool that is in nobody's use. Returns the offset of the first one.
  uint64_t Damage(const std::string& host);
  std::span<std::byte> region(int replica) { return replicas_[Index(replica)]->region(); }
  Fabric& fabric() { return fabric_; }
  static std::string NameOf(int replica) { return "r" + std::to_string(replica); }

  // A store that has not taken the group. `host`: one of kPrimaries.
  Result<std::unique_ptr<Store>> Open(const std::string& host);
  // The options of every store, to be changed before Open.
  StoreOptions& options() { return options_; }

 private:
  static size_t Index(int replica) { return static_cast<size_t>(replica); }

  World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log, size_t count);

  const std::string folder_;
  std::mt19937_64& random_;
  const std::shared_ptr<Log> log_;
  StoreOptions options_;
  Fabric fabric_;
  std::vector<uint16_t> ports_;
  std::vector<std::unique_ptr<test::EmbeddedReplica>> replicas_;
};

}  // namespace hyperloop::simulation
