#include "lock_holder.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <fstream>

namespace hyperloop::plugin {

pid_t LockHolder(const std::string& file) {
  struct stat st;
  if (::stat(file.c_str(), &st) != 0) return 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; who waits has "->" before POSIX.
    int pid = 0;
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*d: POSIX %*s WRITE %d %x:%x:%lu", &pid, &device_major,
                    &device_minor, &inode) == 4 &&
        pid > 0 && inode == st.st_ino && device_major == major(st.st_dev) &&
        device_minor == minor(st.st_dev))
      return pid;
  }
  return 0;
}

}  // namespace hyperloop::plugin
