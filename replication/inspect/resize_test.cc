#include "inspect/resize.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "log/redo.h"
#include "region/pool.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;
using Mode = MemoryGroup::Mode;

RegionGeometry Larger(const RegionGeometry& now, uint32_t table_capacity = 0) {
  return PlanResize(now, {now.region_size + (1 << 20), 64 << 10, table_capacity}).value();
}

class ResizeTest : public testing::Test {
 protected:
  ResizeTest() {
    for (int i = 0; i < 120; ++i) bench.RandomCall();
    EXPECT_OK(bench.lane->Create("000007.log"));
    EXPECT_OK(bench.lane->Append(bench.lane->Lookup("000007.log").value(), "seven"));
    EXPECT_OK(bench.lane->Drain());
    bench.Reload();
    EXPECT_OK(bench.lane->Drain());
    const std::vector<FileInfo> listed = bench.lane->Files().value();
    for (const FileInfo& file : listed) {
      std::string text(file.size, ' ');
      if (file.lane == Lane::kLog) {
        EXPECT_OK(bench.lane->Read(file.id, 0, text));
      }
      files[file.name] = file.lane == Lane::kLog ? text : "local";
    }
    old = bench.region.bytes;
    log = Redo(old, bench.region.info).value();
  }
  Result<std::vector<std::byte>> Resize(const RegionGeometry& to) const {
    std::vector<std::byte> resized(to.region_size);
    HL_RETURN_IF_ERROR(ResizeRegion(old, bench.region.info, log, to, resized));
    return resized;
  }
  void ExpectFiles(std::span<const std::byte> image) const {
    const RegionInfo info = ParseSuperblock(image, image.size()).value();
    const auto table = FileTable::Load(image, info);
    ASSERT_OK(table);
    EXPECT_EQ(table->List().size(), files.size());
    for (const FileInfo& file : table->List()) {
      std::string text(file.size, ' ');
      if (file.lane == Lane::kLog) table->ReadBytes(image, info, SlotOf(file.id), 0, text);
      EXPECT_TRUE((file.lane == Lane::kLog ? text : "local") == files.at(file.name)) << file.name;
    }
  }

  LaneBench bench{Mode::kImmediate, 5};
  std::map<std::string, std::string> files;
  std::vector<std::byte> old;
  LogState log;
};

TEST_F(ResizeTest, FilesStayAndThereIsMoreRoom) {
  const RegionGeometry before = bench.region.info.geometry;
  for (const uint32_t capacity : {0u, 100u}) {
    const RegionGeometry to = Larger(before, capacity);
    EXPECT_GT(to.extent_count, before.extent_count + 200);
    const auto resized = Resize(to);
    ASSERT_OK(resized);
    ExpectFiles(*resized);
    const RegionInfo info = ParseSuperblock(*resized, resized->size()).value();
    EXPECT_EQ(info.group, bench.region.info.group);
    EXPECT_EQ(info.seed, bench.region.info.seed);
    EXPECT_EQ(ScanLog(*resized, info)->tail, log.tail);
  }
}

// Each member is resized by itself; equal members give equal results.
TEST_F(ResizeTest, EqualMembersStayEqual) {
  const RegionGeometry to = Larger(bench.region.info.geometry);
  const auto first = Resize(to), second = Resize(to);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_TRUE(*first == *second);
}

// The lane goes on in the larger region after the old one was full.
TEST_F(ResizeTest, WritingGoesOn) {
  const RegionGeometry to = Larger(bench.region.info.geometry);
  auto resized = Resize(to);
  ASSERT_OK(resized);
  const RegionInfo info = ParseSuperblock(*resized, resized->size()).value();
  MemoryGroup group(*resized, 2, Mode::kImmediate, 1, 8);
  LaneModel model(&group, *resized, info, 1, 8, nullptr);
  const FileId file = model.lane->Create("000100.log").value();
  const std::string text(100 * 4096, 'x');
  ASSERT_OK(model.lane->Append(file, text));
  std::string back(text.size(), ' ');
  EXPECT_EQ(model.lane->Read(file, 0, back).value(), text.size());
  EXPECT_TRUE(back == text);
}

TEST_F(ResizeTest, RefusesToShrinkOrToLoseExtents) {
  const RegionGeometry& now = bench.region.info.geometry;
  for (const ResizeTarget& target :
       {ResizeTarget{now.region_size - 4096, 0, 0}, ResizeTarget{0, now.journal_size - 4096, 0},
        ResizeTarget{0, 0, now.table_capacity - 1}, ResizeTarget{0, 0, now.table_capacity * 100},
        ResizeTarget{now.region_size + 4096, 0, now.table_capacity * 100},
        ResizeTarget{16ull << 30, 0, 0}}) {
    EXPECT_THAT(PlanResize(now, target), StatusIs(Code::kInvalidArgument));
  }
  EXPECT_EQ(PlanResize(now, {}).value(), now);
  // The sizes that the refusal names are accepted.
  const ResizeTarget table{0, 0, now.table_capacity * 10};
  const std::string message = PlanResize(now, table).status().message();
  const size_t at = message.find("a region_size of ");
  ASSERT_NE(at, std::string::npos) << message;
  const uint64_t enough = std::stoull(message.substr(at + 17));
  const auto plan = PlanResize(now, {enough, 0, table.table_capacity});
  EXPECT_OK(plan);
}

