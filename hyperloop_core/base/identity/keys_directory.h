// The files of a keys directory: opened where nobody else could have changed them, made so that
// they are there as a whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {

inline constexpr const char* kIdentityFile = "identity";
inline constexpr const char* kTrustedFile = "trusted";

// The text of a file, overwritten when it goes.
class FileText {
 public:
  FileText() = default;
  FileText(FileText&&) = default;
  FileText& operator=(FileText&&) = default;
  ~FileText();
  std::string_view view() const { return text_; }
  std::string* mutable_text() { return &text_; }

 private:
  std::string text_;
};

// The directory, which must be this user's or root's, and writable by nobody else.
Result<UniqueFd> OpenKeysDirectory(const std::string& dir);

// The text of `name` in `folder` (which is `dir`, for messages): a regular file, no symbolic link,
// of this user or root, not writable by others, and with `secret` not readable by them either.
Result<FileText> ReadKeysFile(int folder, const std::string& dir, const std::string& name,
                              bool secret);

// The text of `identity`.
struct Identity {
  std::string name;
  SecretKey secret;
};
Result<Identity> ParseIdentity(std::string_view text);
// Into `out`, so that no copy is left behind.
void WriteIdentity(const Identity& identity, FileText* out);

// Makes `name` with `text`; with `replace` instead of the one that is there, otherwise
// kAlreadyExists.
Status WriteKeysFile(int folder, const std::string& dir, const std::string& name,
                     std::string_view text, unsigned mode, bool replace);

}  // namespace hyperloop::identity
