// hyperloop-rnicd: the software RNIC of one machine, for any number of emulated hosts and client
// processes. Exit status 0 after SIGTERM or SIGINT, 1 after an error, 2 for wrong usage.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/steady_ns.h"
#include "hyperloop/command_line/command_line.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/log_level.h"
#include "hyperloop/core/ready.h"
#include "hyperloop/core/rnic_daemons.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "hyperloop/metrics/server.h"
#include "softrnic/daemon/client_server.h"
#include "softrnic/daemon/daemon_metrics.h"
#include "softrnic/daemon/flush_threads.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/engine/engine.h"
#include "softrnic/loop/engine_loop.h"

namespace hyperloop::softrnic {
namespace {

constexpr int kNice = -20;  // of the data thread with --priority nice

struct Options {
  std::string socket;
  uint32_t spin_us = 50;
  std::string cpu = "auto";
  std::string priority = "nice";
  LinkArguments links;
  uint32_t prefetch = 8;
  ClientLimits client;
  uint64_t client_table_mib = ClientLimits{}.table_bytes >> 20;
  uint64_t client_mapped_gib = ClientLimits{}.mapped_bytes >> 30;
  ClientServerLimits control;
  metrics::ServerOptions metrics;
  std::string log_level = "info";
};

// For the signal handlers; set before they are installed.
Engine* g_engine = nullptr;
ClientServer* g_server = nullptr;

void OnStopSignal(int) {
  const int saved = errno;
  g_server->Stop();
  errno = saved;
}

// A client truncated a file under the engine. A fault in other memory ends the process with a core.
void OnBusError(int, siginfo_t* info, void*) {
  if (!g_engine->HandleFault(info->si_addr)) signal(SIGBUS, SIG_DFL);
}

void InstallHandlers() {
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// "another hyperloop-rnicd", with its process if that is known (above 0).
std::string OtherDaemon(pid_t pid) {
  return "another hyperloop-rnicd" +
         (pid > 0 ? " (process " + std::to_string(pid) + ")" : std::string());
}

// Two threads that spin on one CPU only take it from each other. Claims `cpu` for the life of this
// process. If another daemon of this user, pinned to it like this one, spins there, returns who
// does.
std::string ClaimCpuForSpinning(int cpu) {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  const std::string path = std::string(runtime != nullptr ? runtime : "/tmp") +
                           "/hyperloop-rnicd-" + std::to_string(getuid()) + "-cpu" +
                           std::to_string(cpu) + ".lock";
  Result<UniqueFd> fd = OpenTrustedFile(path, O_RDWR | O_CREAT, 0600);
  if (!fd.ok()) return "";  // the lock file is unusable, or others hold it to slow this daemon
  if (flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    char text[32] = "";
    if (read(fd->get(), text, sizeof text - 1) < 0) text[0] = '\0';
    return OtherDaemon(std::atoi(text));
  }
  // For the message of the next one.
  if (ftruncate(fd->get(), 0) == 0) dprintf(fd->get(), "%d\n", static_cast<int>(getpid()));
  fd->Release();  // it stays open
  return "";
}

// A daemon that keeps to this processor, of any user; empty: none that can be seen.
std::string DaemonPinnedTo(int cpu) {
  for (const PinnedDaemon& daemon : PinnedDaemons())
    if (daemon.cpu == cpu && daemon.pid != getpid()) return OtherDaemon(daemon.pid);
  return "";
}

// The last processor this process may use, so that the first ones are left to the host's programs;
// −1 (not pinned) if it is the only one, if another daemon has it, or where a filter of system
// calls does not let a thread be pinned.
int AutomaticCpu(Log& log) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return -1;
  if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) {  // changes nothing
    log.Write(LogLevel::kWarn,
              std::string("no permission to pin the data thread (sched_setaffinity: ") +
                  std::strerror(errno) +
                  "): going on unpinned, programs may wake the RNIC on their own processor");
    return -1;
  }
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  const std::string other = ClaimCpuForSpinning(last);
  if (other.empty()) return last;
  log.Write(LogLevel::kWarn, other + " spins on processor " + std::to_string(last) +
                                 ": this one is not pinned, and each may delay the other");
  return -1;
}

// The processor that --cpu names; −1: not pinned. Clears `spin_us` if another daemon spins there,
// and says if another one keeps to it.
int ChooseCpu(const std::string& text, uint32_t* spin_us, Log& log) {
  if (text == "none") return -1;
  if (text == "auto") return *spin_us > 0 ? AutomaticCpu(log) : -1;
  const int cpu = std::atoi(text.c_str());  // which the command line has checked
  std::string other = *spin_us > 0 ? ClaimCpuForSpinning(cpu) : "";
  if (!other.empty()) {
    log.Write(LogLevel::kWarn, other + " spins on processor " + text +
                                   ": this one will not spin, and each delays the other");
    *spin_us = 0;
  } else if (other = DaemonPinnedTo(cpu); !other.empty()) {
    log.Write(LogLevel::kWarn,
              other + " keeps to processor " + text + ", too: each delays the other");
  }
  return cpu;
}

Status PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    return FromErrno(errno, "--cpu " + std::to_string(cpu) + " (see nproc and taskset -p $$)");
  }
  return {};
}

