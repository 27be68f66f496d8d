// Repeat: for commands that show something again and again until the user ends them.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace hyperloop::ctl {

// Calls `look` at once, and then `interval` after each call's end, until SIGINT or SIGTERM; then it
// returns kExitOk. A second signal ends the program as usual, even in a call. On a terminal each
// call's output takes the place of the one before; elsewhere an empty line stands between them. If
// the first call does not return kExitOk and `give_up` is set, returns what it returned.
int Repeat(std::chrono::duration<double> interval, bool give_up, const std::function<int()>& look);

inline constexpr double kShortestInterval = 0.1, kLongestInterval = 3600;

// "2026-11-20T18:26:34Z", the time now.
std::string TimeNow();

}  // namespace hyperloop::ctl
