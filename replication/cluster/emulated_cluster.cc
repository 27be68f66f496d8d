#include "hyperloop/replication/emulated_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cluster/cluster_file.h"
#include "cluster/process.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {
namespace {

using cluster::ClusterFile;
using cluster::ProcessId;
namespace fs = std::filesystem;

constexpr char kDaemonName[] = "rnicd";
constexpr uint32_t kReplicasByDefault = 3;
// A pool file needs so much more than its region, for PMDK's own metadata and to align the region
// to 2 MiB.
constexpr uint64_t kPoolOverhead = 8ull << 20;

struct Paths {
  std::string directory;
  std::string File(const std::string& name) const { return directory + "/" + name; }
  std::string Description() const { return File("cluster.json"); }
  std::string Socket() const { return File("rnicd.sock"); }
  std::string Pid(const std::string& name) const { return File(name + ".pid"); }
  std::string Log(const std::string& name) const { return File(name + ".log"); }
  std::string Pool(const std::string& name) const { return File(name + ".pool"); }
  std::string Keys() const { return File("keys"); }
};

// A lock that is held while a cluster is changed, as long as the descriptor is open. It ends with
// the process that holds it.
Result<UniqueFd> LockDirectory(const Paths& paths) {
  const std::string path = paths.File("lock");
  HL_ASSIGN_OR_RETURN(UniqueFd lock, OpenTrustedFile(path, O_RDWR | O_CREAT, 0600));
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return FromErrno(errno, "locking " + path);
  }
  return lock;
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

// kPermissionDenied: somebody else may have written the pid file. A missing or damaged pid file
// means that the process is dead.
Result<ClusterProcess> Look(const Paths& paths, const std::string& name) {
  ClusterProcess process;
  process.name = name;
  process.log = paths.Log(name);
  const Result<ProcessId> id = cluster::ReadPidFile(paths.Pid(name));
  if (id.status().code() == Code::kPermissionDenied) return id.status();
  if (!id.ok()) return process;
  process.state = cluster::StateOf(*id);
  if (process.state != ProcessState::kDead) process.pid = id->pid;
  return process;
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
    info.socket = store.device = paths.Socket();
    HL_ASSIGN_OR_RETURN(ClusterProcess daemon, Look(paths, kDaemonName));
    info.processes.push_back(std::move(daemon));
  } else {
    store.device = file.device;
    store.datapath = Datapath::kFanout;
  }
  store.pool = paths.Pool("primary");
  if (fs::exists(paths.Keys())) store.keys = paths.Keys();
  for (const ClusterFile::Replica& replica : file.replicas) {
    HL_ASSIGN_OR_RETURN(ClusterProcess process, Look(paths, replica.name));
    process.listen = replica.listen;
    process.pool = paths.Pool(replica.name);
    store.replicas.push_back(replica.listen);
    info.processes.push_back(std::move(process));
  }
  info.uri = FormatStoreUri(store);
  return info;
}

