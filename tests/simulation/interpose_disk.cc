// Memory that is mapped from files, and files, of simulated threads.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <utility>

#include "simulation/disk.h"
#include "simulation/interpose.h"
#include "simulation/network.h"

namespace hyperloop::simulation {
namespace {

Sync& TheSync() {
  static Sync sync;
  return sync;
}

// What is synced: of each file how many bytes, by its inode, and the names of each directory.
using Names = std::map<std::string, ino_t>;
struct Synced {
  std::map<ino_t, off_t> sizes;
  std::map<std::string, Names> names;
};
Synced& TheSynced() {
  static Synced synced;
  return synced;
}

Names NamesIn(const std::string& directory) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat st;
    if (stat(entry.path().c_str(), &st) == 0 && S_ISREG(st.st_mode))
      names[entry.path().filename()] = st.st_ino;
  }
  return names;
}

void NoteSynced(int fd) {
  struct stat st;
  if (!Scheduler::Simulates() || fstat(fd, &st) != 0) return;
  if (S_ISREG(st.st_mode)) TheSynced().sizes[st.st_ino] = st.st_size;
  if (!S_ISDIR(st.st_mode)) return;
  const std::string directory =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
  TheSynced().names[directory] = NamesIn(directory);
}

// Its inode number may be another file's from now on.
void NoteRemoved(int folder, const char* path) {
  struct stat st;
  if (Scheduler::Simulates() && fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
    TheSynced().sizes.erase(st.st_ino);
}

void LoseName(const std::string& directory, const std::string& name, ino_t file) {
  const std::string path = directory + "/" + name;
  for (const auto& [former, number] : TheSynced().names[directory])
    if (number == file) return std::filesystem::rename(path, directory + "/" + former);
  std::filesystem::remove(path);
}

void LoseBytes(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return;
  const off_t synced = TheSynced().sizes[st.st_ino];
  if (synced >= st.st_size) return;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(synced));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(st.st_size));
}

// Changes files by `change`, unless the calling thread's process is dead.
template <class Change>
auto ChangeFiles(Change change) -> decltype(change()) {
  if (!Scheduler::Simulates()) return change();
  Scheduler::Get().Point();
  if (!HasDied(Scheduler::Process())) return change();
  errno = EIO;
  return -1;
}

}  // namespace

void SetSync(Sync sync) { TheSync() = std::move(sync); }

std::map<std::string, uint64_t> SyncedFiles(const std::string& directory) {
  std::map<std::string, uint64_t> files;
  const Names& synced = TheSynced().names[directory];
  for (const auto& [name, file] : NamesIn(directory)) {
    const auto found = synced.find(name);
    struct stat st;
    const bool durable = found != synced.end() && found->second == file &&
                         stat((directory + "/" + name).c_str(), &st) == 0 &&
                         TheSynced().sizes[file] >= st.st_size;
    if (durable) files[name] = static_cast<uint64_t>(st.st_size);
  }
  return files;
}

void LoseUnsynced(const std::string& directory, std::mt19937_64& random) {
  const Names synced = TheSynced().names[directory];
  for (const auto& [name, file] : NamesIn(directory)) {
    const auto found = synced.find(name);
    const bool durable = found != synced.end() && found->second == file;
    if (random() % 2 == 0) LoseBytes(directory + "/" + name);
    if (!durable && random() % 2 == 0) LoseName(directory, name, file);
  }
}

}  // namespace hyperloop::simulation

using namespace hyperloop::simulation;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

int msync(void* data, size_t size, int flags) {
  if (!Scheduler::Simulates() || !TheSync()) return HL_REAL(msync)(data, size, flags);
  Scheduler::Get().Point();
  const int error = TheSync()(data, size);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return ChangeFiles([&] { return HL_REAL(pwrite)(fd, data, size, offset); });
}

// A run takes no longer by what it syncs.
int fsync(int fd) {
  if (!Scheduler::Simulates()) return HL_REAL(fsync)(fd);
  return ChangeFiles([fd] { return NoteSynced(fd), 0; });
}

int fdatasync(int fd) { return fsync(fd); }

int ftruncate(int fd, off_t size) {
  return ChangeFiles([&] { return HL_REAL(ftruncate)(fd, size); });
}

// Pools are sparse here, so that a run takes no longer by what it never touches.
int posix_fallocate(int fd, off_t offset, off_t size) {
  if (!Scheduler::Simulates()) return HL_REAL(posix_fallocate)(fd, offset, size);
  struct stat st;
  if (fstat(fd, &st) != 0) return errno;
  if (st.st_size >= offset + size) return 0;
  return HL_REAL(ftruncate)(fd, offset + size) == 0 ? 0 : errno;
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return ChangeFiles([&] { return HL_REAL(renameat)(from_folder, from, to_folder, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return ChangeFiles([&] { return HL_REAL(renameat2)(from_folder, from, to_folder, to, flags); });
}

int unlinkat(int folder, const char* path, int flags) {
  return ChangeFiles([&] {
    NoteRemoved(folder, path);
    return HL_REAL(unlinkat)(folder, path, flags);
  });
}

}  // extern "C"
#pragma GCC visibility pop
