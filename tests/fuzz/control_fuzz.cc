// Control plane frames: from the length to the answer of a replica's node, over a sequence of
// messages in which earlier ones (seal, install) open the way for later ones.
#include "control/messages.h"
#include "fuzz/fuzz.h"
#include "layout/region_layout.h"
#include "pool/media.h"
#include "replica/node.h"

namespace hyperloop::fuzz {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)

constexpr uint64_t kJournal = 16384;
constexpr uint64_t kRegion = kJournalOffset + kJournal + 4096 + 4096 + 4096 + 16 * 4096;
constexpr Uuid kGroup{0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x41, 0x11, 0x81, 0x11};

// The node's RDMA side needs a device; another target covers it (group_fuzz).
class NoDevice final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override {}
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo>) override { return {}; }
};

class Ram final : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override { return {}; }
};

const std::vector<std::byte>& FormattedRegion() {
  static const auto region = [] {
    std::vector<std::byte> bytes(kRegion);
    const auto geometry = RegionGeometry::Compute(kRegion, kJournal, 16, 4096);
    HL_FUZZ_CHECK(geometry.ok(), geometry.status().ToString());
    FormatRegion(bytes, kGroup, RegionSecret{1}, *geometry).IgnoreError();
    return bytes;
  }();
  return region;
}

void Converse(Reader& in) {
  std::vector<std::byte> page(kNodePageSize);
  std::vector<std::byte> region(kRegion);
  Ram media;
  NodePageStore store(page, media);
  NoDevice service;
  auto node = Node::Create({"fuzz", "ram"}, region, store, service, nullptr);
  HL_FUZZ_CHECK(node.ok(), node.status().ToString());
  region = FormattedRegion();  // as a primary's WRITEs would, between seal and install
  while (!in.done()) {
    std::array<uint8_t, kFrameHeader> header{};
    in.Fill(header.data(), header.size());
    const auto length = ParseFrameHeader(header, kMaxRequest);
    if (!length.ok()) return;  // the server closes the connection
    const auto body = ParseMessage(in.Bytes(*length));
    if (!body.ok()) return;
    // A message that parses can be encoded again with the same meaning.
    const auto frame = EncodeFrame(*body);
    const auto again = ParseMessage(std::span(frame).subspan(kFrameHeader));
    HL_FUZZ_CHECK(again.ok() && again->type == body->type, again.status().ToString());
    const auto answer = EncodeFrame((*node)->Handle(*body));
    const auto parsed = ParseMessage(std::span(answer).subspan(kFrameHeader));
    HL_FUZZ_CHECK(parsed.ok(), parsed.status().ToString());
    if (const auto* error = As<ErrorT>(*parsed))
      HL_FUZZ_CHECK(!ErrorStatus(*error).ok() && !error->message.empty(), "a mute refusal");
    // A node that is started again from its page promises the same.
    const auto kept = store.Load();
    HL_FUZZ_CHECK(kept.ok() && kept->sealed_epoch == (*node)->state().sealed_epoch,
                  kept.status().ToString());
  }
}

template <class Request>
Request From(uint64_t epoch) {
  Request request;
  request.epoch = epoch;
  request.owner_id.assign(16, 0xa1);
  return request;
}

}  // namespace

std::vector<Input> Seeds() {
  auto seal = From<SealRequestT>(7);
  seal.owner_name = "pid 1 on somewhere";
  seal.group = FormatUuid(kGroup);
  auto install = From<InstallRequestT>(7);
  install.nodes = {FormatUuid(kGroup), FormatUuid(kGroup)};
  install.replicas = {"127.0.0.1:1", "[::1]:2"};
  auto attach = From<AttachRequestT>(7);
  attach.gid.assign(16, 1);
  attach.qpn = 5;
  auto checksums = From<ChecksumsRequestT>(7);
  checksums.length = 16384;
  checksums.block_size = 4096;
  auto prepare = From<PrepareMemberRequestT>(7);
  prepare.datapath = "offload";
  prepare.group_size = 3;
  prepare.window = 64;
  auto connect = From<ConnectMemberRequestT>(7);
  connect.primary.resize(sizeof(PrimaryInfo));
  connect.chain.resize(3 * sizeof(MemberInfo));
  ProposeRequestT propose;
  propose.group = FormatUuid(kGroup);
  propose.replica = "host:1";
  const std::vector<uint8_t> frames[] = {EncodeFrame(MakeBody(HelloRequestT{})),
                                         EncodeFrame(MakeBody(seal)),
                                         EncodeFrame(MakeBody(ExamineRequestT{})),
                                         EncodeFrame(MakeBody(attach)),
                                         EncodeFrame(MakeBody(checksums)),
                                         EncodeFrame(MakeBody(install)),
                                         EncodeFrame(MakeBody(prepare)),
                                         EncodeFrame(MakeBody(connect)),
                                         EncodeFrame(MakeBody(From<ReconnectRequestT>(7))),
                                         EncodeFrame(MakeBody(From<ReleaseRequestT>(7))),
                                         EncodeFrame(MakeBody(propose)),
                                         EncodeFrame(MakeError(Fenced("epoch 9 is another's")))};
  std::vector<Input> seeds;
  Input all;
  for (const auto& frame : frames) {
    seeds.push_back(frame);
    all.insert(all.end(), frame.begin(), frame.end());
    seeds.push_back(all);  // everything up to here, in order
  }
  HelloReplyT hello;
  hello.node_id = FormatUuid(kGroup);
  hello.installed_replicas = {"a:1", "b:2"};
  hello.installed_nodes = {FormatUuid(kGroup), FormatUuid(kGroup)};
  seeds.push_back(EncodeFrame(MakeBody(hello)));
  ExamineReplyT examined;
  examined.content = std::make_unique<ContentT>();
  examined.content->damage = {"extent 1"};
  seeds.push_back(EncodeFrame(MakeBody(examined)));
  ChecksumsReplyT sums;
  sums.checksums = {1, 2, 3};
  seeds.push_back(EncodeFrame(MakeBody(sums)));
  return seeds;
}

}  // namespace hyperloop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hyperloop::fuzz::Reader in(data, size);
  hyperloop::fuzz::Converse(in);
  return 0;
}
