#include "support/cluster.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cluster/process_id.h"
#include "hyperloop/core/softrnic.h"
#include "hyperloop/replication/store.h"
#include "support/regions.h"

namespace hyperloop::test {
namespace {

// Whether every thread of the process is stopped.
bool Stopped(pid_t pid) {
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    cluster::ProcessStat stat;
    if (!cluster::ParseProcessStat(cluster::ReadProcessFile(task.path() / "stat"), &stat) ||
        stat.state != 'T')
      return false;
  }
  return true;
}

}  // namespace

TestCluster::TestCluster(uint32_t replicas, uint64_t region_size) {
  std::string pattern = "/dev/shm/hyperloop-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    ADD_FAILURE() << "no folder in /dev/shm";
    return;
  }
  folder_ = pattern;
  const char* programs = std::getenv("HYPERLOOP_BIN");
  options_.directory = folder_ + "/cluster";
  options_.replicas = replicas;
  options_.region_size = region_size;
  options_.spin_us = 0;
  options_.priority = "none";
  options_.programs = programs == nullptr ? "" : programs;
  options_.die_with_caller = true;
  Result<ClusterInfo> info = StartCluster(options_);
  if (!info.ok()) {
    ADD_FAILURE() << info.status().ToString();
    return;
  }
  info_ = std::move(info).value();
  started_ = true;
}

TestCluster::~TestCluster() {
  if (folder_.empty()) return;
  StopCluster(options_.directory, std::chrono::seconds(60)).status().IgnoreError();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

StoreOptions TestCluster::Options() const {
  StoreOptions options;
  for (uint32_t i = 0; i < replicas(); ++i) options.replicas.push_back(endpoint(i));
  options.device = info_.socket;
  options.keys = info_.directory + "/keys";
  options.pool = folder_ + "/primary.pool";
  options.journal_size = 1 << 20;
  options.table_capacity = 64;
  options.wait = WaitMode::kEvent;
  options.on_replica_failure = OnReplicaFailure::kBlock;
  options.ack_timeout = std::chrono::seconds(30);
  options.connect_timeout = std::chrono::seconds(30);
  return options;
}

void TestCluster::SignalReplica(uint32_t i, int signal) const {
  ASSERT_EQ(kill(replica_pid(i), signal), 0);
  // A process stops when it is next scheduled, which on a busy machine takes a while.
  if (signal != SIGSTOP) return;
  ASSERT_TRUE(Eventually([&] { return Stopped(replica_pid(i)); }));
}

void TestCluster::SignalAllReplicas(int signal) const {
  for (uint32_t i = 0; i < replicas(); ++i) SignalReplica(i, signal);
}

void TestCluster::Kill(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  ASSERT_GE(fd, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  pollfd gone{fd, POLLIN, 0};
  EXPECT_EQ(poll(&gone, 1, 300000), 1);
  close(fd);
}

void TestCluster::KillReplica(uint32_t i) {
  Kill(replica_pid(i));
  // Until the RNIC daemon notices the end of a process, its queue pairs go on to work. The daemon
  // serves events in the order in which they happened: when it opens a device, it has noticed.
  static_cast<void>(OpenDevice());
}
void TestCluster::KillRnicd() {
  if (rnicd_.pid() > 0) {
    rnicd_.Kill();
  } else {
    Kill(rnicd_pid());
  }
}

Status TestCluster::Restart() {
  rnicd_.Kill();  // the cluster does not know it
  HL_ASSIGN_OR_RETURN(info_, StartCluster(options_));
  return {};
}

bool TestCluster::Runs() const {
  const Result<ClusterInfo> now = ReadCluster(info_.directory);
  if (!now.ok() || now->processes.size() != info_.processes.size()) return false;
  for (size_t i = 0; i < info_.processes.size(); ++i) {
    if (now->processes[i].state != ProcessState::kRunning ||
        now->processes[i].pid != info_.processes[i].pid ||
        now->processes[i].listen != info_.processes[i].listen)
      return false;
  }
  return true;
}

Status TestCluster::AddReplica() {
  ++options_.replicas;
  return Restart();
}

std::string TestCluster::Ctl(const std::string& arguments) const {
  const std::string output = info_.directory + "/hyperloopctl.log";
  const std::string command =
      ProgramPath("hyperloopctl") + " " + arguments + " >" + output + " 2>&1";
  const int exit_status = std::system(command.c_str());
  std::ifstream in(output);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  unlink(output.c_str());
  return exit_status == 0 ? "" : command + ": " + text;
}

std::string TestCluster::Reset() const { return Ctl("reset --yes --uri '" + uri() + "'"); }

Status TestCluster::Empty() const {
  StoreOptions options = Options();
  options.restore = options.rebind = true;  // the group may hold files, which are to be removed
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(options, nullptr));
  TakeRequest request;
  request.directory = folder_ + "/nowhere";
  TakeResult taken;
  HL_RETURN_IF_ERROR(store->Take(request, &taken));
  for (const FileInfo& file : taken.files) HL_RETURN_IF_ERROR(store->Remove(file.name));
  HL_RETURN_IF_ERROR(store->Close());
  // Replicas drop files while a primary serves, and keep those for good that they set aside.
  for (uint32_t i = 0; i < replicas(); ++i) {
    const std::string files = pool(i) + ".files";
    if (!std::filesystem::exists(files)) continue;
    std::vector<std::filesystem::path> left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(files))
      if (!entry.is_directory()) left.push_back(entry.path());
    for (const std::filesystem::path& file : left) std::filesystem::remove(file);
  }
  return {};
}

