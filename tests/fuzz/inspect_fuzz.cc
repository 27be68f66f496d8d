// What a replica publishes about itself, and what the memory holds that it gives out, read over an
// RNIC as hyperloopctl reads it. An input changes the published bytes, the region and the node page
// of a small group. Rules: every call returns, with what was read or with the reason; nothing
// beyond the memory that was given out is read; where nothing was changed, all is read; what is
// read of a changed region can be exported, or that is refused.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "fuzz/fuzz.h"
#include "hyperloop/replication/inspect.h"
#include "inspect/export.h"
#include "inspect/service.h"
#include "region/media.h"
#include "region/region_layout.h"
#include "softrnic/embedded/embedded.h"
#include "support/must.h"
#include "testing/lane_bench.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;

enum Edit : uint8_t { kInfo, kRegion, kHead, kNodePage, kState, kNoService, kEdits };

// A region as a serving node has it.
const std::vector<std::byte>& OriginalRegion() {
  static const std::vector<std::byte> region = [] {
    LaneBench bench(MemoryGroup::Mode::kImmediate);
    for (int i = 0; i < 40; ++i) bench.RandomCall();
    return bench.region.bytes;
  }();
  return region;
}

const std::string& ExportTarget() {
  static const std::string folder = [] {
    std::string pattern = "/dev/shm/hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
    static std::string to_remove;
    to_remove = pattern;
    std::atexit([] { stdfs::remove_all(to_remove); });
    return pattern + "/export";
  }();
  return folder;
}

// The RNIC of this process, with a device that looks.
struct Rnic {
  Rnic() {
    Must(rnic.StartThread());
    tool = Must(rnic.OpenDevice("tool"));
  }
  static Rnic& Get() {
    static auto* rnic = new Rnic;  // its thread ends with the process
    return *rnic;
  }
  softrnic::EmbeddedRnic rnic;
  std::unique_ptr<rnic::Device> tool;
};

// A replica that the input has made up.
class Replica {
 public:
  Replica()
      : device_(Must(Rnic::Get().rnic.OpenDevice("node"))),
        pd_(Must(device_->AllocatePd())),
        region_(OriginalRegion()),
        page_(kNodePageSize) {
    NodeState state;
    state.node = Uuid{9}, state.group = Uuid{1, 2, 3};
    state.sealed_epoch = state.installed.epoch = 1;
    state.installed.replicas = {{Uuid{9}, "127.0.0.1:1"}};
    Must(WriteNodeState(page_, &state).status());
    region_mr_ = Register(region_);
    page_mr_ = Register(page_);
    info_ = {kInspectMagic,
             kInspectVersion,
             region_mr_->addr(),
             region_.size(),
             page_mr_->addr(),
             page_.size(),
             region_mr_->rkey(),
             page_mr_->rkey(),
             EncodeMedia({rnic::Media::kRam, false}),
             0};
    published_.resize(sizeof info_);
    std::memcpy(published_.data(), &info_, sizeof info_);
  }

  void Apply(Reader& in) {
    for (int i = 0; i < 20 && !in.done(); ++i) {
      const uint8_t edit = in.U8() % kEdits;
      harmless_ = false;
      switch (edit) {
        case kInfo: {
          const uint8_t at = in.U8() % sizeof info_;
          if (published_.size() == sizeof info_)
            in.Fill(published_.data() + at, std::min<size_t>(in.U8() % 9u, sizeof info_ - at));
          if (const uint8_t size = in.U8(); size > 200) published_.resize(size);
          break;
        }
        case kRegion:
          Change(in, in.U32() % region_.size(), region_);
          break;
        case kHead:
          ChangeHead(in);
          break;
        case kNodePage:
          Change(in, in.U16() % page_.size(), page_);
          break;
        case kState:
          ChangeState(in);
          break;
        default:
          silent_ = true;
      }
    }
    if (!silent_) device_->Publish(kInspectService, *pd_, published_).IgnoreError();
  }
  bool harmless() const { return harmless_; }
  uint64_t region_size() const { return region_.size(); }

 private:
  std::unique_ptr<rnic::MemoryRegion> Register(std::vector<std::byte>& memory) {
    return Must(pd_->Register(memory.data(), memory.size(), rnic::kRemoteRead, {}));
  }
  static void Change(Reader& in, size_t at, std::vector<std::byte>& memory) {
    in.Fill(memory.data() + at, std::min<size_t>(in.U8(), memory.size() - at));
  }
  // A head with the right checksum.
  void ChangeHead(Reader& in) {
    const auto info = ParseSuperblock(region_, region_.size());
    if (!info.ok()) return;
    Head head;
    head.generation = in.U8();
    head.cursor = {in.U16(), in.U8(), in.U32(), in.U32()};
    const HeadBlock block = MakeHeadBlock(*info, head);
    std::memcpy(region_.data() + kHeadOffsets[in.U8() & 1], &block, sizeof block);
  }
  // A state with the right checksum, whose texts the input chooses.
  void ChangeState(Reader& in) {
    NodeState state;
    state.node = Uuid{in.U8()}, state.group = Uuid{in.U8()};
    state.sealed_epoch = in.U8(), state.installed.epoch = in.U8();
    state.released = (in.U8() & 1) != 0;
    for (unsigned n = in.U8() % 3u; n > 0; --n) {
      const auto address = in.Bytes(in.U8() % 80u);
      state.installed.replicas.push_back({Uuid{1}, {address.begin(), address.end()}});
      state.installed.absent.push_back({Uuid{2}, "a:1"});
    }
    WriteNodeState(page_, &state).status().IgnoreError();
    const auto name = in.Bytes(in.U8());
    WriteOwnerName(page_, {reinterpret_cast<const char*>(name.data()), name.size()});
  }

