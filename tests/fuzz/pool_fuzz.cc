// Pools of any content: the file of a node whose process is gone is read by export and status, and
// opened by its next owner.
//
// An input is a list of edits to the file of a pool that holds a small group: bytes anywhere, in
// the root or its copy (with the right checksum or without), in the region's blocks, in the node
// page, and the file's length. Rules: nothing ends the process; neither reading nor an owner's
// refused open changes the file; damage outside of region and roots does not change the exported
// files; a refused export leaves nothing behind.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "files/export.h"
#include "fuzz/fuzz.h"
#include "hyperloop/replication/inspect.h"
#include "pool/pool.h"
#include "pool/pool_file.h"
#include "testing/lane_bench.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;

enum Edit : uint8_t { kAnywhere, kRoot, kRootCopy, kRegion, kNodePage, kLength, kEdits };

using Files = std::map<std::string, std::string>;

Files FilesBelow(const std::string& directory) {
  Files files;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[stdfs::relative(entry.path(), directory)] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

// A pool as a killed node leaves it: some records executed, some not. Made once.
class Original {
 public:
  static Original& Get() {
    static auto* original = new Original;
    return *original;
  }
  const std::string& folder() const { return folder_; }
  const std::string& path() const { return path_; }
  const std::string& bytes() const { return bytes_; }
  const Files& exported() const { return exported_; }
  uint64_t root() const { return root_; }
  uint64_t region() const { return region_; }
  uint64_t region_size() const { return region_size_; }
  uint64_t node_page() const { return region_ + region_size_; }

 private:
  Original() {
    folder_ = stdfs::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(folder_.data()) != nullptr, "mkdtemp");
    path_ = folder_ + "/node.pool";
    LaneBench bench(MemoryGroup::Mode::kImmediate);
    for (int i = 0; i < 60; ++i) bench.RandomCall();
    region_size_ = bench.region.bytes.size();
    {
      const auto pool = Must(Pool::Create(path_, region_size_));
      std::copy(bench.region.bytes.begin(), bench.region.bytes.end(), pool->region().begin());
      NodeState state;
      state.node = Uuid{9};
      state.group = Uuid{1, 2, 3};
      HL_FUZZ_CHECK(WriteNodeState(pool->node_page(), &state).ok(), "node page");
      region_ = pool->region_file_offset();
      HL_FUZZ_CHECK(pool->node_page_file_offset() == node_page(), "layout");
    }
    std::ifstream in(path_, std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(in), {}};
    const std::string copy = bytes_.substr(PoolRootCopy(region_), sizeof(PoolRoot));
    root_ = bytes_.find(copy);
    HL_FUZZ_CHECK(root_ < PoolRootCopy(region_), "the root was not found");
    const auto image = Must(Must(NodeView::OpenPool(path_))->Snapshot());
    Must(ExportFiles(image.bytes(), folder_ + "/original"));
    exported_ = FilesBelow(folder_ + "/original");
    HL_FUZZ_CHECK(!exported_.empty(), "nothing to export");
    static std::string to_remove;
    to_remove = folder_;
    std::atexit([] { stdfs::remove_all(to_remove); });
  }

  std::string folder_, path_, bytes_;
  Files exported_;
  uint64_t root_ = 0, region_ = 0, region_size_ = 0;
};

// The file with edits, put back by the destructor.
class EditedPool {
 public:
  EditedPool() : fd_(open(original_.path().c_str(), O_RDWR | O_CLOEXEC)) {
    HL_FUZZ_CHECK(fd_ >= 0, "open");
  }
  ~EditedPool() {
    Resize(original_.bytes().size());
    for (const auto& [at, size] : edits_) Write(at, original_.bytes().data() + at, size);
    Write(shortest_, original_.bytes().data() + shortest_, original_.bytes().size() - shortest_);
    close(fd_);
  }

  void Apply(Reader& in) {
    for (int i = 0; i < 20 && !in.done(); ++i) {
      switch (in.U8() % kEdits) {
        case kAnywhere:
          Change(in, in.U32() % original_.bytes().size());
          break;
        case kRoot:
          ChangeRoot(in, original_.root());
          break;
        case kRootCopy:
          ChangeRoot(in, PoolRootCopy(original_.region()));
          break;
        case kRegion:
          Change(in, original_.region() + in.U32() % original_.region_size());
          break;
        case kNodePage:
          Change(in, original_.node_page() + in.U16() % kNodePageSize);
          break;
        default:
          SetLength(std::min<uint64_t>(in.U32(), original_.bytes().size() + 4096));
      }
    }
  }
  // Whether no edit touched bytes on which the pool's content depends.
  bool harmless() const { return harmless_; }
  std::string Bytes() const {
    std::string bytes(size_, '\0');
    HL_FUZZ_CHECK(pread(fd_, bytes.data(), size_, 0) == static_cast<ssize_t>(size_), "pread");
    return bytes;
  }

