// The frames that a primary sends to a replica, from the length to the answer. Of the control
// plane: a sequence of messages to the node, in which earlier ones (seal, install) open the way for
// later ones; a node that is started again from its page promises the same. Of the bulk lane:
// messages about whole files, from several owners in turn, while the replica is started again; what
// it calls finished has the bytes that its name says, whatever was sent. Rules for both: a message
// that parses can be encoded again with the same meaning, every answer parses, and a refusal has a
// reason.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "control/messages.h"
#include "control/owner.h"
#include "files/bulk_service.h"
#include "fuzz/fuzz.h"
#include "region/media.h"
#include "region/region_layout.h"
#include "replica/node.h"

namespace hyperloop::fuzz {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)
namespace stdfs = std::filesystem;

enum Lane : uint8_t { kNode, kBulk };  // the first byte

constexpr uint64_t kJournal = 16384;
constexpr uint64_t kRegion = kJournalOffset + kJournal + 4096 + 4096 + 4096 + 16 * 4096;
constexpr Uuid kGroup{0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x41, 0x11, 0x81, 0x11};
constexpr uint64_t kEpoch = 7;
constexpr uint8_t kOwners = 2;

Uuid OwnerOf(uint8_t number) {
  Uuid id{};
  id.fill(static_cast<uint8_t>(0xa0 + number % kOwners));
  return id;
}

NodeState StateOf(uint8_t owner) {
  NodeState state;
  state.group = kGroup;
  state.sealed_epoch = state.installed.epoch = kEpoch + owner % kOwners;
  state.sealed_owner = OwnerDigest(OwnerOf(owner));
  return state;
}

BodyUnion Parsed(std::span<const uint8_t> frame) {
  auto body = ParseMessage(frame.subspan(kFrameHeader));
  HL_FUZZ_CHECK(body.ok(), body.status().ToString());
  return std::move(body).value();
}

// Reads frames of at most `most` bytes. `before` each of them; `handle` has the answer; `after`
// gets the request and the answer as the other end reads it.
template <class Before, class Handle, class After>
void Converse(Reader& in, uint32_t most, Before&& before, Handle&& handle, After&& after) {
  while (!in.done()) {
    before();
    std::array<uint8_t, kFrameHeader> header{};
    in.Fill(header.data(), header.size());
    const auto length = ParseFrameHeader(header, most);
    if (!length.ok()) return;  // the server closes the connection
    const auto body = ParseMessage(in.Bytes(*length));
    if (!body.ok()) return;
    HL_FUZZ_CHECK(Parsed(EncodeFrame(*body)).type == body->type, "encoded as another message");
    const BodyUnion answer = Parsed(EncodeFrame(handle(*body)));
    if (const auto* error = As<ErrorT>(answer))
      HL_FUZZ_CHECK(!ErrorStatus(*error).ok() && !error->message.empty(), "a mute refusal");
    after(*body, answer);
  }
}

// --- the node

// The node's RDMA side needs a device; another target covers it (group_fuzz).
class NoDevice final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override {}
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status TryWay(const std::string&, const std::string&) override { return {}; }
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

void ConverseWithNode(Reader& in) {
  std::vector<std::byte> page(kNodePageSize);
  std::vector<std::byte> region(kRegion);
  Ram media;
  NodePageStore store(page, media);
  NoDevice service;
  auto node = Node::Create({"fuzz", "ram"}, region, store, service, nullptr);
  HL_FUZZ_CHECK(node.ok(), node.status().ToString());
  region = FormattedRegion();  // as a primary's WRITEs would, between seal and install
  Converse(
      in, kMaxRequest, [] {}, [&](const BodyUnion& request) { return (*node)->Handle(request); },
      [&](const BodyUnion&, const BodyUnion&) {
        const auto kept = store.Load();
        HL_FUZZ_CHECK(kept.ok() && kept->sealed_epoch == (*node)->state().sealed_epoch,
                      kept.status().ToString());
      });
}

// --- whole files

// A directory of this process, in which each input has a root of its own.
class Roots {
 public:
  Roots() {
    std::string pattern = "/dev/shm/hyperloop-fuzz-bulk-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
    folder_ = pattern;
  }
  ~Roots() { stdfs::remove_all(folder_); }
  std::string Fresh() {
    stdfs::remove_all(folder_ + "/root");
    stdfs::create_directory(folder_ + "/root");
    return folder_ + "/root";
  }
  void CheckNothingIsBeside() const {
    for (const auto& entry : stdfs::directory_iterator(folder_))
      HL_FUZZ_CHECK(entry.path().filename() == "root", entry.path().string());
    for (const auto& entry : stdfs::directory_iterator(folder_ + "/root"))
      HL_FUZZ_CHECK(entry.path().filename() == FormatUuid(kGroup), entry.path().string());
  }

