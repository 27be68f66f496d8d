// EmbeddedRnic: a software RNIC in this process, for tests and simulation: the same engine and the
// same driver as with hyperloop-rnicd, without the daemon.
//
//   EmbeddedRnic rnic({});
//   auto device = rnic.OpenDevice("h0");       // as many hosts and devices as wanted
//   ... qp->Post(...);
//   while (rnic.engine().Step()) {}            // by hand: single-threaded, deterministic
//
// Between StartThread and StopThread the engine runs on a thread of its own, and sleeps when idle.
// The program then uses the devices as it would a daemon's, a thread sanitizer sees both sides, and
// engine() must be left alone. Device objects may be used as rnic.h says in both modes. Devices
// keep the engine alive.
#pragma once

#include <memory>
#include <string>

#include "hyperloop/core/rnic.h"
#include "softrnic/engine/engine.h"
#include "softrnic/loop/engine_loop.h"

namespace hyperloop::softrnic {

class EmbeddedCore;

class EmbeddedRnic {
 public:
  explicit EmbeddedRnic(EngineOptions options = {});
  ~EmbeddedRnic();  // stops the thread
  EmbeddedRnic(const EmbeddedRnic&) = delete;
  EmbeddedRnic& operator=(const EmbeddedRnic&) = delete;

  Engine& engine();
  // Attaches to the emulated host `host`, created on first use. Memory is reached by pointer: any
  // memory of the process may be registered, with or without a descriptor.
  Result<std::unique_ptr<rnic::Device>> OpenDevice(const std::string& host);
  // Ends the devices that `host` has opened, as the daemon does when a process dies: everything
  // that they made is destroyed, and all their calls fail from now on, with kUnavailable. Devices
  // that are opened after that are not concerned. Any thread may call it, but for the engine's.
  void CloseHost(const std::string& host);

  // Runs the engine on a thread of its own, until StopThread or destruction.
  Status StartThread(EngineLoopOptions options = {});
  void StopThread();
  // Ends a sleep of that thread: an attached port has events (Engine::AttachPort).
  void Wake();
  // EngineLoop::RunWhileAsleep. False without that thread.
  bool RunWhileAsleep();

 private:
  const std::shared_ptr<EmbeddedCore> core_;
};

}  // namespace hyperloop::softrnic
