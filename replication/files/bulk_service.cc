#include "files/bulk_service.h"

#include "common/heartbeat_word.h"
#include "control/owner.h"
#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

using control::BodyUnion;

WholeFile FileOf(const control::StoredFileT& file) { return {file.name, file.size, file.checksum}; }

}  // namespace

void BulkService::Publish(const NodeState& state) {
  const MutexLock lock(mutex_);
  group_ = state.group;
  owner_ = state.sealed_owner;
  epoch_ = state.installed.epoch == state.sealed_epoch ? state.sealed_epoch : 0;
}

BodyUnion BulkService::Handle(const BodyUnion& request) {
  using namespace control;  // NOLINT(google-build-using-namespace)
  switch (request.type) {
    case Body::ListFilesRequest:
      return MakeReply(List());
    case Body::PutFileRequest:
      return MakeReply(Put(*As<PutFileRequestT>(request)));
    case Body::GetFileRequest:
      return MakeReply(Get(*As<GetFileRequestT>(request)));
    case Body::DropFileRequest:
      return MakeReply(Drop(*As<DropFileRequestT>(request)));
    default:
      return MakeError(
          InvalidArgument(Text(BodyName(request.type), " is not a request of the bulk lane")));
  }
}

Status BulkService::CheckOwnerLocked(uint64_t epoch, const std::vector<uint8_t>& owner) const {
  if (epoch != 0 && epoch == epoch_ && IsOwnerId(owner, owner_)) return {};
  return Fenced(Text("epoch ", epoch, " is not the installed one, or the asker is not its owner"));
}

Result<FileStore*> BulkService::StoreOf(const Uuid& group) {
  if (group == kNilUuid) return NotFound("this node is of no group yet");
  const std::string directory = GroupDirectory(root_, group);
  if (store_ == nullptr || store_->directory() != directory) {
    store_.reset();
    HL_ASSIGN_OR_RETURN(store_, FileStore::Open(directory));
  }
  return store_.get();
}

Result<FileStore*> BulkService::PresentStore() {
  Uuid group{};
  {
    const MutexLock lock(mutex_);
    group = group_;
  }
  return StoreOf(group);
}

const std::string& BulkService::Scrub() {
  const Result<FileStore*> store = PresentStore();
  if (store.ok()) scrub_.Tick(**store);
  return scrub_.aside();
}

Result<control::ListFilesReplyT> BulkService::List() {
  HL_ASSIGN_OR_RETURN(FileStore * store, PresentStore());
  HL_ASSIGN_OR_RETURN(const std::vector<FileStore::Stored> files, store->List());
  control::ListFilesReplyT reply;
  for (const FileStore::Stored& each : files) {
    auto file = std::make_unique<control::StoredFileT>();
    file->name = each.file.name;
    file->size = each.file.size;
    file->checksum = each.file.checksum;
    file->received = each.received;
    file->finished = each.finished;
    reply.files.push_back(std::move(file));
  }
  return reply;
}

Result<control::PutFileReplyT> BulkService::Put(const control::PutFileRequestT& request) {
  Uuid group{};
  {
    const MutexLock lock(mutex_);
    HL_RETURN_IF_ERROR(CheckOwnerLocked(request.epoch, request.owner_id));
    group = group_;
  }
  // The lock is not held here, because writing may take long. It is not needed either: a finished
  // file holds what its name says, whoever sent it.
  const Result<uint64_t> received = [&]() -> Result<uint64_t> {
    HL_ASSIGN_OR_RETURN(FileStore * store, StoreOf(group));
    return store->Write(FileOf(*request.file), request.offset,
                        std::as_bytes(std::span(request.bytes)));
  }();
  NoteWritten(received.status());
  HL_RETURN_IF_ERROR(received.status());
  control::PutFileReplyT reply;
  reply.received = *received;
  return reply;
}

// Bytes that are not those of the file say nothing about this node's disk.
void BulkService::NoteWritten(const Status& written) {
  if (written.code() == Code::kCorruption) return;
  if (written.ok() == refusal_.empty()) return;
  if (written.ok()) {
    refusal_.clear();
    LogLine(log_, LogLevel::kInfo, {"files of the database are taken again"});
    return;
  }
  refusal_ =
      Text("since ", HeartbeatTime(NextHeartbeat(0)), ": ", written.message(),
           written.code() == Code::kNoSpace ? "; make room there, and it takes them again" : "");
  LogLine(log_, LogLevel::kError,
          {"no file of the database is taken ", refusal_,
           "; the group flushes without this replica if more than half of its replicas take them"});
}

Result<control::GetFileReplyT> BulkService::Get(const control::GetFileRequestT& request) {
  HL_ASSIGN_OR_RETURN(const FileStore* store, PresentStore());
  control::GetFileReplyT reply;
  reply.bytes.resize(request.length);
  HL_ASSIGN_OR_RETURN(const uint64_t got,
                      store->Read(FileOf(*request.file), request.offset,
                                  std::as_writable_bytes(std::span(reply.bytes))));
  reply.bytes.resize(got);
  return reply;
}

// The lock is held all the time, so that a file on which the next owner relies is not dropped for
// the former one.
Result<control::DoneT> BulkService::Drop(const control::DropFileRequestT& request) {
  const MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(CheckOwnerLocked(request.epoch, request.owner_id));
  HL_ASSIGN_OR_RETURN(FileStore * store, StoreOf(group_));
  HL_RETURN_IF_ERROR(store->Remove(FileOf(*request.file)));
  return control::DoneT{};
}

}  // namespace hyperloop
