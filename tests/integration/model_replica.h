// A replica of a model: the product's node and its pool, and a model of its region.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.h"
#include "integration/region_model.h"
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

class NoService final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override { connected = false; }
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status TryWay(const std::string&, const std::string&) override { return {}; }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo>) override {
    connected = true;
    return {};
  }
  bool connected = false;
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
  template <class Reply, class Request>
  Result<Reply> Ask(const Request& request) {
    const control::BodyUnion answer = node_->Handle(control::MakeBody(Request(request)));
    if (const auto* error = control::As<control::ErrorT>(answer)) return ErrorStatus(*error);
    return Reply(*control::As<Reply>(answer));
  }
  control::HelloReplyT Hello() { return Must(Ask<control::HelloReplyT>(control::HelloRequestT{})); }
  const NodeState& state() const { return node_->state(); }
  bool connected() const { return service_.connected; }
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
