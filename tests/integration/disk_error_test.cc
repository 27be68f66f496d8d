// The disk of one replica's pool fails to write. Nothing that the replica may not have on its disk
// is acknowledged, also when the disk works again and the kernel has forgotten the error. Started
// again, the replica reads what its disk holds, and the primary sends it the rest once more.
#include <filesystem>

#include "integration/session_fixture.h"
#include "region/pool.h"
#include "support/failing_disk.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class DiskErrorOfAReplicaTest : public SessionFixture {
 protected:
  void SetUp() override {
    if (!disk_.usable()) GTEST_SKIP() << "no loop device: this needs root";
    Stop(1);
    ASSERT_OK(Pool::Create(PoolOnDisk(), kRegion).status());
    std::filesystem::remove(PoolOf1());
    std::filesystem::create_symlink(PoolOnDisk(), PoolOf1());
    StartAgain(1);
    ASSERT_EQ(StatusOf(1).media, "file");
  }
  // Replica 1 must not have the disk in use when that goes.
  void TearDown() override { replicas_.clear(); }

  std::string PoolOnDisk() const { return disk_.path() + "/r1.pool"; }
  std::string PoolOf1() const { return folder_ + "/r1"; }
  StoreOptions Impatient() const {
    StoreOptions options = Options();
    options.ack_timeout = std::chrono::seconds(4);
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
  auto store = Serving(Impatient());
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(disk_.Fail());
  const Status failed = AppendMuch(*store, file_);
  ASSERT_THAT(failed, StatusIs(Code::kUnavailable));
  EXPECT_THAT(failed.message(), HasSubstr(PoolOf1()));
  EXPECT_THAT(failed.message(),
              HasSubstr("start the process that serves the pool, or open the database, again"));
  disk_.Work();
  ASSERT_THAT(AppendDurably(*store, file_, "not yet"), StatusIs(Code::kUnavailable));

  Stop(1);
  StartAgain(1);
  // An attempt to bring the group back may be under way, which the old process has refused.
  ASSERT_TRUE(Insist(*store, "after"));
  std::string content(12 << 20, '\0');
  const auto got = store->Read(file_, 0, content);
  ASSERT_OK(got);
  content.resize(*got);
  EXPECT_TRUE(content.starts_with("one"));
  EXPECT_TRUE(content.ends_with("after"));
  ASSERT_OK(store->Close());
  store.reset();
  ExpectEqualRegions();

  Stop(1);
  ASSERT_TRUE(Eventually([&] { return disk_.Remount(); }));
  const auto kept = Pool::Open(PoolOnDisk());
  ASSERT_OK(kept);
  const auto expected = replicas_[0]->region();
  EXPECT_EQ(FirstDifference(expected, (*kept)->region(), RangesInUse(expected)), std::nullopt);
}

TEST_F(DiskErrorOfAReplicaTest, TheGroupGoesOnWithoutItWhereItMay) {
  without_some_ = true;
  auto store = Serving(Impatient());
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(disk_.Fail());
  for (int i = 0; i < 100 && StatusOf(0).absent.empty(); ++i)
    ASSERT_TRUE(Insist(*store, std::string(100'000, 'x')));
  disk_.Work();
  EXPECT_EQ(StatusOf(0).absent.size(), 1U);
  Stop(1);
  StartAgain(1);
  ASSERT_TRUE(Eventually(
      [&] { return AppendDurably(*store, file_, "y").ok() && StatusOf(0).absent.empty(); }));
  ASSERT_OK(store->Close());
  store.reset();
  ExpectEqualRegions();
}

// The primary's own pool. Its database is opened again instead.
TEST_F(DiskErrorOfAReplicaTest, OfThePrimarysOwnPoolIsNotForgottenBeforeItIsOpenedAgain) {
  StoreOptions options = Impatient();
  options.pool = disk_.path() + "/own.pool";
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(disk_.Fail());
  const Status failed = AppendMuch(*store, file_);
  ASSERT_THAT(failed, StatusIs(Code::kUnavailable));
  EXPECT_THAT(failed.message(), HasSubstr(options.pool));
  disk_.Work();
  ASSERT_THAT(AppendDurably(*store, file_, "not yet"), StatusIs(Code::kUnavailable));
  store.reset();
  store = Taken(options);
  ASSERT_NE(store, nullptr);
  ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "after"));
  ASSERT_OK(store->Close());
}

}  // namespace
}  // namespace hyperloop::test
