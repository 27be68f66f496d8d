#include "simulation/world.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "hyperloop/core/unique_fd.h"
#include "primary/session.h"
#include "region/pool.h"
#include "region/region_layout.h"
#include "simulation/disk.h"
#include "simulation/impossible.h"
#include "simulation/network.h"
#include "simulation/scheduler.h"
#include "softrnic/engine/testing/adversarial_schedule.h"

namespace hyperloop::simulation {
namespace {

constexpr std::chrono::milliseconds kAckTimeout{2000};
constexpr uint64_t kExtent = 64 << 10;  // bytes
constexpr uint64_t kMostDamage = 4096;
constexpr std::array<size_t, 7> kCounts{1, 2, 2, 3, 3, 4, 5};  // of replicas
constexpr size_t kSpares = 2;

std::vector<std::string> Hosts(size_t replicas) {
  std::vector<std::string> hosts(kPrimaries.begin(), kPrimaries.end());
  for (size_t i = 0; i < replicas; ++i) hosts.push_back(World::NameOf(static_cast<int>(i)));
  return hosts;
}

// Half of the worlds have an RNIC that takes each freedom which the specification leaves to it.
softrnic::EngineOptions EngineOptionsBy(std::mt19937_64& random) {
  softrnic::EngineOptions options;
  if (random() % 2 == 0) return options;
  options.test.steps = softrnic::RandomSteps;
  options.test.fetch = softrnic::EngineTestHooks::Fetch::kRandom;
  options.test.defer_delivery = true;
  options.test.retransmit = random() % 2 == 0;
  options.test.late_acknowledgements = random() % 2 == 0;
  return options;
}

// The offset of a line that is in use, by the bytes in it. Not in the superblock: a replica that
// finds it damaged does not start.
uint64_t UsedLine(std::span<const std::byte> region, std::mt19937_64& random) {
  constexpr uint64_t kLine = softrnic::PersistenceModel::kLine;
  std::vector<uint64_t> used;
  for (uint64_t at = kLockOffset; at < region.size(); at += kLine) {
    const auto empty = [](std::byte each) { return each == std::byte{0}; };
    if (!std::ranges::all_of(region.subspan(at, kLine), empty)) used.push_back(at);
  }
  return used[random() % used.size()];
}

// Leaves the holes that it has, which most of a pool is. Nobody else goes on before all bytes are
// copied.
void CopyFile(const std::string& from, const std::string& to) {
  const UniqueFd source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd target(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const off_t size = lseek(source.get(), 0, SEEK_END);
  for (off_t at = 0; (at = lseek(source.get(), at, SEEK_DATA)) >= 0 && at < size;) {
    const off_t end = lseek(source.get(), at, SEEK_HOLE);
    off_t to_at = at;
    while (at < end) {
      const auto left = static_cast<size_t>(end - at);
      if (copy_file_range(source.get(), &at, target.get(), &to_at, left, 0) <= 0)
        MustBeOk(FromErrno(errno, "copying " + from));
    }
  }
  if (ftruncate(target.get(), size) != 0) MustBeOk(FromErrno(errno, "copying " + from));
}

// Gives the files in `directory`, and in the directories therein, to a new directory of that name.
void MoveFiles(const std::string& directory) {
  namespace fs = std::filesystem;
  if (!fs::exists(directory)) return;
  std::string former = directory + ".former";
  while (fs::exists(former)) former += "-";
  fs::rename(directory, former);
  mkdir(directory.c_str(), 0700);
  for (const auto& group : fs::directory_iterator(former)) {
    const std::string target = directory + "/" + group.path().filename().string();
    mkdir(target.c_str(), 0700);
    for (const auto& file : fs::directory_iterator(group.path()))
      fs::rename(file.path(), target + "/" + file.path().filename().string());
  }
}

}  // namespace

World::World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log)
    : World(std::move(folder), random, std::move(log), kCounts[random() % kCounts.size()], false) {}

World::World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log, size_t count,
             bool apart)
    : folder_(std::move(folder)),
      random_(random),
      log_(std::move(log)),
      hosts_(Hosts(count + kSpares)),
      fabric_{hosts_, random() % 2 == 0 || apart, EngineOptionsBy(random), random()},
      on_disks_(random() % 2 == 0),
      keyed_(random() % 2 == 0),
      writes_metrics_(random() % 2 == 0),
      first_count_(static_cast<int>(count)),
      replicas_(count + kSpares) {
  if (on_disks_) SetSync([this](const void* data, size_t size) { return SyncDisk(data, size); });
  if (keyed_) MakeKeys();
  for (int i = 0; i < first_count_; ++i) Start(i);
  options_.device = "simulated";
  options_.journal_size = 256 << 10;
  options_.table_capacity = 64;
  options_.on_replica_failure = OnReplicaFailure::kBlock;
  options_.wait = WaitMode::kPoll;  // the same on every machine
  options_.ack_timeout = kAckTimeout;
  options_.connect_timeout = kAckTimeout;
  options_.bulk_timeout = kAckTimeout;
}

