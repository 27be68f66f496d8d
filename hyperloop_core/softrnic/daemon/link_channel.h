// LinkChannel: the two ends' introduction on a new connection, and the frames after it. No sockets:
// bytes in, bytes out.
//
// The dialer says hello, the acceptor answers with its own hello. With a key, each proves that it
// has it by a MAC over both hellos (random, so that nothing old can be replayed), and frames are
// sealed (ChaCha20-Poly1305) under keys of this connection alone, made from the shared key and an
// X25519 exchange: who learns the key later cannot read what was recorded. A frame that was
// changed, left out, repeated or moved is noticed and ends the connection. Without a key (loopback)
// frames are plain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hyperloop/core/status.h"
#include "softrnic/daemon/link_options.h"
#include "softrnic/links/frame_reader.h"

namespace hyperloop::softrnic {

// Once per process, before the first keyed channel. kInternal: libsodium cannot be used.
Status InitializeLinkCrypto();

class LinkChannel {
 public:
  // `key` outlives the channel; null: plain. The dialer's hello is in TakeOutput at once.
  LinkChannel(bool dialer, const LinkKey* key);
  ~LinkChannel();
  LinkChannel(const LinkChannel&) = delete;
  LinkChannel& operator=(const LinkChannel&) = delete;

  // True once both ends know that the other is who it should be.
  bool open() const { return open_; }

  // Bytes from the other end. Next then gives the bodies of the frames in them (after the
  // introduction; empty ones are signs of life), valid until the next call; nothing: more bytes are
  // needed. An error ends the connection: kPermissionDenied: no or another key; kNotSupported:
  // another version; kCorruption: anything else.
  void Append(std::span<const std::byte> bytes) { reader_.Append(bytes); }
  Result<std::optional<std::span<const std::byte>>> Next();

  // Adds the frame of `body` to `out`. Only when open.
  void Seal(std::span<const std::byte> body, std::vector<std::byte>* out);
  // What a frame adds to its body.
  static size_t FrameOverhead(bool keyed);

  // Bytes of the introduction to be sent.
  std::vector<std::byte> TakeOutput() { return std::exchange(output_, {}); }

 private:
  Status Introduce(std::span<const std::byte> body);
  Status AcceptHello(std::span<const std::byte> body);
  Status AcceptProof(std::span<const std::byte> body);
  void SayHello();
  void Prove(bool as_dialer, std::vector<std::byte>* out) const;
  Status MakeKeys();

  const bool dialer_;
  const LinkKey* const key_;
  bool open_ = false;
  bool greeted_ = false;  // the other end's hello was taken
  FrameReader reader_;
  std::vector<std::byte> output_;
  std::vector<std::byte> hellos_;  // the dialer's, then the acceptor's
  std::vector<std::byte> plain_;   // of the last frame
  std::array<unsigned char, 32> public_key_{}, secret_key_{}, peer_key_{}, send_key_{},
      receive_key_{};
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

}  // namespace hyperloop::softrnic
