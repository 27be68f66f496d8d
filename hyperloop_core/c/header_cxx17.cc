// The public C header alone, as C++17 (-std=c++17 -pedantic-errors).
#include <type_traits>

#include "hyperloop/core/hyperloop.h"

static_assert(sizeof(hl_info) == 256 && std::is_trivially_copyable_v<hl_info>);
static_assert(std::is_same_v<decltype(hl_wait), hl_code(hl_group*, hl_ticket, uint64_t*)>);
