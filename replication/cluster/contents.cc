#include "cluster/contents.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "cluster/network.h"
#include "common/uuid.h"
#include "files/file_store.h"

namespace hyperloop::cluster {
namespace {

template <size_t N>
bool IsOneOf(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsKeyFile(std::string_view name) {
  return name == "identity" || name == "trusted" || name.starts_with(".identity.new.") ||
         name.starts_with(".trusted.new.");
}

// Whether a process or a pool of a cluster has that name.
bool IsNode(const std::string& name) {
  const std::string daemon = std::string("-") + kPrimaryDaemon;
  if (name == kPrimaryDaemon || name == kPrimaryNode) return true;
  return IsReplicaNode(name.ends_with(daemon) ? name.substr(0, name.size() - daemon.size()) : name);
}

// Splits "replica0.pool" at its first dot.
std::pair<std::string, std::string_view> NodeAndRest(const std::string& name) {
  const size_t dot = std::min(name.find('.'), name.size());
  return {name.substr(0, dot), std::string_view(name).substr(dot)};
}

bool IsFileOfNode(const std::string& name) {
  static constexpr std::array<std::string_view, 6> kRests{
      ".pid", ".pid.new", ".log", ".pool", ".pool.creating", ".pool.resizing"};
  constexpr std::string_view kSetAside = ".pool.before-resize-";
  const auto [node, rest] = NodeAndRest(name);
  if (!IsNode(node)) return false;
  if (IsOneOf(rest, kRests)) return true;
  return rest.starts_with(kSetAside) &&
         rest.find_first_not_of("0123456789.", kSetAside.size()) == std::string_view::npos;
}

bool IsSocketOfNode(const std::string& name) {
  const auto [node, rest] = NodeAndRest(name);
  return IsNode(node) && rest == ".sock";
}

bool IsFilesOfNode(const std::string& name) {
  const auto [node, rest] = NodeAndRest(name);
  return IsNode(node) && rest == ".pool.files";
}

class Lister {
 public:
  explicit Lister(std::string directory) { contents_.directory = std::move(directory); }

  Result<ClusterContents> List() {
    HL_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Read(""));
    bool described = false, locked = false;
    for (const Entry& entry : entries) {
      described = described || (entry.name == "cluster.json" && entry.is(S_IFREG));
      locked = locked || (entry.name == "lock" && entry.is(S_IFREG));
      HL_RETURN_IF_ERROR(AddTop(entry));
    }
    // The last ones to go: until then a call that was cut short can be repeated.
    if (described) contents_.made.emplace_back("cluster.json");
    if (locked) contents_.made.emplace_back("lock");
    return std::move(contents_);
  }

 private:
  struct Entry {
    std::string name, path;  // `path`: below the cluster's directory
    struct stat found;
    bool is(mode_t type) const { return (found.st_mode & S_IFMT) == type; }
  };

  Result<std::vector<Entry>> Read(const std::string& below) {
    const std::string directory = contents_.directory + "/" + below;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
    if (open == nullptr) return FromErrno(errno, "reading " + directory);
    std::vector<Entry> entries;
    while (const dirent* each = ::readdir(open.get())) {
      Entry entry{each->d_name, below + each->d_name, {}};
      if (entry.name == "." || entry.name == "..") continue;
      if (::fstatat(::dirfd(open.get()), each->d_name, &entry.found, AT_SYMLINK_NOFOLLOW) == 0)
        entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return entries;
  }

  void AddMade(const Entry& entry) {
    contents_.made.push_back(entry.path + (entry.is(S_IFDIR) ? "/" : ""));
    contents_.bytes += static_cast<uint64_t>(entry.found.st_blocks) * 512;
  }
  void AddOther(const Entry& entry) {
    contents_.others.push_back(entry.path + (entry.is(S_IFDIR) ? "/" : ""));
  }

  Status AddTop(const Entry& entry) {
    static constexpr std::array<std::string_view, 2> kFiles{"cluster.json.new", "peers"};
    if (entry.is(S_IFREG) && (entry.name == "cluster.json" || entry.name == "lock")) return {};
    const bool is_file =
        entry.is(S_IFREG) && (IsOneOf(entry.name, kFiles) || IsFileOfNode(entry.name));
    if (is_file || (entry.is(S_IFSOCK) && IsSocketOfNode(entry.name))) {
      AddMade(entry);
      return {};
    }
    if (entry.is(S_IFDIR) && (entry.name == "keys" || entry.name == "keys.new"))
      return AddDirectory(
          entry, [this](const Entry& inner) { return AddFileIf(inner, IsKeyFile(inner.name)); });
    if (entry.is(S_IFDIR) && IsFilesOfNode(entry.name))
      return AddDirectory(entry, [this](const Entry& inner) { return AddGroup(inner); });
    AddOther(entry);
    return {};
  }

  // The whole files of one group, which a replica keeps.
  Status AddGroup(const Entry& entry) {
    if (entry.is(S_IFDIR) && ParseUuid(entry.name).ok())
      return AddDirectory(
          entry, [this](const Entry& inner) { return AddFileIf(inner, IsStoredName(inner.name)); });
    AddOther(entry);
    return {};
  }

  Status AddFileIf(const Entry& entry, bool made) {
    if (made && entry.is(S_IFREG)) {
      AddMade(entry);
    } else {
      AddOther(entry);
    }
    return {};
  }

  // A directory that holds something else stays, and is then not named itself.
  template <class Add>
  Status AddDirectory(const Entry& entry, const Add& add) {
    HL_ASSIGN_OR_RETURN(const std::vector<Entry> inside, Read(entry.path + "/"));
    const size_t others = contents_.others.size();
    for (const Entry& inner : inside) HL_RETURN_IF_ERROR(add(inner));
    if (contents_.others.size() == others) AddMade(entry);
    return {};
  }

  ClusterContents contents_;
};

}  // namespace

Result<ClusterContents> ListContents(const Paths& paths) { return Lister(paths.directory).List(); }

Status RemoveMade(const ClusterContents& contents) {
  for (const std::string& each : contents.made) {
    const std::string path = contents.directory + "/" + each;
    const int removed = path.ends_with('/') ? ::rmdir(path.c_str()) : ::unlink(path.c_str());
    if (removed != 0 && errno != ENOENT) return FromErrno(errno, "removing " + path);
  }
  return {};
}

}  // namespace hyperloop::cluster
