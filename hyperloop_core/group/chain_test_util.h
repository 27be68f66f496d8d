// What tests of groups share beside the Chain itself.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "group/chain_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop {

// Null, and a failure of the running test, if there is none.
inline std::unique_ptr<Chain> MakeChain(const ChainOptions& options) {
  auto chain = Chain::Create(options);
  EXPECT_OK(chain);
  return chain.ok() ? std::move(chain).value() : nullptr;
}

inline uint64_t Word(std::span<const std::byte> bytes, uint64_t offset) {
  uint64_t value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

inline void SetWord(std::span<std::byte> bytes, uint64_t offset, uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

}  // namespace hyperloop
