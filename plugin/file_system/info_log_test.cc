#include "info_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace hyperloop::plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As RocksDB's own: it must not be written after its Close.
class Logger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (closed_) ++written_after_close;
    char line[256];
    std::vsnprintf(line, sizeof line, format, arguments);
    text += line;
    text += '\n';
  }
  rocksdb::Status Close() override {
    closed_ = true;
    return rocksdb::Status::OK();
  }

  std::string text;
  int written_after_close = 0;

 private:
  bool closed_ = false;
};

TEST(InfoLog, WritesToTheLogThatWasAttachedLast) {
  InfoLog log;
  const auto first = std::make_shared<Logger>();
  const auto second = std::make_shared<Logger>();
  auto used = log.Attach("/db/LOG", first);
  log.Write(LogLevel::kWarn, "to the first");
  used = log.Attach("/db/LOG", second);
  log.Write(LogLevel::kInfo, "to the second");
  rocksdb::Info(used.get(), "RocksDB's own line");
  EXPECT_THAT(first->text, HasSubstr("hyperloop: to the first"));
  EXPECT_THAT(first->text, Not(HasSubstr("second")));
  EXPECT_THAT(second->text, HasSubstr("hyperloop: to the second"));
  EXPECT_THAT(second->text, HasSubstr("RocksDB's own line"));
}

// A program may open other databases with the same Env, and close them.
TEST(InfoLog, WritesToTheLogOfTheDirectoryThatIsMeant) {
  InfoLog log;
  const auto ours = std::make_shared<Logger>();
  const auto other = std::make_shared<Logger>();
  const auto first = log.Attach("/db/LOG", ours);
  const auto second = log.Attach("/other/LOG", other);
  log.MeanDirectory("/db");
  log.Write(LogLevel::kWarn, "of /db");
  EXPECT_THAT(ours->text, HasSubstr("of /db"));
  EXPECT_THAT(other->text, Not(HasSubstr("of /db")));
  // A second opening of the directory, which ended.
  const auto refused = log.Attach("/db/LOG", std::make_shared<Logger>());
  ASSERT_TRUE(refused->Close().ok());
  log.Write(LogLevel::kInfo, "later");
  EXPECT_THAT(ours->text, HasSubstr("later"));
}

// RocksDB keeps a log for a while after it has closed it.
TEST(InfoLog, WritesToStderrOnceTheLogIsClosed) {
  InfoLog log;
  const auto logger = std::make_shared<Logger>();
  const auto used = log.Attach("/db/LOG", logger);
  ASSERT_TRUE(used->Close().ok());
  ::testing::internal::CaptureStderr();
  log.Write(LogLevel::kWarn, "after the end");
  log.Write(LogLevel::kInfo, "of no importance");
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, HasSubstr("after the end"));
  EXPECT_THAT(shown, Not(HasSubstr("of no importance")));
  EXPECT_EQ(logger->written_after_close, 0);
}

TEST(InfoLog, IsNotWrittenWhileItIsClosed) {
  InfoLog log;
  for (int i = 0; i < 200; ++i) {
    const auto logger = std::make_shared<Logger>();
    const auto used = log.Attach("/db/LOG", logger);
    std::thread writer([&] {
      for (int line = 0; line < 20; ++line) log.Write(LogLevel::kInfo, "line");
    });
    EXPECT_TRUE(used->Close().ok());
    writer.join();
    EXPECT_EQ(logger->written_after_close, 0);
  }
}

}  // namespace
}  // namespace hyperloop::plugin
