#include "softrnic/daemon/link_channel.h"

#include <endian.h>
#include <sodium.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

struct Hello {
  uint32_t magic;  // big-endian
  uint8_t version;
  uint8_t keyed;
  uint8_t reserved[2];
  unsigned char public_key[32];  // X25519; zeros without a key
  unsigned char nonce[32];
};
static_assert(sizeof(Hello) == 72);

constexpr uint32_t kHelloMagic = 0x484c4c4b;  // "HLLK"
constexpr uint8_t kLinkVersion = 2;
constexpr std::string_view kDialerLabel = "hyperloop link 1: dialer";
constexpr std::string_view kAcceptorLabel = "hyperloop link 1: acceptor";
constexpr size_t kTag = crypto_aead_chacha20poly1305_ietf_ABYTES;
constexpr size_t kProof = crypto_auth_BYTES;
static_assert(crypto_auth_KEYBYTES == 32 && crypto_kx_SESSIONKEYBYTES == 32);

const unsigned char* Raw(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }
unsigned char* Raw(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }

// The nonce of a frame: its number on this connection, so that no key sees one twice.
struct Nonce {
  explicit Nonce(uint64_t number) {
    number = htole64(number);
    std::memcpy(bytes.data(), &number, sizeof number);
  }
  std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> bytes{};
};

}  // namespace

Status InitializeLinkCrypto() {
  if (sodium_init() < 0) return Internal("libsodium cannot be initialised");
  return {};
}

LinkChannel::LinkChannel(bool dialer, const LinkKey* key)
    : dialer_(dialer), key_(key), reader_(kMaxPacketBytes + kTag) {
  if (key_ != nullptr) crypto_kx_keypair(public_key_.data(), secret_key_.data());
  if (dialer_) SayHello();
}

LinkChannel::~LinkChannel() {
  sodium_memzero(secret_key_.data(), secret_key_.size());
  sodium_memzero(send_key_.data(), send_key_.size());
  sodium_memzero(receive_key_.data(), receive_key_.size());
}

size_t LinkChannel::FrameOverhead(bool keyed) { return kFrameLengthBytes + (keyed ? kTag : 0); }

void LinkChannel::SayHello() {
  Hello hello{};
  hello.magic = htobe32(kHelloMagic);
  hello.version = kLinkVersion;
  hello.keyed = key_ != nullptr ? 1 : 0;
  if (key_ != nullptr) std::memcpy(hello.public_key, public_key_.data(), sizeof hello.public_key);
  randombytes_buf(hello.nonce, sizeof hello.nonce);
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  hellos_.insert(hellos_.end(), bytes.begin(), bytes.end());
  if (dialer_) AppendFrame(bytes, &output_);
}

Result<std::optional<std::span<const std::byte>>> LinkChannel::Next() {
  using Body = std::optional<std::span<const std::byte>>;
  for (;;) {
    HL_ASSIGN_OR_RETURN(const auto frame, reader_.Next());
    if (!frame.has_value()) return Body();
    if (!open_) {
      HL_RETURN_IF_ERROR(Introduce(*frame));
      continue;
    }
    if (key_ == nullptr) return Body(*frame);
    if (frame->size() < kTag) return Corruption("sealed frame without its seal");
    plain_.resize(frame->size() - kTag);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(
            Raw(plain_.data()), nullptr, nullptr, Raw(frame->data()), frame->size(), nullptr, 0,
            Nonce(received_++).bytes.data(), receive_key_.data()) != 0)
      return Corruption("frame with a broken seal: changed, repeated or left out on the way");
    return Body(std::span<const std::byte>(plain_));
  }
}

void LinkChannel::Seal(std::span<const std::byte> body, std::vector<std::byte>* out) {
  if (key_ == nullptr) return AppendFrame(body, out);
  const uint32_t length = htobe32(static_cast<uint32_t>(body.size() + kTag));
  const size_t at = out->size();
  out->resize(at + sizeof length + body.size() + kTag);
  std::memcpy(out->data() + at, &length, sizeof length);
  crypto_aead_chacha20poly1305_ietf_encrypt(Raw(out->data() + at + sizeof length), nullptr,
                                            Raw(body.data()), body.size(), nullptr, 0, nullptr,
                                            Nonce(sent_++).bytes.data(), send_key_.data());
}

