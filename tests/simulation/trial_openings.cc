#include <map>
#include <thread>
#include <utility>

#include "simulation/impossible.h"
#include "simulation/scheduler.h"
#include "simulation/trial.h"

namespace hyperloop::simulation {
namespace {

constexpr size_t kMostCurrent = 32;  // bytes
constexpr uint64_t kRunsPerLeaving = 8, kLeavingRun = 6;
constexpr std::chrono::seconds kLeastSilence{3};  // heartbeat_timeout may not be shorter

}  // namespace

Trial::Trial(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log)
    : random_(seed),
      log_(std::move(log)),
      world_(folder, random_, log_),
      sets_(world_.first_count()) {
  ChooseOptions(seed);
}

std::string Trial::AnyHost() {
  const std::set<int> all = sets_.All();
  const uint64_t number = Below(all.size() + 1);
  if (number == all.size()) return kPrimaries[host_];
  return World::NameOf(*std::next(all.begin(), static_cast<ptrdiff_t>(number)));
}

void Trial::Say(const std::string& what) const {
  if (log_ != nullptr) log_->Write(LogLevel::kInfo, "--- " + what);
}

void Trial::Wrong(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

// No number of the generator says whether tables leave the region, so that the other runs are what
// they were.
void Trial::ChooseOptions(uint64_t seed) {
  StoreOptions& options = world_.options();
  options.datapath = Below(3) == 0 ? Datapath::kFanout : Datapath::kOffload;
  // A replica's processor flushes by the medium.
  if (world_.on_disks() && Below(3) == 0)
    options.datapath = Below(2) == 0 ? Datapath::kCpuPolling : Datapath::kCpuEvent;
  options.wait = Below(2) == 0 ? WaitMode::kPoll : WaitMode::kEvent;
  options.window = 1u << Below(5);
  continues_ = Below(2) == 0;
  if (continues_) options.on_replica_failure = OnReplicaFailure::kContinue;
  if (continues_ && Below(2) == 0) options.heartbeat_timeout = kLeastSilence * (1 + Below(3));
  writer_ = {Below(2) == 0 ? Below(2000) : Below(200), 1 + Below(8)};
  writer_.leave = seed % kRunsPerLeaving == kLeavingRun;
  if (writer_.leave) writer_.most_padding %= 200;  // so that there is room for tables
}

std::unique_ptr<Primary> Trial::Open(size_t host, const Opening& opening) {
  const uint64_t process = Scheduler::Process();
  const bool known = sets_.known();
  Result<std::unique_ptr<Primary>> opened = TryOpen(host, opening);
  if (world_.IsDead(process)) return nullptr;
  if (opened.ok()) return std::move(opened).value();
  const Status& status = opened.status();
  Say("refused: " + status.ToString());
  // Never are all copies damaged, and no wrong replica is listed.
  if (status.code() == Code::kCorruption || (status.code() == Code::kInvalidArgument && known))
    Wrong("an opening was refused with " + status.ToString());
  if (opening.list.changes()) sets_.MayServe(opening.list);
  refusal_ = status;
  return nullptr;
}

Result<std::unique_ptr<Primary>> Trial::TryOpen(size_t host, const Opening& opening) {
  const uint64_t process = Scheduler::Process();
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, world_.Open(kPrimaries[host], opening));
  TakeResult taken;
  HL_RETURN_IF_ERROR(store->Take(RequestOf(host), &taken));
  if (world_.IsDead(process)) return Unavailable("this process is dead");
  pairing_ = taken.pairing;
  sets_.Serves(Below(2) == 0 ? opening.list : opening.list.Plain());
  if (lost_pool_ && Settled()) lost_pool_ = false;
  CheckDurable(opening.list, taken.epoch);
  HL_ASSIGN_OR_RETURN(const FileId file, FileOf(*store));
  std::string content(world_.region_size(), '\0');
  HL_ASSIGN_OR_RETURN(const uint64_t size, store->Read(file, 0, content));
  if (world_.IsDead(process)) return Unavailable("this process is dead");
  std::string wrong = history_.Check({content.data(), size});
  HL_ASSIGN_OR_RETURN(const std::string current, ReadCurrent(*store));
  if (world_.IsDead(process)) return Unavailable("this process is dead");
  if (wrong.empty()) wrong = history_.CheckCurrent(current);
  if (!wrong.empty()) Wrong(std::string("after an opening by ") + kPrimaries[host] + ": " + wrong);
  history_.Serves(taken.epoch);
  const std::set<uint64_t> live = TablesNamedBy({content.data(), size});
  HL_RETURN_IF_ERROR(BringTables(*store, host, live, taken.files));
  return std::make_unique<Primary>(world_, host, std::move(store), file, history_, tables_, live,
                                   writer_);
}

Result<std::string> Trial::ReadCurrent(Store& store) {
  std::string value;
  const Result<FileId> file = store.Lookup(kCurrent);
  if (file.status().code() == Code::kNotFound) return value;
  HL_RETURN_IF_ERROR(file.status());
  value.resize(kMostCurrent);
  HL_ASSIGN_OR_RETURN(const uint64_t size, store.Read(*file, 0, value));
  value.resize(size);
  return value;
}

TakeRequest Trial::RequestOf(size_t host) {
  TakeRequest request{"/database", pairing_.group.empty(), pairing_};
  request.judge = [this, host](const GroupFiles& group) -> Status {
    for (const uint64_t table : NeededIn(group)) {
      if (tables_.directory(host).contains(table) || group.Held(FileOfTable(table))) continue;
      return Unavailable("no replica within reach holds " + NameOfTable(table));
    }
    return {};
  };
  request.read_local = [this, host](const std::string& name, uint64_t offset, std::span<char> out) {
    return tables_.Read(host, name, offset, out);
  };
  if (!writer_.leave) return request;
  request.settle = [this, host](const std::string& name) -> Result<WholeFile> {
    for (const uint64_t table : tables_.directory(host))
      if (NameOfTable(table) == name) return FileOfTable(table);
    return NotFound(name + " is gone");
  };
  return request;
}

std::set<uint64_t> Trial::NeededIn(const GroupFiles& group) {
  std::string content;
  std::set<std::string> in_region;
  for (const FileInfo& file : group.Files()) {
    if (file.lane == Lane::kLog) in_region.insert(file.name);
    if (file.name != kLog) continue;
    content.resize(file.size);
    MustBeOk(group.Read(file.id, 0, content).status());
  }
  std::set<uint64_t> needed = TablesNamedBy(content);
  std::erase_if(needed, [&](uint64_t table) { return in_region.contains(NameOfTable(table)); });
  return needed;
}

Result<std::string> Trial::ReadTable(Store& store, uint64_t table, const FileInfo& file) {
  std::string bytes;
  if (file.lane == Lane::kLog) {
    bytes.resize(file.size);
    HL_RETURN_IF_ERROR(store.Read(file.id, 0, bytes).status());
    return bytes;
  }
  const auto sink = [&bytes](std::span<const char> piece) {
    bytes.append(piece.begin(), piece.end());
    return Status();
  };
  Status fetched = store.Fetch(FileOfTable(table), sink);
  if (fetched.code() == Code::kCorruption) {  // another call tries other replicas
    bytes.clear();
    fetched = store.Fetch(FileOfTable(table), sink);
  }
  HL_RETURN_IF_ERROR(fetched);
  return bytes;
}

Status Trial::BringTables(Store& store, size_t host, const std::set<uint64_t>& live,
                          const std::vector<FileInfo>& files) {
  const uint64_t process = Scheduler::Process();
  std::map<std::string, FileInfo> listed;
  for (const FileInfo& file : files)
    if (file.lane == Lane::kBulk || file.name.ends_with(".sst")) listed[file.name] = file;
  for (const uint64_t table : live) {
    const auto found = listed.extract(NameOfTable(table));
    if (found.empty()) {
      Wrong("the group does not list " + NameOfTable(table) + ", which it names");
      continue;
    }
    const FileInfo& file = found.mapped();
    if (!tables_.directory(host).contains(table)) {
      HL_ASSIGN_OR_RETURN(const std::string bytes, ReadTable(store, table, file));
      if (world_.IsDead(process)) return Unavailable("this process is dead");
      if (bytes != BytesOfTable(table)) Wrong(file.name + " came with other bytes");
      tables_.directory(host).insert(table);
    }
    if (file.lane == Lane::kLog) store.Finish(file.id);
  }
  for (const auto& [name, file] : listed) HL_RETURN_IF_ERROR(store.Remove(name));
  if (world_.IsDead(process)) return Unavailable("this process is dead");
  tables_.directory(host) = tables_.named() = live;
  return {};
}

Result<FileId> Trial::FileOf(Store& store) {
  Result<FileId> found = store.Lookup(kLog);
  return found.status().code() == Code::kNotFound ? store.Create(kLog) : found;
}

std::unique_ptr<Primary> Trial::OpenAsNewProcess(size_t host, const Opening& opening) {
  const AsProcess as(Scheduler::Get().NewProcess());
  return Open(host, opening);
}

std::unique_ptr<Primary> Trial::OpenAsNewProcess(size_t host, bool takeover) {
  return OpenAsNewProcess(host, By(sets_.Any(random_), takeover));
}

void Trial::OpenSoon() {
  for (uint64_t i = Below(kMostOpens), last = i + kMostOpens; i < last; ++i) {
    if (primary_ != nullptr || !wrong_.empty()) return;
    const ReplicaList list = sets_.lists()[i % sets_.lists().size()];
    primary_ = OpenAsNewProcess(host_, By(list, Below(2) == 0));
    if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (primary_ == nullptr) Wrong("the group does not open: " + refusal_.ToString());
}

void Trial::Vanish(std::unique_ptr<Primary>& primary) {
  world_.KillPrimary(primary->process(), kPrimaries[primary->host()]);
  Bury(std::move(primary));
}

void Trial::Bury(std::shared_ptr<Primary> dead) {
  const uint64_t process = dead->process();
  world_.Bury(process, [dead = std::move(dead)]() mutable { dead.reset(); });
}

void Trial::Restart(int replica, bool power) {
  if (!world_.up(replica)) return world_.Start(replica);
  Say("replica " + std::to_string(replica) + (power ? " loses power" : " restarts"));
  power ? world_.LosePower(replica) : world_.Kill(replica);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(300)));
  world_.Start(replica);
}

