#include "agent/standby_runner.h"

#include <utility>

#include "agent/service_runner.h"

namespace hyperloop::agent {
namespace {

constexpr std::chrono::minutes kPause{1};

}  // namespace

Status StandbyRunner::Keep(const std::vector<std::string>& command, Time now) {
  if (command != command_) {
    End();
    next_ = now;
    command_ = command;
  }
  if (process_ != nullptr || now < next_) return {};
  HL_ASSIGN_OR_RETURN(NotifySocket notify, NotifySocket::Make());
  next_ = now + kPause;  // if it cannot be started
  HL_ASSIGN_OR_RETURN(process_,
                      ServiceProcess::Start({command_, {{kNotifyVariable, notify.name()}}}));
  notify_.emplace(std::move(notify));
  ready_ = asked_ = false;
  return {};
}

std::optional<std::string> StandbyRunner::Look(Time now) {
  if (process_ == nullptr) return std::nullopt;
  ready_ = notify_->Hears(process_->pid()) || ready_;
  std::optional<std::string> end = process_->Reap();
  if (!end.has_value()) return std::nullopt;
  process_.reset();
  if (asked_) return std::nullopt;
  next_ = now + kPause;
  return end;
}

void StandbyRunner::AddTo(std::vector<pollfd>* polled) const {
  if (process_ == nullptr) return;
  polled->push_back({notify_->fd(), POLLIN, 0});
  polled->push_back({process_->ended(), POLLIN, 0});
}

}  // namespace hyperloop::agent
