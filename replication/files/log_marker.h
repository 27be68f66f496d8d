// Which records of a RocksDB log may take reserved space: those that lead to free space.
#pragma once

#include <string_view>

namespace hyperloop {

// `data`, as one append to a log file, is a whole record whose write batch commits or rolls back a
// prepared transaction and prepares none. RocksDB keeps every log since the oldest prepared
// transaction, so that such a record may be the only way to make room. False for what is cut into
// several records or compressed, and for anything else.
bool EndsPreparedTransaction(std::string_view data);

// `data`, as one append to a log file, is a whole record whose write batch is empty. RocksDB begins
// its new log with one when it opened a database whose last log was cut in a record; only after that
// it deletes the logs that it has recovered.
bool IsEmptyBatch(std::string_view data);

}  // namespace hyperloop