// --- the introduction
// -----------------------------------------------------------------------------

Status LinkChannel::Introduce(std::span<const std::byte> body) {
  return greeted_ ? AcceptProof(body) : AcceptHello(body);
}

// The dialer's hello, or the acceptor's, which has its proof behind it.
Status LinkChannel::AcceptHello(std::span<const std::byte> body) {
  Hello hello;
  if (body.size() < sizeof hello)
    return Corruption("hello of " + std::to_string(body.size()) + " bytes");
  std::memcpy(&hello, body.data(), sizeof hello);
  if (be32toh(hello.magic) != kHelloMagic) return Corruption("not a hyperloop link");
  if (hello.version != kLinkVersion)
    return NotSupported("link of version " + std::to_string(hello.version) +
                        "; this daemon speaks " + std::to_string(kLinkVersion) +
                        ": use one release on all machines");
  if (dialer_ &&
      std::memcmp(hello.nonce, hellos_.data() + offsetof(Hello, nonce), sizeof hello.nonce) == 0)
    return Corruption("this end dialed itself: nobody else listens there");
  const bool keyed = key_ != nullptr;
  const auto mine = std::span(body).first(sizeof hello);
  hellos_.insert(hellos_.end(), mine.begin(), mine.end());
  std::memcpy(peer_key_.data(), hello.public_key, peer_key_.size());
  greeted_ = true;
  if (!dialer_) {
    SayHello();
    std::vector<std::byte> answer(hellos_.begin() + sizeof hello, hellos_.end());
    if (keyed) Prove(false, &answer);
    AppendFrame(answer, &output_);
  }
  if ((hello.keyed != 0) != keyed)
    return PermissionDenied(keyed ? "the other end has no link key: start it with --link-key"
                                  : "the other end asks for a link key: give this one --link-key");
  if (body.size() != sizeof hello + (dialer_ && keyed ? kProof : 0))
    return Corruption("hello of " + std::to_string(body.size()) + " bytes");
  if (!keyed) {
    open_ = true;
    return {};
  }
  if (!dialer_) return {};  // the dialer's proof is to come
  HL_RETURN_IF_ERROR(AcceptProof(body.subspan(sizeof hello)));
  std::vector<std::byte> proof;
  Prove(true, &proof);
  AppendFrame(proof, &output_);
  return {};
}

// Role by role, so that one end's proof cannot be thrown back at it.
void LinkChannel::Prove(bool as_dialer, std::vector<std::byte>* out) const {
  std::vector<std::byte> text = hellos_;
  const std::string_view role = as_dialer ? kDialerLabel : kAcceptorLabel;
  const auto label = std::as_bytes(std::span(role));
  text.insert(text.end(), label.begin(), label.end());
  const size_t at = out->size();
  out->resize(at + kProof);
  crypto_auth(Raw(out->data() + at), Raw(text.data()), text.size(), key_->data());
}

Status LinkChannel::AcceptProof(std::span<const std::byte> body) {
  std::vector<std::byte> expected;
  Prove(!dialer_, &expected);
  if (body.size() != kProof || sodium_memcmp(body.data(), expected.data(), kProof) != 0)
    return PermissionDenied("the other end has another link key");
  HL_RETURN_IF_ERROR(MakeKeys());
  open_ = true;
  return {};
}

Status LinkChannel::MakeKeys() {
  std::array<unsigned char, 32> receive, send;
  const auto exchange = dialer_ ? crypto_kx_client_session_keys : crypto_kx_server_session_keys;
  if (exchange(receive.data(), send.data(), public_key_.data(), secret_key_.data(),
               peer_key_.data()) != 0)
    return PermissionDenied("the other end sent an unusable public key");
  // The exchange makes them this connection's; the shared key makes them ours.
  const auto mix = [this](const std::array<unsigned char, 32>& from,
                          std::array<unsigned char, 32>* to) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, key_->data(), key_->size(), to->size());
    crypto_generichash_update(&state, from.data(), from.size());
    crypto_generichash_update(&state, Raw(hellos_.data()), hellos_.size());
    crypto_generichash_final(&state, to->data(), to->size());
  };
  mix(receive, &receive_key_);
  mix(send, &send_key_);
  sodium_memzero(receive.data(), receive.size());
  sodium_memzero(send.data(), send.size());
  return {};
}

}  // namespace hyperloop::softrnic
