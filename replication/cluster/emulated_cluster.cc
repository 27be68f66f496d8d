#include "hyperloop/replication/emulated_cluster.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cluster/cluster_file.h"
#include "cluster/cluster_paths.h"
#include "cluster/contents.h"
#include "cluster/network.h"
#include "cluster/process.h"
#include "cluster/starter.h"
#include "common/printable.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/size.h"
#include "region/pool.h"

namespace hyperloop {
namespace {

using cluster::ClusterFile;
using cluster::kPrimaryDaemon;
using cluster::Look;
using cluster::Paths;
using cluster::ProcessId;
namespace fs = std::filesystem;

constexpr uint32_t kReplicasByDefault = 3;
constexpr uint64_t kRegionSizeByDefault = 256ull << 20;
// A pool file needs so much more than its region, for PMDK's own metadata and to align the region
// to 2 MiB.
constexpr uint64_t kPoolOverhead = 8ull << 20;

std::string ReplicaName(size_t index) { return "replica" + std::to_string(index); }

// Whether `path` still is the open file.
bool IsFile(const std::string& path, int fd) {
  struct stat named, open;
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// A lock that is held while a cluster is changed, as long as the descriptor is open. It ends with
// the process that holds it.
Result<UniqueFd> LockDirectory(const Paths& paths, const SayWaiting& say) {
  const std::string path = paths.File("lock");
  for (;;) {
    HL_ASSIGN_OR_RETURN(UniqueFd lock, OpenTrustedFile(path, O_RDWR | O_CREAT, 0600));
    if (say && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      say("another process starts or ends the cluster at " + paths.directory +
          "; waiting until it has");
    while (::flock(lock.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return FromErrno(errno, "locking " + path);
    }
    if (IsFile(path, lock.get())) return lock;  // else the cluster was destroyed meanwhile
  }
}

Result<Paths> ExistingDirectory(const std::string& directory) {
  const Result<std::string> path = CheckDirectory(directory, DirectoryRule::kOwn);
  if (path.ok()) return Paths{*path};
  if (path.status().code() == Code::kPermissionDenied) {
    return path.status().WithContext("cluster at " + directory);
  }
  return NotFound("no cluster at " + directory + ": " + path.status().message() +
                  ". hyperloopctl cluster start --dir " + directory + " makes one");
}

Result<ClusterFile> LoadDescription(const Paths& paths) {
  Result<ClusterFile> file = cluster::LoadClusterFile(paths.Description());
  if (!file.ok() && file.status().code() == Code::kNotFound) {
    return NotFound("no cluster at " + paths.directory + " (it has no cluster.json)");
  }
  return file;
}

Result<ClusterInfo> Describe(const Paths& paths, const ClusterFile& file) {
  ClusterInfo info;
  info.directory = paths.directory;
  info.region_size = file.region_size;
  info.media = file.media;
  info.provider = file.provider;
  StoreOptions store;
  store.provider = file.provider;
  if (file.provider == "softrnic") {
    info.socket = store.device = paths.Socket(kPrimaryDaemon);
    HL_ASSIGN_OR_RETURN(ClusterProcess daemon, Look(paths, kPrimaryDaemon));
    info.processes.push_back(std::move(daemon));
  } else {
    store.device = file.device;
  }
  store.pool = paths.Pool("primary");
  if (fs::exists(paths.Keys())) store.keys = paths.Keys();
  for (const ClusterFile::Replica& replica : file.replicas) {
    HL_ASSIGN_OR_RETURN(ClusterProcess process, Look(paths, replica.name));
    process.listen = replica.listen;
    process.pool = paths.Pool(replica.name);
    if (file.provider == "softrnic")
      process.socket = paths.Socket(cluster::DaemonOf(file, replica.name));
    store.replicas.push_back(replica.listen);
    info.processes.push_back(std::move(process));
  }
  info.replica_count = file.replicas.size();
  if (file.network) {
    info.network = file.network->name;
    info.network_address = cluster::NodeAddress(*file.network, cluster::kPrimaryNode);
    info.netem = file.network->netem;
    for (const ClusterFile::Replica& replica : file.replicas) {
      HL_ASSIGN_OR_RETURN(ClusterProcess daemon,
                          Look(paths, cluster::DaemonOf(file, replica.name)));
      info.processes.push_back(std::move(daemon));
    }
  }
  info.uri = FormatStoreUri(store);
  return info;
}

// Whether the options fit a cluster of this provider.
Status CheckProvider(const std::string& provider, const ClusterOptions& options) {
  if (provider != "softrnic" && provider != "verbs") {
    return InvalidArgument("provider " + provider + ": softrnic or verbs");
  }
  if (provider == "softrnic" && !options.device.empty()) {
    return InvalidArgument("device " + options.device + ": only provider verbs has a choice");
  }
  if (provider == "verbs" &&
      (options.spin_us >= 0 || options.cpu >= 0 || !options.priority.empty())) {
    return InvalidArgument(
        "spin-us, cpu and priority are the RNIC daemon's, and provider verbs has none");
  }
  if (provider == "verbs" && options.hosts_apart) {
    return InvalidArgument("hosts apart have RNIC daemons, and provider verbs has none");
  }
  return Status::Ok();
}

Status CheckOptions(const ClusterOptions& options) {
  if (!options.provider.empty()) HL_RETURN_IF_ERROR(CheckProvider(options.provider, options));
  if (options.directory.empty()) return InvalidArgument("no directory given for the cluster");
  if (!IsPrintable(options.device))
    return InvalidArgument("the device's name has characters that cannot be printed");
  if (!options.netem.empty() && !options.hosts_apart)
    return InvalidArgument("netem shapes what passes between hosts apart; ask for those, too");
  if (!cluster::IsNetem(options.netem))
    return InvalidArgument("netem is longer than 200 characters, or has unprintable ones");
  if (options.replicas > kMaxGroupSize) {
    return InvalidArgument(std::to_string(options.replicas) + " replicas: a group has 1 to " +
                           std::to_string(kMaxGroupSize));
  }
  if (options.region_size > kMaxRegionSize) {
    return InvalidArgument("region size " + std::to_string(options.region_size) +
                           " B: at most 15 GiB, the largest allocation that a PMDK pool holds");
  }
  return Status::Ok();
}

// Makes the directory and the missing ones above it, in a place where nobody else could replace
// them.
Status MakeMissing(fs::path path, mode_t mode) {
  std::error_code error;
  if (!path.has_filename()) path = path.parent_path();  // "…/"
  if (fs::exists(path, error)) return Status::Ok();
  const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
  HL_RETURN_IF_ERROR(MakeMissing(above, 0755));
  HL_RETURN_IF_ERROR(CheckDirectory(above, DirectoryRule::kShared).status());
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return Status::Ok();
  return FromErrno(errno, "making directory " + path.string());
}

// Options of a store, as those in the cluster's uri, have no control characters.
Status CheckCharacters(const std::string& directory) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  if (std::ranges::none_of(directory, control)) return Status::Ok();
  return InvalidArgument("give another --dir: the path " +
                         Printable(directory, 4 * directory.size()) +
                         " has a control character, such as a line feed, and no uri takes one");
}

Result<Paths> MakeDirectory(const ClusterOptions& options) {
  constexpr mode_t kPrivate = 0700;  // as pools are
  std::error_code error;
  HL_RETURN_IF_ERROR(CheckCharacters(fs::absolute(options.directory, error)));
  HL_RETURN_IF_ERROR(MakeMissing(options.directory, kPrivate));
  Result<Paths> paths = ExistingDirectory(options.directory);
  if (!paths.ok()) return paths;
  HL_RETURN_IF_ERROR(CheckCharacters(paths->directory));  // links may have led elsewhere
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  const std::string socket =
      paths->Socket((options.hosts_apart ? ReplicaName(0) + "-" : "") + kPrimaryDaemon);
  if (socket.size() > kLongest) {
    return InvalidArgument("the socket's path " + socket + " has " + std::to_string(socket.size()) +
                           " characters, Unix allows " + std::to_string(kLongest) +
                           "; use a shorter --dir");
  }
  return paths;
}

// This machine's name, in the form of an identity's name.
std::string IdentityName() {
  char host[kNameBytes + 1] = "";
  ::gethostname(host, kNameBytes);
  return IsName(host) ? host : "localhost";
}

// A name for another replica of the cluster. If a former one had it, its pool is used again.
std::string FreeName(const ClusterFile& file) {
  for (size_t i = 0;; ++i) {
    const std::string name = ReplicaName(i);
    if (std::none_of(file.replicas.begin(), file.replicas.end(),
                     [&](const ClusterFile::Replica& each) { return each.name == name; }))
      return name;
  }
}

ClusterFile::Replica NewReplica(const ClusterFile& file, const std::string& name) {
  return {name, (file.network ? cluster::NodeAddress(*file.network, name) : "127.0.0.1") + ":0"};
}

struct Description {
  ClusterFile file;
  bool fresh = false;  // of a new cluster
  bool grown = false;  // an existing cluster gets another replica, the last one
};

// kInvalidArgument: `options` ask for another cluster than the one that the directory has.
Status CheckSame(const ClusterOptions& options, const Paths& paths, const ClusterFile& file) {
  const auto other = [&paths](const std::string& has, const std::string& asked) {
    return InvalidArgument("the cluster at " + paths.directory + " has " + has + "; asked for is " +
                           asked + ". Leave the option out, or give another directory");
  };
  HL_RETURN_IF_ERROR(CheckProvider(file.provider, options));
  if (!options.provider.empty() && options.provider != file.provider)
    return other("provider=" + file.provider, options.provider);
  if (!options.device.empty() && options.device != file.device)
    return other("device=" + file.device, options.device);
  if (options.region_size != 0 && options.region_size != file.region_size)
    return other("regions of " + std::to_string(file.region_size) + " B",
                 std::to_string(options.region_size) + " B");
  if (!options.media.empty() && options.media != file.media)
    return other("media=" + file.media, options.media);
  if (options.hosts_apart && !file.network)
    return other("one RNIC daemon for all nodes", "one for each (hosts apart)");
  const std::string netem = file.network ? file.network->netem : "";
  if (!options.netem.empty() && options.netem != netem)
    return other("netem=\"" + netem + "\"", "\"" + options.netem + "\"");
  return Status::Ok();
}

// The directory's own cluster, with another replica if asked for.
Result<Description> Existing(const ClusterOptions& options, const Paths& paths, ClusterFile file) {
  HL_RETURN_IF_ERROR(CheckSame(options, paths, file));
  const size_t has = file.replicas.size();
  const size_t wanted = options.replicas == 0 ? has : options.replicas;
  if (wanted != has && wanted != has + 1) {
    return InvalidArgument("the cluster at " + paths.directory + " has " + std::to_string(has) +
                           " replicas; asked for are " + std::to_string(wanted) +
                           ". Give as many, one more, or another directory; hyperloopctl cluster "
                           "remove takes a replica out");
  }
  const bool another = wanted > has;
  if (another) file.replicas.push_back(NewReplica(file, FreeName(file)));
  return Description{std::move(file), false, another};
}

Status CheckEmpty(const Paths& paths) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(paths.directory, error)) {
    const std::string name = entry.path().filename();
    // Left by an earlier attempt to start.
    if (name == "lock" || name == "keys" || name == "keys.new" || name == "peers") continue;
    if (entry.path().extension() == ".log") continue;
    return AlreadyExists(paths.directory +
                         " is not a cluster's directory and not empty (it holds " + name +
                         "); give a new one");
  }
  return Status::Ok();
}

Result<ClusterFile> NewCluster(const ClusterOptions& options, const Paths& paths) {
  ClusterFile made;
  if (!options.provider.empty()) made.provider = options.provider;
  HL_RETURN_IF_ERROR(CheckProvider(made.provider, options));
  made.device = options.device;
  made.region_size = options.region_size == 0 ? kRegionSizeByDefault : options.region_size;
  made.media = options.media.empty() ? "auto" : options.media;
  if (options.hosts_apart) {
    HL_ASSIGN_OR_RETURN(made.network, cluster::PlanNetwork(paths.directory, options.netem));
  }
  const uint32_t count = options.replicas == 0 ? kReplicasByDefault : options.replicas;
  for (uint32_t i = 0; i < count; ++i) made.replicas.push_back(NewReplica(made, ReplicaName(i)));
  return made;
}

// The description of the cluster to start: the directory's own, or a new one. Writes nothing.
Result<Description> DescriptionFor(const ClusterOptions& options, const Paths& paths) {
  Result<ClusterFile> file = LoadDescription(paths);
  if (file.ok()) return Existing(options, paths, *std::move(file));
  if (file.status().code() != Code::kNotFound) return file.status();
  HL_RETURN_IF_ERROR(CheckEmpty(paths));
  HL_ASSIGN_OR_RETURN(ClusterFile made, NewCluster(options, paths));
  return Description{std::move(made), true, false};
}

// Checks, before anything is started or ended, whether each process could write its log.
Status CheckLogs(const Paths& paths, const ClusterFile& file) {
  for (const std::string& name : cluster::ProcessNames(file)) {
    const Status status = OpenTrustedFile(paths.Log(name), O_RDONLY).status();
    if (!status.ok() && status.code() != Code::kNotFound) return status;
  }
  return Status::Ok();
}

// Pools may have been resized one by one, by hyperloopctl resize --pool.
Status CheckPools(const Paths& paths, const ClusterFile& file) {
  uint64_t largest = 0;
  std::string name;
  for (const ClusterFile::Replica& replica : file.replicas) {
    const Result<std::unique_ptr<Pool>> pool = Pool::OpenCopyOnWrite(paths.Pool(replica.name));
    if (!pool.ok() || (*pool)->region().size() <= std::max(largest, file.region_size)) continue;
    largest = (*pool)->region().size();
    name = replica.name;
  }
  if (largest == 0) return Status::Ok();
  return InvalidArgument("resize the whole cluster: hyperloopctl resize --dir " + paths.directory +
                         " --region-size " + std::to_string(largest) + "; the pool of " + name +
                         " has a region of that size, and those of the cluster have " +
                         std::to_string(file.region_size) + " B");
}

Status CheckSpace(const Paths& paths, const ClusterFile& file) {
  uint64_t needed = 0;
  for (const ClusterFile::Replica& replica : file.replicas) {
    if (!fs::exists(paths.Pool(replica.name))) needed += file.region_size + kPoolOverhead;
  }
  struct statvfs space {};
  if (::statvfs(paths.directory.c_str(), &space) != 0) return FromErrno(errno, paths.directory);
  const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (needed <= free) return Status::Ok();
  return NoSpace("the replicas' pools need " + std::to_string(needed >> 20) + " MiB, " +
                 paths.directory + " has " + std::to_string(free >> 20) +
                 " MiB free; give a smaller --region-size or another --dir");
}

// The names of all hosts that daemons apart serve, now or once the cluster has grown: the nodes,
// and the one that tools attach to.
std::vector<std::string> HostsApart() {
  std::vector<std::string> hosts{cluster::kPrimaryNode, "hyperloopctl"};
  for (size_t i = 0; i < kMaxGroupSize; ++i) hosts.push_back(ReplicaName(i));
  return hosts;
}

// Tells the daemons of nodes apart where each host is.
Status WritePeers(const Paths& paths, const ClusterFile& file) {
  if (!file.network) return Status::Ok();
  std::string text;
  for (const std::string& host : HostsApart())
    text += host + "=" + cluster::NodeAddress(*file.network, host) + ":" +
            std::to_string(cluster::kLinkPort) + "\n";
  ::unlink(paths.Peers().c_str());
  HL_ASSIGN_OR_RETURN(const UniqueFd fd,
                      OpenTrustedFile(paths.Peers(), O_WRONLY | O_CREAT | O_EXCL, 0600));
  const ssize_t n = ::write(fd.get(), text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return Status::Ok();
  return FromErrno(n < 0 ? errno : ENOSPC, "writing " + paths.Peers());
}

// Makes the machine's identity, which all processes of the cluster share and which is the only one
// that they trust.
Status MakeKeys(const Paths& paths, const ClusterFile& file) {
  if (fs::exists(paths.Keys())) return identity::KeyRing::Load(paths.Keys()).status();
  for (const ClusterFile::Replica& replica : file.replicas) {
    HL_ASSIGN_OR_RETURN(const ClusterProcess process, Look(paths, replica.name));
    if (process.state == ProcessState::kDead) continue;
    return InvalidArgument(replica.name + " of the cluster at " + paths.directory +
                           " runs without keys. End the cluster first, which keeps its data: "
                           "hyperloopctl cluster stop --dir " +
                           paths.directory);
  }
  const std::string name = IdentityName();
  // It has another name until it is complete.
  const std::string made = paths.File("keys.new");
  std::error_code error;
  fs::remove_all(made, error);
  if (error) return FromErrno(error.value(), made);
  HL_RETURN_IF_ERROR(identity::MakeIdentity(made, name));
  HL_ASSIGN_OR_RETURN(const auto ring, identity::KeyRing::Load(made));
  std::vector<std::string> trusted;
  if (file.network) trusted = HostsApart();
  trusted.push_back(name);
  for (const std::string& each : trusted)
    HL_RETURN_IF_ERROR(identity::Trust(made, {each, ring->public_key(), identity::kEveryRole, ""}));
  if (::rename(made.c_str(), paths.Keys().c_str()) != 0) return FromErrno(errno, paths.Keys());
  return Status::Ok();
}

Status MakeNetwork(const Paths& paths, const ClusterFile& file) {
  std::vector<std::string> replicas;
  for (const ClusterFile::Replica& replica : file.replicas) replicas.push_back(replica.name);
  bool running = false;
  for (const std::string& name : cluster::ProcessNames(file)) {
    HL_ASSIGN_OR_RETURN(const ClusterProcess process, Look(paths, name));
    running = running || process.state != ProcessState::kDead;
  }
  // What a call that was cut short has left may be half made.
  if (!running) HL_RETURN_IF_ERROR(cluster::RemoveNetwork(*file.network, replicas));
  return cluster::MakeNetwork(*file.network, replicas);
}

// Makes the network, if the nodes have one each, and starts what does not run. Sets where the
// replicas listen.
Status StartParts(const ClusterOptions& options, const Paths& paths, ClusterFile* file,
                  uint32_t* started) {
  if (file->network)
    HL_RETURN_IF_ERROR(MakeNetwork(paths, *file).WithContext("making the nodes' network"));
  HL_RETURN_IF_ERROR(WritePeers(paths, *file));
  cluster::Starter starter(options, paths, *file);
  HL_RETURN_IF_ERROR(starter.Run());
  *file = starter.file();
  *started = starter.started();
  return Status::Ok();
}

// Removes what a failed first start has made, so that a second try may use other options.
void Discard(const Paths& paths, const ClusterFile& file) {
  for (const ClusterFile::Replica& replica : file.replicas) {
    if (file.network) {
      cluster::RemoveNode(*file.network, replica.name).IgnoreError();
      ::unlink(paths.Socket(cluster::DaemonOf(file, replica.name)).c_str());
    }
    ::unlink(paths.Pool(replica.name).c_str());
  }
  if (file.network) cluster::RemoveNetwork(*file.network, {}).IgnoreError();
  ::unlink(paths.Socket(kPrimaryDaemon).c_str());
  ::unlink(paths.Description().c_str());
  std::error_code ignored;
  fs::remove_all(paths.Keys(), ignored);
}

// Ends a process and forgets it. True: SIGKILL was needed.
Result<bool> End(const Paths& paths, const std::string& name, std::chrono::milliseconds patience,
                 const SayWaiting& say) {
  const Result<ProcessId> id = cluster::ReadPidFile(paths.Pid(name));
  Result<bool> killed = id.ok() ? cluster::Terminate(*id, patience, say) : Result<bool>(false);
  if (killed.ok()) ::unlink(paths.Pid(name).c_str());
  return killed;
}

// Ends all processes, which `file` describes, and removes their sockets and their network. Returns
// those that needed SIGKILL.
Result<std::vector<std::string>> StopAll(const Paths& paths, const ClusterFile& file,
                                         std::chrono::milliseconds patience,
                                         const SayWaiting& say) {
  std::vector<std::string> names = cluster::ProcessNames(file);
  HL_RETURN_IF_ERROR(Describe(paths, file).status());  // before any is ended
  std::vector<std::string> killed;
  // A daemon serves the replicas, which follow it, until they are gone.
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    HL_ASSIGN_OR_RETURN(const bool needed_kill, End(paths, *name, patience, say));
    if (needed_kill) killed.push_back(*name);
  }
  for (const std::string& name : names) ::unlink(paths.Socket(name).c_str());
  if (file.network) {
    std::vector<std::string> replicas;
    for (const ClusterFile::Replica& replica : file.replicas) replicas.push_back(replica.name);
    HL_RETURN_IF_ERROR(cluster::RemoveNetwork(*file.network, replicas));
  }
  return killed;
}

// Adds the processes that live.
Result<ClusterContents> ContentsOf(const Paths& paths, const ClusterFile& file) {
  HL_ASSIGN_OR_RETURN(const ClusterInfo info, Describe(paths, file));
  HL_ASSIGN_OR_RETURN(ClusterContents contents, cluster::ListContents(paths));
  for (const ClusterProcess& process : info.processes)
    if (process.state != ProcessState::kDead) contents.running.push_back(process.name);
  return contents;
}

}  // namespace

std::string_view ProcessStateName(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning:
      return "running";
    case ProcessState::kStopped:
      return "stopped";
    case ProcessState::kDead:
      break;
  }
  return "dead";
}

