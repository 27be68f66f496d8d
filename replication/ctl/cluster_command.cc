// hyperloopctl cluster start | status | remove | stop | destroy
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/command_line/command_line.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/options.h"
#include "options/size_option.h"
#include "region/region_layout.h"

namespace hyperloop::ctl {
namespace {

void PrintProcesses(const ClusterInfo& info) {
  std::printf("%-14s %-8s %8s  %-21s %s\n", "process", "state", "pid", "listens on", "log");
  for (const ClusterProcess& process : info.processes) {
    const std::string pid = process.pid == 0 ? "-" : std::to_string(process.pid);
    const std::string listen = process.listen.empty() ? "(socket)" : process.listen;
    std::printf("%-14s %-8s %8s  %-21s %s\n", process.name.c_str(),
                std::string(ProcessStateName(process.state)).c_str(), pid.c_str(), listen.c_str(),
                process.log.c_str());
  }
}

void PrintNetwork(const ClusterInfo& info) {
  if (info.network.empty()) return;
  std::printf("network: %s, namespaces %s-replica0 and so on (ip netns)%s\n", info.network.c_str(),
              info.network.c_str(), info.netem.empty() ? "" : (", netem " + info.netem).c_str());
}

// Whether a group that is made by the cluster's uri has room in its regions. An existing cluster
// keeps its size.
Status CheckRegionSize(const ClusterOptions& options) {
  const StoreOptions store;
  constexpr uint64_t kMiB = 1u << 20;
  const uint64_t least =
      (RegionGeometry::LeastRegion(store.journal_size, store.table_capacity, store.extent_size) +
       kMiB - 1) /
      kMiB * kMiB;
  if (options.region_size == 0 || options.region_size >= least ||
      ReadCluster(options.directory).ok())
    return {};
  return InvalidArgument(Text("give --region-size ", least / kMiB, "M or more: in ",
                              FormatSize(options.region_size), ", a journal of ",
                              FormatSize(store.journal_size),
                              ", the table of files and the least room for logs do not fit"));
}

// Waiting is said on stderr: the last line on stdout is the cluster's uri.
void SayOnStderr(const std::string& what) {
  std::fprintf(stderr, "hyperloopctl: %s\n", what.c_str());
}

int Start(ClusterOptions options) {
  options.waiting = SayOnStderr;
  if (const Status room = CheckRegionSize(options); !room.ok()) return Fail(room);
  const Result<ClusterInfo> info = StartCluster(options);
  if (!info.ok()) return Fail(info.status());
  std::printf("%s: %u of %zu processes started, %zu replicas with regions of %s, media=%s\n",
              info->directory.c_str(), info->started, info->processes.size(),
              info->replicas().size(), FormatSize(info->region_size).c_str(), info->media.c_str());
  PrintProcesses(*info);
  if (!info->added.empty())
    std::printf(
        "a group that has a database takes the new replica in at the next opening with "
        "&add_replica=%s\n",
        info->added.c_str());
  PrintNetwork(*info);
  std::printf("uri: %s\n", info->uri.c_str());
  return kExitOk;
}

int StatusOf(const std::string& directory, bool as_json) {
  const Result<ClusterInfo> info = ReadCluster(directory);
  if (!info.ok()) return Fail(info.status());
  if (as_json) {
    nlohmann::json json{{"directory", info->directory},
                        {"uri", info->uri},
                        {"region_size", info->region_size},
                        {"media", info->media},
                        {"provider", info->provider},
                        {"socket", info->socket},
                        {"network", info->network},
                        {"network_address", info->network_address},
                        {"netem", info->netem},
                        {"processes", nlohmann::json::array()}};
    for (const ClusterProcess& process : info->processes) {
      json["processes"].push_back({{"name", process.name},
                                   {"state", ProcessStateName(process.state)},
                                   {"pid", process.pid},
                                   {"listen", process.listen},
                                   {"pool", process.pool},
                                   {"socket", process.socket},
                                   {"log", process.log}});
    }
    // A directory's name may be no UTF-8. The uri, which is percent-encoded, has it exactly.
    using Handler = nlohmann::json::error_handler_t;
    std::printf("%s\n", json.dump(2, ' ', false, Handler::replace).c_str());
  } else {
    PrintProcesses(*info);
    if (!info->AllAlive()) {
      std::printf(
          "some processes are dead; hyperloopctl cluster start --dir %s completes the cluster\n",
          info->directory.c_str());
    }
    PrintNetwork(*info);
    std::printf("uri: %s\n", info->uri.c_str());
  }
  return info->AllAlive() ? kExitOk : kExitFailure;
}

int Remove(const std::string& directory, const std::string& replica) {
  const Result<ClusterInfo> info = RemoveReplica(directory, replica, kEndPatience, SayOnStderr);
  if (!info.ok()) return Fail(info.status());
  std::printf("%s: removed %s, %zu replicas are left; its pool stays\n", info->directory.c_str(),
              replica.c_str(), info->replicas().size());
  std::printf(
      "a group that has a database, and has it still, goes on without it after the next opening "
      "with &remove_replica=%s\n",
      info->removed.c_str());
  std::printf("uri: %s\n", info->uri.c_str());
  return kExitOk;
}

int Stop(const std::string& directory) {
  const Result<std::vector<std::string>> killed = StopCluster(directory, kEndPatience, SayOnStderr);
  if (!killed.ok()) return Fail(killed.status());
  for (const std::string& name : *killed) {
    std::printf("%s did not end on SIGTERM and was killed\n", name.c_str());
  }
  std::printf("stopped; the pools stay in %s (hyperloopctl cluster destroy removes them)\n",
              directory.c_str());
  return kExitOk;
}

// The paths without those in a directory that goes as a whole.
std::vector<std::string> Shortened(const std::vector<std::string>& paths) {
  std::vector<std::string> shown;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(shown), [&](const std::string& path) {
    const size_t slash = path.rfind('/', path.size() - 2);
    return slash == std::string::npos ||
           std::find(paths.begin(), paths.end(), path.substr(0, slash + 1)) == paths.end();
  });
  return shown;
}

std::string Listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void PrintContents(const ClusterContents& contents) {
  if (!contents.running.empty()) std::printf("to be ended: %s\n", Listed(contents.running).c_str());
  std::printf("to be removed from %s, %llu MiB:\n", contents.directory.c_str(),
              static_cast<unsigned long long>(contents.bytes >> 20));
  for (const std::string& path : Shortened(contents.made)) std::printf("  %s\n", path.c_str());
  if (!contents.others.empty())
    std::printf("not the cluster's, stays: %s\n", Listed(contents.others).c_str());
  std::fflush(stdout);
}

// kBusy: a primary serves its group.
Status CheckUnused(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(Where{directory, ""}));
  HL_ASSIGN_OR_RETURN(const std::string primary, nodes.LivingPrimary());
  if (primary.empty()) return Status::Ok();
  return Busy("the group is in use by " + primary + "; close its database first");
}

