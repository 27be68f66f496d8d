// Recognises the records of a RocksDB log that lead to free space in the group.
#pragma once

#include <string_view>

namespace hyperloop::plugin {

// Whether `data`, one append to a log, must not wait for free space, because RocksDB frees some
// only after it. `begins`: it is the log's first append. That is so for
// - a whole record whose write batch commits or rolls back a prepared transaction and prepares
//   none: RocksDB keeps every log since the oldest prepared transaction;
// - at the beginning of a log, a whole record whose write batch is empty: with it RocksDB begins
//   its new log after it found a log cut in a record, and deletes what it has recovered only then;
// - at the beginning of a log, a whole record without a batch: it says how the records behind it
//   are compressed, of which size their timestamps are, or which log came before.
// False for batches that are cut into several records or compressed, and for all other bytes.
// Thread safe. It copies the batch.
bool LeadsToSpace(std::string_view data, bool begins);

}  // namespace hyperloop::plugin