World::~World() {
  for (std::thread& each : graves_) each.join();
  SetSync(nullptr);
}

void World::Start(int replica) {
  const std::string name = NameOf(replica);
  Replica& own = At(replica);
  own.process = Scheduler::Get().NewProcess();
  own.disk_fails = false;
  const AsProcess as(own.process);
  auto started = EmbeddedReplica::Start(
      {.open_device = OpenerOf(name, own.process),
       .host = name,
       .pool = PoolOf(name),
       .size = region_size_,
       .gate = [this](const control::BodyUnion& request) { return FateOf(request); },
       .witness =
           [this, name, process = own.process](const auto& request, const auto& reply) {
             if (!IsDead(process)) promises_.Note(name, request, reply);
           },
       .power = &fabric_.power(name),
       .port = own.port,
       .durable = own.durable.has_value() ? &*own.durable : nullptr,
       .media =
           on_disks_ ? MakeMediaWriter(MediaKind(rnic::Media::kFile, true), PoolOf(name)) : nullptr,
       .files = FilesOf(name),
       .keys = KeysOf(name),
       .scrub = true});
  MustBeOk(started.status());
  own.running = std::move(started).value();
  own.port = own.running->port();
  own.durable.reset();
}

int World::SyncDisk(const void* data, size_t size) {
  const auto* const at = static_cast<const std::byte*>(data);
  const auto holds = [at](std::span<const std::byte> memory) {
    return at >= memory.data() && at < memory.data() + memory.size();
  };
  for (int i = 0; i < count(); ++i) {
    Replica& own = At(i);
    if (own.running == nullptr) continue;
    const bool its = holds(own.running->region()) || holds(own.running->node_page());
    if (its && std::exchange(own.disk_fails, false)) return EIO;
  }
  // A model ignores what is not its own.
  for (int i = 0; i < (fabric_.apart() ? count() : 1); ++i)
    fabric_.power(NameOf(i)).Persist(data, size);
  return 0;
}

void World::EndProcess(uint64_t process, const std::string& host,
                       const std::function<void()>& last) {
  const std::string pool = PoolOf(host);
  // A dead process could give this file its name.
  while (std::filesystem::exists(pool + ".creating"))
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  Scheduler::Get().SetStopped(process, false);
  Scheduler::Get().SetLagging(process, true);
  dead_.insert(process);
  EndConnections(process);
  fabric_.rnic(host).CloseHost(host);
  last();
  // The dead keep the old file, and the lock on it.
  if (std::filesystem::exists(pool)) {
    CopyFile(pool, pool + ".copy");
    std::filesystem::rename(pool + ".copy", pool);
  }
  MoveFiles(FilesOf(host));
  Scheduler::Get().SetLagging(process, false);
}

void World::KillPrimary(uint64_t process, const std::string& host) {
  EndProcess(process, host, [] {});
}

void World::Bury(uint64_t process, std::function<void()> end) {
  const AsProcess as(process);
  graves_.emplace_back(std::move(end));
}

