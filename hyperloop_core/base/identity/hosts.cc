#include "hyperloop/identity/hosts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>

#include "hyperloop/core/name.h"
#include "hyperloop/core/nearest_name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop::identity {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kGroupEnding = ".conf";
// Hosts and port, then what a group is, then its options (replication/options).
constexpr std::string_view kGroupSettings[] = {"hosts",
                                               "port",
                                               "size",
                                               "folder",
                                               "database",
                                               "service",
                                               "http_port",
                                               "hook",
                                               "device",
                                               "datapath",
                                               "ack",
                                               "wait",
                                               "poll_us",
                                               "window",
                                               "journal_size",
                                               "table_capacity",
                                               "media",
                                               "local_sync",
                                               "local_write",
                                               "on_replica_failure",
                                               "min_replicas",
                                               "heartbeat_timeout",
                                               "ack_timeout",
                                               "space_timeout",
                                               "connect_timeout",
                                               "bulk_timeout"};
constexpr char kWhatIsAHost[] = "NAME ADDRESS PUBLIC_KEY, as hyperloopctl node init prints it";

std::string_view Trim(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kBlank), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(separators), text.size());
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(separators), text.size());
    if (end != 0) words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// Calls `take` with each line that is no comment and not empty, and its number, until it fails. The
// error gets the file and the line.
template <class Take>
Status ForEachLine(std::string_view text, const std::string& path, const Take& take) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const Status taken = take(line, number);
    if (!taken.ok()) return InvalidArgument(Text(path, ":", number, ": ", taken.message()));
  }
  return {};
}

// The two forms of an address, in network order.
bool ParseAddress(std::string_view text, std::array<unsigned char, sizeof(in6_addr)>* bytes) {
  const std::string copy(text);
  bytes->fill(0);
  if (text.find('\0') != std::string_view::npos) return false;
  if (inet_pton(AF_INET, copy.c_str(), bytes->data()) == 1) {
    std::copy_n(bytes->begin(), 4, bytes->begin() + 12);
    std::fill_n(bytes->begin(), 10, 0);
    (*bytes)[10] = (*bytes)[11] = 0xff;
    return true;
  }
  return inet_pton(AF_INET6, copy.c_str(), bytes->data()) == 1;
}

// Two spellings of one address are one address.
std::array<unsigned char, sizeof(in6_addr)> AddressBytes(std::string_view text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  ParseAddress(text, &bytes);
  return bytes;
}

Status CheckAgainst(const HostLine& host, const std::vector<HostLine>& others) {
  for (const HostLine& other : others) {
    if (other.name == host.name)
      return InvalidArgument(Text(host.name, " is named twice: leave one of the lines out"));
    if (AddressBytes(other.address) == AddressBytes(host.address))
      return InvalidArgument(Text("the address of ", other.name, ", ", host.address,
                                  ": give each host its own, by hyperloopctl node init"));
    if (other.key == host.key)
      return InvalidArgument(
          Text("the key of ", other.name, ": each host makes its own, by hyperloopctl node init"));
  }
  return {};
}

Result<HostLine> ParseHostLine(std::string_view line) {
  const std::vector<std::string_view> words = Split(line, kBlank);
  if (words.size() != 3)
    return InvalidArgument(Text(words.size(), " words; a line is ", kWhatIsAHost));
  HostLine host;
  if (!IsName(words[0])) return InvalidArgument(Text("the name is not ", kNameRule));
  host.name = words[0];
  HL_RETURN_IF_ERROR(CheckHostAddress(words[1]));
  host.address = words[1];
  HL_ASSIGN_OR_RETURN(host.key, ParseKey(words[2]));
  return host;
}

// A shorter name may be another host's.
Status CheckIsWhole(std::string_view text, const std::string& path) {
  if (text.empty() || text.ends_with('\n')) return {};
  return InvalidArgument(Text(path, " ends within a line, and may have been cut: end it with one"));
}

