#include "ctl/nodes.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/options.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

// The emulated host that tools attach to in an emulated cluster, whose daemons list it, and without
// keys.
constexpr char kToolHost[] = "hyperloopctl";
constexpr std::chrono::seconds kPatience{3};

// The name of the user to whom the file belongs, or the number of one without a name.
std::string OwnerOf(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return "an unknown user";
  passwd entry{};
  passwd* user = nullptr;
  char names[1024];  // several replicas are asked at the same time
  if (getpwuid_r(file.st_uid, &entry, names, sizeof names, &user) != 0 || user == nullptr)
    return Text("user ", file.st_uid);
  return Text("user ", user->pw_name);
}

// In the form of getnameinfo's numbers; empty: it cannot be told.
std::string NumericAddress(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::set<std::string> OwnAddresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if (family == AF_INET) addresses.insert(NumericAddress(each->ifa_addr, sizeof(sockaddr_in)));
    if (family == AF_INET6) addresses.insert(NumericAddress(each->ifa_addr, sizeof(sockaddr_in6)));
  }
  freeifaddrs(list);
  addresses.erase("");
  return addresses;
}

// Whether a control endpoint has one of these addresses, or one of the loopback network.
bool IsAt(const std::string& listen, const std::set<std::string>& addresses) {
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(listen);
  addrinfo* found = nullptr;
  if (!endpoint.ok() || getaddrinfo(endpoint->host.c_str(), nullptr, nullptr, &found) != 0)
    return false;
  bool is = false;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const std::string address = NumericAddress(each->ai_addr, each->ai_addrlen);
    is = is || addresses.contains(address) || address.starts_with("127.");
  }
  freeaddrinfo(found);
  return is;
}

// The name of this machine in the keys directory `keys`, which daemons of other machines know.
Result<std::string> NameIn(const std::string& keys) {
  if (keys.empty()) return std::string(kToolHost);
  HL_ASSIGN_OR_RETURN(const auto ring, identity::KeyRing::Load(keys));
  return ring->name();
}

}  // namespace

// Emulated hosts are named like their replicas; on a real device each replica knows its own
// address.
NodePlace Nodes::PlaceOf(const ClusterProcess& process) const {
  const std::string host = choice_.provider == "softrnic" ? process.name : "";
  return {
      process.name,  host, process.listen, process.pool, process.pool + ".files", process.socket,
      process.state, {}};
}

// The emulated host's name, from the replica itself.
Result<NodePlace> Nodes::Ask(const std::string& listen) const {
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(listen));
  HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(keys_, nullptr));
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint, trust, kPatience));
  HL_ASSIGN_OR_RETURN(const auto hello,
                      client->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience));
  return NodePlace{hello.host, hello.host, listen, "", "", "", ProcessState::kRunning, {}};
}

// A replica whose process does not answer. Its RNIC does if `trusted` tells the name of its host.
NodePlace Nodes::Silent(const std::string& listen, const Status& why) const {
  NodePlace place{listen, "", listen, "", "", "", {}, why};
  if (choice_.provider != "softrnic" || keys_.empty()) return place;
  const auto ring = identity::KeyRing::Load(keys_);
  if (!ring.ok()) return place;
  const std::vector<std::string> names = (*ring)->NamesAt(listen);
  if (names.size() == 1) {
    place.name = place.host = names.front();
    return place;
  }
  place.silent = Status(
      why.code(), Text(why.message(), "; its RNIC could be asked if ", keys_, "/trusted had ",
                       names.empty() ? "its line with its ENDPOINT" : "one name at its ENDPOINT",
                       ": hyperloopctl keys trust --dir ", keys_, " NAME KEY ROLES ", listen,
                       ", with the name, key and roles that its host has there"));
  return place;
}

Result<std::unique_ptr<control::ControlClient>> Nodes::BulkLane(const NodePlace& place) const {
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(place.listen));
  HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(keys_, nullptr));
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint, trust, kPatience));
  HL_ASSIGN_OR_RETURN(const auto hello,
                      client->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience));
  return control::ControlClient::Connect(endpoint, trust, kPatience, hello.bulk_port);
}

CLI::Option_group* AddWhere(CLI::App* command, Where* where, const std::string& uri) {
  CLI::Option_group* group = command->add_option_group("where", "which group");
  group
      ->add_option("--dir", where->directory,
                   "directory of an emulated cluster, which stands for its URI")
      ->type_name("DIR");
  group->add_option("--uri", where->uri, uri)->type_name("URI");
  group->require_option(1);
  return group;
}

Result<std::string> UriOf(const Where& where) {
  if (where.directory.empty()) return where.uri;
  HL_ASSIGN_OR_RETURN(const ClusterInfo info, ReadCluster(where.directory));
  return info.uri;
}

