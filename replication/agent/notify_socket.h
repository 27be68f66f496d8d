// NotifySocket: hears whether the service says that it is ready (sd_notify, READY=1).
//
// Any local process may send to it. Those of root and of this process's user are believed, and
// those in the service's process group, which may have taken another user.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::agent {

class NotifySocket {
 public:
  // In the abstract namespace, by a name that nobody guesses.
  static Result<NotifySocket> Make();

  const std::string& name() const { return name_; }  // for NOTIFY_SOCKET
  int fd() const { return fd_.get(); }               // readable once somebody has said something
  // Whether it was said now by one who is believed. Takes a bounded number of messages.
  bool Hears(pid_t group) const;

 private:
  NotifySocket(std::string name, UniqueFd fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  std::string name_;
  UniqueFd fd_;
};

}  // namespace hyperloop::agent
