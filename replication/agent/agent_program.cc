#include "agent/agent_program.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "agent/files_reader.h"
#include "agent/group_files.h"
#include "agent/group_watch.h"
#include "agent/history_file.h"
#include "agent/hook_events.h"
#include "agent/hooks.h"
#include "agent/pages.h"
#include "agent/self_check.h"
#include "agent/service_runner.h"
#include "agent/standby_runner.h"
#include "common/agent_mark.h"
#include "common/end_signals.h"
#include "common/random_uuid.h"
#include "common/uuid.h"
#include "control/directive.h"
#include "hyperloop/core/ready.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/hosts.h"

namespace hyperloop::agent {
namespace {

// A look waits so many intervals for a majority to answer. The machine bears a gap of three.
constexpr int kPatientIntervals = 3;
// A group that holds no database is asked again after so long.
constexpr std::chrono::seconds kFindAgain{1};
// So is a replica that has missed what agents are told.
constexpr std::chrono::seconds kGiveAgain{5};
constexpr size_t kShortRun = 8;  // digits of a random number
constexpr const char* kLines = "application/x-ndjson";

int MillisecondsUntil(Time then, Time now) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

Status CheckOptions(const AgentOptions& options, StoreOptions* store) {
  HL_RETURN_IF_ERROR(ParseStoreUri(options.uri, store).WithContext("--uri"));
  HL_RETURN_IF_ERROR(ValidateStoreOptions(*store).WithContext("--uri"));
  HL_RETURN_IF_ERROR(CheckForAgents(*store).WithContext("--uri"));
  if (store->takeover || store->adopt) {
    return InvalidArgument(Text("--uri: leave ", store->takeover ? "takeover" : "adopt",
                                "=true out: an agent takes nothing from a primary that lives, and "
                                "gives a group no new content"));
  }
  if (!IsAgentTag(options.node) || options.node.size() > 40 ||
      options.node.find('/') != std::string::npos) {
    return InvalidArgument(Text("--node '", options.node,
                                "': give 1 to 40 letters, digits, dots, dashes and underscores"));
  }
  if (!options.db.starts_with('/') || options.db.find_first_of("=;") != std::string::npos)
    return InvalidArgument(
        Text("--db '", options.db, "': give an absolute path without '=' and ';'"));
  return CheckTimes(options.timing);
}

// `recorded`: what the group has besides, and an agent that looks there, too, as far as it can.
Result<std::unique_ptr<GroupWatch>> WatchOf(const StoreOptions& store,
                                            const std::vector<std::string>& recorded = {}) {
  std::vector<std::unique_ptr<ReplicaWay>> ways;
  for (const std::string& each : store.replicas) {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<ReplicaWay> way, ReplicaWay::Make(store, each));
    ways.push_back(std::move(way));
  }
  for (const std::string& each : recorded) {
    if (std::ranges::count(store.replicas, each) != 0) continue;
    if (auto way = ReplicaWay::Make(store, each); way.ok()) ways.push_back(std::move(*way));
  }
  return GroupWatch::Start(std::move(ways));
}

// A watch that is ended, which may wait for a replica that does not answer.
class Retired {
 public:
  explicit Retired(std::unique_ptr<GroupWatch> watch)
      : thread_([watch = std::move(watch), ended = ended_]() mutable {
          watch.reset();
          *ended = true;
        }) {}
  ~Retired() {
    if (thread_.joinable()) thread_.join();
  }
  Retired(Retired&&) noexcept = default;
  Retired& operator=(Retired&&) noexcept = default;
  bool ended() const { return *ended_; }

 private:
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
  std::thread thread_;
};

class Agent {
 public:
  static Result<std::unique_ptr<Agent>> Make(const AgentOptions& options,
                                             const std::shared_ptr<Log>& log);
  Status Run();

 private:
  Agent(const AgentOptions& options, StoreOptions store, std::shared_ptr<Log> log, UniqueFd signals,
        std::unique_ptr<GroupWatch> watch, std::unique_ptr<ServiceRunner> runner)
      : options_(options),
        store_(std::move(store)),
        log_(std::move(log)),
        signals_(std::move(signals)),
        watch_(std::move(watch)),
        runner_(std::move(runner)),
        history_(options.history_file, options.node, log_),
        self_check_({store_, options.db, options.command.at(0), 0, options.group, ""},
                    identity::NodeFolder(), options.group),
        hook_events_(FormatUuid(RandomUuid()).substr(0, kShortRun)),
        pages_(3 * options.timing.failover_timeout),
        machine_(options.timing, watch_->size(), options.node),
        random_(std::random_device()()) {}

