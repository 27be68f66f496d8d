// Who holds RocksDB's lock on a database directory.
#pragma once

#include <sys/types.h>

#include <string>

namespace hyperloop::plugin {

// The process that holds a lock of fcntl on the file, as RocksDB takes it on LOCK, and which may be
// this one. 0: none, or none that this process may see. It reads /proc/locks and leaves the file
// alone, because closing any descriptor of it would give up the lock that this process may hold.
// Where stat and /proc/locks give the file different devices (btrfs, some overlay file systems), it
// finds none either.
pid_t LockHolder(const std::string& file);

}  // namespace hyperloop::plugin
