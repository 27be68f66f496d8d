// Tests hyperloop-ycsb as a program, replicated and not: its output, its refusals, and how it
// stops.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/child_process.h"
#include "support/cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kRecords = 100, kOperations = 120;

const std::string kSome = "--operations=" + std::to_string(kOperations);

class YcsbProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/ycsb_program_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string database() const { return folder_ + "/db"; }
  ChildProcess Start(const std::vector<std::string>& more, uint64_t records = kRecords) const {
    std::vector<std::string> command = {
        ProgramPath("hyperloop-ycsb"), "--db", database(), "--json", "--records",
        std::to_string(records)};
    command.insert(command.end(), more.begin(), more.end());
    return ChildProcess::Spawn(command);
  }
  int Run(const std::vector<std::string>& more, uint64_t records = kRecords) const {
    return Start(more, records).Wait();
  }
  static Json Object(ChildProcess& ycsb) {
    const std::string line = ycsb.ReadLine();
    Json json = Json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    return json.is_object() ? json : Json::object();
  }
  // Reads the next phase's objects: first that `phase` begins, then its result. Returns the result
  // after checking its latencies and the number of its operations (0: any number).
  static Json Phase(ChildProcess& ycsb, const std::string& phase, uint64_t operations) {
    Json beginning = Object(ycsb);
    EXPECT_EQ(beginning["phase"], phase);
    EXPECT_EQ(beginning["begins"], true);
    Json json = Object(ycsb);
    const std::string line = json.dump();
    EXPECT_EQ(json["phase"], phase) << line;
    EXPECT_EQ(json["workload"], beginning["workload"]) << line;
    if (operations == 0) operations = json["operations"].get<uint64_t>();
    EXPECT_EQ(json["operations"], operations) << line;
    EXPECT_GT(json["ops_per_second"], 0);
    uint64_t sum = 0;
    for (const Json& type : json["types"]) {
      sum += type["operations"].get<uint64_t>();
      uint64_t counted = 0;
      for (const Json& bucket : type["histogram"]) {
        EXPECT_LE(bucket[0], bucket[1]) << line;
        counted += bucket[2].get<uint64_t>();
      }
      EXPECT_EQ(counted, type["operations"]) << line;
      EXPECT_LE(type["latency_ns"]["p50"], type["latency_ns"]["p99"]) << line;
      EXPECT_LE(type["latency_ns"]["p99_99"], type["latency_ns"]["max"]) << line;
    }
    EXPECT_EQ(sum, operations) << line;
    return json;
  }
  static std::set<std::string> Types(const Json& json) {
    std::set<std::string> types;
    for (const Json& type : json["types"]) types.insert(type["type"]);
    return types;
  }

  std::string folder_;
};

const std::map<std::string, std::set<std::string>> kTypes = {
    {"a", {"read", "update"}}, {"b", {"read", "update"}}, {"c", {"read"}},
    {"d", {"read", "insert"}}, {"e", {"scan", "insert"}}, {"f", {"read", "read-modify-write"}}};

