// The introduction of two hosts: the texts of keys directories, streams of any content to either
// end of a SecureChannel, and a pair of ends whose bytes are changed, cut, repeated and sent back
// on the way. Rules: no call hangs or reads beyond its input; an end of a keyed channel opens only
// for the peer that it trusts, and with the best cipher that both have; the bytes arrive as they
// were sent, in order and without omissions, or there is an error.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>

#include "base/identity/keys_directory.h"
#include "fuzz/fuzz.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "hyperloop/identity/secure_channel.h"

namespace hyperloop::fuzz {
namespace {

using identity::KeyRing;
using identity::SecureChannel;
using Bytes = std::vector<std::byte>;

enum Kind : uint8_t { kTrusted, kIdentity, kStream, kPair, kKinds };
constexpr size_t kMaxBody = 4096;

// Two hosts that trust each other.
struct Hosts {
  Hosts() {
    std::string root = std::filesystem::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(root.data()) != nullptr, "a directory");
    a = Make(root + "/a", "a");
    b = Make(root + "/b", "b");
    Let(*a, *b);
    Let(*b, *a);
    std::filesystem::remove_all(root);
  }
  static std::shared_ptr<KeyRing> Make(const std::string& dir, const std::string& name) {
    HL_FUZZ_CHECK(identity::MakeIdentity(dir, name).ok(), "an identity");
    return KeyRing::Load(dir).value();
  }
  static void Let(KeyRing& who, const KeyRing& whom) {
    HL_FUZZ_CHECK(
        identity::Trust(who.dir(), {whom.name(), whom.public_key(), identity::kRoleLink}).ok(),
        "trust");
    HL_FUZZ_CHECK(who.Refresh().ok(), "refresh");
  }
  std::shared_ptr<KeyRing> a, b;
};

const Hosts& TheHosts() {
  static const Hosts hosts;
  return hosts;
}

// What an end has besides libsodium.
identity::Ciphers CiphersOf(bool openssl) {
  static const identity::Ciphers ciphers = identity::OpenSslCiphers();
  return openssl ? ciphers : identity::Ciphers{};
}

identity::SecureChannelOptions OptionsOf(bool dialer, bool keyed, bool openssl) {
  identity::SecureChannelOptions options;
  options.dialer = dialer;
  options.purpose = "fuzz 1";
  if (keyed) options.ring = dialer ? TheHosts().a : TheHosts().b;
  options.peer_roles = identity::kRoleLink;
  if (dialer && keyed) options.peer_names = {"b"};
  options.max_body = kMaxBody;
  options.ciphers = CiphersOf(openssl);
  return options;
}

void ParseTrustedText(std::string_view text) {
  const auto peers = identity::ParseTrusted(text);
  if (!peers.ok()) {
    HL_FUZZ_CHECK(!peers.status().message().empty(), "a refusal without a reason");
    return;
  }
  for (const identity::TrustedPeer& each : *peers) {
    const auto again = identity::ParseTrusted(each.Line());
    HL_FUZZ_CHECK(again.ok() && again->size() == 1 && again->front() == each, each.Line());
  }
}

void ParseIdentityText(std::string_view text) {
  const auto parsed = identity::ParseIdentity(text);
  if (!parsed.ok()) return;
  identity::FileText written;
  identity::WriteIdentity(*parsed, &written);
  HL_FUZZ_CHECK(identity::ParseIdentity(written.view()).ok(), "written, and not read");
}

// Feeds arbitrary bytes, in pieces.
void ReadStream(Reader& in) {
  const uint8_t how = in.U8();
  SecureChannel channel(OptionsOf((how & 1) != 0, (how & 2) != 0, (how & 4) != 0));
  while (!in.done()) {
    channel.Append(std::as_bytes(in.Bytes(1u + in.U8())));
    for (;;) {
      const auto frame = channel.Next();
      HL_FUZZ_CHECK((how & 2) == 0 || !channel.open(), "opened for nobody");
      if (!frame.ok()) {
        HL_FUZZ_CHECK(!channel.Next().ok(), "an error that is forgotten");
        return;
      }
      if (!frame->has_value()) break;
      HL_FUZZ_CHECK((*frame)->size() <= kMaxBody, "a frame longer than allowed");
    }
  }
}

// Both ends and an attacker between them.
class Pair {
 public:
  // `openssl`: of the dialer (1) and the acceptor (2).
  Pair(Reader& in, uint8_t openssl)
      : in_(in),
        cipher_((openssl & 3) == 3 && CiphersOf(true).aes_256_gcm
                    ? identity::Cipher::kAes256Gcm
                    : identity::Cipher::kChaCha20Poly1305),
        ends_{End(true, (openssl & 1) != 0), End(false, (openssl & 2) != 0)} {
    for (End& end : ends_) Say(end);
  }
  void Run() {
    for (int i = 0; i < 100 && !in_.done(); ++i) Instruction();
    for (int i = 0; i < 6; ++i) Deliver(ends_[i % 2], SIZE_MAX);
  }

 private:
  struct End {
    End(bool dials, bool openssl) : dialer(dials), channel(OptionsOf(dials, true, openssl)) {}
    const bool dialer;
    SecureChannel channel;
    std::deque<std::byte> way;     // to the other end
    std::deque<Bytes> sent;        // that the other end has not given out
    std::deque<std::byte> record;  // of all that left
    bool failed = false;
  };
  End& Other(End& end) { return ends_[end.dialer ? 1 : 0]; }

