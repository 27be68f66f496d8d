#include "ctl/takeover_check.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "ctl/preload.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::ctl {
namespace {

namespace stdfs = std::filesystem;

// A file system with less than this share free takes no database that grows.
constexpr uint64_t kFreeShare = 10;

std::string DigestOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: it is for mistakes, and proves nothing
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

// The path, or what is there of the way to it.
stdfs::path NearestOf(stdfs::path path) {
  std::error_code error;
  while (path.has_relative_path() && !stdfs::exists(path, error)) path = path.parent_path();
  return path;
}

// Whether one can be preloaded into the other was judged when the agent began.
Status LookAtService(const std::string& service) {
  HL_RETURN_IF_ERROR(FindPlugin().status());
  return FindProgram(service).status();
}

Status MayWriteIn(const stdfs::path& folder) {
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return PermissionDenied(
      Text("this user may not write in ", folder.string(),
           ": chown it to the user of the agent, or start the agent as who may write there"));
}

// The opening makes one that is not there, or anew if the group's region has grown.
Status LookAtPool(const std::string& pool, uint64_t region) {
  if (pool.empty()) return {};
  struct stat info {};
  if (stat(pool.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return InvalidArgument(Text("move ", pool,
                                  " away: it is no regular file, and the pool of "
                                  "the primary here is to be there"));
    if (access(pool.c_str(), R_OK | W_OK) != 0)
      return PermissionDenied(
          Text("this user may not write the pool ", pool, ": chown it to the user of the agent"));
    if (static_cast<uint64_t>(info.st_size) >= region) return {};
  }
  const stdfs::path folder = NearestOf(stdfs::path(pool).parent_path());
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) != 0) return FromErrno(errno, folder.string());
  const uint64_t free = uint64_t{room.f_bavail} * room.f_frsize;
  if (free < region)
    return NoSpace(Text("make room in ", folder.string(), " for the pool of the primary: it has ",
                        free, " bytes free, and the region of the group ", region));
  return MayWriteIn(folder);
}

Status LookAtDatabase(const std::string& database) {
  const stdfs::path there = NearestOf(database);
  struct statvfs room {};
  if (statvfs(there.c_str(), &room) != 0) return FromErrno(errno, there.string());
  if (uint64_t{room.f_bavail} < room.f_blocks / kFreeShare)
    return NoSpace(Text("make room where the database directory ", database,
                        " is: less than a tenth of its file system is free, ",
                        uint64_t{room.f_bavail} * room.f_frsize, " bytes"));
  return MayWriteIn(there);
}

Status LookAtKeys(const std::string& keys) {
  return keys.empty() ? Status() : identity::KeyRing::Load(keys).status();
}

// Enabled by a link in some folder TARGET.wants, as systemctl enable makes it.
Status LookAtUnit(const TakeoverPlace& place) {
  std::error_code error;
  if (place.instance.empty() || !stdfs::is_directory(place.root + "/run/systemd/system", error))
    return {};
  const std::string unit = Text("hyperloop-agent@", place.instance, ".service");
  for (const char* folder : {"/etc/systemd/system", "/run/systemd/system"}) {
    for (const auto& each : stdfs::directory_iterator(place.root + folder, error)) {
      const stdfs::path link = each.path() / unit;
      if (each.path().extension() == ".wants" &&
          stdfs::symlink_status(link, error).type() != stdfs::file_type::not_found)
        return {};
    }
  }
  return NotFound(Text("systemctl enable hyperloop-agent@", place.instance,
                       ": the agent is not started when this host starts"));
}

}  // namespace

std::vector<std::string> TakeoverLacks(const TakeoverPlace& place) {
  std::vector<std::string> lacks;
  for (const Status& each : {LookAtService(place.service), LookAtKeys(place.store.keys),
                             LookAtPool(place.store.pool, place.region_size),
                             LookAtDatabase(place.database), LookAtUnit(place)}) {
    if (!each.ok()) lacks.push_back(each.message());
  }
  return lacks;
}

Result<FileDigests> DigestFiles(const std::string& folder, std::string_view group) {
  FileDigests digests;
  HL_ASSIGN_OR_RETURN(const auto hosts, identity::ReadHosts(identity::HostsFileIn(folder)));
  for (const identity::HostLine& each : hosts) digests.hosts[each.name] = DigestOf(each.Line());
  HL_ASSIGN_OR_RETURN(const std::string path, identity::GroupFileIn(folder, group));
  HL_ASSIGN_OR_RETURN(const identity::GroupFile file, identity::ReadGroup(path));
  std::string names;
  for (const std::string& each : file.hosts) names += each + ",";
  digests.group["hosts"] = DigestOf(names);
  digests.group["port"] = DigestOf(Text(file.port));
  for (const auto& each : file.settings) digests.group[each.name] = DigestOf(each.value);
  return digests;
}

std::vector<std::string> Differences(const std::map<std::string, std::string>& one,
                                     const std::map<std::string, std::string>& other) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : one) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != digest) names.push_back(name);
  }
  for (const auto& [name, digest] : other)
    if (!one.contains(name)) names.push_back(name);
  return names;
}

}  // namespace hyperloop::ctl
