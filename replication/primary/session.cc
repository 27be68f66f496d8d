// Session: serving, reconnecting, closing.
#include "primary/session.h"

#include <algorithm>

#include "common/text.h"
#include "primary/equalize.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kDiagnosisInterval{500};
constexpr std::chrono::milliseconds kDiagnosisTimeout{250};  // each replica
constexpr std::chrono::milliseconds kBusyTick{2};
// What each replica gets to answer a Release, even when others have used up the time.
constexpr std::chrono::milliseconds kLeastRelease{20};

// The processor that the RNIC's daemon is pinned to; −1: none.
int PinnedCpu(rnic::Device& device) {
  const Result<rnic::Counters> counters = device.QueryCounters();
  if (!counters.ok()) return -1;
  const auto cpu = counters->find("daemon_cpu");
  return cpu == counters->end() ? -1 : static_cast<int>(cpu->second);
}

bool IsGroupError(Code code) {
  return code == Code::kUnavailable || code == Code::kTimedOut || code == Code::kAborted ||
         code == Code::kProtection;
}

}  // namespace

Session::Session(StoreOptions options, std::vector<control::Endpoint> endpoints,
                 DeviceOpener open_device, std::shared_ptr<Log> log)
    : options_(std::move(options)), open_device_(std::move(open_device)), log_(std::move(log)) {
  for (control::Endpoint& each : endpoints) {
    peers_.push_back(std::make_unique<Peer>(std::move(each), options_.connect_timeout));
  }
}

Session::~Session() { Close().IgnoreError(); }

// --- serving

Status Session::Arm() {
  const auto own = pool_->region();
  HL_ASSIGN_OR_RETURN(pd_, device_->AllocatePd());
  HL_ASSIGN_OR_RETURN(region_,
                      pd_->Register(own.data(), own.size(),
                                    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead,
                                    pool_->region_backing()));
  GroupOptions group_options;
  group_options.datapath = options_.datapath;
  group_options.window = options_.window;
  group_options.wait = options_.wait;
  group_options.ack_timeout = options_.ack_timeout;
  const auto size = static_cast<uint32_t>(peers_.size());
  HL_ASSIGN_OR_RETURN(group_, Group::Create(*device_, *pd_, *region_, group_options, size));
  std::vector<MemberInfo> chain;
  for (uint32_t i = 0; i < size; ++i) {
    MemberOptions member;
    member.datapath = options_.datapath;
    member.position = i;
    member.group_size = size;
    member.window = options_.window;
    HL_ASSIGN_OR_RETURN(const MemberInfo info, peers_[i]->Prepare(own_, member));
    chain.push_back(info);
  }
  for (const auto& peer : peers_)
    HL_RETURN_IF_ERROR(peer->ConnectMember(own_, group_->info(), chain));
  HL_RETURN_IF_ERROR(group_->Connect(chain));
  HL_RETURN_IF_ERROR(LockGroup());

  JournalOptions journal_options;
  journal_options.window = options_.window;
  journal_options.space_timeout = options_.space_timeout;
  HL_ASSIGN_OR_RETURN(
      std::unique_ptr<Journal> journal,
      Journal::Create(group_.get(), own, info_, log_state_, &pool_->media(), journal_options));
  if (journal->epoch() != own_.epoch) {
    HL_ASSIGN_OR_RETURN(const uint64_t seq, journal->AppendEpoch(own_.epoch, configuration_));
    HL_RETURN_IF_ERROR(journal->WaitDurable(seq));
  }
  FileLaneOptions lane_options;
  lane_options.ack = options_.ack;
  lane_options.space_timeout = options_.space_timeout;
  HL_ASSIGN_OR_RETURN(lane_, FileLane::Load(std::move(journal), own, info_, lane_options));
  broken_ = false;
  StartHeartbeat(true);
  return {};
}

// The group's visible note of who holds it: the lock word on every member goes from what it was to
// this epoch.
Status Session::LockGroup() {
  auto* word = reinterpret_cast<uint64_t*>(pool_->region().data() + kLockOffset);
  if (*word == own_.epoch) return {};
  HL_RETURN_IF_ERROR(group_->Lock(kLockOffset, *word, own_.epoch));
  *word = own_.epoch;
  return pool_->media().Persist(word, sizeof(*word));
}

void Session::StartHeartbeat(bool with_lane) {
  heartbeat_.reset();
  std::vector<Heartbeat::Target> targets;
  for (const auto& peer : peers_) targets.push_back({&peer->link(), peer->heartbeat()});
  heartbeat_ = std::make_unique<Heartbeat>(
      std::move(targets),
      with_lane ? Heartbeat::Tick([this] { return Tick(); }) : Heartbeat::Tick(),
      PinnedCpu(*device_));
}

// On the heartbeat's thread, which ends before lane_ does.
std::chrono::milliseconds Session::Tick() {
  if (broken_) {
    Diagnose();
    return Heartbeat::kInterval;
  }
  const Result<std::optional<uint64_t>> seq = lane_->Tick();
  if (!seq.ok()) {
    Judge(seq.status()).IgnoreError();
    return Heartbeat::kInterval;
  }
  // Busy, or just become idle: look again soon, so that the last record is executed.
  const bool moved = !seq->has_value() || std::exchange(ticked_seq_, **seq) != **seq;
  return moved ? kBusyTick : Heartbeat::kInterval;
}