// Sets the calling thread's priority. Lack of permission is a warning: the RNIC works without it,
// but with less even latency.
void SetPriority(const std::string& priority, Log& log) {
  if (priority == "nice") {
    if (setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice) != 0) {
      log.Write(LogLevel::kWarn,
                "no permission for nice -20 (CAP_SYS_NICE or ulimit -e): going on at normal "
                "priority, other programs may delay the RNIC");
    }
  } else if (priority == "fifo") {
    const sched_param param{.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0) {
      log.Write(LogLevel::kWarn,
                "no permission for SCHED_FIFO (CAP_SYS_NICE or ulimit -r): going on at normal "
                "priority");
    }
  }
}

void TellOfLinks(const LinkOptions& options, const std::string& listening, Log& log) {
  if (options.keys == nullptr) {
    log.Write(LogLevel::kWarn,
              "--insecure: links prove nothing and hide nothing; every user and program of this "
              "machine can read and write the regions of its hosts" +
                  (listening.empty() ? "" : " at " + listening));
    return;
  }
  log.Write(LogLevel::kInfo, "links as " + options.keys->name() + ", key " +
                                 identity::KeyText(options.keys->public_key()) +
                                 (listening.empty() ? "" : ", at " + listening));
}

// The number of mappings that the kernel allows this process, less those for its own needs: a page
// for each connection, stacks, tables, and what replaces lost pages of truncated files. If all are
// in use nevertheless, clients are refused or ended.
uint32_t MostMappings() {
  uint32_t all = 0;
  if (FILE* const file = std::fopen("/proc/sys/vm/max_map_count", "re")) {
    if (std::fscanf(file, "%u", &all) != 1) all = 0;
    std::fclose(file);
  }
  return all == 0 ? 32768 : all - all / 4;
}

