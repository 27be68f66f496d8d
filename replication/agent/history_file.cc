#include "agent/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/random_uuid.h"
#include "common/uuid.h"
#include "ctl/agent_history.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::agent {
namespace {

constexpr std::chrono::seconds kWriteAgain{5};
constexpr size_t kRunDigits = 8;  // digits of a random number

}  // namespace

// What the thread has to do, and what is shown.
class History::Writer {
 public:
  Writer(std::string path, std::shared_ptr<Log> log, size_t most_bytes)
      : path_(std::move(path)), log_(std::move(log)), most_bytes_(most_bytes) {}

  void Add(std::string line) {
    const MutexLock lock(mutex_);
    shown_.push_back(line);
    if (shown_.size() > kMostShown) shown_.pop_front();
    if (path_.empty()) return;
    waiting_.push_back(std::move(line));
    if (waiting_.size() > kMostWaiting) waiting_.pop_front();
    changed_.notify_all();
  }
  std::string Page() const {
    const MutexLock lock(mutex_);
    std::string page;
    for (const std::string& each : shown_) page += each;
    return page;
  }
  void End() {
    const MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  void Run() {
    if (path_.empty()) return;
    ShowFormer();
    MutexLock lock(mutex_);
    while (true) {
      changed_.wait(mutex_, [this]() HL_REQUIRES(mutex_) { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::deque<std::string> lines = std::exchange(waiting_, {});
      lock.unlock();
      size_t written = 0;
      const Status status = Write(lines, &written);
      Say(status);
      lock.lock();
      if (status.ok()) continue;
      waiting_.insert(waiting_.begin(), lines.begin() + static_cast<ptrdiff_t>(written),
                      lines.end());
      while (waiting_.size() > kMostWaiting) waiting_.pop_front();
      if (ending_) return;
      changed_.wait_for(mutex_, kWriteAgain, [this]() HL_REQUIRES(mutex_) { return ending_; });
    }
  }

 private:
  void ShowFormer() {
    std::vector<std::string> former;
    for (const std::string& path : {ctl::OlderHistory(path_), path_}) {
      const auto text = ctl::ReadHistoryFile(path, most_bytes_);
      size_t bad = 0;
      for (const ctl::AgentEvent& each :
           ctl::ParseAgentEvents(text.ok() ? std::string_view(*text) : "", &bad))
        former.push_back(ctl::FormatAgentEvent(each));
    }
    const MutexLock lock(mutex_);
    const size_t room = kMostShown - std::min(kMostShown, shown_.size());
    const size_t shown = std::min(room, former.size());
    shown_.insert(shown_.begin(), former.end() - static_cast<ptrdiff_t>(shown), former.end());
  }

  Status Open() {
    HL_ASSIGN_OR_RETURN(fd_, OpenTrustedFile(path_, O_RDWR | O_CREAT | O_APPEND, 0600));
    struct stat info {};
    if (fstat(fd_.get(), &info) != 0) return FromErrno(errno, path_);
    size_ = static_cast<size_t>(info.st_size);
    char last = '\n';
    if (size_ != 0 && pread(fd_.get(), &last, 1, info.st_size - 1) != 1)
      return FromErrno(errno, path_);
    torn_ = last != '\n';
    return {};
  }

  Status Rotate() {
    fd_.Reset(-1);
    if (rename(path_.c_str(), ctl::OlderHistory(path_).c_str()) != 0)
      return FromErrno(errno, "moving " + path_ + " aside");
    HL_RETURN_IF_ERROR(Open());
    const std::string folder = std::filesystem::absolute(path_).parent_path();
    const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || fsync(directory.get()) != 0) return FromErrno(errno, "syncing " + folder);
    return {};
  }

  Status Append(std::string_view text) {
    if (::write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
      size_ += text.size();
      return {};
    }
    torn_ = true;
    return FromErrno(errno == 0 ? ENOSPC : errno, "writing " + path_);
  }

  // `*written`: how many of them need not be written again.
  Status Write(const std::deque<std::string>& lines, size_t* written) {
    if (!fd_) HL_RETURN_IF_ERROR(Open());
    for (const std::string& line : lines) {
      if (size_ != 0 && size_ + line.size() > most_bytes_) HL_RETURN_IF_ERROR(Rotate());
      errno = 0;
      if (torn_) HL_RETURN_IF_ERROR(Append("\n"));
      torn_ = false;
      HL_RETURN_IF_ERROR(Append(line));
      ++*written;
    }
    return fdatasync(fd_.get()) == 0 ? Status() : FromErrno(errno, "syncing " + path_);
  }

  void Say(const Status& status) {
    if (!status.ok() && status.message() != error_)
      log_->Write(LogLevel::kWarn, Text("the history waits for its file: ", status.message()));
    if (!status.ok()) fd_.Reset(-1);
    error_ = status.message();
  }

  const std::string path_;
  const std::shared_ptr<Log> log_;
  const size_t most_bytes_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::string> shown_ HL_GUARDED_BY(mutex_), waiting_ HL_GUARDED_BY(mutex_);
  bool ending_ HL_GUARDED_BY(mutex_) = false;
  // Of the thread.
  UniqueFd fd_;
  size_t size_ = 0;
  bool torn_ = false;  // the file ends within a line
  std::string error_;  // why it could not be written last; empty: it was
};

History::History(std::string path, std::string node, std::shared_ptr<Log> log, size_t most_bytes)
    : writer_(std::make_shared<Writer>(std::move(path), std::move(log), most_bytes)),
      node_(std::move(node)),
      run_(FormatUuid(RandomUuid()).substr(0, kRunDigits)),
      thread_([writer = writer_] { writer->Run(); }) {}

History::~History() {
  writer_->End();
  thread_.Await();
}

void History::Add(std::string_view event, std::string_view state, uint64_t epoch,
                  std::string_view why) {
  writer_->Add(ctl::FormatAgentEvent({ctl::EventTimeNow(), run_, ++number_, node_, epoch,
                                      std::string(state), std::string(event), std::string(why)}));
}

std::string History::Page() const { return writer_->Page(); }

}  // namespace hyperloop::agent
