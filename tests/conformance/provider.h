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
  // What ConnectService calls `host`.
  virtual std::string ServiceHost(const std::string& host) { return host; }
  // Whether the device may say `got` where verbs' rules say `expected`.
  virtual bool Reports(rnic::WcStatus expected, rnic::WcStatus got) const {
    return got == expected;
  }
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
// EngineLoop in this process; served by hyperloop-rnicd. And verbs, where the environment names an
// RDMA device (HYPERLOOP_VERBS_DEVICE) with an address (HYPERLOOP_VERBS_ADDRESS).
const std::vector<ProviderKind>& Providers();

// Why `test` ("Suite.Test") is left out for a provider, by tests/conformance/allowed_skips.txt;
// empty: it is not.
std::string AllowedSkip(const std::string& provider, const std::string& test);

}  // namespace hyperloop::test