Status Session::NotServing() {
  if (fenced_) {
    const std::lock_guard lock(diagnosis_mutex_);
    return fence_;
  }
  if (closed_) return InvalidArgument("the store is closed");
  if (taken()) return Unavailable("the group is disconnected; reconnect first");
  return InvalidArgument("the group is not taken");
}

Status Session::Judge(const Status& status) {
  if (!IsGroupError(status.code())) return status;
  if (!broken_.exchange(true)) Say(LogLevel::kError, Text("the group failed: ", status.ToString()));
  Diagnose();
  if (fenced_) {
    const std::lock_guard lock(diagnosis_mutex_);
    return fence_;
  }
  const bool protection = status.code() == Code::kProtection;
  return {protection ? Code::kUnavailable : status.code(), status.message()};
}

void Session::Diagnose() {
  const std::lock_guard lock(diagnosis_mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (fenced_ || now - diagnosed_ < kDiagnosisInterval) return;
  size_t newer = 0;
  std::string by;
  for (const auto& peer : peers_) {
    // A connection of its own: the peer's belongs to whoever holds state_mutex_ exclusively.
    Peer asked(peer->endpoint(), kDiagnosisTimeout);
    const Result<control::HelloReplyT> hello = asked.Hello();
    if (!hello.ok() || hello->sealed_epoch <= own_.epoch) continue;
    ++newer;
    by =
        Text("epoch ", hello->sealed_epoch, " by ", hello->sealed_owner_name, " at ", peer->name());
  }
  diagnosed_ = std::chrono::steady_clock::now();
  if (newer <= peers_.size() / 2) return;
  fence_ =
      Fenced(Text("another primary took the group: ", by, " (ours was epoch ", own_.epoch, ")"));
  fenced_ = true;
  Say(LogLevel::kError, fence_.message());
}

void Session::Disarm() {
  heartbeat_.reset();
  lane_.reset();
  group_.reset();
  region_.reset();
  pd_.reset();
  for (const auto& peer : peers_) {
    peer->Detach();
    peer->Disconnect();
  }
  device_.reset();
}

// --- reconnecting and closing

Status Session::Reconnect() {
  const std::unique_lock lock(state_mutex_);
  if (!taken() || closed_ || fenced_) return NotServing();
  Disarm();
  const Status status = ReconnectLocked();
  for (const auto& peer : peers_) peer->Disconnect();
  if (status.ok()) {
    Say(LogLevel::kInfo, Text("reconnected under epoch ", own_.epoch));
  } else {
    Disarm();
  }
  return status;
}

Status Session::ReconnectLocked() {
  HL_ASSIGN_OR_RETURN(device_, open_device_());
  size_t refused = 0;
  Status first;
  for (const auto& peer : peers_) {
    const auto reply = peer->Call<control::DoneT>(OwnerRequest<control::ReconnectRequestT>(own_));
    if (reply.ok()) continue;
    if (reply.status().code() == Code::kFenced) ++refused;
    if (first.ok()) first = reply.status();
  }
  if (refused > peers_.size() / 2) {
    const std::lock_guard lock(diagnosis_mutex_);
    fence_ = first;
    fenced_ = true;
    return fence_;
  }
  if (!first.ok()) return Unavailable(first.message());
  HL_RETURN_IF_ERROR(AttachAll());
  // The own region has everything that ever left it: every record was written here first.
  HL_RETURN_IF_ERROR(MakeEqual(0));
  return Arm();
}

Status Session::Close() {
  const std::unique_lock lock(state_mutex_);
  if (std::exchange(closed_, true)) return {};
  Status status;
  if (lane_ != nullptr) {
    if (!broken_) status = lane_->Checkpoint();
    heartbeat_.reset();
    // One deadline for all of them.
    const auto until = std::chrono::steady_clock::now() + options_.connect_timeout;
    for (const auto& peer : peers_) {
      const auto left = until - std::chrono::steady_clock::now();
      const Status released =
          peer->CallWithin<control::DoneT>(OwnerRequest<control::ReleaseRequestT>(own_),
                                           std::max<std::chrono::nanoseconds>(left, kLeastRelease))
              .status();
      if (status.ok()) status = released;
    }
  } else if (taken()) {
    const std::lock_guard fence_lock(diagnosis_mutex_);
    status = fenced_ ? fence_
                     : Unavailable(
                           "the group is out of reach; it was not released, so the next "
                           "primary first watches whether this one lives");
  }
  Disarm();
  pool_.reset();
  taken_ = false;
  return status;
}

Result<Session::Primitives> Session::Lend() {
  const std::unique_lock lock(state_mutex_);
  if (lane_ == nullptr) return NotServing();
  if (const size_t files = lane_->Files().size(); files != 0) {
    return InvalidArgument(
        Text("the group holds ", files, " files; hyperloopctl reset empties it, if they may go"));
  }
  HL_RETURN_IF_ERROR(lane_->Checkpoint());
  StartHeartbeat(false);  // the lane's own work ends with the old heartbeat
  const uint64_t offset = info_.geometry.data_offset;
  return Primitives{group_.get(), device_.get(), offset, pool_->region().subspan(offset),
                    replica_hosts_};
}

void Session::Say(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->Write(level, text);
}

}  // namespace hyperloop
