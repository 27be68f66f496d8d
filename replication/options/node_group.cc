#include "options/node_group.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/size.h"
#include "options/option_text.h"

namespace hyperloop {
namespace {

namespace stdfs = std::filesystem;
using identity::GroupFile;
using identity::HostLine;

constexpr char kDevice[] = "/run/hyperloop/rnicd.sock";
constexpr char kFolder[] = "/var/lib/hyperloop";
constexpr uint64_t kSize = 512ull << 20;

constexpr std::array<std::string_view, 7> kOfHosts = {
    "replicas", "provider", "host", "keys", "gid_index", "mtu", "traffic_class"};

std::string NamesOf(const std::vector<std::string>& paths) {
  std::string names;
  for (const std::string& path : paths)
    names += (names.empty() ? "" : ", ") + stdfs::path(path).stem().string();
  return names;
}

Result<GroupFile> ReadGroupNamed(std::string_view name, const std::string& folder) {
  HL_ASSIGN_OR_RETURN(const std::string path, identity::GroupFileIn(folder, name));
  Result<GroupFile> group = identity::ReadGroup(path);
  if (group.status().code() != Code::kNotFound) return group;
  const auto others = identity::GroupFilesBeside(identity::HostsFileIn(folder));
  const std::string names = others.ok() ? NamesOf(*others) : "";
  return NotFound(Text("this host has no group ", name, ": put its file ", path,
                       " there, as on the others", names.empty() ? "" : "; there are ", names));
}

// The line of this host, whose keys they are.
Result<HostLine> OwnLine(const identity::KeyRing& keys, const std::vector<HostLine>& hosts) {
  const std::string file = keys.hosts_file();
  const std::string print =
      Text("put there, on all hosts alike, what hyperloopctl node init --name ", keys.name(),
           " --address ADDRESS prints on this one");
  const auto own = std::ranges::find(hosts, keys.name(), &HostLine::name);
  if (own == hosts.end())
    return NotFound(Text(file, " has no line of this host, ", keys.name(), ": ", print));
  if (own->key != keys.public_key())
    return InvalidArgument(
        Text(file, " has another key for this host, ", keys.name(), ": ", print));
  return *own;
}

Status SetReplicas(const GroupFile& file, const std::vector<HostLine>& hosts, NodeGroup* group) {
  for (const std::string& name : file.hosts) {
    const auto host = std::ranges::find(hosts, name, &HostLine::name);
    if (host == hosts.end())
      return InvalidArgument(Text(group->file, " names ", name, ", which has no line in ",
                                  group->hosts_file, ": add it there, or take it out here"));
    group->store.replicas.push_back(host->At(file.port));
    group->has_host = group->has_host || name == group->host;
  }
  return {};
}

// An absolute path that a binding can name.
std::string CheckFolder(std::string_view value) {
  const stdfs::path path(value);
  if (!path.is_absolute() || value.find_first_of("=;") != std::string_view::npos ||
      std::ranges::count(path, "..") != 0)
    return "give a path that begins with /, without '=', ';' and \"..\"";
  return {};
}

std::vector<std::string> WordsOf(std::string_view value) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = value.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const size_t end = std::min(value.find_first_of(" \t", at), value.size());
    words.emplace_back(value.substr(at, end - at));
    at = end;
  }
  return words;
}

