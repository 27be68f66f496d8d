#include "checked_files.h"

#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "crc_line.h"
#include "hyperloop/core/trusted_files.h"
#include "local/local_files.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;

constexpr char kName[] = "checked";
constexpr char kFirstLine[] = "hyperloop checked 1";
// File systems note the time of a change by a clock that stands still meanwhile. A file that was
// changed so lately may change again without another time.
constexpr std::chrono::seconds kClockTick{2};

// Another one whenever the machine starts; empty if the kernel does not say it.
std::string Boot() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<struct stat> Look(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return found;
}

int64_t Changed(const struct stat& found) {
  return int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
}

bool IsOld(const struct stat& found) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(Changed(found)) + kClockTick < now;
}

}  // namespace

CheckedFiles CheckedFiles::In(const std::string& directory) {
  CheckedFiles files;
  if (!CheckDirectory(directory, DirectoryRule::kOwn).ok()) return files;
  std::ifstream in(directory + "/" + kName, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || !files.Parse(text.str())) files.known_.clear();
  return files;
}

bool CheckedFiles::Parse(std::string_view text) {
  std::istringstream in{std::string(AboveCrcLine(text))};
  std::string line, boot;
  if (!std::getline(in, line) || line != kFirstLine) return false;
  if (!std::getline(in, boot) || boot.empty() || boot != Boot()) return false;
  for (Inode inode; in >> inode.first >> inode.second;) {
    Content content;
    if (!(in >> content.size >> content.changed >> content.checksum)) return false;
    known_[inode] = content;
  }
  return in.eof();
}

CheckedFiles::Content* CheckedFiles::Find(const std::string& path) {
  const auto found = Look(path);
  if (!found.has_value()) return nullptr;
  const auto known = known_.find({found->st_dev, found->st_ino});
  if (known == known_.end()) return nullptr;
  Content& content = known->second;
  const bool same =
      content.size == static_cast<uint64_t>(found->st_size) && content.changed == Changed(*found);
  return same ? &content : nullptr;
}

void CheckedFiles::Keep(const Inode& inode, const Content& content) {
  Content& known = known_[inode];
  if (known == content) return;
  known = content;
  written_ = false;
}

void CheckedFiles::Note(const std::string& path, const WholeFile& file) {
  const auto found = Look(path);
  if (!found.has_value() || static_cast<uint64_t>(found->st_size) != file.size) return;
  Keep({found->st_dev, found->st_ino}, {file.size, Changed(*found), file.checksum});
}

Result<bool> CheckedFiles::IsSound(FileSystem& fs, const std::string& path, const WholeFile& file) {
  std::optional<Clock::time_point> since;
  if (const Content* const known = Find(path); known != nullptr) {
    if (!known->young.has_value())
      return known->size == file.size && known->checksum == file.checksum;
    since = known->young;
  }
  const auto now = Clock::now();
  const auto before = Look(path);
  HL_ASSIGN_OR_RETURN(const WholeFile read, Describe(fs, path, file.name));
  const auto after = Look(path);
  const bool unchanged = before.has_value() && after.has_value() &&
                         before->st_ino == after->st_ino && Changed(*before) == Changed(*after);
  if (unchanged) {
    Content content{read.size, Changed(*before), read.checksum};
    // By a clock that nobody sets, for a file whose time is ahead.
    const bool old = IsOld(*before) || (since.has_value() && *since + kClockTick < now);
    if (!old) content.young = since.value_or(now);
    Keep({before->st_dev, before->st_ino}, content);
  }
  return read == file;
}

void CheckedFiles::KeepOnly(const std::vector<std::string>& paths) {
  std::map<Inode, Content> kept;
  for (const std::string& path : paths) {
    const auto found = Look(path);
    if (!found.has_value()) continue;
    const auto known = known_.find({found->st_dev, found->st_ino});
    if (known != known_.end()) kept.insert(*known);
  }
  written_ = written_ && kept.size() == known_.size();
  known_ = std::move(kept);
}

Status CheckedFiles::Write(FileSystem& fs, const std::string& directory) {
  if (written_) return Status::Ok();
  HL_RETURN_IF_ERROR(CheckDirectory(directory, DirectoryRule::kOwn).status());
  std::ostringstream text;
  text << kFirstLine << "\n" << Boot() << "\n";
  for (const auto& [inode, content] : known_)
    if (!content.young.has_value())
      text << inode.first << " " << inode.second << " " << content.size << " " << content.changed
           << " " << content.checksum << "\n";
  const std::string whole = WithCrcLine(text.str()), path = directory + "/" + kName;
  const std::string fresh = path + ".new";
  HL_RETURN_IF_ERROR(WriteWhole(fs, fresh, false, [&](rocksdb::FSWritableFile& file) {
    return FromIOStatus(file.Append(whole, rocksdb::IOOptions(), nullptr), "cannot write " + fresh);
  }));
  HL_RETURN_IF_ERROR(RenameOver(fs, fresh, path));
  written_ = true;
  return Status::Ok();
}

}  // namespace hyperloop::plugin
