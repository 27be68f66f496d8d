// Session: serving and closing.
#include "primary/session.h"

#include <sched.h>

#include <algorithm>

#include "common/group_error.h"
#include "device/device_choice.h"
#include "hyperloop/core/text.h"
#include "primary/asking.h"
#include "primary/choose_datapath.h"

namespace hyperloop {
namespace {

static_assert(kMaxConfigurationReplicas == kMaxGroupSize);

constexpr std::chrono::milliseconds kBusyTick{2}, kIdleTick{100};
// The least time between two attempts of calls to bring the group back.
constexpr std::chrono::milliseconds kRegainInterval{200};
// Telling a member takes at most this long, and the next one is told after it. Rivals watch longer.
constexpr std::chrono::milliseconds kTellTimeout{100};
// The lowest rate at which a replica is expected to read, compare or persist its region.
constexpr uint64_t kBytesPerSecond = 128u << 20;

// How many this process may run on.
int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// An error of the group, in the form that callers get.
Status AsLost(const Status& status) {
  const bool protection = status.code() == Code::kProtection;
  return {protection ? Code::kUnavailable : status.code(), status.message()};
}

}  // namespace

Result<std::unique_ptr<Store>> OpenSession(const StoreOptions& options, DeviceOpener open_device,
                                           std::shared_ptr<Log> log) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      Session::Make(options, std::move(open_device), std::move(log)));
  HL_RETURN_IF_ERROR(session->Look());
  return std::unique_ptr<Store>(std::move(session));
}

Result<std::unique_ptr<Store>> Store::Open(const StoreOptions& options, std::shared_ptr<Log> log) {
  return OpenSession(
      options, [choice = DeviceChoice::Of(options)] { return OpenDevice(choice); }, std::move(log));
}

Result<std::unique_ptr<Session>> Session::Make(StoreOptions options, DeviceOpener open_device,
                                               std::shared_ptr<Log> log) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<ForkDetector> fork_detector, ForkDetector::Create());
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options));
  HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(options.keys, log));
  std::unique_ptr<Session> session(new Session(std::move(options), std::move(open_device),
                                               std::move(log), std::move(fork_detector)));
  HL_ASSIGN_OR_RETURN(session->replicas_, ReplicasOf(session->options_, trust));
  return session;
}

Session::~Session() { Close().IgnoreError(); }

void Session::operator delete(Session* session, std::destroying_delete_t) {
  if (session->InForkedChild()) return;
  session->~Session();
  ::operator delete(session);
}

Status Session::CheckProcess() const {
  if (!InForkedChild()) return {};
  return Fenced("this is a forked child; the group belongs to its parent");
}

Store::Statistics Session::statistics() {
  if (InForkedChild()) return {};
  Statistics out;
  {
    const SharedLock lock(state_mutex_);
    if (lane_ != nullptr) out = lane_->statistics();
  }
  out.epoch = epoch();
  return out;
}

std::vector<ReplicaHandle*> Session::HandlesOf(
    const std::vector<Configuration::Replica>& replicas) const {
  std::vector<ReplicaHandle*> handles;
  for (const Configuration::Replica& each : replicas) {
    for (const auto& handle : replicas_)
      if (handle->address() == each.address) handles.push_back(handle.get());
  }
  return handles;
}

bool Session::IsMember(const ReplicaHandle& replica) const {
  return std::find(members_.begin(), members_.end(), &replica) != members_.end();
}

std::chrono::nanoseconds Session::SlowTimeout(uint64_t region_size) const {
  return options_.ack_timeout + std::chrono::seconds(region_size / kBytesPerSecond);
}

// --- serving

int Session::PinnedCpu(rnic::Device& device) {
  const Result<rnic::Counters> counters = device.QueryCounters();
  if (!counters.ok()) return -1;
  const auto cpu = counters->find("daemon_cpu");
  return cpu == counters->end() ? -1 : static_cast<int>(cpu->second);
}

std::vector<uint64_t> Session::RnicsOfMembers() const {
  std::vector<uint64_t> rnics;
  for (const ReplicaHandle* replica : members_) rnics.push_back(replica->rnic());
  return rnics;
}

