// cluster.json describes the parts of an emulated cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/network.h"
#include "hyperloop/core/status.h"

namespace hyperloop::cluster {

struct ClusterFile {
  struct Replica {
    std::string name;
    std::string listen;  // HOST:PORT; port 0: not chosen yet
  };
  std::vector<Replica> replicas;
  uint64_t region_size = 0;
  std::string media;
  std::string provider = "softrnic";
  std::string device;  // verbs: NAME, NAME:PORT or empty
  // Softrnic: each node has an RNIC daemon and a network of its own. Without it, one daemon serves
  // all nodes.
  std::optional<Network> network;
};

// kNotFound: no such file. kCorruption: the file does not describe a cluster, or is of another
// version; the message says what is wrong. kPermissionDenied: others may have written it.
Result<ClusterFile> LoadClusterFile(const std::string& path);
Result<ClusterFile> ParseClusterFile(const std::string& text, const std::string& path);
// Replaces the file in one step.
Status SaveClusterFile(const ClusterFile& file, const std::string& path);

}  // namespace hyperloop::cluster
