// Keys directories for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hyperloop/identity/keys.h"

namespace hyperloop::test {

inline std::string KeysDir(const std::string& folder, const std::string& host) {
  return folder + "/keys-" + host;
}

// Makes KeysDir of each of `hosts`, which trust each other, and themselves, with `roles`.
inline void MakeKeys(const std::string& folder, const std::vector<std::string>& hosts,
                     identity::Roles roles = identity::kEveryRole) {
  std::vector<identity::TrustedPeer> all;
  for (const std::string& host : hosts) {
    ASSERT_TRUE(identity::MakeIdentity(KeysDir(folder, host), host).ok());
    const auto ring = identity::KeyRing::Load(KeysDir(folder, host));
    ASSERT_TRUE(ring.ok()) << ring.status().ToString();
    all.push_back({host, (*ring)->public_key(), roles});
  }
  for (const std::string& host : hosts)
    for (const identity::TrustedPeer& each : all)
      ASSERT_TRUE(identity::Trust(KeysDir(folder, host), each).ok());
}

}  // namespace hyperloop::test
