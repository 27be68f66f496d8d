#include "ctl/directory_program.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ctl/preload.h"

namespace hyperloop::ctl {

Status BecomeDirectoryProgram(const DirectoryCall::What& what, const std::string& directory,
                              const Where& where) {
  DirectoryCall call{what, directory, std::nullopt};
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(where));
  if (!uri.empty())
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &call.group.emplace()).WithContext("--uri"));
  HL_ASSIGN_OR_RETURN(const std::string program, FindOwnProgram("hyperloop-directory"));
  std::vector<std::string> arguments = ArgumentsOf(call);
  std::vector<char*> pointers{const_cast<char*>(program.c_str())};
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  return FromErrno(errno, "executing " + program);
}

}  // namespace hyperloop::ctl
