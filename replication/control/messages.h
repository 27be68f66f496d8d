// Messages of the control plane as values. control.fbs describes them. Only the functions here pack
// and verify them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control_generated.h"
#include "hyperloop/core/status.h"

namespace hyperloop::control {

inline constexpr uint32_t kProtocolVersion = 11;
// A frame's length field counts the message alone. Requests are small; a reply may carry a region's
// checksums.
inline constexpr uint32_t kFrameHeader = 4;
inline constexpr uint32_t kMaxRequest = 64u << 10;
inline constexpr uint32_t kMaxReply = 16u << 20;
// The bulk lane's requests carry at most kMaxBulkBytes of a file.
inline constexpr uint32_t kMaxBulkBytes = 256u << 10;
inline constexpr uint32_t kMaxBulkRequest = kMaxBulkBytes + (4u << 10);

template <class Body>
BodyUnion MakeBody(Body body) {
  static_assert(BodyUnionTraits<Body>::enum_value != control::Body::NONE);
  BodyUnion out;
  out.Set(std::move(body));
  return out;
}
BodyUnion MakeError(const Status& status);
// The body that answers a request: the reply or, if there is none, an Error.
template <class Reply>
BodyUnion MakeReply(Result<Reply> reply) {
  if (!reply.ok()) return MakeError(reply.status());
  return MakeBody(std::move(reply).value());
}

// Greatest sizes of texts, in bytes. Names have printable characters only. Texts are for people,
// and their unprintable bytes arrive escaped.
inline constexpr size_t kMaxName = 64;       // ids, media, datapaths
inline constexpr size_t kMaxEndpoint = 256;  // endpoints, hosts
inline constexpr size_t kMaxOwnerName = 256;
inline constexpr size_t kMaxFileName = 80;
inline constexpr size_t kMaxText = 1024;  // what is wrong with a device, a log, a file
inline constexpr size_t kMaxErrorText = 4096;
// A Seal may exceed the epoch that the node granted last by at most this, so that using up the
// epochs of a group takes more Seals than anybody can have made durable. Replicas differ by the
// takings that did not reach all of them. A replica that is further behind is sealed in steps.
inline constexpr uint64_t kMaxEpochStep = 1u << 21;
// No group reaches this epoch, and every epoch up to it has enough successors.
inline constexpr uint64_t kGreatestEpoch = 1ull << 62;

// The value of `body` if it is a Body, null if it is of another type.
template <class Body>
const Body* As(const BodyUnion& body) {
  if (body.type != BodyUnionTraits<Body>::enum_value) return nullptr;
  return static_cast<const Body*>(body.value);
}

// The whole frame: length and message.
std::vector<uint8_t> EncodeFrame(const BodyUnion& body);
// `message` is a frame without its length. kCorruption: not a message of this protocol;
// kNotSupported: of another version; kInvalidArgument: a field is out of its bounds, and is named.
// The body of a parsed message is present and of a type that control.fbs knows.
Result<BodyUnion> ParseMessage(std::span<const uint8_t> message);
// The length that a frame's first bytes announce; kCorruption when 0 or beyond `limit`.
Result<uint32_t> ParseFrameHeader(std::span<const uint8_t, kFrameHeader> header, uint32_t limit);

// The status that an Error body carries. Codes that this build does not know read as kInternal.
Status ErrorStatus(const ErrorT& error);
std::string_view BodyName(Body type);

}  // namespace hyperloop::control
