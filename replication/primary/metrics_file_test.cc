#include "primary/metrics_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/eventually.h"
#include "support/log_lines.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
using test::Eventually;

std::string Slurp(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class MetricsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/hyperloop-metrics-file-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/hyperloop.prom";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::unique_ptr<MetricsFile> Make(std::string page = "a 1\n") {
    return std::make_unique<MetricsFile>(
        path_, [page = std::move(page)] { return page; }, log_, -1);
  }
  // The number of files in the folder.
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  std::string folder_, path_;
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
};

TEST_F(MetricsFileTest, EverybodyMayReadItAndItGoesWithItsWriter) {
  const mode_t before = umask(0077);
  auto file = Make();
  ASSERT_TRUE(Eventually([&] { return Slurp(path_) == "a 1\n"; }));
  umask(before);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  EXPECT_EQ(Files(), 1u);
  file.reset();
  EXPECT_EQ(Files(), 0u);
  EXPECT_TRUE(log_->lines().empty());
}

TEST_F(MetricsFileTest, ALinkInItsPlaceIsReplacedAndNotFollowed) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "precious";
  const std::string beside = folder_ + "/.hyperloop.prom." + std::to_string(getpid()) + ".tmp";
  ASSERT_EQ(symlink(other.c_str(), path_.c_str()), 0);
  ASSERT_EQ(symlink(other.c_str(), beside.c_str()), 0);
  const auto file = Make();
  ASSERT_TRUE(Eventually([&] { return fs::is_regular_file(fs::symlink_status(path_)); }));
  EXPECT_EQ(Slurp(path_), "a 1\n");
  EXPECT_EQ(Slurp(other), "precious");
}

TEST_F(MetricsFileTest, NothingIsWrittenWhereOthersCouldReplaceIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  const auto file = Make();
  ASSERT_TRUE(Eventually([&] { return log_->Has("metrics_file: "); }));
  EXPECT_TRUE(log_->Has(folder_)) << log_->lines()[0];
  EXPECT_EQ(Files(), 0u);
}

TEST_F(MetricsFileTest, AFolderThatIsNotThereIsSaidOnceAndHurtsNobody) {
  path_ = folder_ + "/none/hyperloop.prom";
  auto file = Make();
  ASSERT_TRUE(Eventually([&] { return log_->Has("/none"); }));
  file.reset();
  EXPECT_EQ(log_->lines().size(), 1u);
}

TEST_F(MetricsFileTest, LackOfMemoryCostsAPageOnly) {
  std::atomic<int> calls{0};
  auto file = std::make_unique<MetricsFile>(
      path_,
      [&]() -> std::string {
        ++calls;
        throw std::bad_alloc();
      },
      log_, -1);
  ASSERT_TRUE(Eventually([&] { return calls > 0; }));
  file.reset();
  EXPECT_EQ(Files(), 0u);
}

}  // namespace
}  // namespace hyperloop
