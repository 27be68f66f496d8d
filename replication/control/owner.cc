#include "control/owner.h"

#include <sodium.h>

#include <algorithm>
#include <string_view>

namespace hyperloop {

Uuid OwnerDigest(const Uuid& id) {
  constexpr std::string_view kKey = "HyperLoop owner of an epoch";
  static_assert(kKey.size() >= crypto_generichash_KEYBYTES_MIN);
  Uuid digest;
  static_assert(sizeof(digest) >= crypto_generichash_BYTES_MIN);
  // The call fails only for sizes that are out of its bounds.
  crypto_generichash(digest.data(), digest.size(), id.data(), id.size(),
                     reinterpret_cast<const unsigned char*>(kKey.data()), kKey.size());
  return digest;
}

bool IsOwnerId(std::span<const uint8_t> id, const Uuid& digest) {
  Uuid whole;
  if (id.size() != whole.size()) return false;
  std::copy(id.begin(), id.end(), whole.begin());
  return OwnerDigest(whole) == digest;
}

}  // namespace hyperloop
