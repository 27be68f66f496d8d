// Which bytes of a RocksDB log free space: those that end a prepared transaction.
#pragma once

#include <string_view>

namespace hyperloop {

// `data`, as one append to a log file, is a whole record whose write batch commits or rolls back a
// prepared transaction and prepares none. RocksDB keeps every log since the oldest prepared
// transaction, so that such a record may be the only way to make room. False for what is cut into
// several records or compressed, and for anything else.
bool EndsPreparedTransaction(std::string_view data);

}  // namespace hyperloop
