// Pools of any content: the file of a node whose process is gone is read by export and status, and
// opened by its next owner.
//
// An input is a list of edits to the file of a pool that holds a small group: bytes anywhere, in
// the root or its copy (with the right checksum or without), in the region's blocks, in the node
// page, the file's length, owner and mode, and the whole files beside it. Rules: nothing ends the
// process; neither reading nor an owner's refused open changes the file; damage outside of region
// and roots does not change the exported files; a refused export leaves nothing behind, and what
// was there stays.
//
// Or an input says how a pool is made, beside what is there already. Rules: it has what was asked
// for, or nothing was made and the reason is told.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "files/file_store.h"
#include "fuzz/fuzz.h"
#include "hyperloop/replication/inspect.h"
#include "inspect/export.h"
#include "region/media.h"
#include "region/pool.h"
#include "region/pool_file.h"
#include "testing/lane_bench.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;

enum Edit : uint8_t {
  kAnywhere,
  kRoot,
  kRootCopy,
  kRegion,
  kNodePage,
  kLength,
  kStore,
  kOthers,
  kEdits
};
// Bits of the first byte. kTarget: of four kinds.
enum Mode : uint8_t { kPartial = 1, kWithFiles = 2, kCreation = 4, kTarget = 16 };
constexpr const char* kMedia[] = {"auto", "ram",           "file",         "pmem",
                                  "x",    "file-emulated", "pmem-emulated"};
