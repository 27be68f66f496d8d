// World: the hosts of a group in one simulated process, and what can happen to them. Replicas are
// numbered; each keeps its pool and its port while it is down. The last ones are spare: they have
// no pool until they are started.
//
// Each replica and each primary is a process. When one dies, its connections break, its RNIC's
// queues end, and its pool goes on without it, all at once, while its threads are in the middle of
// anything. The threads themselves go on until their objects are destroyed, but change nothing that
// another process sees.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/store.h"
#include "hyperloop/replication/survivors.h"
#include "inspect/export.h"
#include "simulation/fabric.h"
#include "simulation/promises.h"
#include "simulation/replica_sets.h"
#include "simulation/scheduler.h"
#include "support/embedded_replica.h"

namespace hyperloop::simulation {

// The hosts on which primaries run. Each has a pool.
inline constexpr std::array<const char*, 2> kPrimaries{"p0", "p1"};

// What one opening's URI says, apart from the options of all stores.
struct Opening {
  ReplicaList list;
  bool takeover = false;
  bool leaves_out = false;      // on_replica_failure=continue
  std::set<int> given_up = {};  // replicas that are lost for good
};

// Which messages of control are lost, whoever sends them.
struct Loss {
  enum What : uint8_t {
    kRequest,  // one request that changes a replica's state
    kReply,    // the answer to one
    kAll,      // all from such a request on
  };
  What what = kAll;
  uint64_t spared = 0;    // so many such requests are answered before
  bool installs = false;  // only those count that install a configuration
};

class World {
 public:
  // `folder` is empty, and gets the pools. `log` may be null.
  World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log);
  // So many replicas, each on a machine of its own.
  World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log, size_t count)
      : World(std::move(folder), random, std::move(log), count, true) {}
  ~World();

  int count() const { return static_cast<int>(replicas_.size()); }  // of replicas
  int first_count() const { return first_count_; }                  // of those that are not spare
  uint64_t region_size() const { return region_size_; }             // bytes of each region
  bool up(int replica) const { return At(replica).running != nullptr; }
  // Whether it was started once, so that it has a pool and a port.
  bool exists(int replica) const { return At(replica).port != 0; }
  void Start(int replica);
  // The process dies, whatever it does; what the host's memory held stays.
  void Kill(int replica);
  // The host ends, and loses what was not durable.
  void LosePower(int replica);
  // The process dies, and its pool and its files are gone: the next start makes fresh ones.
  void LosePool(int replica);
  // SIGSTOP and SIGCONT of its process.
  void SetStopped(int replica, bool stopped) const {
    Scheduler::Get().SetStopped(At(replica).process, stopped);
  }
  // Whether pools lie on disks, and bytes that a processor stored become durable by msync.
  bool on_disks() const { return on_disks_; }
  // The next msync of the replica's pool fails with EIO, and makes nothing durable.
  void FailDisk(int replica) { At(replica).disk_fails = true; }
  bool disk_fails(int replica) const { return At(replica).disk_fails; }
  // Cuts or heals the connections to a replica's control plane and bulk lane.
  void SetReachable(int replica, bool reachable) const;
  // Changes some bytes of a pool that nobody uses. Returns the offset of the first one.
  uint64_t Damage(const std::string& host);
  // While it is up.
  std::span<std::byte> region(int replica) { return At(replica).running->region(); }
  std::span<std::byte> node_page(int replica) { return At(replica).running->node_page(); }
  // Its check of its own region, which it makes while it is idle. While it is up.
  const IdleScrub& scrub(int replica) const { return At(replica).running->scrub(); }
  // What of the node page is durable. While it is up.
  std::vector<std::byte> durable_page(int replica) { return At(replica).running->durable_page(); }
  // What a restart of the replica finds, if its host loses power now; and only the node page of it,
  // if it does not.
  test::EmbeddedReplica::Durable Left(int replica);
  std::vector<std::byte> PageOf(int replica) const;
  // The whole files that are durable at the replica, up or down.
  std::set<WholeFile> FilesOfReplica(int replica) const;
  // Changes a byte of a file that the replica holds.
  void DamageFile(int replica, const WholeFile& file) const;
  // Whether it holds the file, and its bytes are those of its checksum.
  bool HoldsSound(int replica, const WholeFile& file) const;
  // Whether any majority of the replicas of this epoch has one that holds the file durably. True if
  // no majority has this epoch recorded any more: another primary, which has the group now, keeps
  // only files that the log names.
  bool MajoritiesHold(const WholeFile& file, uint64_t epoch) const;
  uint64_t pools_lost() const { return pools_lost_; }  // so many times
  Fabric& fabric() { return fabric_; }
  static std::string NameOf(int replica) { return "r" + std::to_string(replica); }
  std::string AddressOf(int replica) const {
    return "127.0.0.1:" + std::to_string(At(replica).port);
  }

  void LoseMessages(const Loss& loss) { losses_ = {true, false, loss}; }
  bool lost() const { return losses_.begun; }  // whether one was lost since
  void LoseNone() { losses_ = {}; }
  const Promises& promises() const { return promises_; }  // of the replicas

  // --- what an operator does (world_tools.cc)
  // Proposes a replica to the group that this one is in.
  Status Propose(int replica, int proposed) const;
  // Whether the newest configuration that the replica has installed has served.
  bool HasServed(int replica) const;
  // The lines of the replica's host say where it is from now on.
  void Place(int replica);
  struct View {
    std::unique_ptr<rnic::Device> device;
    std::unique_ptr<NodeView> node;  // uses the device
  };
  // Shows a replica that is up through the RNIC of `host`, to the calling thread's process.
  Result<View> Look(int replica, const std::string& host);
  // Writes the database that a replica holds, which is up, into a new directory.
  Result<ExportReport> Export(int replica, const std::string& host, const std::string& directory);
  std::string folder() const { return folder_; }
  // What an opening by force would give up.
  Result<Survivors> FindSurvivors(const std::string& host, const Opening& opening) const;
  // Gives the pools of these replicas, which are down after a primary closed the group, regions of
  // this size.
  void Resize(const std::set<int>& replicas, uint64_t region_size);
  // The same for the pools of the primaries. From now on this is the size of all regions. A pool
  // that is no sound copy of the group is removed instead: the next opening makes it anew.
  void ResizePrimaries(uint64_t region_size);
  // Whether replicas and primaries prove to each other who they are.
  bool keyed() const { return keyed_; }
  // A host gets a new key, which all trust before it is used. Its old one is trusted no more then.
  void ChangeKey(const std::string& host);

  // A store of the calling thread's process that has not taken the group. `host`: one of
  // kPrimaries.
  Result<std::unique_ptr<Store>> Open(const std::string& host, const Opening& opening);
  // The process of a primary on `host` dies, whatever it does. What its threads still do has no
  // effect; Bury ends them.
  void KillPrimary(uint64_t process, const std::string& host);
  bool IsDead(uint64_t process) const { return dead_.contains(process); }
  // Runs `end` as this process, on a thread of its own.
  void Bury(uint64_t process, std::function<void()> end);
  // The options of every store, to be changed before Open.
  StoreOptions& options() { return options_; }

 private:
  // The larger a region is, the longer a run takes.
  static constexpr uint64_t kFirstRegion = 1536 << 10;

  using EmbeddedReplica = test::EmbeddedReplica;
  struct Replica {
    std::unique_ptr<EmbeddedReplica> running;  // null: it is down
    uint64_t process = 0;
    uint16_t port = 0;
    bool disk_fails = false;
    // While it is down: what is durable of what the pool holds, and the node page in the pool.
    std::optional<EmbeddedReplica::Durable> durable;
    std::vector<std::byte> page;
  };
  struct Losses {
    bool planned = false, begun = false;
    Loss loss;
  };

  World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log, size_t count,
        bool apart);
  // The options of a store on this host.
  StoreOptions OptionsOf(const std::string& host, const Opening& opening) const;
  void MakeKeys();
  // Every host trusts just trusted_.
  void WriteTrusted() const;
  // The keys directory of a host; empty: hosts have no keys.
  std::string KeysOf(const std::string& host) const {
    return keyed_ ? folder_ + "/keys-" + host : "";
  }
  Replica& At(int replica) { return replicas_[static_cast<size_t>(replica)]; }
  const Replica& At(int replica) const { return replicas_[static_cast<size_t>(replica)]; }
  std::string PoolOf(const std::string& host) const { return folder_ + "/" + host; }
  std::string FilesOf(const std::string& host) const { return PoolOf(host) + ".files"; }
  // Where the replica keeps it; empty: it does not hold it.
  std::string PathOf(int replica, const WholeFile& file) const;
  // The process dies. `last`: called when it does nothing any more, before its pool is given to
  // others.
  void EndProcess(uint64_t process, const std::string& host, const std::function<void()>& last);
  void Lay(Replica& replica);
  int SyncDisk(const void* data, size_t size);
  // Opens a device of `host` while this process lives.
  DeviceOpener OpenerOf(const std::string& host, uint64_t process);
  EmbeddedReplica::Fate FateOf(const control::BodyUnion& request);

  const std::string folder_;
  std::mt19937_64& random_;
  const std::shared_ptr<Log> log_;
  StoreOptions options_;
  const std::vector<std::string> hosts_;
  Fabric fabric_;
  const bool on_disks_, keyed_, writes_metrics_;
  uint64_t region_size_ = kFirstRegion;
  std::vector<identity::TrustedPeer> trusted_;
  const int first_count_;
  std::vector<Replica> replicas_;
  Losses losses_;
  Promises promises_;
  uint64_t pools_lost_ = 0;
  std::set<uint64_t> dead_;  // processes
  std::vector<std::thread> graves_;
};

}  // namespace hyperloop::simulation
