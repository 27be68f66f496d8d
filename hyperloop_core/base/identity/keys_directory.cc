#include "base/identity/keys_directory.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/identity/noise_xx.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop::identity {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

std::string PathOf(const std::string& dir, const std::string& name) { return dir + "/" + name; }

// The owner must be this user or root. `forbidden`: the mode bits that others must not have.
Status CheckOwner(const struct stat& info, const std::string& path, mode_t forbidden,
                  const char* who, const char* remedy) {
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return PermissionDenied(path + " belongs to user " + std::to_string(info.st_uid) +
                            ": it must be this user's (" + std::to_string(geteuid()) +
                            ") or root's; look at what is in it, then chown it");
  if ((info.st_mode & forbidden) != 0)
    return PermissionDenied(path + " can be " + who + " by others: chmod " + remedy + " " + path);
  return {};
}

Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "writing");
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (fsync(fd) != 0) return FromErrno(errno, "fsync");
  return {};
}

}  // namespace

FileText::~FileText() { sodium_memzero(text_.data(), text_.size()); }

Result<UniqueFd> OpenKeysDirectory(const std::string& dir) {
  const Result<std::string> path = CheckDirectory(dir, DirectoryRule::kShared);
  if (path.status().code() == Code::kNotFound)
    return NotFound("no keys directory " + dir + ": make this host's with hyperloopctl keys init " +
                    "--dir " + dir + " --name NAME");
  if (!path.ok()) return path.status().WithContext("keys directory");
  UniqueFd fd(open(path->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return FromErrno(errno, "opening the keys directory " + dir);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return FromErrno(errno, "keys directory " + dir);
  HL_RETURN_IF_ERROR(CheckOwner(info, "keys directory " + dir, 022, "changed", "go-w"));
  return fd;
}

Result<FileText> ReadKeysFile(int folder, const std::string& dir, const std::string& name,
                              bool secret) {
  const std::string path = PathOf(dir, name);
  UniqueFd fd(
      openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT)
    return NotFound("no file " + path + ": hyperloopctl keys " +
                    (secret ? "init makes one" : "trust makes one"));
  if (!fd && errno == ELOOP)
    return PermissionDenied(path + " is a symbolic link: put the file itself there");
  if (!fd) return FromErrno(errno, "opening " + path);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return FromErrno(errno, "reading " + path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is not a regular file");
  HL_RETURN_IF_ERROR(secret ? CheckOwner(info, path, 077, "read or changed", "600")
                            : CheckOwner(info, path, 022, "changed", "go-w"));
  if (static_cast<uint64_t>(info.st_size) > kMaxFileBytes)
    return InvalidArgument(path + " has " + std::to_string(info.st_size) + " bytes; at most " +
                           std::to_string(kMaxFileBytes));
  FileText text;
  text.mutable_text()->resize(static_cast<size_t>(info.st_size));
  size_t got = 0;
  while (got < text.view().size()) {
    const ssize_t n =
        read(fd.get(), text.mutable_text()->data() + got, text.mutable_text()->size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "reading " + path);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  text.mutable_text()->resize(got);
  return text;
}

// Lines "name NAME" and "secret HEX", in this order; comments between.
Result<Identity> ParseIdentity(std::string_view text) {
  Identity identity;
  constexpr std::string_view kName = "name ", kSecret = "secret ";
  bool secret = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    if (line.substr(0, kName.size()) == kName && identity.name.empty()) {
      identity.name = line.substr(kName.size());
      if (!IsName(identity.name)) return InvalidArgument(Text("its name is not ", kNameRule));
    } else if (line.substr(0, kSecret.size()) == kSecret && !secret) {
      size_t bytes = 0;
      const std::string_view digits = line.substr(kSecret.size());
      const char* stop = nullptr;
      secret = digits.size() == 2 * kKeyBytes &&
               sodium_hex2bin(identity.secret.data(), kKeyBytes, digits.data(), digits.size(),
                              nullptr, &bytes, &stop) == 0 &&
               bytes == kKeyBytes;
      if (!secret) return InvalidArgument("its secret is not 64 hexadecimal digits");
    } else {
      return InvalidArgument("it has a line that is neither \"name NAME\" nor \"secret HEX\"");
    }
  }
  if (identity.name.empty() || !secret)
    return InvalidArgument("it lacks its name or its secret; restore the file");
  return identity;
}

void WriteIdentity(const Identity& identity, FileText* out) {
  char digits[2 * kKeyBytes + 1];
  sodium_bin2hex(digits, sizeof digits, identity.secret.data(), kKeyBytes);
  std::string* const text = out->mutable_text();
  text->reserve(1024);
  *text =
      "# Who has this secret is this host. It stays here; others get what `hyperloopctl keys "
      "show` prints.\n";
  *text += "name " + identity.name + "\nsecret ";
  *text += digits;
  *text += "\n";
  sodium_memzero(digits, sizeof digits);
}

Status WriteKeysFile(int folder, const std::string& dir, const std::string& name,
                     std::string_view text, unsigned mode, bool replace) {
  const std::string path = PathOf(dir, name);
  const std::string scratch = "." + name + ".new." + std::to_string(getpid());
  UniqueFd fd(openat(folder, scratch.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                     static_cast<mode_t>(mode)));
  if (!fd) return FromErrno(errno, "making " + PathOf(dir, scratch));
  Status status = WriteAll(fd.get(), text);
  if (status.ok() && fchmod(fd.get(), static_cast<mode_t>(mode)) != 0)
    status = FromErrno(errno, "chmod");
  if (status.ok()) {
    const int made = replace ? renameat(folder, scratch.c_str(), folder, name.c_str())
                             : linkat(folder, scratch.c_str(), folder, name.c_str(), 0);
    if (made != 0)
      status = errno == EEXIST ? AlreadyExists("it exists, and is never overwritten")
                               : FromErrno(errno, "naming it");
  }
  if (!status.ok() || !replace) unlinkat(folder, scratch.c_str(), 0);
  if (status.ok() && fsync(folder) != 0) status = FromErrno(errno, "fsync of its directory");
  return status.WithContext(path);
}

}  // namespace hyperloop::identity