void World::Lay(Replica& replica) {
  Bury(replica.process, [ended = std::shared_ptr<EmbeddedReplica>(
                             std::move(replica.running))]() mutable { ended.reset(); });
}

void World::Kill(int replica) {
  Replica& own = At(replica);
  EndProcess(own.process, NameOf(replica), [&] {
    own.durable = own.running->durable();
    own.page = PageOf(replica);
  });
  Lay(own);
}

void World::LosePower(int replica) {
  Replica& own = At(replica);
  EmbeddedReplica::Durable left;
  EndProcess(own.process, NameOf(replica), [&] { left = own.running->AfterPowerFailure(random_); });
  own.page = left.node_page;
  Lay(own);
  if (const std::string files = FilesOf(NameOf(replica)); std::filesystem::exists(files))
    for (const auto& group : std::filesystem::directory_iterator(files))
      LoseUnsynced(group.path(), random_);
  auto pool = Pool::Open(PoolOf(NameOf(replica)));
  MustBeOk(pool.status());
  std::ranges::copy(left.region, (*pool)->region().begin());
  std::ranges::copy(left.node_page, (*pool)->node_page().begin());
}

void World::LosePool(int replica) {
  if (up(replica)) Kill(replica);
  ++pools_lost_;
  std::filesystem::remove(PoolOf(NameOf(replica)));
  std::filesystem::remove_all(FilesOf(NameOf(replica)));
  At(replica).durable.reset();
  At(replica).page.clear();
  promises_.Forget(NameOf(replica));
}

test::EmbeddedReplica::Fate World::FateOf(const control::BodyUnion& request) {
  using Fate = EmbeddedReplica::Fate;
  using control::Body;
  Loss& loss = losses_.loss;
  if (!losses_.planned) return Fate::kHandled;
  if (!losses_.begun) {
    const bool looks = request.type == Body::HelloRequest || request.type == Body::ExamineRequest ||
                       request.type == Body::ChecksumsRequest ||
                       request.type == Body::TryWayRequest;
    const bool counts = loss.installs ? request.type == Body::InstallRequest : !looks;
    if (!counts || loss.spared-- > 0) return Fate::kHandled;
    losses_.begun = true;
  }
  if (loss.what == Loss::kAll) return Fate::kRequestLost;
  losses_.planned = false;
  return loss.what == Loss::kReply ? Fate::kReplyLost : Fate::kRequestLost;
}

test::EmbeddedReplica::Durable World::Left(int replica) {
  const Replica& own = At(replica);
  if (up(replica)) return own.running->AfterPowerFailure(random_);
  if (own.durable.has_value()) return *own.durable;
  auto pool = Pool::OpenCopyOnWrite(PoolOf(NameOf(replica)));
  MustBeOk(pool.status());
  const std::span<std::byte> region = (*pool)->region(), page = (*pool)->node_page();
  return {{region.begin(), region.end()}, {page.begin(), page.end()}};
}

std::vector<std::byte> World::PageOf(int replica) const {
  if (up(replica)) {
    const std::span<std::byte> page = At(replica).running->node_page();
    return {page.begin(), page.end()};
  }
  return At(replica).page;
}

std::string World::PathOf(int replica, const WholeFile& file) const {
  for (const auto& group : std::filesystem::directory_iterator(FilesOf(NameOf(replica)))) {
    for (const auto& each : std::filesystem::directory_iterator(group.path())) {
      const std::string name = each.path().filename();
      const bool finished = name.find('.', name.find('@')) == std::string::npos;
      if (name.starts_with(file.name + "@") && finished) return each.path();
    }
  }
  return "";
}