Status TakeHosts(std::string_view value, GroupFile* group) {
  for (const std::string_view name : Split(value, ", \t")) {
    if (!IsName(name)) return InvalidArgument(Text("hosts: a name is not ", kNameRule));
    if (std::ranges::count(group->hosts, name) != 0)
      return InvalidArgument(Text("hosts: ", name, " is there twice: leave one out"));
    group->hosts.emplace_back(name);
  }
  if (!group->hosts.empty() && group->hosts.size() <= kMostGroupHosts) return {};
  return InvalidArgument(
      Text("hosts: name 1 to ", kMostGroupHosts, " hosts, not ", group->hosts.size()));
}

Status TakePort(std::string_view value, GroupFile* group) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), group->port);
  if (error == std::errc() && end == value.data() + value.size() && group->port != 0 &&
      group->port != 65535 && group->port != kLinkPort && group->port + 1 != kLinkPort)
    return {};
  return InvalidArgument(Text("port: give a number from 1 to 65534, other than ", kLinkPort - 1,
                              " and ", kLinkPort, ": files take the next one, and ", kLinkPort,
                              " is the RNIC daemons'"));
}

bool IsSettingName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_';
  });
}

Status TakeSetting(std::string_view line, size_t number, GroupFile* group,
                   std::vector<std::string>* seen) {
  const size_t equals = std::min(line.find('='), line.size());
  const std::string_view name = Trim(line.substr(0, equals));
  if (equals == line.size() || !IsSettingName(name))
    return InvalidArgument("a line is NAME = VALUE, such as hosts = a, b, c");
  if (std::ranges::count(kGroupSettings, name) == 0)
    return InvalidArgument(Text("a group has no setting ", name, ": leave the line out",
                                DidYouMean(name, kGroupSettings)));
  if (std::ranges::count(*seen, name) != 0)
    return InvalidArgument(Text(name, " is there twice: leave one of the lines out"));
  seen->emplace_back(name);
  const std::string_view value = Trim(line.substr(equals + 1));
  if (name == "hosts") return TakeHosts(value, group);
  if (name == "port") return TakePort(value, group);
  group->settings.push_back({std::string(name), std::string(value), number});
  return {};
}

}  // namespace

std::span<const std::string_view> GroupSettings() { return kGroupSettings; }

std::string NodeFolder() {
  const char* const folder = secure_getenv("HYPERLOOP_NODE");
  return folder != nullptr && *folder != '\0' ? folder : "/etc/hyperloop";
}

Result<std::string> GroupFileIn(const std::string& folder, std::string_view group) {
  if (!IsName(group) || group.front() == '.')
    return InvalidArgument(Text("\"", group, "\" is no name of a group: that is ", kNameRule,
                                ", without a dot first"));
  return Text(folder, "/groups/", group, kGroupEnding);
}

std::string HostLine::Line() const { return name + " " + address + " " + KeyText(key); }

std::string HostLine::At(uint16_t port) const {
  const bool v6 = address.find(':') != std::string::npos;
  return Text(v6 ? "[" : "", address, v6 ? "]:" : ":", port);
}

Status CheckHostAddress(std::string_view address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  if (!ParseAddress(address, &bytes))
    return InvalidArgument(
        "the address is no number such as 10.0.0.1 or fd00::1 (names are not looked up, and ports "
        "follow from the groups)");
  const bool any = std::all_of(bytes.begin() + 12, bytes.end(), [](auto ch) { return ch == 0; }) &&
                   std::all_of(bytes.begin(), bytes.begin() + 10, [](auto ch) { return ch == 0; });
  if (any)
    return InvalidArgument("give the address at which the others reach the host, not a wildcard");
  return {};
}

Result<std::vector<HostLine>> ParseHosts(std::string_view text, const std::string& path) {
  std::vector<HostLine> hosts;
  const auto take = [&](std::string_view line, size_t) -> Status {
    if (hosts.size() == kMostHosts)
      return InvalidArgument(Text("more than ", kMostHosts, " hosts: leave the others out"));
    HL_ASSIGN_OR_RETURN(HostLine host, ParseHostLine(line));
    HL_RETURN_IF_ERROR(CheckAgainst(host, hosts));
    hosts.push_back(std::move(host));
    return {};
  };
  HL_RETURN_IF_ERROR(ForEachLine(text, path, take));
  HL_RETURN_IF_ERROR(CheckIsWhole(text, path));
  // Rather a file that was emptied than hosts that are all gone.
  if (hosts.empty())
    return InvalidArgument(Text(path, " names no host: put the lines there, each ", kWhatIsAHost));
  return hosts;
}

