// Debian's unmodified db_bench and ldb with the plugin preloaded, over a real RNIC daemon and real
// replicas.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "hyperloop/replication/inspect.h"
#include "inspect/export.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

struct CommandOutcome {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

std::string PluginPath() {
  return std::string(std::getenv("HYPERLOOP_LIB")) + "/librocksdb_hyperloop.so";
}

// Runs a shell command, standard error included. `preload`: with the plugin.
CommandOutcome RunCommand(const std::string& command, bool preload = true) {
  const std::string environment = preload ? "env LD_PRELOAD='" + PluginPath() + "' " : "";
  CommandOutcome outcome;
  FILE* pipe = popen((environment + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, n);
  int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class StockToolsTest : public SharedClusterTest<3, 32 << 20> {
 protected:
  void SetUp() override {
    if (access("/usr/bin/db_bench", X_OK) != 0 || access("/usr/bin/ldb", X_OK) != 0) {
      GTEST_SKIP() << "rocksdb-tools is not installed";
    }
    SharedClusterTest::SetUp();
  }
  std::string Uri() const { return FormatStoreUri(cluster_.Options()); }
  std::string Database() const { return cluster_.folder() + "/db"; }
  std::string Ldb(const std::string& rest) const {
    return "/usr/bin/ldb --fs_uri='" + Uri() + "' --db=" + Database() + " " + rest;
  }
  std::string DbBench(const std::string& rest) const {
    return "/usr/bin/db_bench --fs_uri='" + Uri() + "' --db=" + Database() + " " + rest;
  }

  void ExpectRegionsEqual() {
    Result<std::vector<std::byte>> first = cluster_.ReplicaRegion(0);
    ASSERT_OK(first);
    for (uint32_t i = 1; i < cluster_.replicas(); ++i) {
      Result<std::vector<std::byte>> other = cluster_.ReplicaRegion(i);
      ASSERT_OK(other);
      ASSERT_EQ(cluster_.FirstDifferenceInUse(*first, *other), std::nullopt)
          << "replica " << i << " differs";
    }
    Result<std::unique_ptr<NodeView>> own = NodeView::OpenPool(cluster_.Options().pool);
    ASSERT_OK(own);
    std::vector<std::byte> bytes((*own)->region_size());
    ASSERT_OK((*own)->Read(0, bytes));
    EXPECT_EQ(cluster_.FirstDifferenceInUse(*first, bytes), std::nullopt) << "the primary differs";
  }

  // The number of keys that stock RocksDB finds in replica i's export.
  uint64_t KeysOfReplica(uint32_t i) {
    Result<std::vector<std::byte>> image = cluster_.ReplicaRegion(i);
    EXPECT_OK(image);
    if (!image.ok()) return 0;
    const std::string directory = cluster_.folder() + "/export" + std::to_string(i);
    stdfs::remove_all(directory);
    Result<ExportReport> report = ExportFiles(*image, directory);
    EXPECT_OK(report);
    if (!report.ok()) return 0;
    rocksdb::DB* opened = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(rocksdb::Options(), directory, &opened);
    EXPECT_OK(status);
    if (!status.ok()) return 0;
    std::unique_ptr<rocksdb::DB> db(opened);
    std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(rocksdb::ReadOptions()));
    uint64_t count = 0;
    for (it->SeekToFirst(); it->Valid(); it->Next()) ++count;
    return count;
  }
};

TEST_F(StockToolsTest, DbBenchFillsTwiceAndReplicasAreEqual) {
  for (int run = 0; run < 2; ++run) {  // the second one destroys the first one's database
    CommandOutcome bench =
        RunCommand(DbBench("--benchmarks=fillrandom --num=5000 --sync=1 --value_size=100"));
    ASSERT_EQ(bench.status, 0) << bench.output;
    EXPECT_THAT(bench.output, HasSubstr("fillrandom"));
    ExpectRegionsEqual();
  }
  const uint64_t keys = KeysOfReplica(0);
  EXPECT_GT(keys, 2500u);  // random keys: some are written twice
  EXPECT_EQ(KeysOfReplica(1), keys);
  EXPECT_EQ(KeysOfReplica(2), keys);
}

// Of db_bench, which says every kInterval operations how many there were.
constexpr uint64_t kOperations = 6000;
constexpr int kInterval = 20;

// Runs db_bench with kOperations and calls `beside` once, as soon as it has written some keys.
// Before this call returns, db_bench cannot make more than half of the operations: nobody reads
// what it says any more, and a pipe holds little.
CommandOutcome RunBenchBeside(const std::string& command, const std::function<void()>& beside) {
  constexpr int kPipeBytes = 4096;  // takes less than 50 reports, and so does stdio's buffer
  CommandOutcome outcome;
  FILE* bench = popen(("env LD_PRELOAD='" + PluginPath() + "' " + command +
                       " --num=" + std::to_string(kOperations) +
                       " --stats_interval=" + std::to_string(kInterval) + " 2>&1")
                          .c_str(),
                      "re");
  if (bench == nullptr) return outcome;
  EXPECT_GT(fcntl(fileno(bench), F_SETPIPE_SZ, kPipeBytes), 0);
  char line[512];
  std::thread thread;
  int reports = 0;
  while (std::fgets(line, sizeof line, bench) != nullptr) {
    outcome.output += line;
    if (std::string(line).find("ops and") == std::string::npos) continue;
    if (++reports == 1) thread = std::thread(beside);
    if (reports == 20) thread.join();
  }
  int status = pclose(bench);
  EXPECT_GT(reports, 20) << outcome.output;
  if (thread.joinable()) thread.join();
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TEST_F(StockToolsTest, DbBenchWithAllReplicasStopped) {
  // Taking the group needs the replicas' processes; they are stopped as soon as db_bench is
  // writing.
  CommandOutcome bench = RunBenchBeside(DbBench("--benchmarks=fillrandom --sync=1"),
                                        [&] { cluster_.SignalAllReplicas(SIGSTOP); });
  EXPECT_EQ(bench.status, 0) << bench.output;
  // Read while they are stopped. The first half has written less than 40 % of all keys.
  EXPECT_GT(KeysOfReplica(2), kOperations / 2);
  cluster_.SignalAllReplicas(SIGCONT);
}

// Whoever only reads a living database, by its URI, takes nothing from it.
TEST_F(StockToolsTest, ReadersOfALivingDatabaseDisturbNothing) {
  const auto look = [&] {
    std::vector<std::string> seen;
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      const auto status = cluster_.ReplicaStatus(i);
      EXPECT_OK(status);
      if (!status.ok()) continue;
      seen.push_back(std::to_string(status->sealed_epoch) + " " +
                     std::to_string(status->installed_epoch) + " " + status->owner + " " +
                     status->owner_name + (status->released ? " released" : ""));
    }
    return seen;
  };
  const auto heartbeat = [&] { return cluster_.ReplicaStatus(0)->heartbeat; };
  const CommandOutcome bench = RunBenchBeside(
      DbBench("--benchmarks=fillseq,stats --sync=1 --value_size=100 --write_buffer_size=131072"),
      [&] {
        const auto before = look();
        const CommandOutcome scan = RunCommand(Ldb("scan --no_value --max_keys=100"));
        EXPECT_EQ(scan.status, 0) << scan.output;
        const CommandOutcome secondary = RunCommand(Ldb("--secondary_path=" + cluster_.folder() +
                                                        "/secondary scan --no_value "
                                                        "--max_keys=100"));
        EXPECT_EQ(secondary.status, 0) << secondary.output;
        EXPECT_EQ(look(), before);
        const uint64_t beat = heartbeat();
        EXPECT_TRUE(Eventually([&] { return heartbeat() != beat; })) << "the primary lives";
      });
  EXPECT_EQ(bench.status, 0) << bench.output;
  EXPECT_THAT(bench.output, Not(HasSubstr("fenced")));
  ExpectRegionsEqual();
}

TEST_F(StockToolsTest, LdbPutGetScanAcrossProcesses) {
  CommandOutcome put = RunCommand(Ldb("--create_if_missing put key1 value1"));
  ASSERT_EQ(put.status, 0) << put.output;
  EXPECT_EQ(RunCommand(Ldb("put key2 value2")).status, 0);
  EXPECT_THAT(RunCommand(Ldb("get key1")).output, HasSubstr("value1"));
  EXPECT_THAT(RunCommand(Ldb("scan")).output, HasSubstr("key2 : value2"));
  ExpectRegionsEqual();
}

TEST_F(StockToolsTest, RefusalsAreTextsNotCrashes) {
  auto refused = [&](const std::string& uri, const std::string& reason) {
    CommandOutcome outcome = RunCommand("/usr/bin/ldb --fs_uri='" + uri + "' --db=" + Database() +
                                        " --create_if_missing put a b");
    EXPECT_GT(outcome.status, 0) << uri;
    EXPECT_LT(outcome.status, 128) << uri << " ended by a signal: " << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(reason)) << uri;
    EXPECT_FALSE(stdfs::exists(Database() + "/CURRENT"));
  };
  refused("hyperloop://127.0.0.1:1?windw=3", "the nearest known one is \"window\"");
  refused("hyperloop://127.0.0.1:1?window=0", "1 to 4096");
  refused("hyperloop://127.0.0.1", "no \":port\"");
  refused("id=hyperloop;windw=3", "windw");
  refused("hyperloop://127.0.0.1:1", "option device is not set");
  refused("hyperloop://127.0.0.1:1?connect_timeout=1s&device=" + cluster_.socket() +
              "&pool=" + cluster_.folder() + "/p",
          "127.0.0.1:1");
}

// RocksDB looks for the URI among its Envs, finds none, and takes the default Env without a word.
TEST_F(StockToolsTest, TheUriGivenAsAnEnvCostsARefusalAndNoMore) {
  std::string options = Uri();
  options.replace(0, std::string("hyperloop://").size(), "id=hyperloop;replicas=");
  std::replace_if(
      options.begin(), options.end(), [](char c) { return c == '?' || c == '&'; }, ';');
  const auto ldb = [&](const std::string& flag, const std::string& rest) {
    return RunCommand("/usr/bin/ldb --" + flag + "='" + options + "' --db=" + Database() + " " +
                      rest);
  };
  const auto expect_refused = [&] {
    const CommandOutcome refused = RunCommand(Ldb("put key2 value2"));
    EXPECT_GT(refused.status, 0);
    EXPECT_LT(refused.status, 128) << "ended by a signal";
    EXPECT_THAT(refused.output, HasSubstr(Database() + " was changed without its group"));
    EXPECT_THAT(refused.output, HasSubstr("to keep what the group holds: move " + Database() +
                                          "/CURRENT out of the directory"));
    EXPECT_THAT(refused.output, HasSubstr("to keep what the directory holds: move " + Database() +
                                          "/HYPERLOOP out of it"));
  };

  const CommandOutcome put = ldb("fs_uri", "--create_if_missing put key1 value1");
  ASSERT_EQ(put.status, 0) << put.output;
  const CommandOutcome flag = ldb("env_uri", "put plain 1");
  ASSERT_EQ(flag.status, 0) << flag.output;
  expect_refused();
  stdfs::rename(Database() + "/CURRENT", cluster_.folder() + "/CURRENT");
  ASSERT_EQ(RunCommand(Ldb("put key3 value3")).status, 0);
  const CommandOutcome kept = RunCommand(Ldb("scan"));
  EXPECT_THAT(kept.output, HasSubstr("key1 : value1\nkey3 : value3\n"));
  EXPECT_THAT(kept.output, Not(HasSubstr("plain")));
  ExpectRegionsEqual();

  // The same in an options file.
  const std::string file = cluster_.folder() + "/options";
  std::ofstream(file) << "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n"
                      << "[DBOptions]\n  env={" << Uri() << "}\n"
                      << "[CFOptions \"default\"]\n"
                      << "[TableOptions/BlockBasedTable \"default\"]\n";
  const CommandOutcome bench =
      RunCommand("/usr/bin/db_bench --options_file=" + file + " --db=" + Database() +
                 " --use_existing_db=1 --benchmarks=overwrite --num=10");
  ASSERT_EQ(bench.status, 0) << bench.output;
  expect_refused();
  stdfs::rename(Database() + "/HYPERLOOP", cluster_.folder() + "/HYPERLOOP");
  const CommandOutcome plain = RunCommand("/usr/bin/ldb --db=" + Database() + " scan", false);
  EXPECT_THAT(plain.output, HasSubstr("key1 : value1\nkey3 : value3\n"));
  EXPECT_GT(std::count(plain.output.begin(), plain.output.end(), '\n'), 2) << "nothing was kept";
}

TEST(SharedObject, ExportsTwoNamesAndNeedsLittle) {
  CommandOutcome names = RunCommand("nm -D --defined-only --format=posix " + PluginPath(), false);
  ASSERT_EQ(names.status, 0) << names.output;
  EXPECT_TRUE(names.output.starts_with("_ZN7rocksdb10FileSystem7DefaultEv ")) << names.output;
  EXPECT_THAT(names.output, HasSubstr("\nregister_hyperloop "));
  EXPECT_EQ(std::count(names.output.begin(), names.output.end(), '\n'), 2) << names.output;
  CommandOutcome needs =
      RunCommand("objdump -p " + PluginPath() + " | awk '/NEEDED/ {print $2}'", false);
  std::istringstream libraries(needs.output);
  int count = 0;
  for (std::string library; std::getline(libraries, library); ++count) {
    const bool fine = library.starts_with("librocksdb.so") || library.starts_with("libpmem") ||
                      library.starts_with("libisal.so") || library.starts_with("libsodium.so") ||
                      library.starts_with("libstdc++.so") || library.starts_with("libgcc_s.so") ||
                      library.starts_with("libc.so") || library.starts_with("libm.so") ||
                      library.starts_with("ld-linux") || library.starts_with("libasan") ||
                      library.starts_with("libubsan") || library.starts_with("libtsan");
    EXPECT_TRUE(fine) << "the plugin pulls " << library << " into its host";
  }
  EXPECT_GE(count, 3) << needs.output;
}

TEST(SharedObject, LeavesThePreloadOfItsChildren) {
  CommandOutcome alone = RunCommand("env");
  EXPECT_EQ(alone.status, 0);
  EXPECT_THAT(alone.output, HasSubstr("PATH="));
  EXPECT_THAT(alone.output, Not(HasSubstr("LD_PRELOAD")));
  CommandOutcome among = RunCommand("env LD_PRELOAD='libm.so.6:" + PluginPath() + "' env", false);
  EXPECT_THAT(among.output, HasSubstr("LD_PRELOAD=libm.so.6\n"));
}

}  // namespace
}  // namespace hyperloop::test
