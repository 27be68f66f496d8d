// Snapshot: what a replica holds, as a directory of its own that stock RocksDB opens, to write to,
// too. A ReplicaFollower builds it in BuildingPlace, beside its final name. So its logs and
// MANIFEST are copies, its other files are hard links of the replica's where the file system allows
// it, and it shows nothing that is not acknowledged. It gets its name when all of it is durable.
// What a call that was cut short has built, the next one goes on with.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop {

// Where the snapshot `to` is built.
std::string BuildingPlace(const std::string& to);

// Judges whether a snapshot of that replica may be begun, and changes nothing. `files`: the
// replica's directory of whole files; empty: it is not known. kAlreadyExists: something is there.
// kPermissionDenied: others may move what lies there, the replica's files are another user's, or
// somebody else has put something in BuildingPlace. kCorruption: the replica's log is damaged.
// kNotFound: it holds no database, or its files are not there. kInvalidArgument: the database has
// tables, and `files` is empty. kNoSpace: there is no room for the copies.
Status JudgeSnapshot(const std::string& to, const NodeStatus& replica, const std::string& files);

// Before the follower begins: one whose end was cut short is a followed directory again. kBusy:
// another call is about to end it.
Status ResumeSnapshot(const std::string& to);

struct SnapshotReport {
  uint64_t files = 0, bytes = 0;
  uint64_t linked_bytes = 0;  // of them, in files that have another name still
};
// Makes everything durable that the follower has built, and gives it its name. The follower lives
// still, which keeps others from building there, and shows nothing more.
Result<SnapshotReport> FinishSnapshot(const std::string& to);

}  // namespace hyperloop
