// The handshake against published test vectors, and the keys after it.
#include "base/identity/noise_xx.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "hyperloop/identity/openssl_ciphers.h"
#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

using Bytes = std::vector<std::byte>;

struct Vector {
  std::string_view prologue, initiator_static, initiator_ephemeral, responder_static,
      responder_ephemeral, handshake_hash;
  struct Message {
    std::string_view payload, ciphertext;
  };
  std::vector<Message> messages;  // the initiator's and the responder's in turn
};

// From the test vectors of cacophony, in the format of the Noise wiki.
const Vector kCacophony = {
    "4a6f686e2047616c74",                                                // init_prologue
    "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",  // init_static
    "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",  // init_ephemeral
    "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",  // resp_static
    "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",  // resp_ephemeral
    "c8e5f64e846193be2a834104c2a009868d6c9f3bd3c186299888b488b2f1f58e",  // handshake_hash
    {
        {"4c756477696720766f6e204d69736573",
         "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444c75647769672076"
         "6f6e204d69736573"},
        {"4d757272617920526f746862617264",
         "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f14480884381cbad1f276e038c"
         "48378ffce2b65285e08d6b68aaa3629a5a8639392490e5b9bd5269c2f1e4f488ed8831161f19b781"
         "5528f8982ffe09be9b5c412f8a0db50f8814c7194e83f23dbd8d162c9326ad"},
        {"462e20412e20486179656b",
         "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a80ae475b9df0f169a"
         "e80a89be0865b57f58c9fea0d4ec82a286427402f113e4b6ae769a1d95941d49b25030"},
        {"4361726c204d656e676572", "96763ed773f8e47bb3712f0e29b3060ffc956ffc146cee53d5e1df"},
        {"4a65616e2d426170746973746520536179",
         "3e40f15f6f3a46ae446b253bf8b1d9ffb6ed9b174d272328ff91a7e2e5c79c07f5"},
        {"457567656e2042f6686d20766f6e2042617765726b",
         "eb3f3515110702e047a6c9da4478b6ead94873c11c0f2d710ddb3f09fce024b3a58502ae3f"},
    },
};

// From the test vectors of snow.
const Vector kSnow = {
    // init_prologue
    "5468657265206973206e6f20726967687420616e642077726f6e672e2054686572652773206f6e6c"
    "792066756e20616e6420626f72696e672e",
    "7dec208517a3b81a2861d7a71266d5d6dc944c5a8816634a86fe63198a0148ee",  // init_static
    "a32daf21e93c0131495ce1d903181fde81cc46937daaeb990bae7c992709421e",  // init_ephemeral
    "4d0aed5098e3b4ef20357e9f686ce66204c792b358da2e475017d6c485304881",  // resp_static
    "4eece0f195d026db035ff987597c429d3ad3bcc2944df37d649528951b2a27c5",  // resp_ephemeral
    "",                                                                  // handshake_hash
    {
        {"d03c489139e645d0711a3c9e810d776b46a84912463fafa87b884eebf242dc34",
         "f9fa868ba97ab8a2686deccfaad5a484ee10a5bb85e3d1dce015a84797f92818d03c489139e645d0"
         "711a3c9e810d776b46a84912463fafa87b884eebf242dc34"},
        {"d8190a92f7dc0c93dbea9118ba8055751fb7c6590c416ffbd419964132b99a85",
         "8c4e6fdb7d09d501a86f7eca5c234522751706ed409182c05cdf5f827d4dae47b81c6c5f43b02569"
         "2c24391eefee725c17d8cb0fbe3e4abb8aedf42c4fd2592d4ea48ac08989d6ae8b4adae08b2c3408"
         "7c808c7aa55a63c02b0fab9e930612336bd43eaea04d3c670a0a146691aa9cc9d357872320dc735d"
         "bc48580cffb553db"},
        {"77891b19dcb92ef7c055b672c4a5aa7fdf1c84146b8b303459022729473ce254",
         "933ca6b5ed60df3df66121f0ab49a09e49efa45c613a86a3cecbf4c535cef2f83f72b42837b18e35"
         "72f2fdc2b74c331e2368a545cef54bdca081678ab0e9dd5348122459e0c034c851984d88ce610963"
         "d43cde6cfe73a67fbd5a63e8bfca96d0"},
        {"d7efdf988072881941db045a42882433817555128fbf5663e56081712ec7d212",
         "54ef0ff0629e1aaa7685a2806ab111cba76b52331f2642276736f415868eacb69ab2577f3bda0cbf"
         "72f879685f6ed25f"},
        {"dd7bf01a588bafb52c6cfba952e5d8fe35cc2b3f92b4730ae2474615157345ce",
         "356be70f110306d5c699bb834bb9d58d909e325924dfbec972e406e6f294dc63e1daebefe8a62a33"
         "4facc8048ab4ad66"},
    },
};

