// A replica of a model: the product's node and its pool, and a model of its region.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.h"
#include "integration/region_model.h"
#include "membership/replica_lists.h"
#include "replica/node.h"
#include "support/must.h"

namespace hyperloop {

inline constexpr uint64_t kRegion = 2ull << 20;
inline constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";

class NoMedia final : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override { return {}; }
};

// Who can use an access to memory, or queues.
struct ModelUser {
  Uuid owner{};
  uint64_t epoch = 0;
  friend bool operator==(const ModelUser&, const ModelUser&) = default;
};

class NoService final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override { memory = queues = std::nullopt; }
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status TryWay(const std::string&, const std::string&) override { return {}; }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo>) override { return {}; }

  std::optional<ModelUser> memory, queues;
};

// A replica: its node with its pool.
class ModelReplica {
 public:
  explicit ModelReplica(std::string at) : address(std::move(at)), page_(kNodePageSize) {
    region_.reset(static_cast<std::byte*>(std::calloc(1, kRegion)));
    Restart();
  }
  // Without power, what was not flushed is lost.
  void Restart(bool power_failed = false) {
    service_.End();
    if (power_failed) region = flushed;
    node_ =
        Must(Node::Create({"host", "ram"}, {region_.get(), kRegion}, store_, service_, nullptr));
  }
  // An older copy of its pool takes the pool's place.
  struct Copy {
    std::vector<std::byte> page;
    ModelRegion region;
  };
  Copy CopyPool() const { return {page_, region}; }
  void PutBack(const Copy& copy) {
    page_ = copy.page;
    region = flushed = copy.region;
    Restart();
  }
  template <class Reply, class Request>
  Result<Reply> Ask(const Request& request) {
    const control::BodyUnion answer = node_->Handle(control::MakeBody(Request(request)));
    if (const auto* error = control::As<control::ErrorT>(answer)) return ErrorStatus(*error);
    return Reply(*control::As<Reply>(answer));
  }
  control::HelloReplyT Hello() { return Must(Ask<control::HelloReplyT>(control::HelloRequestT{})); }
  const NodeState& state() const { return node_->state(); }
  Result<control::SealReplyT> Seal(const ModelUser& user, const control::HelloReplyT& seen) {
    auto request = From<control::SealRequestT>(user);
    request.owner_name = "owner";
    request.group = kGroup;
    request.seen_sealed_epoch = seen.sealed_epoch;
    request.seen_installed_epoch = seen.installed_epoch;
    request.seen_served_epoch = seen.served_epoch;
    HL_ASSIGN_OR_RETURN(control::SealReplyT reply, Ask<control::SealReplyT>(request));
    flushed = region;
    return reply;
  }
  Status Install(const ModelUser& user, const Configuration& configuration, bool lasting) {
    auto request = From<control::InstallRequestT>(user);
    ListReplicas(configuration.replicas, &request.nodes, &request.replicas);
    ListReplicas(configuration.absent, &request.absent_nodes, &request.absent_replicas);
    request.branch_epoch = configuration.branch.epoch;
    request.branch_owner = BranchOwner(configuration.branch);
    request.lasting = lasting;
    return Ask<control::DoneT>(request).status();
  }
  Status Reconnect(const ModelUser& user) {
    return Ask<control::DoneT>(From<control::ReconnectRequestT>(user)).status();
  }
  // Gives access to the region, and queues that serve. Both last until the node ends them.
  Status Attach(const ModelUser& user) {
    auto request = From<control::AttachRequestT>(user);
    request.gid.resize(sizeof(rnic::Gid));
    HL_RETURN_IF_ERROR(Ask<control::AttachReplyT>(request).status());
    service_.memory = user;
    return {};
  }
  Status Connect(const ModelUser& user, size_t members) {
    auto request = From<control::ConnectMemberRequestT>(user);
    request.primary.resize(sizeof(PrimaryInfo));
    request.chain.resize(members * sizeof(MemberInfo));
    HL_RETURN_IF_ERROR(Ask<control::DoneT>(request).status());
    service_.queues = user;
    return {};
  }
  bool IsReachedBy(const ModelUser& user) const { return service_.memory == user; }
  bool Serves(const ModelUser& user) const { return service_.queues == user; }
  template <class Request>
  static Request From(const ModelUser& user) {
    Request request;
    request.epoch = user.epoch;
    request.owner_id = {user.owner.begin(), user.owner.end()};
    return request;
  }
  // The region's superblock, which is what an installation checks.
  void Format() {
    static const std::vector<std::byte>& formatted = *new std::vector<std::byte>([] {
      std::vector<std::byte> bytes(kRegion);
      const auto geometry = RegionGeometry::Compute(kRegion, 64 << 10, 64, 1 << 16);
      EXPECT_TRUE(FormatRegion(bytes, *ParseUuid(kGroup), RandomSecret(), *geometry).ok());
      return bytes;
    }());
    std::copy_n(formatted.begin(), sizeof(Superblock), region_.get());
  }

  std::string address;  // empty: nobody reaches it
  ModelRegion region, flushed;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::byte> page_;
  std::unique_ptr<std::byte, Free> region_;
  NoMedia media_;
  NodePageStore store_{page_, media_};
  NoService service_;
  std::unique_ptr<Node> node_;
};

}  // namespace hyperloop
