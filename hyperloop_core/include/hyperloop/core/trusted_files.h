// Files and directories that decide what a process runs, signals or hands its memory to, and so may
// be changed by nobody but this user and root.
//
// The rules are those of sshd's StrictModes. A directory is checked with all that lead to it: once
// none of them is writable by others, the path means the same file at each later use. A file is
// checked through its descriptor. "This user" is the effective user id.
//
// In a user namespace that hides the machine's root, its directories and those of other hidden
// users have the same owner id. Those at the beginning of a path count as root's there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

enum class DirectoryRule {
  kOwn,     // it belongs to this user, and nobody else may write there
  kShared,  // as the directories above: this user's or root's, sticky where others may write
};

// Returns the absolute path with links resolved. The directory keeps `rule`, all above it keep
// kShared, and links on the way belong to this user or root. kPermissionDenied names what breaks a
// rule, and the remedy. kNotFound.
Result<std::string> CheckDirectory(const std::string& path, DirectoryRule rule);

// Opens a regular file that belongs to this user or root and that nobody else may write. Never
// follows a link in the last part of the path, never blocks, closes on exec. No O_TRUNC, which
// would take effect before the check. kPermissionDenied: it is a link, or another's, or writable by
// others. kNotFound.
Result<UniqueFd> OpenTrustedFile(const std::string& path, int flags, mode_t mode = 0);

// What such a file holds from byte `from` on.
Result<std::string> ReadTrustedFile(const std::string& path, uint64_t from = 0);

// Puts a file with this text and mode in the place of `path`, in one step: whoever reads it finds
// the old one or the new one, whole. It is made at `beside`, in the same directory; what is there
// already is removed, and neither written to nor waited for.
Status ReplaceFile(const std::string& path, const std::string& beside, std::string_view text,
                   mode_t mode);

}  // namespace hyperloop