bool ClusterInfo::AllAlive() const {
  return std::none_of(processes.begin(), processes.end(), [](const ClusterProcess& process) {
    return process.state == ProcessState::kDead;
  });
}

Result<ClusterInfo> StartCluster(const ClusterOptions& options) {
  HL_RETURN_IF_ERROR(CheckOptions(options));
  HL_ASSIGN_OR_RETURN(const Paths paths, MakeDirectory(options));
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths, options.waiting));
  HL_ASSIGN_OR_RETURN(const Description description, DescriptionFor(options, paths));
  ClusterFile file = description.file;
  HL_RETURN_IF_ERROR(Describe(paths, file).status());  // whether its pid files can be trusted
  HL_RETURN_IF_ERROR(CheckLogs(paths, file));
  HL_RETURN_IF_ERROR(CheckPools(paths, file));
  HL_RETURN_IF_ERROR(CheckSpace(paths, file));
  HL_RETURN_IF_ERROR(MakeKeys(paths, file));
  // The description is saved before anything runs, so that after a crash the processes can be found
  // and stopped.
  HL_RETURN_IF_ERROR(cluster::SaveClusterFile(file, paths.Description()));
  uint32_t started = 0;
  if (const Status status = StartParts(options, paths, &file, &started); !status.ok()) {
    if (description.fresh) Discard(paths, file);
    return status;
  }
  HL_ASSIGN_OR_RETURN(ClusterInfo info, Describe(paths, file));
  info.started = started;
  if (description.grown) info.added = file.replicas.back().listen;
  return info;
}

