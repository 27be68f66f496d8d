#include "hyperloop/identity/secure_channel.h"

#include <endian.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/frame_reader.h"
#include "base/identity/noise_xx.h"
#include "hyperloop/core/name.h"

namespace hyperloop::identity {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kMaxPurpose = 64;

// What each end sends first.
struct Preface {
  uint32_t magic;  // big-endian
  uint8_t version;
  uint8_t acceptor;
  uint8_t keyed;
  uint8_t reserved;
  char purpose[kMaxPurpose];  // zeros behind it
};
static_assert(sizeof(Preface) == 72);

constexpr uint32_t kMagic = 0x484c5343;  // "HLSC"
constexpr uint8_t kVersion = 1;
// The answer to message 3, sealed: a Verdict and its reason.
enum Verdict : uint8_t { kWelcome = 0, kRefused = 1 };
constexpr size_t kMaxReason = 400;
// What an end offers, bitwise: the last byte behind its name, which the name's zero keeps free.
constexpr std::byte kOffersAes256Gcm{1};
constexpr size_t kMaxAesBody = 1 << 20;
// The longest message of an introduction, in bytes.
constexpr size_t kMaxIntroduction = sizeof(Preface) + kMaxReason + 2 * kTagBytes;
static_assert(kMaxIntroduction >= sizeof(Preface) + kMessage2Bytes + kNameBytes);

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Text of the other end in a form that is safe for this end's logs and terminals.
std::string Printable(std::span<const std::byte> bytes, size_t most) {
  std::string text;
  for (const std::byte each : bytes.first(std::min(bytes.size(), most))) {
    const auto ch = static_cast<unsigned char>(each);
    text += ch >= 0x20 && ch < 0x7f ? static_cast<char>(ch) : '?';
  }
  return text;
}

// What the other end calls itself; empty where that is not a name.
std::string NameIn(std::span<const std::byte> payload) {
  std::string name = Printable(payload, kNameBytes);
  name = name.substr(0, name.find('?'));
  return IsName(name) ? name : std::string();
}

// The cipher that both ends choose.
Cipher Choose(std::byte one, std::byte other) {
  return (one & other & kOffersAes256Gcm) != std::byte{0} ? Cipher::kAes256Gcm
                                                          : Cipher::kChaCha20Poly1305;
}

}  // namespace

class SecureChannel::Impl {
 public:
  explicit Impl(SecureChannelOptions options);

  Result<std::optional<std::span<const std::byte>>> Next();
  void Seal(std::span<const std::byte> body, Bytes* out);

  bool open_ = false;
  Peer peer_;
  std::optional<Cipher> cipher_;
  FrameReader reader_{kMaxIntroduction};
  Bytes output_;

 private:
  Preface OwnPreface() const;
  void StartHandshake();
  Bytes Prologue() const;
  Status Introduce(std::span<const std::byte> body);
  Status TakePreface(std::span<const std::byte> bytes);
  Status TakeFirst(std::span<const std::byte> body);   // the acceptor
  Status TakeSecond(std::span<const std::byte> body);  // the dialer
  Status TakeThird(std::span<const std::byte> body);   // the acceptor
  Status TakeVerdict(std::span<const std::byte> body);
  Status Say(std::span<const std::byte> before);
  Status Judge(const std::string& claimed, std::string* tell);
  std::byte Offer() const;
  void MakeKeys(const Bytes& payload);
  void Open();

  const SecureChannelOptions options_;
  std::optional<NoiseXx> noise_;  // until the keys are made
  CipherState send_, receive_;
  int taken_ = 0;                              // messages of the introduction
  Peer proved_;                                // becomes peer_ when open
  Cipher chosen_ = Cipher::kChaCha20Poly1305;  // becomes cipher_ then
  Status failure_;
  Bytes plain_;  // of the last frame
};