Status CheckOptions(const ClusterOptions& options) {
  constexpr uint64_t kGreatest = 15ull << 30;
  if (options.provider != "softrnic" && options.provider != "verbs") {
    return InvalidArgument("provider " + options.provider + ": softrnic or verbs");
  }
  if (options.provider == "softrnic" && !options.device.empty()) {
    return InvalidArgument("device " + options.device + ": only provider verbs has a choice");
  }
  if (options.provider == "verbs" &&
      (options.spin_us >= 0 || options.cpu >= 0 || !options.priority.empty())) {
    return InvalidArgument(
        "spin-us, cpu and priority are the RNIC daemon's, and provider verbs has none");
  }
  if (options.directory.empty()) return InvalidArgument("no directory given for the cluster");
  if (options.replicas > kMaxGroupSize) {
    return InvalidArgument(std::to_string(options.replicas) + " replicas: a group has 1 to " +
                           std::to_string(kMaxGroupSize));
  }
  if (options.region_size == 0 || options.region_size > kGreatest) {
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

Result<Paths> MakeDirectory(const ClusterOptions& options) {
  constexpr mode_t kPrivate = 0700;  // as pools are
  HL_RETURN_IF_ERROR(MakeMissing(options.directory, kPrivate));
  Result<Paths> paths = ExistingDirectory(options.directory);
  if (!paths.ok()) return paths;
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (paths->Socket().size() > kLongest) {
    return InvalidArgument("the socket's path " + paths->Socket() + " has " +
                           std::to_string(paths->Socket().size()) + " characters, Unix allows " +
                           std::to_string(kLongest) + "; use a shorter --dir");
  }
  return paths;
}

// This machine's name, in the form of an identity's name.
std::string IdentityName() {
  char host[kNameBytes + 1] = "";
  ::gethostname(host, kNameBytes);
  return IsName(host) ? host : "localhost";
}

std::string ReplicaName(size_t index) { return "replica" + std::to_string(index); }

// A name for another replica of the cluster. If a former one had it, its pool is used again.
std::string FreeName(const ClusterFile& file) {
  for (size_t i = 0;; ++i) {
    const std::string name = ReplicaName(i);
    if (std::none_of(file.replicas.begin(), file.replicas.end(),
                     [&](const ClusterFile::Replica& each) { return each.name == name; }))
      return name;
  }
}

// The description of the cluster to start: the directory's own, with another replica if asked for,
// or a new one. Writes nothing.
struct Description {
  ClusterFile file;
  bool fresh = false;  // of a new cluster
  bool grown = false;  // an existing cluster gets another replica, the last one
};
Result<Description> DescriptionFor(const ClusterOptions& options, const Paths& paths) {
  Result<ClusterFile> file = LoadDescription(paths);
  if (file.ok() || file.status().code() != Code::kNotFound) {
    if (!file.ok()) return file.status();
    if (file->provider != options.provider || file->device != options.device) {
      return InvalidArgument("the cluster at " + paths.directory +
                             " has provider=" + file->provider + " and device=\"" + file->device +
                             "\". Give the same options, or another directory");
    }
    const size_t has = file->replicas.size();
    const size_t wanted = options.replicas == 0 ? has : options.replicas;
    const bool another = wanted == has + 1;
    if ((wanted != has && !another) || file->region_size != options.region_size ||
        file->media != options.media) {
      return InvalidArgument("the cluster at " + paths.directory + " has " + std::to_string(has) +
                             " replicas, regions of " + std::to_string(file->region_size) +
                             " B and media=" + file->media + "; asked for are " +
                             std::to_string(wanted) + ", " + std::to_string(options.region_size) +
                             " B and media=" + options.media +
                             ". Give the same options, one replica more, or another directory; "
                             "hyperloopctl cluster remove takes a replica out");
    }
    if (another) file->replicas.push_back({FreeName(*file), "127.0.0.1:0"});
    return Description{std::move(*file), false, another};
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(paths.directory)) {
    const std::string name = entry.path().filename();
    // Left by an earlier attempt to start.
    if (name == "lock" || name == "keys" || name == "keys.new") continue;
    if (entry.path().extension() == ".log") continue;
    return AlreadyExists(paths.directory +
                         " is not a cluster's directory and not empty (it holds " + name +
                         "); give a new one");
  }
  ClusterFile made;
  made.region_size = options.region_size;
  made.media = options.media;
  made.provider = options.provider;
  made.device = options.device;
  const uint32_t count = options.replicas == 0 ? kReplicasByDefault : options.replicas;
  for (uint32_t i = 0; i < count; ++i) {
    made.replicas.push_back({ReplicaName(i), "127.0.0.1:0"});
  }
  return Description{std::move(made), true, false};
}

// Checks, before anything is started or ended, whether each process could write its log.
Status CheckLogs(const Paths& paths, const ClusterFile& file) {
  std::vector<std::string> names{kDaemonName};
  for (const ClusterFile::Replica& replica : file.replicas) names.push_back(replica.name);
  for (const std::string& name : names) {
    const Status status = OpenTrustedFile(paths.Log(name), O_RDONLY).status();
    if (!status.ok() && status.code() != Code::kNotFound) return status;
  }
  return Status::Ok();
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

// Whether a process could listen on 127.0.0.1:port now.
bool PortIsFree(uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return true;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
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
  HL_RETURN_IF_ERROR(identity::Trust(made, {name, ring->public_key(), identity::kEveryRole, ""}));
  if (::rename(made.c_str(), paths.Keys().c_str()) != 0) return FromErrno(errno, paths.Keys());
  return Status::Ok();
}

// One call of StartCluster: unless it succeeds, it ends the processes that it began.
class Starter {
 public:
  Starter(const ClusterOptions& options, Paths paths, ClusterFile file)
      : options_(options), paths_(std::move(paths)), file_(std::move(file)) {}
  ~Starter() {
    if (done_) return;
    for (auto process = started_.rbegin(); process != started_.rend(); ++process) {
      cluster::Terminate(process->id, std::chrono::seconds(2)).status().IgnoreError();
      ::unlink(paths_.Pid(process->name).c_str());
    }
  }

  Status Run() {
    HL_ASSIGN_OR_RETURN(programs_, options_.programs.empty()
                                       ? ProgramFolder()
                                       : Result<std::string>(options_.programs));
    HL_RETURN_IF_ERROR(StartDaemon());
    for (ClusterFile::Replica& replica : file_.replicas) HL_RETURN_IF_ERROR(StartReplica(&replica));
    for (const Started& process : started_) HL_RETURN_IF_ERROR(AwaitReady(process));
    HL_RETURN_IF_ERROR(cluster::SaveClusterFile(file_, paths_.Description()));
    done_ = true;
    return Status::Ok();
  }

  const ClusterFile& file() const { return file_; }
  uint32_t started() const { return static_cast<uint32_t>(started_.size()); }

 private:
  struct Started {
    std::string name;
    ProcessId id;
    uint64_t log_start = 0;
    ClusterFile::Replica* replica = nullptr;
  };

  Status Start(const std::string& name, const char* program, std::vector<std::string> arguments,
               ClusterFile::Replica* replica) {
    cluster::SpawnOptions spawn;
    spawn.argv = std::move(arguments);
    spawn.argv.insert(spawn.argv.begin(), programs_ + "/" + program);
    spawn.log = paths_.Log(name);
    spawn.pid_file = paths_.Pid(name);
    spawn.die_with_caller = options_.die_with_caller;
    if (replica != nullptr) spawn.cpu = options_.replica_cpu;
    std::error_code error;
    const uint64_t log_size = fs::file_size(spawn.log, error);
    Result<ProcessId> id = cluster::Spawn(spawn);
    if (!id.ok()) return id.status().WithContext("starting " + name);
    started_.push_back({name, *id, error ? 0 : log_size, replica});
    return Status::Ok();
  }

  Status StartDaemon() {
    if (file_.provider != "softrnic") return Status::Ok();
    HL_ASSIGN_OR_RETURN(const ClusterProcess daemon, Look(paths_, kDaemonName));
    if (daemon.state != ProcessState::kDead) return Status::Ok();
    // The queues of replicas died with their daemon, so the replicas start again, on their pools.
    for (const ClusterFile::Replica& replica : file_.replicas) {
      const Result<ProcessId> id = cluster::ReadPidFile(paths_.Pid(replica.name));
      if (!id.ok()) continue;
      HL_RETURN_IF_ERROR(cluster::Terminate(*id, std::chrono::seconds(5)).status());
    }
    ::unlink(paths_.Socket().c_str());
    std::vector<std::string> arguments{"--socket", paths_.Socket()};
    if (options_.spin_us >= 0) {
      arguments.insert(arguments.end(), {"--spin-us", std::to_string(options_.spin_us)});
    }
    if (options_.cpu >= 0) {
      arguments.insert(arguments.end(), {"--cpu", std::to_string(options_.cpu)});
    }
    if (!options_.priority.empty()) {
      arguments.insert(arguments.end(), {"--priority", options_.priority});
    }
    HL_RETURN_IF_ERROR(Start(kDaemonName, "hyperloop-rnicd", std::move(arguments), nullptr));
    return AwaitReady(started_.back());
  }

  Status StartReplica(ClusterFile::Replica* replica) {
    HL_ASSIGN_OR_RETURN(const ClusterProcess before, Look(paths_, replica->name));
    if (before.state != ProcessState::kDead) return Status::Ok();
    const size_t colon = replica->listen.rfind(':');
    const int port = std::atoi(replica->listen.c_str() + colon + 1);
    if (port != 0 && !PortIsFree(static_cast<uint16_t>(port))) replica->listen = "127.0.0.1:0";
    std::vector<std::string> arguments{"--pool",   paths_.Pool(replica->name),
                                       "--size",   std::to_string(file_.region_size),
                                       "--listen", replica->listen,
                                       "--media",  file_.media,
                                       "--keys",   paths_.Keys()};
    if (file_.provider == "softrnic") {
      arguments.insert(arguments.end(), {"--device", paths_.Socket(), "--host", replica->name});
    } else {
      arguments.insert(arguments.end(), {"--provider", file_.provider});
      if (!file_.device.empty()) arguments.insert(arguments.end(), {"--device", file_.device});
    }
    return Start(replica->name, "hyperloop-replica", std::move(arguments), replica);
  }

  Status AwaitReady(const Started& process) {
    Result<std::string> line = cluster::AwaitLine(paths_.Log(process.name), process.log_start,
                                                  "ready", process.id, options_.start_timeout);
    if (!line.ok()) return line.status().WithContext("starting " + process.name);
    if (process.replica == nullptr) return Status::Ok();
    const size_t space = line->find(' ');
    const std::string listen = space == std::string::npos ? "" : line->substr(space + 1);
    if (listen.find(':') == std::string::npos) {
      return Internal(process.name + " said '" + *line + "' instead of 'ready HOST:PORT'");
    }
    process.replica->listen = listen;
    return Status::Ok();
  }

  const ClusterOptions& options_;
  const Paths paths_;
  ClusterFile file_;
  std::string programs_;
  std::vector<Started> started_;
  bool done_ = false;
};

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
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths));
  HL_ASSIGN_OR_RETURN(const Description description, DescriptionFor(options, paths));
  ClusterFile file = description.file;
  HL_RETURN_IF_ERROR(Describe(paths, file).status());  // whether its pid files can be trusted
  HL_RETURN_IF_ERROR(CheckLogs(paths, file));
  HL_RETURN_IF_ERROR(CheckSpace(paths, file));
  HL_RETURN_IF_ERROR(MakeKeys(paths, file));
  // The description is saved before anything runs, so that after a crash the processes can be found
  // and stopped.
  HL_RETURN_IF_ERROR(cluster::SaveClusterFile(file, paths.Description()));
  uint32_t started = 0;
  Status status;
  {
    Starter starter(options, paths, file);
    status = starter.Run();
    if (status.ok()) file = starter.file();
    started = starter.started();
  }
  if (!status.ok()) {
    if (description.fresh) {  // so that a second try may use other options
      for (const ClusterFile::Replica& replica : file.replicas) {
        ::unlink(paths.Pool(replica.name).c_str());
      }
      ::unlink(paths.Socket().c_str());
      ::unlink(paths.Description().c_str());
      std::error_code ignored;
      fs::remove_all(paths.Keys(), ignored);
    }
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
                                  std::chrono::milliseconds patience) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths));
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
  if (const Result<ProcessId> id = cluster::ReadPidFile(paths.Pid(removed.name)); id.ok())
    HL_RETURN_IF_ERROR(cluster::Terminate(*id, patience).status());
  file.replicas.erase(found);
  HL_RETURN_IF_ERROR(cluster::SaveClusterFile(file, paths.Description()));
  ::unlink(paths.Pid(removed.name).c_str());
  HL_ASSIGN_OR_RETURN(ClusterInfo info, Describe(paths, file));
  info.removed = removed.listen;
  return info;
}