Result<Nodes> Nodes::Find(const Where& where) {
  Nodes nodes;
  if (!where.directory.empty()) {
    HL_ASSIGN_OR_RETURN(const ClusterInfo info, ReadCluster(where.directory));
    StoreOptions store;
    nodes.uri_ = info.uri;
    HL_RETURN_IF_ERROR(ParseStoreUri(info.uri, &store));
    nodes.choice_ = DeviceChoice::Of(store);
    nodes.keys_ = store.keys;
    nodes.own_host_ = kToolHost;
    nodes.primary_pool_ = info.directory + "/primary.pool";
    for (const ClusterProcess& process : info.replicas()) {
      nodes.replicas_.push_back(nodes.PlaceOf(process));
    }
    return nodes;
  }
  StoreOptions store;
  nodes.uri_ = where.uri;
  HL_RETURN_IF_ERROR(ParseStoreUri(where.uri, &store).WithContext("--uri"));
  HL_RETURN_IF_ERROR(ValidateStoreOptions(store).WithContext("--uri"));
  nodes.choice_ = DeviceChoice::Of(store);
  nodes.keys_ = store.keys;
  nodes.primary_pool_ = store.pool;
  const std::string& inside = store.provider == "softrnic" ? store.device : store.pool;
  const Result<ClusterInfo> info =
      ReadCluster(std::filesystem::path(inside).parent_path().string());
  HL_ASSIGN_OR_RETURN(nodes.own_host_, NameIn(info.ok() ? "" : store.keys));
  std::vector<Result<NodePlace>> places =
      AtOnce(store.replicas.size(), [&](size_t i) -> Result<NodePlace> {
        const auto known = info.ok() ? info->replicas() : std::span<const ClusterProcess>();
        const auto found = std::ranges::find(known, store.replicas[i], &ClusterProcess::listen);
        return found != known.end() ? nodes.PlaceOf(*found) : nodes.Ask(store.replicas[i]);
      });
  for (size_t i = 0; i < places.size(); ++i) {
    Result<NodePlace>& place = places[i];
    if (place.ok()) {
      nodes.replicas_.push_back(std::move(*place));
    } else if (place.status().code() == Code::kInvalidArgument) {
      return place.status();
    } else {
      nodes.replicas_.push_back(nodes.Silent(store.replicas[i], place.status()));
    }
  }
  const auto silent = [](const NodePlace& place) {
    return !place.silent.ok() && place.host.empty();
  };
  if (std::all_of(nodes.replicas_.begin(), nodes.replicas_.end(), silent))
    return nodes.replicas_.front().silent;
  return nodes;
}

Result<const NodePlace*> Nodes::Replica(uint32_t index) const {
  if (index < replicas_.size()) return &replicas_[index];
  return InvalidArgument("no replica " + std::to_string(index) + ": the group has " +
                         std::to_string(replicas_.size()) + ", counted from 0");
}

Result<const NodePlace*> Nodes::OwnReplica() const {
  const std::set<std::string> own = OwnAddresses();
  std::vector<const NodePlace*> here;
  std::string numbers;
  for (const NodePlace& place : replicas_) {
    if (!IsAt(place.listen, own)) continue;
    if (place.host == own_host_) return &place;
    here.push_back(&place);
    numbers += Text(numbers.empty() ? "" : ", ", &place - replicas_.data());
  }
  if (here.size() == 1) return here.front();
  if (here.empty())
    return Unavailable(
        "no replica of the group listens at an address that this machine has now; say which one to "
        "use by its number");
  return InvalidArgument(
      Text("the group has several replicas on this machine; say which one to use: ", numbers));
}

Result<rnic::Device*> Nodes::Device() {
  if (device_ == nullptr) {
    DeviceChoice choice = choice_;
    choice.host = own_host_;
    HL_ASSIGN_OR_RETURN(device_, OpenDevice(choice));
  }
  return device_.get();
}

Result<std::unique_ptr<NodeView>> Nodes::View(const NodePlace& place) {
  if (place.host.empty()) HL_RETURN_IF_ERROR(place.silent);
  const bool needs_device = place.state != ProcessState::kDead;
  return ViewOver(needs_device ? Device() : Result<rnic::Device*>(nullptr), place);
}

std::vector<Result<std::unique_ptr<NodeView>>> Nodes::ViewAll() {
  const bool needs_device = std::ranges::any_of(
      replicas_, [](const NodePlace& each) { return each.state != ProcessState::kDead; });
  const Result<rnic::Device*> device = needs_device ? Device() : Result<rnic::Device*>(nullptr);
  return AtOnce(replicas_.size(), [&](size_t i) { return ViewOver(device, replicas_[i]); });
}

