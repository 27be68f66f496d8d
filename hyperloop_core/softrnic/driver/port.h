// CommandPort: carries the driver's commands to an engine. The rest of the driver is the same for
// every port.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"
#include "softrnic/commands/commands.h"
#include "softrnic/commands/unix_socket.h"

namespace hyperloop::softrnic {

class CommandPort {
 public:
  virtual ~CommandPort() = default;

  // Executes one command other than kOpen and kRegisterUmem. A refusal of the engine is returned as
  // its Status; kUnavailable: the engine is out of reach. `text`, if not null, gets the text behind
  // the reply. Thread safe; may block.
  virtual Status Execute(const Command& command, Reply* reply, std::string* text) = 0;
  // Executes kRegisterUmem. Returns the umem's id. `fd` is duplicated; ports that reach memory by
  // pointer ignore it.
  virtual Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int fd) = 0;

  // Executes kCreateCq with events. Returns the descriptor that an armed completion makes readable:
  // one byte for each event, and end of file when the engine is gone.
  virtual Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply) = 0;

  // Whether RegisterUmem needs a descriptor.
  virtual bool needs_fd() const = 0;
  // What the engine answered when this client was attached.
  virtual const OpenReply& attachment() const = 0;
  // Mapped until the port is destroyed.
  virtual UarPage* uar() const = 0;

  // Wakes a sleeping engine: called only after UarHeader::engine_sleeping was seen set. Thread
  // safe, never blocks.
  virtual void WakeEngine() = 0;
  // True once the engine was killed, and so could not clear engine_alive in the UAR page, or did
  // not answer a command. In the second case it may still run the client's queues, but takes no
  // more commands from it. Costs a system call. Thread safe.
  virtual bool EngineGone() = 0;
};

}  // namespace hyperloop::softrnic
