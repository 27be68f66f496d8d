#include "group/ordering.h"

#include <bit>

namespace hyperloop {

Ordering::Ordering(uint32_t window, CopiesTake copies_take)
    : copies_of_primary_(copies_take == CopiesTake::kPrimarysBytes),
      mask_(std::bit_ceil(uint64_t{window}) - 1),
      entries_(mask_ + 1) {}

}  // namespace hyperloop