void World::DamageFile(int replica, const WholeFile& file) const {
  std::fstream bytes(PathOf(replica, file), std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(static_cast<std::streamoff>(file.size / 2));
  const int byte = bytes.get();
  bytes.seekp(static_cast<std::streamoff>(file.size / 2));
  bytes.put(static_cast<char>(byte ^ 1));
}

bool World::HoldsSound(int replica, const WholeFile& file) const {
  std::ifstream in(PathOf(replica, file), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  FileChecksum checksum;
  checksum.Add(bytes);
  return bytes.size() == file.size && checksum.value() == file.checksum;
}

bool World::MajoritiesHold(const WholeFile& file, uint64_t epoch) const {
  size_t all = 0, recorded = 0, holders = 0;
  for (int i = 0; i < count(); ++i) {
    if (!exists(i)) continue;
    const Result<NodeState> state = ReadNodeState(PageOf(i));
    if (!state.ok() || state->installed.epoch != epoch) continue;
    all = state->installed.All().size();
    ++recorded;
    holders += FilesOfReplica(i).contains(file) ? 1 : 0;
  }
  return 2 * recorded <= all || 2 * holders >= all;
}

void World::SetReachable(int replica, bool reachable) const {
  const Replica& own = At(replica);
  simulation::SetReachable(own.port, reachable);
  if (up(replica)) simulation::SetReachable(own.running->bulk_port(), reachable);
}

std::set<WholeFile> World::FilesOfReplica(int replica) const {
  std::set<WholeFile> held;
  const std::string root = FilesOf(NameOf(replica));
  if (!std::filesystem::exists(root)) return held;
  // FileStore would make what it lists durable.
  for (const auto& group : std::filesystem::directory_iterator(root)) {
    for (const auto& [name, size] : SyncedFiles(group.path())) {
      const size_t at = name.find('@');
      if (at == std::string::npos || name.find('.', at) != std::string::npos) continue;
      held.insert({name.substr(0, at), size, std::stoull(name.substr(at + 1), nullptr, 16)});
    }
  }
  return held;
}

uint64_t World::Damage(const std::string& host) {
  auto pool = Pool::Open(PoolOf(host));
  MustBeOk(pool.status());
  const std::span<std::byte> region = (*pool)->region();
  const uint64_t at = UsedLine(region, random_);
  const uint64_t size = random_() % 2 == 0 ? 1 : kMostDamage;
  for (std::byte& each : region.subspan(at, std::min(size, region.size() - at)))
    each ^= static_cast<std::byte>(1 + random_() % 255);
  return at;
}

StoreOptions World::OptionsOf(const std::string& host, const Opening& opening) const {
  StoreOptions options = options_;
  options.pool = PoolOf(host);
  options.keys = KeysOf(host);
  if (writes_metrics_) {
    const std::string process = std::to_string(Scheduler::Process());
    options.metrics_file = folder_ + "/" + host + "-" + process + ".prom";
  }
  options.takeover = opening.takeover;
  if (opening.leaves_out) options.on_replica_failure = OnReplicaFailure::kContinue;
  for (const int each : opening.list.replicas) options.replicas.push_back(AddressOf(each));
  if (opening.list.added != -1) options.add_replica = AddressOf(opening.list.added);
  if (opening.list.removed != -1) options.remove_replica = AddressOf(opening.list.removed);
  // A user writes them into a URI, except for the last two.
  StoreOptions parsed;
  MustBeOk(ParseStoreUri(FormatStoreUri(options), &parsed));
  parsed.extent_size = kExtent;
  for (const int each : opening.given_up) parsed.given_up.push_back(AddressOf(each));
  return parsed;
}

Result<std::unique_ptr<Store>> World::Open(const std::string& host, const Opening& opening) {
  return OpenSession(OptionsOf(host, opening), OpenerOf(host, Scheduler::Process()), log_);
}

DeviceOpener World::OpenerOf(const std::string& host, uint64_t process) {
  return [this, host, process]() -> Result<std::unique_ptr<rnic::Device>> {
    Result<std::unique_ptr<rnic::Device>> device = Unavailable("this process is dead");
    if (!IsDead(process)) device = fabric_.rnic(host).OpenDevice(host);
    if (IsDead(process)) return Unavailable("this process is dead");
    return device;
  };
}

}  // namespace hyperloop::simulation
