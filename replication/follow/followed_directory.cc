#include "follow/followed_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "files/export.h"
#include "files/file_copy.h"
#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

// Says what the directory shows, and is locked while somebody follows there.
constexpr const char* kMark = "hyperloop-follower";
constexpr size_t kPiece = 256u << 10;

std::string MarkText(const FollowedDirectory::Origin& origin) {
  return Text("group ", origin.group, "\nbranch ", origin.branch_epoch, " ",
              origin.branch_owner.empty() ? "-" : origin.branch_owner, "\n");
}

// Whether RocksDB's names of data, and no program's notes, look so.
bool IsDatabaseName(const std::string& name) {
  return HoldsData(name) || name == "CURRENT" || name == "IDENTITY" ||
         name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-");
}

// In this order the files of one state may appear.
int Turn(const std::string& name) {
  if (name == "CURRENT") return 2;
  return name.starts_with("MANIFEST-") ? 1 : 0;
}

Result<std::string> ReadMark(int fd, const std::string& path) {
  std::array<char, 1024> text;
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  if (n < 0) return FromErrno(errno, "read " + path);
  return std::string(text.data(), static_cast<size_t>(n));
}

Status CheckEmpty(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator entries(path, error);
  if (error) return FromErrno(error.value(), "read directory " + path);
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename();
    if (name == kMark) continue;
    return AlreadyExists(Text("name a new or empty directory: ", path, " holds \"", name,
                              "\", and was not made by hyperloopctl follow"));
  }
  return {};
}

WholeFile Whole(const FileInfo& file) { return {file.name, file.size, file.checksum}; }

// Makes `path` the file's bytes, as a hard link if that is allowed.
Status Give(const FileStore& store, const WholeFile& file, const std::string& path) {
  ::unlink(path.c_str());
  const Status linked = store.Link(file, path);
  if (linked.code() != Code::kNotSupported) return linked;
  bool damaged = false;
  HL_RETURN_IF_ERROR(CopyWhole(store, file, path, &damaged));
  return damaged ? Corruption("the replica's copy of \"" + file.name + "\" fails its checksum")
                 : Status();
}

Status Make(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0755) == 0 || errno == EEXIST) return {};
  return FromErrno(errno, "create directory " + directory);
}

}  // namespace

Result<std::unique_ptr<FollowedDirectory>> FollowedDirectory::Open(
    const std::string& path, const Origin& origin, std::chrono::milliseconds retain) {
  HL_RETURN_IF_ERROR(Make(path));
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return FromErrno(errno, "look at " + path);
  if (!S_ISDIR(st.st_mode))
    return AlreadyExists(path + " exists and is not a directory; name another");
  const std::string mark = path + "/" + kMark;
  UniqueFd fd(::open(mark.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return FromErrno(errno, "create " + mark);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Busy("another process follows into " + path + "; end it, or name another directory");
  HL_ASSIGN_OR_RETURN(const std::string text, ReadMark(fd.get(), mark));
  if (text.empty()) {
    const Status empty = CheckEmpty(path);
    if (!empty.ok()) {
      ::unlink(mark.c_str());
      return empty;
    }
    HL_RETURN_IF_ERROR(WriteAll(fd.get(), MarkText(origin), mark));
  } else if (text != MarkText(origin)) {
    return InvalidArgument(Text("name another directory: ", path,
                                " shows another group, or what its history held before replicas "
                                "were given up by force; it stays as it is"));
  }
  return std::unique_ptr<FollowedDirectory>(
      new FollowedDirectory(path, origin, std::move(fd), retain));
}

Result<std::optional<std::string>> FollowedDirectory::Show(const State& state, Time now) {
  if (!compared_) HL_RETURN_IF_ERROR(RetireLeftOver(state.table, now));
  compared_ = true;
  std::vector<FileInfo> logs;
  std::optional<std::string> missing;
  for (const FileInfo& file : state.table.List()) {
    if (file.lane == Lane::kLog) {
      logs.push_back(file);
      continue;
    }
    HL_ASSIGN_OR_RETURN(const bool there, ShowWhole(state, file));
    const bool needed = HoldsData(file.name) || file.name.starts_with("MANIFEST-");
    if (!there && needed && !missing.has_value()) missing = file.name;
  }
  if (missing.has_value()) return missing;
  std::ranges::stable_sort(logs, {}, [](const FileInfo& file) { return Turn(file.name); });
  for (const FileInfo& file : logs) HL_RETURN_IF_ERROR(ShowLog(state, file));
  HL_RETURN_IF_ERROR(Retire(state.table, now));
  return missing;
}

Status FollowedDirectory::RetireLeftOver(const FileTable& table, Time now) {
  std::set<std::string> listed;
  for (const FileInfo& file : table.List()) listed.insert(file.name);
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_, error)) {
    const std::string name = std::filesystem::relative(entry.path(), path_, error);
    const bool archived = name.starts_with(kArchiveDirectory);
    if (!listed.contains(name) && (archived || IsDatabaseName(name))) retired_.emplace(name, now);
  }
  if (error) return FromErrno(error.value(), "read directory " + path_);
  return {};
}

