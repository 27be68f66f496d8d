// The ciphers that seal a channel's frames. A program gives its channels those that it has: code
// that other programs load has libsodium's alone, a daemon has OpenSSL's (openssl_ciphers.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace hyperloop::identity {

inline constexpr size_t kTagBytes = 16;
using AeadKey = std::span<const unsigned char, 32>;
using AeadNonce = std::array<unsigned char, 12>;

enum class Cipher : uint8_t { kChaCha20Poly1305, kAes256Gcm };
std::string_view CipherName(Cipher cipher);  // "ChaCha20-Poly1305", "AES-256-GCM"

// Authenticated encryption with associated data, under one key at a time. Nothing here counts
// messages: whoever uses it chooses the nonces, each once under a key. Not thread safe.
class Aead {
 public:
  virtual ~Aead() = default;
  // First, and again for another key. Needs no memory. The key is erased with the object.
  virtual void SetKey(AeadKey key) = 0;
  // Writes plain.size() + kTagBytes bytes to `out`, which must not overlap `plain`.
  virtual void Seal(const AeadNonce& nonce, std::span<const std::byte> data,
                    std::span<const std::byte> plain, std::byte* out) = 0;
  // Writes sealed.size() - kTagBytes bytes to `out`. False: Seal did not make `sealed` with this
  // key, nonce and data; what `out` holds then is not to be used.
  virtual bool Open(const AeadNonce& nonce, std::span<const std::byte> data,
                    std::span<const std::byte> sealed, std::byte* out) = 0;
};

// libsodium's. ChaCha20-Poly1305 only.
std::unique_ptr<Aead> MakeSodiumAead(Cipher cipher);

// What a program has. Every program has ChaCha20-Poly1305.
struct Ciphers {
  bool aes_256_gcm = false;
  std::unique_ptr<Aead> (*make)(Cipher cipher) = MakeSodiumAead;
};

}  // namespace hyperloop::identity
