#include "hyperloop/identity/openssl_ciphers.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace hyperloop::identity {
namespace {

const unsigned char* Raw(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }
unsigned char* Raw(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

// Null: OpenSSL has not this cipher here, or memory ran out.
Context MakeContext(Cipher cipher) {
  Context context(EVP_CIPHER_CTX_new());
  const EVP_CIPHER* const type =
      cipher == Cipher::kAes256Gcm ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
  if (context != nullptr && EVP_EncryptInit_ex(context.get(), type, nullptr, nullptr, nullptr) != 1)
    context.reset();
  return context;
}

class OpenSslAead final : public Aead {
 public:
  explicit OpenSslAead(Context context) : context_(std::move(context)) {}

  void SetKey(AeadKey key) override { Start(key.data(), nullptr, /*seal=*/true); }

  void Seal(const AeadNonce& nonce, std::span<const std::byte> data,
            std::span<const std::byte> plain, std::byte* out) override {
    Start(nullptr, &nonce, /*seal=*/true);
    const bool sealed = Pass(data, nullptr) && Pass(plain, out) && End() &&
                        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                            out + plain.size()) == 1;
    if (!sealed) std::abort();  // what is not sealed must not go out
  }

  bool Open(const AeadNonce& nonce, std::span<const std::byte> data,
            std::span<const std::byte> sealed, std::byte* out) override {
    if (sealed.size() < kTagBytes) return false;
    Start(nullptr, &nonce, /*seal=*/false);
    std::array<std::byte, kTagBytes> tag;
    const auto its_tag = sealed.last(kTagBytes);
    std::copy(its_tag.begin(), its_tag.end(), tag.begin());
    return Pass(data, nullptr) && Pass(sealed.first(sealed.size() - kTagBytes), out) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1 &&
           End();
  }

 private:
  // A new message, or a new key. Null: as it was. These are copies, which do not fail.
  void Start(const unsigned char* key, const AeadNonce* nonce, bool seal) {
    if (EVP_CipherInit_ex(context_.get(), nullptr, nullptr, key,
                          nonce != nullptr ? nonce->data() : nullptr, seal ? 1 : 0) != 1)
      std::abort();
  }
  // `out` null: data that is authenticated only.
  bool Pass(std::span<const std::byte> in, std::byte* out) {
    int length = 0;
    return in.empty() || EVP_CipherUpdate(context_.get(), Raw(out), &length, Raw(in.data()),
                                          static_cast<int>(in.size())) == 1;
  }
  // Makes the tag, or compares it.
  bool End() {
    std::array<unsigned char, kTagBytes> nothing;
    int length = 0;
    return EVP_CipherFinal_ex(context_.get(), nothing.data(), &length) == 1;
  }

  const Context context_;
};

std::unique_ptr<Aead> MakeOpenSslAead(Cipher cipher) {
  Context context = MakeContext(cipher);
  if (context != nullptr) return std::make_unique<OpenSslAead>(std::move(context));
  // OpenSSL's configuration may exclude ChaCha20-Poly1305, which every program has to have.
  if (cipher == Cipher::kChaCha20Poly1305) return MakeSodiumAead(cipher);
  throw std::bad_alloc();  // it was there when it was offered
}

bool HasAesInstructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#else
  return false;
#endif
}

}  // namespace

Ciphers OpenSslCiphers() {
  return {.aes_256_gcm = HasAesInstructions() && MakeContext(Cipher::kAes256Gcm) != nullptr,
          .make = MakeOpenSslAead};
}

}  // namespace hyperloop::identity
