// Tests on which file systems a client's memory may lie. The daemon's tests cover the other demands
// on its descriptors.
#include "softrnic/daemon/client_mapping.h"

#include <gmock/gmock.h>
#include <linux/magic.h>

#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ClientMappingTest, MemoryOnFuseIsRefusedWithTheWayOut) {
  const Status refused = CheckFileSystem(0x65735546);  // statfs(2): FUSE_SUPER_MAGIC
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("FUSE"), HasSubstr("tmpfs (/dev/shm)"), HasSubstr("local disk")));
}

TEST(ClientMappingTest, MemoryOfExplicitHugePagesIsRefusedWithTheWayOut) {
  const Status refused = CheckFileSystem(HUGETLBFS_MAGIC);
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("hugetlbfs"), HasSubstr("ordinary file or memfd"),
                                       HasSubstr("transparent huge pages are fine")));
}

TEST(ClientMappingTest, MemoryOnUsualFileSystemsIsServed) {
  for (const int64_t type : std::initializer_list<int64_t>{TMPFS_MAGIC, EXT4_SUPER_MAGIC,
                                                           XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC})
    EXPECT_OK(CheckFileSystem(type)) << std::hex << type;
}

}  // namespace
}  // namespace hyperloop::softrnic
