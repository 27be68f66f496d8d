// EventPipe: how the engine makes a client's completion channel readable without ever being held
// up by that client. The client gets the reading end; the writing end, with its non-blocking flag,
// is the engine's alone. When the engine's process is gone the reading end ends.
#pragma once

#include <memory>

#include "hyperloop/core/status.h"
#include "softrnic/unix_socket.h"

namespace hyperloop::softrnic {

class EventPipe {
 public:
  // Both ends non-blocking and close on exec.
  static Result<std::shared_ptr<EventPipe>> Create();

  // One byte, unless so many are unread that it is readable anyway. Never blocks, never SIGPIPE:
  // a reading end is kept here.
  void Signal();
  int reader() const { return reader_.get(); }

 private:
  EventPipe(int reader, int writer) : reader_(reader), writer_(writer) {}
  const UniqueFd reader_;
  const UniqueFd writer_;
};

}  // namespace hyperloop::softrnic
