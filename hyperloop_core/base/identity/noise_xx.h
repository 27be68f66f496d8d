// Noise_XX_25519_ChaChaPoly_SHA256: the handshake state machine and the cipher states that come out
// of it, as in revision 34 of the Noise specification, sections 5 and 7.5.
//
//   -> e
//   <- e, ee, s, es
//   -> s, se
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/identity/ciphers.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {

// Of the three messages, without their payloads.
inline constexpr size_t kMessage1Bytes = kKeyBytes;
inline constexpr size_t kMessage2Bytes = kKeyBytes + kKeyBytes + 2 * kTagBytes;
inline constexpr size_t kMessage3Bytes = kKeyBytes + 2 * kTagBytes;

// After so many messages both ends replace a key of AES-256-GCM by one that follows from it.
// The chance that somebody tells sealed messages from random bytes grows as (blocks of 16 bytes
// under one key)^2 / 2^129. With messages of at most 1 MiB, which SecureChannel sees to, it is
// below 2^-64 for each key; with a link's of 64 KiB below 2^-72. ChaCha20-Poly1305 needs no such
// bound.
inline constexpr uint64_t kMessagesOfAesKey = 1 << 16;

// A key and the number of the next message, which is its nonce. Numbers go on over a replaced key,
// so no nonce is used twice; 2^64 - 1, which Noise keeps for new keys, is not used for a message.
class CipherState {
 public:
  CipherState() = default;
  CipherState(const CipherState&) = delete;
  CipherState& operator=(const CipherState&) = delete;

  // Another cipher than libsodium's ChaCha20-Poly1305. Before the first SetKey.
  void Use(Cipher cipher, std::unique_ptr<Aead> aead);
  void SetKey(const unsigned char* key);
  bool has_key() const { return has_key_; }
  // Appends plain.size() + kTagBytes bytes to `out`.
  void Encrypt(std::span<const std::byte> data, std::span<const std::byte> plain,
               std::vector<std::byte>* out);
  // False: it was not made by the other end's Encrypt as its next message; `out` is then not
  // usable.
  bool Decrypt(std::span<const std::byte> data, std::span<const std::byte> sealed,
               std::vector<std::byte>* out);

 private:
  AeadNonce NonceOf(uint64_t number) const;
  void Advance();

  Cipher cipher_ = Cipher::kChaCha20Poly1305;
  std::unique_ptr<Aead> aead_;
  uint64_t next_ = 0;
  bool has_key_ = false;
};

class NoiseXx {
 public:
  using Hash = std::array<unsigned char, 32>;

  // `ephemeral` is made at random; only tests give one.
  NoiseXx(bool initiator, std::span<const std::byte> prologue, const KeyPair& own);
  NoiseXx(bool initiator, std::span<const std::byte> prologue, const KeyPair& own,
          const SecretKey& ephemeral);
  ~NoiseXx();

  // Appends the next message, which is this end's. kCorruption: the other end's key is unusable.
  Status Write(std::span<const std::byte> payload, std::vector<std::byte>* out);
  // Takes the next message, which is the other end's, and returns its payload. After an error the
  // handshake is of no use any more. kCorruption: too short, changed on the way, or made for
  // another prologue.
  Result<std::vector<std::byte>> Read(std::span<const std::byte> message);

  bool finished() const { return messages_ == 3; }
  // Once it has come: the initiator's is in message 3, the responder's in message 2.
  const PublicKey& remote_static() const { return remote_static_; }
  const Hash& hash() const { return hash_; }
  // Sets the keys for what follows. Once, when finished.
  void Split(CipherState* send, CipherState* receive);

 private:
  void MixHash(std::span<const std::byte> data);
  void MixKey(std::span<const unsigned char> input);
  Status MixSecret(const SecretKey& own, const PublicKey& other);
  void EncryptAndHash(std::span<const std::byte> plain, std::vector<std::byte>* out);
  Status DecryptAndHash(std::span<const std::byte> sealed, std::vector<std::byte>* out);

  const bool initiator_;
  KeyPair static_;
  KeyPair ephemeral_;
  PublicKey remote_static_{}, remote_ephemeral_{};
  Hash hash_{}, chaining_key_{};
  CipherState cipher_;
  int messages_ = 0;
};

// The public key of `secret`.
PublicKey PublicKeyOf(const SecretKey& secret);

}  // namespace hyperloop::identity