// Whether the file that is there under that name holds a whole file's bytes.
Result<bool> FollowedDirectory::IsThere(const State& state, const FileInfo& file) const {
  const auto shown = shown_.find(file.name);
  if (shown != shown_.end()) {
    const Shown& has = shown->second;
    // A log or MANIFEST that left the region keeps its bytes.
    return has.size == file.size && (has.lane == Lane::kLog || has.checksum == file.checksum);
  }
  const std::string path = PathOf(file.name);
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return false;
  if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != file.size) return false;
  if (state.store != nullptr && state.store->IsLink(Whole(file), st)) return true;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return FromErrno(errno, "open " + path);
  FileChecksum checksum;
  std::vector<char> buffer(kPiece);
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0) return FromErrno(errno, "read " + path);
    if (n == 0) return checksum.value() == file.checksum;
    checksum.Add(std::span(buffer).first(static_cast<size_t>(n)));
  }
}

// False: the replica does not have it.
Result<bool> FollowedDirectory::ShowWhole(const State& state, const FileInfo& file) {
  HL_ASSIGN_OR_RETURN(const bool there, IsThere(state, file));
  if (!there) {
    if (state.store == nullptr) return false;
    const size_t slash = file.name.find('/');
    if (slash != std::string::npos) HL_RETURN_IF_ERROR(Make(PathOf(file.name.substr(0, slash))));
    Status given = Give(*state.store, Whole(file), Temporary());
    if (const auto former = BeforeArchived(Whole(file)); former && given.code() == Code::kNotFound)
      given = Give(*state.store, *former, Temporary());
    if (given.code() == Code::kNotFound) return false;
    HL_RETURN_IF_ERROR(given);
    if (::rename(Temporary().c_str(), PathOf(file.name).c_str()) != 0)
      return FromErrno(errno, "rename into " + PathOf(file.name));
  }
  shown_[file.name] = {Lane::kBulk, file.id, file.size, file.checksum};
  retired_.erase(file.name);
  return true;
}

Result<uint64_t> FollowedDirectory::Present(const State& state, const FileInfo& file) const {
  const std::string path = PathOf(file.name);
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return uint64_t{0};
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size > file.size) return uint64_t{0};
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return FromErrno(errno, "open " + path);
  std::vector<char> here(kPiece), there(kPiece);
  for (uint64_t at = 0; at < size;) {
    const auto want = std::span(there).first(std::min<uint64_t>(kPiece, size - at));
    const ssize_t n = ::pread(fd.get(), here.data(), want.size(), static_cast<off_t>(at));
    if (n < 0) return FromErrno(errno, "read " + path);
    state.table.ReadBytes(state.image, state.info, SlotOf(file.id), at, want);
    if (n == 0 || std::memcmp(here.data(), there.data(), static_cast<size_t>(n)) != 0)
      return uint64_t{0};
    at += static_cast<uint64_t>(n);
  }
  return size;
}

// Writes the bytes from `from` to the file's end into `path`, at the end of what is there.
Status FollowedDirectory::Append(const State& state, const FileInfo& file, uint64_t from,
                                 const std::string& path, int flags) const {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | flags, 0644));
  if (!fd) return FromErrno(errno, "open " + path);
  std::vector<char> buffer(std::min<uint64_t>(kPiece, file.size - from));
  for (uint64_t at = from; at < file.size;) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size - at));
    state.table.ReadBytes(state.image, state.info, SlotOf(file.id), at, part);
    Status written = WriteAll(fd.get(), part, path);
    // What arrived in part is taken back, so that a repetition begins where this call did.
    if (!written.ok()) {
      if (::ftruncate(fd.get(), static_cast<off_t>(from)) != 0)
        return FromErrno(errno, "truncate " + path);
      return written;
    }
    at += part.size();
  }
  return {};
}

Status FollowedDirectory::ShowLog(const State& state, const FileInfo& file) {
  const auto shown = shown_.find(file.name);
  const bool known = shown != shown_.end();
  // A file that RocksDB cut is replaced, as one that got another's name is.
  const bool same = known && shown->second.lane == Lane::kLog && shown->second.id == file.id &&
                    shown->second.size <= file.size;
  uint64_t has = same ? shown->second.size : 0;
  if (!known) {
    HL_ASSIGN_OR_RETURN(has, Present(state, file));
  }
  if (has == 0 && !same) {
    ::unlink(Temporary().c_str());
    HL_RETURN_IF_ERROR(Append(state, file, 0, Temporary(), O_CREAT | O_EXCL));
    if (::rename(Temporary().c_str(), PathOf(file.name).c_str()) != 0)
      return FromErrno(errno, "rename into " + PathOf(file.name));
  } else if (has < file.size) {
    HL_RETURN_IF_ERROR(Append(state, file, has, PathOf(file.name), 0));
  }
  shown_[file.name] = {Lane::kLog, file.id, file.size, 0};
  retired_.erase(file.name);
  return {};
}

Status FollowedDirectory::Retire(const FileTable& table, Time now) {
  std::set<std::string> listed;
  for (const FileInfo& file : table.List()) listed.insert(file.name);
  std::erase_if(shown_, [&](const auto& each) {
    if (listed.contains(each.first)) return false;
    retired_.emplace(each.first, now);
    return true;
  });
  for (auto each = retired_.begin(); each != retired_.end();) {
    if (now - each->second < retain_) {
      ++each;
      continue;
    }
    if (::unlink(PathOf(each->first).c_str()) != 0 && errno != ENOENT)
      return FromErrno(errno, "remove " + PathOf(each->first));
    each = retired_.erase(each);
  }
  return {};
}

}  // namespace hyperloop
