#include "group/ordering.h"

#include <bit>

namespace hyperloop {

Ordering::Ordering(uint32_t window)
    : mask_(std::bit_ceil(uint64_t{window}) - 1), entries_(mask_ + 1) {}

}  // namespace hyperloop
