#include "info_log.h"

#include <utility>

#include "local/paths.h"

namespace hyperloop::plugin {
namespace {

rocksdb::InfoLogLevel RocksLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return rocksdb::InfoLogLevel::DEBUG_LEVEL;
    case LogLevel::kInfo:
      return rocksdb::InfoLogLevel::INFO_LEVEL;
    case LogLevel::kWarn:
      return rocksdb::InfoLogLevel::WARN_LEVEL;
    case LogLevel::kError:
      return rocksdb::InfoLogLevel::ERROR_LEVEL;
  }
  return rocksdb::InfoLogLevel::ERROR_LEVEL;
}

}  // namespace

// RocksDB's log, with a Close that waits until our threads have written what they are writing. It
// keeps a log for some time after it has closed it, and a log that is closed must not be written.
class InfoLog::Attached final : public rocksdb::LoggerWrapper {
 public:
  explicit Attached(std::shared_ptr<rocksdb::Logger> logger)
      : LoggerWrapper(logger.get()), logger_(std::move(logger)) {}

  rocksdb::Status Close() override {
    MutexLock lock(mutex_);
    closed_ = true;
    return logger_->Close();
  }

  // False if the log is closed; nothing is written then.
  bool WriteIfOpen(LogLevel level, std::string_view message) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    rocksdb::Log(RocksLevel(level), logger_.get(), "hyperloop: %.*s",
                 static_cast<int>(message.size()), message.data());
    return true;
  }

 private:
  const std::shared_ptr<rocksdb::Logger> logger_;
  Mutex mutex_;  // guards closed_, and our writes against Close
};

std::shared_ptr<rocksdb::Logger> InfoLog::Attach(const std::string& path,
                                                 std::shared_ptr<rocksdb::Logger> logger) {
  auto attached = std::make_shared<Attached>(std::move(logger));
  MutexLock lock(mutex_);
  std::erase_if(opened_, [](const Opened& opened) { return opened.log.expired(); });
  opened_.push_back({path, attached});
  return attached;
}

void InfoLog::MeanDirectory(const std::string& directory) {
  MutexLock lock(mutex_);
  directory_ = directory;
}

void InfoLog::Write(LogLevel level, std::string_view message) {
  std::vector<std::shared_ptr<Attached>> logs;
  {
    MutexLock lock(mutex_);
    for (auto opened = opened_.rbegin(); opened != opened_.rend(); ++opened) {
      if (directory_.empty() || IsInfoLogOf(opened->path, directory_))
        logs.push_back(opened->log.lock());
    }
  }
  for (const std::shared_ptr<Attached>& log : logs) {
    if (log != nullptr && log->WriteIfOpen(level, message)) return;
  }
  if (level >= LogLevel::kWarn) StderrLog("hyperloop")->Write(level, message);
}

}  // namespace hyperloop::plugin
