// Tests hyperloop-bench as a program: its output, its refusals, and that it leaves nothing behind.
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
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
  arguments.emplace_back("--nopin");
  return arguments;
}

TEST(BenchTest, PrintsAJsonObjectForEachCaseAndLeavesNothing) {
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--primitive=all", "--flush", "--size=128,1024", "--window=1,8",
                                   "--number=200", "--replicas=2", "--region_size=64M", "--json"}));
  // gwrite, gmemcpy and append have both sizes, gcas and gflush none; times two windows.
  for (int i = 0; i < (2 + 2 + 2 + 1 + 1) * 2; ++i) {
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_GT(json["ops_per_second"], 0);
    EXPECT_LE(json["p50_ns"], json["p99_ns"]);
    EXPECT_LE(json["p999_ns"], json["max_ns"]);
    EXPECT_GT(json["ping_pong_p50_ns"], 0);
    EXPECT_GT(json["daemon_pid"], 1);
    EXPECT_EQ(json["number"], 200);
    EXPECT_EQ(json["load"], "idle");
    EXPECT_EQ(json["valid"], true);
    uint64_t counted = 0;
    for (const auto& bucket : json["histogram"]) counted += bucket[2].get<uint64_t>();
    EXPECT_EQ(counted, 200u);
    EXPECT_EQ(json["cpu_seconds"]["replicas"].size(), 2u);
    EXPECT_TRUE(json["cpu_seconds"]["rnic"].is_number()) << "counted to some milliseconds";
    ASSERT_EQ(json["hosts"].size(), 3u);
    for (const int replica : {1, 2}) {
      EXPECT_EQ(json["hosts"][replica]["counters"]["ring_bytes_by_other"], 0);
      EXPECT_EQ(json["hosts"][replica]["counters"]["doorbells"], 0);
    }
    // Only the primary's messages re-armed the slots.
    EXPECT_GT(json["rearming"]["ring_bytes_by_scatter"], 0);
    EXPECT_EQ(json["rearming"]["doorbells"], 0);
    if (json["primitive"] == "append") continue;  // several appends may be one operation
    // Every operation is at least a metadata message down the chain, and is flushed.
    EXPECT_GE(json["hosts"][0]["wqes"], 200);
    for (const int replica : {1, 2}) {
      EXPECT_GE(json["hosts"][replica]["read_responses"], 200) << line;
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
               "--size=128", "--number=200", "--replicas=2", "--region_size=64M", "--json"}));
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

TEST(BenchTest, SleepsForCompletionEventsWhenAsked) {
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--use_notify", "--primitive=all", "--size=128", "--window=4",
                                   "--number=100", "--replicas=2", "--region_size=64M", "--json"}));
  for (int i = 0; i < 5; ++i) {
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_EQ(json["wait"], "event");
    EXPECT_EQ(json["number"], 100);
  }
  EXPECT_EQ(bench.Wait(), 0);
}

TEST(BenchTest, RawVerbsSayHowTheyWerePosted) {
  ChildProcess bench = ChildProcess::Spawn(Command(
      {"--raw=all", "--inline=no,yes", "--size=64", "--number=50", "--max_seconds=5", "--json"}));
  for (const std::string verb : {"write", "send", "write-imm", "read", "read-memory"}) {
    for (const bool inlined : {false, true}) {
      const std::string line = bench.ReadLine();
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      ASSERT_TRUE(json.is_object()) << line;
      EXPECT_EQ(json["primitive"], "verb-" + verb);
      EXPECT_EQ(json["inline"], inlined);
      EXPECT_GT(json["number"], 0);
      EXPECT_GT(json["doorbells_per_operation"], 0);
      EXPECT_EQ(json["hosts"].size(), 2u);
    }
  }
  EXPECT_EQ(bench.Wait(), 0);
}

TEST(BenchTest, ASuiteRunsItsCases) {
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--suite=latency", "--number=20", "--max_seconds=2", "--json"}));
  std::map<std::string, int> cases;
  for (int i = 0; i < 2 * 13 + 2; ++i) {  // two primitives have 13 sizes, two have none
    const std::string line = bench.ReadLine();
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    ++cases[json["primitive"]];
  }
  EXPECT_EQ(cases, (std::map<std::string, int>{
                       {"gwrite", 13}, {"gmemcpy", 13}, {"gcas", 1}, {"gflush", 1}}));
  EXPECT_EQ(bench.ReadLine(), "");
  EXPECT_EQ(bench.Wait(), 0);
}

