#include "control/messages.h"

#include "common/printable.h"
#include "control/limits.h"
#include "hyperloop/core/text.h"

namespace hyperloop::control {
namespace {

constexpr size_t kMaxDepth = 8;
// A message that is no list has few tables, and an entry of a list has at least so many bytes: more
// tables would be one table several times, which takes more memory than it has bytes.
constexpr size_t kTablesBesideLists = 64;
constexpr size_t kBytesOfEntry = 16;

// The sizes of lists, in bytes. A list may name one text or one entry many times, so that unpacked
// it would take far more memory than the message.
size_t BytesOf(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* texts) {
  size_t bytes = 0;
  if (texts != nullptr)
    for (const auto* each : *texts) bytes += each->size() + sizeof(flatbuffers::uoffset_t);
  return bytes;
}
size_t BytesOf(const AgentDirective* directive) {
  return directive == nullptr ? 0 : BytesOf(directive->drained());
}
size_t BytesOf(const Content* content) {
  return content == nullptr ? 0 : BytesOf(content->damage());
}
size_t BytesOf(const ListFilesReply& reply) {
  size_t bytes = 0;
  if (reply.files() == nullptr) return bytes;
  for (const StoredFile* each : *reply.files())
    bytes += kBytesOfEntry + (each->name() == nullptr ? 0 : each->name()->size());
  return bytes;
}

Status CheckSharing(const Message& message, size_t size) {
  size_t bytes = 0;
  if (const auto* hello = message.body_as_HelloReply()) {
    bytes = BytesOf(hello->installed_replicas()) + BytesOf(hello->installed_nodes()) +
            BytesOf(hello->absent_replicas()) + BytesOf(hello->absent_nodes()) +
            BytesOf(hello->directive());
  } else if (const auto* direct = message.body_as_DirectRequest()) {
    bytes = BytesOf(direct->directive());
  } else if (const auto* directed = message.body_as_DirectReply()) {
    bytes = BytesOf(directed->directive());
  } else if (const auto* install = message.body_as_InstallRequest()) {
    bytes = BytesOf(install->nodes()) + BytesOf(install->replicas()) +
            BytesOf(install->absent_nodes()) + BytesOf(install->absent_replicas());
  } else if (const auto* seal = message.body_as_SealReply()) {
    bytes = BytesOf(seal->content());
  } else if (const auto* examine = message.body_as_ExamineReply()) {
    bytes = BytesOf(examine->content());
  } else if (const auto* list = message.body_as_ListFilesReply()) {
    bytes = BytesOf(*list);
  }
  if (bytes <= size) return {};
  return Corruption(Text("a control message of ", size, " B repeats its entries to ", bytes, " B"));
}

// The verifier looks at the alignment of a vector's size, and not at that of its elements.
Status CheckAlignment(const Message& message) {
  const auto* reply = message.body_as_ChecksumsReply();
  if (reply == nullptr || reply->checksums() == nullptr) return {};
  if (reinterpret_cast<uintptr_t>(reply->checksums()->Data()) % sizeof(uint64_t) == 0) return {};
  return Corruption("a control message whose checksums are not aligned");
}

}  // namespace

BodyUnion MakeError(const Status& status) {
  ErrorT error;
  error.code = static_cast<uint32_t>(status.code());
  error.message = Printable(status.message(), kMaxErrorText);
  return MakeBody(std::move(error));
}

std::vector<uint8_t> EncodeFrame(const BodyUnion& body) {
  flatbuffers::FlatBufferBuilder builder;
  const auto packed = body.Pack(builder);
  FinishMessageBuffer(builder, CreateMessage(builder, kProtocolVersion, body.type, packed));
  const uint32_t length = builder.GetSize();
  std::vector<uint8_t> frame(kFrameHeader + length);
  for (uint32_t i = 0; i < kFrameHeader; ++i) frame[i] = static_cast<uint8_t>(length >> (8 * i));
  std::copy_n(builder.GetBufferPointer(), length, frame.begin() + kFrameHeader);
  return frame;
}

Result<BodyUnion> ParseMessage(std::span<const uint8_t> message) {
  // FlatBuffers needs the buffer aligned for its largest scalar.
  std::vector<uint64_t> aligned((message.size() + 7) / 8);
  std::copy(message.begin(), message.end(), reinterpret_cast<uint8_t*>(aligned.data()));
  const auto* bytes = reinterpret_cast<const uint8_t*>(aligned.data());
  const size_t max_tables = kTablesBesideLists + message.size() / kBytesOfEntry;
  flatbuffers::Verifier verifier(bytes, message.size(), kMaxDepth, max_tables);
  if (message.size() < 8 || !VerifyMessageBuffer(verifier)) {
    return Corruption(Text("a frame of ", message.size(), " B is not a HyperLoop control message"));
  }
  const Message* parsed = GetMessage(bytes);
  if (parsed->version() != kProtocolVersion) {
    return NotSupported(Text("control protocol version ", parsed->version(),
                             " where this program speaks ", kProtocolVersion,
                             "; run the same release on every node"));
  }
  HL_RETURN_IF_ERROR(CheckAlignment(*parsed));
  HL_RETURN_IF_ERROR(CheckSharing(*parsed, message.size()));
  BodyUnion body;
  body.type = parsed->body_type();
  if (parsed->body() != nullptr) body.value = BodyUnion::UnPack(parsed->body(), body.type, nullptr);
  if (body.value == nullptr) {
    return NotSupported(Text("control message of unknown type ", static_cast<int>(body.type)));
  }
  HL_RETURN_IF_ERROR(CheckLimits(&body).WithContext(BodyName(body.type)));
  return body;
}

Result<uint32_t> ParseFrameHeader(std::span<const uint8_t, kFrameHeader> header, uint32_t limit) {
  uint32_t length = 0;
  for (uint32_t i = 0; i < kFrameHeader; ++i) length |= static_cast<uint32_t>(header[i]) << (8 * i);
  if (length == 0 || length > limit) {
    return Corruption(Text("a frame announces ", length, " B; 1 to ", limit, " are allowed"));
  }
  return length;
}

Status ErrorStatus(const ErrorT& error) {
  const bool known = error.code > 0 && error.code <= static_cast<uint32_t>(Code::kInternal);
  return {known ? static_cast<Code>(error.code) : Code::kInternal, error.message};
}

std::string_view BodyName(Body type) { return EnumNameBody(type); }

}  // namespace hyperloop::control
