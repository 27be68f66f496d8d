// Packets: the messages between two engines on different machines about one pair of queue pairs.
//
// The model is RC. A requester first asks for a session (kConnect, kAccept), then numbers its
// request packets. The responder runs each number once, in order, acknowledges it, and keeps the
// answers of READs and atomics until the requester reports that it has them. A packet is a header
// of 64 bytes, big-endian, and at most 64 KiB of payload; a stream carries packets in frames
// (base/frame_reader.h), one or several a frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::softrnic {

inline constexpr uint32_t kPacketMagic = 0x484c504b;  // "HLPK"
inline constexpr uint8_t kPacketVersion = 1;
inline constexpr size_t kPacketHeaderBytes = 64;
inline constexpr uint32_t kMaxPayload = 64 << 10;
inline constexpr size_t kMaxPacketBytes = kPacketHeaderBytes + kMaxPayload;
inline constexpr uint32_t kMaxMessage = 1u << 30;  // bytes; a longer one is refused

using GidBytes = std::array<uint8_t, 16>;

enum class PacketType : uint8_t {
  // Sessions. `session` is the requester's nonce; kAccept's `addr` is the session itself.
  kConnect = 1,  // payload: destination GID, source GID
  kAccept,
  kRefuse,  // the queue pair is not there, or not connected back
  // Requests. `offset` and `total`: where the packet's bytes lie in their message.
  kSend,
  kWrite,
  kRead,         // no payload; `length` bytes are wanted
  kCompareSwap,  // payload: swap, compare
  kFetchAdd,     // payload: addend, 0
  // Answers to the request `psn`; each acknowledges every request before it.
  kAck,             // and `psn` itself
  kReadResponse,    // payload: the bytes
  kAtomicResponse,  // payload: the old value
  kNak,             // `syndrome`: how the request failed
  kRnrNak,          // no receive is posted: send again after `length` microseconds
  // The connection agent, between daemons. `session` is the request's number.
  kServiceRequest,  // payload: source GID, host name, service name
  kServiceReply,    // `syndrome`: hyperloop::Code; payload: GID and private data, or the error
  kServiceRelease,  // payload: source GID: its queue pair `source_qpn` is gone
};

enum PacketFlags : uint8_t {
  kPacketSolicited = 1,
  kPacketImm = 2,
  // Nobody waits for the acknowledgement, which may come later together with others, as if on
  // hardware the packet did not ask for one.
  kPacketAckLater = 4,
};

struct Packet {
  PacketType type = PacketType::kAck;
  uint8_t flags = 0;
  uint8_t syndrome = 0;
  uint32_t dest_qpn = 0;
  uint32_t source_qpn = 0;
  uint64_t session = 0;
  uint32_t psn = 0;
  uint32_t seen = 0;  // answers of requests before this number have arrived
  uint64_t addr = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;  // as in memory
  uint32_t offset = 0;
  uint32_t total = 0;
  uint32_t length = 0;  // of the payload, but see kRead and kRnrNak
  std::span<const std::byte> payload{};
};

// Parses all of `bytes` as one packet, whose payload stays in `bytes`. It checks everything that
// needs no queue pair: sizes, ranges, fields that must be 0. kNotSupported: another version.
// kCorruption: any other fault. A pure function.
Result<Packet> ParsePacket(std::span<const std::byte> bytes);

// Parses the packet that `bytes`, one or several packets, begin with, and takes it off them. Errors
// as above.
Result<Packet> TakePacket(std::span<const std::byte>* bytes);

// Encodes only the header, kPacketHeaderBytes, for a payload of `length` bytes behind it.
void EncodeHeader(const Packet& packet, std::byte* to);
// Encodes header and payload; `packet` must be one that ParsePacket accepts. `length` is set from
// the payload if there is one.
std::vector<std::byte> EncodePacket(const Packet& packet);

// True for requests, which a peer sends on the connection that it made; false for answers.
bool IsRequest(PacketType type);
// False for an encoded packet with kPacketAckLater.
bool AnswerIsAwaited(std::span<const std::byte> packet);
// The half of a GID that identifies the host: the link-local prefix and 48 bits of its name's hash.
// The other half differs for each host that ever had this name.
uint64_t GidPrefix(const std::string& host);
// The same half, of the GID that begins at `gid`.
uint64_t GidPrefixAt(const void* gid);
// The GID prefix of the host in whose name a request is made. Nothing: the packet names no host,
// but a session or a queue pair that only its owner's peer knows.
std::optional<uint64_t> ClaimedPrefix(const Packet& packet);

inline constexpr uint32_t kMaxServiceReply = 16 + 512;

}  // namespace hyperloop::softrnic
