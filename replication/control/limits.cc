#include "control/limits.h"

#include "common/printable.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/voucher.h"
#include "hyperloop/replication/directive.h"

namespace hyperloop::control {
namespace {

constexpr size_t kIdSize = 16;

Status TooLong(std::string_view field, size_t size, size_t limit) {
  return InvalidArgument(
      Text("control message with a field ", field, " of ", size, " B: at most ", limit));
}

Status Name(std::string_view field, const std::string& value, size_t limit = kMaxName) {
  if (value.size() > limit) return TooLong(field, value.size(), limit);
  if (IsPrintable(value)) return {};
  return InvalidArgument(Text("control message with a field ", field,
                              " that has unprintable characters: ", Printable(value, 4 * limit)));
}

Status Names(std::string_view field, const std::vector<std::string>& values, size_t limit) {
  if (values.size() > kMaxGroupSize) {
    return InvalidArgument(Text("control message with ", values.size(), " entries in field ", field,
                                ": at most ", kMaxGroupSize));
  }
  for (const std::string& each : values) HL_RETURN_IF_ERROR(Name(field, each, limit));
  return {};
}

Status ForPeople(std::string_view field, std::string* text, size_t limit = kMaxText) {
  if (text->size() > limit) return TooLong(field, text->size(), limit);
  if (!IsPrintable(*text)) *text = Printable(*text, limit);
  return {};
}

Status Id(std::string_view field, const std::vector<uint8_t>& bytes) {
  return bytes.size() > kIdSize ? TooLong(field, bytes.size(), kIdSize) : Status();
}

Status Vouchers(std::string_view field, const std::vector<uint8_t>& bytes) {
  constexpr size_t kMost = identity::kMostVouchers * identity::kVoucherBytes;
  return bytes.size() > kMost ? TooLong(field, bytes.size(), kMost) : Status();
}

Status Epoch(std::string_view field, uint64_t epoch) {
  if (epoch <= kGreatestEpoch) return {};
  return InvalidArgument(Text("control message with epoch ", epoch, " in field ", field,
                              ", which no group reaches: at most ", kGreatestEpoch));
}

// Fields that several messages have.
template <class Message>
Status Common(const Message& message) {
  if constexpr (requires { message.epoch; }) HL_RETURN_IF_ERROR(Epoch("epoch", message.epoch));
  if constexpr (requires { message.owner_id; })
    HL_RETURN_IF_ERROR(Id("owner_id", message.owner_id));
  if constexpr (requires { message.gid; }) HL_RETURN_IF_ERROR(Id("gid", message.gid));
  if constexpr (requires { message.branch_owner; }) {
    HL_RETURN_IF_ERROR(Epoch("branch_epoch", message.branch_epoch));
    HL_RETURN_IF_ERROR(Id("branch_owner", message.branch_owner));
  }
  return {};
}

// Node ids and control endpoints of the same replicas.
Status Replicas(std::string_view which, const std::vector<std::string>& nodes,
                const std::vector<std::string>& endpoints) {
  HL_RETURN_IF_ERROR(Names(Text(which, "nodes"), nodes, kMaxName));
  HL_RETURN_IF_ERROR(Names(Text(which, "replicas"), endpoints, kMaxEndpoint));
  if (nodes.size() == endpoints.size()) return {};
  return InvalidArgument(Text("control message with ", nodes.size(), " ", which, "nodes and ",
                              endpoints.size(), " ", which, "replicas"));
}

Status Check(AgentDirectiveT* directive) {
  if (directive == nullptr) return {};
  HL_RETURN_IF_ERROR(Name("owner", directive->owner));
  HL_RETURN_IF_ERROR(Name("node", directive->node, kMaxDirectiveNode));
  HL_RETURN_IF_ERROR(ForPeople("by", &directive->by, kMaxDirectiveBy));
  if (directive->drained.size() > kMaxDrained) {
    return InvalidArgument(Text("control message with ", directive->drained.size(),
                                " entries in field drained: at most ", kMaxDrained));
  }
  for (const std::string& each : directive->drained)
    HL_RETURN_IF_ERROR(Name("drained", each, kMaxDirectiveNode));
  return {};
}

Status Check(ContentT* content) {
  if (content == nullptr) return {};
  HL_RETURN_IF_ERROR(Epoch("installed_epoch", content->installed_epoch));
  HL_RETURN_IF_ERROR(ForPeople("log_error", &content->log_error));
  for (std::string& each : content->damage) HL_RETURN_IF_ERROR(ForPeople("damage", &each));
  return {};
}

Status Check(HelloReplyT* hello) {
  HL_RETURN_IF_ERROR(Name("node_id", hello->node_id));
  HL_RETURN_IF_ERROR(Name("host", hello->host, kMaxEndpoint));
  HL_RETURN_IF_ERROR(Name("media", hello->media));
  HL_RETURN_IF_ERROR(ForPeople("device", &hello->device));
  HL_RETURN_IF_ERROR(Name("group", hello->group));
  HL_RETURN_IF_ERROR(Epoch("sealed_epoch", hello->sealed_epoch));
  HL_RETURN_IF_ERROR(Id("sealed_owner", hello->sealed_owner));
  HL_RETURN_IF_ERROR(Id("served_owner", hello->served_owner));
  HL_RETURN_IF_ERROR(ForPeople("sealed_owner_name", &hello->sealed_owner_name, kMaxOwnerName));
  HL_RETURN_IF_ERROR(Epoch("installed_epoch", hello->installed_epoch));
  HL_RETURN_IF_ERROR(Epoch("served_epoch", hello->served_epoch));
  HL_RETURN_IF_ERROR(Replicas("installed_", hello->installed_nodes, hello->installed_replicas));
  HL_RETURN_IF_ERROR(ForPeople("absences", &hello->absences));
  HL_RETURN_IF_ERROR(Name("proposed_replica", hello->proposed_replica, kMaxEndpoint));
  HL_RETURN_IF_ERROR(Name("leaving_replica", hello->leaving_replica, kMaxEndpoint));
  HL_RETURN_IF_ERROR(Epoch("proposal_epoch", hello->proposal_epoch));
  HL_RETURN_IF_ERROR(Vouchers("proposal_vouchers", hello->proposal_vouchers));
  HL_RETURN_IF_ERROR(ForPeople("failed_way", &hello->failed_way));
  HL_RETURN_IF_ERROR(Name("failed_way_to", hello->failed_way_to, kMaxEndpoint));
  HL_RETURN_IF_ERROR(Check(hello->directive.get()));
  return Replicas("absent_", hello->absent_nodes, hello->absent_replicas);
}

Status Check(SealRequestT* seal) {
  HL_RETURN_IF_ERROR(ForPeople("owner_name", &seal->owner_name, kMaxOwnerName));
  return Name("group", seal->group);
}

Status Check(SealReplyT* reply) { return Check(reply->content.get()); }
Status Check(ExamineReplyT* reply) { return Check(reply->content.get()); }

Status Check(InstallRequestT* install) {
  HL_RETURN_IF_ERROR(Replicas("", install->nodes, install->replicas));
  HL_RETURN_IF_ERROR(ForPeople("absences", &install->absences));
  return Replicas("absent_", install->absent_nodes, install->absent_replicas);
}

Status Check(ProposeRequestT* propose) {
  HL_RETURN_IF_ERROR(Name("group", propose->group));
  HL_RETURN_IF_ERROR(Vouchers("vouchers", propose->vouchers));
  return Name("replica", propose->replica, kMaxEndpoint);
}

Status Check(TryWayRequestT* way) {
  HL_RETURN_IF_ERROR(Name("replica", way->replica, kMaxEndpoint));
  HL_RETURN_IF_ERROR(Name("host", way->host, kMaxEndpoint));
  return Name("service", way->service);
}

Status Check(DirectRequestT* direct) {
  HL_RETURN_IF_ERROR(Name("group", direct->group));
  return Check(direct->directive.get());
}

Status Check(DirectReplyT* reply) { return Check(reply->directive.get()); }

Status Check(StoredFileT* file) {
  if (file != nullptr) return Name("file name", file->name, kMaxFileName);
  return InvalidArgument("control message without a file");
}

Status Check(ListFilesReplyT* reply) {
  for (const auto& each : reply->files) HL_RETURN_IF_ERROR(Check(each.get()));
  return {};
}

Status Check(PutFileRequestT* put) {
  if (put->bytes.size() > kMaxBulkBytes) return TooLong("bytes", put->bytes.size(), kMaxBulkBytes);
  return Check(put->file.get());
}

Status Check(GetFileRequestT* get) {
  if (get->length > kMaxBulkBytes) return TooLong("length", get->length, kMaxBulkBytes);
  return Check(get->file.get());
}

Status Check(DropFileRequestT* drop) { return Check(drop->file.get()); }

Status Check(PrepareMemberRequestT* prepare) { return Name("datapath", prepare->datapath); }

Status Check(ErrorT* error) { return ForPeople("message", &error->message, kMaxErrorText); }

// Messages without texts of their own.
template <class Message>
Status Check(Message*) {
  return {};
}

template <class Message>
Status CheckAs(BodyUnion* body) {
  auto* message = static_cast<Message*>(body->value);
  HL_RETURN_IF_ERROR(Common(*message));
  return Check(message);
}

}  // namespace

Status CheckLimits(BodyUnion* body) {
  switch (body->type) {
    case Body::HelloReply:
      return CheckAs<HelloReplyT>(body);
    case Body::SealRequest:
      return CheckAs<SealRequestT>(body);
    case Body::SealReply:
      return CheckAs<SealReplyT>(body);
    case Body::ExamineReply:
      return CheckAs<ExamineReplyT>(body);
    case Body::AttachRequest:
      return CheckAs<AttachRequestT>(body);
    case Body::AttachReply:
      return CheckAs<AttachReplyT>(body);
    case Body::ChecksumsRequest:
      return CheckAs<ChecksumsRequestT>(body);
    case Body::InstallRequest:
      return CheckAs<InstallRequestT>(body);
    case Body::PrepareMemberRequest:
      return CheckAs<PrepareMemberRequestT>(body);
    case Body::ConnectMemberRequest:
      return CheckAs<ConnectMemberRequestT>(body);
    case Body::ReconnectRequest:
      return CheckAs<ReconnectRequestT>(body);
    case Body::ReleaseRequest:
      return CheckAs<ReleaseRequestT>(body);
    case Body::ProposeRequest:
      return CheckAs<ProposeRequestT>(body);
    case Body::TryWayRequest:
      return CheckAs<TryWayRequestT>(body);
    case Body::DirectRequest:
      return CheckAs<DirectRequestT>(body);
    case Body::DirectReply:
      return CheckAs<DirectReplyT>(body);
    case Body::ListFilesReply:
      return CheckAs<ListFilesReplyT>(body);
    case Body::PutFileRequest:
      return CheckAs<PutFileRequestT>(body);
    case Body::GetFileRequest:
      return CheckAs<GetFileRequestT>(body);
    case Body::DropFileRequest:
      return CheckAs<DropFileRequestT>(body);
    case Body::Error:
      return CheckAs<ErrorT>(body);
    case Body::NONE:
    case Body::HelloRequest:
    case Body::ExamineRequest:
    case Body::ChecksumsReply:
    case Body::PrepareMemberReply:
    case Body::ListFilesRequest:
    case Body::PutFileReply:
    case Body::GetFileReply:
    case Body::Done:
      break;  // they have no text that is shown or kept
  }
  return {};
}

}  // namespace hyperloop::control
