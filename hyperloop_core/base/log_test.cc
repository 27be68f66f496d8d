#include "hyperloop/core/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "hyperloop/core/log_level.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {
namespace {

// What `use` writes to standard error, which looks like the journal's if `journal` is set.
template <class Use>
std::string Written(bool journal, Use&& use) {
  const UniqueFd file(memfd_create("stderr", MFD_CLOEXEC)), before(dup(STDERR_FILENO));
  dup2(file.get(), STDERR_FILENO);
  struct stat info {};
  fstat(STDERR_FILENO, &info);
  const std::string stream = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  setenv("JOURNAL_STREAM", journal ? stream.c_str() : "8:1", 1);
  use();
  dup2(before.get(), STDERR_FILENO);
  unsetenv("JOURNAL_STREAM");
  std::string text(1u << 16, '\0');
  text.resize(static_cast<size_t>(pread(file.get(), text.data(), text.size(), 0)));
  return text;
}

TEST(StderrLogTest, TheJournalGetsTheLevelAndHasTheTime) {
  const auto all = [] {
    const auto log = StderrLog("program", LogLevel::kDebug);
    for (const std::string_view name : kLogLevelNames) log->Write(LogLevelOf(name), name);
  };
  EXPECT_EQ(Written(true, all),
            "<7>program: debug\n<6>program: info\n<4>program: warn\n<3>program: error\n");
  const std::string other = Written(false, all);
  EXPECT_EQ(other.find('<'), std::string::npos);
  EXPECT_NE(other.find("Z W program: warn\n"), std::string::npos) << other;
}

TEST(StderrLogTest, LessThanTheLevelIsNotWritten) {
  EXPECT_EQ(Written(true,
                    [] {
                      const auto log = StderrLog("program", LogLevel::kWarn);
                      log->Write(LogLevel::kInfo, "little");
                      log->Write(LogLevel::kWarn, "much");
                    }),
            "<4>program: much\n");
}

TEST(StderrLogTest, AMessageIsOneLineOfBoundedLength) {
  const std::string text = Written(true, [] {
    const auto log = StderrLog("program");
    log->Write(LogLevel::kInfo, "a host named x\n<0>kernel: fire\x1b[2J\r");
    log->Write(LogLevel::kInfo, std::string(100'000, 'y'));
  });
  EXPECT_EQ(text, "<6>program: a host named x?<0>kernel: fire?[2J?\n<6>program: " +
                      std::string(kMaxLogLine, 'y') + "\n");
}

}  // namespace
}  // namespace hyperloop
