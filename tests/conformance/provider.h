// The RNIC providers that the conformance suite runs over.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"

namespace hyperloop::test {

// A running RNIC with as many emulated hosts as asked for.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) = 0;
  // Called while a test waits: lets a device work that does not by itself.
  virtual void Drive() = 0;
  // Whether the device works only in Drive, so that posting is separate from execution.
  virtual bool stepped() const { return false; }
};

struct ProviderKind {
  std::string name;
  std::function<std::unique_ptr<Provider>()> make;
};
inline void PrintTo(const ProviderKind& kind, std::ostream* out) { *out << kind.name; }

// softrnic embedded and stepped by hand; embedded on a thread; served by ControlServer and
// EngineLoop in this process; served by hyperloop-rnicd.
const std::vector<ProviderKind>& Providers();

}  // namespace hyperloop::test
