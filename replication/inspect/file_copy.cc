#include "inspect/file_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

Status WriteAll(int fd, std::span<const char> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "write " + path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status CopyWhole(const FileStore& store, const WholeFile& file, const std::string& path,
                 bool* damaged) {
  std::vector<std::byte> buffer(256 << 10);
  HL_ASSIGN_OR_RETURN(uint64_t got, store.Read(file, 0, buffer));
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return FromErrno(errno, "create " + path);
  FileChecksum checksum;
  uint64_t size = 0;
  while (got != 0) {
    const std::span<const char> part(reinterpret_cast<const char*>(buffer.data()), got);
    checksum.Add(part);
    HL_RETURN_IF_ERROR(WriteAll(fd.get(), part, path));
    size += got;
    HL_ASSIGN_OR_RETURN(got, store.Read(file, size, buffer));
  }
  if (::fsync(fd.get()) != 0) return FromErrno(errno, "sync " + path);
  *damaged = size != file.size || checksum.value() != file.checksum;
  return {};
}

}  // namespace hyperloop
