#include "base/identity/noise_xx.h"

#include <endian.h>
#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace hyperloop::identity {
namespace {

// 32 bytes, so that it is the first hash as it is.
constexpr std::string_view kProtocolName = "Noise_XX_25519_ChaChaPoly_SHA256";
static_assert(kProtocolName.size() == crypto_hash_sha256_BYTES);
static_assert(kKeyBytes == AeadKey::extent);
static_assert(kKeyBytes == crypto_scalarmult_BYTES && kKeyBytes == crypto_scalarmult_SCALARBYTES);
static_assert(crypto_auth_hmacsha256_KEYBYTES == crypto_hash_sha256_BYTES);

const unsigned char* Raw(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }

// HKDF with two outputs; `first` may be `chaining_key`.
void Derive(const NoiseXx::Hash& chaining_key, std::span<const unsigned char> input,
            NoiseXx::Hash* first, NoiseXx::Hash* second) {
  NoiseXx::Hash key;
  crypto_auth_hmacsha256(key.data(), input.data(), input.size(), chaining_key.data());
  const unsigned char one = 1;
  crypto_auth_hmacsha256(first->data(), &one, 1, key.data());
  std::array<unsigned char, 33> text;
  std::copy(first->begin(), first->end(), text.begin());
  text.back() = 2;
  crypto_auth_hmacsha256(second->data(), text.data(), text.size(), key.data());
  sodium_memzero(key.data(), key.size());
  sodium_memzero(text.data(), text.size());
}

SecretKey RandomSecret() {
  SecretKey secret;
  randombytes_buf(secret.data(), kKeyBytes);
  return secret;
}

}  // namespace

PublicKey PublicKeyOf(const SecretKey& secret) {
  PublicKey key;
  crypto_scalarmult_base(key.data(), secret.data());
  return key;
}

// --- CipherState

void CipherState::Use(Cipher cipher, std::unique_ptr<Aead> aead) {
  cipher_ = cipher;
  aead_ = std::move(aead);
}

void CipherState::SetKey(const unsigned char* key) {
  if (aead_ == nullptr) aead_ = MakeSodiumAead(cipher_);
  aead_->SetKey(AeadKey(key, AeadKey::extent));
  next_ = 0;
  has_key_ = true;
}

void CipherState::Encrypt(std::span<const std::byte> data, std::span<const std::byte> plain,
                          std::vector<std::byte>* out) {
  if (!has_key_ || next_ == UINT64_MAX) std::abort();  // nothing goes out that all can read
  const size_t at = out->size();
  out->resize(at + plain.size() + kTagBytes);
  aead_->Seal(NonceOf(next_), data, plain, out->data() + at);
  Advance();
}

bool CipherState::Decrypt(std::span<const std::byte> data, std::span<const std::byte> sealed,
                          std::vector<std::byte>* out) {
  if (sealed.size() < kTagBytes || next_ == UINT64_MAX) return false;
  out->resize(sealed.size() - kTagBytes);
  if (!aead_->Open(NonceOf(next_), data, sealed, out->data())) return false;
  Advance();
  return true;
}

// 4 bytes of zeros, then the number, in the byte order that Noise has for the cipher.
AeadNonce CipherState::NonceOf(uint64_t number) const {
  number = cipher_ == Cipher::kAes256Gcm ? htobe64(number) : htole64(number);
  AeadNonce nonce{};
  std::memcpy(nonce.data() + 4, &number, sizeof number);
  return nonce;
}

// Where the key has served long enough, the next one is Noise's Rekey of it.
void CipherState::Advance() {
  if (++next_ % kMessagesOfAesKey != 0 || cipher_ != Cipher::kAes256Gcm) return;
  constexpr std::array<std::byte, kKeyBytes> kZeros{};
  std::array<std::byte, kKeyBytes + kTagBytes> sealed;
  aead_->Seal(NonceOf(UINT64_MAX), {}, kZeros, sealed.data());
  aead_->SetKey(AeadKey(Raw(sealed.data()), AeadKey::extent));
  sodium_memzero(sealed.data(), sealed.size());
}

// --- NoiseXx

NoiseXx::NoiseXx(bool initiator, std::span<const std::byte> prologue, const KeyPair& own)
    : NoiseXx(initiator, prologue, own, RandomSecret()) {}

NoiseXx::NoiseXx(bool initiator, std::span<const std::byte> prologue, const KeyPair& own,
                 const SecretKey& ephemeral)
    : initiator_(initiator), static_(own), ephemeral_{PublicKeyOf(ephemeral), ephemeral} {
  std::memcpy(hash_.data(), kProtocolName.data(), hash_.size());
  chaining_key_ = hash_;
  MixHash(prologue);
}

