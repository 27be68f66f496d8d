// CtlRun: hyperloopctl as a user runs it: its output and its exit status.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/child_process.h"

namespace hyperloop::test {

struct CtlRun {
  int exit_status = -1;
  std::string out;
  std::string err;
};

inline std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

// Runs hyperloopctl with `arguments`; its output goes through files in `folder`.
inline CtlRun RunCtl(const std::string& folder, const std::vector<std::string>& arguments) {
  const auto quoted = [](const std::string& word) { return "'" + word + "'"; };
  std::string command = quoted(ProgramPath("hyperloopctl"));
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " </dev/null >" + folder + "/out 2>" + folder + "/err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Slurp(folder + "/out"),
          Slurp(folder + "/err")};
}

}  // namespace hyperloop::test
