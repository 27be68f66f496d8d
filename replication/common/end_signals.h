// How programs are asked to end: SIGTERM and SIGINT, through a descriptor.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

inline sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// To be called before any thread starts, so that the descriptor alone takes them.
inline void BlockEndSignals() {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// A descriptor that is readable once one of them, which are blocked, has come.
inline Result<UniqueFd> EndSignalDescriptor() {
  const sigset_t signals = EndSignals();
  UniqueFd fd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) return FromErrno(errno, "signalfd");
  return fd;
}

// Whether one has come since the last call; takes all that have.
inline bool WasAskedToEnd(const UniqueFd& fd) {
  signalfd_siginfo info;
  bool any = false;
  while (read(fd.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) any = true;
  return any;
}

}  // namespace hyperloop