Status Serve(const Options& options, const std::shared_ptr<Log>& log) {
  RaiseDescriptorLimit();
  EngineLoopOptions loop_options{.spin_us = options.spin_us};
  const int cpu = ChooseCpu(options.cpu, &loop_options.spin_us, *log);
  loop_options.cpu = cpu;
  loop_options.allow_guests = options.priority != "fifo";
  HL_ASSIGN_OR_RETURN(LinkOptions link_options, MakeLinkOptions(options.links));
  link_options.ciphers = identity::OpenSslCiphers();
  std::unique_ptr<LinkServer> links;  // the engine's port: outlives it
  ClientLimits limits = options.client;
  limits.table_bytes = options.client_table_mib << 20;
  limits.mapped_bytes = options.client_mapped_gib << 30;
  limits.all_mappings = MostMappings();
  FlushThreads flushes;
  Engine engine{EngineOptions{.prefetch_depth = options.prefetch,
                              .flusher = &flushes,
                              .now_ns = SteadyNs,
                              .limits = limits}};
  HL_ASSIGN_OR_RETURN(auto loop, EngineLoop::Create(&engine, loop_options));
  HL_ASSIGN_OR_RETURN(
      auto server, ClientServer::Listen(options.socket, &engine, loop.get(), log, options.control));
  if (link_options.any() || link_options.later.has_value()) {
    HL_ASSIGN_OR_RETURN(links, LinkServer::Create(link_options, &engine, log));
    server->ShowLinks(links.get());
  }
  if (link_options.later.has_value()) {
    log->Write(LogLevel::kInfo, "no links yet: the keys in " + options.links.node +
                                    " are not there, or do not point to a file of hosts; "
                                    "hyperloopctl node init makes both");
  } else if (links != nullptr) {
    TellOfLinks(link_options, links->listening(), *log);
    if (!link_options.warning.empty()) log->Write(LogLevel::kWarn, link_options.warning);
  }
  DaemonMetrics page(engine, *loop, links.get(), HYPERLOOP_VERSION);
  std::unique_ptr<metrics::Server> metrics_server;
  if (!options.metrics.address.empty()) {
    HL_ASSIGN_OR_RETURN(metrics_server, metrics::Server::Start(
                                            options.metrics, [&page] { return page.Get(); }, *log));
  }
  g_engine = &engine;
  g_server = server.get();
  InstallHandlers();

  // The control thread ends the loop, so that no command and no request for metrics waits for a
  // loop that has ended.
  std::thread control([&] {
    server->Run();
    metrics_server.reset();
    loop->Stop();
  });
  if (links != nullptr)
    links->Start(loop.get(), options.priority == "nice" ? std::optional(kNice) : std::nullopt);
  flushes.Start([&loop] { loop->Wake(); }, [unmap = server->unmap_queue()] { unmap->Drain(); });
  // These are set after the threads were made, which would inherit both.
  Status status = cpu >= 0 ? PinTo(cpu) : Status();
  if (status.ok()) {
    SetPriority(options.priority, *log);
    SayReady(options.socket);
  } else {
    server->Stop();
  }
  loop->Run();
  control.join();
  if (links != nullptr) links->Stop();
  flushes.Stop();
  loop->MarkPagesDead();
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  log->Write(LogLevel::kInfo, "stopped");
  return status;
}

