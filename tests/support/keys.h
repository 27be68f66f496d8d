// Keys directories for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hyperloop/identity/keys.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

inline std::string KeysDir(const std::string& folder, const std::string& host) {
  return folder + "/keys-" + host;
}

// Makes KeysDir of each of `hosts`, which trust each other, and themselves, with `roles`.
inline void MakeKeys(const std::string& folder, const std::vector<std::string>& hosts,
                     identity::Roles roles = identity::kEveryRole) {
  std::vector<identity::TrustedPeer> all;
  for (const std::string& host : hosts) {
    ASSERT_OK(identity::MakeIdentity(KeysDir(folder, host), host));
    const auto ring = identity::KeyRing::Load(KeysDir(folder, host));
    ASSERT_OK(ring);
    all.push_back({host, (*ring)->public_key(), roles});
  }
  for (const std::string& host : hosts)
    for (const identity::TrustedPeer& each : all)
      ASSERT_OK(identity::Trust(KeysDir(folder, host), each));
}

}  // namespace hyperloop::test
