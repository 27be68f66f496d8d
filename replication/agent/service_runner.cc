#include "agent/service_runner.h"

#include <utility>

#include "common/agent_mark.h"
#include "common/random_uuid.h"
#include "common/uuid.h"
#include "ctl/preload.h"
#include "hyperloop/core/text.h"

namespace hyperloop::agent {
namespace {

// The directory becomes the group's, whichever it was bound to before, and is filled from it.
std::string BoundUri(StoreOptions store, bool own) {
  store.restore = store.rebind = !own;
  return FormatStoreUri(store);
}

}  // namespace

Result<std::unique_ptr<ServiceRunner>> ServiceRunner::Make(Options options) {
  HL_ASSIGN_OR_RETURN(std::string program, ctl::FindOwnProgram("hyperloopctl"));
  HL_ASSIGN_OR_RETURN(const std::string plugin, ctl::FindPlugin());
  HL_ASSIGN_OR_RETURN(const std::string service, ctl::FindProgram(options.command.at(0)));
  HL_RETURN_IF_ERROR(ctl::CheckPreload(service, plugin, ctl::Preloaded::kOrItsStarter));
  return std::unique_ptr<ServiceRunner>(new ServiceRunner(std::move(options), std::move(program)));
}

ServiceRunner::ServiceRunner(Options options, std::string program)
    : options_(std::move(options)), program_(std::move(program)) {}

Status ServiceRunner::Start(const StoreOptions& store, bool own) {
  HL_ASSIGN_OR_RETURN(NotifySocket notify, NotifySocket::Make());
  notified_ = false;
  kill_at_.reset();
  tag_ = options_.node + "/" + FormatUuid(RandomUuid());
  ServiceProcess::Command command;
  command.argv = {program_, "exec", "--bind", options_.db + "=" + BoundUri(store, own), "--"};
  command.argv.insert(command.argv.end(), options_.command.begin(), options_.command.end());
  command.environment = {{kAgentVariable, tag_}, {kNotifyVariable, notify.name()}};
  HL_ASSIGN_OR_RETURN(process_, ServiceProcess::Start(command));
  notify_.emplace(std::move(notify));
  return {};
}

std::vector<std::string> ServiceRunner::StandbyCommand(const StoreOptions& store,
                                                       const std::string& replica_files) const {
  std::vector<std::string> argv{program_,    "standby", "--db",
                                options_.db, "--uri",   FormatStoreUri(store)};
  if (!replica_files.empty()) argv.insert(argv.end(), {"--replica-files", replica_files});
  return argv;
}

void ServiceRunner::Stop(Time now) {
  if (!runs() || kill_at_.has_value()) return;
  process_->Terminate();
  kill_at_ = now + options_.stop_timeout;
}

void ServiceRunner::Kill() {
  if (runs()) process_->Kill();
}

bool ServiceRunner::Owns(const std::string& owner_name) const {
  return !tag_.empty() && AgentTagOf(owner_name) == tag_;
}

void ServiceRunner::AddTo(std::vector<pollfd>* polled) const {
  if (!runs()) return;
  polled->push_back({notify_->fd(), POLLIN, 0});
  polled->push_back({process_->ended(), POLLIN, 0});
}

std::optional<std::string> ServiceRunner::Look(Time now) {
  if (!runs()) return std::nullopt;
  notified_ = notify_->Hears(process_->pid()) || notified_;
  if (kill_at_.has_value() && now >= *kill_at_) {
    process_->Kill();
    kill_at_ = now + options_.stop_timeout;
  }
  std::optional<std::string> end = process_->Reap();
  if (!end.has_value()) return std::nullopt;
  process_.reset();
  notify_.reset();
  kill_at_.reset();
  notified_ = false;
  return end;
}

}  // namespace hyperloop::agent