constexpr uid_t kStranger = 65533;
constexpr const char* kWholeFiles[] = {"000009.sst", "000010.blob"};

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
  // Of the replica's whole files.
  std::string store() const { return folder_ + "/files"; }
  uint64_t root() const { return root_; }
  uint64_t region() const { return region_; }
  uint64_t region_size() const { return region_size_; }
  uint64_t node_page() const { return region_ + region_size_; }

 private:
  Original() {
    folder_ = "/dev/shm/hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(folder_.data()) != nullptr, "mkdtemp");
    path_ = folder_ + "/node.pool";
    LaneBench bench(MemoryGroup::Mode::kImmediate);
    bench.retires = false;  // kWholeFiles are all that is in the bulk lane
    for (int i = 0; i < 60; ++i) bench.RandomCall();
    HL_FUZZ_CHECK(mkdir(store().c_str(), 0700) == 0, store());
    const auto files = Must(FileStore::Open(GroupDirectory(store(), bench.region.info.group)));
    for (const char* name : kWholeFiles) {
      const std::string bytes(300'000, name[5]);
      FileChecksum checksum;
      checksum.Add(bytes);
      const WholeFile file{name, bytes.size(), checksum.value()};
      Must(files->Write(file, 0, std::as_bytes(std::span(bytes))));
      Must(bench.lane->ListFile(file));
    }
    Must(bench.lane->Drain());
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
    Must(ExportFiles(image.bytes(), folder_ + "/original", 0, false, store()));
    exported_ = FilesBelow(folder_ + "/original");
    for (const char* name : kWholeFiles) HL_FUZZ_CHECK(exported_.contains(name), name);
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
    for (const auto& [path, bytes] : changed_) std::ofstream(path, std::ios::binary) << bytes;
    Resize(original_.bytes().size());
    for (const auto& [at, size] : edits_) Write(at, original_.bytes().data() + at, size);
    Write(shortest_, original_.bytes().data() + shortest_, original_.bytes().size() - shortest_);
    close(fd_);
    if (owned_) return;
    chmod(original_.path().c_str(), 0600);
    if (geteuid() == 0) HL_FUZZ_CHECK(chown(original_.path().c_str(), 0, 0) == 0, "chown");
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
        case kStore:
          ChangeStore(in);
          break;
        case kOthers:
          GiveToOthers(in.U8());
          break;
        default:
          SetLength(std::min<uint64_t>(in.U32(), original_.bytes().size() + 4096));
      }
    }
  }
  // Whether no edit touched bytes on which the pool's content depends.
  bool harmless() const { return harmless_; }
  // Nor on which the whole files depend.
  bool files_are_whole() const { return whole_; }
  bool owned() const { return owned_; }
  // Valid until the next such call. The memory of these megabytes is used again.
  const std::string& Bytes(bool before = false) const {
    static std::string kept[2];
    std::string& bytes = kept[before ? 1 : 0];
    bytes.resize(size_);
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
  // One of the whole files: other bytes, more or fewer of them, or none.
  void ChangeStore(Reader& in) {
    const uint8_t how = in.U8();
    const auto entries = stdfs::recursive_directory_iterator(original_.store());
    for (const auto& entry : entries) {
      if (!entry.is_regular_file() || (how & 1) == (changed_.size() & 1)) continue;
      const std::string path = entry.path();
      if (changed_.contains(path)) return;
      changed_[path] = FilesBelow(original_.store())[stdfs::relative(path, original_.store())];
      if ((how & 2) != 0) {
        stdfs::remove(path);
      } else {
        stdfs::resize_file(path, (how & 4) != 0 ? 4096 : 300'000);
        std::fstream(path, std::ios::in | std::ios::out).seekp(in.U8()).put(static_cast<char>(how));
      }
      whole_ = false;
      return;
    }
  }
  // Another user's pool, or one that others may write.
  void GiveToOthers(uint8_t how) {
    const mode_t mode = (how & 1) != 0 ? 0666 : 0600;
    chmod(original_.path().c_str(), mode);
    const uid_t user = (how & 2) != 0 ? kStranger : 0;
    if (geteuid() == 0) HL_FUZZ_CHECK(chown(original_.path().c_str(), user, user) == 0, "chown");
    owned_ = mode == 0600 && (geteuid() != 0 || user == 0);
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
  bool harmless_ = true, whole_ = true, owned_ = true;
  std::vector<std::pair<uint64_t, uint64_t>> edits_;
  Files changed_;  // whole files as they were, by path
};

// What is where an export goes to.
class Target {
 public:
  explicit Target(uint8_t kind) : kind_(kind % 4), path_(Original::Get().folder() + "/export") {
    if (kind_ == 1) stdfs::create_directory(path_);
    if (kind_ == 2) std::ofstream(path_) << "precious";
    if (kind_ == 3) stdfs::create_directory(path_), std::ofstream(path_ + "/file") << "precious";
  }
  ~Target() { stdfs::remove_all(path_); }
  const std::string& path() const { return path_; }
  bool takes() const { return kind_ < 2; }
  void CheckUntouched() const {
    std::ifstream in(kind_ == 2 ? path_ : path_ + "/file");
    std::string text;
    std::getline(in, text);
    HL_FUZZ_CHECK(takes() || text == "precious", "what was there was changed");
    HL_FUZZ_CHECK(kind_ != 0 || !stdfs::exists(path_), "a refused export left files behind");
    HL_FUZZ_CHECK(kind_ != 1 || stdfs::is_empty(path_), "a refused export left files behind");
    for (const auto& entry : stdfs::directory_iterator(Original::Get().folder()))
      HL_FUZZ_CHECK(!entry.path().filename().string().starts_with("export."), "staging was left");
  }

 private:
  const uint8_t kind_;
  const std::string path_;
};

void Export(const EditedPool& pool, const RegionImage& image, uint8_t mode) {
  const Original& original = Original::Get();
  const Target target(mode / kTarget);
  const bool with_files = (mode & kWithFiles) != 0;
  const auto report = ExportFiles(image.bytes(), target.path() + ((mode & 128) != 0 ? "/" : ""), 0,
                                  (mode & kPartial) != 0, with_files ? original.store() : "");
  const bool whole = !with_files || pool.files_are_whole();
  const bool must = pool.harmless() && whole && target.takes();
  HL_FUZZ_CHECK(report.ok() || !must, report.status().ToString());
  if (!report.ok()) return target.CheckUntouched();
  HL_FUZZ_CHECK(target.takes(), "what was there is gone");
  const Files files = FilesBelow(target.path());
  HL_FUZZ_CHECK(files.size() == report->files, "exported files were miscounted");
  if (!must) return;
  Files expected = original.exported();
  if (!with_files)
    for (const std::string& missing : report->missing) expected.erase(missing);
  HL_FUZZ_CHECK(
      with_files ? report->missing.empty() : report->missing.size() == std::size(kWholeFiles),
      "another number of files is missing");
  HL_FUZZ_CHECK(files == expected, "another export");
}

// Status and export, as a tool makes them.
void Look(const EditedPool& pool, uint8_t mode) {
  const Original& original = Original::Get();
  const auto view = NodeView::OpenPool(original.path());
  HL_FUZZ_CHECK(view.ok() || !pool.harmless(), view.status().ToString());
  if (!view.ok()) return;
  (*view)->ReadStatus().status().IgnoreError();
  (*view)->Check().status().IgnoreError();
  (*view)->Heartbeat().status().IgnoreError();
  (*view)->OwnerLives(std::chrono::milliseconds(0)).status().IgnoreError();
  std::array<std::byte, 64> bytes;
  const uint64_t size = (*view)->region_size();
  HL_FUZZ_CHECK((*view)->Read(size - bytes.size(), bytes).ok(), "the region's end");
  HL_FUZZ_CHECK(!(*view)->Read(size - 1, bytes).ok(), "beyond the region's end");
  const auto image = (*view)->Snapshot();
  HL_FUZZ_CHECK(image.ok() || !pool.harmless(), image.status().ToString());
  if (image.ok()) Export(pool, *image, mode);
}

void Inspect(Reader& in, uint8_t mode) {
  EditedPool pool;
  pool.Apply(in);
  const std::string& before = pool.Bytes(/*before=*/true);
  Look(pool, mode);
  HL_FUZZ_CHECK(pool.Bytes() == before, "looking changed the file");
  const char* const media = kMedia[mode / 8 % 2 * (1 + mode / 16 % (std::size(kMedia) - 1))];
  const auto owned = Pool::Open(Original::Get().path(), {media});
  HL_FUZZ_CHECK(owned.ok() || pool.Bytes() == before, "a refused open changed the file");
  HL_FUZZ_CHECK(owned.ok() || !pool.harmless() || !pool.owned() || media != kMedia[0],
                owned.status().ToString());
  if (!owned.ok()) return;
  HL_FUZZ_CHECK(pool.owned(), "another user's pool was opened to be written");
  const auto region = (*owned)->region();
  Must((*owned)->media().Persist(region.data(), region.size()));
  HL_FUZZ_CHECK(!Pool::Open(Original::Get().path()).ok(), "opened twice");
}

// A pool is made where something may be already.
void Create(Reader& in) {
  const std::string path = Original::Get().folder() + "/new.pool", left = path + ".creating";
  const uint8_t how = in.U8();
  constexpr uint64_t kSizes[] = {0, 65536, 1 << 20, 65537, 4096, 15ull << 30, ~0ull, 1ull << 62};
  const uint64_t size = in.U8() < 200 ? kSizes[in.U8() % std::size(kSizes)] : in.U64();
  if (size > (64 << 20) && size <= kMaxRegionSize) return;  // it would be made, and takes its time
  const char* const media = kMedia[in.U8() % std::size(kMedia)];
  UniqueFd lock;
  if ((how & 1) != 0) std::ofstream(path) << "precious";
  if ((how & 2) != 0) std::ofstream(left) << "left behind";
  if ((how & 4) != 0) {
    lock = UniqueFd(open(left.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    flock(lock.get(), LOCK_EX);
  }
  if ((how & 8) != 0) stdfs::remove(left), stdfs::create_symlink(path + ".victim", left);
  {
    const auto opened = Pool::Open(path);
    HL_FUZZ_CHECK(!opened.ok(), "a pool of nothing");
    const auto pool = Pool::Create(path, size, {media});
    HL_FUZZ_CHECK(!stdfs::exists(path + ".victim"), "a link was followed");
    if (pool.ok()) {
      HL_FUZZ_CHECK((how & 5) == 0 && (*pool)->region().size() == size, "another pool");
      HL_FUZZ_CHECK((*pool)->path() == path && !stdfs::exists(left), "not whole");
    } else {
      HL_FUZZ_CHECK(!pool.status().message().empty(), "a refusal without a reason");
      HL_FUZZ_CHECK(stdfs::exists(path) == ((how & 1) != 0), "made, and refused");
    }
  }
  stdfs::remove(path), stdfs::remove(left);
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {{}};
  seeds.push_back(Writer().U8(kWithFiles).U8(kRoot).U8(0).U8(8).U8(8).U64(1 << 20).Finish());
  seeds.push_back(Writer().U8(0).U8(kRoot).U8(0).U8(8).U8(2).U16(7).Finish());  // a version
  seeds.push_back(Writer().U8(0).U8(kRootCopy).U8(200).U8(24).U8(8).U64(~0ull).Finish());
  seeds.push_back(Writer().U8(kPartial).U8(kRegion).U32(0).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(kPartial).U8(kRegion).U32(40000).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(0).U8(kRegion).U32(40000).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(0).U8(kNodePage).U16(8).U8(8).U64(7).Finish());
  seeds.push_back(Writer().U8(0).U8(kLength).U32(1 << 20).Finish());
  seeds.push_back(Writer().U8(0).U8(kLength).U32(9 << 20).Finish());
  seeds.push_back(Writer().U8(0).U8(kAnywhere).U32(9000).U8(8).U64(~0ull).Finish());
  // Neither root is sound: another program's pool, no pool, and one that nobody finished.
  for (const uint32_t at : {4096u, 0u, 20000u}) {
    Writer out;
    out.U8(0).U8(kRoot).U8(200).U8(0).U8(8).U64(1).U8(kRootCopy).U8(200).U8(0).U8(8).U64(1);
    seeds.push_back(out.U8(kAnywhere).U32(at).U8(8).U64(0x65646f6d6f73).Finish());
  }
  for (const unsigned target : {1u, 2u, 3u})
    seeds.push_back(Writer().U8(kWithFiles + target * kTarget + 128).Finish());
  for (const unsigned partial : {0u, 0u + kPartial})
    for (const unsigned how : {0u, 1u, 2u, 3u, 4u, 5u})
      seeds.push_back(Writer().U8(kWithFiles + partial).U8(kStore).U8(how).U8(9).Finish());
  for (const unsigned how : {1u, 2u}) seeds.push_back(Writer().U8(0).U8(kOthers).U8(how).Finish());
  for (unsigned media = 0; media < std::size(kMedia); ++media)
    seeds.push_back(Writer().U8(8 + media * 16).Finish());
  const auto create = [&](unsigned how, unsigned size, unsigned media) {
    seeds.push_back(Writer().U8(kCreation).U8(how).U8(0).U8(size).U8(media).Finish());
  };
  for (unsigned size = 0; size < 8; ++size) create(0, size, 0);
  for (unsigned media = 0; media < std::size(kMedia); ++media) create(0, 1, media);
  for (const unsigned how : {1u, 2u, 4u, 8u}) create(how, 1, 0);
  return seeds;
}

const FuzzTarget kFuzzTarget("pool", Seeds, [](Reader& in) {
  const uint8_t mode = in.U8();
  (mode & kCreation) != 0 ? Create(in) : Inspect(in, mode);
});

}  // namespace
}  // namespace hyperloop::fuzz
