#include "log/log_lane.h"

#include <map>
#include <string>
#include <thread>

#include "common/random_uuid.h"
#include "gtest/gtest.h"
#include "log/redo.h"
#include "support/append_durably.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

using Mode = MemoryGroup::Mode;
using testing::HasSubstr;
using testing::Not;

TEST(LogLane, FilesReadBackAndAreReplicated) {
  LaneBench bench(Mode::kRandom);
  const FileId log = bench.lane->Create("000004.log").value();
  std::string text;
  for (int i = 0; i < 200; ++i) {
    const std::string part = bench.RandomText(200);
    ASSERT_OK(bench.lane->Append(log, part));
    text += part;
  }
  ASSERT_OK(bench.lane->Append(log, ""));
  EXPECT_EQ(bench.ReadAll("000004.log"), text);
  EXPECT_EQ(bench.lane->Lookup("000004.log").value(), log);
  EXPECT_THAT(bench.lane->Lookup("other"), StatusIs(Code::kNotFound));
  char c;
  EXPECT_EQ(bench.lane->Read(log, text.size(), {&c, 1}).value(), 0u);
  EXPECT_EQ(bench.lane->Read(log, text.size() - 1, {&c, 1}).value(), 1u);
  ASSERT_OK(bench.lane->Checkpoint());
  bench.group.StepAll();
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(bench.group.image(i) == bench.region.bytes);
  EXPECT_EQ(bench.group.conflicts(), 0u);
}

