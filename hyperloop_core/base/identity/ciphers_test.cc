// The ciphers against published test vectors, and against each other.
#include "hyperloop/identity/ciphers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/identity/openssl_ciphers.h"

namespace hyperloop::identity {
namespace {

using Bytes = std::vector<std::byte>;

struct Vector {
  std::string_view key, nonce, data, plain, sealed;  // sealed: with the tag
};

// Test cases 13, 14 and 16 of the submission of GCM to NIST.
const Vector kAes[] = {
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "00000000000000000000000000000000",
     "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
    {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24"
     "49a6b525b16aedf5aa0de657ba637b39",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10"
     "56828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"}};

// RFC 8439, section 2.8.2.
const Vector kChaCha[] = {
    {"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", "070000004041424344454647",
     "50515253c0c1c2c3c4c5c6c7",
     "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a204966"
     "204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572"
     "652c2073756e73637265656e20776f756c642062652069742e",
     "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69"
     "da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad67594"
     "5585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"}};

Bytes FromHex(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

void SetKey(Aead& aead, const Bytes& key) {
  aead.SetKey(AeadKey(reinterpret_cast<const unsigned char*>(key.data()), AeadKey::extent));
}
AeadNonce NonceFrom(const Bytes& bytes) {
  AeadNonce nonce{};
  std::transform(bytes.begin(), bytes.end(), nonce.begin(),
                 [](std::byte each) { return static_cast<unsigned char>(each); });
  return nonce;
}

Bytes Seal(Aead& aead, const AeadNonce& nonce, const Bytes& data, const Bytes& plain) {
  Bytes out(plain.size() + kTagBytes);
  aead.Seal(nonce, data, plain, out.data());
  return out;
}
// "refused", or what was sealed.
std::string Open(Aead& aead, const AeadNonce& nonce, const Bytes& data, const Bytes& sealed) {
  Bytes out(std::max(sealed.size(), kTagBytes) - kTagBytes);
  if (!aead.Open(nonce, data, sealed, out.data())) return "refused";
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}
std::string TextOf(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Case {
  const char* name;
  Cipher cipher;
  std::unique_ptr<Aead> (*make)(Cipher);
  std::span<const Vector> vectors;
};

class CiphersTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().cipher == Cipher::kAes256Gcm && !OpenSslCiphers().aes_256_gcm)
      GTEST_SKIP() << "no AES-256-GCM here";
    aead_ = GetParam().make(GetParam().cipher);
  }
  std::unique_ptr<Aead> aead_;
};

TEST_P(CiphersTest, SealsAndOpensAsPublished) {
  for (const Vector& vector : GetParam().vectors) {
    SetKey(*aead_, FromHex(vector.key));
    const AeadNonce nonce = NonceFrom(FromHex(vector.nonce));
    const Bytes data = FromHex(vector.data), plain = FromHex(vector.plain);
    EXPECT_EQ(Seal(*aead_, nonce, data, plain), FromHex(vector.sealed));
    EXPECT_EQ(Open(*aead_, nonce, data, FromHex(vector.sealed)), TextOf(plain));
  }
}

TEST_P(CiphersTest, WhatWasChangedIsRefusedWhereverItWasChanged) {
  const Vector& vector = GetParam().vectors.back();
  SetKey(*aead_, FromHex(vector.key));
  const AeadNonce nonce = NonceFrom(FromHex(vector.nonce));
  const Bytes data = FromHex(vector.data), sealed = FromHex(vector.sealed);
  for (size_t at = 0; at < sealed.size(); ++at) {
    Bytes changed = sealed;
    changed[at] ^= std::byte{1};
    ASSERT_EQ(Open(*aead_, nonce, data, changed), "refused") << "byte " << at;
    changed.resize(at);
    ASSERT_EQ(Open(*aead_, nonce, data, changed), "refused") << at << " bytes";
  }
  EXPECT_EQ(Open(*aead_, nonce, {}, sealed), "refused") << "other data";
  EXPECT_EQ(Open(*aead_, AeadNonce{}, data, sealed), "refused") << "another nonce";
  EXPECT_EQ(Open(*aead_, nonce, data, sealed), TextOf(FromHex(vector.plain)));
  SetKey(*aead_, Bytes(AeadKey::extent));
  EXPECT_EQ(Open(*aead_, nonce, data, sealed), "refused") << "another key";
}

INSTANTIATE_TEST_SUITE_P(
    Published, CiphersTest,
    testing::Values(Case{"SodiumChaCha", Cipher::kChaCha20Poly1305, MakeSodiumAead, kChaCha},
                    Case{"OpenSslChaCha", Cipher::kChaCha20Poly1305, OpenSslCiphers().make,
                         kChaCha},
                    Case{"OpenSslAes", Cipher::kAes256Gcm, OpenSslCiphers().make, kAes}),
    [](const auto& each) { return std::string(each.param.name); });

// A daemon at one end of a link, and at the other a program without OpenSSL.
TEST(CiphersOfTwoLibrariesTest, EachOpensWhatTheOtherSeals) {
  const auto sodium = MakeSodiumAead(Cipher::kChaCha20Poly1305);
  const auto openssl = OpenSslCiphers().make(Cipher::kChaCha20Poly1305);
  for (Aead* const each : {sodium.get(), openssl.get()}) SetKey(*each, FromHex(kChaCha[0].key));
  AeadNonce nonce{};
  const Bytes data = FromHex(kChaCha[0].data);
  std::vector<size_t> lengths = {4096, 16 << 10, (64 << 10) + 80};
  for (size_t length = 0; length <= 520; ++length) lengths.push_back(length);
  for (const size_t length : lengths) {
    Bytes plain(length);
    for (size_t i = 0; i < length; ++i) plain[i] = static_cast<std::byte>(i * 7 + length);
    ++nonce[length % nonce.size()];
    const Bytes sealed = Seal(*sodium, nonce, data, plain);
    ASSERT_EQ(sealed, Seal(*openssl, nonce, data, plain)) << length << " bytes";
    ASSERT_EQ(Open(*openssl, nonce, data, sealed), TextOf(plain)) << length << " bytes";
    ASSERT_EQ(Open(*sodium, nonce, data, sealed), TextOf(plain)) << length << " bytes";
  }
}

}  // namespace
}  // namespace hyperloop::identity
