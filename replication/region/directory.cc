#include "region/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status SyncDirectory(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return FromErrno(errno, "sync directory " + directory);
  return {};
}

}  // namespace hyperloop