TEST(LogLane, NamespaceCalls) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId temp = lane.Create("000001.dbtmp").value();
  ASSERT_OK(lane.Append(temp, "MANIFEST-000005\n"));
  ASSERT_OK(lane.Rename("000001.dbtmp", "CURRENT"));
  const FileId next = lane.Create("000002.dbtmp").value();
  ASSERT_OK(lane.Append(next, "MANIFEST-000009\n"));
  ASSERT_OK(lane.Rename("000002.dbtmp", "CURRENT"));  // replaces
  EXPECT_EQ(bench.ReadAll("CURRENT"), "MANIFEST-000009\n");
  EXPECT_THAT(lane.Append(temp, "x"), StatusIs(Code::kNotFound)) << "an id of a replaced file";
  EXPECT_EQ(lane.Lookup("CURRENT").value(), next);
  ASSERT_OK(lane.Truncate(next, 8));
  EXPECT_EQ(bench.ReadAll("CURRENT"), "MANIFEST");
  EXPECT_THAT(lane.Truncate(next, 9), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(lane.Append(next, "!"));
  EXPECT_EQ(bench.ReadAll("CURRENT"), "MANIFEST!");
  const FileId again = lane.Create("CURRENT").value();  // replaces by an empty one
  EXPECT_NE(again, next);
  EXPECT_EQ(bench.ReadAll("CURRENT"), "");
  EXPECT_THAT(lane.Remove("none"), StatusIs(Code::kNotFound));
  EXPECT_THAT(lane.Rename("none", "x"), StatusIs(Code::kNotFound));
  EXPECT_THAT(lane.Rename("CURRENT", "../x"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(lane.Create("/abs"), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(lane.Rename("CURRENT", "CURRENT"));
  ASSERT_OK(lane.Remove("CURRENT"));
  EXPECT_TRUE(lane.Files()->empty());
  EXPECT_EQ(lane.statistics().data_bytes_used, 0u);
}

TEST(LogLane, CountersAreReadWithoutItsMutex) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const LaneCounters& counters = lane.counters();
  const auto get = [](const LaneCounters::Number& number) { return LaneCounters::Get(number); };
  EXPECT_GT(get(counters.ring), 0u);
  EXPECT_GT(get(counters.data), get(counters.data_reserved));
  const FileId log = lane.Create("000001.log").value();
  for (uint64_t i = 0; i < 2 * LaneCounters::kTimed; ++i) {
    const Result<AppendTicket> ticket = lane.Append(log, "0123456789");
    ASSERT_OK(ticket);
    EXPECT_EQ(ticket->begun_ns != 0, i % LaneCounters::kTimed == 0) << i;
    ASSERT_OK(lane.Await(*ticket));
  }
  ASSERT_OK(lane.Sync());
  EXPECT_EQ(get(counters.appends), 2 * LaneCounters::kTimed);
  EXPECT_EQ(get(counters.append_bytes), 20 * LaneCounters::kTimed);
  EXPECT_EQ(get(counters.syncs), 1u);
  EXPECT_GT(get(counters.ring_used), 0u);
  EXPECT_EQ(get(counters.last_seq), lane.statistics().last_seq);
  uint64_t timed = 0;
  for (const uint64_t count : counters.acknowledgements.Read().buckets) timed += count;
  EXPECT_EQ(timed, 3u) << "two appends and the first sync";
  ASSERT_OK(lane.Tick());
  EXPECT_EQ(get(counters.acked_seq), lane.statistics().acked_seq);
  EXPECT_EQ(get(counters.data_used), lane.statistics().data_bytes_used);
}

TEST(LogLane, AppendsOnlyWhereItsWriterTakesTheEndToBe) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId log = lane.Create("000001.log").value();
  ASSERT_OK(lane.Append(log, "first", 0));
  for (const uint64_t end : {uint64_t{0}, uint64_t{4}, uint64_t{6}}) {
    EXPECT_THAT(lane.Append(log, "x", end), StatusIs(Code::kInvalidArgument));
  }
  ASSERT_OK(lane.Append(log, " second", 5));
  EXPECT_EQ(bench.ReadAll("000001.log"), "first second");
}

TEST(LogLane, LocalFilesAreOnlyListed) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  ASSERT_OK(lane.ListFile({"000007.sst", 100, 1}));
  ASSERT_OK(lane.ListFile({"000007.sst", 5ull << 40, 1}));
  EXPECT_EQ(lane.Files().value()[0].size, 5ull << 40);
  const FileId id = lane.Lookup("000007.sst").value();
  char c;
  EXPECT_THAT(lane.Append(id, "x"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(lane.Truncate(id, 0), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(lane.Read(id, 0, {&c, 1}), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(lane.Create("a.log"));
  EXPECT_THAT(lane.ListFile({"a.log", 1, 1}), StatusIs(Code::kInvalidArgument));
  bench.Reload();
  EXPECT_EQ(bench.lane->Files().value()[0].size, 5ull << 40);
  EXPECT_EQ(bench.lane->Files().value()[0].lane, Lane::kBulk);
}

// One record moves a file to the bulk lane. The file keeps its id, and its extents are free.
TEST(LogLane, AFinishedFileLeavesTheRegion) {
  LaneBench bench(Mode::kRandom);
  LogLane& lane = *bench.lane;
  const FileId log = lane.Create("000004.log").value();
  const FileId next = lane.Create("000007.log").value();
  const std::string text = bench.RandomText(5000) + std::string(9000, 'x');
  ASSERT_OK(lane.Append(log, text));
  ASSERT_OK(lane.Append(next, "next"));
  const uint64_t used = lane.statistics().data_bytes_used;
  const WholeFile whole = lane.Describe(log).value();
  EXPECT_EQ(whole, (WholeFile{"000004.log", text.size(), LaneModel::ChecksumOf(text)}));
  const uint64_t before = lane.statistics().last_seq;
  ASSERT_OK(lane.Retire(log, whole));
  EXPECT_EQ(lane.statistics().last_seq, before + 1);
  EXPECT_EQ(lane.statistics().acked_seq, before + 1) << "durable on every replica on return";
  EXPECT_EQ(lane.statistics().data_bytes_used, 4096u);
  EXPECT_GT(used, 4096u);
  EXPECT_OK(lane.Retire(log, whole)) << "a call that is repeated";
  EXPECT_EQ(lane.Lookup("000004.log").value(), log);
  EXPECT_THAT(lane.Append(log, "x"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(lane.Truncate(log, 0), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(lane.Truncate(log, text.size())) << "there is nothing to cut";
  char c;
  EXPECT_THAT(lane.Read(log, 0, {&c, 1}), StatusIs(Code::kInvalidArgument));
  bench.Reload();
  const FileInfo file = bench.lane->Files().value()[0];
  EXPECT_EQ(file.name, "000004.log");
  EXPECT_EQ(file.lane, Lane::kBulk);
  EXPECT_EQ(file.size, text.size());
  EXPECT_EQ(file.checksum, whole.checksum);
  EXPECT_EQ(bench.lane->statistics().data_bytes_used, 4096u);
  EXPECT_EQ(bench.ReadAll("000007.log"), "next");
  ASSERT_OK(bench.lane->Rename("000004.log", "archive/000004.log"));
  EXPECT_EQ(bench.lane->Files().value()[1].lane, Lane::kBulk);
  ASSERT_OK(bench.lane->Remove("archive/000004.log"));
}

TEST(LogLane, AFileThatChangedMeanwhileStaysInTheRegion) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId log = lane.Create("000004.log").value();
  ASSERT_OK(lane.Append(log, "0123456789"));
  const WholeFile whole = lane.Describe(log).value();
  EXPECT_THAT(lane.Retire(log, {whole.name, whole.size, 0}), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(lane.Append(log, "x"));
  EXPECT_THAT(lane.Retire(log, whole), StatusIs(Code::kAborted));
  ASSERT_OK(lane.Truncate(log, 5));
  EXPECT_THAT(lane.Retire(log, whole), StatusIs(Code::kAborted));
  ASSERT_OK(lane.Append(log, "56789"));
  ASSERT_OK(lane.Rename("000004.log", "archive/000004.log"));
  EXPECT_THAT(lane.Retire(log, whole), StatusIs(Code::kAborted));
  const FileId replacing = lane.Create("archive/000004.log").value();
  EXPECT_THAT(lane.Retire(log, whole), StatusIs(Code::kNotFound));
  EXPECT_THAT(lane.Describe(log), StatusIs(Code::kNotFound));
  EXPECT_EQ(lane.Files().value()[0].lane, Lane::kLog);
  EXPECT_EQ(lane.Lookup("archive/000004.log").value(), replacing);
}

TEST(LogLane, DamagedBytesDoNotLeaveTheRegion) {
  LaneBench bench(Mode::kImmediate);
  const FileId log = bench.lane->Create("000004.log").value();
  ASSERT_OK(bench.lane->Append(log, std::string(6000, 'x')));
  ASSERT_OK(bench.lane->Checkpoint());
  const RegionGeometry& g = bench.region.info.geometry;
  const FileTable table = FileTable::Load(bench.region.bytes, bench.region.info).value();
  bench.region.bytes[g.ExtentOffset(table.slots[SlotOf(log)].extents[1]) + 100] ^= std::byte{1};
  EXPECT_THAT(bench.lane->Describe(log), StatusIs(Code::kCorruption, HasSubstr("000004.log")));
}

// A rolled MANIFEST that stays in the table, because deletions are held off, does not let the newer
// one take the room of its successor.
TEST(LogLane, AManifestThatLeftTheRegionNeedsNoRoom) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId old = lane.Create("MANIFEST-000001").value();
  ASSERT_OK(lane.Append(old, "old"));
  ASSERT_OK(lane.Retire(old, lane.Describe(old).value()));
  for (const bool reloaded : {false, true}) {
    const std::string name = reloaded ? "MANIFEST-000009" : "MANIFEST-000005";
    const FileId manifest = bench.lane->Create(name).value();
    while (bench.lane->Append(manifest, std::string(1000, 'm')).ok()) {
    }
    const FileId successor = bench.lane->Create("MANIFEST-000010").value();
    EXPECT_OK(bench.lane->Append(successor, std::string(4000, 'n')));
    ASSERT_OK(bench.lane->Remove("MANIFEST-000010"));
    ASSERT_OK(bench.lane->Remove(name));
    bench.Reload();
  }
}

TEST(LogLane, BindingIsReplicated) {
  LaneBench bench(Mode::kImmediate);
  EXPECT_EQ(bench.lane->binding().database, kNilUuid);
  const Uuid database = RandomUuid();
  ASSERT_OK(bench.lane->Bind({database, "/var/db"}));
  ASSERT_OK(bench.lane->Drain());
  bench.Reload();
  EXPECT_EQ(bench.lane->binding().database, database);
  EXPECT_EQ(bench.lane->binding().directory, "/var/db");
}

TEST(LogLane, FullDataAreaKeepsRoomForTheManifest) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId manifest = lane.Create("MANIFEST-000005").value();
  ASSERT_OK(lane.Append(manifest, "m"));
  const FileId log = lane.Create("000004.log").value();
  Status status;
  std::string text;
  while (status.ok()) {
    const std::string part = bench.RandomText(1000);
    status = lane.Append(log, part).status();
    if (status.ok()) text += part;
  }
  EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("hyperloopctl resize")));
  EXPECT_THAT(status.message(), HasSubstr("waited for space_timeout = "));
  EXPECT_GT(bench.idles, 0) << "it waited for space";
  EXPECT_EQ(bench.ReadAll("000004.log"), text) << "what was refused left no trace";
  // The MANIFEST append that lets RocksDB drop the log is always possible, and so is its successor.
  ASSERT_OK(lane.Append(manifest, std::string(4096, 'm')));
  const FileId successor = lane.Create("MANIFEST-000006").value();
  ASSERT_OK(lane.Append(successor, std::string(4096, 'n')));
  ASSERT_OK(lane.Remove("000004.log"));
  const FileId next = lane.Create("000008.log").value();
  ASSERT_OK(lane.Append(next, std::string(5000, 'x')));
  // An append that can never fit is refused at once.
  bench.idles = 0;
  EXPECT_THAT(lane.Append(next, std::string(100 * 4096, 'x')),
              StatusIs(Code::kNoSpace, Not(HasSubstr("space_timeout"))));
  EXPECT_EQ(bench.idles, 0);
}

// What RoomOf says fits, and no extent more.
TEST(LogLane, AnEmptyGroupTakesWhatItsRoomSays) {
  for (const uint64_t manifests : {uint64_t{1}, uint64_t{3}}) {
    for (const bool more : {false, true}) {
      SCOPED_TRACE(std::to_string(manifests) + (more ? " and one more" : ""));
      LaneBench bench(Mode::kImmediate);
      const GroupRoom room = RoomOf(bench.region.info.geometry);
      const uint64_t extents = std::min(room.log_bytes / room.extent_bytes,
                                        room.log_lane_bytes / room.extent_bytes - manifests);
      const FileId manifest = bench.lane->Create("MANIFEST-000005").value();
      ASSERT_OK(bench.lane->Append(manifest, std::string(manifests * room.extent_bytes, 'm')));
      const FileId log = bench.lane->Create("000004.log").value();
      Status status;
      for (uint64_t i = 0; i < extents + (more ? 1 : 0); ++i)
        status = bench.lane->Append(log, std::string(room.extent_bytes, 'x')).status();
      EXPECT_EQ(status.code(), more ? Code::kNoSpace : Code::kOk) << status.message();
    }
  }
}

TEST(LogLane, AnAppendCutInTheMiddleSaysSo) {
  LaneBench bench(Mode::kManual, 1, 1, 100000);
  bench.group.set_mode(Mode::kImmediate);
  const FileId log = bench.lane->Create("1.log").value();
  bench.group.set_mode(Mode::kManual);  // the ring fills up
  const Status status = bench.lane->Append(log, std::string(7 * 4096, 'x')).status();
  EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("only the first 7328 of 28672 B")));
  EXPECT_THAT(bench.lane->Append(log, std::string(3664, 'y')), StatusIs(Code::kNoSpace));
  bench.group.set_mode(Mode::kImmediate);
  EXPECT_TRUE(bench.ReadAll("1.log") == std::string(7328, 'x'));
}

TEST(LogLane, AppendPutsAllOnItsWayAndAwaitWaits) {
  LaneBench bench(Mode::kImmediate);
  const FileId log = bench.lane->Create("1.log").value();
  const uint64_t before = bench.lane->statistics().last_seq;
  int waits = 0;
  const std::function<void()> count = [&] { ++waits; };
  bench.group.on_wait = count;
  const auto ticket = bench.lane->Append(log, "a");
  ASSERT_OK(ticket);
  EXPECT_EQ(bench.lane->statistics().last_seq, before + 1);
  EXPECT_EQ(waits, 0);
  ASSERT_OK(bench.lane->Await(*ticket));
  EXPECT_EQ(waits, 1);
  bench.group.on_wait = count;
  ASSERT_OK(bench.lane->Await(*ticket));
  EXPECT_EQ(waits, 1) << "it is known to be durable";
}

// The thread that moves the heartbeat calls Tick, so Tick must not block while an append waits for
// a replica.
TEST(LogLane, TickNeverWaitsForAnotherCall) {
  LaneBench bench(Mode::kImmediate);
  const FileId log = bench.lane->Create("1.log").value();
  ASSERT_OK(AppendDurably(*bench.lane, log, "a"));
  const auto idle = bench.lane->Tick();
  ASSERT_OK(idle);
  EXPECT_TRUE(idle->has_value());
  bool ticked = false;
  bench.group.on_wait = [&] {  // Await has the lane's mutex
    std::thread([&] {
      const auto busy = bench.lane->Tick();
      ticked = busy.ok() && !busy->has_value();
    }).join();
  };
  ASSERT_OK(AppendDurably(*bench.lane, log, "b"));
  EXPECT_TRUE(ticked);
}

// Other threads may append to the file while this append waits; it then needs more space than
// before.
TEST(LogLane, WaitingForSpaceCountsAnew) {
  LaneBench bench(Mode::kImmediate);
  const FileId first = bench.lane->Create("1.log").value();
  const FileId second = bench.lane->Create("2.log").value();
  const FileId third = bench.lane->Create("3.log").value();
  ASSERT_OK(bench.lane->Append(first, std::string(4096, '1')));
  ASSERT_OK(bench.lane->Append(second, std::string(10, '2')));
  while (bench.lane->Append(third, std::string(4096, '3')).ok()) {
  }
  bench.on_idle = [&] {
    ASSERT_OK(bench.lane->Remove("1.log"));                         // room for one extent
    ASSERT_OK(bench.lane->Append(second, std::string(3490, 'x')));  // now two are needed
  };
  EXPECT_THAT(bench.lane->Append(second, std::string(5000, 'y')), StatusIs(Code::kNoSpace));
  EXPECT_TRUE(bench.ReadAll("2.log") == std::string(10, '2') + std::string(3490, 'x'));
}

TEST(LogLane, WaitingForSpaceEndsWhenSomeoneRemoves) {
  LaneBench bench(Mode::kImmediate);
  const FileId first = bench.lane->Create("1.log").value();
  ASSERT_OK(bench.lane->Append(first, std::string(10 * 4096, '1')));
  const FileId second = bench.lane->Create("2.log").value();
  bench.on_idle = [&] { ASSERT_OK(bench.lane->Remove("1.log")); };
  EXPECT_OK(bench.lane->Append(second, std::string(8 * 4096, '2')));
  EXPECT_EQ(bench.idles, 1);
  EXPECT_EQ(bench.ReadAll("2.log"), std::string(8 * 4096, '2'));
  // The file itself may be removed while its writer waits.
  bench.on_idle = [&] { ASSERT_OK(bench.lane->Remove("2.log")); };
  EXPECT_THAT(bench.lane->Append(second, std::string(8 * 4096, '2')), StatusIs(Code::kNotFound));
}

TEST(LogLane, NothingIsAppendedToAFileThatLeftTheRegionWhileItsWriterWaited) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId log = lane.Create("1.log").value();
  ASSERT_OK(lane.Append(log, std::string(10 * 4096, '1')));
  const uint64_t free = lane.statistics().data_bytes - lane.statistics().data_bytes_used;
  bench.on_idle = [&] { ASSERT_OK(lane.Retire(log, lane.Describe(log).value())); };
  EXPECT_THAT(lane.Append(log, std::string(free - 4096, 'x')), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(lane.statistics().data_bytes_used, 0u);
  bench.Reload();
  EXPECT_EQ(bench.lane->Files().value()[0].size, 10u * 4096);
}

TEST(LogLane, AppendsGoOnWhileAFileIsDescribed) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId log = lane.Create("1.log").value(), next = lane.Create("2.log").value();
  ASSERT_OK(lane.Append(log, std::string(2 * 4096, '1')));
  ASSERT_OK(lane.Append(next, "b"));
  bool appended = false;
  bench.on_idle = [&] { appended = lane.Append(next, "etween").ok(); };
  EXPECT_EQ(lane.Describe(log).value().size, 2u * 4096);
  EXPECT_TRUE(appended);
  EXPECT_EQ(bench.ReadAll("2.log"), "between");
}

