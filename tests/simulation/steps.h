// Steps: what happens to the group of a run, one thing after the other. Each begins and ends with a
// primary that has the group, unless the run is not sound.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "simulation/trial.h"

namespace hyperloop::simulation {

class Steps : public Trial {
 protected:
  using Trial::Trial;

  // Does one of them, by the seed.
  void Step();
  // --- after the last step (steps_force.cc)
  // Replicas that are no majority go on by force while the others are down. From then on neither
  // side gets the content of the other one, whoever opens the group, by whichever list.
  void GoOnByForce();
  // --- when nobody has the group, and all its replicas are well (steps_tools.cc)
  // What an operator exports from a replica is the database.
  void Export(int replica);
  // The pools of all replicas get larger regions. While only some have, the group does not open.
  void Resize();

 private:
  // --- primaries come and go (steps_primaries.cc)
  void CloseAndOpen();
  // A primary opens a group some of whose replicas are down. If it may, it has everything.
  void OpenWithSome();
  // Another primary takes the group while this one appends. One of the two has it afterwards.
  void Takeover();
  // Two primaries take the group at the same time. It belongs to the one that was granted it last.
  void Race();
  // The process is stopped a moment from now, for up to two seconds.
  void Stall(uint64_t process);
  // The primary is stopped, perhaps while it brings the group back. Another one takes the group,
  // and has it when the first one wakes up.
  void WakeUpLate();
  // A primary dies while it opens the group, or soon after that. It takes the group from a primary
  // that lives, or nobody has the group.
  void DieWhileOpening();
  // A replica missed what was acknowledged without it. A primary seals it, and some of the others,
  // and dies.
  void SealOneThatIsBehind();

  // --- replicas, links, disks and power fail (steps_faults.cc)
  void StopOrStart(int replica);
  void StopReplica(int replica);
  // The processes of all replicas are stopped, while their RNICs serve on. The primary appends, and
  // no file may leave the region. Afterwards it may be gone, with all directories.
  void StopAllReplicas();
  // The process of a replica is stopped for longer than heartbeat_timeout, while its RNIC serves
  // on. The primary goes on without it.
  void SilenceReplica();
  void CutAndHeal(int replica);
  void DisturbLink();
  // The RNIC of one machine ends and starts again, under replicas and a primary that live. Each of
  // them opens it anew.
  void RestartRnic();
  void LoseAllPower();
  // A replica's disk fails to write once. The replica serves nothing from then on, until it starts
  // again with what the disk holds. Another primary may take the group before.
  void FailDisk();
  // A pool is gone for good, and a fresh one takes its place.
  void LosePool();
  // The next opening finds the damage and mends it.
  void DamageOne();
  // The disk of a replica changes a table. If nobody reads the table before, the replica finds that
  // once it has nothing else to do, and the primary sends the table again.
  void DamageTable();
  // The next primary has none of the tables, and gets them from the replicas.
  void LoseDirectories();
  void LoseDirectoriesNow();

  // --- the group's replicas change (steps_replicas.cc)
  // A primary opens the group with another replica, or without one. It dies meanwhile, or it is not
  // answered, or a replica dies. It takes the group from a primary that lives, or nobody has it.
  void ChangeReplicas();
  // Several changes of the same group are cut short one after the other. Whatever is served then,
  // nobody serves by the other replicas.
  void ChangesCutShort();
  // Somebody proposes one more replica while a primary serves. The primary may die, or others fail,
  // before it is a member.
  void AddWhileItServes();
  // A group with another replica, or without one.
  ReplicaList Changed(const ReplicaList& list);
  // It runs, with a fresh pool, or with one of an earlier time.
  void Enlist(int replica);
  std::unique_ptr<Primary> Change(size_t host, const Opening& opening);
  // The primary that has the group was perhaps replaced by `next`.
  void Replace(std::unique_ptr<Primary> next, size_t host);
  // Some replicas have installed the change, which is installed first at those that stay, then at
  // all `replicas`.
  Loss LossOfInstalls(uint64_t replicas);
  // Perhaps one dies that has not recorded the newest configuration, if there is one.
  void KillOneThatIsBehind();
  // The primary and all replicas with which it serves are gone. Nobody may serve by the others.
  void ServeWithoutThese();

  // --- what an operator does while a primary serves (steps_tools.cc)
  // Somebody reads a replica. It is sound, and holds all that was acknowledged before.
  void Inspect(int replica);
  void ChangeKey(const std::string& host);

  // --- by force (steps_force.cc)
  // The two sides of a group after replicas were given up that were not lost.
  struct Sides {
    std::set<int> kept, given_up;
    History former;  // all that happened before
  };
  static ReplicaList ListOf(const std::set<int>& replicas);
  // Just these are known to be lost.
  void CheckSurvivors(const Sides& sides, const ReplicaList& list);
  // Somebody opens the group by either side's replicas, or by all, while all or one side is up.
  void OpenASide(const Sides& sides, const std::set<int>& all);
  void OpenAfterwards(const ReplicaList& list);
  // Until no log shows any more what was in it before.
  void WriteOverJournal(Store& store);
  void CheckSides(const Sides& sides);
  void CheckSide(int replica, const History& history, const std::string& what);
  void OpenKept(const Sides& sides);
};

}  // namespace hyperloop::simulation