Session::Armed Session::ChooseHowToArm() {
  constexpr std::string_view kAsked = "as the options say";
  const std::vector<uint64_t> rnics = RnicsOfMembers();
  const DatapathChoice path = options_.datapath.has_value()
                                  ? DatapathChoice{*options_.datapath, kAsked}
                                  : ChooseDatapath(rnics);
  const WaitChoice wait = options_.wait.has_value() ? WaitChoice{*options_.wait, kAsked}
                                                    : ChooseWait(device_->caps(), device_->rnic(),
                                                                 rnics, AllowedProcessors());
  if (armed_.exchange(path.datapath) != path.datapath)
    Say(LogLevel::kInfo, Text("datapath ", DatapathName(path.datapath), ": ", path.why));
  if (armed_wait_.exchange(wait.wait) != wait.wait)
    Say(LogLevel::kInfo, Text("wait ", WaitModeName(wait.wait), ": ", wait.why));
  return {path.datapath, wait.wait};
}

Status Session::ArmGroup() {
  const auto own = pool_->region();
  HL_ASSIGN_OR_RETURN(pd_, device_->AllocatePd());
  HL_ASSIGN_OR_RETURN(region_,
                      pd_->Register(own.data(), own.size(),
                                    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead,
                                    pool_->region_backing()));
  const Armed how = ChooseHowToArm();
  std::vector<ReplicaHandle*> order = members_;
  if (how.datapath != Datapath::kFanout) {
    HL_ASSIGN_OR_RETURN(order, ChainToArm());
  }
  GroupOptions group_options;
  group_options.datapath = how.datapath;
  group_options.window = options_.window;
  group_options.wait = how.wait;
  group_options.poll_time = std::chrono::microseconds(options_.poll_us);
  group_options.ack_timeout = options_.ack_timeout / 2;
  group_options.link_timeout = failure_times_.silence;
  group_options.watch = [this] { return CheckMembers(); };
  for (const ReplicaHandle* replica : order)
    group_options.replica_names.push_back(replica->address());
  const auto size = static_cast<uint32_t>(order.size());
  HL_ASSIGN_OR_RETURN(group_, Group::Create(*device_, *pd_, *region_, group_options, size));
  const std::vector<Result<MemberInfo>> prepared = AtOnce(size, [&](size_t i) {
    MemberOptions member;
    member.datapath = how.datapath;
    member.position = static_cast<uint32_t>(i);
    member.group_size = size;
    member.window = options_.window;
    return order[i]->Prepare(own_, member);
  });
  std::vector<MemberInfo> chain;
  for (const Result<MemberInfo>& each : prepared) {
    HL_RETURN_IF_ERROR(each.status());
    chain.push_back(*each);
  }
  HL_RETURN_IF_ERROR(AllAtOnce(
      size, [&](size_t i) { return order[i]->ConnectMember(own_, group_->info(), chain); }));
  HL_RETURN_IF_ERROR(group_->Connect(chain));
  if (how.datapath != Datapath::kFanout) chain_ = std::move(order);
  return LockGroup();
}

Status Session::MakeLane(const TakeRequest& request) {
  const auto own = pool_->region();
  keeping_.emplace(keeping::Terms{Rules(), failure_times_.absence, failure_times_.answer,
                                  info_.group, own.size()},
                   configuration_);
  JournalOptions journal_options;
  journal_options.window = options_.window;
  journal_options.space_timeout = options_.space_timeout;
  journal_options.patience = options_.ack_timeout / 2;
  if (decisions_ != nullptr) journal_options.decided = &decisions_->decided_word();
  journal_options.check = [this] {
    HL_RETURN_IF_ERROR(CheckMembers());
    if (!keeping_->group().unproven.empty())
      keeping_->Step(keeping::Worked{}, std::chrono::steady_clock::now());
    return CheckForChange();
  };
  journal_options.recover = [this](const Status& cause, uint64_t acked,
                                   std::chrono::nanoseconds patience) {
    return BringBack(cause, acked, patience);
  };
  HL_ASSIGN_OR_RETURN(
      std::unique_ptr<Journal> journal,
      Journal::Create(group_.get(), own, info_, log_state_, &pool_->media(), journal_options));
  HL_ASSIGN_OR_RETURN(const uint64_t seq, journal->AppendEpoch(own_.epoch, configuration_));
  HL_RETURN_IF_ERROR(journal->WaitDurable(seq));
  LogLaneOptions lane_options;
  lane_options.space_timeout = options_.space_timeout;
  lane_options.say = [this](const std::string& text) { Say(LogLevel::kWarn, text); };
  lane_options.leads_to_space = request.leads_to_space;
  HL_ASSIGN_OR_RETURN(lane_, LogLane::Load(std::move(journal), own, info_, lane_options));
  return {};
}

