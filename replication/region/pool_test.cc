#include "region/pool.h"

#include <fcntl.h>
#include <libpmemobj.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "region/crc32c.h"
#include "region/pool_file.h"
#include "region/region_layout.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kRegion = 1u << 20;

class PoolTest : public testing::Test {
 protected:
  explicit PoolTest(const std::string& folder = testing::TempDir()) {
    std::string pattern = folder + "/hyperloop-pool-XXXXXX";
    base = mkdtemp(pattern.data());
    path = base + "/a.pool";
  }
  ~PoolTest() override { fs::remove_all(base); }

  static uint32_t Checksum(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::vector<char> buffer(1 << 20);
    uint32_t crc = 0;
    while (in.read(buffer.data(), static_cast<long>(buffer.size())), in.gcount() > 0) {
      crc = Crc32c(crc, buffer.data(), static_cast<size_t>(in.gcount()));
    }
    return crc;
  }
  size_t Entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(base), fs::directory_iterator()));
  }
  // Runs `body` in a child; its return value is the exit status.
  static int InChild(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string base, path;
};

TEST_F(PoolTest, KeepsWhatWasWritten) {
  {
    auto pool = Pool::Create(path, kRegion);
    ASSERT_OK(pool);
    const auto region = (*pool)->region();
    ASSERT_EQ(region.size(), kRegion);
    EXPECT_TRUE(
        std::all_of(region.begin(), region.end(), [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_THAT(ReadNodeState((*pool)->node_page()), StatusIs(Code::kNotFound));
    EXPECT_EQ((*pool)->region_file_offset() % (2u << 20), 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(region.data()) % 4096, 0u);
    EXPECT_EQ((*pool)->node_page_file_offset() % 4096, 0u);
    std::memcpy(&region[kRegion - 5], "tail!", 5);
    std::memcpy((*pool)->node_page().data(), "node", 4);
    ASSERT_OK((*pool)->media().Persist(&region[kRegion - 5], 5));
    ASSERT_OK((*pool)->media().Persist((*pool)->node_page().data(), 4));
    // The descriptor that is passed on shows the same bytes at the offsets given.
    char text[6] = {};
    EXPECT_EQ(pread((*pool)->fd(), text, 5,
                    static_cast<off_t>((*pool)->region_file_offset() + kRegion - 5)),
              5);
    EXPECT_STREQ(text, "tail!");
    EXPECT_EQ(fcntl((*pool)->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  auto pool = Pool::Open(path);
  ASSERT_OK(pool);
  EXPECT_EQ(0, std::memcmp(&(*pool)->region()[kRegion - 5], "tail!", 5));
  EXPECT_EQ(0, std::memcmp((*pool)->node_page().data(), "node", 4));
  EXPECT_THAT(Pool::Create(path, kRegion), StatusIs(Code::kAlreadyExists));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PoolTest, OneOwner) {
  auto pool = Pool::Create(path, kRegion).value();
  const Status busy = Pool::Open(path).status();
  EXPECT_THAT(busy, StatusIs(Code::kBusy));
  EXPECT_EQ(InChild([&] { return Pool::Open(path).status().code() == Code::kBusy ? 0 : 1; }), 0);
  EXPECT_THAT(Pool::OpenCopyOnWrite(path), StatusIs(Code::kBusy));
  // A pool that a forked child destroys stays open here.
  EXPECT_EQ(InChild([&] {
              pool.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(InChild([&] { return Pool::Open(path).status().code() == Code::kBusy ? 0 : 1; }), 0);
  pool->region()[0] = std::byte{1};
  pool.reset();
  EXPECT_OK(Pool::Open(path));
}

// Whoever only reads a pool that nobody has open disturbs neither other readers nor its owner, who
// waits until they are gone.
TEST_F(PoolTest, ReadersShareThePoolAndItsOwnerWaitsForThem) {
  ASSERT_OK(Pool::Create(path, kRegion));
  auto reader = Pool::OpenCopyOnWrite(path);
  ASSERT_OK(reader);
  EXPECT_OK(Pool::OpenCopyOnWrite(path));
  std::latch begun(1);
  std::thread owner([&] {
    begun.count_down();
    const auto pool = Pool::Open(path);
    EXPECT_OK(pool);
    EXPECT_THAT(Pool::OpenCopyOnWrite(path), StatusIs(Code::kBusy));
  });
  begun.wait();
  reader->reset();
  owner.join();
  auto alone = Pool::OpenCopyOnWrite(path, PoolReaders::kAlone);
  ASSERT_OK(alone);
  EXPECT_THAT(Pool::OpenCopyOnWrite(path), StatusIs(Code::kBusy));
  EXPECT_THAT(Pool::OpenCopyOnWrite(path, PoolReaders::kAlone), StatusIs(Code::kBusy));
}

TEST_F(PoolTest, WhoeverIsWaitedForIsToldUntilNobodyWantsToWait) {
  ASSERT_OK(Pool::Create(path, kRegion));
  const auto reader = Pool::OpenCopyOnWrite(path);
  ASSERT_OK(reader);
  std::vector<std::string> told;
  PoolOptions options;
  options.patience = std::chrono::hours(1);
  options.waiting = [&](const std::string& what) {
    told.push_back(what);
    return told.size() < 2;
  };
  EXPECT_THAT(Pool::Open(path, options), StatusIs(Code::kBusy, testing::HasSubstr("being read")));
  EXPECT_THAT(told, testing::ElementsAre(testing::HasSubstr(path), testing::HasSubstr(path)));
}

// Who may write to the file could change the region under its owner. Reading harms nobody.
TEST_F(PoolTest, PoolOfOtherUsersIsOnlyRead) {
  { ASSERT_OK(Pool::Create(path, kRegion)); }
  ASSERT_EQ(chmod(path.c_str(), 0622), 0);
  EXPECT_THAT(Pool::Open(path), StatusIs(Code::kPermissionDenied, testing::HasSubstr("chmod 600")));
  EXPECT_OK(Pool::OpenCopyOnWrite(path));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_OK(Pool::Open(path));
  if (chown(path.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "giving a file away needs root";
  EXPECT_THAT(Pool::Open(path), StatusIs(Code::kPermissionDenied, testing::HasSubstr("chown")));
  EXPECT_OK(Pool::OpenCopyOnWrite(path));
}

TEST_F(PoolTest, CopyOnWriteNeverChangesTheFile) {
  {
    auto pool = Pool::Create(path, kRegion).value();
    std::memcpy(&pool->region()[100], "kept", 4);
    ASSERT_OK(pool->media().Persist(&pool->region()[100], 4));
  }
  const uint32_t before = Checksum(path);
  for (int i = 0; i < 2; ++i) {
    auto pool = Pool::OpenCopyOnWrite(path);
    ASSERT_OK(pool);
    EXPECT_EQ(0, std::memcmp(&(*pool)->region()[100], "kept", 4));
    EXPECT_EQ((*pool)->fd(), -1);
    std::ranges::fill((*pool)->region(), std::byte{0x5a});
    std::ranges::fill((*pool)->node_page(), std::byte{0x5a});
    ASSERT_OK((*pool)->media().Persist((*pool)->region().data(), kRegion));
  }
  EXPECT_EQ(Checksum(path), before);
  // An ordinary opening writes again.
  auto pool = Pool::Open(path).value();
  pool->region()[100] = std::byte{'K'};
  ASSERT_OK(pool->media().Persist(&pool->region()[100], 1));
  pool.reset();
  EXPECT_EQ(Pool::Open(path).value()->region()[100], std::byte{'K'});
}

TEST_F(PoolTest, RefusesWhatIsNoPoolOfOurs) {
  EXPECT_THAT(Pool::Open(path), StatusIs(Code::kNotFound));
  EXPECT_THAT(Pool::Open(base), StatusIs(Code::kInvalidArgument));
  for (const size_t size : {size_t{0}, size_t{100}, size_t{32} << 20}) {
    std::ofstream(path, std::ios::binary) << std::string(size, 'x');
    EXPECT_THAT(Pool::Open(path), StatusIs(Code::kCorruption)) << size;
    EXPECT_THAT(Pool::OpenCopyOnWrite(path), StatusIs(Code::kCorruption)) << size;
    EXPECT_THAT(Pool::Create(path, kRegion), StatusIs(Code::kAlreadyExists)) << size;
    fs::remove(path);
  }
  PMEMobjpool* other = pmemobj_create(path.c_str(), "somebody's", 32 << 20, 0600);
  ASSERT_NE(other, nullptr);
  pmemobj_close(other);
  const Status layout = Pool::Open(path).status();
  EXPECT_THAT(layout, StatusIs(Code::kInvalidArgument));
  fs::remove(path);
  // Our layout's name, but never filled.
  other = pmemobj_create(path.c_str(), "hyperloop-1", 32 << 20, 0600);
  ASSERT_NE(other, nullptr);
  pmemobj_close(other);
  EXPECT_THAT(Pool::Open(path), StatusIs(Code::kCorruption));
}

// PMDK's own tools accept the file as a pool at any time, and use the same lock.
TEST_F(PoolTest, IsAPoolOfPmdk) {
  auto pool = Pool::Create(path, kRegion).value();
  EXPECT_EQ(pmemobj_open(path.c_str(), kPoolLayout), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  std::ranges::fill(pool->region(), std::byte{0xff});
  std::ranges::fill(pool->node_page(), std::byte{0xff});
  pool.reset();
  EXPECT_EQ(pmemobj_check(path.c_str(), kPoolLayout), 1) << pmemobj_errormsg();
  PMEMobjpool* theirs = pmemobj_open(path.c_str(), kPoolLayout);
  ASSERT_NE(theirs, nullptr) << pmemobj_errormsg();
  EXPECT_THAT(Pool::Open(path), StatusIs(Code::kBusy));
  pmemobj_close(theirs);
  pool = Pool::Open(path).value();
  EXPECT_EQ(pool->region()[0], std::byte{0xff});
}

// Flips each bit that is not zero, and a random choice of the others, outside of region and node
// page.
class DamagedPoolTest : public PoolTest {
 protected:
  static constexpr uint64_t kSmall = 64u << 10;
  // In memory: this opens the pool many thousand times, and each time a disk would be waited for.
  DamagedPoolTest() : PoolTest("/dev/shm") {
    auto pool = Pool::Create(path, kSmall).value();
    begin = pool->region_file_offset();
    end = pool->node_page_file_offset() + pool->node_page().size();
    for (size_t i = 0; i < kSmall; ++i) pool->region()[i] = std::byte(i * 7 + i / 256);
    region = Crc32c(0, pool->region().data(), kSmall);
    pool.reset();
    std::ifstream in(path, std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(in), {});
  }

  std::vector<uint64_t> Bits() const {
    std::vector<uint64_t> bits;
    const auto outside = [&](uint64_t byte) { return byte < begin || byte >= end; };
    for (uint64_t byte = 0; byte < image.size(); ++byte) {
      if (image[byte] == 0 || !outside(byte)) continue;
      for (uint64_t bit = 0; bit < 8; ++bit) bits.push_back(byte * 8 + bit);
    }
    std::mt19937_64 random(14);
    for (int i = 0; i < 10000;) {
      // Headers and lanes are dense, the heap's tables sparse: both get their share.
      const uint64_t bit = random() % ((i % 2 == 0 ? begin : image.size()) * 8);
      if (outside(bit / 8)) bits.push_back(bit), ++i;
    }
    return bits;
  }

  void Write(uint64_t byte, char value) const {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, &value, 1, static_cast<off_t>(byte)), 1);
    close(fd);
  }
  // The result of opening the file with one damaged byte.
  Code Look(uint64_t byte, char value, bool private_copy) const {
    Write(byte, value);
    auto pool = private_copy ? Pool::OpenCopyOnWrite(path) : Pool::Open(path);
    Code code = pool.status().code();
    if (pool.ok() && Crc32c(0, (*pool)->region().data(), kSmall) != region) code = Code::kInternal;
    if (pool.ok()) pool->reset();
    Write(byte, image[byte]);
    return code;
  }

  uint64_t begin = 0, end = 0;
  uint32_t region = 0;
  std::vector<char> image;
};

TEST_F(DamagedPoolTest, EveryFlippedBitLeavesTheRegionReadable) {
  const std::vector<uint64_t> bits = Bits();
  auto* at = static_cast<std::atomic<uint64_t>*>(mmap(nullptr, sizeof(std::atomic<uint64_t>),
                                                      PROT_READ | PROT_WRITE,
                                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(at, MAP_FAILED);
  const int result = InChild([&] {
    for (const uint64_t bit : bits) {
      at->store(bit);
      const char value = static_cast<char>(image[bit / 8] ^ (1 << bit % 8));
      for (const bool private_copy : {true, false}) {
        if (Look(bit / 8, value, private_copy) != Code::kOk) return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(result, 0) << "bit " << at->load() % 8 << " of byte " << at->load() / 8 << " of "
                       << bits.size() << " bits that were flipped";
  munmap(at, sizeof(std::atomic<uint64_t>));
}

TEST_F(DamagedPoolTest, BothRootsDamagedNameTheWayOut) {
  uint64_t root = 0;
  std::memcpy(&root, &image[6144], sizeof(root));
  const uint64_t copy = PoolRootCopy(begin);
  ASSERT_NE(root, copy);
  for (uint64_t i = 0; i < sizeof(PoolRoot); ++i) {
    Write(root + i, static_cast<char>(image[root + i] ^ 4));
    for (const bool private_copy : {true, false})
      EXPECT_EQ(Look(copy + (i * 5) % 48, 77, private_copy), Code::kCorruption) << i;
    Write(root + i, image[root + i]);
  }
  Write(root, 77);
  Write(copy, 77);
  const Status status = Pool::Open(path).status();
  EXPECT_NE(status.message().find(path), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("other members"), std::string::npos) << status.ToString();
}

TEST_F(PoolTest, TruncationIsFound) {
  Pool::Create(path, kRegion).value().reset();
  const auto size = fs::file_size(path);
  for (const uint64_t cut :
       {size - 1, size - 4096, size - (1u << 20), size / 2, uint64_t{8} << 20, uint64_t{4096}}) {
    const std::string copy = base + "/cut.pool";
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    fs::resize_file(copy, cut);
    const Status status = Pool::Open(copy).status();
    EXPECT_THAT(status, StatusIs(Code::kCorruption)) << cut;
    EXPECT_THAT(Pool::OpenCopyOnWrite(copy), StatusIs(Code::kCorruption)) << cut;
  }
}

TEST_F(PoolTest, RefusesSizes) {
  const Status large = Pool::Create(path, 16ull << 30).status();
  EXPECT_THAT(large, StatusIs(Code::kInvalidArgument));
  EXPECT_NE(large.message().find("15 GiB"), std::string::npos);
  EXPECT_THAT(Pool::Create(path, 100), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Pool::Create(path, kRegion, {.media = "tape"}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Pool::Create(base + "/no/such", kRegion), StatusIs(Code::kNotFound));
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(PoolTest, FullDiskLeavesNothing) {
  const int result = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", base.c_str(), "tmpfs", 0, "size=8m") != 0) {
      return 77;
    }
    const Status status = Pool::Create(path, kRegion).status();
    if (status.code() != Code::kNoSpace || status.message().find("free") == std::string::npos)
      return 1;
    return Entries() == 0 ? 0 : 2;
  });
  if (result == 77) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  EXPECT_EQ(result, 0);
}

// The disk becomes full after its free space was checked. A limit on file size stands for that,
// because it makes the same system call fail.
TEST_F(PoolTest, FailureWhileWritingLeavesNothing) {
  EXPECT_EQ(InChild([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 20, 1 << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              if (Pool::Create(path, kRegion).ok()) return 1;
              return Entries() == 0 ? 0 : 2;
            }),
            0);
}

TEST_F(PoolTest, CreationCutShortIsReplaced) {
  const std::string left = path + ".creating";
  std::ofstream(left) << "half";
  const Status status = Pool::Open(path).status();
  EXPECT_THAT(status, StatusIs(Code::kNotFound));
  EXPECT_NE(status.message().find("cut short"), std::string::npos);
  {  // another process is creating it
    const int fd = open(left.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    EXPECT_THAT(Pool::Create(path, kRegion), StatusIs(Code::kBusy));
    close(fd);
  }
  EXPECT_OK(Pool::Create(path, kRegion));
  EXPECT_EQ(Entries(), 1u);
}

// A forked worker has descriptors and mappings of its parent. They must not outlive the parent.
TEST_F(PoolTest, AForkedChildHoldsNothing) {
  ASSERT_OK(Pool::Create(path, kRegion));
  for (const bool worker_first : {false, true}) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t parent = fork();
    if (parent == 0) {
      auto pool = Pool::Open(path);
      if (!pool.ok()) _exit(1);
      const pid_t worker = fork();
      if (worker == 0) {
        // It may look at what it inherited, and change nothing of it.
        std::memset((*pool)->region().data(), 7, kRegion);
        if (worker_first) pool->reset();
        const pid_t self = getpid();
        if (write(told[1], &self, sizeof self) != sizeof self) _exit(1);
        for (;;) pause();
      }
      for (;;) pause();
    }
    close(told[1]);
    pid_t worker = 0;
    ASSERT_EQ(read(told[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
    const Status used = Pool::Open(path).status();
    EXPECT_THAT(used, StatusIs(Code::kBusy, testing::HasSubstr(std::to_string(parent))));
    EXPECT_THAT(used.message(), testing::Not(testing::HasSubstr(std::to_string(worker))));
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    const auto reopened = Pool::Open(path);
    EXPECT_OK(reopened);
    EXPECT_TRUE(reopened.ok() && (*reopened)->region()[0] == std::byte{0});
    kill(worker, SIGKILL);
    close(told[0]);
  }
}

// A process that inherited the lock in another way, as one that was forked by a system call, is
// named.
TEST_F(PoolTest, WhoHoldsThePoolIsNamed) {
  ASSERT_OK(Pool::Create(path, kRegion));
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const pid_t heir = fork();
  if (heir == 0) {
    for (;;) pause();
  }
  close(fd);
  EXPECT_THAT(Pool::Open(path),
              StatusIs(Code::kBusy, testing::HasSubstr("process " + std::to_string(heir))));
  kill(heir, SIGKILL);
  waitpid(heir, nullptr, 0);
  EXPECT_OK(Pool::Open(path));
}

// Descriptors of a file system that answers nothing any more, as of a server that is away, do not
// keep the search for the lock's holder from its end.
TEST_F(PoolTest, WhoHoldsThePoolIsNamedBesideAFileSystemThatIsAway) {
  ASSERT_OK(Pool::Create(path, kRegion));
  const auto held = Pool::Open(path);
  ASSERT_OK(held);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      _exit(2);
    const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string with = "fd=" + std::to_string(fuse) + ",rootmode=40000,user_id=0,group_id=0";
    const std::string away = base + "/away";
    mkdir(away.c_str(), 0700);
    if (fuse < 0 || mount("away", away.c_str(), "fuse", 0, with.c_str()) != 0) _exit(2);
    if (open(away.c_str(), O_PATH | O_CLOEXEC) < 0) _exit(2);
    alarm(20);  // what waits for the file system waits for ever
    const Status busy = Pool::Open(path).status();
    const bool named =
        busy.message().find("process " + std::to_string(getppid())) != std::string::npos;
    _exit(busy.code() == Code::kBusy && named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    GTEST_SKIP() << "mounting a file system needs root and /dev/fuse";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A creation is killed at any point: the next one finds a whole pool, or nothing that stops it.
TEST_F(PoolTest, KilledWhileCreating) {
  for (int round = 0; round < 12; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      Pool::Create(path, kRegion).status().IgnoreError();
      _exit(0);
    }
    // The kill comes before, during or after the creation; each outcome is checked.
    struct stat st;
    for (int look = 0; look < round * 300; ++look) stat((path + ".creating").c_str(), &st);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    auto pool = Pool::Open(path);
    if (!pool.ok()) {
      ASSERT_THAT(pool, StatusIs(Code::kNotFound));
      pool = Pool::Create(path, kRegion);
    }
    ASSERT_OK(pool);
    ASSERT_EQ((*pool)->region().size(), kRegion);
    pool->reset();
    fs::remove(path);
    fs::remove(path + ".creating");
  }
}

TEST_F(PoolTest, MediaIsDetectedAndOverridable) {
  EXPECT_EQ(Pool::Create(path, kRegion, {.media = "ram"}).value()->media().level(),
            rnic::Media::kRam);
  const auto stated = Pool::Open(path, {.media = "file-emulated"});
  EXPECT_EQ(stated.value()->media().level(), rnic::Media::kFile);
  const std::string shm = "/dev/shm/hyperloop-pool-test-" + std::to_string(getpid());
  auto pool = Pool::Create(shm, kRegion);
  fs::remove(shm);
  ASSERT_OK(pool);
  EXPECT_EQ((*pool)->media().level(), rnic::Media::kRam);
  EXPECT_EQ((*pool)->region_backing().fd, (*pool)->fd());
  for (const MediaKind kind :
       {MediaKind(rnic::Media::kRam), MediaKind(rnic::Media::kFile), MediaKind(rnic::Media::kPmem),
        MediaKind(rnic::Media::kFile, true), MediaKind(rnic::Media::kPmem, true)}) {
    EXPECT_EQ(ParseMedia(MediaName(kind)).value(), kind);
    EXPECT_EQ(DecodeMedia(EncodeMedia(kind)).value(), kind);
    EXPECT_FALSE(MediaPromise(kind).empty());
    EXPECT_EQ(MakeMediaWriter(kind, path)->kind(), kind);
    // Any alignment, in a mapping of a file.
    EXPECT_OK(MakeMediaWriter(kind, path)->Persist((*pool)->region().data() + 4095, 2));
  }
  EXPECT_THAT(DecodeMedia(3), StatusIs(Code::kCorruption));
  EXPECT_THAT(DecodeMedia(0x100), StatusIs(Code::kCorruption));
}

// A pool in volatile memory must not promise to survive a power failure.
TEST_F(PoolTest, MediaThatPromisesTooMuchIsRefused) {
  const std::string shm = "/dev/shm/hyperloop-pool-test-media-" + std::to_string(getpid());
  for (const std::string media : {"file", "pmem"}) {
    const Status refused = Pool::Create(shm, kRegion, {.media = media}).status();
    EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
    EXPECT_NE(refused.message().find("media=" + media + "-emulated"), std::string::npos)
        << refused.ToString();
    EXPECT_FALSE(fs::exists(shm));
    EXPECT_FALSE(fs::exists(shm + ".creating"));
  }
  auto pool = Pool::Create(shm, kRegion, {.media = "pmem-emulated"});
  ASSERT_OK(pool);
  EXPECT_EQ((*pool)->media().level(), rnic::Media::kPmem);
  EXPECT_NE(MediaPromise((*pool)->media().kind()).find("nothing is promised"), std::string::npos);
  pool->reset();
  EXPECT_THAT(Pool::Open(shm, {.media = "pmem"}), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(Pool::Open(shm));
  fs::remove(shm);
}

}  // namespace
}  // namespace hyperloop
