#include "files/bulk_connection.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/group_error.h"
#include "control/client.h"

namespace hyperloop {
namespace {

std::unique_ptr<control::StoredFileT> Described(const WholeFile& file) {
  auto out = std::make_unique<control::StoredFileT>();
  out->name = file.name;
  out->size = file.size;
  out->checksum = file.checksum;
  return out;
}

// An answer is no failure of the way to the replica, whatever the replica calls it.
Status AsSaid(const control::ControlClient& client, Status status) {
  if (status.ok() || !client.connected() || !IsGroupError(status.code())) return status;
  return Internal(status.message());
}

class BulkConnection final : public BulkTarget {
 public:
  BulkConnection(std::unique_ptr<control::ControlClient> client, Ownership own,
                 const CallLimit& limit)
      : client_(std::move(client)), own_(std::move(own)), limit_(limit) {}

  Result<std::vector<StoredFile>> List() override {
    HL_ASSIGN_OR_RETURN(const auto reply,
                        Call<control::ListFilesReplyT>(control::ListFilesRequestT{}));
    std::vector<StoredFile> files;
    for (const auto& each : reply.files)
      files.push_back({{each->name, each->size, each->checksum}, each->received, each->finished});
    return files;
  }

  Result<uint64_t> Put(const WholeFile& file, uint64_t offset,
                       std::span<const char> bytes) override {
    auto request = OwnerRequest<control::PutFileRequestT>(own_);
    request.file = Described(file);
    request.offset = offset;
    request.bytes.assign(bytes.begin(), bytes.end());
    HL_ASSIGN_OR_RETURN(const auto reply, Call<control::PutFileReplyT>(std::move(request)));
    return reply.received;
  }

  Result<uint64_t> Get(const WholeFile& file, uint64_t offset, std::span<char> out) override {
    control::GetFileRequestT request;
    request.file = Described(file);
    request.offset = offset;
    request.length = static_cast<uint32_t>(std::min<size_t>(out.size(), control::kMaxBulkBytes));
    HL_ASSIGN_OR_RETURN(const auto reply, Call<control::GetFileReplyT>(std::move(request)));
    const size_t got = std::min(reply.bytes.size(), out.size());
    std::copy_n(reply.bytes.begin(), got, out.begin());
    return uint64_t{got};
  }

  Status Drop(const WholeFile& file) override {
    auto request = OwnerRequest<control::DropFileRequestT>(own_);
    request.file = Described(file);
    return Call<control::DoneT>(std::move(request)).status();
  }

 private:
  template <class Reply, class Request>
  Result<Reply> Call(Request request) {
    Result<Reply> reply = client_->Call<Reply>(std::move(request), limit_.Left());
    if (!reply.ok()) return AsSaid(*client_, reply.status());
    return reply;
  }

  const std::unique_ptr<control::ControlClient> client_;
  const Ownership own_;
  const CallLimit& limit_;
};

}  // namespace

BulkConnect BulkConnectionTo(control::Endpoint endpoint, uint16_t port, control::Trust trust,
                             Ownership own, const CallLimit& limit) {
  return [=, &limit]() -> Result<std::unique_ptr<BulkTarget>> {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<control::ControlClient> client,
                        control::ControlClient::Connect(endpoint, trust, limit.Left(), port));
    return std::unique_ptr<BulkTarget>(new BulkConnection(std::move(client), own, limit));
  };
}

}  // namespace hyperloop
