// A group as the files of this host name it: hosts and groups/NAME.conf in the host's folder
// (hyperloop/identity/hosts.h). What a primary, a replica and an agent need to know follows from
// them, so that a URI is hyperloop:///NAME.
//
// Besides its hosts and their port a group's file may say:
//
//   size        bytes of the region of replicas that are made (512M)
//   folder      where pools and the database lie (/var/lib/hyperloop)
//   database    the service's database directory (NAME.db in the folder)
//   service     the service's program and arguments, separated by blanks
//   http_port   at which the agents of the hosts show their pages (none)
//   hook        programs that the agents tell what becomes of their nodes, separated by blanks
//   options of a URI that hold for every host
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

struct NodeGroup {
  std::string name;
  std::string file;        // the group's
  std::string hosts_file;  // which names this host and the others
  std::string host;        // this host's name
  std::string address;     // and its numeric address
  bool has_host = false;   // this host is one of the group's
  std::string listen;      // this host's replica, ADDRESS:PORT
  std::string bulk_listen;
  std::string pool;  // of this host's replica
  uint64_t size = 0;
  std::string database;
  std::vector<std::string> service;  // empty: not told
  std::vector<std::string> hooks;    // absolute paths
  std::string http;                  // ADDRESS:PORT of this host's agent; empty: none
  // The same of each host of the group, by their names.
  std::map<std::string, std::string, std::less<>> agents;
  // Where the replica of each host of the hosts file is, or would be.
  std::map<std::string, std::string, std::less<>> endpoints;
  StoreOptions store;                          // of a primary on this host
  std::set<std::string, std::less<>> decided;  // options of `store` that the group's file sets
};

// Reads the files of `folder`, or of this process's (identity::NodeFolder). The error names the
// file and, if it is in one, the line, and the remedy: there is no such group, this host or one of
// the group's has no line, its line has another key than its identity, a file is cut or says what
// is refused, alone or together, or others could have written it.
Result<NodeGroup> ReadNodeGroup(std::string_view name, const std::string& folder = {});

// What agents need of a group whose service they run: replicas enough to lose one, and options
// under which they then go on. The caller says where the options are from.
Status CheckForAgents(const StoreOptions& store);

// The group that a URI names; empty: it lists replicas.
std::string_view GroupOfUri(std::string_view uri);

// Whether the files of hosts and groups alone say an option of a primary: who it is, and where the
// replicas are.
bool IsOfHosts(std::string_view option);

// What the service NAME of a program is started with: --config and its file PROGRAM@NAME.conf in
// this process's folder, if there is one, else --group NAME.
std::vector<std::string> InstanceArguments(const std::string& program, const std::string& name);

}  // namespace hyperloop