 private:
  std::string folder_;
};

template <class Request>
bool IsOwners(const BodyUnion& body, uint8_t owner) {
  const auto* request = As<Request>(body);
  if (request == nullptr) return true;
  const Uuid id = OwnerOf(owner);
  return request->epoch == StateOf(owner).sealed_epoch &&
         std::equal(request->owner_id.begin(), request->owner_id.end(), id.begin(), id.end());
}

void CheckFinishedFiles(const std::string& root) {
  const auto store = FileStore::OpenToRead(GroupDirectory(root, kGroup));
  if (!store.ok()) return;  // nothing has arrived
  const auto files = (*store)->List();
  HL_FUZZ_CHECK(files.ok(), files.status().ToString());
  for (const FileStore::Stored& each : *files) {
    HL_FUZZ_CHECK(CheckWholeFileName(each.file.name).ok(), each.file.name);
    HL_FUZZ_CHECK(each.received <= each.file.size, each.file.name);
    if (!each.finished) continue;
    std::vector<char> bytes(each.file.size);
    const auto got = (*store)->Read(each.file, 0, std::as_writable_bytes(std::span(bytes)));
    HL_FUZZ_CHECK(got.ok() && *got == bytes.size(), each.file.name);
    FileChecksum checksum;
    checksum.Add(bytes);
    HL_FUZZ_CHECK(checksum.value() == each.file.checksum, each.file.name);
  }
}

void ConverseAboutFiles(Reader& in) {
  static Roots roots;
  const std::string root = roots.Fresh();
  auto service = std::make_unique<BulkService>(root);
  uint8_t owner = 0;
  service->Publish(StateOf(owner));
  const auto before = [&] {
    const uint8_t what = in.U8();
    if ((what & 1) != 0) service->Publish(StateOf(owner = what >> 2));
    if ((what & 2) != 0) {  // the replica is started again
      service = std::make_unique<BulkService>(root);
      service->Publish(StateOf(owner));
    }
  };
  Converse(
      in, kMaxBulkRequest, before,
      [&](const BodyUnion& request) { return service->Handle(request); },
      [&](const BodyUnion& request, const BodyUnion& answer) {
        const bool allowed =
            IsOwners<PutFileRequestT>(request, owner) && IsOwners<DropFileRequestT>(request, owner);
        HL_FUZZ_CHECK(allowed || As<ErrorT>(answer) != nullptr,
                      "another than the owner was obeyed");
      });
  service.reset();
  CheckFinishedFiles(root);
  roots.CheckNothingIsBeside();
}

// --- seeds

template <class Request>
Request From(uint8_t owner) {
  const Uuid id = OwnerOf(owner);
  Request request;
  request.epoch = StateOf(owner).sealed_epoch;
  request.owner_id.assign(id.begin(), id.end());
  return request;
}

std::unique_ptr<StoredFileT> FileOf(const char* name, std::string_view bytes) {
  FileChecksum checksum;
  checksum.Add(bytes);
  auto file = std::make_unique<StoredFileT>();
  file->name = name;
  file->size = bytes.size();
  file->checksum = checksum.value();
  return file;
}

PutFileRequestT Put(uint8_t owner, const char* name, std::string_view bytes, uint64_t offset,
                    uint64_t end) {
  auto put = From<PutFileRequestT>(owner);
  put.file = FileOf(name, bytes);
  put.offset = offset;
  put.bytes.assign(bytes.begin() + static_cast<ptrdiff_t>(offset),
                   bytes.begin() + static_cast<ptrdiff_t>(end));
  return put;
}

void Append(const std::vector<uint8_t>& frame, Input* input) {
  input->insert(input->end(), frame.begin(), frame.end());
}
// A frame alone.
Input Alone(const std::vector<uint8_t>& frame) {
  Input input{kNode};
  Append(frame, &input);
  return input;
}

