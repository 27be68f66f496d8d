// EventPipe: the engine makes a client's completion channel readable and is never delayed by that
// client. The client gets the reading end; only the engine has the writing end, with its
// non-blocking flag. When the engine's process is gone, the reading end reads end of file.
#pragma once

#include <memory>
#include <utility>

#include "hyperloop/core/status.h"
#include "softrnic/commands/unix_socket.h"

namespace hyperloop::softrnic {

class EventPipe {
 public:
  // Both ends non-blocking and close on exec.
  static Result<std::shared_ptr<EventPipe>> Create();

  // Writes one byte, unless the pipe is full and so readable anyway. It never blocks, and never
  // raises SIGPIPE, because a reading end is kept here.
  void Signal();
  int reader() const { return reader_.get(); }

 private:
  EventPipe(UniqueFd reader, UniqueFd writer)
      : reader_(std::move(reader)), writer_(std::move(writer)) {}
  const UniqueFd reader_;
  const UniqueFd writer_;
};

}  // namespace hyperloop::softrnic