  Status StartHooks();
  Status StartServer();
  void ReadFiles(Time now);
  Status WatchAnew();
  void WatchRecorded();
  void NoteResidents();
  void End(Time now);
  StoreOptions StoreOfService() const;
  void Wait(Time until) const;
  bool LookIsOver(Time now) const;
  void EndLook(Time now);
  void NoteService(Time now);
  void CarryOut(Action action, Time now);
  Status StartService();
  // Keeps the directory ready for the service while that does not run, and another node serves.
  void KeepStandby(Time now);
  // Where the standby finds tables of a replica here; empty: nowhere.
  std::string FilesForStandby();
  // How many replicas have given the newest epoch to the service here, or to another owner.
  size_t CountOwners(bool here) const;
  // Asks whether the group holds a database, before this node may have to start the service.
  void FindDatabase(Time now);
  bool IsOfGroup(size_t place) const;
  // What was said so far. kNotFound: a majority holds none.
  Status DatabaseFound() const;
  // Gives the directive to replicas that have missed it, as new ones have.
  void SpreadDirective(Time now);
  void NoteDirective();
  Look LookOf(const std::vector<Result<NodeStatus>>& seen) const;
  void Show(Time now);
  Picture PictureOf() const;
  std::string WhyState(const Picture& picture) const;
  void TellHooks(const Picture& picture, Time now);
  // Gives hooks the time of one call to be told how this node ended.
  void AwaitHooks() const;
  void Say(LogLevel level, const std::string& text) { log_->Write(level, text); }
  // The same, for the history, too.
  void Note(LogLevel level, std::string_view event, const std::string& text) {
    Say(level, text);
    history_.Add(event, StateName(machine_.state()), machine_.epoch(), text);
  }