Result<GroupFile> ParseGroup(std::string_view text, const std::string& path) {
  GroupFile group;
  group.name = fs::path(path).stem();
  std::vector<std::string> seen;
  HL_RETURN_IF_ERROR(CheckIsWhole(text, path));
  HL_RETURN_IF_ERROR(ForEachLine(text, path, [&](std::string_view line, size_t number) {
    return TakeSetting(line, number, &group, &seen);
  }));
  if (group.hosts.empty())
    return InvalidArgument(Text(path, " names no host: add a line such as hosts = a, b, c"));
  return group;
}

Result<std::string> ReadNodeFile(const std::string& path, size_t limit) {
  const fs::path whole(path);
  HL_ASSIGN_OR_RETURN(const std::string folder,
                      CheckDirectory(whole.parent_path(), DirectoryRule::kShared));
  const std::string resolved = folder + "/" + std::string(whole.filename());
  const auto file = OpenTrustedFile(resolved, O_RDONLY);
  if (!file.ok() && access(resolved.c_str(), R_OK) != 0 && errno == EACCES)
    return PermissionDenied(
        Text(path, " may not be read by this user, as when it was made under a umask of 077: ",
             "chmod 644 ", path, ", on all hosts"));
  HL_RETURN_IF_ERROR(file.status());
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return FromErrno(errno, path);
  if (static_cast<uint64_t>(info.st_size) > limit)
    return InvalidArgument(Text(path, " has ", info.st_size, " bytes; at most ", limit));
  HL_ASSIGN_OR_RETURN(std::string text, ReadTrustedFile(resolved));
  if (text.size() > limit) return InvalidArgument(Text(path, " grows; at most ", limit, " bytes"));
  return text;
}

Result<std::vector<HostLine>> ReadHosts(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const std::string text, ReadNodeFile(path, kMostHostsBytes));
  return ParseHosts(text, path);
}

Result<GroupFile> ReadGroup(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const std::string text, ReadNodeFile(path, kMostGroupBytes));
  return ParseGroup(text, path);
}

Result<std::vector<std::string>> GroupFilesBeside(const std::string& hosts) {
  const std::string folder = fs::path(hosts).parent_path() / "groups";
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr && errno == ENOENT) return std::vector<std::string>();
  if (listing == nullptr) return FromErrno(errno, folder);
  HL_RETURN_IF_ERROR(CheckDirectory(folder, DirectoryRule::kShared).status());
  std::vector<std::string> paths;
  for (errno = 0; const dirent* each = readdir(listing.get()); errno = 0) {
    const std::string_view name = each->d_name;
    // Others are copies that editors and packages leave there.
    if (name.ends_with(kGroupEnding) && name.front() != '.' && name.size() > kGroupEnding.size())
      paths.push_back(folder + "/" + std::string(name));
  }
  if (errno != 0) return FromErrno(errno, folder);
  if (paths.size() > kMostGroups)
    return InvalidArgument(Text(folder, " has more than ", kMostGroups, " groups: take some out"));
  std::ranges::sort(paths);
  return paths;
}

std::vector<TrustedPeer> TrustOf(const std::vector<HostLine>& hosts,
                                 const std::vector<GroupFile>& groups) {
  std::vector<TrustedPeer> lines;
  for (const HostLine& host : hosts) {
    const size_t before = lines.size();
    for (const GroupFile& group : groups)
      if (std::ranges::count(group.hosts, host.name) != 0)
        lines.push_back({host.name, host.key, kEveryRole, host.At(group.port)});
    if (lines.size() == before) lines.push_back({host.name, host.key, kRoleLink});
  }
  return lines;
}

}  // namespace hyperloop::identity