int Destroy(const std::string& directory, bool yes) {
  std::error_code error;
  if (!std::filesystem::exists(directory, error) && !error) {
    std::printf("%s does not exist; there is nothing to destroy\n", directory.c_str());
    return kExitOk;
  }
  const Result<ClusterContents> contents = ReadContents(directory);
  if (!contents.ok()) return Fail(contents.status());
  PrintContents(*contents);
  if (const Status unused = CheckUnused(directory); !unused.ok()) return Fail(unused);
  if (!yes) {
    return Fail(InvalidArgument(
        "destroy removes the cluster and the data in its pools; say --yes if that is meant"));
  }
  const Result<ClusterContents> removed = DestroyCluster(directory, kEndPatience, SayOnStderr);
  if (!removed.ok()) return Fail(removed.status());
  std::printf(removed->others.empty() ? "destroyed, and the directory is removed\n"
                                      : "destroyed; the directory stays, for what else is in it\n");
  return kExitOk;
}

void AddStart(CLI::App& cluster, Action* chosen) {
  auto options = std::make_shared<ClusterOptions>();
  CLI::App* start = cluster.add_subcommand(
      "start", "start the cluster, or what of it does not run; the last line printed is its uri");
  start
      ->add_option("--dir", options->directory,
                   "the cluster's directory; /dev/shm/… keeps pools in memory")
      ->type_name("DIR")
      ->required();
  start
      ->add_option("--replicas", options->replicas,
                   "length of the chain; one more than the cluster has adds a replica; default: as "
                   "the cluster has, 3 for a new one")
      ->type_name("N")
      ->check(CLI::Range(1, 8));
  start
      ->add_option("--region-size", options->region_size,
                   "bytes of each replica's region (K, M, G), 4M to 15G; default: as the cluster "
                   "has, 256M for a new one")
      ->transform(SizeFrom(kMinRegionSize, kMaxRegionSize))
      ->type_name("BYTES");
  start
      ->add_option(
          "--media", options->media,
          "what a flush does: pmem flushes CPU caches, file calls msync, ram nothing; auto, the "
          "default of a new cluster: what fits --dir. One that --dir cannot keep is refused; "
          "NAME-emulated runs it anyway, and promises what ram does")
      ->check(CLI::IsMember({"auto", "ram", "file", "pmem", "file-emulated", "pmem-emulated"}));
  start
      ->add_option("--provider", options->provider,
                   "softrnic, the default of a new cluster: a daemon emulates the nodes' RNICs; "
                   "verbs: one RDMA device of this machine serves all nodes, datapath fanout")
      ->check(CLI::IsMember({"softrnic", "verbs"}));
  start->add_option("--device", options->device, "verbs: NAME or NAME:PORT of the RDMA device")
      ->type_name("NAME");
  start->add_flag(
      "--hosts-apart", options->hosts_apart,
      "give each replica an RNIC daemon and a network namespace of its own, so that all "
      "between nodes passes through links; needs root, iproute2, bridges and veth");
  start
      ->add_option("--netem", options->netem,
                   "hosts apart: how what each node sends is delayed, limited or lost, in the "
                   "words of tc-netem(8): \"delay 100us rate 10gbit loss 0.1%\"; needs the "
                   "kernel's module sch_netem")
      ->type_name("WORDS");
  start->add_option("--spin-us", options->spin_us, "how long an idle RNIC daemon spins")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  start->add_option("--cpu", options->cpu, "processor to pin the RNIC daemon to")
      ->check(Processor())
      ->type_name("N");
  start
      ->add_option("--priority", options->priority,
                   "priority of the RNIC daemon's data thread: nice, fifo or none")
      ->check(CLI::IsMember({"nice", "fifo", "none"}));
  start->add_option("--replica-cpu", options->replica_cpu, "processor to bind every replica to")
      ->type_name("N")
      ->check(Processor());
  start->callback([=] { *chosen = [=] { return Start(*options); }; });
}