Bytes FromHex(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::string ToHex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte each : bytes) {
    text += kDigits[static_cast<size_t>(each) >> 4];
    text += kDigits[static_cast<size_t>(each) & 15];
  }
  return text;
}

SecretKey SecretFrom(std::string_view hex) {
  const Bytes bytes = FromHex(hex);
  SecretKey secret;
  std::memcpy(secret.data(), bytes.data(), kKeyBytes);
  return secret;
}

KeyPair PairFrom(std::string_view hex) {
  const SecretKey secret = SecretFrom(hex);
  return {PublicKeyOf(secret), secret};
}

class NoiseXxTest : public testing::TestWithParam<const Vector*> {};

TEST_P(NoiseXxTest, BothEndsSayAndUnderstandWhatTheVectorSays) {
  const Vector& vector = *GetParam();
  const Bytes prologue = FromHex(vector.prologue);
  const KeyPair one = PairFrom(vector.initiator_static), two = PairFrom(vector.responder_static);
  NoiseXx initiator(true, prologue, one, SecretFrom(vector.initiator_ephemeral));
  NoiseXx responder(false, prologue, two, SecretFrom(vector.responder_ephemeral));
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE("message " + std::to_string(i + 1));
    NoiseXx& from = i % 2 == 0 ? initiator : responder;
    NoiseXx& to = i % 2 == 0 ? responder : initiator;
    Bytes message;
    ASSERT_OK(from.Write(FromHex(vector.messages[i].payload), &message));
    ASSERT_EQ(ToHex(message), vector.messages[i].ciphertext);
    const auto payload = to.Read(message);
    ASSERT_OK(payload);
    EXPECT_EQ(ToHex(*payload), vector.messages[i].payload);
  }
  ASSERT_TRUE(initiator.finished() && responder.finished());
  EXPECT_EQ(initiator.hash(), responder.hash());
  if (!vector.handshake_hash.empty()) {
    EXPECT_EQ(ToHex(std::as_bytes(std::span(initiator.hash()))), vector.handshake_hash);
  }
  EXPECT_EQ(initiator.remote_static(), two.public_key);
  EXPECT_EQ(responder.remote_static(), one.public_key);

  CipherState initiator_sends, initiator_receives, responder_sends, responder_receives;
  initiator.Split(&initiator_sends, &initiator_receives);
  responder.Split(&responder_sends, &responder_receives);
  for (size_t i = 3; i < vector.messages.size(); ++i) {
    SCOPED_TRACE("message " + std::to_string(i + 1));
    CipherState& from = i % 2 == 0 ? initiator_sends : responder_sends;
    CipherState& to = i % 2 == 0 ? responder_receives : initiator_receives;
    Bytes sealed, plain;
    from.Encrypt({}, FromHex(vector.messages[i].payload), &sealed);
    ASSERT_EQ(ToHex(sealed), vector.messages[i].ciphertext);
    ASSERT_TRUE(to.Decrypt({}, sealed, &plain));
    EXPECT_EQ(ToHex(plain), vector.messages[i].payload);
  }
}

INSTANTIATE_TEST_SUITE_P(Published, NoiseXxTest, testing::Values(&kCacophony, &kSnow));

// A key with which the shared secret is known to everybody.
TEST(NoiseXxKeys, AKeyOfSmallOrderIsRefused) {
  const KeyPair own = PairFrom(kSnow.responder_static);
  NoiseXx responder(false, {}, own);
  ASSERT_OK(responder.Read(Bytes(kMessage1Bytes)));
  Bytes message;
  EXPECT_THAT(responder.Write({}, &message), StatusIs(Code::kCorruption));
}

