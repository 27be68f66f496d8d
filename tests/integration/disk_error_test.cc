// The disk of one replica's pool fails to write. Nothing that the replica may not have on its disk
// is acknowledged, also when the disk works again and the kernel has forgotten the error. Started
// again, the replica reads what its disk holds, and the primary sends it the rest once more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "integration/store_fixture.h"
#include "pool/pool.h"
#include "support/append_durably.h"
#include "support/failing_disk.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class DiskErrorOfAReplicaTest : public StoreTest {
 protected:
  void SetUp() override {
    if (!disk_.usable()) GTEST_SKIP() << "no loop device: this needs root";
    StoreTest::SetUp();
    const uint64_t size = cluster_.ReplicaRegion(1).value().size();
    cluster_.KillReplica(1);
    ASSERT_OK(Pool::Create(PoolOnDisk(), size).status());
    std::filesystem::remove(cluster_.pool(1));
    std::filesystem::create_symlink(PoolOnDisk(), cluster_.pool(1));
    ASSERT_OK(cluster_.Restart());
    ASSERT_EQ(cluster_.ReplicaStatus(1)->media, "file");
  }
  std::string PoolOnDisk() const { return disk_.path() + "/r1.pool"; }
  StoreOptions Impatient() const {
    StoreOptions options = Options();
    options.ack_timeout = std::chrono::seconds(2);
    return options;
  }

  // Appends more than the disk still takes. The kernel may have given blocks to bytes nearby.
  static Status AppendMuch(Store& store, FileId file) {
    Status status;
    for (int i = 0; i < 100 && status.ok(); ++i)
      status = AppendDurably(store, file, std::string(100'000, 'x'));
    return status;
  }

  FailingDisk disk_;
};

TEST_F(DiskErrorOfAReplicaTest, IsNotForgottenBeforeTheReplicaIsStartedAgain) {
  auto store = Taken(Impatient());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "before"));
  ASSERT_TRUE(disk_.Fail());
  const Status failed = AppendMuch(*store, *file);
  ASSERT_THAT(failed, StatusIs(Code::kUnavailable));
  EXPECT_THAT(failed.message(), HasSubstr(cluster_.pool(1)));
  EXPECT_THAT(failed.message(), HasSubstr("start the process that serves it again"));
  disk_.Work();
  ASSERT_THAT(AppendDurably(*store, *file, "not yet"), StatusIs(Code::kUnavailable));

  cluster_.KillReplica(1);
  ASSERT_OK(cluster_.Restart());
  // An attempt to bring the group back may be under way, which the old process has refused.
  ASSERT_TRUE(Eventually([&] { return AppendDurably(*store, *file, "after").ok(); }));
  const std::string content = Content(*store, "f");
  EXPECT_THAT(content, testing::StartsWith("before"));
  EXPECT_THAT(content, testing::EndsWith("after"));
  ASSERT_OK(store->Close());
  store.reset();

  const auto expected = cluster_.ReplicaRegion(0);
  ASSERT_OK(expected);
  cluster_.KillReplica(1);
  ASSERT_TRUE(Eventually([&] { return disk_.Remount(); }));
  const auto kept = Pool::Open(PoolOnDisk());
  ASSERT_OK(kept);
  EXPECT_EQ(cluster_.FirstDifferenceInUse(*expected, (*kept)->region()), std::nullopt);
}

TEST_F(DiskErrorOfAReplicaTest, TheGroupGoesOnWithoutItWhereItMay) {
  StoreOptions options = Impatient();
  options.on_replica_failure = OnReplicaFailure::kContinue;
  auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_TRUE(disk_.Fail());
  ASSERT_OK(AppendMuch(*store, *file));
  disk_.Work();
  EXPECT_EQ(cluster_.ReplicaStatus(0)->absent.size(), 1U);
  cluster_.KillReplica(1);
  ASSERT_OK(cluster_.Restart());
  ASSERT_TRUE(Eventually([&] {
    EXPECT_OK(AppendDurably(*store, *file, "y"));
    return cluster_.ReplicaStatus(0)->absent.empty();
  }));
  ASSERT_OK(store->Close());
  store.reset();
  ExpectEqualRegions();
}

// The primary's own pool. Its database is opened again instead.
TEST_F(DiskErrorOfAReplicaTest, OfThePrimarysOwnPoolIsNotForgottenBeforeItIsOpenedAgain) {
  StoreOptions options = Impatient();
  options.pool = disk_.path() + "/own.pool";
  auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_TRUE(disk_.Fail());
  const Status failed = AppendMuch(*store, *file);
  ASSERT_THAT(failed, StatusIs(Code::kUnavailable));
  EXPECT_THAT(failed.message(), HasSubstr(options.pool));
  disk_.Work();
  ASSERT_THAT(AppendDurably(*store, *file, "not yet"), StatusIs(Code::kUnavailable));
  store.reset();
  store = Taken(options);
  ASSERT_NE(store, nullptr);
  ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "after"));
  ASSERT_OK(store->Close());
}

}  // namespace
}  // namespace hyperloop::test