  const std::unique_ptr<rnic::Device> device_;
  const std::unique_ptr<rnic::ProtectionDomain> pd_;
  std::vector<std::byte> region_, page_;
  std::unique_ptr<rnic::MemoryRegion> region_mr_, page_mr_;
  InspectInfo info_{};
  std::vector<std::byte> published_;
  bool harmless_ = true, silent_ = false;
};

// `what` was read, or there is a reason.
template <class T>
bool Check(const Result<T>& what, const Replica& replica) {
  HL_FUZZ_CHECK(what.ok() || !what.status().message().empty(), "a refusal without a reason");
  HL_FUZZ_CHECK(what.ok() || !replica.harmless(), what.status().ToString());
  return what.ok();
}

void Look(const Replica& replica) {
  const auto view = NodeView::Connect(*Rnic::Get().tool, "node");
  if (!Check(view, replica)) return;
  const auto status = (*view)->ReadStatus();
  if (Check(status, replica) && replica.harmless())
    HL_FUZZ_CHECK(status->formatted && status->log_error.empty() && !status->files.empty() &&
                      status->installed_epoch == 1,
                  status->log_error);
  const auto checked = (*view)->Check();
  if (Check(checked, replica))
    HL_FUZZ_CHECK(!replica.harmless() || checked->damage.empty(), "damage of nothing");
  Check((*view)->Heartbeat(), replica);
  // One step of watching takes 20 ms.
  const std::chrono::milliseconds watch(replica.harmless() ? 1 : 0);
  Check((*view)->OwnerLives(watch), replica);
  std::array<std::byte, 64> bytes;
  const uint64_t size = (*view)->region_size();
  const bool read = (*view)->Read(size - bytes.size(), bytes).ok();
  HL_FUZZ_CHECK(!read || size == replica.region_size() || !replica.harmless(), "beyond the memory");
  HL_FUZZ_CHECK(!(*view)->Read(size - 1, bytes).ok(), "beyond the region");
  const auto image = (*view)->Snapshot();
  if (!Check(image, replica)) return;
  const auto report = ExportFiles(image->bytes(), ExportTarget());
  Check(report, replica);
  HL_FUZZ_CHECK(report.ok() == stdfs::exists(ExportTarget()), "a refused export left files behind");
  stdfs::remove_all(ExportTarget());
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {{}};
  seeds.push_back(Writer().U8(kNoService).Finish());
  // Each field of what is published, one after the other; another length.
  for (unsigned at = 0; at < sizeof(InspectInfo); at += 4)
    seeds.push_back(Writer().U8(kInfo).U8(at).U8(4).U32(0x10000).U8(0).Finish());
  seeds.push_back(Writer().U8(kInfo).U8(0).U8(0).U8(201).Finish());
  for (const uint64_t size : {uint64_t{0}, uint64_t{4096}, uint64_t{1} << 33, ~uint64_t{0}})
    seeds.push_back(Writer().U8(kInfo).U8(16).U8(8).U64(size).U8(0).Finish());
  for (const uint32_t at : {0u, 40u, 4096u, 8192u, 12288u, 20000u, 36000u, 60000u})
    seeds.push_back(Writer().U8(kRegion).U32(at).U8(8).U64(~0ull).Finish());
  for (const uint32_t position : {0u, 4096u, 16000u})
    seeds.push_back(Writer().U8(kHead).U8(9).U16(7).U8(1).U32(position).U32(5).U8(0).Finish());
  for (const unsigned at : {0u, 12u, 1024u, 2048u, 3000u})
    seeds.push_back(Writer().U8(kNodePage).U16(at).U8(8).U64(~0ull).Finish());
  Writer state;
  state.U8(kState).U8(3).U8(4).U8(9).U8(8).U8(0).U8(1).U8(11).Bytes("127.0.0.1:1", 11);
  seeds.push_back(state.U8(7).Bytes("\x1b[2Jpid", 7).Finish());
  seeds.push_back(Writer().U8(kState).U8(0).U8(0).U8(0).U8(0).U8(1).U8(0).U8(0).Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("inspect", Seeds, [](Reader& in) {
  Replica replica;
  replica.Apply(in);
  Look(replica);
});

}  // namespace
}  // namespace hyperloop::fuzz
