#include "log/log_marker.h"

#include <cstdint>
#include <optional>

namespace hyperloop {
namespace {

// A log record's header: CRC (4 B), length (2 B), type (1 B), and for recyclable records the log's
// number (4 B).
constexpr size_t kHeader = 7;
constexpr uint8_t kFullRecord = 1, kRecyclableFullRecord = 5;
// A write batch: sequence number (8 B), count (4 B), then operations, each with a tag (1 B).
constexpr size_t kBatchHeader = 12;
constexpr uint8_t kCommit = 0xb, kRollback = 0xc, kNoop = 0xd, kCommitWithTimestamp = 0x15;

// The batch in `data`, if `data` is one whole record.
std::optional<std::string_view> BatchOf(std::string_view data) {
  // RocksDB fills the rest of a block that is too short for a header with zeros.
  for (size_t i = 0; i < kHeader && !data.empty() && data.size() > kHeader; ++i) {
    const auto type = static_cast<uint8_t>(data[6]);
    const size_t length = static_cast<uint8_t>(data[4]) | size_t{static_cast<uint8_t>(data[5])}
                                                              << 8;
    const size_t header = type == kRecyclableFullRecord ? kHeader + 4 : kHeader;
    if ((type == kFullRecord || type == kRecyclableFullRecord) && data.size() == header + length)
      return data.substr(header);
    if (data.front() != 0) return std::nullopt;
    data.remove_prefix(1);
  }
  return std::nullopt;
}

class Operations {
 public:
  explicit Operations(std::string_view rest) : rest_(rest) {}
  bool done() const { return rest_.empty(); }
  uint8_t Tag() {
    const auto tag = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return tag;
  }
  bool SkipNumber(uint32_t* value) {
    *value = 0;
    for (unsigned shift = 0; shift <= 28 && !rest_.empty(); shift += 7) {
      const uint8_t byte = Tag();
      *value |= static_cast<uint32_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool SkipText() {
    uint32_t size = 0;
    if (!SkipNumber(&size) || size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }

 private:
  std::string_view rest_;
};

// What follows a tag: a column family's number or none, and some texts.
struct Shape {
  bool family;
  int texts;
};
std::optional<Shape> ShapeOf(uint8_t tag) {
  switch (tag) {
    case 0x0:  // deletion
    case 0x3:  // log data
    case 0x7:  // single deletion
    case kCommit:
    case kRollback:
      return Shape{false, 1};
    case 0x1:   // value
    case 0x2:   // merge
    case 0xf:   // range deletion
    case 0x11:  // blob index
    case kCommitWithTimestamp:
      return Shape{false, 2};
    case 0x4:  // deletion in a column family
    case 0x8:  // single deletion in one
      return Shape{true, 1};
    case 0x5:   // value in a column family
    case 0x6:   // merge in one
    case 0xe:   // range deletion in one
    case 0x10:  // blob index in one
      return Shape{true, 2};
    case kNoop:
      return Shape{false, 0};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool EndsPreparedTransaction(std::string_view data) {
  const std::optional<std::string_view> batch = BatchOf(data);
  if (!batch || batch->size() < kBatchHeader) return false;
  Operations operations(batch->substr(kBatchHeader));
  bool ends = false;
  while (!operations.done()) {
    const uint8_t tag = operations.Tag();
    const std::optional<Shape> shape = ShapeOf(tag);
    if (!shape) return false;
    uint32_t family = 0;
    if (shape->family && !operations.SkipNumber(&family)) return false;
    for (int i = 0; i < shape->texts; ++i) {
      if (!operations.SkipText()) return false;
    }
    ends = ends || tag == kCommit || tag == kRollback || tag == kCommitWithTimestamp;
  }
  return ends;
}

bool DescribesLog(std::string_view data) {
  if (data.size() < kHeader) return false;
  const auto type = static_cast<uint8_t>(data[6]);
  const size_t length = static_cast<uint8_t>(data[4]) | size_t{static_cast<uint8_t>(data[5])} << 8;
  switch (type) {
    case 9:    // compression
    case 10:   // sizes of timestamps
    case 130:  // the log before
      return data.size() == kHeader + length;
    case 11:  // the last two in a log that may be recycled
    case 131:
      return data.size() == kHeader + 4 + length;
    default:
      return false;
  }
}

bool IsEmptyBatch(std::string_view data) {
  const std::optional<std::string_view> batch = BatchOf(data);
  return batch && batch->size() == kBatchHeader;
}

}  // namespace hyperloop