TEST(LogLane, FullTable) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  Status status;
  int files = 0;
  for (; status.ok(); ++files) status = lane.ListFile({std::to_string(files) + ".sst", 1, 1});
  EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("table_capacity")));
  EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("waited for space_timeout = ")));
  EXPECT_OK(lane.Create("MANIFEST-000005"));
  EXPECT_OK(lane.Create("000001.dbtmp"));
  EXPECT_OK(lane.ListFile({"0.sst", 2, 1})) << "an update needs no slot";
  ASSERT_OK(lane.Remove("0.sst"));
  ASSERT_OK(lane.Remove("1.sst"));
  ASSERT_OK(lane.Remove("2.sst"));
  EXPECT_OK(lane.Create("x.log"));
  EXPECT_OK(lane.Create("x.log")) << "a replacement frees what it needs";
  EXPECT_OK(lane.Create("x.log"));
}

// The files that an opening makes fit into a full table, further files do not, and the next opening
// has its room again.
TEST(LogLane, AFullTableCanBeOpened) {
  LaneBench bench(Mode::kImmediate);
  ASSERT_OK(bench.lane->Create("MANIFEST-000001"));
  ASSERT_OK(bench.lane->Create("CURRENT"));
  ASSERT_OK(bench.lane->Create("000002.log"));
  ASSERT_OK(bench.lane->ListFile({"OPTIONS-000003", 1, 1}));
  int files = 0;
  while (bench.lane->ListFile({std::to_string(files) + ".sst", 1, 1}).ok()) ++files;
  int number = 10;
  for (int opening = 0; opening < 5; ++opening) {
    bench.Reload();
    LogLane& lane = *bench.lane;
    const auto name = [&](const std::string& before, const std::string& after) {
      return before + std::to_string(number + 100000 * opening) + after;
    };
    ASSERT_OK(lane.ListFile({name("", ".sst"), 1, 1})) << "a recovered memtable's";
    ASSERT_OK(lane.Create(name("MANIFEST-", "")));
    ASSERT_OK(lane.Create(name("", ".dbtmp")));
    ASSERT_OK(lane.Rename(name("", ".dbtmp"), "CURRENT"));
    ASSERT_OK(lane.Create(name("", ".log")));
    ASSERT_OK(lane.ListFile({name("OPTIONS-", ""), 1, 1}));
    EXPECT_THAT(lane.ListFile({"more.sst", 1, 1}), StatusIs(Code::kNoSpace));
    // What the opening made obsolete, and one table that a user's deletion freed.
    const std::vector<FileInfo> listed = lane.Files().value();
    for (const FileInfo& file : listed) {
      const bool fresh =
          file.name.find(std::to_string(number + 100000 * opening)) != std::string::npos;
      if (fresh || file.name == "CURRENT" || file.name.ends_with(".sst")) continue;
      ASSERT_OK(lane.Remove(file.name));
    }
    ASSERT_OK(lane.Remove(std::to_string(opening) + ".sst"));
  }
}

