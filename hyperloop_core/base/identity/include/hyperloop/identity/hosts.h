// The files that are the same on every host, in a folder of each (by default /etc/hyperloop):
//
//   hosts              a line for each host: NAME ADDRESS PUBLIC_KEY_HEX; # begins a comment
//   groups/NAME.conf   a group, in lines NAME = VALUE; # begins a comment line
//
// Whom a host trusts and where it finds the others follows from them, if the file `trusted` in its
// keys directory (keys.h) has a line "@hosts FILE". All hosts of FILE may make links then. Those
// that a group names have the roles primary and replica, too, with the ENDPOINT ADDRESS:PORT of
// that group.
//
// Both are refused where others could write them, or where more than one reading is possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {

inline constexpr uint16_t kLinkPort = 7471;   // of each host's RNIC daemon
inline constexpr uint16_t kGroupPort = 7000;  // of a group's replicas, where it says no other
inline constexpr size_t kMostHosts = 1024;
inline constexpr size_t kMostGroups = 256;
inline constexpr size_t kMostGroupHosts = 8;

// The folder of this process: what HYPERLOOP_NODE says, which a program with raised rights does not
// read, else /etc/hyperloop.
std::string NodeFolder();
inline std::string HostsFileIn(const std::string& folder) { return folder + "/hosts"; }
inline std::string KeysFolderIn(const std::string& folder) { return folder + "/keys"; }
// kInvalidArgument: `group` is not the name of a group.
Result<std::string> GroupFileIn(const std::string& folder, std::string_view group);

// A line of `hosts`.
struct HostLine {
  std::string name;
  std::string address;  // numeric, IPv4 or IPv6
  PublicKey key{};

  std::string Line() const;             // as in the file, without the newline
  std::string At(uint16_t port) const;  // "10.0.0.1:7471", "[fd00::1]:7471"
  friend bool operator==(const HostLine&, const HostLine&) = default;
};
// kInvalidArgument: it is no numeric address of one host.
Status CheckHostAddress(std::string_view address);
// The text of a file `path`. kInvalidArgument names the file, the line and the remedy: a line that
// is none, a name, an address or a key that is there twice, no host at all.
Result<std::vector<HostLine>> ParseHosts(std::string_view text, const std::string& path);

// What a group's file says.
struct GroupFile {
  struct Setting {
    std::string name;  // one of GroupSettings()
    std::string value;
    size_t line = 0;  // in the file, counted from 1
  };
  std::string name;
  std::vector<std::string> hosts;  // 1 to 8, in the order of the chain
  uint16_t port = kGroupPort;      // of the replicas; the next one is that of whole files
  // What else it says, in its order. Whoever uses a value judges it.
  std::vector<Setting> settings{};
};
// The names of all settings that a group's file may have.
std::span<const std::string_view> GroupSettings();
// The text of a file `path`. kInvalidArgument names the file, the line and the remedy.
Result<GroupFile> ParseGroup(std::string_view text, const std::string& path);

// Reads a file. kNotFound; kPermissionDenied: others could have written it, or it is a symbolic
// link; kInvalidArgument: what it says is refused, or it is too long.
Result<std::vector<HostLine>> ReadHosts(const std::string& path);
Result<GroupFile> ReadGroup(const std::string& path);
// The same for the text alone, of at most `limit` bytes.
inline constexpr size_t kMostHostsBytes = 1 << 18, kMostGroupBytes = 1 << 16;
Result<std::string> ReadNodeFile(const std::string& path, size_t limit);
// The files groups/*.conf beside the file `hosts`, in the order of their names; none: there is no
// such folder. kPermissionDenied: others could have made or removed some.
Result<std::vector<std::string>> GroupFilesBeside(const std::string& hosts);

// The lines of `trusted` that follow: those of the hosts in the order of the file.
std::vector<TrustedPeer> TrustOf(const std::vector<HostLine>& hosts,
                                 const std::vector<GroupFile>& groups);

}  // namespace hyperloop::identity