// Sets the lock word of every member from what it was to this epoch. The lock word shows who holds
// the group.
Status Session::LockGroup() {
  auto* word = reinterpret_cast<uint64_t*>(pool_->region().data() + kLockOffset);
  if (*word == own_.epoch) return {};
  const Status locked = group_->Lock(kLockOffset, *word, own_.epoch);
  if (locked.code() == Code::kTimedOut)
    NoteCutWay(kLockOffset, std::as_bytes(std::span(&own_.epoch, 1)));
  HL_RETURN_IF_ERROR(locked);
  *word = own_.epoch;
  return pool_->media().Persist(word, sizeof(*word));
}

std::vector<Heartbeat::Target> Session::HeartbeatTargets(bool attached) const {
  std::vector<Heartbeat::Target> targets;
  for (ReplicaHandle* replica : members_) {
    const auto teller =
        std::make_shared<ReplicaHandle>(replica->endpoint(), replica->trust(), kTellTimeout);
    RemoteAccess* const access = attached ? &replica->remote_access() : nullptr;
    targets.push_back({access, replica->heartbeat(),
                       [teller, owner = own_.owner] {
                         teller->Hello(kTellTimeout, &owner).status().IgnoreError();
                       },
                       replica->name()});
  }
  return targets;
}

void Session::StartHeartbeat() {
  heartbeat_ = std::make_unique<Heartbeat>(HeartbeatTargets(false), PinnedCpu(*device_));
}

// This is a thread apart from the heartbeat's, which must go on while a group is brought back.
void Session::StartTicking() {
  ticker_ = std::make_unique<PeriodicThread>(
      "hl-lane", [this] { return Tick(); }, PinnedCpu(*device_));
}

// Runs on ticker_'s thread, which ends before lane_ does.
std::chrono::milliseconds Session::Tick() {
  const auto settled = [this]() -> std::optional<uint64_t> {
    return decisions_ == nullptr ? std::nullopt : decisions_->Settled();
  };
  const std::optional<uint64_t> before = settled();
  const Result<std::optional<uint64_t>> seq = lane_->Tick();
  if (!seq.ok()) {
    // Meanwhile calls fail, or try to bring the group back themselves (Regain). This thread tries
    // until the store is closed.
    if (!fenced_ && IsGroupError(seq.status().code()))
      lane_->Recover(std::chrono::nanoseconds(0)).IgnoreError();
    return kIdleTick;
  }
  if (seq->has_value() && before.has_value() && settled() == before) decisions_->Decide(**seq);
  const uint64_t acked = LaneCounters::Get(lane_->counters().acked_seq);
  heartbeat_->SetAcked(MakeOwnerAcked(
      epoch(), decisions_ == nullptr ? acked : std::min(acked, decisions_->decided())));
  // If something was appended since the last tick, the next one comes soon, so that the last record
  // gets executed.
  const bool moved = !seq->has_value() || std::exchange(ticked_seq_, **seq) != **seq;
  return moved ? kBusyTick : kIdleTick;
}

Status Session::NotServing() {
  if (fenced_) {
    const MutexLock lock(fence_mutex_);
    return fence_;
  }
  if (closed_) return InvalidArgument("the store is closed");
  return InvalidArgument("the group is not taken");
}

Status Session::NoteFailure(const Status& status) {
  if (!IsGroupError(status.code()) && status.code() != Code::kFenced) return status;
  failed_calls_.fetch_add(1, std::memory_order_relaxed);
  {
    const MutexLock lock(lost_mutex_);
    if (!lost_) {
      loss_ = AsLost(status);
      next_attempt_ = {};
      lost_.store(true, std::memory_order_release);
    }
  }
  if (!fenced_) return AsLost(status);
  const MutexLock lock(fence_mutex_);
  return fence_;
}

Status Session::Await(AppendTicket ticket) {
  HL_RETURN_IF_ERROR(CheckProcess());
  const SharedLock lock(state_mutex_);
  if (lane_ == nullptr) return NotServing();
  const Status status = lane_->Await(ticket);
  return status.ok() ? status : NoteFailure(status);
}

Status Session::Regain() {
  const MutexLock lock(lost_mutex_);
  if (!lost_) return {};  // another call was faster
  if (const Status broken = lane_->status(); !broken.ok()) {
    if (!IsGroupError(broken.code())) return broken;
    if (std::chrono::steady_clock::now() < next_attempt_) return loss_;
    const Status status = lane_->Recover(options_.ack_timeout / 2);
    next_attempt_ = std::chrono::steady_clock::now() + kRegainInterval;
    if (!status.ok()) return loss_ = AsLost(status);
  }
  lost_.store(false, std::memory_order_release);
  return {};
}

