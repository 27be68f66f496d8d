#include "pool/pool.h"

#include <fcntl.h>
#include <libpmemobj.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "gtest/gtest.h"
#include "layout/crc32c.h"
#include "layout/region_layout.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kRegion = 1u << 20;

class PoolTest : public testing::Test {
 protected:
  PoolTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-pool-XXXXXX";
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
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    const auto region = (*pool)->region();
    ASSERT_EQ(region.size(), kRegion);
    EXPECT_TRUE(
        std::all_of(region.begin(), region.end(), [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(ReadNodeState((*pool)->node_page()).status().code(), Code::kNotFound);
    EXPECT_EQ((*pool)->region_file_offset() % (2u << 20), 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(region.data()) % 4096, 0u);
    EXPECT_EQ((*pool)->node_page_file_offset() % 4096, 0u);
    std::memcpy(&region[kRegion - 5], "tail!", 5);
    std::memcpy((*pool)->node_page().data(), "node", 4);
    ASSERT_TRUE((*pool)->media().Persist(&region[kRegion - 5], 5).ok());
    ASSERT_TRUE((*pool)->media().Persist((*pool)->node_page().data(), 4).ok());
    // The descriptor that is passed on shows the same bytes at the offsets given.
    char text[6] = {};
    EXPECT_EQ(pread((*pool)->fd(), text, 5,
                    static_cast<off_t>((*pool)->region_file_offset() + kRegion - 5)),
              5);
    EXPECT_STREQ(text, "tail!");
    EXPECT_EQ(fcntl((*pool)->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  auto pool = Pool::Open(path);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  EXPECT_EQ(0, std::memcmp(&(*pool)->region()[kRegion - 5], "tail!", 5));
  EXPECT_EQ(0, std::memcmp((*pool)->node_page().data(), "node", 4));
  EXPECT_EQ(Pool::Create(path, kRegion).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PoolTest, OneOwner) {
  auto pool = Pool::Create(path, kRegion).value();
  const Status busy = Pool::Open(path).status();
  EXPECT_EQ(busy.code(), Code::kBusy) << busy.ToString();
  EXPECT_EQ(InChild([&] { return Pool::Open(path).status().code() == Code::kBusy ? 0 : 1; }), 0);
  EXPECT_EQ(Pool::OpenCopyOnWrite(path).status().code(), Code::kBusy);
  // What a forked child destroys stays open here.
  EXPECT_EQ(InChild([&] {
              pool.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(InChild([&] { return Pool::Open(path).status().code() == Code::kBusy ? 0 : 1; }), 0);
  pool->region()[0] = std::byte{1};
  pool.reset();
  EXPECT_TRUE(Pool::Open(path).ok());
}

TEST_F(PoolTest, CopyOnWriteNeverChangesTheFile) {
  {
    auto pool = Pool::Create(path, kRegion).value();
    std::memcpy(&pool->region()[100], "kept", 4);
    ASSERT_TRUE(pool->media().Persist(&pool->region()[100], 4).ok());
  }
  const uint32_t before = Checksum(path);
  for (int i = 0; i < 2; ++i) {
    auto pool = Pool::OpenCopyOnWrite(path);
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    EXPECT_EQ(0, std::memcmp(&(*pool)->region()[100], "kept", 4));
    EXPECT_EQ((*pool)->fd(), -1);
    std::ranges::fill((*pool)->region(), std::byte{0x5a});
    std::ranges::fill((*pool)->node_page(), std::byte{0x5a});
    ASSERT_TRUE((*pool)->media().Persist((*pool)->region().data(), kRegion).ok());
  }
  EXPECT_EQ(Checksum(path), before);
  // The switch is the process's: it is off again, and an ordinary opening writes.
  int on = -1;
  ASSERT_EQ(pmemobj_ctl_get(nullptr, "copy_on_write.at_open", &on), 0);
  EXPECT_EQ(on, 0);
  auto pool = Pool::Open(path).value();
  pool->region()[100] = std::byte{'K'};
  ASSERT_TRUE(pool->media().Persist(&pool->region()[100], 1).ok());
  pool.reset();
  EXPECT_EQ(Pool::Open(path).value()->region()[100], std::byte{'K'});
}

TEST_F(PoolTest, RefusesWhatIsNoPoolOfOurs) {
  EXPECT_EQ(Pool::Open(path).status().code(), Code::kNotFound);
  EXPECT_EQ(Pool::Open(base).status().code(), Code::kInvalidArgument);
  for (const size_t size : {size_t{0}, size_t{100}, size_t{32} << 20}) {
    std::ofstream(path, std::ios::binary) << std::string(size, 'x');
    EXPECT_EQ(Pool::Open(path).status().code(), Code::kCorruption) << size;
    EXPECT_EQ(Pool::OpenCopyOnWrite(path).status().code(), Code::kCorruption) << size;
    EXPECT_EQ(Pool::Create(path, kRegion).status().code(), Code::kAlreadyExists) << size;
    fs::remove(path);
  }
  PMEMobjpool* other = pmemobj_create(path.c_str(), "somebody's", 32 << 20, 0600);
  ASSERT_NE(other, nullptr);
  pmemobj_close(other);
  const Status layout = Pool::Open(path).status();
  EXPECT_EQ(layout.code(), Code::kInvalidArgument) << layout.ToString();
  fs::remove(path);
  // Our layout's name, but never filled.
  other = pmemobj_create(path.c_str(), "hyperloop-1", 32 << 20, 0600);
  ASSERT_NE(other, nullptr);
  pmemobj_close(other);
  EXPECT_EQ(Pool::Open(path).status().code(), Code::kCorruption);
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
    EXPECT_EQ(status.code(), Code::kCorruption) << cut << ": " << status.ToString();
    EXPECT_EQ(Pool::OpenCopyOnWrite(copy).status().code(), Code::kCorruption) << cut;
  }
}

TEST_F(PoolTest, RefusesSizes) {
  const Status large = Pool::Create(path, 16ull << 30).status();
  EXPECT_EQ(large.code(), Code::kInvalidArgument);
  EXPECT_NE(large.message().find("15 GiB"), std::string::npos);
  EXPECT_EQ(Pool::Create(path, 100).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Pool::Create(path, kRegion, {.media = "tape"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Pool::Create(base + "/no/such", kRegion).status().code(), Code::kNotFound);
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

// The disk fills up after the look at it: here a limit on file size, which fails the same system
// call.
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
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("cut short"), std::string::npos);
  {  // somebody is at it
    const int fd = open(left.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    EXPECT_EQ(Pool::Create(path, kRegion).status().code(), Code::kBusy);
    close(fd);
  }
  EXPECT_TRUE(Pool::Create(path, kRegion).ok());
  EXPECT_EQ(Entries(), 1u);
}

// Killed at any point of the creation: the next one finds a pool, or nothing in its way.
TEST_F(PoolTest, KilledWhileCreating) {
  for (int round = 0; round < 12; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      Pool::Create(path, kRegion).status().IgnoreError();
      _exit(0);
    }
    // Somewhere in the middle, or before, or after: each outcome is checked.
    struct stat st;
    for (int look = 0; look < round * 300; ++look) stat((path + ".creating").c_str(), &st);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    auto pool = Pool::Open(path);
    if (!pool.ok()) {
      ASSERT_EQ(pool.status().code(), Code::kNotFound) << pool.status().ToString();
      pool = Pool::Create(path, kRegion);
    }
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    ASSERT_EQ((*pool)->region().size(), kRegion);
    pool->reset();
    fs::remove(path);
    fs::remove(path + ".creating");
  }
}

TEST_F(PoolTest, MediaIsDetectedAndOverridable) {
  EXPECT_EQ(Pool::Create(path, kRegion, {.media = "ram"}).value()->media().level(),
            rnic::Media::kRam);
  EXPECT_EQ(Pool::Open(path, {.media = "file"}).value()->media().level(), rnic::Media::kFile);
  const std::string shm = "/dev/shm/hyperloop-pool-test-" + std::to_string(getpid());
  auto pool = Pool::Create(shm, kRegion);
  fs::remove(shm);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  EXPECT_EQ((*pool)->media().level(), rnic::Media::kRam);
  EXPECT_EQ((*pool)->region_backing().fd, (*pool)->fd());
  for (const auto level : {rnic::Media::kRam, rnic::Media::kFile, rnic::Media::kPmem}) {
    EXPECT_EQ(ParseMedia(MediaName(level)).value(), level);
    EXPECT_FALSE(MediaPromise(level).empty());
    // Any alignment, in a mapping of a file.
    EXPECT_TRUE(MakeMediaWriter(level)->Persist((*pool)->region().data() + 4095, 2).ok());
  }
}

}  // namespace
}  // namespace hyperloop
