// Compares docs/rnic.md with the code: its counters are those of the device, and its tests exist.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The part of docs/rnic.md under `heading`.
std::string Section(const std::string& heading) {
  const std::string text = Contents(HYPERLOOP_SOURCE_DIR "/docs/rnic.md");
  const size_t begin = text.find("\n## " + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

std::set<std::string> All(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

TEST(RnicDocs, CountersAreTheDocumentedOnes) {
  std::set<std::string> documented;
  // A line for each item "- names: text".
  std::istringstream lines(std::regex_replace(Section("Counters"), std::regex("\n +"), " "));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("- `") || line.find("of the daemon") != line.npos) continue;
    documented.merge(All(line.substr(0, line.find(':')), std::regex("`([a-z_]+)`")));
  }
  Engine engine{EngineOptions{}};
  Client client(engine, "a");
  client.Must(Op::kQueryCounters);
  EXPECT_EQ(documented, All(client.text, std::regex("(?:^|\n)([a-z_]+) ")));
}

TEST(RnicDocs, EveryTestNamedExists) {
  std::set<std::string> tests;
  for (const char* folder : {"/hyperloop_core", "/tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::string(HYPERLOOP_SOURCE_DIR) + folder)) {
      if (!entry.path().string().ends_with("_test.cc")) continue;
      const std::string text = Contents(entry.path());
      const std::regex pattern("TEST(?:_F|_P)?\\((\\w+),\\s*(\\w+)\\)");
      for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
        tests.insert((*it)[1].str() + "." + (*it)[2].str());
    }
  }
  const auto named = All(Section("Point by point") + Section("WAIT and errors"),
                         std::regex("`([A-Z]\\w+\\.[A-Z]\\w+)`"));
  EXPECT_GT(named.size(), 60u);
  for (const std::string& name : named) EXPECT_TRUE(tests.contains(name)) << name;
}

}  // namespace
}  // namespace hyperloop::softrnic
