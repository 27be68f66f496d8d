#include "hyperloop/identity/voucher.h"

#include <sodium.h>

#include <algorithm>
#include <string>

namespace hyperloop::identity {
namespace {

static_assert(kVoucherBytes >= crypto_generichash_BYTES_MIN &&
              kVoucherBytes <= crypto_generichash_BYTES_MAX &&
              kKeyBytes <= crypto_generichash_KEYBYTES_MAX);

// This host's key, and those of the others with one of `roles`, each once.
std::vector<PublicKey> KeysOf(const KeyRing& ring, Roles roles) {
  std::vector<PublicKey> keys{ring.public_key()};
  for (const TrustedPeer& each : ring.trusted()) {
    const bool known = std::find(keys.begin(), keys.end(), each.key) != keys.end();
    if ((each.roles & roles) != 0 && !known && keys.size() < kMostVouchers)
      keys.push_back(each.key);
  }
  return keys;
}

// False: the key is one of those with which the secret would be known to all.
bool VoucherWith(const SecretKey& own, const PublicKey& other, std::string_view what,
                 Voucher* voucher) {
  SecretKey shared;
  if (crypto_scalarmult(shared.data(), own.data(), other.data()) != 0) return false;
  const std::string text = "HyperLoop voucher: " + std::string(what);
  crypto_generichash(voucher->data(), voucher->size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     shared.data(), kKeyBytes);
  return true;
}

}  // namespace

std::vector<Voucher> Vouch(const KeyRing& ring, std::string_view what, Roles roles) {
  const KeyPair own = ring.key_pair();
  std::vector<Voucher> vouchers;
  Voucher voucher;
  for (const PublicKey& each : KeysOf(ring, roles))
    if (VoucherWith(own.secret, each, what, &voucher)) vouchers.push_back(voucher);
  return vouchers;
}

bool IsVouched(const KeyRing& ring, std::string_view what, std::span<const Voucher> vouchers,
               Roles roles) {
  const std::vector<Voucher> good = Vouch(ring, what, roles);
  return std::ranges::any_of(vouchers, [&](const Voucher& each) {
    return std::ranges::any_of(good, [&](const Voucher& other) {
      return sodium_memcmp(each.data(), other.data(), kVoucherBytes) == 0;
    });
  });
}

}  // namespace hyperloop::identity
