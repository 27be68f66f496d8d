#include "cluster/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

namespace hyperloop::cluster {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr char kNamespaces[] = "/run/netns/";
constexpr char kReplica[] = "replica";
constexpr char kBridge[] = "bridge0";
constexpr char kCableEnd[] = "eth0";  // in a replica's node
constexpr int kSubnets = 256;
constexpr uint32_t kBenchmarkRange = 0xc6120000;  // 198.18.0.0/15, RFC 2544: for tests like these
constexpr size_t kNameDigits = 8;
constexpr size_t kMaxNetem = 200;

std::string Switch(const Network& network) { return network.name + "-switch"; }
std::string Namespace(const Network& network, const std::string& node) {
  return network.name + "-" + node;
}
bool HasNamespace(const std::string& name) {
  std::error_code ignored;
  return fs::exists(kNamespaces + name, ignored);
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t n; (n = ::read(fd, piece.data(), piece.size())) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(piece.data(), static_cast<size_t>(n));
  }
  return text;
}

// Runs a program of iproute2. An error quotes what it said.
Status Run(const Words& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDERR_FILENO);
  std::vector<char*> argv;
  std::string line;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
    line += (line.empty() ? "" : " ") + word;
  }
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT)
    return NotFound("there is no program " + command[0] + "; install the package iproute2");
  if (error != 0) return FromErrno(error, line);
  input.Reset(-1);
  std::string said = ReadAll(output.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
  std::replace(said.begin(), said.end(), '\n', ' ');
  return NotSupported(line + ": " + (said.empty() ? "failed" : said));
}

Status RunAll(const std::vector<Words>& commands) {
  for (const Words& command : commands) HL_RETURN_IF_ERROR(Run(command));
  return Status::Ok();
}

// Shapes what a node sends. `place` precedes the command where its cable is in a namespace.
Status Shape(const Network& network, const Words& place, const std::string& cable) {
  if (network.netem.empty()) return Status::Ok();
  Words command{"tc"};
  command.insert(command.end(), place.begin(), place.end());
  command.insert(command.end(), {"qdisc", "replace", "dev", cable, "root", "netem"});
  std::istringstream words(network.netem);
  for (std::string word; words >> word;) command.push_back(word);
  return Run(command).WithContext(
      "netem (it needs the kernel's module sch_netem, and the words of `man tc-netem`)");
}

std::set<int> SubnetsInUse() {
  std::set<int> used;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return used;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    const uint32_t address =
        ntohl(reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr.s_addr);
    if ((address & 0xffff0000) == kBenchmarkRange)
      used.insert(static_cast<int>(address >> 8 & 0xff));
  }
  ::freeifaddrs(all);
  return used;
}

Status MakeSwitch(const Network& network) {
  const std::string hub = Switch(network);
  if (SubnetsInUse().contains(network.subnet))
    return AlreadyExists("another interface of this machine has the network 198.18." +
                         std::to_string(network.subnet) + ".0/24");
  HL_RETURN_IF_ERROR(RunAll(
      {{"ip", "netns", "add", hub},
       {"ip", "-n", hub, "link", "add", kBridge, "type", "bridge"},
       {"ip", "-n", hub, "link", "set", kBridge, "up"},
       {"ip", "link", "add", network.name, "type", "veth", "peer", "name", kPrimaryNode, "netns",
        hub},
       {"ip", "-n", hub, "link", "set", kPrimaryNode, "master", kBridge, "up"},
       {"ip", "addr", "add", NodeAddress(network, kPrimaryNode) + "/24", "dev", network.name},
       {"ip", "link", "set", network.name, "up"}}));
  return Shape(network, {}, network.name);
}

