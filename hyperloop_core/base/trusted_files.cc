#include "hyperloop/core/trusted_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <vector>

namespace hyperloop {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

// In a user namespace that does not map the machine's user 0, files of the machine's root appear to
// belong to the overflow user. So do files of all other users who are not mapped.
bool RootIsHidden() {
  std::ifstream map("/proc/self/uid_map");
  bool any = false;
  for (uint64_t inside, outside, count; map >> inside >> outside >> count; any = true) {
    if (outside == 0 && count > 0) return false;
  }
  return any;
}

bool IsHiddenRoot(uid_t uid) {
  uid_t overflow = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  return uid == overflow && RootIsHidden();
}

bool IsTrusted(uid_t uid) { return uid == 0 || uid == geteuid(); }

Status NotOurs(const std::string& path, uid_t uid) {
  return PermissionDenied(path + " belongs to user " + std::to_string(uid) + ", not to user " +
                          std::to_string(geteuid()) +
                          ", who runs this: run it as that user, or choose another directory");
}

Status Writable(const std::string& path) {
  return PermissionDenied(path + " may be written by others: chmod go-w " + path +
                          ", or choose another directory");
}

// Checks the mode of a directory on the way, or of the last one under kShared.
Status CheckMode(const std::string& path, const struct stat& info) {
  if ((info.st_mode & kOthersWrite) != 0 && (info.st_mode & S_ISVTX) == 0) return Writable(path);
  return Status::Ok();
}

// Puts the parts of `path` before `rest`, which is in reverse order.
void PushParts(const std::string& path, std::vector<std::string>* rest) {
  for (size_t end = path.size(); end > 0;) {
    const size_t slash = path.rfind('/', end - 1);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    if (begin < end) rest->push_back(path.substr(begin, end - begin));
    end = slash == std::string::npos ? 0 : slash;
  }
}

Result<std::string> ReadLink(const std::string& path) {
  std::array<char, 4096> target{};
  const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
  if (n < 0) return FromErrno(errno, path);
  return std::string(target.data(), static_cast<size_t>(n));
}

// Goes through the path as the kernel does, part by part.
class Walk {
 public:
  Status Run(const std::string& path) {
    if (path.empty() || path[0] != '/') {
      std::array<char, 4096> here{};
      if (::getcwd(here.data(), here.size()) == nullptr) return FromErrno(errno, "getcwd");
      PushParts(path, &rest_);
      PushParts(here.data(), &rest_);
    } else {
      PushParts(path, &rest_);
    }
    HL_RETURN_IF_ERROR(Look("/"));
    HL_RETURN_IF_ERROR(CheckStep("/"));
    while (!rest_.empty()) {
      const std::string part = std::move(rest_.back());
      rest_.pop_back();
      HL_RETURN_IF_ERROR(Step(part));
    }
    return Look(path_.empty() ? "/" : path_);
  }
  std::string path() const { return path_.empty() ? "/" : path_; }
  const struct stat& info() const { return info_; }

 private:
  Status Look(const std::string& path) {
    return ::lstat(path.c_str(), &info_) == 0 ? Status::Ok() : FromErrno(errno, path);
  }
  Status Step(const std::string& part) {
    if (part == ".") return Status::Ok();
    if (part == "..") {
      path_.resize(path_.empty() ? 0 : path_.rfind('/'));
      return Status::Ok();
    }
    const std::string next = path_ + "/" + part;
    HL_RETURN_IF_ERROR(Look(next));
    if (S_ISLNK(info_.st_mode)) return Follow(next);
    if (!S_ISDIR(info_.st_mode)) return FromErrno(ENOTDIR, next);
    HL_RETURN_IF_ERROR(CheckStep(next));
    path_ = next;
    return Status::Ok();
  }
  // True if the owner of this part is trusted. A hidden root may own the first directories of a
  // path, but nothing below a directory of this user.
  bool MayLead() {
    if (!IsTrusted(info_.st_uid)) return !below_own_ && IsHiddenRoot(info_.st_uid);
    below_own_ = below_own_ || (info_.st_uid != 0 && S_ISDIR(info_.st_mode));
    return true;
  }
  Status CheckStep(const std::string& path) {
    return MayLead() ? CheckMode(path, info_) : NotOurs(path, info_.st_uid);
  }
  Status Follow(const std::string& link) {
    constexpr int kMaxLinks = 40;  // as the kernel's
    if (++links_ > kMaxLinks) return FromErrno(ELOOP, link);
    if (!MayLead()) return NotOurs("the link " + link, info_.st_uid);
    HL_ASSIGN_OR_RETURN(const std::string target, ReadLink(link));
    if (!target.empty() && target[0] == '/') path_.clear();
    PushParts(target, &rest_);
    return Status::Ok();
  }

  std::string path_;  // of what was checked; empty: the root
  std::vector<std::string> rest_;
  struct stat info_ {};
  int links_ = 0;
  bool below_own_ = false;
};

Status CheckFile(const std::string& path, int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return FromErrno(errno, path);
  if (!S_ISREG(info.st_mode)) return PermissionDenied(path + " is no regular file: remove it");
  if (!IsTrusted(info.st_uid)) return NotOurs(path, info.st_uid);
  if ((info.st_mode & kOthersWrite) != 0) {
    return PermissionDenied(path + " may be written by others: look at it, then chmod go-w " +
                            path);
  }
  return Status::Ok();
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "writing " + path);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> CheckDirectory(const std::string& path, DirectoryRule rule) {
  Walk walk;
  HL_RETURN_IF_ERROR(walk.Run(path));
  if (rule == DirectoryRule::kOwn) {
    if (walk.info().st_uid != geteuid()) return NotOurs(walk.path(), walk.info().st_uid);
    if ((walk.info().st_mode & kOthersWrite) != 0) return Writable(walk.path());
  }
  return walk.path();
}

Status ReplaceFile(const std::string& path, const std::string& beside, std::string_view text,
                   mode_t mode) {
  if (::unlink(beside.c_str()) != 0 && errno != ENOENT)
    return FromErrno(errno, "removing " + beside);
  UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return FromErrno(errno, "making " + beside);
  Status status = WriteAll(fd.get(), text, beside);
  if (status.ok() && ::fchmod(fd.get(), mode) != 0)
    status = FromErrno(errno, "setting the mode of " + beside);
  if (status.ok() && ::rename(beside.c_str(), path.c_str()) != 0)
    status = FromErrno(errno, "putting " + path + " into place");
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

Result<UniqueFd> OpenTrustedFile(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
  if (!fd && errno == ELOOP) {
    return PermissionDenied(path + " is a symbolic link, which is not followed: remove it");
  }
  if (!fd) return FromErrno(errno, path);
  HL_RETURN_IF_ERROR(CheckFile(path, fd.get()));
  return fd;
}

Result<std::string> ReadTrustedFile(const std::string& path, uint64_t from) {
  HL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenTrustedFile(path, O_RDONLY));
  std::string text;
  std::array<char, 16384> piece;
  ssize_t n;
  while ((n = ::pread(fd.get(), piece.data(), piece.size(),
                      static_cast<off_t>(from + text.size()))) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(piece.data(), static_cast<size_t>(n));
  }
  if (n < 0) return FromErrno(errno, path);
  return text;
}

}  // namespace hyperloop