  void Put(End& from, const Bytes& bytes) {
    from.way.insert(from.way.end(), bytes.begin(), bytes.end());
    from.record.insert(from.record.end(), bytes.begin(), bytes.end());
  }
  void Say(End& end) { Put(end, end.channel.TakeOutput()); }

  void Deliver(End& from, size_t most) {
    End& to = Other(from);
    const size_t n = std::min(most, from.way.size());
    const Bytes bytes(from.way.begin(), from.way.begin() + static_cast<ptrdiff_t>(n));
    from.way.erase(from.way.begin(), from.way.begin() + static_cast<ptrdiff_t>(n));
    if (to.failed) return;
    to.channel.Append(bytes);
    for (;;) {
      const auto frame = to.channel.Next();
      Say(to);
      if (to.channel.open()) {
        HL_FUZZ_CHECK(to.channel.peer().name() == (to.dialer ? "b" : "a"), "opened for another");
        HL_FUZZ_CHECK(to.channel.cipher() == cipher_, "opened with another cipher");
      }
      to.failed = !frame.ok();
      if (to.failed || !frame->has_value()) return;
      HL_FUZZ_CHECK(
          !from.sent.empty() && std::equal((*frame)->begin(), (*frame)->end(),
                                           from.sent.front().begin(), from.sent.front().end()),
          "what arrived was not sent");
      from.sent.pop_front();
    }
  }

  void Instruction() {
    const uint8_t what = in_.U8();
    End& from = ends_[what & 1];
    const uint16_t at = in_.U16();
    switch (what / 2 % 6) {
      case 0:
      case 1:
        Deliver(from, 1u + at);
        break;
      case 2:
        if (from.channel.open()) {
          Bytes body(at % kMaxBody, static_cast<std::byte>(at)), out;
          from.channel.Seal(body, &out);
          from.sent.push_back(std::move(body));
          Put(from, out);
        }
        break;
      case 3:  // changed
        if (!from.way.empty()) from.way[at % from.way.size()] ^= static_cast<std::byte>(in_.U8());
        break;
      case 4:  // left out
        if (!from.way.empty())
          from.way.erase(from.way.begin() + at % static_cast<int>(from.way.size()));
        break;
      case 5:  // said again, to either end
        End& to = (at & 1) != 0 ? from : Other(from);
        const size_t begin = at % (from.record.size() + 1);
        to.way.insert(to.way.end(), from.record.begin() + static_cast<ptrdiff_t>(begin),
                      from.record.end());
    }
  }

  Reader& in_;
  const identity::Cipher cipher_;  // that both have to choose
  End ends_[2];
};

std::string_view TextOf(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Both ends introduce themselves and send, after which the attacker acts.
Input PairSeed(unsigned tamper, unsigned openssl) {
  Writer out;
  out.U8(kPair).U8(openssl);
  for (const unsigned end : {0u, 1u, 0u, 1u}) out.U8(end).U16(5000);
  for (const unsigned length : {1u, 100u, 0u}) {
    out.U8(4).U16(length).U8(5).U16(length);
    if (tamper != 0) out.U8(tamper).U16(3).U8(1);
    out.U8(0).U16(5000).U8(1).U16(5000);
  }
  return out.Finish();
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  const std::string key(64, 'a'), other(64, 'b');
  const std::string trusted = "# hosts\na " + key + " primary,link\nb " + other +
                              " replica 10.0.0.2:7000\n\nb " + key + " link # \n";
  seeds.push_back(Writer().U8(kTrusted).Bytes(trusted.data(), trusted.size()).Finish());
  const std::string own = "# this host\nname a\nsecret " + key + "\n";
  seeds.push_back(Writer().U8(kIdentity).Bytes(own.data(), own.size()).Finish());
  for (const unsigned how : {0u, 1u, 2u, 3u}) {
    // What the other end would begin with.
    SecureChannel dialer(OptionsOf(true, (how & 2) != 0, true)),
        acceptor(OptionsOf(false, (how & 2) != 0, true));
    Bytes bytes = dialer.TakeOutput();
    if ((how & 1) != 0) {
      acceptor.Append(bytes);
      HL_FUZZ_CHECK(acceptor.Next().ok(), "the first message");
      bytes = acceptor.TakeOutput();
    }
    Writer out;
    out.U8(kStream).U8(how | 4);
    for (size_t at = 0; at < bytes.size(); at += 50) {
      const size_t n = std::min<size_t>(50, bytes.size() - at);
      out.U8(static_cast<unsigned>(n - 1)).Bytes(bytes.data() + at, n);
    }
    seeds.push_back(out.Finish());
  }
  for (const unsigned tamper : {0u, 6u, 8u, 10u})
    for (const unsigned openssl : {0u, 1u, 3u}) seeds.push_back(PairSeed(tamper, openssl));
  return seeds;
}

const FuzzTarget kFuzzTarget("channel", Seeds, [](Reader& in) {
  switch (in.U8() % kKinds) {
    case kTrusted:
      ParseTrustedText(TextOf(in.Rest()));
      break;
    case kIdentity:
      ParseIdentityText(TextOf(in.Rest()));
      break;
    case kStream:
      ReadStream(in);
      break;
    default:
      Pair(in, in.U8()).Run();
  }
});

}  // namespace
}  // namespace hyperloop::fuzz
