#include "hyperloop/identity/ciphers.h"

#include <sodium.h>

#include <algorithm>
#include <cstdlib>

namespace hyperloop::identity {
namespace {

static_assert(kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(AeadKey::extent == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(sizeof(AeadNonce) == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);

const unsigned char* Raw(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }
unsigned char* Raw(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }

class SodiumAead final : public Aead {
 public:
  ~SodiumAead() override { sodium_memzero(key_.data(), key_.size()); }

  void SetKey(AeadKey key) override { std::copy(key.begin(), key.end(), key_.begin()); }

  void Seal(const AeadNonce& nonce, std::span<const std::byte> data,
            std::span<const std::byte> plain, std::byte* out) override {
    crypto_aead_chacha20poly1305_ietf_encrypt(Raw(out), nullptr, Raw(plain.data()), plain.size(),
                                              Raw(data.data()), data.size(), nullptr, nonce.data(),
                                              key_.data());
  }

  bool Open(const AeadNonce& nonce, std::span<const std::byte> data,
            std::span<const std::byte> sealed, std::byte* out) override {
    return crypto_aead_chacha20poly1305_ietf_decrypt(Raw(out), nullptr, nullptr, Raw(sealed.data()),
                                                     sealed.size(), Raw(data.data()), data.size(),
                                                     nonce.data(), key_.data()) == 0;
  }

 private:
  std::array<unsigned char, AeadKey::extent> key_{};
};

}  // namespace

std::string_view CipherName(Cipher cipher) {
  return cipher == Cipher::kAes256Gcm ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

std::unique_ptr<Aead> MakeSodiumAead(Cipher cipher) {
  if (cipher != Cipher::kChaCha20Poly1305) std::abort();  // it was not offered
  return std::make_unique<SodiumAead>();
}

}  // namespace hyperloop::identity
