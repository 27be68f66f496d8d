#include "cluster/cluster_file.h"

#include <nlohmann/json.hpp>
#include <set>

#include "hyperloop/core/group.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop::cluster {
namespace {

constexpr int kVersion = 1;
constexpr int kVersionWithNetwork = 2;
// Of values in each other: the object, the list of replicas or the network, a replica.
constexpr int kMaxDepth = 3;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() < 64 &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
             std::string::npos;
}

// Discarded: `text` is no JSON, or has values deeper in each other than a cluster file has. The
// library copies and prints a value by recursion, for which the stack may not suffice.
nlohmann::json ParseJson(const std::string& text) {
  bool deep = false;
  const auto keep = [&deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep = deep || depth > kMaxDepth;
    return !deep;
  };
  nlohmann::json json = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
  return deep ? nlohmann::json(nlohmann::json::value_t::discarded) : json;
}

std::optional<Network> ParseNetwork(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string() ||
      !json.contains("subnet") || !json["subnet"].is_number_unsigned() ||
      json["subnet"].get<uint64_t>() > UINT8_MAX || !json.contains("netem") ||
      !json["netem"].is_string())
    return std::nullopt;
  Network network{json["name"].get<std::string>(), json["subnet"].get<int>(),
                  json["netem"].get<std::string>()};
  if (!IsNetwork(network)) return std::nullopt;
  return network;
}

}  // namespace

Result<ClusterFile> ParseClusterFile(const std::string& text, const std::string& path) {
  const auto bad = [&path](const std::string& what) {
    return Corruption(path + " does not describe a cluster: " + what +
                      ". Stop what runs there by hand, remove the directory and start again");
  };
  const nlohmann::json json = ParseJson(text);
  if (!json.is_object()) return bad("not a JSON object, or one with values too deep in each other");
  const auto field = [&json](const char* name) {
    const auto found = json.find(name);
    return found == json.end() ? nlohmann::json() : *found;
  };
  if (!field("version").is_number_integer()) return bad("no version");
  if (field("version") != kVersion && field("version") != kVersionWithNetwork) {
    return bad("version " + field("version").dump() + ", this program knows versions " +
               std::to_string(kVersion) + " and " + std::to_string(kVersionWithNetwork));
  }
  if (!field("region_size").is_number_unsigned()) return bad("no region_size");
  if (!field("media").is_string()) return bad("no media");
  // The descriptions of older clusters have neither field.
  const nlohmann::json provider = field("provider"), device = field("device");
  const bool no_choice = provider.is_null() && device.is_null();
  if (!no_choice && (!device.is_string() || (provider != "softrnic" && provider != "verbs"))) {
    return bad("provider " + provider.dump() + " with device " + device.dump());
  }
  const nlohmann::json replicas = field("replicas");
  if (!replicas.is_array() || replicas.empty() || replicas.size() > kMaxGroupSize) {
    return bad("replicas is not a list of 1 to " + std::to_string(kMaxGroupSize));
  }
  ClusterFile file;
  if (field("version") == kVersionWithNetwork) {
    file.network = ParseNetwork(field("network"));
    if (!file.network) return bad("no network that this program makes");
  }
  file.region_size = field("region_size").get<uint64_t>();
  file.media = field("media").get<std::string>();
  if (!no_choice) {
    file.provider = provider.get<std::string>();
    file.device = device.get<std::string>();
  }
  std::set<std::string> names;
  for (const nlohmann::json& entry : replicas) {
    const bool complete = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("listen") &&
                          entry["listen"].is_string();
    if (!complete) return bad("a replica without name and listen");
    ClusterFile::Replica replica{entry["name"].get<std::string>(),
                                 entry["listen"].get<std::string>()};
    // Names become file names, and those of nodes.
    if (!IsName(replica.name) || (file.network && !IsReplicaNode(replica.name)) ||
        !names.insert(replica.name).second) {
      return bad("replica name '" + replica.name + "'");
    }
    file.replicas.push_back(std::move(replica));
  }
  return file;
}

Result<ClusterFile> LoadClusterFile(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const std::string text, ReadTrustedFile(path));
  return ParseClusterFile(text, path);
}

Status SaveClusterFile(const ClusterFile& file, const std::string& path) {
  nlohmann::json json{{"version", file.network ? kVersionWithNetwork : kVersion},
                      {"region_size", file.region_size},
                      {"media", file.media},
                      {"provider", file.provider},
                      {"device", file.device},
                      {"replicas", nlohmann::json::array()}};
  if (file.network)
    json["network"] = {{"name", file.network->name},
                       {"subnet", file.network->subnet},
                       {"netem", file.network->netem}};
  for (const ClusterFile::Replica& replica : file.replicas) {
    json["replicas"].push_back({{"name", replica.name}, {"listen", replica.listen}});
  }
  return ReplaceFile(path, path + ".new", json.dump(2) + "\n", 0600);
}

}  // namespace hyperloop::cluster