Status ChangeRegionSize(const std::string& directory, uint64_t region_size,
                        const std::function<Status(const ClusterInfo& cluster)>& change) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths));
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
                                             std::chrono::milliseconds patience) {
  HL_ASSIGN_OR_RETURN(const Paths paths, ExistingDirectory(directory));
  HL_RETURN_IF_ERROR(LoadDescription(paths).status());
  HL_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(paths));
  HL_ASSIGN_OR_RETURN(const ClusterFile file, LoadDescription(paths));
  std::vector<std::string> names;
  for (const ClusterFile::Replica& replica : file.replicas) names.push_back(replica.name);
  names.emplace_back(kDaemonName);  // last: it serves the others until they are gone
  HL_RETURN_IF_ERROR(Describe(paths, file).status());  // before any is ended
  std::vector<std::string> killed;
  for (const std::string& name : names) {
    const Result<ProcessId> id = cluster::ReadPidFile(paths.Pid(name));
    if (id.ok()) {
      HL_ASSIGN_OR_RETURN(const bool needed_kill, cluster::Terminate(*id, patience));
      if (needed_kill) killed.push_back(name);
    }
    ::unlink(paths.Pid(name).c_str());
  }
  ::unlink(paths.Socket().c_str());
  return killed;
}

Result<std::string> ProgramFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return FromErrno(error.value(), "/proc/self/exe");
  return program.parent_path().string();
}

}  // namespace hyperloop