 private:
  void SetLength(uint64_t size) {
    Resize(size);
    size_ = size;
    shortest_ = std::min(shortest_, size);
    harmless_ = false;
  }
  void Resize(uint64_t size) { HL_FUZZ_CHECK(ftruncate(fd_, size) == 0, "ftruncate"); }
  void Write(uint64_t at, const char* bytes, size_t size) {
    HL_FUZZ_CHECK(pwrite(fd_, bytes, size, at) == static_cast<ssize_t>(size), "pwrite");
  }
  void Change(Reader& in, uint64_t at) {
    const auto bytes = in.Bytes(in.U8() % 64);
    const uint64_t size = std::min<uint64_t>(bytes.size(), original_.bytes().size() - at);
    Write(at, reinterpret_cast<const char*>(bytes.data()), size);
    Note(at, size);
  }
  void ChangeRoot(Reader& in, uint64_t at) {
    PoolRoot root;
    std::memcpy(&root, original_.bytes().data() + at, sizeof root);
    const bool sealed = in.U8() < 128;
    const uint64_t from = in.U8() % sizeof root;
    in.Fill(reinterpret_cast<uint8_t*>(&root) + from,
            std::min<uint64_t>(in.U8() % 16, sizeof root - from));
    if (sealed) SealPoolRoot(&root);
    Write(at, reinterpret_cast<const char*>(&root), sizeof root);
    Note(at, sizeof root);
  }
  void Note(uint64_t at, uint64_t size) {
    edits_.emplace_back(at, size);
    if (size != 0) size_ = std::max(size_, at + size);
    const auto meets = [&](uint64_t begin, uint64_t end) { return at < end && at + size > begin; };
    // PMDK's header leads to the root, so changing it may make both unreachable.
    if (meets(0, 8192) || meets(original_.root(), original_.root() + sizeof(PoolRoot)) ||
        meets(PoolRootCopy(original_.region()), original_.node_page() + kNodePageSize)) {
      harmless_ = false;
    }
  }

  const Original& original_ = Original::Get();
  const int fd_;
  uint64_t size_ = original_.bytes().size(), shortest_ = size_;
  bool harmless_ = true;
  std::vector<std::pair<uint64_t, uint64_t>> edits_;
};

// Status and export, as a tool makes them.
void Look(const EditedPool& pool, bool partial) {
  const Original& original = Original::Get();
  const std::string to = original.folder() + "/export";
  const auto view = NodeView::OpenPool(original.path());
  HL_FUZZ_CHECK(view.ok() || !pool.harmless(), view.status().ToString());
  if (!view.ok()) return;
  (*view)->ReadStatus().status().IgnoreError();
  (*view)->Check().status().IgnoreError();
  const auto image = (*view)->Snapshot();
  HL_FUZZ_CHECK(image.ok() || !pool.harmless(), image.status().ToString());
  if (!image.ok()) return;
  const auto report = ExportFiles(image->bytes(), to, 0, partial);
  HL_FUZZ_CHECK(report.ok() || !pool.harmless(), report.status().ToString());
  HL_FUZZ_CHECK(report.ok() || !stdfs::exists(to), "a refused export left files behind");
  if (!report.ok()) return;
  const Files files = FilesBelow(to);
  HL_FUZZ_CHECK(files.size() == report->files, "exported files were miscounted");
  HL_FUZZ_CHECK(!pool.harmless() || files == original.exported(), "another export");
  stdfs::remove_all(to);
}

}  // namespace

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {{}};
  seeds.push_back(Writer().U8(0).U8(kRoot).U8(0).U8(8).U8(8).U64(1 << 20).Finish());
  seeds.push_back(Writer().U8(0).U8(kRootCopy).U8(200).U8(24).U8(8).U64(~0ull).Finish());
  seeds.push_back(Writer().U8(1).U8(kRegion).U32(0).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(1).U8(kRegion).U32(40000).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(0).U8(kNodePage).U16(8).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(0).U8(kLength).U32(1 << 20).Finish());
  seeds.push_back(Writer().U8(0).U8(kAnywhere).U32(9000).U8(8).U64(~0ull).Finish());
  return seeds;
}

}  // namespace hyperloop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyperloop;        // NOLINT(google-build-using-namespace)
  using namespace hyperloop::fuzz;  // NOLINT(google-build-using-namespace)
  Reader in(data, size);
  const bool partial = (in.U8() & 1) != 0;
  EditedPool pool;
  pool.Apply(in);
  const std::string before = pool.Bytes();
  Look(pool, partial);
  HL_FUZZ_CHECK(pool.Bytes() == before, "looking changed the file");
  const auto owned = Pool::Open(Original::Get().path());
  HL_FUZZ_CHECK(owned.ok() || pool.Bytes() == before, "a refused open changed the file");
  HL_FUZZ_CHECK(owned.ok() || !pool.harmless(), owned.status().ToString());
  return 0;
}
