// What a channel refuses, what can be read of it on the way, and what it tells.
#include "hyperloop/identity/secure_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/frame_reader.h"
#include "base/identity/noise_xx.h"
#include "hyperloop/core/name.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr size_t kLengthBytes = 4;  // before each frame
constexpr char kPurpose[] = "hyperloop test 1";

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool Contains(const Bytes& all, std::span<const std::byte> part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

// The body of the next frame. Without one: "nothing", "refused" (kCorruption) or "error".
std::string NextBody(SecureChannel& channel) {
  const auto frame = channel.Next();
  if (!frame.ok()) return frame.status().code() == Code::kCorruption ? "refused" : "error";
  if (!frame->has_value()) return "nothing";
  return {reinterpret_cast<const char*>((*frame)->data()), (*frame)->size()};
}

// Both ends of a connection.
struct Ends {
  Ends(const SecureChannelOptions& dials, const SecureChannelOptions& accepts)
      : dialer(dials), acceptor(accepts) {}

  // Hands what each end says to the other until both are silent or fail. `change` may alter message
  // `number`, counted from 0 over both ends.
  template <typename Change>
  void Introduce(Change&& change) {
    for (size_t number = 0;; ++number) {
      SecureChannel& from = number % 2 == 0 ? dialer : acceptor;
      SecureChannel& to = number % 2 == 0 ? acceptor : dialer;
      Bytes message = from.TakeOutput();
      if (message.empty()) return;
      all.insert(all.end(), message.begin(), message.end());
      change(number, &message);
      to.Append(message);
      const auto frame = to.Next();
      (number % 2 == 0 ? accepted : dialed) = frame.status();
      EXPECT_FALSE(frame.ok() && frame->has_value()) << "the introduction is not for the caller";
    }
  }
  void Introduce() {
    Introduce([](size_t, Bytes*) {});
  }
  bool open() const { return dialer.open() && acceptor.open(); }
  Bytes Seal(std::string_view text) {
    Bytes out;
    dialer.Seal(BytesOf(text), &out);
    return out;
  }

  SecureChannel dialer, acceptor;
  Status dialed, accepted;  // the outcome at each end
  Bytes all;                // everything that passed
};

// What the two ends have.
struct Sealing {
  const char* name;
  Ciphers (*dialer)();
  Ciphers (*acceptor)();
};
Ciphers Sodium() { return {}; }

class SecureChannelTest : public testing::TestWithParam<Sealing> {
 protected:
  SecureChannelTest() {
    std::string pattern = fs::temp_directory_path() / "hyperloop-channel-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    alpha_ = MakeHost("alpha");
    beta_ = MakeHost("beta");
    LetTrust("alpha", *beta_, kRoleLink);
    LetTrust("beta", *alpha_, kRoleLink);
    ends_ = std::make_unique<Ends>(Dials(), Accepts());
    ends_->Introduce();
    EXPECT_TRUE(ends_->open()) << ends_->dialed.ToString() << ", " << ends_->accepted.ToString();
  }
  ~SecureChannelTest() override { fs::remove_all(root_); }

  std::string Dir(const std::string& name) const { return root_ + "/" + name; }
  std::shared_ptr<KeyRing> MakeHost(const std::string& name) {
    EXPECT_OK(MakeIdentity(Dir(name), name));
    const auto ring = KeyRing::Load(Dir(name));
    EXPECT_OK(ring);
    return *ring;
  }
  void LetTrust(const std::string& who, const KeyRing& whom, Roles roles,
                const std::string& as = "") {
    EXPECT_OK(Trust(Dir(who), {as.empty() ? whom.name() : as, whom.public_key(), roles, ""}));
    for (const auto& each : {alpha_, beta_}) {
      if (each != nullptr) {
        EXPECT_OK(each->Refresh());
      }
    }
  }
  // alpha, for beta.
  SecureChannelOptions Dials() const {
    return {.dialer = true,
            .purpose = kPurpose,
            .ring = alpha_,
            .peer_roles = kRoleLink,
            .peer_names = {"beta"},
            .ciphers = GetParam().dialer()};
  }
  SecureChannelOptions Accepts() const {
    return {.purpose = kPurpose,
            .ring = beta_,
            .peer_roles = kRoleLink,
            .peer_names = {},
            .ciphers = GetParam().acceptor()};
  }

  std::string root_;
  std::shared_ptr<KeyRing> alpha_, beta_;
  std::unique_ptr<Ends> ends_;
};

// Frames pass wherever a cipher was chosen, so all tests of this suite run with each.
INSTANTIATE_TEST_SUITE_P(Sealed, SecureChannelTest,
                         testing::Values(Sealing{"BySodium", Sodium, Sodium},
                                         Sealing{"BySodiumAndOpenSsl", Sodium, OpenSslCiphers},
                                         Sealing{"ByOpenSsl", OpenSslCiphers, OpenSslCiphers}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(SecureChannelTest, AesSealsWhereBothEndsHaveIt) {
  const bool both = GetParam().dialer().aes_256_gcm && GetParam().acceptor().aes_256_gcm;
  const Cipher expected = both ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305;
  EXPECT_EQ(ends_->dialer.cipher(), expected);
  EXPECT_EQ(ends_->acceptor.cipher(), expected);
  Ends reversed(Dials(), Accepts());
  EXPECT_EQ(reversed.dialer.cipher(), std::nullopt) << "before it is open";
}

// An offer lies in the last byte of the second and of the third message, before the tag.
TEST_P(SecureChannelTest, AnOfferThatSomebodyTakesOutEndsTheIntroduction) {
  for (const size_t numbers : {0b010u, 0b100u, 0b110u}) {
    Ends ends(Dials(), Accepts());
    ends.Introduce([numbers](size_t number, Bytes* message) {
      if ((numbers >> number & 1) != 0) *(message->rbegin() + kTagBytes) ^= std::byte{1};
    });
    EXPECT_FALSE(ends.dialer.open() || ends.acceptor.open());
    EXPECT_TRUE(ends.dialed.code() == Code::kCorruption ||
                ends.accepted.code() == Code::kCorruption);
  }
}

// A release that knows no offers fills up its name with zeros. One to come may offer more.
TEST_P(SecureChannelTest, AnEndWithoutOrWithUnknownOffersIsUnderstood) {
  for (const std::byte offer : {std::byte{0}, std::byte{0xfe}, std::byte{0xff}}) {
    SecureChannel acceptor(Accepts());
    NoiseXx noise(/*initiator=*/true,
                  BytesOf(std::string("hyperloop secure channel 1: ") + kPurpose),
                  alpha_->key_pair());
    Bytes first = SecureChannel(Dials()).TakeOutput();
    first.resize(first.size() - kMessage1Bytes);
    ASSERT_OK(noise.Write({}, &first));
    acceptor.Append(first);
    ASSERT_EQ(NextBody(acceptor), "nothing");
    const Bytes second = acceptor.TakeOutput();
    ASSERT_OK(noise.Read(std::span(second).last(kMessage2Bytes + kNameBytes)));
    Bytes payload = BytesOf("alpha"), third, frame;
    payload.resize(kNameBytes);
    payload.back() = offer;
    ASSERT_OK(noise.Write(payload, &third));
    AppendFrame(third, &frame);
    acceptor.Append(frame);
    ASSERT_EQ(NextBody(acceptor), "nothing");
    ASSERT_TRUE(acceptor.open());
    const Cipher expected = GetParam().acceptor().aes_256_gcm && offer == std::byte{0xff}
                                ? Cipher::kAes256Gcm
                                : Cipher::kChaCha20Poly1305;
    EXPECT_EQ(acceptor.cipher(), expected);
    CipherState send, receive;
    for (CipherState* const each : {&send, &receive})
      each->Use(expected, OpenSslCiphers().make(expected));
    noise.Split(&send, &receive);
    const Bytes sealed = acceptor.TakeOutput();
    Bytes verdict;
    EXPECT_TRUE(receive.Decrypt({}, std::span(sealed).subspan(kLengthBytes), &verdict));
    EXPECT_EQ(verdict, Bytes(1));
  }
}

TEST_P(SecureChannelTest, FramesTooLongForAesAreNotPromised) {
  SecureChannelOptions dials = Dials();
  dials.max_body = (1 << 20) + 1;
  const Status status = SecureChannel(dials).Next().status();
  EXPECT_EQ(status.ok(), !dials.ciphers.aes_256_gcm) << status.ToString();
}

TEST_P(SecureChannelTest, BothEndsKnowWhoTheOtherIs) {
  EXPECT_EQ(ends_->dialer.peer().name(), "beta");
  EXPECT_EQ(ends_->acceptor.peer().name(), "alpha");
  EXPECT_TRUE(ends_->acceptor.peer().Is("alpha", kRoleLink));
  EXPECT_FALSE(ends_->acceptor.peer().Is("alpha", kRolePrimary));
  EXPECT_TRUE(ends_->dialer.TakeOutput().empty() && ends_->acceptor.TakeOutput().empty());
}

// The name by which this end knows the key counts, not what the other end calls itself.
TEST_P(SecureChannelTest, AKeyMayHaveSeveralNames) {
  LetTrust("alpha", *beta_, kRoleLink, "beta2");
  LetTrust("alpha", *beta_, kRoleReplica, "beta3");
  SecureChannelOptions dials = Dials();
  dials.peer_names = {"beta", "beta2"};
  Ends both(dials, Accepts());
  both.Introduce();
  EXPECT_TRUE(both.open()) << both.dialed.ToString();
  EXPECT_EQ(both.dialer.peer().names(), "beta,beta2,beta3");
  dials.peer_names = {"beta", "beta3"};
  Ends other_role(dials, Accepts());
  other_role.Introduce();
  EXPECT_THAT(other_role.dialed, StatusIs(Code::kPermissionDenied));
}

TEST_P(SecureChannelTest, FramesArriveBothWays) {
  ends_->acceptor.Append(ends_->Seal("one"));
  ends_->acceptor.Append(ends_->Seal("two"));
  ends_->acceptor.Append(ends_->Seal(""));
  EXPECT_EQ(NextBody(ends_->acceptor), "one");
  EXPECT_EQ(NextBody(ends_->acceptor), "two");
  EXPECT_EQ(NextBody(ends_->acceptor), "");
  EXPECT_EQ(NextBody(ends_->acceptor), "nothing");
  Bytes back;
  ends_->acceptor.Seal(BytesOf("three"), &back);
  ends_->dialer.Append(back);
  EXPECT_EQ(NextBody(ends_->dialer), "three");
}

TEST_P(SecureChannelTest, FramesAreBounded) {
  const SecureChannelOptions options = Dials();
  const std::string longest(options.max_body, 'x');
  const Bytes frame = ends_->Seal(longest);
  EXPECT_EQ(frame.size(), longest.size() + SecureChannel::FrameOverhead(true));
  ends_->acceptor.Append(frame);
  EXPECT_EQ(NextBody(ends_->acceptor), longest);
  ends_->acceptor.Append(ends_->Seal(longest + "x"));
  EXPECT_EQ(NextBody(ends_->acceptor), "refused");
  // A stranger may not even announce a frame of that length.
  SecureChannel stranger(Accepts());
  const uint32_t length = __builtin_bswap32(1000);
  stranger.Append(std::as_bytes(std::span(&length, 1)));
  EXPECT_EQ(NextBody(stranger), "refused");
}

TEST_P(SecureChannelTest, BytesArriveHoweverTheyAreCut) {
  SecureChannel dialer(Dials()), acceptor(Accepts());
  while (!dialer.open() || !acceptor.open()) {
    for (auto [from, to] : {std::pair(&dialer, &acceptor), std::pair(&acceptor, &dialer)}) {
      for (const std::byte each : from->TakeOutput()) {
        to->Append(std::span(&each, 1));
        ASSERT_EQ(NextBody(*to), "nothing");
      }
    }
  }
  Bytes frame;
  dialer.Seal(BytesOf("slowly"), &frame);
  for (const std::byte each : frame) {
    EXPECT_EQ(NextBody(acceptor), "nothing") << "of a part of a frame";
    acceptor.Append(std::span(&each, 1));
  }
  EXPECT_EQ(NextBody(acceptor), "slowly");
}

TEST_P(SecureChannelTest, WhatPassesIsNeitherReadableNorTheSameTwice) {
  const std::string_view secret = "a secret of sixteen bytes and more";
  const Bytes first = ends_->Seal(secret), second = ends_->Seal(secret);
  EXPECT_FALSE(Contains(first, BytesOf(secret.substr(0, 8))));
  EXPECT_NE(first, second);
  Ends again(Dials(), Accepts());
  again.Introduce();
  ASSERT_TRUE(again.open());
  EXPECT_NE(again.Seal(secret), first) << "the same key on every connection";
  // A listener on the connection does not learn who the ends are, either.
  for (const auto& ring : {alpha_, beta_}) {
    const PublicKey key = ring->public_key();
    EXPECT_FALSE(Contains(again.all, std::as_bytes(std::span(key))));
    EXPECT_FALSE(Contains(again.all, BytesOf(ring->name())));
  }
}

// Each byte of each message of the introduction, and each of them missing.
TEST_P(SecureChannelTest, AChangedIntroductionIsRefusedWhereverItIsChanged) {
  constexpr size_t kMessages = 4;
  for (size_t number = 0; number < kMessages; ++number) {
    size_t size = 1;
    for (size_t at = 0; at < size; ++at) {
      Ends ends(Dials(), Accepts());
      ends.Introduce([&](size_t n, Bytes* message) {
        if (n != number) return;
        size = message->size();
        (*message)[at] ^= std::byte{1};
      });
      ASSERT_FALSE(ends.dialer.open()) << "byte " << at << " of message " << number;
      // The acceptor decides before the last message, which tells the dialer the decision.
      ASSERT_EQ(ends.acceptor.open(), number == kMessages - 1)
          << "byte " << at << " of message " << number;
    }
    EXPECT_GT(size, 16u);
    for (size_t at = 0; at < size; ++at) {
      Ends ends(Dials(), Accepts());
      ends.Introduce([&](size_t n, Bytes* message) {
        if (n == number) message->erase(message->begin() + static_cast<ptrdiff_t>(at));
      });
      ASSERT_FALSE(ends.dialer.open()) << "without byte " << at << " of message " << number;
    }
  }
}

TEST_P(SecureChannelTest, AChangedFrameIsRefusedWhereverItIsChanged) {
  const size_t size = ends_->Seal("payload").size();
  for (size_t at = 0; at < size; ++at) {
    Ends ends(Dials(), Accepts());
    ends.Introduce();
    ASSERT_TRUE(ends.open());
    Bytes frame = ends.Seal("payload");
    frame[at] ^= std::byte{1};
    ends.acceptor.Append(frame);
    const std::string taken = NextBody(ends.acceptor);
    // A changed length may announce a longer frame, which has not come yet.
    EXPECT_TRUE(taken == "refused" || (taken == "nothing" && at < kLengthBytes)) << "byte " << at;
    ends.acceptor.Append(ends.Seal(std::string(512, 'x')));
    EXPECT_EQ(NextBody(ends.acceptor), "refused") << "byte " << at;
    ends.acceptor.Append(ends.Seal("and more"));
    EXPECT_EQ(NextBody(ends.acceptor), "refused") << "byte " << at;
  }
}

TEST_P(SecureChannelTest, ARepeatedFrameIsRefused) {
  const Bytes frame = ends_->Seal("pay once");
  ends_->acceptor.Append(frame);
  ends_->acceptor.Append(frame);
  EXPECT_EQ(NextBody(ends_->acceptor), "pay once");
  EXPECT_EQ(NextBody(ends_->acceptor), "refused");
}

TEST_P(SecureChannelTest, ALeftOutOrMovedFrameIsRefused) {
  const Bytes first = ends_->Seal("first"), second = ends_->Seal("second");
  ends_->acceptor.Append(second);
  ends_->acceptor.Append(first);
  EXPECT_EQ(NextBody(ends_->acceptor), "refused");
}

TEST_P(SecureChannelTest, AFrameThrownBackIsRefused) {
  ends_->dialer.Append(ends_->Seal("mirror"));
  EXPECT_EQ(NextBody(ends_->dialer), "refused");
}

TEST_P(SecureChannelTest, AFrameOfAnotherConnectionIsRefused) {
  Ends other(Dials(), Accepts());
  other.Introduce();
  ends_->acceptor.Append(other.Seal("from elsewhere"));
  EXPECT_EQ(NextBody(ends_->acceptor), "refused");
}

// A recorded introduction does not open another connection, at either end.
TEST_P(SecureChannelTest, ARepeatedIntroductionIsRefused) {
  SecureChannel dialer(Dials()), acceptor(Accepts());
  Bytes from_dialer = dialer.TakeOutput();
  acceptor.Append(from_dialer);
  ASSERT_EQ(NextBody(acceptor), "nothing");
  Bytes from_acceptor = acceptor.TakeOutput();
  dialer.Append(from_acceptor);
  ASSERT_EQ(NextBody(dialer), "nothing");
  const Bytes third = dialer.TakeOutput();
  acceptor.Append(third);
  ASSERT_EQ(NextBody(acceptor), "nothing");
  const Bytes verdict = acceptor.TakeOutput();
  ASSERT_TRUE(acceptor.open());
  from_dialer.insert(from_dialer.end(), third.begin(), third.end());
  from_acceptor.insert(from_acceptor.end(), verdict.begin(), verdict.end());
  SecureChannel next_acceptor(Accepts()), next_dialer(Dials());
  next_acceptor.Append(from_dialer);
  EXPECT_EQ(NextBody(next_acceptor), "refused");
  next_dialer.Append(from_acceptor);
  EXPECT_EQ(NextBody(next_dialer), "refused");
  EXPECT_FALSE(next_acceptor.open() || next_dialer.open());
}

// A dial to a port of this machine that nobody listens at may be given that very port to dial from.
TEST_P(SecureChannelTest, AConnectionToItselfIsRefused) {
  for (const bool keyed : {true, false}) {
    SecureChannelOptions options = Dials();
    if (!keyed) options.ring = nullptr;
    SecureChannel alone(options);
    alone.Append(alone.TakeOutput());
    EXPECT_THAT(alone.Next().status().message(), HasSubstr("dialed itself"));
    EXPECT_FALSE(alone.open());
  }
}

// The host itself is a peer like others: it must be trusted, and be whom the dialer expects.
TEST_P(SecureChannelTest, TheOwnKeyIsTrustedOnlyIfItIsListed) {
  SecureChannelOptions dials = Dials(), accepts = Accepts();
  accepts.ring = alpha_;
  Ends own(dials, accepts);
  own.Introduce();
  EXPECT_THAT(own.dialed, StatusIs(Code::kPermissionDenied));
  LetTrust("alpha", *alpha_, kRoleLink);
  Ends wrong_name(dials, accepts);
  wrong_name.Introduce();
  EXPECT_THAT(wrong_name.dialed, StatusIs(Code::kPermissionDenied));
  dials.peer_names = {"alpha"};
  Ends listed(dials, accepts);
  listed.Introduce();
  EXPECT_TRUE(listed.open());
}

TEST_P(SecureChannelTest, AnUntrustedKeyIsToldWithItsRemedyAtBothEnds) {
  const auto gamma = MakeHost("gamma");
  SecureChannelOptions accepts = Accepts();
  accepts.ring = gamma;
  // The dialer does not know the acceptor: it does not even say who it is.
  Ends unknown_acceptor(Dials(), accepts);
  unknown_acceptor.Introduce();
  EXPECT_THAT(unknown_acceptor.dialed, StatusIs(Code::kPermissionDenied));
  const std::string remedy = "hyperloopctl keys trust --dir " + Dir("alpha") + " gamma " +
                             KeyText(gamma->public_key()) + " link";
  EXPECT_THAT(unknown_acceptor.dialed.message(), HasSubstr(remedy));
  EXPECT_FALSE(unknown_acceptor.dialer.open() || unknown_acceptor.acceptor.open());
  // The acceptor does not know the dialer.
  LetTrust("alpha", *gamma, kRoleLink);
  SecureChannelOptions dials = Dials();
  dials.peer_names = {"gamma"};
  Ends unknown_dialer(dials, accepts);
  unknown_dialer.Introduce();
  EXPECT_THAT(
      unknown_dialer.accepted,
      StatusIs(Code::kPermissionDenied, HasSubstr("hyperloopctl keys trust --dir " + Dir("gamma") +
                                                  " alpha " + KeyText(alpha_->public_key()))));
  EXPECT_THAT(unknown_dialer.dialed,
              StatusIs(Code::kPermissionDenied, HasSubstr("gamma refuses this host (alpha)")));
  EXPECT_THAT(unknown_dialer.dialed.message(), HasSubstr(KeyText(alpha_->public_key())));
  EXPECT_FALSE(unknown_dialer.dialer.open() || unknown_dialer.acceptor.open());
  EXPECT_TRUE(unknown_dialer.dialer.peer().name().empty());
  // Where any role would do, the command gives the least.
  accepts.peer_roles = kEveryRole;
  Ends any_role(dials, accepts);
  any_role.Introduce();
  EXPECT_THAT(any_role.accepted.message(), HasSubstr(KeyText(alpha_->public_key()) + " link ("));
}

// One trusted host cannot pose as another.
TEST_P(SecureChannelTest, AnotherNameThanTheExpectedOneIsRefused) {
  const auto gamma = MakeHost("gamma");
  LetTrust("alpha", *gamma, kRoleLink);
  SecureChannelOptions accepts = Accepts();
  accepts.ring = gamma;
  Ends ends(Dials(), accepts);
  ends.Introduce();
  EXPECT_THAT(ends.dialed, StatusIs(Code::kPermissionDenied, HasSubstr("expected beta")));
  EXPECT_THAT(ends.dialed.message(), HasSubstr("gamma"));
  EXPECT_FALSE(ends.acceptor.open());
}

TEST_P(SecureChannelTest, AMissingRoleIsRefused) {
  SecureChannelOptions accepts = Accepts();
  accepts.peer_roles = kRolePrimary | kRoleReplica;
  Ends dialer_lacks(Dials(), accepts);
  dialer_lacks.Introduce();
  EXPECT_THAT(dialer_lacks.accepted,
              StatusIs(Code::kPermissionDenied, HasSubstr("needs one of primary,replica")));
  EXPECT_THAT(dialer_lacks.dialed.message(), HasSubstr("refuses"));
  SecureChannelOptions dials = Dials();
  dials.peer_roles = kRoleReplica;
  for (const bool named : {true, false}) {
    if (!named) dials.peer_names.clear();
    Ends acceptor_lacks(dials, Accepts());
    acceptor_lacks.Introduce();
    EXPECT_THAT(acceptor_lacks.dialed, StatusIs(Code::kPermissionDenied));
    EXPECT_FALSE(acceptor_lacks.acceptor.open());
  }
}

TEST_P(SecureChannelTest, OneEndWithoutKeysIsRefusedAndBothTellOfIt) {
  for (const bool dialer_keyed : {true, false}) {
    SecureChannelOptions dials = Dials(), accepts = Accepts();
    (dialer_keyed ? accepts : dials).ring = nullptr;
    Ends ends(dials, accepts);
    ends.Introduce();
    for (const Status& each : {ends.dialed, ends.accepted}) {
      EXPECT_THAT(each, StatusIs(Code::kPermissionDenied, HasSubstr("keys")));
    }
    EXPECT_FALSE(ends.dialer.open() || ends.acceptor.open());
  }
}

TEST_P(SecureChannelTest, WithoutKeysFramesArePlain) {
  SecureChannelOptions dials = Dials(), accepts = Accepts();
  dials.ring = accepts.ring = nullptr;
  Ends ends(dials, accepts);
  ends.Introduce();
  ASSERT_TRUE(ends.open()) << ends.dialed.ToString();
  EXPECT_TRUE(ends.dialer.peer().name().empty());
  const Bytes frame = ends.Seal("for all to see");
  EXPECT_TRUE(Contains(frame, BytesOf("for all to see")));
  EXPECT_EQ(frame.size(), 14 + SecureChannel::FrameOverhead(false));
  ends.acceptor.Append(frame);
  EXPECT_EQ(NextBody(ends.acceptor), "for all to see");
}

TEST_P(SecureChannelTest, AnotherVersionOrPurposeIsToldAtBothEnds) {
  for (const bool keyed : {true, false}) {
    SecureChannelOptions dials = Dials(), accepts = Accepts();
    accepts.purpose = "hyperloop test 2";
    if (!keyed) dials.ring = accepts.ring = nullptr;
    Ends ends(dials, accepts);
    ends.Introduce();
    for (const Status& each : {ends.dialed, ends.accepted}) {
      EXPECT_THAT(each, StatusIs(Code::kNotSupported, HasSubstr("\"hyperloop test 1\"")));
      EXPECT_THAT(each.message(), HasSubstr("\"hyperloop test 2\""));
    }
    Ends later(Dials(), Accepts());
    later.Introduce([](size_t number, Bytes* message) {
      if (number == 0) (*message)[kLengthBytes + 4] = std::byte{9};
    });
    EXPECT_THAT(later.accepted, StatusIs(Code::kNotSupported, HasSubstr("version 9")));
    EXPECT_FALSE(later.dialer.open() || later.acceptor.open());
  }
}

// What the other end says of itself and of this end reaches logs and terminals.
TEST_P(SecureChannelTest, TextsOfTheOtherEndAreMadePrintable) {
  const auto expect_clean = [](const Status& status, const std::string& part) {
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_TRUE(std::all_of(status.message().begin(), status.message().end(), [](char ch) {
      return ch >= ' ' && ch <= '~';
    })) << status.ToString();
  };
  // What it speaks.
  Ends speaks(Dials(), Accepts());
  speaks.Introduce([](size_t number, Bytes* message) {
    const Bytes evil = BytesOf("ftp\n[error] \x1b[2J\xc2\x9b");
    if (number == 0) std::copy(evil.begin(), evil.end(), message->begin() + kLengthBytes + 8);
  });
  expect_clean(speaks.accepted, "\"ftp\"");
  // Why it refuses.
  SecureChannelOptions accepts = Accepts();
  accepts.peer_names = {"you\n[error] \x1b[2J\xc2\x9b" + std::string(1000, '!')};
  Ends refuses(Dials(), accepts);
  refuses.Introduce();
  expect_clean(refuses.dialed, "you?[error] ?[2J");
  EXPECT_LT(refuses.dialed.message().size(), 500u);
  // Its name, which a stranger may choose.
  KeyPair stranger;
  *stranger.secret.data() = 1;
  stranger.public_key = PublicKeyOf(stranger.secret);
  NoiseXx noise(/*initiator=*/true, BytesOf(std::string("hyperloop secure channel 1: ") + kPurpose),
                stranger);
  SecureChannel acceptor(Accepts());
  Bytes first = SecureChannel(Dials()).TakeOutput();
  first.resize(first.size() - kMessage1Bytes);
  ASSERT_OK(noise.Write({}, &first));
  acceptor.Append(first);
  ASSERT_EQ(NextBody(acceptor), "nothing");
  const Bytes second = acceptor.TakeOutput();
  ASSERT_OK(noise.Read(std::span(second).last(kMessage2Bytes + kNameBytes)));
  Bytes name = BytesOf("me\n[error] \x1b[2J\xc2\x9b"), third, frame;
  name.resize(kNameBytes);
  ASSERT_OK(noise.Write(name, &third));
  AppendFrame(third, &frame);
  acceptor.Append(frame);
  expect_clean(acceptor.Next().status(), "it says that it is me. If so");
}

TEST_P(SecureChannelTest, ChangedKeysTakeEffectForNewChannels) {
  const std::string next = Dir("next");
  ASSERT_OK(MakeIdentity(next, "alpha"));
  fs::rename(next + "/identity", Dir("alpha") + "/identity");
  ASSERT_OK(alpha_->Refresh());
  Ends changed(Dials(), Accepts());
  changed.Introduce();
  EXPECT_FALSE(changed.acceptor.open());
  LetTrust("beta", *alpha_, kRoleLink);  // the old key is trusted, too
  Ends trusted(Dials(), Accepts());
  trusted.Introduce();
  EXPECT_TRUE(trusted.open());
  EXPECT_EQ(trusted.acceptor.peer().name(), "alpha");
  // What was open before goes on.
  ends_->acceptor.Append(ends_->Seal("still here"));
  EXPECT_EQ(NextBody(ends_->acceptor), "still here");
}

}  // namespace
}  // namespace hyperloop::identity