std::string TestCluster::Resize(uint64_t region_size, uint32_t table_capacity) {
  if (Status stopped = StopCluster(info_.directory).status(); !stopped.ok())
    return stopped.ToString();
  // The primary's pool lies beside the cluster's directory.
  for (const std::string& where :
       {"--dir " + info_.directory, "--pool " + folder_ + "/primary.pool"}) {
    const std::string failed =
        Ctl("resize " + where + " --region-size " + std::to_string(region_size) +
            " --table-capacity " + std::to_string(table_capacity));
    if (!failed.empty()) return failed;
  }
  options_.region_size = region_size;
  const Status started = Restart();
  return started.ok() ? "" : started.ToString();
}

void TestCluster::RestartRnicd() {
  unlink(info_.socket.c_str());
  rnicd_ = ChildProcess::Spawn({ProgramPath("hyperloop-rnicd"), "--socket", info_.socket,
                                "--spin-us", "0", "--priority", "none"});
  EXPECT_EQ(rnicd_.ReadLine().substr(0, 5), "ready");
}

Result<std::unique_ptr<rnic::Device>> TestCluster::OpenDevice(const std::string& host) const {
  return softrnic::OpenDaemonDevice({info_.socket, host});
}

Result<NodeStatus> TestCluster::ReplicaStatus(uint32_t i) const {
  HL_ASSIGN_OR_RETURN(const auto device, OpenDevice());
  HL_ASSIGN_OR_RETURN(const auto view, NodeView::Connect(*device, process(i).name));
  return view->ReadStatus();
}

Result<RegionImage> TestCluster::ReplicaImage(uint32_t i) const {
  HL_ASSIGN_OR_RETURN(const auto device, OpenDevice());
  HL_ASSIGN_OR_RETURN(const auto view, NodeView::Connect(*device, process(i).name));
  return view->Snapshot();
}

Result<std::vector<std::byte>> TestCluster::ReplicaRegion(uint32_t i) const {
  HL_ASSIGN_OR_RETURN(const auto device, OpenDevice());
  HL_ASSIGN_OR_RETURN(const auto view, NodeView::Connect(*device, process(i).name));
  std::vector<std::byte> bytes(view->region_size());
  HL_RETURN_IF_ERROR(view->Read(0, bytes));
  return bytes;
}

std::optional<uint64_t> TestCluster::FirstDifferenceInUse(std::span<const std::byte> a,
                                                          std::span<const std::byte> b) const {
  const Result<NodeStatus> status = ReplicaStatus(0);
  EXPECT_TRUE(status.ok()) << status.status().ToString();
  return status.ok() ? FirstDifference(a, b, status->in_use) : 0;
}

}  // namespace hyperloop::test