TEST(BenchTest, SuiteAllBeginsWithLatencies) {
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--suite=all", "--number=10", "--max_seconds=1", "--json"}));
  const nlohmann::json first = nlohmann::json::parse(bench.ReadLine(), nullptr, false);
  ASSERT_TRUE(first.is_object()) << "nothing was measured";
  EXPECT_EQ(first["primitive"], "gwrite");
  EXPECT_EQ(first["size"], 64);
  bench.Signal(SIGINT);
  EXPECT_EQ(bench.Wait(), 130);
}

// What it prints, stderr included.
std::string Said(const std::string& arguments, int* status) {
  ChildProcess bench = ChildProcess::Spawn(
      {"/bin/sh", "-c", "exec " + ProgramPath("hyperloop-bench") + " " + arguments + " 2>&1"});
  std::string text;
  for (std::string line = bench.ReadLine(); !line.empty(); line = bench.ReadLine()) {
    text += line + "\n";
  }
  *status = bench.Wait();
  return text;
}

TEST(BenchTest, RefusesWhatMakesNoSense) {
  const std::pair<const char*, const char*> refusals[] = {
      {"--primitive=gread", "no primitive 'gread'"},
      {"--size=0", "--size: 0 is not between 1 and"},
      {"--size=12Q", "'12Q' is no size"},
      {"--window=0", "--window"},
      {"--window=5000", "--window"},
      {"--replicas=9", "--replicas"},
      {"--window=", "--window"},
      {"--rate=-1", "--rate"},
      {"--number=0", "--number"},
      {"--warmup=-2", "--warmup"},
      {"--max_seconds=nan", "--max_seconds"},
      {"--cpu=4096", "--cpu"},
      {"--region_size=12Q", "--region_size: '12Q' is no size"},
      {"--raw=multicast", "no verb 'multicast'"},
      {"--raw=send --primitive=gcas", "excludes"},
      {"--raw=send --inline=perhaps", "--inline: 'perhaps' is none of no, yes"},
      {"--raw=send --provider=carrier-pigeon", "--provider"},
      {"--inline=yes", "requires"},
      {"--raw=send --device=rxe0", "--device requires --provider"},
      {"--suite=speed", "no suite 'speed'"},
      {"--suite", "--suite needs a value"},
      {"--suite=all --size=64", "excludes"},
      {"--use_notify --rate=100", "--rate"},
      {"--noise=1001", "--noise"},
      {"--noise=10 --cpu=0", "excludes"},
      {"--noise=10 --uri=hyperloop://127.0.0.1:1", "excludes"},
      {"--no-such-flag", "no flag --no-such-flag"},
      {"--flush=perhaps", "--flush='perhaps'"},
      {"--size=64 1024", "'1024' is no flag"},
      {"--flagfile=/nonexistent", "/nonexistent cannot be read"},
  };
  for (const auto& [arguments, expected] : refusals) {
    int status = 0;
    const std::string said = Said(arguments, &status);
    EXPECT_THAT(said, HasSubstr(expected)) << arguments;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "not even a table's head: " << said;
    EXPECT_EQ(status, 2) << arguments;
  }
  // These the device refuses.
  for (const auto& [arguments, expected] : {
           std::pair{"--raw=write --use_notify", "--use_notify"},
           std::pair{"--raw=send --inline=yes --size=64K", "--inline carries at most"},
       }) {
    int status = 0;
    EXPECT_THAT(Said(arguments, &status), HasSubstr(expected)) << arguments;
    EXPECT_EQ(status, 2) << arguments;
  }
}

TEST(BenchTest, FlagsComeFromAFile) {
  const std::string path = "/dev/shm/bench_test." + std::to_string(::getpid()) + ".flags";
  std::ofstream(path) << "# raw verbs\n--raw=send\n--size=16\n--number=1000\n--json\n--nopin\n";
  ChildProcess bench =
      ChildProcess::Spawn({ProgramPath("hyperloop-bench"), "--flagfile=" + path, "--number=20"});
  const std::string line = bench.ReadLine();
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(json.is_object()) << line;
  EXPECT_EQ(json["primitive"], "verb-send");
  EXPECT_EQ(json["size"], 16);
  EXPECT_EQ(json["number"], 20) << "the command line's comes later";
  EXPECT_EQ(bench.Wait(), 0);
  std::ofstream(path) << "--raw=send\n--sizes=16\n";
  int status = 0;
  EXPECT_THAT(Said("--flagfile=" + path, &status), HasSubstr(path + ":2: no flag --sizes"));
  EXPECT_EQ(status, 2);
  fs::remove(path);
}