Result<std::unique_ptr<NodeView>> Nodes::ViewOver(const Result<rnic::Device*>& device,
                                                  const NodePlace& place) const {
  if (place.host.empty()) HL_RETURN_IF_ERROR(place.silent);
  if (place.state == ProcessState::kDead) {
    Result<std::unique_ptr<NodeView>> view = NodeView::OpenPool(place.pool);
    if (view.ok()) return view;
    if (view.status().code() == Code::kBusy) {
      return Busy(
          Text("look from where ", place.name,
               " was started, as its container: it runs, and its process is not seen here: ",
               view.status().message()));
    }
    return view.status().WithContext(place.name + " is dead, and its pool");
  }
  if (!device.ok()) return device.status().WithContext("reaching " + place.name);
  std::string host = place.host;
  if (host.empty()) {
    if (place.state == ProcessState::kStopped) {
      return Unavailable(
          place.name +
          " is stopped; over provider verbs a replica's process answers who looks at "
          "it. Let it run, or end it: then its pool is read");
    }
    Result<NodePlace> asked = Ask(place.listen);
    if (!asked.ok()) return asked.status().WithContext(place.name);
    host = asked->host;
  }
  Result<std::unique_ptr<NodeView>> view = NodeView::Connect(**device, host);
  if (view.ok()) return view;
  const Status seen = view.status().WithContext(place.name);
  if (place.silent.ok()) return seen;
  return Status(seen.code(), Text(seen.message(), "; its process: ", place.silent.message()));
}

std::vector<std::string> Nodes::CountingHosts() const {
  std::vector<std::string> names{choice_.host};
  for (const NodePlace& place : replicas_)
    if (place.silent.ok())
      names.push_back(choice_.provider == "softrnic" ? place.host : place.name);
  return names;
}

Result<HostCounters> Nodes::CountersOf(const std::string& host) const {
  if (choice_.provider != "softrnic") {
    const std::vector<std::string> hosts = CountingHosts();
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      return NotFound(Text("no host ", host, " in this group"));
    HL_ASSIGN_OR_RETURN(const auto device, OpenDevice(choice_));
    HL_ASSIGN_OR_RETURN(rnic::Counters counters, device->QueryCounters());
    const std::string name = choice_.device.empty() ? "the first active one" : choice_.device;
    return HostCounters{host, "this machine's RDMA device, " + name, std::move(counters)};
  }
  DeviceChoice choice = choice_;
  choice.host = own_host_;
  for (const NodePlace& place : replicas_)
    if (place.host == host && !place.socket.empty()) choice.device = place.socket;
  const std::string daemon = Text("RNIC daemon ", choice.device, " of ", OwnerOf(choice.device));
  HL_ASSIGN_OR_RETURN(const auto device, OpenDevice(choice));
  Result<rnic::Counters> counters = device->QueryCountersOf(host);
  if (!counters.ok()) return counters.status().WithContext(daemon);
  const std::string process = Text(", process ", (*counters)["daemon_pid"]);
  return HostCounters{host, daemon + process, *std::move(counters)};
}

std::vector<pid_t> Nodes::Daemons() const {
  std::map<std::string, std::string> hosts;  // by the socket of the daemon that serves it
  if (choice_.provider == "softrnic") hosts.emplace(choice_.device, own_host_);
  for (const NodePlace& place : replicas_)
    if (!place.socket.empty()) hosts.emplace(place.socket, place.host);
  std::vector<pid_t> daemons;
  for (const auto& [socket, host] : hosts) {
    const Result<HostCounters> asked = CountersOf(host);
    if (!asked.ok()) continue;
    if (const auto pid = asked->counters.find("daemon_pid"); pid != asked->counters.end())
      daemons.push_back(static_cast<pid_t>(pid->second));
  }
  return daemons;
}

Result<std::string> Nodes::LivingPrimary() {
  const std::vector<Result<std::unique_ptr<NodeView>>> views = ViewAll();
  const std::vector<Result<std::string>> owners =
      AtOnce(views.size(), [&](size_t i) -> Result<std::string> {
        if (replicas_[i].state == ProcessState::kDead || !views[i].ok()) return std::string();
        NodeView& view = **views[i];
        HL_ASSIGN_OR_RETURN(const bool lives, view.OwnerLives());
        if (!lives) return std::string();
        HL_ASSIGN_OR_RETURN(const NodeStatus status, view.ReadStatus());
        return status.owner_name.empty() ? "primary " + status.owner : status.owner_name;
      });
  for (const Result<std::string>& owner : owners)
    if (!owner.ok() || !owner->empty()) return owner;
  return std::string();
}

}  // namespace hyperloop::ctl
