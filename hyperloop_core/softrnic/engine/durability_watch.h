// DurabilityWatch: is told what arrives in memory and what is flushed (EngineTestHooks::watch).
// Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop::softrnic {

class DurabilityWatch {
 public:
  virtual ~DurabilityWatch() = default;
  // The bytes at [at, at + size) have just arrived by queue pair `qpn`.
  virtual void Arrived(uint32_t qpn, const std::byte* at, size_t size) = 0;
  // `qpn` serves a READ.
  virtual void Flushed(uint32_t qpn) = 0;
  // `qpn` was reset or destroyed: no READ will ever flush its pending bytes.
  virtual void Gone(uint32_t qpn) = 0;
};

}  // namespace hyperloop::softrnic
