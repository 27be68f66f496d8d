// The one place where a Status of ours becomes an IOStatus of RocksDB.
#pragma once

#include <rocksdb/io_status.h>

#include <string_view>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// ok → OK; kFenced → IOFenced (RocksDB stops writing for good); kUnavailable, kTimedOut, kAborted →
// a retryable IOError (the group may come back, and RocksDB resumes by itself; whether the failed
// call took effect is open); kNoSpace → NoSpace; kInvalidArgument, kBusy, kNotFound, kNotSupported,
// kCorruption → the same of RocksDB's; anything else → a plain IOError. The message is "context:
// code: message".
rocksdb::IOStatus ToIOStatus(const Status& status, std::string_view context);

// The reverse, for errors of the local file system that pass through code of ours.
Status FromIOStatus(const rocksdb::IOStatus& status, std::string_view context);

}  // namespace hyperloop::plugin
