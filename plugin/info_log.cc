#include "info_log.h"

namespace hyperloop::plugin {

void InfoLog::Attach(const std::shared_ptr<rocksdb::Logger>& logger) {
  std::lock_guard<std::mutex> lock(mutex_);
  logger_ = logger;
}

void InfoLog::Write(LogLevel level, std::string_view message) {
  std::shared_ptr<rocksdb::Logger> logger;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    logger = logger_.lock();
  }
  const int length = static_cast<int>(message.size());
  if (logger == nullptr) {
    if (level < LogLevel::kWarn) return;
    StderrLog("hyperloop")->Write(level, message);
    return;
  }
  switch (level) {
    case LogLevel::kDebug:
      rocksdb::Debug(logger.get(), "hyperloop: %.*s", length, message.data());
      break;
    case LogLevel::kInfo:
      rocksdb::Info(logger.get(), "hyperloop: %.*s", length, message.data());
      break;
    case LogLevel::kWarn:
      rocksdb::Warn(logger.get(), "hyperloop: %.*s", length, message.data());
      break;
    case LogLevel::kError:
      rocksdb::Error(logger.get(), "hyperloop: %.*s", length, message.data());
      break;
  }
}

}  // namespace hyperloop::plugin
