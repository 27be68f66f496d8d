#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "device/remote_access.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "inspect/image_reader.h"
#include "inspect/service.h"
#include "region/absences.h"
#include "region/pool.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr std::chrono::seconds kTimeout{10};
constexpr std::chrono::milliseconds kWatchStep{20};

// All 0: the node page cannot be read. Whoever needs it reports that.
NodeMark AnyMark(NodeView& view) {
  const Result<NodeMark> mark = view.Mark();
  return mark.ok() ? *mark : NodeMark{};
}

// Implements NodeView over a function that fetches bytes.
class BytesView : public NodeView {
 public:
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    if (offset > region_size() || out.size() > region_size() - offset) {
      return InvalidArgument(Text("range ", offset, " + ", out.size(), " B leaves the region of ",
                                  region_size(), " B"));
    }
    return Fetch(offset, out);
  }

  Result<uint64_t> Heartbeat() override {
    uint64_t word = 0;
    HL_RETURN_IF_ERROR(FetchPage(kHeartbeatOffset, std::as_writable_bytes(std::span(&word, 1))));
    return word;
  }

  Result<bool> OwnerLives(std::chrono::milliseconds watch) override {
    HL_ASSIGN_OR_RETURN(const NodeState state, State(nullptr));
    if (state.sealed_epoch == 0 || state.released) return false;
    HL_ASSIGN_OR_RETURN(const uint64_t before, Heartbeat());
    const auto until = std::chrono::steady_clock::now() + watch;
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kWatchStep);
      HL_ASSIGN_OR_RETURN(const uint64_t now, Heartbeat());
      if (now != before) return true;
    }
    return false;
  }

  Result<NodeMark> Mark() override {
    HL_ASSIGN_OR_RETURN(const NodeState state, State(nullptr));
    std::array<uint64_t, 2> words{};
    static_assert(kOwnerAckedOffset == kHeartbeatOffset + sizeof(words[0]));
    HL_RETURN_IF_ERROR(FetchPage(kHeartbeatOffset, std::as_writable_bytes(std::span(words))));
    return NodeMark{state.sealed_epoch, state.installed.epoch, words[0],
                    OwnerAcked(words[1], state.installed.epoch)};
  }

  Result<RegionImage> Snapshot() override { return Image(true); }

  Result<NodeStatus> ReadPage() override {
    NodeStatus status;
    std::string absences_text;
    HL_ASSIGN_OR_RETURN(const NodeState state, State(&status, &absences_text));
    const auto text = [](const Uuid& uuid) {
      return uuid == kNilUuid ? std::string() : FormatUuid(uuid);
    };
    status.node = text(state.node);
    status.group = text(state.group);
    status.owner = text(state.sealed_owner);
    status.sealed_epoch = state.sealed_epoch;
    status.released = state.released;
    status.awaits_opening = state.awaits_opening;
    status.installed_epoch = state.installed.epoch;
    for (const auto& each : state.installed.replicas) status.replicas.push_back(each.address);
    const Absences absences = ParseAbsences(absences_text);
    for (const auto& each : state.installed.absent) {
      status.absent.push_back(each.address);
      const auto known = absences.find(each.address);
      status.absences.push_back(known == absences.end() ? "" : known->second);
    }
    status.branch_epoch = state.installed.branch.epoch;
    status.branch_owner = text(state.installed.branch.owner);
    status.directive = state.directive;
    status.media = MediaName(media());
    status.region_size = region_size();
    return status;
  }
  Result<NodeStatus> ReadStatus() override { return Describe(false); }
  Result<NodeStatus> Check() override { return Describe(true); }

 protected:
  virtual MediaKind media() const = 0;
  virtual Status Fetch(uint64_t offset, std::span<std::byte> out) = 0;
  virtual Status FetchPage(uint64_t offset, std::span<std::byte> out) = 0;

 private:
  Result<NodeStatus> Describe(bool with_data) {
    HL_ASSIGN_OR_RETURN(NodeStatus status, ReadPage());
    HL_ASSIGN_OR_RETURN(const RegionImage image, Image(with_data));
    DescribeImage(image.bytes(), with_data, &status);
    return status;
  }

  Result<RegionImage> Image(bool with_data) {
    const auto fetch = [this](uint64_t offset, std::span<std::byte> out) {
      return Fetch(offset, out);
    };
    if (!with_data) return ReadImage(fetch, region_size(), false);
    return ReadUntakenImage(
        fetch, [this] { return AnyMark(*this); }, region_size());
  }

  // Only one copy of the state is rewritten at a time, so one of the two is always valid.
  // Sets the texts for people, unless they are null.
  Result<NodeState> State(NodeStatus* status, std::string* absences = nullptr) {
    std::vector<std::byte> page(kNodePageSize);
    HL_RETURN_IF_ERROR(FetchPage(0, page));
    if (status != nullptr) {
      std::memcpy(&status->heartbeat, page.data() + kHeartbeatOffset, sizeof(status->heartbeat));
      status->owner_name = ReadOwnerName(page);
      status->file_damage = ReadFileDamage(page);
      status->file_refusal = ReadFileRefusal(page);
      status->owner_damage = ReadOwnerDamage(page);
      status->datapath = ReadDatapath(page);
    }
    if (absences != nullptr) *absences = ReadAbsences(page);
    Result<NodeState> state = ReadNodeState(page);
    if (state.status().code() == Code::kNotFound) return NodeState{};
    return state;
  }
};