void AddDataThread(CLI::App& app, Options& options) {
  app.add_option("--spin-us", options.spin_us,
                 "microseconds to look for work before sleeping; 0: sleep at once. Waking up costs "
                 "about 50 us")
      ->capture_default_str()
      ->check(CLI::Range(0u, 1000000u));
  app.add_option("--cpu", options.cpu,
                 "processor of the data thread: a number; auto: the last one, unless another "
                 "hyperloop-rnicd has it; none: not pinned")
      ->capture_default_str()
      ->check(Processor({"auto", "none"}))
      ->type_name("N|auto|none");
  app.add_option(
         "--priority", options.priority,
         "priority of the data thread: nice (nice -20), fifo (SCHED_FIFO; never spins) or none")
      ->capture_default_str()
      ->check(CLI::IsMember({"nice", "fifo", "none"}));
  app.add_option("--prefetch", options.prefetch,
                 "blocks of 64 B that are taken from a send queue ahead of their turn, as hardware "
                 "does, so that a program which rewrites them too late fails here too; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0u, 32u))
      ->type_name("N");
}

void AddLinks(CLI::App& app, Options& options) {
  app.add_option(
         "--listen", options.links.listen,
         "accept links from the daemons of other machines at this numeric address; port 0: "
         "any. Without it no port is open. Needs --keys, or --insecure and a loopback address")
      ->type_name("ADDRESS:PORT");
  app.add_option("--peer", options.links.peers,
                 "the daemon that emulated host HOST is attached to; repeat it for every host of "
                 "the group. This daemon's own hosts may be among them")
      ->type_name("HOST=ADDRESS:PORT");
  app.add_option("--peers-file", options.links.peers_file,
                 "a file of HOST=ADDRESS:PORT lines, the same on every machine; # begins a comment "
                 "line. It is read again when it has changed")
      ->type_name("FILE");
  app.add_option("--keys", options.links.keys_dir,
                 "this host's keys directory (hyperloopctl keys init): both ends of a link prove "
                 "who they are, must be trusted with the role link, and encrypt what passes")
      ->type_name("DIR");
  app.add_option(
         "--node", options.links.node,
         "the folder of this host's keys, its file of hosts and its groups. Once hyperloopctl node "
         "init has made keys there, they are used, peers and trust follow from the file of hosts, "
         "and links are accepted at the address that it has for this host, port 7471")
      ->type_name("DIR");
  app.add_flag("--insecure", options.links.insecure,
               "links without keys, between loopback addresses only: for emulation on a machine "
               "without other users");
}

// Bounds of one client, which is one process, so that others have room. A refusal names the option.
void AddLimits(CLI::App& app, Options& options) {
  const auto limit = [&app](const char* name, auto& value, auto most, const char* what) {
    using Number = std::remove_reference_t<decltype(value)>;
    app.add_option(name, value, what)
        ->capture_default_str()
        ->check(CLI::Range(Number{1}, static_cast<Number>(most)))
        ->type_name("N")
        ->group("Limits");
  };
  limit("--connections", options.control.connections, 1u << 20, "connections of all processes");
  limit("--client-connections", options.control.client_connections, 1u << 20,
        "connections of one process");
  limit("--client-queue-pairs", options.client.queue_pairs, 16383u,
        "queue pairs of one process (512 of one connection)");
  limit("--client-completion-queues", options.client.completion_queues, 16383u,
        "completion queues of one process");
  limit("--client-memory-keys", options.client.memory_keys, 1u << 20, "memory keys of one process");
  limit("--client-mappings", options.client.mappings, 1u << 20,
        "registered pieces of memory of one process");
  limit("--client-mapped-gib", options.client_mapped_gib, 1u << 16, "GiB of these pieces together");
  limit("--client-table-mib", options.client_table_mib, 1u << 20,
        "MiB for the tables of one process's queues: 1/64 of each piece of memory that has some");
  limit("--client-faults", options.client.faults, 1u << 20,
        "faults in truncated files of one process that are mended; one more ends it for good");
  limit("--client-command-percent", options.control.client_command_percent, 100u,
        "share of the data thread's time that one process's commands may take; more of them wait");
}

// A SCHED_FIFO thread does not spin. Refused: the options ask for both.
void SettleSpinning(const CLI::App& app, Options& options) {
  if (options.priority != "fifo") return;
  if (app.count("--spin-us") > 0 && options.spin_us > 0) {
    throw CLI::ValidationError(
        "--priority fifo with --spin-us",
        "a spinning SCHED_FIFO thread stalls for 50 ms each second; leave out one of them");
  }
  options.spin_us = 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "The software RNIC: executes the work queues of client processes for every emulated host of "
      "this machine.\nRuns in the foreground until SIGTERM or SIGINT; prints \"ready SOCKET\" on "
      "stdout, and tells systemd, when it accepts clients.");
  app.name("hyperloop-rnicd");
  app.set_version_flag("--version", "hyperloop-rnicd " HYPERLOOP_VERSION);
  app.add_option(
         "--socket", options.socket,
         "Unix socket to listen at; mode 0600, for this user's processes (and root's) only. "
         "Nobody else may be able to replace it: its directory and those above are this "
         "user's or root's, and sticky where others may write")
      ->required()
      ->type_name("PATH");
  AddDataThread(app, options);
  AddLinks(app, options);
  AddLimits(app, options);
  AddMetrics(app, &options.metrics);
  AddLogLevel(app, &options.log_level);
  AddConfig(app);
  AddHelpJson(app);
  const auto status_to_exit_with =
      ParseCommandLine(app, argc, argv, [&] { SettleSpinning(app, options); });
  if (status_to_exit_with) return *status_to_exit_with;
  const std::shared_ptr<Log> log = StderrLog("hyperloop-rnicd", LogLevelOf(options.log_level));
  const Status status = Serve(options, log);
  if (status.ok()) return 0;
  log->Write(LogLevel::kError, status.ToString());
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::softrnic

int main(int argc, char** argv) { return hyperloop::softrnic::Main(argc, argv); }
