// RanOutOfMemory: how a thread of a daemon handles one event, so that memory which runs out ends
// the client or connection of that event, and never the daemon.
//
// An event is guarded as a whole, where the thread takes it up. What it leaves half-done when it
// ends early must be something that its owner's end takes away: so the guard closes the connection,
// or ends the client. What outlives that owner is changed in steps that need no memory, behind
// those that do.
#pragma once

#include <new>
#include <stdexcept>

namespace hyperloop {

// Runs `event`. True: it ended early, because memory ran out.
template <class Event>
[[nodiscard]] bool RanOutOfMemory(Event&& event) {
  try {
    event();
    return false;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::length_error&) {  // a container cannot have that many elements
    return true;
  }
}

}  // namespace hyperloop