void Session::DropGroup() {
  chain_.clear();
  group_.reset();
  region_.reset();
  pd_.reset();
  if (heartbeat_ != nullptr) {
    heartbeat_->SetTargets(fenced_ || IsMute() ? std::vector<Heartbeat::Target>()
                                               : HeartbeatTargets(false));
  }
  for (const auto& replica : replicas_) {
    replica->Detach(device_ != nullptr && device_->alive());
    replica->Disconnect();
  }
  device_.reset();
}

// The bulk lane's threads tell the heartbeat of damage, and the watch asks the bulk lane. What
// shows members that this primary lives, or writes to them, ends here. A last question of the watch
// does neither, and names no owner, so the group is released meanwhile.
void Session::EndThreads() {
  metrics_file_.reset();
  ticker_.reset();
  if (absent_watch_ != nullptr) absent_watch_->End();
  bulk_.reset();
  heartbeat_.reset();
}

void Session::Disarm() {
  EndThreads();
  absent_watch_.reset();
  {
    const MutexLock lock(held_mutex_);
    held_.reset();
  }
  lane_.reset();
  DropGroup();
}

// --- closing

Status Session::Close() {
  HL_RETURN_IF_ERROR(CheckProcess());
  ending_ = true;
  closing_ = true;  // whoever waits for the group gives up
  {
    const SharedLock shared(state_mutex_);
    if (bulk_ != nullptr) bulk_->Interrupt();
  }
  StopLeaving();
  const MutexLock lock(state_mutex_);
  if (std::exchange(closed_, true)) return {};
  closing_ = false;  // the checkpoint may bring the group back once more
  Status status;
  if (lane_ != nullptr) {
    // No call changes anything any more, and what is there stays.
    if (decisions_ != nullptr) decisions_->Finish();
    status = lane_->status();
    if (status.ok()) status = lane_->Checkpoint();
    // Threads of the bulk lane end no later than this wait, so that nobody waits for them later.
    bulk_limit_.EndBy(std::chrono::steady_clock::now() + options_.ack_timeout);
    // What a MANIFEST names is on the replicas already.
    if (status.ok() && bulk_ != nullptr) {
      const Status shipped =
          bulk_->Await(options_.bulk_timeout, options_.ack_timeout, Holders::kAll);
      if (!shipped.ok())
        Say(LogLevel::kWarn, Text(shipped.message(), "; the next open goes on with them"));
    }
    if (!status.ok() && !fenced_) {
      status =
          Unavailable(Text("the group is out of reach; what was acknowledged is on its replicas (",
                           status.message(), ")"));
    }
    closing_ = true;
    EndThreads();
    const Status released = LetGo();
    if (status.ok() || fenced_) status = released;
  }
  Disarm();
  pool_.reset();
  taken_ = false;
  return status;
}

// Nobody brings the group back any more, so the machine is this thread's.
Status Session::LetGo() {
  const auto now = std::chrono::steady_clock::now();
  if (std::holds_alternative<keeping::Release>(keeping_->Step(keeping::Close{}, now))) {
    const Status released = GiveBack(false);
    keeping_->Step(keeping::Done<keeping::Release>{released}, now);
    return released;
  }
  const MutexLock lock(fence_mutex_);
  return fence_;
}

Status Session::GiveBack(bool never_served) {
  auto request = OwnerRequest<control::ReleaseRequestT>(own_);
  request.never_served = never_served;
  request.awaits_opening = only_prepares_ && !never_served;
  return AllAtOnce(members_.size(), [&](size_t i) {
    return members_[i]->CallWithin<control::DoneT>(request, options_.connect_timeout).status();
  });
}

Result<Session::Primitives> Session::Lend() {
  const MutexLock lock(state_mutex_);
  if (lane_ == nullptr) return NotServing();
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, lane_->Files());
  if (!files.empty()) {
    return InvalidArgument(Text("the group holds ", files.size(),
                                " files; hyperloopctl reset empties it, if they may go"));
  }
  HL_RETURN_IF_ERROR(lane_->Checkpoint());
  ticker_.reset();
  const uint64_t offset = info_.geometry.data_offset;
  return Primitives{group_.get(), device_.get(), offset, pool_->region().subspan(offset),
                    replica_hosts_};
}

void Session::Say(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->Write(level, text);
}

}  // namespace hyperloop