Status MakeNode(const Network& network, const std::string& replica) {
  const std::string hub = Switch(network), node = Namespace(network, replica);
  HL_RETURN_IF_ERROR(RunAll(
      {{"ip", "netns", "add", node},
       {"ip", "-n", node, "link", "set", "lo", "up"},
       {"ip", "-n", hub, "link", "add", replica, "type", "veth", "peer", "name", kCableEnd, "netns",
        node},
       {"ip", "-n", hub, "link", "set", replica, "master", kBridge, "up"},
       {"ip", "-n", node, "addr", "add", NodeAddress(network, replica) + "/24", "dev", kCableEnd},
       {"ip", "-n", node, "link", "set", kCableEnd, "up"}}));
  return Shape(network, {"-n", node}, kCableEnd);
}

// The kernel ends the cables of a namespace some time after it. So that another one can have the
// name at once, a cable is removed first.
Status RemoveNamespace(const std::string& name) {
  return HasNamespace(name) ? Run({"ip", "netns", "del", name}) : Status::Ok();
}

}  // namespace

Result<Network> PlanNetwork(const std::string& directory, const std::string& netem) {
  const size_t hash = std::hash<std::string>{}(directory);
  Network network;
  network.netem = netem;
  char digits[kNameDigits + 1];
  ::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(hash));
  network.name = std::string("hl") + digits;
  const std::set<int> used = SubnetsInUse();
  for (int i = 0; i < kSubnets; ++i) {
    network.subnet = (static_cast<int>(hash >> 32 & 0xff) + i) % kSubnets;
    if (!used.contains(network.subnet)) return network;
  }
  return NoSpace("all networks of 198.18.0.0/16 are in use on this machine");
}

bool IsNetem(const std::string& text) {
  return text.size() <= kMaxNetem &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool IsNetwork(const Network& network) {
  return network.name.size() == 2 + kNameDigits && network.name.starts_with("hl") &&
         network.name.find_first_not_of("0123456789abcdef", 2) == std::string::npos &&
         network.subnet >= 0 && network.subnet < kSubnets && IsNetem(network.netem);
}

bool IsReplicaNode(const std::string& name) {
  if (!name.starts_with(kReplica)) return false;
  const std::string digits = name.substr(sizeof kReplica - 1);
  return !digits.empty() && digits.size() <= 2 &&
         digits.find_first_not_of("0123456789") == std::string::npos;
}

std::string NodeAddress(const Network& network, const std::string& node) {
  const int last = IsReplicaNode(node) ? 2 + std::atoi(node.c_str() + sizeof kReplica - 1) : 1;
  return "198.18." + std::to_string(network.subnet) + "." + std::to_string(last);
}

Status MakeNetwork(const Network& network, const std::vector<std::string>& replicas) {
  if (::geteuid() != 0) return PermissionDenied("making network namespaces needs root (sudo)");
  std::vector<std::string> made;
  const bool fresh = !HasNamespace(Switch(network));
  Status status = fresh ? MakeSwitch(network) : Status::Ok();
  for (const std::string& replica : replicas) {
    if (!status.ok()) break;
    if (HasNamespace(Namespace(network, replica))) continue;
    made.push_back(replica);
    status = MakeNode(network, replica);
  }
  if (status.ok()) return status;
  for (const std::string& replica : made) RemoveNode(network, replica).IgnoreError();
  if (fresh) RemoveNetwork(network, {}).IgnoreError();
  return status;
}

Result<UniqueFd> OpenNode(const Network& network, const std::string& replica) {
  const std::string path = kNamespaces + Namespace(network, replica);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(errno, path);
  return fd;
}

Status RemoveNode(const Network& network, const std::string& replica) {
  if (!HasNamespace(Namespace(network, replica))) return Status::Ok();
  Run({"ip", "-n", Switch(network), "link", "del", replica}).IgnoreError();
  return RemoveNamespace(Namespace(network, replica));
}

Status RemoveNetwork(const Network& network, const std::vector<std::string>& replicas) {
  for (const std::string& replica : replicas) HL_RETURN_IF_ERROR(RemoveNode(network, replica));
  if (!HasNamespace(Switch(network))) return Status::Ok();
  Run({"ip", "link", "del", network.name}).IgnoreError();
  return RemoveNamespace(Switch(network));
}

}  // namespace hyperloop::cluster
