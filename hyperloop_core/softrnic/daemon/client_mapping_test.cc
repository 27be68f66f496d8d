// Tests on which file systems a client's memory may lie. The daemon's tests cover the other demands
// on its descriptors.
#include "softrnic/daemon/client_mapping.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/magic.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>

#include "hyperloop/core/unique_fd.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ClientMappingTest, MemoryThatAServerCanHoldUpIsRefusedWithTheWayOut) {
  const std::initializer_list<std::pair<int64_t, const char*>> types = {
      {FUSE_SUPER_MAGIC, "FUSE"}, {NFS_SUPER_MAGIC, "NFS"}, {CIFS_SUPER_MAGIC, "SMB"},
      {SMB2_SUPER_MAGIC, "SMB"},  {SMB_SUPER_MAGIC, "SMB"}, {CEPH_SUPER_MAGIC, "CephFS"},
      {V9FS_MAGIC, "9p"},         {AFS_SUPER_MAGIC, "AFS"}, {AFS_FS_MAGIC, "AFS"}};
  for (const auto& [type, name] : types) {
    const Status refused = CheckFileSystem(type);
    EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr(name), HasSubstr("tmpfs (/dev/shm)"), HasSubstr("local disk")));
  }
}

TEST(ClientMappingTest, MemoryOfExplicitHugePagesIsRefusedWithTheWayOut) {
  const Status refused = CheckFileSystem(HUGETLBFS_MAGIC);
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("hugetlbfs"), HasSubstr("ordinary file or memfd"),
                                       HasSubstr("transparent huge pages are fine")));
}

TEST(ClientMappingTest, MemoryOnUsualFileSystemsIsServed) {
  for (const int64_t type :
       std::initializer_list<int64_t>{TMPFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
                                      BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC})
    EXPECT_OK(CheckFileSystem(type)) << std::hex << type;
}

// Other clients' commands are answered between the pieces.
TEST(ClientMappingTest, MappingsAreUnmappedAPieceAtATime) {
  constexpr size_t kMiB = 1 << 20;
  const auto threads = std::make_shared<ClientThreads>(ClientThreads::Options{});
  threads->Start();
  UnmapQueue queue(threads);
  std::atomic<int> done{0};
  const auto unmapped = [&done](uint64_t client) {
    ClientThreads::Tasks task;
    task.push_back({client, [&done] { ++done; }});
    return task;
  };
  const UniqueFd file(memfd_create("memory", 0));
  ASSERT_TRUE(file);
  for (const size_t length : {130 * kMiB + 100, 4 * kMiB}) {
    void* const at =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    ASSERT_NE(at, MAP_FAILED);
    UnmapQueue::Ranges ranges;
    ranges.push_back({at, length, unmapped(1)});
    queue.Add(std::move(ranges));
  }
  for (const size_t left : {70 * kMiB + 100, 6 * kMiB + 100}) {
    EXPECT_TRUE(queue.DrainSome());
    EXPECT_EQ(queue.bytes(), left);
    EXPECT_EQ(done, 0) << "not before all of it is unmapped";
  }
  EXPECT_TRUE(queue.DrainSome());
  EXPECT_EQ(queue.bytes(), 4 * kMiB);
  EXPECT_TRUE(test::Eventually([&] { return done == 1; }));
  EXPECT_FALSE(queue.DrainSome());
  EXPECT_EQ(queue.bytes(), 0u);
  EXPECT_TRUE(test::Eventually([&] { return done == 2; }));
  EXPECT_FALSE(queue.DrainSome());
}

}  // namespace
}  // namespace hyperloop::softrnic