SecureChannel::Impl::Impl(SecureChannelOptions options) : options_(std::move(options)) {
  if (options_.purpose.empty() || options_.purpose.size() > kMaxPurpose)
    failure_ = InvalidArgument("the purpose of a channel has 1 to 64 characters");
  if (options_.ciphers.aes_256_gcm && options_.max_body > kMaxAesBody)
    failure_ = InvalidArgument("AES-256-GCM seals frames of at most 1 MiB");
  if (!failure_.ok()) return;
  if (!options_.dialer) return;  // costs nothing until somebody speaks
  StartHandshake();
  const Preface preface = OwnPreface();
  failure_ = Say(std::as_bytes(std::span(&preface, 1)));
}

Preface SecureChannel::Impl::OwnPreface() const {
  Preface preface{};
  preface.magic = htobe32(kMagic);
  preface.version = kVersion;
  preface.acceptor = options_.dialer ? 0 : 1;
  preface.keyed = options_.ring != nullptr ? 1 : 0;
  std::memcpy(preface.purpose, options_.purpose.data(), options_.purpose.size());
  return preface;
}

void SecureChannel::Impl::StartHandshake() {
  if (options_.ring != nullptr)
    noise_.emplace(options_.dialer, Prologue(), options_.ring->key_pair());
}

// The prologue of the handshake, which fails unless both ends make the same one.
Bytes SecureChannel::Impl::Prologue() const {
  return BytesOf("hyperloop secure channel " + std::to_string(kVersion) + ": " + options_.purpose);
}

// Sends `before`, and behind it the handshake's next message if there is one.
Status SecureChannel::Impl::Say(std::span<const std::byte> before) {
  Bytes message(before.begin(), before.end());
  if (noise_.has_value()) {
    Bytes payload;
    if (taken_ == 1) {  // not in the first message, which is not encrypted
      payload = BytesOf(options_.ring->name());
      payload.resize(kNameBytes);
      payload.back() = Offer();
    }
    HL_RETURN_IF_ERROR(noise_->Write(payload, &message));
  }
  AppendFrame(message, &output_);
  return {};
}

Result<std::optional<std::span<const std::byte>>> SecureChannel::Impl::Next() {
  using Body = std::optional<std::span<const std::byte>>;
  while (failure_.ok()) {
    const auto frame = reader_.Next();
    if (!frame.ok()) {
      failure_ = open_ ? frame.status() : frame.status().WithContext("introduction");
      break;
    }
    if (!frame->has_value()) return Body();
    if (!open_) {
      failure_ = Introduce(**frame);
      continue;
    }
    if (options_.ring == nullptr) return Body(**frame);
    if (receive_.Decrypt({}, **frame, &plain_)) return Body(std::span<const std::byte>(plain_));
    failure_ = Corruption("frame with a broken seal: changed, repeated or left out on the way");
  }
  return failure_;
}

void SecureChannel::Impl::Seal(std::span<const std::byte> body, Bytes* out) {
  if (options_.ring == nullptr) return AppendFrame(body, out);
  const uint32_t length = htobe32(static_cast<uint32_t>(body.size() + kTagBytes));
  const auto* const at = reinterpret_cast<const std::byte*>(&length);
  out->insert(out->end(), at, at + sizeof length);
  send_.Encrypt({}, body, out);
}

// --- the introduction

Status SecureChannel::Impl::Introduce(std::span<const std::byte> body) {
  const int number = ++taken_;
  if (number == 1) return options_.dialer ? TakeSecond(body) : TakeFirst(body);
  return options_.dialer ? TakeVerdict(body) : TakeThird(body);
}