TEST_F(YcsbProgramTest, RunsEveryWorkloadOnAReplicatedDatabase) {
  TestCluster cluster(2, 64 << 20);  // the journal of a URI without options takes 32 MiB
  ASSERT_TRUE(cluster.started());
  const std::vector<std::string> common = {"--uri", cluster.uri(), kSome};
  const auto with = [&common](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  ChildProcess load = Start(with({"--phase=load", "--threads=2"}));
  const Json loaded = Phase(load, "load", kRecords);
  EXPECT_EQ(load.Wait(), 0);
  EXPECT_EQ(loaded["replicated"], true);
  EXPECT_EQ(Types(loaded), std::set<std::string>{"insert"});
  for (const auto& [workload, types] : kTypes) {
    const auto before = cluster.ReplicaStatus(1);
    ChildProcess ycsb = Start(with({"--phase=run", "--workload", workload}));
    const Json json = Phase(ycsb, "run", kOperations);
    EXPECT_EQ(ycsb.Wait(), 0) << workload;
    EXPECT_EQ(json["workload"], workload);
    EXPECT_EQ(Types(json), types);
    const auto after = cluster.ReplicaStatus(1);
    ASSERT_OK(before);
    ASSERT_OK(after);
    EXPECT_GT(after->last_seq, before->last_seq) << workload;
    EXPECT_EQ(after->directory, database());
  }
}

TEST_F(YcsbProgramTest, WithoutAUriNothingIsReplicated) {
  ChildProcess ycsb = Start({"--workload=A", "--threads=3", "--sync", kSome});
  Phase(ycsb, "load", kRecords);
  const Json json = Phase(ycsb, "run", kOperations);
  EXPECT_EQ(ycsb.Wait(), 0);
  EXPECT_EQ(json["replicated"], false);
  EXPECT_EQ(json["threads"], 3);
  EXPECT_EQ(json["sync"], true);
  EXPECT_EQ(Types(json), kTypes.at("a"));
}

TEST_F(YcsbProgramTest, RunsSeveralWorkloadsOnOneLoad) {
  ChildProcess ycsb = Start({"--workload=b,D,e,a", kSome});
  Phase(ycsb, "load", kRecords);
  for (const std::string workload : {"b", "d", "e", "a"}) {
    const Json json = Phase(ycsb, "run", kOperations);
    EXPECT_EQ(json["workload"], workload);
    EXPECT_EQ(Types(json), kTypes.at(workload));
  }
  EXPECT_EQ(ycsb.Wait(), 0);
}

TEST_F(YcsbProgramTest, RunsEachWorkloadAtEachRate) {
  ChildProcess ycsb = Start({"--workload=c,a", "--rate=0,500", kSome});
  EXPECT_EQ(Phase(ycsb, "load", kRecords)["rate"], 0);
  for (const std::string workload : {"c", "a"}) {
    for (const int rate : {0, 500}) {
      const Json json = Phase(ycsb, "run", kOperations);
      EXPECT_EQ(json["workload"], workload);
      EXPECT_EQ(json["rate"], rate);
    }
  }
  EXPECT_EQ(ycsb.Wait(), 0);
}

TEST_F(YcsbProgramTest, StepsOnlyWhenToldTo) {
  EXPECT_EQ(Run({"--phase=load"}), 0);
  const auto with_input = [this](const std::string& input) {
    return ChildProcess::Spawn({"/bin/sh", "-c",
                                "printf '" + input + "' | " + ProgramPath("hyperloop-ycsb") +
                                    " --db " + database() +
                                    " --json --phase=run --step --workload=a,c --records " +
                                    std::to_string(kRecords) + " " + kSome});
  };
  ChildProcess both = with_input("\\n\\n");
  EXPECT_EQ(Phase(both, "run", kOperations)["workload"], "a");
  EXPECT_EQ(Phase(both, "run", kOperations)["workload"], "c");
  EXPECT_EQ(both.Wait(), 0);
  ChildProcess one = with_input("\\n");
  EXPECT_EQ(Phase(one, "run", kOperations)["workload"], "a");
  const std::string announced = one.ReadLine();
  EXPECT_THAT(announced, HasSubstr("\"begins\":true"));
  EXPECT_EQ(one.ReadLine(), "") << "c must not run";
  EXPECT_EQ(one.Wait(), 1);
}

TEST_F(YcsbProgramTest, ARunEndsWhenItsTimeIsOver) {
  ChildProcess ycsb =
      Start({"--workload=c,a", "--threads=2", "--operations=1000000000", "--max_seconds=0.2"});
  Phase(ycsb, "load", kRecords);
  for (int i = 0; i < 2; ++i) {
    const Json json = Phase(ycsb, "run", 0);
    EXPECT_GE(json["seconds"], 0.2);
    EXPECT_GT(json["operations"], 0);
  }
  EXPECT_EQ(ycsb.Wait(), 0);
}

TEST_F(YcsbProgramTest, TheSameSeedMakesTheSameChoices) {
  ASSERT_EQ(Run({"--phase=load"}), 0);
  std::map<std::string, std::set<uint64_t>> reads;
  for (const std::string seed : {"1", "1", "2", "3"}) {
    ChildProcess ycsb = Start({"--phase=run", "--seed", seed, kSome});
    const Json json = Phase(ycsb, "run", kOperations);
    ASSERT_EQ(ycsb.Wait(), 0);
    reads[seed].insert(json["types"][0]["operations"].get<uint64_t>());
  }
  EXPECT_EQ(reads["1"].size(), 1u);
  EXPECT_FALSE(reads["1"] == reads["2"] && reads["1"] == reads["3"]);
}

TEST_F(YcsbProgramTest, RefusesWhatCannotBe) {
  EXPECT_EQ(Run({"--phase=run"}), 2) << "no database there";
  EXPECT_FALSE(fs::exists(database() + "/CURRENT"));
  EXPECT_EQ(Run({"--workload=g"}), 2);
  EXPECT_EQ(Run({"--workload=a,g"}), 2);
  EXPECT_EQ(Run({"--max_seconds=-1"}), 2);
  EXPECT_EQ(Run({}, 1), 2) << "records";
  EXPECT_EQ(Run({"--threads=0"}), 2);
  for (const char* rate : {"--rate=-1", "--rate=1,x", "--rate=2e9", "--rate=nan"})
    EXPECT_EQ(Run({rate}), 2) << rate;
  EXPECT_EQ(Run({"--operations=0"}), 2);
  EXPECT_EQ(Run({"--phase=both,run"}), 2);
  EXPECT_EQ(Run({"--seed=x"}), 2);
  EXPECT_EQ(Run({"--sync", "true"}), 2) << "a word that is no flag";
  EXPECT_EQ(Run({"--thread=1"}), 2) << "no such flag";
  EXPECT_EQ(Run({"--no_key"}), 2) << "librocksdb's flag";
  EXPECT_EQ(Run({"--uri="}), 2);
  EXPECT_EQ(Run({"--uri=hyperloop://nowhere"}), 2);
  EXPECT_EQ(ChildProcess::Spawn({ProgramPath("hyperloop-ycsb")}).Wait(), 2) << "no --db";
  EXPECT_EQ(Run({"--phase=load"}), 0);
  EXPECT_EQ(Run({"--phase=load"}), 2) << "a database is there";
  EXPECT_EQ(Run({"--phase=run"}, kRecords + 1), 1) << "fewer records than that";
}

TEST_F(YcsbProgramTest, FlagsComeFromAFile) {
  const std::string path = folder_ + "/flags";
  std::ofstream(path) << "# a short one\n--workload=c\n--threads=2\n--sync\n" << kSome << "\n";
  ChildProcess ycsb = Start({"--flagfile=" + path, "--threads=3"});
  Phase(ycsb, "load", kRecords);
  const Json json = Phase(ycsb, "run", kOperations);
  EXPECT_EQ(ycsb.Wait(), 0);
  EXPECT_EQ(json["workload"], "c");
  EXPECT_EQ(json["threads"], 3) << "the command line's comes later";
  EXPECT_EQ(json["sync"], true);
  std::ofstream(path) << "--workloads=c\n";
  EXPECT_EQ(Run({"--flagfile=" + path}), 2) << "an unknown flag in it";
}

TEST_F(YcsbProgramTest, HelpListsItsFlagsAndNotTheLibraries) {
  ChildProcess ycsb = ChildProcess::Spawn({ProgramPath("hyperloop-ycsb"), "--help"});
  std::string text;
  for (int i = 0; i < 100 && text.find("--version") == std::string::npos; ++i) {
    text += ycsb.ReadLine() + "\n";
  }
  EXPECT_THAT(text, HasSubstr("--records (uint64, default 100000)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("no_key"))) << "librocksdb's flag";
  EXPECT_EQ(ycsb.Wait(), 0);
}

TEST_F(YcsbProgramTest, AnInterruptClosesTheDatabase) {
  ChildProcess ycsb = Start({"--operations=1000000000"});
  Phase(ycsb, "load", kRecords);  // so the run has begun, or is about to
  ycsb.Signal(SIGINT);
  EXPECT_EQ(ycsb.Wait(), 130);
  EXPECT_EQ(Run({"--phase=run", kSome}), 0);
}

}  // namespace
}  // namespace hyperloop::test
