// main() of the test programs, which hold the tests of many files. `--files=A,B` runs those of the
// named files alone, so that each file is a test of its own for ctest. Everything else is
// GoogleTest's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace {

// Whether `path` ends with `name`, both as whole names of files and folders. The compiler may have
// been told to shorten either.
bool SameFile(std::string_view path, std::string_view name) {
  if (path.size() < name.size()) std::swap(path, name);
  if (!path.ends_with(name)) return false;
  return path.size() == name.size() || name.starts_with('/') ||
         path[path.size() - name.size() - 1] == '/';
}

// The filter that chooses the tests of `file`; empty: it has none.
std::string FilterOf(std::string_view file) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (SameFile(test.file(), file))
        filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  constexpr std::string_view kFiles = "--files=";
  std::string_view files = argv[1];
  if (argc > 2 || !files.starts_with(kFiles)) {
    std::fprintf(stderr, "%s: unknown argument %s: give --files=FILE,… or options of GoogleTest\n",
                 argv[0], argv[argc - 1]);
    return 2;
  }
  std::string filter;
  for (files.remove_prefix(kFiles.size()); !files.empty();) {
    const std::string_view file = files.substr(0, files.find(','));
    files.remove_prefix(std::min(files.size(), file.size() + 1));
    const std::string tests = FilterOf(file);
    if (tests.empty()) {
      std::fprintf(stderr, "%s: no test of this program is in %.*s\n", argv[0],
                   static_cast<int>(file.size()), file.data());
      return 2;
    }
    filter += tests;
  }
  GTEST_FLAG_SET(filter, filter);
  return RUN_ALL_TESTS();
}