Result<ClusterInfo> ReadCluster(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_ASSIGN_OR_RETURN(const ClusterFile file, LoadDescription(paths));
  return Describe(paths, file);
}

// The process ends first, so that one which is left over can be found.
Result<ClusterInfo> RemoveReplica(const std::string& directory, const std::string& replica,
                                  std::chrono::milliseconds patience, const SayWaiting& say) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths, say));
  HL_ASSIGN_OR_RETURN(ClusterFile file, LoadDescription(paths));
  HL_RETURN_IF_ERROR(Describe(paths, file).status());  // whether its pid files can be trusted
  std::string names;
  for (const ClusterFile::Replica& each : file.replicas)
    names += (names.empty() ? "" : ", ") + each.name;
  const auto found = std::find_if(file.replicas.begin(), file.replicas.end(),
                                  [&](const ClusterFile::Replica& each) {
                                    return each.name == replica || each.listen == replica;
                                  });
  if (found == file.replicas.end()) {
    return NotFound("the cluster at " + paths.directory + " has no " + replica + "; it has " +
                    names);
  }
  if (file.replicas.size() <= 2) {
    return InvalidArgument("the cluster at " + paths.directory + " has " + names +
                           ". A group of two cannot go on with one of them");
  }
  const ClusterFile::Replica removed = *found;
  HL_RETURN_IF_ERROR(End(paths, removed.name, patience, say).status());
  if (file.network) {
    HL_RETURN_IF_ERROR(End(paths, cluster::DaemonOf(file, removed.name), patience, say).status());
    HL_RETURN_IF_ERROR(cluster::RemoveNode(*file.network, removed.name));
  }
  file.replicas.erase(found);
  HL_RETURN_IF_ERROR(cluster::SaveClusterFile(file, paths.Description()));
  HL_ASSIGN_OR_RETURN(ClusterInfo info, Describe(paths, file));
  info.removed = removed.listen;
  return info;
}

