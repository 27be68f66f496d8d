// SecureChannel: the two ends' introduction on a new connection, and the frames after it. No
// sockets: bytes in, bytes out.
//
// With a key ring each end proves its identity by Noise_XX_25519_ChaChaPoly_SHA256
// (noiseprotocol.org, revision 34); then frames are sealed under keys of this connection alone: who
// learns a host's secret key later cannot read what was recorded. A frame that was changed, left
// out, repeated, moved or thrown back is noticed and ends the connection. Without a ring frames are
// plain, and nothing is proved.
//
//   dialer                                     acceptor
//     preface, e                     ----->      same version, purpose, keyed or not?
//     trusted? the expected name?    <-----      preface, e, ee, s, es, its name
//     s, se, its name                ----->      trusted? a role for this purpose?
//     open                           <-----      sealed: welcome, or why not; open
//
// The preface is magic, version, end, keyed, purpose; all of it is bound into the handshake. The
// names that the ends tell are for messages only: who a peer is, is what `trusted` calls its key.
// A sealed frame is one message of Noise, though it may be longer than Noise's 65535 bytes.
//
// The handshake's own cipher is ChaCha20-Poly1305. That of what follows it, from the answer to the
// third message on, is AES-256-GCM if both ends offer it, else ChaCha20-Poly1305: each end makes
// this choice from both offers. An offer lies behind the end's name, in what the handshake has
// encrypted and authenticated by then, so nobody between the ends can change it or leave it out.
// Releases that know no offers send and ignore a zero there, and get ChaCha20-Poly1305.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/identity/ciphers.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {

struct SecureChannelOptions {
  bool dialer = false;
  // What is spoken after the introduction, and its version: "hyperloop link 4". 1 to 64 printable
  // characters; both ends must name the same.
  std::string purpose{};
  std::shared_ptr<const KeyRing> ring{};  // null: plain
  // The peer must have one of these roles.
  Roles peer_roles = kEveryRole;
  // The peer must have all of these names, with one of the roles each; usually set by a dialer.
  std::vector<std::string> peer_names{};
  size_t max_body = 64 << 10;  // of a frame, either way; at most 1 MiB with AES-256-GCM
  Ciphers ciphers{};
};

class SecureChannel {
 public:
  // A dialer's first message is in TakeOutput at once. An acceptor costs next to nothing until the
  // first message has come; the ring's keys as they are then count.
  explicit SecureChannel(SecureChannelOptions options);
  ~SecureChannel();
  SecureChannel(const SecureChannel&) = delete;
  SecureChannel& operator=(const SecureChannel&) = delete;

  // True once both ends know that the other is who it should be, and accept it.
  bool open() const;
  // Who the other end has proved to be: before open, and without keys, nobody.
  const Peer& peer() const;
  // What seals the frames; nothing before open, and without keys.
  std::optional<Cipher> cipher() const;

  // Bytes from the other end. Next then gives the bodies of the frames in them (after the
  // introduction), valid until the next call; nothing: more bytes are needed. After an error every
  // further call returns it again, and TakeOutput may hold what tells the other end why:
  // kPermissionDenied: the other end's key is not trusted, has another name or no role for this,
  // only one end has keys, or the other end refuses this one;
  // kNotSupported: another version or purpose; kCorruption: anything else.
  void Append(std::span<const std::byte> bytes);
  Result<std::optional<std::span<const std::byte>>> Next();

  // Adds the frame of `body` to `out`. Only when open, and of at most max_body bytes.
  void Seal(std::span<const std::byte> body, std::vector<std::byte>* out);
  // What a frame adds to its body.
  static size_t FrameOverhead(bool keyed);

  // Bytes of the introduction to be sent.
  std::vector<std::byte> TakeOutput();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace hyperloop::identity
