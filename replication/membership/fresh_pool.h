// How a replica joins whose pool is of another history, or another group: for the end of a message.
#pragma once

namespace hyperloop {

inline constexpr char kFreshPool[] =
    "set its pool aside (keep it: it may be the last copy of what it holds), and start it with a "
    "fresh one";

}  // namespace hyperloop
