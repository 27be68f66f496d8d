#include "agent/hooks.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "agent/service_process.h"
#include "common/printable.h"
#include "control/stop.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::agent {
namespace {

constexpr int kMostPieces = 32;

int MillisecondsLeft(BootClock::time_point then) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - BootClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

// What a call writes. The rest is read, so that it goes on, and thrown away.
class Output {
 public:
  static Result<Output> Make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
    Output output{UniqueFd(ends[0]), UniqueFd(ends[1])};
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return FromErrno(errno, "pipe");
    return output;
  }
  int fd() const { return read_.get(); }
  int end() const { return write_.get(); }  // the call's
  void CloseEnd() { write_.Reset(-1); }
  bool HasMore() const {
    pollfd there{read_.get(), POLLIN, 0};
    return poll(&there, 1, 0) == 1 && (there.revents & POLLIN) != 0;
  }
  // A bounded piece of what is there. False: there is nothing more to come.
  bool Read() {
    std::array<char, 4096> piece;
    const ssize_t got = ::read(read_.get(), piece.data(), piece.size());
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    const size_t room = Hook::kMostOutput - std::min(text_.size(), Hook::kMostOutput);
    text_.append(piece.data(), std::min(static_cast<size_t>(got), room));
    return true;
  }
  // "": it wrote nothing.
  std::string Said() const {
    return text_.empty() ? "" : Text("; it said: ", Printable(text_, Hook::kMostOutput));
  }

 private:
  Output(UniqueFd read, UniqueFd write) : read_(std::move(read)), write_(std::move(write)) {}

  UniqueFd read_, write_;
  std::string text_;
};

}  // namespace

Status CheckHook(const std::string& program) {
  const std::filesystem::path path(program);
  if (!path.is_absolute() || !path.has_filename())
    return InvalidArgument(
        Text("hook \"", program, "\": give the absolute path of a program, without arguments"));
  HL_ASSIGN_OR_RETURN(const std::string folder,
                      CheckDirectory(path.parent_path(), DirectoryRule::kShared));
  const std::string resolved = folder + "/" + path.filename().string();
  HL_RETURN_IF_ERROR(OpenTrustedFile(resolved, O_RDONLY).status());
  if (access(resolved.c_str(), X_OK) == 0) return {};
  return PermissionDenied(Text(program, " is not executable: chmod +x ", program));
}

class Hook::Work {
 public:
  Work(Options options, std::shared_ptr<Log> log)
      : options_(std::move(options)), log_(std::move(log)), queue_(options_.pauses) {}

  const std::string& program() const { return options_.program; }

  void Tell(HookEvent event) {
    const MutexLock lock(mutex_);
    queue_.Push(std::move(event), BootClock::now());
    changed_.notify_all();
  }
  Shown Show() const {
    const MutexLock lock(mutex_);
    return {calls_, failures_, queue_.waiting_since()};
  }
  bool AwaitTold(std::chrono::milliseconds patience) {
    const MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, patience, [this]() HL_REQUIRES(mutex_) {
      return !queue_.waiting_since().has_value();
    });
  }
  void End() {
    stop_.Set();
    const MutexLock lock(mutex_);
    changed_.notify_all();
  }

  void Run() {
    MutexLock lock(mutex_);
    while (!stop_.set()) {
      const auto now = BootClock::now();
      const std::optional<HookEvent> event = queue_.Next(now);
      if (!event.has_value()) {
        const auto due = queue_.due();
        if (due.has_value()) changed_.wait_for(mutex_, *due - now);
        if (!due.has_value()) changed_.wait(mutex_);
        continue;
      }
      ++calls_;
      lock.unlock();
      const Status told = Call(*event);
      lock.lock();
      if (!told.ok()) ++failures_;
      queue_.OnTold(event->key, told.ok(), BootClock::now());
      changed_.notify_all();
    }
  }

 private:
  ServiceProcess::Command CommandOf(const HookEvent& event, int output) const {
    ServiceProcess::Command command;
    command.argv = {options_.program, event.name, event.key};
    command.environment = options_.environment;
    command.environment.emplace_back("HYPERLOOP_HOOK_EVENT", event.name);
    command.environment.emplace_back("HYPERLOOP_HOOK_KEY", event.key);
    command.environment.emplace_back("HYPERLOOP_HOOK_EPOCH", Text(event.epoch));
    command.output = output;
    return command;
  }

  // Ok: it ended with exit status 0. What it wrote, and how it ended, is in the log.
  Status Call(const HookEvent& event) {
    const std::string name = Text("hook ", options_.program, " ", event.name, " ", event.key);
    const auto told = [&]() -> Status {
      HL_RETURN_IF_ERROR(CheckHook(options_.program));
      HL_ASSIGN_OR_RETURN(Output output, Output::Make());
      HL_ASSIGN_OR_RETURN(const auto process,
                          ServiceProcess::Start(CommandOf(event, output.end())));
      output.CloseEnd();
      const std::string end = Await(*process, output);
      if (end == "exit status 0") {
        const bool again = std::exchange(done_, event.key) == event.key;
        log_->Write(again ? LogLevel::kDebug : LogLevel::kInfo,
                    Text(name, ": done", output.Said()));
        return {};
      }
      return Aborted(Text(end, output.Said()));
    }();
    if (!told.ok() && !stop_.set())
      log_->Write(LogLevel::kWarn, Text(name, " failed, and is tried again: ", told.message()));
    return told;
  }

  // How it ended, or that it was killed.
  std::string Await(ServiceProcess& process, Output& output) const {
    const auto until = BootClock::now() + options_.timeout;
    bool more = true;
    while (true) {
      std::array<pollfd, 3> polled{pollfd{process.ended(), POLLIN, 0},
                                   pollfd{stop_.fd(), POLLIN, 0},
                                   pollfd{more ? output.fd() : -1, POLLIN, 0}};
      poll(polled.data(), polled.size(), MillisecondsLeft(until));
      if (polled[2].revents != 0) more = output.Read();
      if (polled[0].revents != 0) {
        if (const auto end = process.Reap(); end.has_value()) {
          // One that has left the process group may write on.
          for (int i = 0; i < kMostPieces && more && output.HasMore(); ++i) more = output.Read();
          return *end;
        }
      }
      if (stop_.set()) return "the agent ends";
      if (BootClock::now() >= until)
        return Text("killed after ", options_.timeout.count(), " ms, in which it did not end");
    }
  }

  const Options options_;
  const std::shared_ptr<Log> log_;
  control::Stop stop_;
  std::string done_;  // the key of what it was told last; of the thread
  mutable Mutex mutex_;
  ConditionVariable changed_;
  HookQueue queue_ HL_GUARDED_BY(mutex_);
  uint64_t calls_ HL_GUARDED_BY(mutex_) = 0, failures_ HL_GUARDED_BY(mutex_) = 0;
};

Hook::Hook(Options options, std::shared_ptr<Log> log)
    : work_(std::make_shared<Work>(std::move(options), std::move(log))),
      thread_([work = work_] { work->Run(); }) {}

Hook::~Hook() {
  work_->End();
  thread_.Await();
}

const std::string& Hook::program() const { return work_->program(); }
void Hook::Tell(HookEvent event) { work_->Tell(std::move(event)); }
Hook::Shown Hook::Show() const { return work_->Show(); }
bool Hook::AwaitTold(std::chrono::milliseconds patience) const {
  return work_->AwaitTold(patience);
}

}  // namespace hyperloop::agent
