#include "log_marker.h"

#include <cstdint>
#include <optional>
#include <string>

#include "batch_handler.h"
#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::plugin {
namespace {

// A log record's header: CRC (4 B), length (2 B), type (1 B), and for recyclable records the log's
// number (4 B).
constexpr size_t kHeader = 7;
constexpr uint8_t kFullRecord = 1, kRecyclableFullRecord = 5;
// A write batch: sequence number (8 B), count (4 B), then operations.
constexpr size_t kBatchHeader = 12;

uint8_t TypeOf(std::string_view record) { return static_cast<uint8_t>(record[6]); }
size_t LengthOf(std::string_view record) {
  return static_cast<uint8_t>(record[4]) | size_t{static_cast<uint8_t>(record[5])} << 8;
}

// The batch in `data`, if `data` is one whole record.
std::optional<std::string_view> BatchOf(std::string_view data) {
  // RocksDB fills the rest of a block that is too short for a header with zeros.
  for (size_t i = 0; i < kHeader && data.size() > kHeader; ++i) {
    const uint8_t type = TypeOf(data);
    const size_t header = type == kRecyclableFullRecord ? kHeader + 4 : kHeader;
    if ((type == kFullRecord || type == kRecyclableFullRecord) &&
        data.size() == header + LengthOf(data))
      return data.substr(header);
    if (data.front() != 0) return std::nullopt;
    data.remove_prefix(1);
  }
  return std::nullopt;
}

// RocksDB takes a handler's error at these marks for a fault of its own, so none is one.
class TransactionEnds final : public BatchHandler {
 public:
  // A transaction ends, and none is prepared.
  bool leads() const { return found_ && !prepares_; }
  rocksdb::Status MarkBeginPrepare(bool) override {
    prepares_ = true;
    return rocksdb::Status::OK();
  }
  rocksdb::Status MarkEndPrepare(const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status MarkCommit(const rocksdb::Slice&) override { return Found(); }
  rocksdb::Status MarkRollback(const rocksdb::Slice&) override { return Found(); }

 private:
  rocksdb::Status Entry(uint32_t) override { return rocksdb::Status::OK(); }
  rocksdb::Status Found() {
    found_ = true;
    return rocksdb::Status::OK();
  }

  bool found_ = false, prepares_ = false;
};

// Without memory to look at it, nothing is known to end.
bool EndsTransactionsOnly(std::string_view batch) {
  bool ends_only = false;
  const bool no_memory = RanOutOfMemory([&] {
    TransactionEnds ends;
    ends_only = rocksdb::WriteBatch(std::string(batch)).Iterate(&ends).ok() && ends.leads();
  });
  return ends_only && !no_memory;
}

// Whether it is a whole record that has no batch.
bool DescribesLog(std::string_view data) {
  if (data.size() < kHeader) return false;
  switch (TypeOf(data)) {
    case 9:    // compression
    case 10:   // sizes of timestamps
    case 130:  // the log before
      return data.size() == kHeader + LengthOf(data);
    case 11:  // the last two in a log that may be recycled
    case 131:
      return data.size() == kHeader + 4 + LengthOf(data);
    default:
      return false;
  }
}

}  // namespace

bool LeadsToSpace(std::string_view data, bool begins) {
  const std::optional<std::string_view> batch = BatchOf(data);
  if (!batch) return begins && DescribesLog(data);
  if (batch->size() == kBatchHeader) return begins;
  return batch->size() > kBatchHeader && EndsTransactionsOnly(*batch);
}

}  // namespace hyperloop::plugin