class RdmaView final : public BytesView {
 public:
  RdmaView(std::unique_ptr<RemoteAccess> access, const InspectInfo& info, std::string host)
      : access_(std::move(access)),
        host_(std::move(host)),
        media_(DecodeMedia(info.media).value()),
        region_{info.region_addr, info.region_size, info.region_rkey},
        page_{info.page_addr, info.page_size, info.page_rkey} {}

  uint64_t region_size() const override { return region_.size; }
  MediaKind media() const override { return media_; }
  Status Fetch(uint64_t offset, std::span<std::byte> out) override {
    return access_->Read(region_, offset, out).WithContext(Text("region of ", host_));
  }
  Status FetchPage(uint64_t offset, std::span<std::byte> out) override {
    return access_->Read(page_, offset, out).WithContext(Text("node page of ", host_));
  }

 private:
  const std::unique_ptr<RemoteAccess> access_;
  const std::string host_;
  const MediaKind media_;
  const RemoteMemory region_, page_;
};

class PoolView final : public BytesView {
 public:
  explicit PoolView(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}

  uint64_t region_size() const override { return pool_->region().size(); }
  MediaKind media() const override { return pool_->media().kind(); }
  Status Fetch(uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), pool_->region().data() + offset, out.size());
    return {};
  }
  Status FetchPage(uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), pool_->node_page().data() + offset, out.size());
    return {};
  }

 private:
  const std::unique_ptr<Pool> pool_;
};

}  // namespace

Result<std::unique_ptr<NodeView>> NodeView::Connect(rnic::Device& device, std::string_view host) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<RemoteAccess> access, RemoteAccess::Create(device, kTimeout));
  Result<std::vector<std::byte>> data = device.ConnectService(host, kInspectService, access->qp());
  if (!data.ok())
    return data.status().WithContext(Text("no replica to look at on emulated host ", host));
  HL_ASSIGN_OR_RETURN(const InspectInfo info, ParseInspectInfo(*data, host));
  return std::unique_ptr<NodeView>(new RdmaView(std::move(access), info, std::string(host)));
}

Result<std::unique_ptr<NodeView>> NodeView::OpenPool(const std::string& path) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Pool> pool, Pool::OpenCopyOnWrite(path));
  return std::unique_ptr<NodeView>(new PoolView(std::move(pool)));
}

}  // namespace hyperloop
