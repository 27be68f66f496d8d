#include "group/check_operation.h"

#include <bit>

#include "hyperloop/core/text.h"

namespace hyperloop {

namespace {

bool Overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

Status CheckRange(const char* what, uint64_t offset, uint64_t size, uint64_t region_size) {
  if (size > kMaxPart) {
    return InvalidArgument(
        Text(what, " of ", size, " B: at most ", kMaxPart, " B in one operation; split it"));
  }
  if (offset > region_size || size > region_size - offset) {
    return InvalidArgument(Text(what, " of ", size, " B at offset ", offset,
                                " leaves the region of ", region_size, " B"));
  }
  return Status::Ok();
}

}  // namespace

Status CheckOperation(const Operation& op, uint64_t region_size, uint32_t group_size) {
  const auto inside = [region_size](uint64_t offset, uint64_t bytes) {
    return bytes <= kMaxPart && offset <= region_size && bytes <= region_size - offset;
  };
  if (!inside(op.write.offset, op.write.size))
    return CheckRange("gWRITE", op.write.offset, op.write.size, region_size);
  if (op.copy.size != 0) {
    const Operation::Copy& copy = op.copy;
    if (!inside(copy.source, copy.size))
      return CheckRange("gMEMCPY source", copy.source, copy.size, region_size);
    if (!inside(copy.destination, copy.size))
      return CheckRange("gMEMCPY destination", copy.destination, copy.size, region_size);
    if (Overlap(copy.source, copy.size, copy.destination, copy.size)) {
      return InvalidArgument(Text("gMEMCPY of ", copy.size, " B from ", copy.source, " to ",
                                  copy.destination, ": source and destination overlap"));
    }
    if (op.write.size != 0 &&
        (Overlap(op.write.offset, op.write.size, copy.source, copy.size) ||
         Overlap(op.write.offset, op.write.size, copy.destination, copy.size))) {
      return InvalidArgument(Text("gWRITE of ", op.write.size, " B at ", op.write.offset,
                                  " overlaps the gMEMCPY of ", copy.size, " B from ", copy.source,
                                  " to ", copy.destination,
                                  " in the same operation; make it two operations"));
    }
  }
  if (op.cas.present) {
    if (!inside(op.cas.offset, sizeof(uint64_t)))
      return CheckRange("gCAS", op.cas.offset, sizeof(uint64_t), region_size);
    if (op.cas.offset % sizeof(uint64_t) != 0) {
      return InvalidArgument(
          Text("gCAS at offset ", op.cas.offset, ": it must be a multiple of 8"));
    }
    if (op.cas.execute_map >> group_size != 0) {
      return InvalidArgument(Text("gCAS execute map names replica ",
                                  std::bit_width(op.cas.execute_map) - 1, ", beyond the ",
                                  group_size, " of the group"));
    }
    if (op.write.size != 0 &&
        Overlap(op.write.offset, op.write.size, op.cas.offset, sizeof(uint64_t))) {
      return InvalidArgument(Text("gWRITE of ", op.write.size, " B at ", op.write.offset,
                                  " overlaps the gCAS at ", op.cas.offset,
                                  " in the same operation; make it two operations"));
    }
  }
  return Status::Ok();
}

}  // namespace hyperloop
