#include "softrnic/links/packet.h"

#include <endian.h>

#include <cstring>
#include <string>

#include "hyperloop/core/name.h"

namespace hyperloop::softrnic {
namespace {

struct WireHeader {  // big-endian
  uint32_t magic;
  uint8_t version;
  uint8_t type;
  uint8_t flags;
  uint8_t syndrome;
  uint32_t dest_qpn;
  uint32_t source_qpn;
  uint64_t session;
  uint32_t psn;
  uint32_t seen;
  uint64_t addr;
  uint32_t rkey;
  uint32_t imm;
  uint32_t offset;
  uint32_t total;
  uint32_t length;
  uint32_t reserved;
};
static_assert(sizeof(WireHeader) == kPacketHeaderBytes);
static_assert(offsetof(WireHeader, session) == 16 && offsetof(WireHeader, addr) == 32 &&
              offsetof(WireHeader, length) == 56);

constexpr uint32_t kQpnMask = 0xffffff;

// The rules of a packet type: its payload has `least` to `most` bytes, and unused fields are 0.
struct Rule {
  uint32_t least = 0;
  uint32_t most = 0;
  bool message = false;   // offset, total
  bool target = false;    // addr, rkey
  bool numbered = false;  // psn
  bool request = false;   // seen
  bool imm = false;       // flags, imm
  bool syndrome = false;
  bool wants = false;  // length counts bytes that are not in the packet
  bool agent = false;  // no dest_qpn
};

// What SENDs and WRITEs have in common, which bring the bytes of a message.
constexpr Rule kBringsBytes{
    .most = kMaxPayload, .message = true, .numbered = true, .request = true, .imm = true};

Rule WithTarget(Rule rule) {
  rule.target = true;
  return rule;
}

// Nothing: there is no such type.
std::optional<Rule> RuleOf(PacketType type) {
  constexpr uint32_t kServiceRequestBytes = sizeof(GidBytes) + 2 * kNameBytes;
  switch (type) {
    case PacketType::kConnect:
      return Rule{.least = 2 * sizeof(GidBytes), .most = 2 * sizeof(GidBytes)};
    case PacketType::kAccept:
      return Rule{.target = true};
    case PacketType::kRefuse:
      return Rule{};
    case PacketType::kSend:
      return kBringsBytes;
    case PacketType::kWrite:
      return WithTarget(kBringsBytes);
    case PacketType::kRead:
      return WithTarget(
          {.most = kMaxPayload, .message = true, .numbered = true, .request = true, .wants = true});
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
      return WithTarget({.least = 16, .most = 16, .numbered = true, .request = true});
    case PacketType::kAck:
      return Rule{.numbered = true};
    case PacketType::kReadResponse:
      return Rule{.most = kMaxPayload, .numbered = true};
    case PacketType::kAtomicResponse:
      return Rule{.least = 8, .most = 8, .numbered = true};
    case PacketType::kNak:
      return Rule{.numbered = true, .syndrome = true};
    case PacketType::kRnrNak:
      return Rule{.most = 1'000'000, .numbered = true, .wants = true};
    case PacketType::kServiceRequest:
      return Rule{.least = kServiceRequestBytes, .most = kServiceRequestBytes, .agent = true};
    case PacketType::kServiceReply:
      return Rule{.most = kMaxServiceReply, .syndrome = true};
    case PacketType::kServiceRelease:
      return Rule{.least = sizeof(GidBytes), .most = sizeof(GidBytes)};
  }
  return std::nullopt;
}

Status Bad(const std::string& what) { return Corruption("packet with " + what); }

Status Check(const Packet& p, const Rule& rule) {
  if (p.length < rule.least || p.length > rule.most)
    return Bad("a length of " + std::to_string(p.length));
  if (((p.dest_qpn | p.source_qpn) & ~kQpnMask) != 0 || (p.dest_qpn == 0) != rule.agent)
    return Bad("queue pair number " + std::to_string(p.dest_qpn) + " or " +
               std::to_string(p.source_qpn));
  if (p.session == 0) return Bad("session 0");
  if (rule.message) {
    if (p.total > kMaxMessage || p.offset > p.total || p.length > p.total - p.offset ||
        (p.length == 0 && p.total != 0))
      return Bad("bytes " + std::to_string(p.offset) + " + " + std::to_string(p.length) +
                 " of a message of " + std::to_string(p.total));
  } else if (p.offset != 0 || p.total != 0) {
    return Bad("a place in a message it is not part of");
  }
  if ((p.flags & ~(rule.imm ? kPacketSolicited | kPacketImm | kPacketAckLater : 0)) != 0 ||
      (p.imm != 0 && (p.flags & kPacketImm) == 0))
    return Bad("flags " + std::to_string(p.flags));
  if ((!rule.target && (p.addr != 0 || p.rkey != 0)) || (!rule.numbered && p.psn != 0) ||
      (!rule.request && p.seen != 0) || (!rule.syndrome && p.syndrome != 0))
    return Bad("a field set that its type does not use");
  if (p.type == PacketType::kNak && p.syndrome == 0) return Bad("no syndrome");
  if (p.type == PacketType::kAccept && p.addr == 0) return Bad("no session to accept");
  return {};
}

}  // namespace

Result<Packet> ParsePacket(std::span<const std::byte> bytes) {
  if (bytes.size() < kPacketHeaderBytes || bytes.size() > kMaxPacketBytes)
    return Bad(std::to_string(bytes.size()) + " bytes");
  WireHeader h;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (be32toh(h.magic) != kPacketMagic) return Bad("a wrong magic number");
  if (h.version != kPacketVersion)
    return NotSupported("packet of version " + std::to_string(h.version) + "; this device speaks " +
                        std::to_string(kPacketVersion));
  Packet p;
  p.type = static_cast<PacketType>(h.type);
  const std::optional<Rule> rule = RuleOf(p.type);
  if (!rule) return Bad("type " + std::to_string(h.type));
  p.flags = h.flags;
  p.syndrome = h.syndrome;
  p.dest_qpn = be32toh(h.dest_qpn);
  p.source_qpn = be32toh(h.source_qpn);
  p.session = be64toh(h.session);
  p.psn = be32toh(h.psn);
  p.seen = be32toh(h.seen);
  p.addr = be64toh(h.addr);
  p.rkey = be32toh(h.rkey);
  p.imm = h.imm;
  p.offset = be32toh(h.offset);
  p.total = be32toh(h.total);
  p.length = be32toh(h.length);
  if (h.reserved != 0) return Bad("a reserved field set");
  HL_RETURN_IF_ERROR(Check(p, *rule));
  p.payload = bytes.subspan(kPacketHeaderBytes);
  if (p.payload.size() != (rule->wants ? 0 : p.length))
    return Bad(std::to_string(p.payload.size()) + " bytes of payload and a length of " +
               std::to_string(p.length));
  return p;
}

Result<Packet> TakePacket(std::span<const std::byte>* bytes) {
  size_t length = bytes->size();
  if (length >= kPacketHeaderBytes) {
    WireHeader h;
    std::memcpy(&h, bytes->data(), sizeof h);
    const std::optional<Rule> rule = RuleOf(static_cast<PacketType>(h.type));
    const size_t payload = rule && rule->wants ? 0 : be32toh(h.length);
    length = std::min(length, kPacketHeaderBytes + payload);
  }
  HL_ASSIGN_OR_RETURN(const Packet packet, ParsePacket(bytes->first(length)));
  *bytes = bytes->subspan(length);
  return packet;
}

void EncodeHeader(const Packet& p, std::byte* to) {
  WireHeader h{};
  h.magic = htobe32(kPacketMagic);
  h.version = kPacketVersion;
  h.type = static_cast<uint8_t>(p.type);
  h.flags = p.flags;
  h.syndrome = p.syndrome;
  h.dest_qpn = htobe32(p.dest_qpn);
  h.source_qpn = htobe32(p.source_qpn);
  h.session = htobe64(p.session);
  h.psn = htobe32(p.psn);
  h.seen = htobe32(p.seen);
  h.addr = htobe64(p.addr);
  h.rkey = htobe32(p.rkey);
  h.imm = p.imm;
  h.offset = htobe32(p.offset);
  h.total = htobe32(p.total);
  h.length = htobe32(p.length);
  std::memcpy(to, &h, sizeof h);
}

std::vector<std::byte> EncodePacket(const Packet& p) {
  std::vector<std::byte> bytes(kPacketHeaderBytes + p.payload.size());
  Packet header = p;
  if (!p.payload.empty()) header.length = static_cast<uint32_t>(p.payload.size());
  EncodeHeader(header, bytes.data());
  if (!p.payload.empty())
    std::memcpy(bytes.data() + kPacketHeaderBytes, p.payload.data(), p.payload.size());
  return bytes;
}

bool IsRequest(PacketType type) {
  switch (type) {
    case PacketType::kConnect:
    case PacketType::kSend:
    case PacketType::kWrite:
    case PacketType::kRead:
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
    case PacketType::kServiceRequest:
    case PacketType::kServiceRelease:
      return true;
    case PacketType::kAccept:
    case PacketType::kRefuse:
    case PacketType::kAck:
    case PacketType::kReadResponse:
    case PacketType::kAtomicResponse:
    case PacketType::kNak:
    case PacketType::kRnrNak:
    case PacketType::kServiceReply:
      return false;
  }
  return false;
}

bool AnswerIsAwaited(std::span<const std::byte> packet) {
  return (static_cast<uint8_t>(packet[offsetof(WireHeader, flags)]) & kPacketAckLater) == 0;
}

// FNV-1a, folded to 48 bits.
uint64_t GidPrefix(const std::string& host) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char ch : host) hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3;
  return 0xfe80ull << 48 | ((hash ^ hash >> 48) & 0xffffffffffff);
}

uint64_t GidPrefixAt(const void* gid) {
  uint64_t prefix;
  std::memcpy(&prefix, gid, sizeof prefix);
  return be64toh(prefix);
}

std::optional<uint64_t> ClaimedPrefix(const Packet& p) {
  size_t at = 0;
  if (p.type == PacketType::kConnect) {
    at = sizeof(GidBytes);  // behind the destination's
  } else if (p.type != PacketType::kServiceRequest && p.type != PacketType::kServiceRelease) {
    return std::nullopt;
  }
  if (p.payload.size() < at + sizeof(uint64_t)) return 0;
  return GidPrefixAt(p.payload.data() + at);
}

}  // namespace hyperloop::softrnic
