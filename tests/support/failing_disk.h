// FailingDisk: a mounted ext4 file system whose device fails to write what it has never
// written before, when a test says so. It is a loop device over a sparse file on a tmpfs that can
// be filled. So errors come from the kernel's own write-back, with all that it then forgets.
//
// Needs root, loop devices and mkfs.ext4.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hyperloop::test {

class FailingDisk {
 public:
  FailingDisk() {
    std::string pattern = "/tmp/hyperloop-disk-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) return;
    base_ = pattern;
    std::filesystem::create_directory(backing());
    std::filesystem::create_directory(path());
    if (mount("tmpfs", backing().c_str(), "tmpfs", 0, "size=160m") != 0) return;
    // Without a journal the file system's own writes fail no test; all of its tables are written
    // now.
    mounted_ =
        Run("truncate -s 512M " + image() +
            " && mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=0,nodiscard " + image()) &&
        Mount();
  }
  ~FailingDisk() {
    if (base_.empty()) return;
    Work();
    if (mounted_) Run("umount " + path());
    umount2(backing().c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

  bool usable() const { return mounted_; }
  std::string path() const { return base_ + "/disk"; }
  // From now on what was never written cannot be written.
  bool Fail() const {
    const int fd = open(filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const std::string zeros(1 << 16, '\0');
    size_t piece = zeros.size();
    while (piece >= 4096) {
      if (write(fd, zeros.data(), piece) != static_cast<ssize_t>(piece)) piece /= 2;
    }
    close(fd);
    return fd >= 0;
  }
  void Work() const { unlink(filler().c_str()); }
  // Forgets all that is not on the disk, as a power failure does. No file may be open.
  bool Remount() {
    mounted_ = Run("umount " + path()) && Mount();
    return mounted_;
  }

 private:
  static bool Run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  bool Mount() const { return Run("mount -o loop " + image() + " " + path()); }
  std::string backing() const { return base_ + "/backing"; }
  std::string image() const { return backing() + "/image"; }
  std::string filler() const { return backing() + "/filler"; }

  std::string base_;
  bool mounted_ = false;
};

}  // namespace hyperloop::test