Status SecureChannel::Impl::TakePreface(std::span<const std::byte> bytes) {
  const Preface own = OwnPreface();
  Preface other;
  if (bytes.size() < sizeof other)
    return Corruption("introduction of " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&other, bytes.data(), sizeof other);
  if (other.magic != own.magic) return Corruption("the other end is no hyperloop program");
  if (other.version != own.version)
    return NotSupported("the other end introduces itself in version " +
                        std::to_string(other.version) + ", this one in " +
                        std::to_string(own.version) + ": use one release on all machines");
  if (other.acceptor == own.acceptor)
    return Corruption(options_.dialer ? "this end dialed itself: nobody else listens there"
                                      : "the other end did not dial");
  if (other.acceptor > 1) return Corruption("malformed introduction");
  if (std::memcmp(other.purpose, own.purpose, sizeof own.purpose) != 0) {
    std::string theirs = Printable(std::as_bytes(std::span(other.purpose)), kMaxPurpose);
    theirs.resize(std::min(theirs.find('?'), theirs.size()));
    return NotSupported("the other end speaks \"" + theirs + "\", this one \"" + options_.purpose +
                        "\": look at the port, and use one release on all machines");
  }
  if (other.keyed != own.keyed)
    return PermissionDenied(
        own.keyed != 0
            ? "the other end has no keys: start it with a keys directory, too"
            : "the other end asks for keys: give this one a keys directory (hyperloopctl "
              "keys init)");
  if (other.reserved != 0) return Corruption("malformed introduction");
  return {};
}

Status SecureChannel::Impl::TakeFirst(std::span<const std::byte> body) {
  const Preface preface = OwnPreface();
  const auto own = std::as_bytes(std::span(&preface, 1));
  if (const Status status = TakePreface(body); !status.ok()) {
    // The answer lets the other end see what is wrong. An end that speaks another protocol gets
    // none.
    if (status.code() != Code::kCorruption) AppendFrame(own, &output_);
    return status;
  }
  if (body.size() != sizeof preface + (options_.ring != nullptr ? kMessage1Bytes : 0))
    return Corruption("introduction of " + std::to_string(body.size()) + " bytes");
  StartHandshake();
  if (noise_.has_value()) HL_RETURN_IF_ERROR(noise_->Read(body.subspan(sizeof preface)).status());
  HL_RETURN_IF_ERROR(Say(own));
  if (!noise_.has_value()) Open();
  return {};
}

Status SecureChannel::Impl::TakeSecond(std::span<const std::byte> body) {
  HL_RETURN_IF_ERROR(TakePreface(body));
  const size_t expected = sizeof(Preface) + (noise_.has_value() ? kMessage2Bytes + kNameBytes : 0);
  if (body.size() != expected)
    return Corruption("introduction of " + std::to_string(body.size()) + " bytes");
  if (!noise_.has_value()) {
    Open();
    return {};
  }
  HL_ASSIGN_OR_RETURN(const Bytes payload, noise_->Read(body.subspan(sizeof(Preface))));
  std::string ignored;
  // This end judges the other before it tells its own identity.
  HL_RETURN_IF_ERROR(Judge(NameIn(payload), &ignored));
  HL_RETURN_IF_ERROR(Say({}));
  MakeKeys(payload);
  return {};
}

Status SecureChannel::Impl::TakeThird(std::span<const std::byte> body) {
  if (body.size() != kMessage3Bytes + kNameBytes)
    return Corruption("introduction of " + std::to_string(body.size()) + " bytes");
  HL_ASSIGN_OR_RETURN(const Bytes payload, noise_->Read(body));
  std::string tell;
  const Status judged = Judge(NameIn(payload), &tell);
  MakeKeys(payload);
  Bytes verdict = {static_cast<std::byte>(judged.ok() ? kWelcome : kRefused)};
  const Bytes reason = BytesOf(tell.substr(0, kMaxReason));
  verdict.insert(verdict.end(), reason.begin(), reason.end());
  Seal(verdict, &output_);
  HL_RETURN_IF_ERROR(judged);
  Open();
  return {};
}

Status SecureChannel::Impl::TakeVerdict(std::span<const std::byte> body) {
  if (!receive_.Decrypt({}, body, &plain_) || plain_.empty())
    return Corruption("the introduction was changed on the way");
  if (plain_[0] != static_cast<std::byte>(kWelcome))
    return PermissionDenied(proved_.name() + " refuses this host (" + options_.ring->name() +
                            "): " + Printable(std::span(plain_).subspan(1), kMaxReason));
  Open();
  return {};
}