TEST(NoiseXxKeys, AnotherPrologueIsAnotherHandshake) {
  const KeyPair own = PairFrom(kSnow.responder_static);
  const Bytes one(4, std::byte{1}), two(4, std::byte{2});
  NoiseXx initiator(true, one, own), responder(false, two, own);
  Bytes first, second;
  ASSERT_OK(initiator.Write({}, &first));
  ASSERT_OK(responder.Read(first));
  ASSERT_OK(responder.Write({}, &second));
  EXPECT_THAT(initiator.Read(second), StatusIs(Code::kCorruption));
}

// Two ends of a connection, after the handshake, and who has the first key besides them.
struct KeyedEnds {
  KeyedEnds(Cipher of, const Ciphers& ciphers) : cipher(of), watcher(ciphers.make(of)) {
    constexpr std::array<unsigned char, kKeyBytes> kFirst = {7};
    for (CipherState* const each : {&sends, &receives}) {
      each->Use(cipher, ciphers.make(cipher));
      each->SetKey(kFirst.data());
    }
    watcher->SetKey(kFirst);
  }
  // False: one of these messages did not arrive.
  bool Exchange(uint64_t count) {
    for (; count != 0; --count, ++messages) {
      Bytes opened;
      sealed.clear();
      sends.Encrypt({}, kPlain, &sealed);
      if (!receives.Decrypt({}, sealed, &opened) || opened != kPlain) return false;
    }
    return true;
  }
  AeadNonce NonceOf(uint64_t number) const {
    AeadNonce nonce{};
    for (size_t i = 0; i < 8; ++i)
      nonce[cipher == Cipher::kAes256Gcm ? 11 - i : 4 + i] =
          static_cast<unsigned char>(number >> (8 * i));
    return nonce;
  }
  // Whether the last message is sealed with the watcher's key.
  bool WatcherReads() {
    Bytes opened(kPlain.size());
    return watcher->Open(NonceOf(messages - 1), {}, sealed, opened.data());
  }
  // Noise's Rekey.
  void WatcherTakesNextKey() {
    Bytes key(kKeyBytes + kTagBytes);
    watcher->Seal(NonceOf(UINT64_MAX), {}, Bytes(kKeyBytes), key.data());
    watcher->SetKey(AeadKey(reinterpret_cast<const unsigned char*>(key.data()), kKeyBytes));
  }

  const Bytes kPlain = FromHex("0123");
  const Cipher cipher;
  CipherState sends, receives;
  const std::unique_ptr<Aead> watcher;
  uint64_t messages = 0;
  Bytes sealed;  // the last one
};

TEST(CipherStateTest, AKeyOfAesIsReplacedWhereItsBoundIs) {
  if (!OpenSslCiphers().aes_256_gcm) GTEST_SKIP() << "no AES-256-GCM here";
  KeyedEnds ends(Cipher::kAes256Gcm, OpenSslCiphers());
  for (int keys = 0; keys < 3; ++keys) {
    ASSERT_TRUE(ends.Exchange(1));
    EXPECT_TRUE(ends.WatcherReads());
    ASSERT_TRUE(ends.Exchange(kMessagesOfAesKey - 1));
    EXPECT_TRUE(ends.WatcherReads()) << "replaced too early";
    ASSERT_TRUE(ends.Exchange(1));
    EXPECT_FALSE(ends.WatcherReads()) << "not replaced after " << ends.messages << " messages";
    ends.WatcherTakesNextKey();
    EXPECT_TRUE(ends.WatcherReads());
    ASSERT_TRUE(ends.Exchange(kMessagesOfAesKey - 1));
    ends.WatcherTakesNextKey();
  }
}

// As releases do that know no other cipher.
TEST(CipherStateTest, AKeyOfChaChaStays) {
  KeyedEnds ends(Cipher::kChaCha20Poly1305, Ciphers{});
  ASSERT_TRUE(ends.Exchange(kMessagesOfAesKey + 1));
  EXPECT_TRUE(ends.WatcherReads());
}

}  // namespace
}  // namespace hyperloop::identity
