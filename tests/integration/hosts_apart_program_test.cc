// Tests a cluster whose hosts are apart with the real programs: everything between its nodes passes
// through links.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/store.h"
#include "support/append_durably.h"
#include "support/child_process.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class HostsApartProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    char name[] = "/dev/shm/hyperloop-apart-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    options_.directory = folder_ + "/c";
    options_.region_size = 64 << 20;
    options_.hosts_apart = true;
    options_.priority = "none";
    options_.die_with_caller = true;
    options_.programs = fs::path(ProgramPath("hyperloop-rnicd")).parent_path();
  }
  void TearDown() override {
    if (folder_.empty()) return;
    StopCluster(options_.directory).status().IgnoreError();
    fs::remove_all(folder_);
  }
  // False, and the test is skipped: this machine has no namespaces, bridges or veth devices.
  bool Start() {
    Result<ClusterInfo> info = StartCluster(options_);
    if (!info.ok() && info.status().code() == Code::kNotSupported) return false;
    EXPECT_OK(info);
    if (info.ok()) info_ = *std::move(info);
    return true;
  }
  // What hyperloopctl printed.
  std::string Ctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ProgramPath("hyperloopctl"));
    ChildProcess program = ChildProcess::Spawn(arguments);
    std::string text;
    for (std::string line = program.ReadLine(); !line.empty(); line = program.ReadLine())
      text += line + "\n";
    EXPECT_EQ(program.Wait(), 0) << text;
    return text;
  }

  std::string folder_;
  ClusterOptions options_;
  ClusterInfo info_;
};

TEST_F(HostsApartProgramTest, WritesPassThroughLinksAndToolsReachEachNode) {
  if (!Start()) GTEST_SKIP() << "no network namespaces here";
  StoreOptions options;
  ASSERT_OK(ParseStoreUri(info_.uri, &options));
  options.datapath = Datapath::kOffload;
  Result<std::unique_ptr<Store>> store = Store::Open(options, nullptr);
  ASSERT_OK(store);
  TakeResult taken;
  ASSERT_OK((*store)->Take({}, &taken));
  const Result<FileId> file = (*store)->Create("000001.log");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(**store, *file, std::string(5000, 'x')));
  const nlohmann::json counters =
      nlohmann::json::parse(Ctl({"counters", "--dir", options_.directory, "--json"}));
  for (const char* host : {"primary", "replica0", "replica1"})
    EXPECT_GT(counters[host]["link_bytes_sent"], 5000) << host;
  EXPECT_GT(counters["replica2"]["link_bytes_received"], 5000);
  EXPECT_NE(counters["replica0"]["daemon_pid"], counters["replica1"]["daemon_pid"]);
  EXPECT_THAT(Ctl({"status", "--dir", options_.directory}), HasSubstr("alive"));
  EXPECT_THAT(Ctl({"cluster", "status", "--dir", options_.directory}), HasSubstr("replica2-rnicd"));
  store->reset();
  // Left to itself, a primary makes no chain of RNICs that are apart.
  options.datapath.reset();
  store = Store::Open(options, nullptr);
  ASSERT_OK(store);
  TakeRequest again;
  again.pairing = taken.pairing;
  ASSERT_OK((*store)->Take(again, &taken));
  EXPECT_THAT(Ctl({"status", "--dir", options_.directory}), HasSubstr("datapath fanout"));
  store->reset();

  ASSERT_OK(StopCluster(options_.directory));
  ASSERT_OK(StartCluster(options_));
  EXPECT_THAT(Ctl({"verify", "--dir", options_.directory}), HasSubstr("1 files sound"));
}

TEST_F(HostsApartProgramTest, TheBenchmarkComparesWithBareTcp) {
  if (!Start()) GTEST_SKIP() << "no network namespaces here";
  ASSERT_OK(StopCluster(options_.directory));
  ChildProcess bench = ChildProcess::Spawn(
      {ProgramPath("hyperloop-bench"), "--hosts_apart", "--flush", "--number=200",
       "--datapath=offload,auto,cpu-event", "--region_size=64M", "--json"});
  for (const char* datapath : {"offload", "fanout", "cpu-event"}) {
    const nlohmann::json json = nlohmann::json::parse(bench.ReadLine(), nullptr, false);
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["datapath"], datapath);
    EXPECT_GT(json["tcp_chain_p50_ns"], 0);
    EXPECT_GT(json["tcp_fanout_p50_ns"], 0);
    ASSERT_EQ(json["hosts"].size(), 4u);
    EXPECT_GT(json["hosts"][3]["counters"]["link_bytes_received"], 200 * 1024);
  }
  EXPECT_EQ(bench.Wait(), 0);
}

}  // namespace
}  // namespace hyperloop::test
