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
  // The name of `host` for ConnectService.
  virtual std::string ServiceHost(const std::string& host) { return host; }
  // Whether the device may report `got` where the rules of verbs demand `expected`.
  virtual bool Reports(rnic::WcStatus expected, rnic::WcStatus got) const {
    return got == expected;
  }
  // Called while a test waits: steps a device that does not work by itself.
  virtual void Drive() = 0;
  // Whether the device works only in Drive, so that posting is separate from execution.
  virtual bool stepped() const { return false; }
};

struct ProviderKind {
  std::string name;
  std::function<std::unique_ptr<Provider>()> make;
};
inline void PrintTo(const ProviderKind& kind, std::ostream* out) { *out << kind.name; }

// The providers: softrnic embedded and stepped by hand; embedded on a thread; served by
// ClientServer and EngineLoop in this process; served by hyperloop-rnicd; and verbs, if the
// environment names an RDMA device (HYPERLOOP_VERBS_DEVICE) with an address
// (HYPERLOOP_VERBS_ADDRESS).
const std::vector<ProviderKind>& Providers();

// The reason in tests/conformance/allowed_skips.txt for which a provider skips `test`
// ("Suite.Test"); empty: the test must run.
std::string AllowedSkip(const std::string& provider, const std::string& test);

}  // namespace hyperloop::test