void Trial::Heal() {
  for (const int i : sets_.All())
    if (!world_.up(i)) world_.Start(i);
}

void Trial::Shuffle() {
  for (const int i : sets_.All()) {
    const bool up = Below(2) == 0;
    if (up && !world_.up(i)) world_.Start(i);
    if (!up && world_.up(i)) world_.Kill(i);
  }
}

void Trial::OpenAndDie(size_t host, const Opening& opening, std::optional<Loss> loss) {
  if (!loss.has_value() && Below(2) == 0) loss = LossAt(Loss::kAll);
  OpenInTrouble(host, opening, loss,
                [this, host](uint64_t process) { world_.KillPrimary(process, kPrimaries[host]); });
}

std::unique_ptr<Primary> Trial::OpenInTrouble(size_t host, const Opening& opening,
                                              const std::optional<Loss>& loss,
                                              const std::function<void(uint64_t)>& trouble) {
  const uint64_t process = Scheduler::Get().NewProcess();
  const auto opened = std::make_shared<std::unique_ptr<Primary>>();
  const auto ended = std::make_shared<bool>(false);
  if (loss.has_value()) world_.LoseMessages(*loss);
  world_.Bury(process, [this, host, opening, opened, ended] {
    const uint64_t own = Scheduler::Process();
    *opened = Open(host, opening);
    if (*opened != nullptr && primary_ != nullptr) primary_->Overtaken();
    if (world_.IsDead(own)) opened->reset();
    *ended = true;
  });
  const uint64_t most = uint64_t{1000} << Below(23);
  Scheduler::Get().Wait([&] { return world_.lost() || (*ended && loss.has_value()); },
                        loss.has_value() ? kNever : Scheduler::Get().Now() + Below(most));
  trouble(process);
  world_.LoseNone();
  if (world_.IsDead(process)) {
    if (*opened != nullptr) Bury(std::move(*opened));
    return nullptr;
  }
  Scheduler::Get().Wait([&] { return *ended; });
  return std::move(*opened);
}

}  // namespace hyperloop::simulation