// A MANIFEST that has taken all it may leaves room for its successor, which then frees the old one.
TEST(LogLane, AManifestLeavesRoomForItsSuccessor) {
  LaneBench bench(Mode::kImmediate);
  LogLane& lane = *bench.lane;
  const FileId manifest = lane.Create("MANIFEST-000001").value();
  const FileId log = lane.Create("000002.log").value();
  ASSERT_OK(lane.Append(log, "x"));
  while (lane.Append(manifest, std::string(1000, 'm')).ok()) {
  }
  const FileId successor = lane.Create("MANIFEST-000003").value();
  ASSERT_OK(lane.Append(successor, std::string(4000, 'n')));
  const FileId current = lane.Create("000003.dbtmp").value();
  ASSERT_OK(lane.Append(current, "MANIFEST-000003\n"));
  ASSERT_OK(lane.Rename("000003.dbtmp", "CURRENT"));
  ASSERT_OK(lane.Remove("MANIFEST-000001"));
  EXPECT_OK(lane.Append(log, std::string(5000, 'x')));
  EXPECT_OK(lane.Append(successor, std::string(5000, 'n')));
}

// What its owner says to lead to free space always fits, also into a new log.
TEST(LogLane, AFullDataAreaTakesWhatLeadsToSpace) {
  for (const std::string record : {"ends a transaction", "begins a log"}) {
    LaneBench bench(Mode::kImmediate);
    LogLane& lane = *bench.lane;
    const FileId manifest = lane.Create("MANIFEST-000001").value();
    ASSERT_OK(lane.Append(manifest, "m"));
    const FileId full = lane.Create("000002.log").value();
    while (lane.Append(full, std::string(4096, 'x')).ok()) {
    }
    const FileId next = lane.Create("000003.log").value();
    ASSERT_THAT(lane.Append(next, std::string(100, 'x')), StatusIs(Code::kNoSpace));
    if (record == "begins a log") {
      // In a log that has begun they take nothing of the reserve, however many are written.
      EXPECT_THAT(lane.Append(full, record), StatusIs(Code::kNoSpace));
    }
    ASSERT_OK(lane.Append(next, record));
    // The space for the MANIFEST and its successor is still free.
    EXPECT_OK(lane.Append(manifest, std::string(4096, 'm')));
    const FileId successor = lane.Create("MANIFEST-000004").value();
    EXPECT_OK(lane.Append(successor, std::string(100, 'm')));
  }
}