// Finds whose key the other end has proved to have, and decides whether that peer may use this
// channel. `tell`: what the other end may know of a refusal.
Status SecureChannel::Impl::Judge(const std::string& claimed, std::string* tell) {
  const KeyRing& ring = *options_.ring;
  const PublicKey& key = noise_->remote_static();
  const std::optional<Peer> peer = ring.Find(key);
  const std::string wanted = RolesText(options_.peer_roles);
  if (!peer.has_value()) {
    // A stranger is not told which directory that is.
    const std::string name = claimed.empty() ? "NAME" : claimed;
    const Roles least = (options_.peer_roles & kRoleLink) != 0 ? kRoleLink : options_.peer_roles;
    *tell = "its key is not trusted there; on " + ring.name() +
            ": hyperloopctl keys trust --dir DIR " + name + " " + KeyText(key) +
            " ROLES (DIR: the keys directory there; ROLES: primary,link or replica,link, or link "
            "to read only)";
    return PermissionDenied(
        "the key " + KeyText(key) + " is not trusted here; it says that it is " +
        (claimed.empty() ? "nobody" : claimed) +
        ". If so, trust it with: " + ring.TrustCommand(name, key, least) +
        " (a host that takes the group needs the roles primary,link, that of a replica "
        "replica,link, one that only reads link)");
  }
  for (const std::string& name : options_.peer_names) {
    if (peer->Is(name, options_.peer_roles)) continue;
    *tell = "it is not " + name + " with the role " + wanted + " there";
    return PermissionDenied("expected " + name + " with the role " + wanted + ", and the key " +
                            KeyText(key) + " is trusted as " + peer->lines().front().name + " (" +
                            RolesText(peer->roles()) + "): look at the address. If that is " +
                            name + ", too: " + ring.TrustCommand(name, key, options_.peer_roles));
  }
  if ((peer->roles() & options_.peer_roles) == 0) {
    *tell = "it has no role " + wanted + " there";
    return PermissionDenied(peer->names() + " has the roles " + RolesText(peer->roles()) +
                            " here, and needs one of " + wanted + ": to give it, " +
                            ring.TrustCommand(peer->name(), key, options_.peer_roles));
  }
  proved_ = *peer;
  return {};
}

std::byte SecureChannel::Impl::Offer() const {
  return options_.ciphers.aes_256_gcm ? kOffersAes256Gcm : std::byte{0};
}

// Ends the handshake. `payload`: of the other end's last message of it, with the other end's offer.
void SecureChannel::Impl::MakeKeys(const Bytes& payload) {
  chosen_ = Choose(Offer(), payload.back());
  for (CipherState* const state : {&send_, &receive_})
    state->Use(chosen_, options_.ciphers.make(chosen_));
  noise_->Split(&send_, &receive_);
  noise_.reset();
}

void SecureChannel::Impl::Open() {
  open_ = true;
  if (options_.ring != nullptr) cipher_ = chosen_;
  peer_ = proved_;
  reader_.set_max_body(options_.max_body + (options_.ring != nullptr ? kTagBytes : 0));
}

// --- SecureChannel

SecureChannel::SecureChannel(SecureChannelOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
SecureChannel::~SecureChannel() = default;

bool SecureChannel::open() const { return impl_->open_; }
const Peer& SecureChannel::peer() const { return impl_->peer_; }
std::optional<Cipher> SecureChannel::cipher() const { return impl_->cipher_; }
void SecureChannel::Append(std::span<const std::byte> bytes) { impl_->reader_.Append(bytes); }

Result<std::optional<std::span<const std::byte>>> SecureChannel::Next() { return impl_->Next(); }

void SecureChannel::Seal(std::span<const std::byte> body, std::vector<std::byte>* out) {
  impl_->Seal(body, out);
}

size_t SecureChannel::FrameOverhead(bool keyed) {
  return kFrameLengthBytes + (keyed ? kTagBytes : 0);
}

std::vector<std::byte> SecureChannel::TakeOutput() { return std::exchange(impl_->output_, {}); }

}  // namespace hyperloop::identity
