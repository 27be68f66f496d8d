// Trial: the group of one run, who has it, and what must hold of it. Steps (steps.h) do something
// to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "region/region_layout.h"
#include "simulation/history.h"
#include "simulation/primary.h"
#include "simulation/replica_sets.h"
#include "simulation/tables.h"
#include "simulation/world.h"

namespace hyperloop::simulation {

inline constexpr int kMostOpens = 60;
inline constexpr uint64_t kMostMessages = 64;  // that change replicas, of one opening
// More than a replica takes to open its RNIC again.
inline constexpr std::chrono::seconds kRnicOpens{2};

class Trial {
 protected:
  Trial(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log);
  ~Trial() = default;
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // --- numbers by the seed
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  template <class Numbers>
  auto AnyOf(const Numbers& numbers) {
    return *std::next(numbers.begin(), static_cast<ptrdiff_t>(Below(numbers.size())));
  }
  int AnyReplica() { return AnyOf(sets_.All()); }
  // One of the replicas, or the primary's host.
  std::string AnyHost();

  void Say(const std::string& what) const;
  // The run is not sound. The first thing that is said counts.
  void Wrong(const std::string& what);

  // --- openings (trial_openings.cc)
  // What an opening by this list says otherwise. While a replica with a fresh pool waits for its
  // content, none is granted that leaves out nothing.
  Opening By(const ReplicaList& list, bool takeover) const { return {list, takeover, lost_pool_}; }
  // Opens the group on one of kPrimaries, reads it and compares. The calling thread is one of the
  // primary's process. Null: not now.
  std::unique_ptr<Primary> Open(size_t host, const Opening& opening);
  std::unique_ptr<Primary> OpenAsNewProcess(size_t host, const Opening& opening);
  // By any list that may be right.
  std::unique_ptr<Primary> OpenAsNewProcess(size_t host, bool takeover);
  // Opens the group, which can be opened by one of the lists, unless others disturb.
  void OpenSoon();
  void OpenAndDie(size_t host, const Opening& opening, std::optional<Loss> loss = {});
  // Opens the group, and calls `trouble` with the opening's process when a message is lost; if none
  // is to be lost, at any moment while it opens, or soon after that. Returns a primary that lives.
  std::unique_ptr<Primary> OpenInTrouble(size_t host, const Opening& opening,
                                         const std::optional<Loss>& loss,
                                         const std::function<void(uint64_t)>& trouble);
  Loss LossAt(Loss::What what) { return {what, Below(kMostMessages)}; }
  // The process dies.
  void Vanish(std::unique_ptr<Primary>& primary);
  void Bury(std::shared_ptr<Primary> dead);
  void Restart(int replica, bool power);
  void Heal();
  // From now on each replica is up or down, whatever it was.
  void Shuffle();
  Result<std::unique_ptr<Primary>> TryOpen(size_t host, const Opening& opening);
  static Result<FileId> FileOf(Store& store);
  static Result<std::string> ReadCurrent(Store& store);
  // As the plugin takes a directory: each table that the log names has to be there, or with a
  // replica.
  TakeRequest RequestOf(size_t host);
  // The tables that the log names and that have to be in the directory or with a replica.
  static std::set<uint64_t> NeededIn(const GroupFiles& group);
  // The bytes of a table, from the lane in which it is.
  static Result<std::string> ReadTable(Store& store, uint64_t table, const FileInfo& file);
  // The directory gets the tables that it lacks, and tables that are not named are removed.
  Status BringTables(Store& store, size_t host, const std::set<uint64_t>& live,
                     const std::vector<FileInfo>& files);

  // --- what must hold (trial_checks.cc)
  // What a replica has promised survives a power failure.
  void CheckDurable(const ReplicaList& list, uint64_t epoch);
  // Nobody serves. Each member of the newest configuration that served holds all that was
  // acknowledged or read, by itself, even after a power failure now. Members of newer ones were
  // made equal to one of these before.
  void CheckMembersAlone();
  // Only what was asked for is recorded.
  void CheckRecorded(const Configuration& newest);
  std::string WrongAlone(std::span<std::byte> image) const { return WrongAlone(image, history_); }
  static std::string WrongAlone(std::span<std::byte> image, const History& history);
  // The epoch of the configuration that the replica has recorded; 0: none.
  uint64_t Recorded(int replica);
  // Whether all these replicas are up, and members of one configuration without others.
  bool Holds(const ReplicaList& list);
  // Whether the group is known, and each of its replicas is up and holds what the others do.
  bool Settled();
  // The tables that the log may name, as far as each replica holds them as whole files.
  std::set<uint64_t> HeldByAll() const;
  // Whether each replica holds each table that the log may name, in its region or as a whole file.
  bool HoldAllTables();
  std::set<std::string> NamesInRegion(int replica);
  void CheckTables();
  void CheckPromises();
  // Somebody opens the group by replicas that it no longer has, or never had.
  void TryFormerSet();
  void MustNotServe(const ReplicaList& list, bool leaves_out);

  std::mt19937_64 random_;
  const std::shared_ptr<Log> log_;
  Tables tables_;
  World world_;
  ReplicaSets sets_;
  History history_;
  bool continues_ = false;
  bool lost_pool_ = false;  // a replica has a fresh pool, which no opening has seen filled
  WriterOptions writer_;
  Pairing pairing_;
  std::unique_ptr<Primary> primary_;
  Status refusal_;
  size_t host_ = 0;  // of primary_, in kPrimaries
  std::string wrong_;

 private:
  void ChooseOptions(uint64_t seed);
};

}  // namespace hyperloop::simulation
