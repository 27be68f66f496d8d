// hyperloop-replica: exit status 0 after SIGTERM or SIGINT, 1 after an error, 2 for wrong usage.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/end_signals.h"
#include "hyperloop/command_line/command_line.h"
#include "hyperloop/core/log_level.h"
#include "options/node_group.h"
#include "options/size_option.h"
#include "replica/replica_program.h"

namespace {

constexpr char kInstance[] = "--instance";

// Refuses options that the provider does not have, and demands those that it needs.
void CheckDevice(const CLI::App& app, const hyperloop::DeviceChoice& device) {
  if (app.count("--group") != 0) return;
  const bool soft = device.provider == "softrnic";
  for (const char* name : {"--device", "--host"}) {
    if (soft && app.count(name) == 0) throw CLI::RequiredError(name);
  }
  for (const char* name : {"--gid-index", "--mtu", "--traffic-class"}) {
    if (soft && app.count(name) != 0) {
      throw CLI::ValidationError(name, "is for --provider verbs only");
    }
  }
  if (!soft && app.count("--host") != 0) {
    throw CLI::ValidationError("--host", "is for --provider softrnic only");
  }
}

void AddPoolOptions(CLI::App& app, hyperloop::ReplicaOptions* options) {
  app.add_option("--pool", options->pool,
                 "path of the PMDK pool; made when absent. Required without --group")
      ->type_name("PATH");
  app.add_option("--size", options->size,
                 "bytes of the region (K, M, G), 4M to 15G; needed to make the pool")
      ->transform(hyperloop::SizeFrom(hyperloop::kMinRegionSize, hyperloop::kMaxRegionSize))
      ->type_name("BYTES");
  app.add_option("--files", options->files,
                 "directory for SST and blob files; made when absent; default: POOL.files")
      ->type_name("DIR");
  app.add_option("--media", options->media,
                 "what a flush does: pmem flushes CPU caches, file calls msync, ram nothing; auto: "
                 "what fits the pool's place. One that the place cannot keep is refused; "
                 "NAME-emulated runs it anyway, and promises what ram does")
      ->check(CLI::IsMember({"auto", "ram", "file", "pmem", "file-emulated", "pmem-emulated"}))
      ->capture_default_str();
}

void AddDeviceOptions(CLI::App& app, hyperloop::DeviceChoice* device) {
  app.add_option("--provider", device->provider, "kind of RDMA device: softrnic or verbs")
      ->check(CLI::IsMember({"softrnic", "verbs"}))
      ->capture_default_str();
  app.add_option("--device", device->device,
                 "softrnic: socket of hyperloop-rnicd; verbs: NAME or NAME:PORT, by default the "
                 "first with an active port")
      ->type_name("PATH|NAME");
  app.add_option("--host", device->host, "softrnic: name of the emulated host to attach to")
      ->type_name("NAME");
  app.add_option("--gid-index", device->gid_index, "verbs: which address of the device")
      ->check(CLI::Range(0, 255));
  app.add_option("--mtu", device->mtu, "verbs: bytes of payload in a packet")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--traffic-class", device->traffic_class, "verbs: traffic class of the packets")
      ->check(CLI::Range(0, 255));
}

void AddServiceOptions(CLI::App& app, hyperloop::ReplicaOptions* options) {
  app.add_option("--listen", options->listen,
                 "HOST:PORT of the control endpoint; port 0: a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--bulk-listen", options->bulk_listen,
                 "HOST:PORT where SST and blob files arrive; default: a free port of --listen's "
                 "host")
      ->type_name("HOST:PORT");
  app.add_option("--keys", options->keys,
                 "keys directory of this host (hyperloopctl keys), which says who it is and which "
                 "primaries may use this replica; it is read again when it changes")
      ->type_name("DIR");
  app.add_flag("--insecure", options->insecure,
               "without keys: serve whoever connects on this machine, of any user; for tests")
      ->excludes("--keys");
  app.add_option(
         "--datapath-cpu", options->datapath_cpu,
         "processor for the forwarding thread of datapaths cpu-polling and cpu-event; the primary "
         "chooses the datapath; default: any")
      ->check(hyperloop::Processor())
      ->type_name("N");
}

// Which group of this host's files the replica is of. What they say is not said besides.
void AddGroup(CLI::App& app, std::string* group) {
  CLI::Option* const option =
      app.add_option("--group", *group,
                     "the group of this name in this host's files (/etc/hyperloop, or the folder "
                     "that HYPERLOOP_NODE names): addresses, keys, host and, where they are not "
                     "given, pool and device are what the file groups/NAME.conf says, or leads to")
          ->type_name("NAME");
  for (const char* decided :
       {"--size", "--media", "--listen", "--bulk-listen", "--keys", "--insecure", "--provider",
        "--host", "--gid-index", "--mtu", "--traffic-class"})
    option->excludes(app.get_option(decided));
  app.add_option_function<std::string>(
         kInstance, [](const std::string&) {},
         "alone: what the service hyperloop-replica@NAME is. The options are those of the file "
         "replica@NAME.conf in /etc/hyperloop, if there is one, else --group NAME")
      ->configurable(false)
      ->type_name("NAME");
}

// The arguments, with those that --instance NAME alone stands for.
std::vector<std::string> Resolved(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (argc == 2 && words[1].starts_with(kInstance) && words[1].find('=') == strlen(kInstance)) {
    words = {words[0], kInstance, words[1].substr(strlen(kInstance) + 1)};
  }
  if (words.size() != 3 || words[1] != kInstance) return words;
  std::vector<std::string> resolved{words[0]};
  for (std::string& each : hyperloop::InstanceArguments("replica", words[2]))
    resolved.push_back(std::move(each));
  return resolved;
}

// The pool is mapped, so a page that its disk cannot read, or that was cut off the file, is a
// signal. The process ends as in a crash.
void OnBusError(int) {
  constexpr std::string_view kWhy =
      "hyperloop-replica: the pool cannot be read (SIGBUS): look for a failing disk in the "
      "kernel's log (dmesg), or a truncated file; if it is so after a restart, too, set the pool "
      "aside, start the replica with a fresh one, and open the database with "
      "on_replica_failure=continue\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kWhy.data(), kWhy.size());
  signal(SIGBUS, SIG_DFL);
}

void Check(const CLI::App& app, const hyperloop::ReplicaOptions& options) {
  if (app.count(kInstance) != 0)
    throw CLI::ValidationError(kInstance, "stands alone: leave the others out, or say --group");
  if (app.count("--group") == 0 && options.pool.empty()) throw CLI::RequiredError("--pool");
  CheckDevice(app, options.device);
}

hyperloop::Status TakeFiles(const std::string& name, hyperloop::ReplicaOptions* options) {
  HL_ASSIGN_OR_RETURN(const hyperloop::NodeGroup group, hyperloop::ReadNodeGroup(name));
  return hyperloop::TakeGroup(group, options);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "One replica of a HyperLoop group: holds a copy of the region in a PMDK pool, arms its RNIC, "
      "and sleeps while the RNIC replicates."};
  hyperloop::ReplicaOptions options;
  AddPoolOptions(app, &options);
  AddServiceOptions(app, &options);
  AddDeviceOptions(app, &options.device);
  std::string log_level = "info", group;
  AddGroup(app, &group);
  hyperloop::AddMetrics(app, &options.metrics);
  hyperloop::AddLogLevel(app, &log_level);
  hyperloop::AddConfig(app);
  app.name("hyperloop-replica");
  app.set_version_flag("--version", "hyperloop-replica " HYPERLOOP_VERSION);
  hyperloop::AddHelpJson(app);
  std::vector<std::string> words = Resolved(argc, argv);
  std::vector<char*> pointers;
  for (std::string& each : words) pointers.push_back(each.data());
  const auto status_to_exit_with = hyperloop::ParseCommandLine(
      app, static_cast<int>(pointers.size()), pointers.data(), [&] { Check(app, options); });
  if (status_to_exit_with) return *status_to_exit_with;
  if (!group.empty()) {
    const hyperloop::Status taken = TakeFiles(group, &options);
    if (!taken.ok()) {
      std::fprintf(stderr, "hyperloop-replica: %s\n", taken.message().c_str());
      return 1;  // another try helps once the files are mended
    }
  }

  hyperloop::BlockEndSignals();
  signal(SIGBUS, OnBusError);
  const auto log = hyperloop::StderrLog("hyperloop-replica", hyperloop::LogLevelOf(log_level));
  const hyperloop::Status status = hyperloop::RunReplica(options, log);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-replica: %s\n", status.message().c_str());
  // What the files say may be mended, and another try helps then.
  return status.code() == hyperloop::Code::kInvalidArgument && group.empty() ? 2 : 1;
}
