// hyperloop-bench as a program: what it prints, what it refuses, what it leaves behind.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "integration/store_fixture.h"
#include "support/child_process.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// The temporary directories that runs of the benchmark have at the moment.
std::set<std::string> OwnClusters() {
  std::set<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.rfind("hyperloop-bench.", 0) == 0) found.insert(entry.path());
  }
  return found;
}

std::vector<std::string> Command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ProgramPath("hyperloop-bench"));
  arguments.emplace_back("--no-pin");
  return arguments;
}

TEST(BenchTest, PrintsAJsonObjectForEachCaseAndLeavesNothing) {
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--primitive=all", "--flush", "--size=128,1024", "--window=1,8",
                                   "--number=200", "--replicas=2", "--region-size=64M", "--json"}));
  // gwrite and gmemcpy have both sizes, gcas and gflush none: (2 + 2 + 1 + 1) times two windows.
  for (int i = 0; i < 12; ++i) {
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_GT(json["ops_per_second"], 0);
    EXPECT_LE(json["p50_ns"], json["p99_ns"]);
    EXPECT_LE(json["p999_ns"], json["max_ns"]);
    EXPECT_GT(json["ping_pong_p50_ns"], 0);
    EXPECT_GT(json["daemon_pid"], 1);
    ASSERT_EQ(json["hosts"].size(), 3u);
    // Every operation is at least a metadata message down the chain, and is flushed.
    EXPECT_GE(json["hosts"][0]["wqes"], 200);
    for (const int replica : {1, 2}) {
      EXPECT_GE(json["hosts"][replica]["read_responses"], 200) << line;
      EXPECT_EQ(json["hosts"][replica]["counters"]["ring_bytes_by_other"], 0);
    }
    if (json["primitive"] == "gwrite") {
      const uint64_t bytes = json["size"].get<uint64_t>() * 200;
      EXPECT_GE(json["hosts"][0]["bytes_sent"], bytes);
      EXPECT_GE(json["hosts"][1]["bytes_sent"], bytes);
    }
  }
  EXPECT_EQ(bench.Wait(), 0);
}

TEST(BenchTest, ComparesDatapathsInOneRun) {
  const std::vector<std::string> datapaths = {"offload", "fanout", "cpu-polling", "cpu-event"};
  ChildProcess bench = ChildProcess::Spawn(
      Command({"--datapath=offload,fanout,cpu-polling,cpu-event", "--primitive=gwrite", "--flush",
               "--size=128", "--number=200", "--replicas=2", "--region-size=64M", "--json"}));
  for (const std::string& datapath : datapaths) {
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_EQ(json["datapath"], datapath);
    for (const int replica : {1, 2}) {
      const auto& counters = json["hosts"][replica]["counters"];
      if (datapath == "offload" || datapath == "fanout") {
        EXPECT_EQ(counters["doorbells"], 0) << "a replica's CPU took part: " << line;
      } else {
        EXPECT_GT(counters["doorbells"], 0) << "no replica's CPU took part: " << line;
      }
    }
  }
  EXPECT_EQ(bench.Wait(), 0);
  bench = ChildProcess::Spawn(Command({"--datapath=carrier-pigeon"}));
  EXPECT_EQ(bench.Wait(), 2);
}

TEST(BenchTest, AnInterruptEndsItInOrder) {
  const std::set<std::string> before = OwnClusters();
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--size=64", "--number=200,000,000"}));  // a wrong number
  EXPECT_EQ(bench.Wait(), 2);
  bench = ChildProcess::Spawn(Command({"--number=1000000000", "--region-size=64M"}));
  EXPECT_THAT(bench.ReadLine(), HasSubstr("op/s"));
  std::string directory;
  ASSERT_TRUE(Eventually([&] {
    for (const std::string& each : OwnClusters()) {
      if (!before.contains(each) && fs::exists(each + "/replica2.pid")) directory = each;
    }
    return !directory.empty();
  }));
  bench.Signal(SIGINT);
  EXPECT_EQ(bench.Wait(), 130);
  EXPECT_FALSE(fs::exists(directory));
}

class BenchOnAGroupTest : public StoreTest {};

TEST_F(BenchOnAGroupTest, RefusesAGroupWithFilesAndLeavesItAsItWas) {
  StoreOptions options = Options();
  options.pool = cluster_.folder() + "/cluster/primary.pool";
  std::unique_ptr<Store> store = Taken(options);
  ASSERT_NE(store, nullptr);
  const Result<FileId> file = store->Create("000001.log", Lane::kLog);
  ASSERT_OK(file.status());
  ASSERT_OK(store->Append(*file, "precious"));
  const auto run = [this] {
    ChildProcess bench =
        ChildProcess::Spawn(Command({"--uri", cluster_.uri(), "--number=100", "--json"}));
    return bench.Wait();
  };
  EXPECT_NE(run(), 0) << "a primary lives";
  ASSERT_OK(store->Append(*file, "!")) << "it must not be disturbed";
  ASSERT_OK(store->Close());
  EXPECT_NE(run(), 0) << "the group holds a file";
  store = Taken(options);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store, "000001.log"), "precious!");
  ASSERT_OK(store->Remove("000001.log"));
  ASSERT_OK(store->Close());
  EXPECT_EQ(run(), 0) << "an empty group will do";
}

// Each replica says on which emulated host it is; its place in the chain tells nothing about that.
TEST_F(BenchOnAGroupTest, CountersAreThoseOfTheReplicasOwnHosts) {
  StoreOptions options = Options();
  std::reverse(options.replicas.begin(), options.replicas.end());
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--uri", FormatStoreUri(options), "--number=100", "--json"}));
  const std::string line = bench.ReadLine();
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(json.is_object()) << line;
  ASSERT_EQ(json["hosts"].size(), 4u) << line;
  for (const int i : {1, 2, 3}) {
    EXPECT_EQ(json["hosts"][i]["host"], "replica" + std::to_string(3 - i)) << line;
  }
  EXPECT_EQ(bench.Wait(), 0);
}

}  // namespace
}  // namespace hyperloop::test
