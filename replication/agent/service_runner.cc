#include "agent/service_runner.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include "common/agent_mark.h"
#include "common/random_uuid.h"
#include "common/uuid.h"
#include "ctl/preload.h"
#include "hyperloop/core/text.h"

namespace hyperloop::agent {
namespace {

constexpr char kNotifyVariable[] = "NOTIFY_SOCKET";

// A socket in the abstract namespace, of that name behind the zero.
Result<UniqueFd> ListenTo(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FromErrno(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return InvalidArgument("the name is too long");
  std::ranges::copy(name, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return FromErrno(errno, "binding a socket");
  return fd;
}

// The directory becomes the group's, whichever it was bound to before, and is filled from it.
std::string BoundUri(StoreOptions store) {
  store.restore = store.rebind = true;
  return FormatStoreUri(store);
}

}  // namespace

Result<std::unique_ptr<ServiceRunner>> ServiceRunner::Make(Options options) {
  HL_ASSIGN_OR_RETURN(std::string program, ctl::FindOwnProgram("hyperloopctl"));
  HL_ASSIGN_OR_RETURN(const std::string plugin, ctl::FindPlugin());
  HL_ASSIGN_OR_RETURN(const std::string service, ctl::FindProgram(options.command.at(0)));
  HL_RETURN_IF_ERROR(ctl::CheckPreload(service, plugin, ctl::Preloaded::kOrItsStarter));
  const std::string name = "hyperloop-agent-" + FormatUuid(RandomUuid());
  HL_ASSIGN_OR_RETURN(UniqueFd notify, ListenTo(name));
  return std::unique_ptr<ServiceRunner>(
      new ServiceRunner(std::move(options), std::move(program), std::move(notify), "@" + name));
}

ServiceRunner::ServiceRunner(Options options, std::string program, UniqueFd notify,
                             std::string notify_name)
    : options_(std::move(options)),
      program_(std::move(program)),
      notify_(std::move(notify)),
      notify_name_(std::move(notify_name)) {}

Status ServiceRunner::Start() {
  char byte = 0;
  while (::recv(notify_.get(), &byte, sizeof byte, 0) >= 0) continue;  // of an earlier one
  notified_ = false;
  kill_at_.reset();
  tag_ = options_.node + "/" + FormatUuid(RandomUuid());
  ServiceProcess::Command command;
  command.argv = {program_, "exec", "--bind", options_.db + "=" + BoundUri(options_.store), "--"};
  command.argv.insert(command.argv.end(), options_.command.begin(), options_.command.end());
  command.environment = {{kAgentVariable, tag_}, {kNotifyVariable, notify_name_}};
  HL_ASSIGN_OR_RETURN(process_, ServiceProcess::Start(command));
  return {};
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
  polled->push_back({notify_.get(), POLLIN, 0});
  if (runs()) polled->push_back({process_->ended(), POLLIN, 0});
}

std::optional<std::string> ServiceRunner::Look(Time now) {
  char message[512];
  for (ssize_t n = 0; (n = ::recv(notify_.get(), message, sizeof message, 0)) >= 0;) {
    const std::string_view text(message, static_cast<size_t>(n));
    notified_ =
        notified_ || ("\n" + std::string(text) + "\n").find("\nREADY=1\n") != std::string::npos;
  }
  if (!runs()) return std::nullopt;
  if (kill_at_.has_value() && now >= *kill_at_) {
    process_->Kill();
    kill_at_ = now + options_.stop_timeout;
  }
  std::optional<std::string> end = process_->Reap();
  if (!end.has_value()) return std::nullopt;
  process_.reset();
  kill_at_.reset();
  notified_ = false;
  return end;
}

}  // namespace hyperloop::agent
