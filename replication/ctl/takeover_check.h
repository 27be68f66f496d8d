// What keeps a host from taking a group: what its agent, hyperloopctl agent check and doctor look
// at before the day on which it is needed. It only looks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::ctl {

struct TakeoverPlace {
  StoreOptions store;        // of a primary on this host
  std::string database;      // the service's directory
  std::string service;       // its program
  uint64_t region_size = 0;  // of the group's replicas; 0: it is not known
  std::string instance;      // of the unit hyperloop-agent@INSTANCE; empty: it needs none
  std::string root;          // of the folders of systemd; empty: the machine's
};
// Each a sentence, with what mends it; none: nothing is missing.
std::vector<std::string> TakeoverLacks(const TakeoverPlace& place);

// The lines of the files hosts and groups/NAME.conf, each by a name and a digest, so that hosts
// can compare them and need not show them.
struct FileDigests {
  std::map<std::string, std::string> hosts;  // by the hosts' names
  std::map<std::string, std::string> group;  // by the settings' names
};
Result<FileDigests> DigestFiles(const std::string& folder, std::string_view group);
// The names of the lines that are not the same in both, or in one only.
std::vector<std::string> Differences(const std::map<std::string, std::string>& one,
                                     const std::map<std::string, std::string>& other);

}  // namespace hyperloop::ctl