bool HasControl(std::string_view value) {
  return std::ranges::any_of(
      value, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\t'; });
}

std::string SetService(std::string_view value, NodeGroup* group) {
  if (value.find_first_of("\"'\\$") != std::string_view::npos)
    return "words are separated by blanks, and quotes, backslashes and dollars mean nothing: put "
           "such a command into a script";
  group->service = WordsOf(value);
  return group->service.empty() || HasControl(value)
             ? "give the program that opens the database, and its arguments"
             : "";
}

std::string SetHooks(std::string_view value, NodeGroup* group) {
  group->hooks = WordsOf(value);
  const bool absolute = std::ranges::all_of(
      group->hooks, [](const std::string& each) { return each.starts_with('/'); });
  return group->hooks.empty() || !absolute || HasControl(value)
             ? "give absolute paths of programs, separated by blanks; they get no arguments of "
               "yours"
             : "";
}

// What a group's file says besides hosts, port and options of a URI.
struct Places {
  std::string folder = kFolder, database;
  uint16_t http_port = 0;
};

std::string SetHttpPort(std::string_view value, uint16_t group_port, Places* places) {
  const auto port = option_text::ParseInteger(value);
  const bool taken = port == group_port || port == group_port + 1 || port == identity::kLinkPort;
  if (!port || *port == 0 || *port > 65535 || taken)
    return Text("give a number from 1 to 65535, other than the group's ", group_port, " and ",
                group_port + 1, " and the RNIC daemons' ", identity::kLinkPort);
  places->http_port = static_cast<uint16_t>(*port);
  return {};
}

std::string SetSize(const std::string& value, NodeGroup* group) {
  const auto size = ParseSize(value);
  if (!size.ok() || *size < kMinRegionSize || *size > kMaxRegionSize)
    return Text("give a size from ", option_text::FormatBytes(kMinRegionSize), " to ",
                option_text::FormatBytes(kMaxRegionSize), ", a number with K, M or G");
  group->size = *size;
  return {};
}

// What is wrong with the value of a setting that is no option; empty: nothing. Nothing at all: it
// is an option.
std::optional<std::string> SetPlace(const GroupFile::Setting& setting, uint16_t group_port,
                                    Places* places, NodeGroup* group) {
  const std::string& value = setting.value;
  if (setting.name == "size") return SetSize(value, group);
  if (setting.name == "service") return SetService(value, group);
  if (setting.name == "hook") return SetHooks(value, group);
  if (setting.name == "http_port") return SetHttpPort(value, group_port, places);
  if (setting.name != "folder" && setting.name != "database") return std::nullopt;
  (setting.name == "folder" ? places->folder : places->database) = value;
  return CheckFolder(value);
}

Status SetAll(const GroupFile& file, const HostLine& own, const std::vector<HostLine>& hosts,
              NodeGroup* group) {
  Places places;
  for (const GroupFile::Setting& setting : file.settings) {
    const std::string at = Text(group->file, ":", setting.line);
    const auto wrong = SetPlace(setting, file.port, &places, group);
    if (wrong.has_value() && !wrong->empty())
      return InvalidArgument(Text(at, ": ", setting.name, ": ", *wrong));
    if (wrong.has_value()) continue;
    HL_RETURN_IF_ERROR(SetStoreOption(setting.name, setting.value, &group->store).WithContext(at));
    group->decided.insert(setting.name);
  }
  const std::string base = places.folder + "/" + file.name;
  group->pool = base + ".pool";
  group->store.pool = base + "-primary.pool";
  group->database = places.database.empty() ? base + ".db" : places.database;
  if (places.http_port == 0) return {};
  group->http = own.At(places.http_port);
  for (const HostLine& each : hosts)
    if (std::ranges::count(file.hosts, each.name) != 0)
      group->agents[each.name] = each.At(places.http_port);
  return {};
}

}  // namespace

std::string_view GroupOfUri(std::string_view uri) {
  constexpr std::string_view kBegin = "hyperloop:///";
  if (!uri.starts_with(kBegin)) return {};
  uri.remove_prefix(kBegin.size());
  return uri.substr(0, uri.find('?'));
}

bool IsOfHosts(std::string_view option) { return std::ranges::count(kOfHosts, option) != 0; }

Result<NodeGroup> ReadNodeGroup(std::string_view name, const std::string& given) {
  const std::string folder =
      stdfs::absolute(given.empty() ? identity::NodeFolder() : given).lexically_normal();
  HL_ASSIGN_OR_RETURN(const GroupFile file, ReadGroupNamed(name, folder));
  NodeGroup group;
  group.name = name;
  HL_ASSIGN_OR_RETURN(group.file, identity::GroupFileIn(folder, name));
  const std::string keys = identity::KeysFolderIn(folder);
  constexpr std::string_view kInit = "call hyperloopctl node init --name NAME --address ADDRESS";
  const auto ring = identity::KeyRing::Load(keys);
  if (ring.status().code() == Code::kNotFound)
    return NotFound(Text("this host has no identity in ", keys, ": ", kInit));
  HL_RETURN_IF_ERROR(ring.status());
  group.hosts_file = (*ring)->hosts_file();
  if (group.hosts_file.empty())
    return InvalidArgument(Text(keys, "/trusted points to no file of hosts: ", kInit));
  const std::vector<HostLine> hosts = (*ring)->hosts();
  if (hosts.empty())
    return NotFound(Text("hosts file ", group.hosts_file, " is not there: make it, on all hosts ",
                         "alike, of the lines that hyperloopctl node init prints on each"));
  HL_ASSIGN_OR_RETURN(const HostLine own, OwnLine(**ring, hosts));
  group.host = own.name;
  group.address = own.address;
  group.listen = own.At(file.port);
  group.bulk_listen = own.At(file.port + 1);
  group.size = kSize;
  group.store.device = kDevice;
  group.store.host = own.name;
  group.store.keys = keys;
  for (const HostLine& each : hosts) group.endpoints[each.name] = each.At(file.port);
  HL_RETURN_IF_ERROR(SetReplicas(file, hosts, &group));
  HL_RETURN_IF_ERROR(SetAll(file, own, hosts, &group));
  HL_RETURN_IF_ERROR(ValidateStoreOptions(group.store).WithContext(group.file));
  return group;
}

Status CheckForAgents(const StoreOptions& store) {
  if (store.replicas.size() < 3)
    return InvalidArgument(
        Text("failover by itself needs three replicas or more, so that the others agree when a "
             "host with one is lost; the group has ",
             store.replicas.size()));
  if (!GoesOnWithoutSome(store))
    return InvalidArgument(
        "leave on_replica_failure=block out: nobody could take the group while a replica is away, "
        "and a lost host may take one along");
  return {};
}

std::vector<std::string> InstanceArguments(const std::string& program, const std::string& name) {
  const std::string file = Text(identity::NodeFolder(), "/", program, "@", name, ".conf");
  if (access(file.c_str(), F_OK) == 0) return {"--config", file};
  return {"--group", name};
}

}  // namespace hyperloop
