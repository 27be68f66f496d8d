#include "paths.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>

#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {
namespace {

// Whether RocksDB writes a file's number like this: it fits in 64 bits, and has no more digits than
// they need. A longer name is not one that RocksDB gives, and the group may not take it.
bool IsNumber(std::string_view text) {
  constexpr size_t kMostDigits = std::numeric_limits<uint64_t>::digits10 + 1;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return text.size() <= kMostDigits && error == std::errc() && end == text.data() + text.size();
}

// "000123.log" and the like: a number, then `suffix`.
bool IsNumbered(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) && IsNumber(name.substr(0, name.size() - suffix.size()));
}

// RocksDB cuts the path in the name of an info log in another directory so that the name fits into
// 260 characters.
constexpr size_t kLongestInfoLogName = 250;

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

bool IsTableOrBlob(std::string_view name) {
  return IsNumbered(name, ".sst") || IsNumbered(name, ".blob");
}

bool IsArchivedLog(std::string_view name) {
  return name.starts_with(kArchivePrefix) && IsLiveLog(name.substr(kArchivePrefix.size()));
}

bool StaysAsListed(std::string_view name) {
  return IsTableOrBlob(name) || IsLiveLog(name) || IsArchivedLog(name);
}

uint64_t NumberOf(std::string_view name) {
  uint64_t number = 0;
  const size_t start = std::min(name.find_first_of("0123456789"), name.size());
  std::from_chars(name.data() + start, name.data() + name.size(), number);
  return number;
}

bool IsManifest(std::string_view name) {
  return name.starts_with("MANIFEST-") && IsNumber(name.substr(9));
}

bool IsLog(std::string_view name) { return name.size() > 4 && name.ends_with(".log"); }

bool IsLiveLog(std::string_view name) { return IsNumbered(name, ".log"); }

bool LeadsToManifest(std::string_view name) {
  return IsManifest(name) || IsNumbered(name, ".dbtmp");
}

FileClass Classify(std::string_view name) {
  if (name.starts_with(kArchivePrefix))
    return IsArchivedLog(name) ? FileClass::kLogLane : FileClass::kOutside;
  if (name.empty() || name.find('/') != std::string_view::npos) return FileClass::kOutside;
  if (IsNumbered(name, ".log") || name == "CURRENT") return FileClass::kLogLane;
  if (IsManifest(name)) return FileClass::kLogLane;
  if (IsNumbered(name, ".dbtmp")) {
    // Number 0 is the temporary name of IDENTITY.
    bool zero = std::all_of(name.begin(), name.end() - 6, [](char c) { return c == '0'; });
    return zero ? FileClass::kUnlisted : FileClass::kLogLane;
  }
  bool temporary = name.ends_with(".dbtmp") || name.ends_with(".trash") || name.ends_with(".tmp") ||
                   name.ends_with(kNewSuffix);
  // With db_log_dir the name begins with the database directory's path.
  const bool info_log = name == "LOG" || name.starts_with("LOG.") || name.ends_with("_LOG") ||
                        name.find("_LOG.old.") != std::string_view::npos;
  // Names that RocksDB does not give, and that replicas do not take.
  const auto is_foreign = [](char c) { return c < 0x20 || c > 0x7e || c == '\\'; };
  const bool foreign = name.front() == '.' || name.size() > kMaxFileNameBytes ||
                       name == kAdoptionMark || std::any_of(name.begin(), name.end(), is_foreign);
  if (temporary || info_log || foreign || name == kLockFileName || name == kPairingFileName ||
      name == kOpenMarkName)
    return FileClass::kUnlisted;
  return FileClass::kListed;
}

std::string BroughtFiles(const std::string& directory) {
  return directory + "/" + std::string(kSwitchoverName);
}

bool IsInfoLogOf(const std::string& path, const std::string& directory) {
  const std::string name = BaseOf(path);
  if (name == "LOG") return RealPath(ParentOf(path)) == RealPath(directory);
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(directory, error);
  if (error || !name.ends_with("_LOG")) return false;
  std::string flat;
  for (const char c : absolute.substr(1)) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.';
    flat += kept ? c : '_';
  }
  // The directory may have been spelled with slashes at its end.
  const auto without_end = [](std::string_view text) {
    return text.substr(0, text.find_last_not_of('_') + 1);
  };
  const std::string_view stem = std::string_view(name).substr(0, name.size() - 4);
  return without_end(stem) == without_end(flat) ||
         (name.size() > kLongestInfoLogName && flat.starts_with(stem));
}

std::string ParentOf(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash + 1)));
}

std::string BaseOf(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string RealPath(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) == nullptr ? path : std::string(buffer);
}

std::string RealPathOfEntry(const std::string& path) {
  std::string parent = RealPath(ParentOf(path));
  if (parent != "/") parent += "/";
  return parent + BaseOf(path);
}

}  // namespace hyperloop::plugin