NoiseXx::~NoiseXx() {
  sodium_memzero(chaining_key_.data(), chaining_key_.size());
  sodium_memzero(hash_.data(), hash_.size());
}

void NoiseXx::MixHash(std::span<const std::byte> data) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, hash_.data(), hash_.size());
  crypto_hash_sha256_update(&state, Raw(data.data()), data.size());
  crypto_hash_sha256_final(&state, hash_.data());
}

void NoiseXx::MixKey(std::span<const unsigned char> input) {
  Hash key;
  Derive(chaining_key_, input, &chaining_key_, &key);
  cipher_.SetKey(key.data());
  sodium_memzero(key.data(), key.size());
}

// Keys of small order, with which the secret would be known to all, are refused here.
Status NoiseXx::MixSecret(const SecretKey& own, const PublicKey& other) {
  SecretKey shared;
  if (crypto_scalarmult(shared.data(), own.data(), other.data()) != 0)
    return Corruption("the other end sent an unusable public key");
  MixKey(std::span(shared.data(), kKeyBytes));
  return {};
}

void NoiseXx::EncryptAndHash(std::span<const std::byte> plain, std::vector<std::byte>* out) {
  const size_t at = out->size();
  if (cipher_.has_key()) {
    cipher_.Encrypt(std::as_bytes(std::span(hash_)), plain, out);
  } else {
    out->insert(out->end(), plain.begin(), plain.end());
  }
  MixHash(std::span(*out).subspan(at));
}

Status NoiseXx::DecryptAndHash(std::span<const std::byte> sealed, std::vector<std::byte>* out) {
  if (!cipher_.has_key()) {
    out->assign(sealed.begin(), sealed.end());
  } else if (!cipher_.Decrypt(std::as_bytes(std::span(hash_)), sealed, out)) {
    return Corruption("the introduction was changed on the way");
  }
  MixHash(sealed);
  return {};
}

Status NoiseXx::Write(std::span<const std::byte> payload, std::vector<std::byte>* out) {
  const int message = ++messages_;
  if (message < 3) {
    const auto e = std::as_bytes(std::span(ephemeral_.public_key));
    out->insert(out->end(), e.begin(), e.end());
    MixHash(e);
  }
  if (message == 2) HL_RETURN_IF_ERROR(MixSecret(ephemeral_.secret, remote_ephemeral_));  // ee
  if (message > 1) {
    EncryptAndHash(std::as_bytes(std::span(static_.public_key)), out);
    HL_RETURN_IF_ERROR(MixSecret(static_.secret, remote_ephemeral_));  // es or se
  }
  EncryptAndHash(payload, out);
  return {};
}

Result<std::vector<std::byte>> NoiseXx::Read(std::span<const std::byte> message) {
  constexpr std::array<size_t, 3> kLeast = {kMessage1Bytes, kMessage2Bytes, kMessage3Bytes};
  if (finished()) return Corruption("a fourth message of an introduction that has three");
  if (message.size() < kLeast[static_cast<size_t>(messages_)])
    return Corruption("introduction of " + std::to_string(message.size()) + " bytes");
  const int number = ++messages_;
  const auto take = [&message](size_t bytes) {
    const auto taken = message.first(bytes);
    message = message.subspan(bytes);
    return taken;
  };
  std::vector<std::byte> plain;
  if (number < 3) {
    const auto e = take(kKeyBytes);
    std::memcpy(remote_ephemeral_.data(), e.data(), e.size());
    MixHash(e);
  }
  if (number == 2) HL_RETURN_IF_ERROR(MixSecret(ephemeral_.secret, remote_ephemeral_));  // ee
  if (number > 1) {
    HL_RETURN_IF_ERROR(DecryptAndHash(take(kKeyBytes + kTagBytes), &plain));
    std::memcpy(remote_static_.data(), plain.data(), remote_static_.size());
    HL_RETURN_IF_ERROR(MixSecret(ephemeral_.secret, remote_static_));  // es or se
  }
  HL_RETURN_IF_ERROR(DecryptAndHash(message, &plain));
  return plain;
}

void NoiseXx::Split(CipherState* send, CipherState* receive) {
  Hash first, second;
  Derive(chaining_key_, {}, &first, &second);
  (initiator_ ? send : receive)->SetKey(first.data());
  (initiator_ ? receive : send)->SetKey(second.data());
  sodium_memzero(first.data(), first.size());
  sodium_memzero(second.data(), second.size());
}

}  // namespace hyperloop::identity