  const AgentOptions options_;
  StoreOptions store_;  // by the URI
  const std::shared_ptr<Log> log_;
  const UniqueFd signals_;
  std::unique_ptr<GroupWatch> watch_;
  std::vector<Retired> retired_;
  std::vector<std::string>
      watched_;  // the recorded replicas by which watch_ was made, or is enough
  std::map<std::string, Resident> residents_;  // by the addresses at which they were seen last
  std::string foreign_said_;
  std::optional<FilesReader> files_;  // nothing: the URI names no group of this host's files
  const std::unique_ptr<ServiceRunner> runner_;
  StandbyRunner standby_;
  std::string files_unused_;  // why the replica's files here are not used; empty: they are
  History history_;
  SelfCheck self_check_;
  HookEvents hook_events_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  Pages pages_;
  std::unique_ptr<metrics::Server> server_;  // ends before the pages and the history
  Machine machine_;
  std::mt19937_64 random_;
  std::optional<Time> look_began_;  // of a look that is under way
  Time next_look_{};
  std::vector<Result<NodeStatus>> seen_;  // by the last look
  // Ok: the group holds one, at database_epoch_.
  Status database_ = Unavailable("no replica has said yet whether it holds a database");
  uint64_t database_epoch_ = 0;
  Time next_find_{};  // if none was found
  // Under which a majority said that the service here, which was ready, has the group. 0: under
  // none since it was started last.
  uint64_t served_epoch_ = 0;
  Time next_give_{};
  Directive directive_said_;
  uint64_t looks_ = 0, looks_without_majority_ = 0, service_ends_ = 0;
  bool asked_to_end_ = false;
  std::string why_;         // the service does not run; empty: there is nothing to say
  std::string role_said_;   // the contents of the role file
  std::string role_error_;  // why it could not be written last; empty: it was
  State state_said_ = State::kLost;
};

Result<std::unique_ptr<Agent>> Agent::Make(const AgentOptions& options,
                                           const std::shared_ptr<Log>& log) {
  StoreOptions store;
  HL_RETURN_IF_ERROR(CheckOptions(options, &store));
  HL_ASSIGN_OR_RETURN(UniqueFd signals, EndSignalDescriptor());
  HL_ASSIGN_OR_RETURN(
      std::unique_ptr<ServiceRunner> runner,
      ServiceRunner::Make({options.node, options.db, options.command, options.stop_timeout}));
  HL_ASSIGN_OR_RETURN(std::unique_ptr<GroupWatch> watch, WatchOf(store));
  std::unique_ptr<Agent> agent(new Agent(options, std::move(store), log, std::move(signals),
                                         std::move(watch), std::move(runner)));
  if (const std::string name(GroupOfUri(options.uri)); !name.empty()) {
    HL_ASSIGN_OR_RETURN(NodeGroup group, ReadNodeGroup(name));
    agent->files_.emplace(
        std::move(group), agent->store_,
        [it = agent.get()](StoreOptions* read) { return CheckOptions(it->options_, read); },
        [it = agent.get()](LogLevel level, const std::string& text) {
          it->Note(level, "files", text);
        });
  }
  HL_RETURN_IF_ERROR(agent->StartHooks());
  HL_RETURN_IF_ERROR(agent->StartServer());
  agent->Note(LogLevel::kInfo, "agent-started",
              Text("began as version " HYPERLOOP_VERSION ", looks at ", agent->watch_->size(),
                   " replicas"));
  return agent;
}

// A group's host may come or go while the agent runs.
void Agent::ReadFiles(Time now) {
  if (!files_.has_value() || look_began_.has_value() || asked_to_end_) return;
  const GroupFiles::Verdict verdict = files_->Read(now, machine_.recorded());
  if (verdict == GroupFiles::Verdict::kLeave) End(now);
  if (verdict != GroupFiles::Verdict::kTake) return;
  store_ = files_->store();
  machine_.SetListed(store_.replicas);
  const Status watched = WatchAnew();
  if (!watched.ok())
    Note(LogLevel::kWarn, "files", Text("cannot look at what the files list: ", watched.message()));
}

// Those that are listed, and those that the group has recorded besides. Between two looks.
Status Agent::WatchAnew() {
  std::erase_if(retired_, [](const Retired& each) { return each.ended(); });
  HL_ASSIGN_OR_RETURN(std::unique_ptr<GroupWatch> watch, WatchOf(store_, machine_.recorded()));
  watch_.swap(watch);
  retired_.emplace_back(std::move(watch));
  watched_ = machine_.recorded();
  seen_.clear();
  database_ = Unavailable("no replica has said yet whether it holds a database");
  database_epoch_ = 0;
  return {};
}

// The group may have taken in a replica, or left one, that the files do not list, or still do.
void Agent::WatchRecorded() {
  if (!files_.has_value() || machine_.recorded() == watched_) return;
  const bool looks_at_all = std::ranges::all_of(machine_.recorded(), [&](const std::string& each) {
    for (size_t i = 0; i < watch_->size(); ++i)
      if (watch_->address(i) == each) return true;
    return false;
  });
  watched_ = machine_.recorded();
  if (looks_at_all) return;
  const Status watched = WatchAnew();
  if (!watched.ok())
    Say(LogLevel::kWarn, Text("cannot look at what the group has recorded: ", watched.message()));
}

StoreOptions Agent::StoreOfService() const {
  StoreOptions store = store_;
  const std::vector<std::string>& recorded = machine_.recorded();
  if (!files_.has_value() || recorded.empty()) return store;
  store.replicas = ReplicasToOpen(store.replicas, recorded, residents_, machine_.group());
  return store;
}

// Who is where, and who is of another group.
void Agent::NoteResidents() {
  std::string foreign;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!seen_[i].ok()) continue;
    const std::string& group = seen_[i]->group;
    residents_[watch_->address(i)] = {seen_[i]->node, group};
    if (!machine_.group().empty() && !group.empty() && group != machine_.group())
      foreign += Text(foreign.empty() ? "" : ", ", watch_->address(i), " (group ", group, ")");
  }
  if (foreign != foreign_said_ && !foreign.empty())
    Note(LogLevel::kWarn, "foreign-replicas",
         Text("does not listen to replicas of another group than ", machine_.group(), ": ", foreign,
              "; if the group was made anew there, start this agent anew"));
  foreign_said_ = foreign;
}

void Agent::End(Time now) {
  asked_to_end_ = true;
  CarryOut(machine_.OnShutdown(), now);
}