void AddStatusOf(CLI::App& cluster, Action* chosen) {
  auto directory = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* status =
      cluster.add_subcommand("status", "show its processes; exit status 1 unless all of them live");
  status->add_option("--dir", *directory, "the cluster's directory")->type_name("DIR")->required();
  status->add_flag("--json", *as_json, "as one JSON object");
  status->callback([=] { *chosen = [=] { return StatusOf(*directory, *as_json); }; });
}

void AddRemove(CLI::App& cluster, Action* chosen) {
  auto directory = std::make_shared<std::string>();
  auto replica = std::make_shared<std::string>();
  CLI::App* remove = cluster.add_subcommand(
      "remove",
      "end a replica and take it out of the cluster; its pool stays; the last line printed is the "
      "cluster's uri from then on");
  remove->add_option("--dir", *directory, "the cluster's directory")->type_name("DIR")->required();
  remove->add_option("--replica", *replica, "its name, or where it listens: HOST:PORT")
      ->type_name("NAME")
      ->required();
  remove->callback([=] { *chosen = [=] { return Remove(*directory, *replica); }; });
}

void AddStop(CLI::App& cluster, Action* chosen) {
  auto directory = std::make_shared<std::string>();
  CLI::App* stop = cluster.add_subcommand("stop", "end its processes; the pools stay");
  stop->add_option("--dir", *directory, "the cluster's directory")->type_name("DIR")->required();
  stop->callback([=] { *chosen = [=] { return Stop(*directory); }; });
}

void AddDestroy(CLI::App& cluster, Action* chosen) {
  auto directory = std::make_shared<std::string>();
  auto yes = std::make_shared<bool>(false);
  CLI::App* destroy = cluster.add_subcommand(
      "destroy",
      "end its processes and remove its pools and everything else that the cluster made, after "
      "saying what; files of others stay, and their directory; refused while a primary lives");
  destroy->add_option("--dir", *directory, "the cluster's directory")->type_name("DIR")->required();
  destroy->add_flag("--yes", *yes, "confirm that the data in its pools is to be removed");
  destroy->callback([=] { *chosen = [=] { return Destroy(*directory, *yes); }; });
}

}  // namespace

void AddCluster(CLI::App& app, Action* chosen) {
  CLI::App* cluster = app.add_subcommand(
      "cluster",
      "run an emulated cluster on this machine: several replicas and one RNIC daemon, or one for "
      "each");
  cluster->require_subcommand(1);
  AddStart(*cluster, chosen);
  AddStatusOf(*cluster, chosen);
  AddRemove(*cluster, chosen);
  AddStop(*cluster, chosen);
  AddDestroy(*cluster, chosen);
}

}  // namespace hyperloop::ctl
