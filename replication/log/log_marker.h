// Recognises the records of a RocksDB log that lead to free space, and may therefore take reserved
// space.
#pragma once

#include <string_view>

namespace hyperloop {

// Whether `data`, one append to a log file, is a whole record whose write batch commits or rolls
// back a prepared transaction and prepares none. RocksDB keeps every log since the oldest prepared
// transaction, so such a record may be the only way to make room. False for batches that are
// cut into several records or compressed, and for all other bytes.
bool EndsPreparedTransaction(std::string_view data);

// Whether `data`, one append to a log file, is a whole record whose write batch is empty. RocksDB
// begins its new log with such a record after it found a log cut in a record. It deletes the logs
// that it has recovered only after that.
bool IsEmptyBatch(std::string_view data);

// Whether `data`, one append to a log file, is a whole record that has no batch: it says how the
// records behind it are compressed, of which size their timestamps are, or which log came before.
// RocksDB begins its new log with such records, also before it deletes the logs that it has
// recovered.
bool DescribesLog(std::string_view data);

}  // namespace hyperloop