class ResizePoolTest : public ResizeTest {
 protected:
  ResizePoolTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-resize-XXXXXX";
    base = mkdtemp(pattern.data());
    path = base + "/a.pool";
    target = {old.size() + (1 << 20), 64 << 10, 0};
    MakePool(true);
  }
  ~ResizePoolTest() override { fs::remove_all(base); }

  void MakePool(bool released) {
    fs::remove(path);
    auto pool = Pool::Create(path, old.size()).value();
    std::ranges::copy(old, pool->region().begin());
    NodeState state;
    state.node = {7};
    state.group = bench.region.info.group;
    state.sealed_epoch = 3;
    state.released = released;
    ASSERT_OK(WriteNodeState(pool->node_page(), &state));
    pool->media().Persist(pool->region().data(), pool->region().size()).IgnoreError();
    pool->media().Persist(pool->node_page().data(), pool->node_page().size()).IgnoreError();
  }
  void ExpectPool(const std::string& file, uint64_t region_size) const {
    const auto pool = Pool::OpenCopyOnWrite(file);
    ASSERT_OK(pool);
    EXPECT_EQ((*pool)->region().size(), region_size);
    ExpectFiles((*pool)->region());
    EXPECT_EQ(ReadNodeState((*pool)->node_page())->sealed_epoch, 3u);
  }

  std::string base, path;
  ResizeTarget target;
};

TEST_F(ResizePoolTest, TheOldPoolIsSetAside) {
  const auto report = ResizePool(path, target);
  ASSERT_OK(report);
  EXPECT_TRUE(report->changed);
  ExpectPool(path, target.region_size);
  ExpectPool(report->set_aside, old.size());
  EXPECT_FALSE(fs::exists(path + ".resizing"));
  const auto again = ResizePool(path, target);
  ASSERT_OK(again);
  EXPECT_FALSE(again->changed);
  EXPECT_EQ(LookAtPool(path)->tail, log.tail);
}

TEST_F(ResizePoolTest, RefusesWhatIsNotAtRestOrDamaged) {
  {
    auto pool = Pool::Open(path).value();
    EXPECT_THAT(ResizePool(path, target), StatusIs(Code::kBusy));
  }
  MakePool(false);
  const Status running = ResizePool(path, target).status();
  EXPECT_THAT(running, StatusIs(Code::kAborted, HasSubstr("open and close the database once")));
  EXPECT_EQ(std::distance(fs::directory_iterator(base), fs::directory_iterator()), 1);
}

TEST_F(ResizePoolTest, RefusesADamagedRegion) {
  const auto report = ResizePool(path, target);  // its log is empty, and mends nothing
  ASSERT_OK(report);
  {
    auto pool = Pool::Open(path).value();
    const auto table = FileTable::Load(old, bench.region.info).value();
    const uint32_t slot = SlotOf(bench.lane->Lookup("000007.log").value());
    const uint64_t at = report->geometry.ExtentOffset(table.slots[slot].extents[0]);
    pool->region()[at + 2] ^= std::byte{1};
    ASSERT_OK(pool->media().Persist(&pool->region()[at], 8));
  }
  target.region_size += 1 << 20;
  EXPECT_THAT(ResizePool(path, target), StatusIs(Code::kCorruption, HasSubstr("000007.log")));
  EXPECT_FALSE(fs::exists(path + ".resizing"));
}

// Interrupted right before the last rename: the next call takes the same name for the old pool.
TEST_F(ResizePoolTest, GoesOnAfterAnInterruption) {
  const std::string aside = path + ".before-resize-" + std::to_string(old.size());
  std::ofstream(path + ".resizing") << "half a pool";
  fs::create_hard_link(path, aside);
  const auto report = ResizePool(path, target);
  ASSERT_OK(report);
  EXPECT_EQ(report->set_aside, aside);
  ExpectPool(path, target.region_size);
  ExpectPool(aside, old.size());
}

// Killed at any point, the pool is the old one or the new one, whole, and the next call ends it.
TEST_F(ResizePoolTest, KilledAtAnyPoint) {
  int replaced = 0, looks = 0;
  for (int round = 0; round < 15; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      ResizePool(path, target).status().IgnoreError();
      _exit(0);
    }
    // The kill comes before, during or after the call; each outcome is checked.
    for (int look = 0; look < round * 4000; ++look) looks += fs::exists(path + ".resizing") ? 1 : 0;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    const uint64_t size = Pool::OpenCopyOnWrite(path).value()->region().size();
    ASSERT_TRUE(size == old.size() || size == target.region_size) << size;
    replaced += size == target.region_size ? 1 : 0;
    ExpectPool(path, size);
    const auto report = ResizePool(path, target);
    ASSERT_OK(report);
    ExpectPool(path, target.region_size);
    for (const auto& entry : fs::directory_iterator(base)) fs::remove(entry);
    MakePool(true);
  }
  RecordProperty("replaced", replaced);
  RecordProperty("looks_at_an_unfinished_pool", looks);
}

}  // namespace
}  // namespace hyperloop