Status Agent::StartHooks() {
  for (const std::string& each : options_.hooks) {
    HL_RETURN_IF_ERROR(CheckHook(each));
    Hook::Options hook{each,
                       {{"HYPERLOOP_HOOK_NODE", options_.node},
                        {"HYPERLOOP_HOOK_GROUP", options_.group},
                        {"HYPERLOOP_HOOK_ADDRESS", options_.address},
                        {kNotifyVariable, ""}},
                       options_.hook_timeout,
                       {}};
    hook.pauses.repeat = options_.hook_repeat;
    hooks_.push_back(std::make_unique<Hook>(std::move(hook), log_));
  }
  return {};
}

void Agent::TellHooks(const Picture& picture, Time now) {
  if (hooks_.empty()) return;
  for (const HookEvent& event : hook_events_.Note(picture, now))
    for (const auto& hook : hooks_) hook->Tell(event);
}

void Agent::AwaitHooks() const {
  const Time until = BootClock::now() + options_.hook_timeout;
  for (const auto& hook : hooks_)
    hook->AwaitTold(std::chrono::milliseconds(MillisecondsUntil(until, BootClock::now())));
}

Status Agent::StartServer() {
  Show(BootClock::now());
  if (options_.http.address.empty()) return {};
  HL_ASSIGN_OR_RETURN(server_,
                      metrics::Server::Start(
                          options_.http, metrics::Server::MakeAnswer([this](std::string_view path) {
                            if (path != "/history") return pages_.Get(path);
                            return metrics::Answer{
                                200, kLines, std::make_shared<const std::string>(history_.Page())};
                          }),
                          *log_));
  return {};
}

Status Agent::Run() {
  SayReady(server_ == nullptr ? options_.node : server_->address());
  while (true) {
    Time now = BootClock::now();
    ReadFiles(now);
    if (!look_began_.has_value() && now >= next_look_) {
      watch_->Begin();
      look_began_ = now;
    }
    Wait(now);
    now = BootClock::now();
    if (WasAskedToEnd(signals_) && !asked_to_end_) {
      Note(LogLevel::kInfo, "agent-ends", "asked to end");
      End(now);
    }
    NoteService(now);
    if (LookIsOver(now)) EndLook(now);
    CarryOut(machine_.OnTime(now), now);
    KeepStandby(now);
    Show(now);
    if (!asked_to_end_ || runner_->runs()) continue;
    AwaitHooks();
    return {};
  }
}

// Until something happens, or something is to be done.
void Agent::Wait(Time now) const {
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
  runner_->AddTo(&polled);
  standby_.AddTo(&polled);
  Time until = next_look_;
  if (look_began_.has_value()) {
    polled.push_back({watch_->ended(), POLLIN, 0});
    const auto interval = options_.timing.look_interval;
    until = *look_began_ + interval;
    if (now >= until) until = *look_began_ + kPatientIntervals * interval;
  }
  if (const auto next = runner_->next(); next.has_value()) until = std::min(until, *next);
  // The role file says then that this is no primary.
  if (machine_.lease_end() > now) until = std::min(until, machine_.lease_end());
  const int left = MillisecondsUntil(until, now);
  // A net: nothing else bounds the loop if a moment is over and nothing comes of it.
  poll(polled.data(), polled.size(), std::max(left, 1));
}

// Those that are waited for have answered; or the time is over, and enough have.
bool Agent::LookIsOver(Time now) const {
  if (!look_began_.has_value()) return false;
  pollfd ended{watch_->ended(), POLLIN, 0};
  if (poll(&ended, 1, 0) == 1) return true;
  const auto took = now - *look_began_;
  const std::vector<std::string>& recorded = machine_.recorded();
  const size_t all = recorded.empty() ? watch_->size() : recorded.size();
  const bool enough = 2 * watch_->answered(recorded) > all;
  return took >= (enough ? 1 : kPatientIntervals) * options_.timing.look_interval;
}

Look Agent::LookOf(const std::vector<Result<NodeStatus>>& seen) const {
  Look look{*look_began_, {}};
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i].ok()) continue;
    const NodeStatus& status = *seen[i];
    look.answers[watch_->address(i)] = {status.sealed_epoch, status.installed_epoch,
                                        status.owner,        runner_->Owns(status.owner_name),
                                        status.released,     status.heartbeat,
                                        status.replicas,     status.absent,
                                        status.directive,    status.group};
  }
  return look;
}