// Models a crash: whatever each node holds, redo gives the files of a prefix with everything
// acknowledged.
TEST(LogLane, AnyCrashGivesTheFilesOfAPrefix) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    LaneBench bench(Mode::kRandom, seed, 1 + seed % 3, 1 + seed % 9);
    for (int i = 0; i < 150; ++i) {
      bench.RandomCall();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " call " << i;
      if (bench.random() % 32 == 0) {
        ASSERT_OK(bench.lane->Tick());
      }
      const uint64_t acked = bench.lane->statistics().acked_seq;
      bench.CheckImage(bench.region.bytes, acked);
      for (size_t hop = 0; hop < bench.group.group_size(); ++hop) {
        bench.CheckImage(bench.group.CrashImage(hop, bench.random), acked);
        if (testing::Test::HasFatalFailure())
          FAIL() << "seed " << seed << " hop " << hop << " call " << i;
      }
    }
    EXPECT_EQ(bench.group.conflicts(), 0u);
  }
}

TEST(LogLane, LongWorkloadEqualsTheModelAcrossReloads) {
  LaneBench bench(Mode::kRandom, 77, 2, 8);
  for (int i = 0; i < 4000; ++i) {
    bench.RandomCall();
    if (testing::Test::HasFatalFailure()) FAIL() << "call " << i;
    while (bench.states.size() > 50) bench.states.erase(bench.states.begin());
    if (i % 500 == 499) {
      ASSERT_OK(bench.lane->Drain());
      bench.Reload();
    }
    if (i % 50 == 0) {
      for (const auto& [name, text] : bench.model) {
        if (bench.retired.contains(name)) continue;
        ASSERT_EQ(bench.ReadAll(name), text) << name;
      }
    }
  }
  ASSERT_OK(bench.lane->Checkpoint());
  bench.group.StepAll();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bench.group.image(i) == bench.region.bytes);
  // With an empty ring the table alone describes all files.
  const auto table = FileTable::Load(bench.region.bytes, bench.region.info);
  ASSERT_OK(table);
  EXPECT_EQ(table->List().size(), bench.model.size());
}