TEST(BenchTest, HelpListsEveryFlagAndTheSuites) {
  ChildProcess bench = ChildProcess::Spawn({ProgramPath("hyperloop-bench"), "--help"});
  EXPECT_THAT(bench.ReadLine(), HasSubstr("hyperloop-bench: latency and throughput"));
  std::string text;
  for (int i = 0; i < 200 && text.find("--version") == std::string::npos; ++i) {
    text += bench.ReadLine() + "\n";
  }
  EXPECT_THAT(text, HasSubstr("latency, windows, groups, append, datapaths, raw; or all"));
  EXPECT_THAT(text, HasSubstr("--number (uint64, default 100000)"));
  EXPECT_THAT(text, HasSubstr("--flagfile"));
  EXPECT_EQ(bench.Wait(), 0);
  bench = ChildProcess::Spawn({ProgramPath("hyperloop-bench"), "--version"});
  EXPECT_THAT(bench.ReadLine(), HasSubstr("hyperloop-bench 0."));
  EXPECT_EQ(bench.Wait(), 0);
}

class NoisyBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v stress-ng >/dev/null") != 0) GTEST_SKIP() << "no stress-ng here";
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "noise needs two processors";
  }
  // The processes whose parent is `parent` and whose name begins with stress-ng.
  static std::set<pid_t> StressOf(pid_t parent) {
    std::set<pid_t> found;
    const std::string text = std::to_string(parent);
    std::ifstream children("/proc/" + text + "/task/" + text + "/children");
    for (pid_t child = 0; children >> child;) {
      std::string name;
      std::ifstream("/proc/" + std::to_string(child) + "/comm") >> name;
      if (name.rfind("stress-ng", 0) == 0) found.insert(child);
    }
    return found;
  }
};

TEST_F(NoisyBenchTest, AnInterruptLeavesNoNoiseRunning) {
  ChildProcess bench = ChildProcess::Spawn({ProgramPath("hyperloop-bench"), "--noise=2",
                                            "--number=1000000000", "--size=64", "--replicas=1"});
  std::set<pid_t> stress;
  ASSERT_TRUE(Eventually([&] { return (stress = StressOf(bench.pid())).size() == 2; }));
  bench.Signal(SIGINT);
  EXPECT_EQ(bench.Wait(), 130);
  for (const pid_t leader : stress) {
    EXPECT_NE(kill(-leader, 0), 0) << "stress-ng or its worker still runs";
  }
}

TEST_F(NoisyBenchTest, MissingStressNgIsSaid) {
  ChildProcess bench =
      ChildProcess::Spawn({"/bin/sh", "-c",
                           "PATH=/nonexistent exec " + ProgramPath("hyperloop-bench") +
                               " --noise=10 --replicas=1 2>&1"});
  EXPECT_THAT(bench.ReadLine(), HasSubstr("datapath")) << "the table's head";
  EXPECT_THAT(bench.ReadLine(), HasSubstr("install package stress-ng"));
  EXPECT_EQ(bench.Wait(), 1);
}

TEST(BenchTest, AnInterruptEndsItInOrder) {
  const std::set<std::string> before = OwnClusters();
  ChildProcess bench =
      ChildProcess::Spawn(Command({"--size=64", "--number=200,000,000"}));  // a wrong number
  EXPECT_EQ(bench.Wait(), 2);
  bench = ChildProcess::Spawn(Command({"--number=1000000000", "--region_size=64M"}));
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
  const Result<FileId> file = store->Create("000001.log");
  ASSERT_OK(file.status());
  ASSERT_OK(AppendDurably(*store, *file, "precious"));
  const auto run = [this] {
    ChildProcess bench =
        ChildProcess::Spawn(Command({"--uri", cluster_.uri(), "--number=100", "--json"}));
    return bench.Wait();
  };
  EXPECT_NE(run(), 0) << "a primary lives";
  ASSERT_OK(AppendDurably(*store, *file, "!")) << "it must not be disturbed";
  ASSERT_OK(store->Close());
  EXPECT_NE(run(), 0) << "the group holds a file";
  store = Taken(options);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store, "000001.log"), "precious!");
  ASSERT_OK(store->Remove("000001.log"));
  ASSERT_OK(store->Close());
  EXPECT_EQ(run(), 0) << "an empty group will do";
}

// Each replica says on which emulated host it is; its place in the chain does not show that.
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