void Agent::EndLook(Time now) {
  seen_ = watch_->Take();
  Look look = LookOf(seen_);
  FindDatabase(now);
  look.startable = database_.ok() && database_epoch_ == machine_.epoch();
  next_look_ = std::max(now, *look_began_ + options_.timing.look_interval);
  look_began_.reset();
  ++looks_;
  const auto before = machine_.majority_seen();
  const double random = std::uniform_real_distribution<double>()(random_);
  const Action action = machine_.OnLook(look, now, random);
  NoteResidents();
  for (const auto& each : seen_)
    if (each.ok() && each->region_size != 0) self_check_.SetRegionSize(each->region_size);
  if (machine_.majority_seen() == before) ++looks_without_majority_;
  if (machine_.state() == State::kPrimary && 2 * CountOwners(true) > watch_->size())
    served_epoch_ = machine_.epoch();
  NoteDirective();
  CarryOut(action, now);
  SpreadDirective(now);
  FindDatabase(now);
  WatchRecorded();
}

void Agent::NoteDirective() {
  if (machine_.directive() == directive_said_) return;
  directive_said_ = machine_.directive();
  Note(LogLevel::kInfo, "directive", "agents are told: " + control::DirectiveText(directive_said_));
}

void Agent::SpreadDirective(Time now) {
  const Directive& directive = machine_.directive();
  if (!machine_.was_told_by_most() || directive.number.count == 0 || now < next_give_) return;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!IsOfGroup(i) || seen_[i]->installed_epoch == 0) continue;
    if (seen_[i]->directive.number >= directive.number) continue;
    watch_->Give(i, seen_[i]->group, directive);
    next_give_ = now + kGiveAgain;
  }
}

void Agent::NoteService(Time now) {
  const std::optional<std::string> end = runner_->Look(now);
  if (runner_->notified()) machine_.OnReady();
  if (!end.has_value()) return;
  ++service_ends_;
  why_ = Text("the service ended with ", *end);
  const bool told = asked_to_end_ || machine_.state() == State::kStopping;
  Note(told ? LogLevel::kInfo : LogLevel::kWarn, "service-ended", why_);
  machine_.OnEnded(now);
}

void Agent::FindDatabase(Time now) {
  const bool may_start =
      machine_.state() == State::kSuspect || machine_.state() == State::kCandidate;
  if (runner_->runs() || !may_start) return;
  if (std::exchange(database_epoch_, machine_.epoch()) != machine_.epoch()) {
    watch_->ForgetDatabase();
    next_find_ = now;
  }
  const Status found = DatabaseFound();
  if (found.code() == Code::kNotFound && found.message() != database_.message())
    Note(LogLevel::kWarn, "no-database", Text("cannot start the service: ", found.message()));
  database_ = found;
  if (database_.ok() || now < next_find_) return;
  next_find_ = now + kFindAgain;
  for (size_t i = 0; i < seen_.size(); ++i)
    if (IsOfGroup(i) && seen_[i]->installed_epoch >= machine_.recorded_epoch())
      watch_->FindDatabase(i);
}

// Whether a replica of the group answered from there.
bool Agent::IsOfGroup(size_t place) const {
  if (!seen_[place].ok()) return false;
  const std::string &own = machine_.group(), &its = seen_[place]->group;
  return machine_.Counts(watch_->address(place)) && (own.empty() || its.empty() || its == own);
}

Status Agent::DatabaseFound() const {
  Status last = Unavailable("no replica has said yet whether it holds a database");
  std::vector<Held> held;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!IsOfGroup(i)) continue;
    const auto holds = watch_->database(i);
    held.push_back({seen_[i]->installed_epoch, std::nullopt});
    if (!holds.has_value()) continue;
    if (holds->ok()) held.back().holds = **holds;
    if (!holds->ok()) last = holds->status();
  }
  const std::optional<bool> found = machine_.HoldsDatabase(held);
  if (!found.has_value()) return last;
  if (*found) return {};
  return NotFound(
      "open the database once without an agent, or hyperloopctl adopt one: the group holds none, "
      "and an agent formats none, because the service would silently start empty after all pools "
      "were lost");
}

