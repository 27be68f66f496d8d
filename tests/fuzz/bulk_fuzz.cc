// Bulk lane: a replica's answers to frames about whole files, from several owners in turn. What it
// calls finished has the bytes that its name says, whatever was sent.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "control/messages.h"
#include "control/owner.h"
#include "fuzz/fuzz.h"
#include "replica/bulk_service.h"

namespace hyperloop::fuzz {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)
namespace stdfs = std::filesystem;

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

void Converse(Reader& in) {
  static Roots roots;
  const std::string root = roots.Fresh();
  auto service = std::make_unique<BulkService>(root);
  uint8_t owner = 0;
  service->Publish(StateOf(owner));
  while (!in.done()) {
    const uint8_t before = in.U8();
    if ((before & 1) != 0) service->Publish(StateOf(owner = before >> 2));
    if ((before & 2) != 0) {  // the replica is started again
      service = std::make_unique<BulkService>(root);
      service->Publish(StateOf(owner));
    }
    std::array<uint8_t, kFrameHeader> header{};
    in.Fill(header.data(), header.size());
    const auto length = ParseFrameHeader(header, kMaxBulkRequest);
    if (!length.ok()) break;
    const auto body = ParseMessage(in.Bytes(*length));
    if (!body.ok()) break;
    const auto answer = EncodeFrame(service->Handle(*body));
    const auto parsed = ParseMessage(std::span(answer).subspan(kFrameHeader));
    HL_FUZZ_CHECK(parsed.ok(), parsed.status().ToString());
    const bool allowed =
        IsOwners<PutFileRequestT>(*body, owner) && IsOwners<DropFileRequestT>(*body, owner);
    HL_FUZZ_CHECK(allowed || As<ErrorT>(*parsed) != nullptr, "another than the owner was obeyed");
  }
  service.reset();
  CheckFinishedFiles(root);
  roots.CheckNothingIsBeside();
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

template <class Request>
Request From(uint8_t owner) {
  const Uuid id = OwnerOf(owner);
  Request request;
  request.epoch = StateOf(owner).sealed_epoch;
  request.owner_id.assign(id.begin(), id.end());
  return request;
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

}  // namespace

std::vector<Input> Seeds() {
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
  std::vector<Input> seeds;
  for (const uint8_t before : {0, 1 | 1 << 2, 2}) {
    Input all;
    for (const auto& frame : frames) {
      all.push_back(before);
      all.insert(all.end(), frame.begin(), frame.end());
      seeds.push_back(all);  // everything up to here, in order
    }
  }
  return seeds;
}

}  // namespace hyperloop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hyperloop::fuzz::Reader in(data, size);
  hyperloop::fuzz::Converse(in);
  return 0;
}