TEST(FileTable, SaysWhatIsWrong) {
  LaneBench bench(Mode::kImmediate);
  const FileId log = bench.lane->Create("a.log").value();
  ASSERT_OK(bench.lane->Append(log, std::string(9000, 'x')));
  ASSERT_OK(bench.lane->Create("b.log"));
  ASSERT_OK(bench.lane->Checkpoint());
  const auto& info = bench.region.info;
  ASSERT_OK(FileTable::Load(bench.region.bytes, info));
  const auto broken = [&](uint64_t at, const auto& value) {
    auto image = bench.region.bytes;
    std::memcpy(&image[at], &value, sizeof(value));
    return FileTable::Load(image, info).status().message();
  };
  const auto& g = info.geometry;
  const auto sized = [&](uint64_t size) {
    return broken(g.SizeOffset(0), MakeTableSize(info, size));
  };
  EXPECT_THAT(sized(20000), HasSubstr("counts 808 B, the file's size says 4096"));
  EXPECT_THAT(sized(4096), HasSubstr("beyond the end"));
  EXPECT_THAT(sized(1ull << 60), HasSubstr("more than"));
  EXPECT_THAT(sized(8999), HasSubstr("counts 808 B, the file's size says 807"));
  EXPECT_THAT(broken(g.SizeOffset(0), uint64_t{8999}), HasSubstr("checksum"));
  EXPECT_THAT(broken(g.EntryOffset(0), 'z'), HasSubstr("checksum"));
  EXPECT_THAT(broken(g.MapOffset(2), MapEntry{}), HasSubstr("missing"));
  EXPECT_THAT(broken(g.MapOffset(2), 9), HasSubstr("no file"));
  EXPECT_THAT(broken(g.MapOffset(5), MapEntry{1, 1, 4096, 0}), HasSubstr("second extent"));
  for (const MapEntry& entry : {MapEntry{0, 1, 0, 0}, MapEntry{0, 0, 1, 0}, MapEntry{0, 0, 0, 1}}) {
    EXPECT_THAT(broken(g.MapOffset(5), entry), HasSubstr("free"));
  }
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {  // anything at all: an answer, no crash
    auto image = bench.region.bytes;
    for (uint64_t n = 1 + random() % 8; n > 0; --n) {
      image[g.table_offset + random() % (g.data_offset - g.table_offset)] =
          static_cast<std::byte>(random());
    }
    FileTable::Load(image, info).status().IgnoreError();
  }
}

}  // namespace
}  // namespace hyperloop