Status Agent::StartService() {
  standby_.End();
  const bool own = served_epoch_ != 0 && machine_.epoch() == std::exchange(served_epoch_, 0);
  HL_RETURN_IF_ERROR(runner_->Start(StoreOfService(), own));
  if (options_.ready == Ready::kServes) machine_.OnReady();
  return {};
}

std::string Agent::FilesForStandby() {
  const std::string& files = options_.replica_files;
  if (files.empty()) return "";
  const Status usable = CheckDirectory(files, DirectoryRule::kOwn).status();
  if (!usable.ok() && usable.message() != files_unused_)
    Say(LogLevel::kInfo, Text("tables are brought from other nodes: ", usable.message()));
  files_unused_ = usable.message();
  return usable.ok() ? files : "";
}

// When the group may soon be free, what holds the directory has time to end.
void Agent::KeepStandby(Time now) {
  const std::optional<std::string> end = standby_.Look(now);
  if (end.has_value())
    Say(LogLevel::kWarn, Text("the standby, which keeps the directory ready, ended with ", *end,
                              "; it is tried again in a minute"));
  if (asked_to_end_) return standby_.End();
  const State state = machine_.state();
  if (state == State::kSuspect || state == State::kCandidate) return standby_.AskToEnd();
  if (runner_->runs() || state != State::kFollow || CountOwners(false) == 0) return;
  const Status kept =
      standby_.Keep(runner_->StandbyCommand(StoreOfService(), FilesForStandby()), now);
  if (!kept.ok()) Say(LogLevel::kWarn, Text("cannot start the standby: ", kept.message()));
}

size_t Agent::CountOwners(bool here) const {
  return static_cast<size_t>(std::ranges::count_if(seen_, [&](const Result<NodeStatus>& each) {
    return each.ok() && each->sealed_epoch == machine_.epoch() &&
           each->installed_epoch == machine_.epoch() && !each->owner_name.empty() &&
           runner_->Owns(each->owner_name) == here;
  }));
}

void Agent::CarryOut(Action action, Time now) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kStart: {
      const Status started = StartService();
      why_ = started.ok() ? "" : started.message();
      const std::string free = Text("the group is free (epoch ", machine_.epoch(), "), because ",
                                    WhyText(machine_.why()));
      Note(started.ok() ? LogLevel::kInfo : LogLevel::kWarn,
           started.ok() ? "service-started" : "service-not-started",
           started.ok() ? Text(free, "; started the service as process ", runner_->pid())
                        : Text("cannot start the service: ", why_, " (", free, ")"));
      if (!started.ok()) machine_.OnEnded(now);
      return;
    }
    case Action::kStop:
      Show(now);  // nobody is sent here any more
      Note(LogLevel::kInfo, "service-told-to-end",
           Text("ending the service: ", WhyText(machine_.why())));
      return runner_->Stop(now);
    case Action::kKill:
      Show(now);
      Note(LogLevel::kWarn, "service-killed",
           Text("killing the service: ", WhyText(machine_.why()),
                ", and what it answers may be old"));
      return runner_->Kill();
  }
}

Picture Agent::PictureOf() const {
  Picture picture;
  picture.node = options_.node;
  picture.group = machine_.group();
  picture.state = StateName(machine_.state());
  const bool waits = machine_.state() == State::kCandidate && !database_.ok();
  picture.why = waits ? database_.message() : why_;
  const Directive& directive = machine_.directive();
  picture.directive = directive.number.count == 0 ? "" : control::DirectiveText(directive);
  picture.paused = directive.paused;
  picture.drained = directive.Drains(options_.node);
  if (machine_.state() == State::kCandidate && machine_.held_back())
    picture.why = "operators hold it back: " + picture.directive;
  picture.epoch = machine_.epoch();
  picture.released = machine_.released();
  picture.primary = machine_.state() == State::kPrimary;
  picture.lease_end = machine_.lease_end();
  picture.standby = !runner_->runs() && !asked_to_end_ && !machine_.held_back();
  picture.standby_ready = standby_.ready();
  picture.seen = machine_.majority_seen();
  picture.checked = self_check_.found();
  for (const auto& each : hooks_) {
    const Hook::Shown shown = each->Show();
    picture.hooks.push_back({each->program(), shown.calls, shown.failures, shown.waiting_since});
  }
  picture.service_pid = static_cast<uint64_t>(runner_->pid());
  picture.looks = looks_;
  picture.looks_without_majority = looks_without_majority_;
  picture.takings = machine_.takings();
  picture.start_failures = machine_.failures();
  picture.service_ends = service_ends_;
  for (size_t i = 0; i < seen_.size(); ++i) {
    Picture::Replica replica{watch_->address(i), seen_[i].status().message()};
    if (seen_[i].ok()) {
      const NodeStatus& status = *seen_[i];
      replica.sealed_epoch = status.sealed_epoch;
      replica.installed_epoch = status.installed_epoch;
      replica.released = status.released;
      if (picture.group.empty()) picture.group = status.group;
      if (status.sealed_epoch == machine_.epoch() && status.installed_epoch == machine_.epoch()) {
        picture.owner = status.owner_name;
        picture.branch = status.branch_epoch;
        const std::string_view tag = AgentTagOf(status.owner_name);
        picture.owner_node = tag.substr(0, tag.find('/'));
      }
    }
    picture.replicas.push_back(std::move(replica));
  }
  return picture;
}

