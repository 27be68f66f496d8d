#include "cluster/starter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "cluster/network.h"
#include "cluster/process.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::cluster {
namespace {

namespace fs = std::filesystem;

// Whether a process could listen on 127.0.0.1:port now.
bool PortIsFree(uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return true;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// A port on which nobody listens, and which the kernel gives to no connection. A group records its
// replicas' addresses, so a replica that is started again must find its port free; one of those
// that the kernel gives out may be some connection's by then. 0: there is none; the kernel chooses.
uint16_t LastingPort() {
  constexpr uint16_t kFirst = 10'000;
  uint16_t given_out = 0;  // from here on
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> given_out;
  if (given_out <= kFirst) return 0;
  std::random_device random;
  std::uniform_int_distribution<uint16_t> any(kFirst, static_cast<uint16_t>(given_out - 1));
  for (int tries = 0; tries < 100; ++tries) {
    const uint16_t port = any(random);
    if (PortIsFree(port)) return port;
  }
  return 0;
}

}  // namespace

Starter::~Starter() {
  if (done_) return;
  for (auto process = started_.rbegin(); process != started_.rend(); ++process) {
    Terminate(process->id, kEndPatience, options_.waiting).status().IgnoreError();
    ::unlink(paths_.Pid(process->name).c_str());
  }
}

Status Starter::Run() {
  HL_ASSIGN_OR_RETURN(programs_, options_.programs.empty()
                                     ? ProgramFolder()
                                     : Result<std::string>(options_.programs));
  if (file_.provider == "softrnic") HL_RETURN_IF_ERROR(StartDaemons());
  for (ClusterFile::Replica& replica : file_.replicas) HL_RETURN_IF_ERROR(StartReplica(&replica));
  for (const Started& process : started_) HL_RETURN_IF_ERROR(AwaitReady(process));
  HL_RETURN_IF_ERROR(SaveClusterFile(file_, paths_.Description()));
  done_ = true;
  return Status::Ok();
}

Status Starter::Start(const std::string& name, const char* program,
                      std::vector<std::string> arguments, const std::string& node,
                      ClusterFile::Replica* replica) {
  SpawnOptions spawn;
  spawn.argv = std::move(arguments);
  spawn.argv.insert(spawn.argv.begin(), programs_ + "/" + program);
  spawn.log = paths_.Log(name);
  spawn.pid_file = paths_.Pid(name);
  spawn.die_with_caller = options_.die_with_caller;
  if (replica != nullptr) spawn.cpu = options_.replica_cpu;
  UniqueFd network;
  if (file_.network && node != kPrimaryNode) {
    HL_ASSIGN_OR_RETURN(network, OpenNode(*file_.network, node));
    spawn.network = network.get();
  }
  std::error_code error;
  const uint64_t log_size = fs::file_size(spawn.log, error);
  Result<ProcessId> id = Spawn(spawn);
  if (!id.ok()) return id.status().WithContext("starting " + name);
  started_.push_back({name, *id, error ? 0 : log_size, replica});
  return Status::Ok();
}

Status Starter::StartDaemons() {
  std::vector<std::string> served;
  for (const ClusterFile::Replica& replica : file_.replicas) served.push_back(replica.name);
  if (!file_.network) return StartDaemon(kPrimaryDaemon, kPrimaryNode, served);
  HL_RETURN_IF_ERROR(StartDaemon(kPrimaryDaemon, kPrimaryNode, {}));
  for (const std::string& replica : served)
    HL_RETURN_IF_ERROR(StartDaemon(DaemonOf(file_, replica), replica, {replica}));
  return Status::Ok();
}

// The queues of replicas die with their daemon, so those that it served start again, on their
// pools.
Status Starter::StartDaemon(const std::string& name, const std::string& node,
                            const std::vector<std::string>& served) {
  HL_ASSIGN_OR_RETURN(const ClusterProcess daemon, Look(paths_, name));
  if (daemon.state != ProcessState::kDead) return Status::Ok();
  for (const std::string& replica : served) {
    const Result<ProcessId> id = ReadPidFile(paths_.Pid(replica));
    if (!id.ok()) continue;
    HL_RETURN_IF_ERROR(Terminate(*id, kEndPatience, options_.waiting).status());
  }
  ::unlink(paths_.Socket(name).c_str());
  HL_RETURN_IF_ERROR(Start(name, "hyperloop-rnicd", DaemonArguments(name, node), node, nullptr));
  return AwaitReady(started_.back());
}

std::vector<std::string> Starter::DaemonArguments(const std::string& name,
                                                  const std::string& node) const {
  std::vector<std::string> arguments{"--socket", paths_.Socket(name)};
  const auto add = [&arguments](const char* option, std::string value) {
    arguments.insert(arguments.end(), {option, std::move(value)});
  };
  // Daemons that spin take the processors from each other, and there are as many as nodes.
  const int spin_us = options_.spin_us < 0 && file_.network ? 0 : options_.spin_us;
  if (spin_us >= 0) add("--spin-us", std::to_string(spin_us));
  if (options_.cpu >= 0) add("--cpu", std::to_string(options_.cpu));
  if (!options_.priority.empty()) add("--priority", options_.priority);
  if (file_.network) {
    add("--listen", NodeAddress(*file_.network, node) + ":" + std::to_string(kLinkPort));
    add("--peers-file", paths_.Peers());
    add("--keys", paths_.Keys());
  }
  return arguments;
}

Status Starter::StartReplica(ClusterFile::Replica* replica) {
  HL_ASSIGN_OR_RETURN(const ClusterProcess before, Look(paths_, replica->name));
  if (before.state != ProcessState::kDead) return Status::Ok();
  const size_t colon = replica->listen.rfind(':');
  const int port = std::atoi(replica->listen.c_str() + colon + 1);
  // Nobody else listens in a node of its own.
  if (!file_.network && (port == 0 || !PortIsFree(static_cast<uint16_t>(port))))
    replica->listen = "127.0.0.1:" + std::to_string(LastingPort());
  std::vector<std::string> arguments{"--pool",   paths_.Pool(replica->name),
                                     "--size",   std::to_string(file_.region_size),
                                     "--listen", replica->listen,
                                     "--media",  file_.media,
                                     "--keys",   paths_.Keys()};
  if (file_.provider == "softrnic") {
    arguments.insert(arguments.end(), {"--device", paths_.Socket(DaemonOf(file_, replica->name)),
                                       "--host", replica->name});
  } else {
    arguments.insert(arguments.end(), {"--provider", file_.provider});
    if (!file_.device.empty()) arguments.insert(arguments.end(), {"--device", file_.device});
  }
  return Start(replica->name, "hyperloop-replica", std::move(arguments), replica->name, replica);
}

Status Starter::AwaitReady(const Started& process) {
  Result<std::string> line = AwaitLine(paths_.Log(process.name), process.log_start, "ready",
                                       process.id, options_.start_timeout, options_.waiting);
  if (!line.ok()) return line.status().WithContext("starting " + process.name);
  if (process.replica == nullptr) return Status::Ok();
  const size_t space = line->find(' ');
  const std::string listen = space == std::string::npos ? "" : line->substr(space + 1);
  if (listen.find(':') == std::string::npos) {
    return Internal(process.name + " said '" + *line + "' instead of 'ready HOST:PORT'");
  }
  process.replica->listen = listen;
  return Status::Ok();
}

}  // namespace hyperloop::cluster