Status ChangeRegionSize(const std::string& directory, uint64_t region_size,
                        const std::function<Status(const ClusterInfo& cluster)>& change) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths, {}));
  HL_ASSIGN_OR_RETURN(ClusterFile file, LoadDescription(paths));
  HL_ASSIGN_OR_RETURN(const ClusterInfo info, Describe(paths, file));
  for (const ClusterProcess& process : info.processes) {
    if (process.state == ProcessState::kDead) continue;
    return Busy(process.name + " of the cluster at " + paths.directory +
                " runs; end the cluster first: hyperloopctl cluster stop --dir " + paths.directory);
  }
  HL_RETURN_IF_ERROR(change(info));
  file.region_size = region_size;
  return cluster::SaveClusterFile(file, paths.Description());
}

Result<std::vector<std::string>> StopCluster(const std::string& directory,
                                             std::chrono::milliseconds patience,
                                             const SayWaiting& say) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths, say));
  HL_ASSIGN_OR_RETURN(const ClusterFile file, LoadDescription(paths));
  return StopAll(paths, file, patience, say);
}

Result<ClusterContents> ReadContents(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_ASSIGN_OR_RETURN(const ClusterFile file, LoadDescription(paths));
  return ContentsOf(paths, file);
}

Result<ClusterContents> DestroyCluster(const std::string& directory,
                                       std::chrono::milliseconds patience, const SayWaiting& say) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths, say));
  HL_ASSIGN_OR_RETURN(const ClusterFile file, LoadDescription(paths));
  HL_RETURN_IF_ERROR(StopAll(paths, file, patience, say).status());
  HL_ASSIGN_OR_RETURN(ClusterContents contents, ContentsOf(paths, file));
  HL_RETURN_IF_ERROR(cluster::RemoveMade(contents));
  if (contents.others.empty() && ::rmdir(paths.directory.c_str()) != 0)
    return FromErrno(errno, "everything in it is removed, but not the directory " + directory);
  return contents;
}

Result<std::string> ProgramFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return FromErrno(error.value(), "/proc/self/exe");
  return program.parent_path().string();
}

}  // namespace hyperloop