std::string Agent::WhyState(const Picture& picture) const {
  switch (machine_.state()) {
    case State::kLost:
      return "no majority of the replicas answers";
    case State::kFollow:
      return picture.owner_node.empty() ? "somebody has the group, or shows signs of life"
                                        : Text("node ", picture.owner_node, " has the group");
    case State::kSuspect:
      return "whoever has the group has shown no sign of life for half of the failover timeout";
    case State::kCandidate:
      return Text("the group is free, because ", WhyText(machine_.WhyFree()));
    case State::kTaking:
      return "the service runs, and is not known to have the group";
    case State::kPrimary:
      return "the service has the group, and is ready";
    case State::kStopping:
      return std::string(WhyText(machine_.why()));
  }
  return "";
}

void Agent::Show(Time now) {
  Picture picture = PictureOf();
  if (const State state = machine_.state(); state != std::exchange(state_said_, state))
    Note(LogLevel::kInfo, "state",
         Text("state ", StateName(state), ", epoch ", machine_.epoch(), ": ", WhyState(picture)));
  TellHooks(picture, now);
  const std::string role = options_.role_file.empty() ? "" : RoleText(picture, now);
  pages_.Set(std::move(picture));
  if (role == role_said_) return;
  const Status written = WriteRoleFile(options_.role_file, role);
  if (!written.ok() && written.message() != role_error_)
    Say(LogLevel::kWarn, Text("--role-file: ", written.message(), "; it is tried again"));
  role_error_ = written.message();
  if (written.ok()) role_said_ = role;
}

}  // namespace

Status TakeGroup(const NodeGroup& group, AgentOptions* options) {
  if (!group.has_host)
    return NotFound(Text("this host, ", group.host, ", is none of the hosts of ", group.file,
                         ": add it there, on all hosts alike"));
  if (options->command.empty()) options->command = group.service;
  if (options->command.empty())
    return NotFound(Text(group.file,
                         " names no service: add a line service = PROGRAM ARGUMENTS "
                         "there, on all hosts alike, or give -- PROGRAM ARGUMENTS"));
  options->uri = Text("hyperloop:///", group.name);
  options->group = group.name;
  options->node = group.host;
  options->db = group.database;
  if (options->history_file.empty()) options->history_file = group.database + ".history";
  if (options->hooks.empty()) options->hooks = group.hooks;
  options->address = group.address;
  if (options->replica_files.empty()) options->replica_files = group.pool + ".files";
  if (options->http.address.empty() && !group.http.empty()) {
    options->http.address = group.http;
    options->http.open = true;  // the file says an address of the host
  }
  return {};
}

Status CheckTimes(const Timing& timing) {
  if (4 * timing.lease > 3 * timing.failover_timeout) {
    return InvalidArgument(
        "--lease: give at most three quarters of --failover-timeout, because another node may take "
        "the group that much later");
  }
  if (4 * timing.look_interval > timing.lease) {
    return InvalidArgument(
        "--look-interval: give at most a quarter of --lease, because only looks renew the lease, "
        "and some come late");
  }
  return {};
}

Status RunAgent(const AgentOptions& options, const std::shared_ptr<Log>& log) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Agent> agent, Agent::Make(options, log));
  return agent->Run();
}

}  // namespace hyperloop::agent