void AddNodeSeeds(std::vector<Input>* seeds) {
  auto seal = From<SealRequestT>(0);
  seal.owner_name = "pid 1 on somewhere";
  seal.group = FormatUuid(kGroup);
  auto install = From<InstallRequestT>(0);
  install.nodes = {FormatUuid(kGroup), FormatUuid(kGroup)};
  install.replicas = {"127.0.0.1:1", "[::1]:2"};
  auto attach = From<AttachRequestT>(0);
  attach.gid.assign(16, 1);
  attach.qpn = 5;
  auto checksums = From<ChecksumsRequestT>(0);
  checksums.length = 16384;
  checksums.block_size = 4096;
  auto prepare = From<PrepareMemberRequestT>(0);
  prepare.datapath = "offload";
  prepare.group_size = 3;
  prepare.window = 64;
  auto connect = From<ConnectMemberRequestT>(0);
  connect.primary.resize(sizeof(PrimaryInfo));
  connect.chain.resize(3 * sizeof(MemberInfo));
  ProposeRequestT propose;
  propose.group = FormatUuid(kGroup);
  propose.replica = "host:1";
  propose.vouchers.resize(64);
  TryWayRequestT way;
  way.replica = "host:1";
  way.host = "far";
  DirectRequestT promise, direct;
  promise.group = direct.group = FormatUuid(kGroup);
  promise.count = direct.count = 3;
  direct.directive = std::make_unique<AgentDirectiveT>();
  direct.directive->paused = true;
  direct.directive->node = "b";
  direct.directive->drained = {"c", "d"};
  const std::vector<uint8_t> frames[] = {EncodeFrame(MakeBody(HelloRequestT{})),
                                         EncodeFrame(MakeBody(seal)),
                                         EncodeFrame(MakeBody(ExamineRequestT{})),
                                         EncodeFrame(MakeBody(attach)),
                                         EncodeFrame(MakeBody(checksums)),
                                         EncodeFrame(MakeBody(install)),
                                         EncodeFrame(MakeBody(prepare)),
                                         EncodeFrame(MakeBody(connect)),
                                         EncodeFrame(MakeBody(From<ReconnectRequestT>(0))),
                                         EncodeFrame(MakeBody(From<ReleaseRequestT>(0))),
                                         EncodeFrame(MakeBody(propose)),
                                         EncodeFrame(MakeBody(way)),
                                         EncodeFrame(MakeBody(std::move(promise))),
                                         EncodeFrame(MakeBody(std::move(direct))),
                                         EncodeFrame(MakeError(Fenced("epoch 9 is another's")))};
  Input all{kNode};
  for (const auto& frame : frames) {
    seeds->push_back(Alone(frame));
    Append(frame, &all);
    seeds->push_back(all);  // everything up to here, in order
  }
  HelloReplyT hello;
  hello.node_id = FormatUuid(kGroup);
  hello.installed_replicas = {"a:1", "b:2"};
  hello.installed_nodes = {FormatUuid(kGroup), FormatUuid(kGroup)};
  seeds->push_back(Alone(EncodeFrame(MakeBody(hello))));
  ExamineReplyT examined;
  examined.content = std::make_unique<ContentT>();
  examined.content->damage = {"extent 1"};
  seeds->push_back(Alone(EncodeFrame(MakeBody(examined))));
  ChecksumsReplyT sums;
  sums.checksums = {1, 2, 3};
  seeds->push_back(Alone(EncodeFrame(MakeBody(sums))));
}

void AddBulkSeeds(std::vector<Input>* seeds) {
  constexpr std::string_view kBytes = "the bytes of a table";
  GetFileRequestT get;
  get.file = FileOf("000007.sst", kBytes);
  get.length = 100;
  auto drop = From<DropFileRequestT>(0);
  drop.file = FileOf("000007.sst", kBytes);
  const std::vector<uint8_t> frames[] = {
      EncodeFrame(MakeBody(Put(0, "000007.sst", kBytes, 0, 5))),
      EncodeFrame(MakeBody(ListFilesRequestT{})),
      EncodeFrame(MakeBody(Put(0, "000007.sst", kBytes, 5, kBytes.size()))),
      EncodeFrame(MakeBody(get)),
      EncodeFrame(MakeBody(Put(1, "000008.blob", kBytes, 0, kBytes.size()))),
      EncodeFrame(MakeBody(drop)),
      EncodeFrame(MakeBody(HelloRequestT{}))};
  for (const uint8_t before : {0, 1 | 1 << 2, 2}) {
    Input all{kBulk};
    for (const auto& frame : frames) {
      all.push_back(before);
      Append(frame, &all);
      seeds->push_back(all);  // everything up to here, in order
    }
  }
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  AddNodeSeeds(&seeds);
  AddBulkSeeds(&seeds);
  return seeds;
}

const FuzzTarget kFuzzTarget("control", Seeds, [](Reader& in) {
  in.U8() % 2 == kNode ? ConverseWithNode(in) : ConverseAboutFiles(in);
});

}  // namespace
}  // namespace hyperloop::fuzz
