// Uuid: 16 random bytes that name a group, a node, an owner or a database.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"

namespace hyperloop {

using Uuid = std::array<uint8_t, 16>;

inline constexpr Uuid kNilUuid{};

// "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", lower case.
std::string FormatUuid(const Uuid& uuid);
// Accepts exactly that form, in either case. kInvalidArgument: another form.
Result<Uuid> ParseUuid(std::string_view text);

}  // namespace hyperloop
