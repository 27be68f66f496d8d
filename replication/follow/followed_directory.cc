#include "follow/followed_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "inspect/export.h"
#include "inspect/file_copy.h"

namespace hyperloop {
namespace {

// Says what the directory shows, and is locked while somebody follows there.
constexpr const char* kMark = "hyperloop-follower";
constexpr size_t kPiece = 256u << 10;

std::string MarkText(const FollowedDirectory::Origin& origin) {
  return Text("group ", origin.group, "\nbranch ", origin.branch_epoch, " ",
              origin.branch_owner.empty() ? "-" : origin.branch_owner, "\n");
}

// Fixed in length, so that a later number overwrites an earlier one.
std::string SeqText(uint64_t seq) {
  const std::string digits = std::to_string(seq);
  return "record " + std::string(20 - digits.size(), '0') + digits + "\n";
}

// Readers do not lock the mark, so the number is there twice: while it changes the two differ.
std::string AsOfText(uint64_t micros) {
  const std::string digits = std::to_string(micros);
  const std::string padded = std::string(20 - digits.size(), '0') + digits;
  return "as-of " + padded + " " + padded + "\n";
}

// The number that this line of a mark states; 0: it has none.
uint64_t SeqOf(std::string_view line) {
  constexpr std::string_view kBefore = "record ";
  uint64_t seq = 0;
  if (line.starts_with(kBefore))
    std::from_chars(line.data() + kBefore.size(), line.data() + line.size(), seq);
  return seq;
}

// The time that this line of a mark states. Nothing: it is being written, or no clock has it.
std::optional<std::chrono::system_clock::time_point> AsOfOf(std::string_view line) {
  const std::string twice(line.substr(line.rfind(' ') + 1));
  int64_t micros = 0;
  const auto [end, error] = std::from_chars(twice.data(), twice.data() + twice.size(), micros);
  const bool whole = error == std::errc() && end == twice.data() + twice.size();
  if (!whole || line != "as-of " + twice + " " + twice) return std::nullopt;
  using Time = std::chrono::system_clock::time_point;
  const std::chrono::microseconds since(micros);
  const auto last = std::chrono::floor<std::chrono::microseconds>(Time::max()).time_since_epoch();
  if (micros < 0 || since > last) return std::nullopt;
  return Time(since);
}

void ReadBranch(std::string_view text, FollowedDirectory::Origin* origin) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), origin->branch_epoch);
  const std::string_view owner = text.substr(static_cast<size_t>(end - text.data()));
  if (owner.size() > 1 && owner != " -") origin->branch_owner = owner.substr(1);
}

// The name without its leading digits, or nothing if it has none.
std::string_view AfterNumber(std::string_view name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits == 0 ? std::string_view() : name.substr(digits);
}
bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}
bool IsNumbered(std::string_view name, std::string_view before) {
  return name.starts_with(before) && IsNumber(name.substr(before.size()));
}
bool IsLogName(std::string_view name) { return AfterNumber(name) == ".log"; }
bool IsManifestName(std::string_view name) { return IsNumbered(name, "MANIFEST-"); }

// Whether RocksDB's names of data, and no program's notes, look so.
bool IsDatabaseName(std::string_view name) {
  const std::string_view kind = AfterNumber(name);
  return kind == ".log" || kind == ".sst" || kind == ".blob" || kind == ".dbtmp" ||
         name == "CURRENT" || name == "IDENTITY" || IsManifestName(name) ||
         IsNumbered(name, "OPTIONS-");
}

// In this order the files of one state may appear. Those of one kind that are read in order have
// numbers, of which a longer one is greater.
enum class Kind { kOther, kLog, kManifest, kCurrent };
Kind KindOf(std::string_view name) {
  if (IsLogName(name)) return Kind::kLog;
  if (IsManifestName(name)) return Kind::kManifest;
  return name == "CURRENT" ? Kind::kCurrent : Kind::kOther;
}
bool ComesBefore(const FileInfo& a, const FileInfo& b) {
  const auto order = [](const FileInfo& file) {
    return std::tuple(KindOf(file.name), file.name.size(), std::string_view(file.name));
  };
  return order(a) < order(b);
}

Result<std::string> ReadMark(int fd, const std::string& path) {
  std::array<char, 1024> text;
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  if (n < 0) return FromErrno(errno, "read " + path);
  return std::string(text.data(), static_cast<size_t>(n));
}

// A mark is whole, or empty.
Status WriteMark(int fd, const std::string& text, const std::string& path) {
  Status written = WriteAll(fd, text, path);
  if (written.ok() && ::fsync(fd) != 0) written = FromErrno(errno, "sync " + path);
  if (!written.ok() && ::ftruncate(fd, 0) != 0) return FromErrno(errno, "truncate " + path);
  return written;
}

// The entries of a directory; none if it is absent, or is no directory itself.
Result<std::vector<std::string>> NamesIn(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd < 0 ? nullptr : ::fdopendir(fd),
                                                      ::closedir);
  std::vector<std::string> names;
  if (directory == nullptr) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (error == ENOENT || error == ENOTDIR || error == ELOOP) return names;
    return FromErrno(error, "read directory " + path);
  }
  for (errno = 0; const dirent* const entry = ::readdir(directory.get()); errno = 0) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return FromErrno(errno, "read directory " + path);
  return names;
}

Status CheckEmpty(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  for (const std::string& name : names) {
    if (name == kMark) continue;
    return AlreadyExists(Text("name a new or empty directory: ", path, " holds \"", name,
                              "\", and was not made by hyperloopctl follow"));
  }
  return {};
}

WholeFile Whole(const FileInfo& file) { return {file.name, file.size, file.checksum}; }

// Whether it may be appended to: bytes that go through a hard link would change the replica's file.
bool IsOwnFile(const struct stat& st) { return S_ISREG(st.st_mode) && st.st_nlink == 1; }

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

// What an IDENTITY says; empty if there is none, or what is there can be none, as after a power
// failure.
std::string ReadIdentity(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  std::array<char, 256> text;
  const ssize_t n = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
  const std::string_view said(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return said.find('\0') == std::string_view::npos ? std::string(said) : std::string();
}

// A symbolic link to a directory is none.
Status Make(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) return FromErrno(errno, "create directory " + directory);
  struct stat st;
  if (::lstat(directory.c_str(), &st) != 0) return FromErrno(errno, "look at " + directory);
  if (S_ISDIR(st.st_mode)) return {};
  return AlreadyExists(directory + " exists and is not a directory; name another");
}

}  // namespace

Result<std::unique_ptr<FollowedDirectory>> FollowedDirectory::Open(const std::string& path,
                                                                   const Origin& origin,
                                                                   const Retention& retention) {
  HL_RETURN_IF_ERROR(Make(path));
  // Whoever may write there could make links out of it between a look and a write.
  HL_RETURN_IF_ERROR(CheckDirectory(path, DirectoryRule::kOwn).status());
  const std::string mark = path + "/" + kMark;
  UniqueFd fd(::open(mark.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return FromErrno(errno, "create " + mark);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Busy("another process follows into " + path + "; end it, or name another directory");
  HL_ASSIGN_OR_RETURN(const std::string text, ReadMark(fd.get(), mark));
  const std::string own = MarkText(origin);
  if (text.empty()) {
    const Status empty = CheckEmpty(path);
    if (!empty.ok()) {
      ::unlink(mark.c_str());
      return empty;
    }
    HL_RETURN_IF_ERROR(WriteMark(fd.get(), own + SeqText(0), mark));
  } else if (!text.starts_with(own)) {
    return InvalidArgument(Text("name another directory: ", path,
                                " shows another group, or what its history held before replicas "
                                "were given up by force; it stays as it is"));
  }
  const uint64_t seq = text.empty() ? 0 : SeqOf(std::string_view(text).substr(own.size()));
  return std::unique_ptr<FollowedDirectory>(
      new FollowedDirectory(path, origin, std::move(fd), retention, seq));
}

Result<FollowedDirectory::Said> FollowedDirectory::Read(const std::string& path) {
  const std::string mark = path + "/" + kMark;
  const UniqueFd fd(::open(mark.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT)
    return NotFound("name the directory that hyperloopctl follow --to names: " + path + " has no " +
                    kMark);
  if (!fd) return FromErrno(errno, "open " + mark);
  // Somebody may be writing it: what two looks find alike is whole.
  HL_ASSIGN_OR_RETURN(std::string text, ReadMark(fd.get(), mark));
  for (int look = 0; look < 4; ++look) {
    HL_ASSIGN_OR_RETURN(std::string again, ReadMark(fd.get(), mark));
    if (text == again) break;
    text = std::move(again);
  }
  Said said;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with("group ")) said.origin.group = line.substr(6);
    if (line.starts_with("branch ")) ReadBranch(line.substr(7), &said.origin);
    if (line.starts_with("record ")) said.record = SeqOf(line);
    if (line.starts_with("as-of ")) said.as_of = AsOfOf(line);
  }
  if (said.origin.group.empty())
    return Corruption("remove " + path + " and follow anew: " + mark + " names no group");
  return said;
}

Result<std::optional<std::string>> FollowedDirectory::Show(const State& state, Time now) {
  if (state.seq < seq_) {
    return Unavailable(Text("the replica holds everything up to record ", state.seq, ", and ",
                            path_, " shows record ", seq_));
  }
  whole_ = false;
  if (!compared_) HL_RETURN_IF_ERROR(RetireLeftOver(state.table, now));
  compared_ = true;
  std::vector<FileInfo> files = state.table.List();
  HL_RETURN_IF_ERROR(CheckDatabase(files));
  std::ranges::sort(files, ComesBefore);
  const bool moves = MovesManifest(files);
  std::optional<std::string> missing;
  for (const FileInfo& file : files) {
    if (file.name == kMark || PathOf(file.name) == Temporary()) continue;
    const Kind kind = KindOf(file.name);
    // What no MANIFEST that is shown names is not needed yet.
    if (kind != Kind::kOther && missing.has_value() && moves) return missing;
    if (kind != Kind::kOther) HL_RETURN_IF_ERROR(Note(state.seq));
    if (file.lane == Lane::kLog) {
      HL_RETURN_IF_ERROR(ShowLog(state, file));
      continue;
    }
    HL_ASSIGN_OR_RETURN(const bool there, ShowWhole(state, file));
    if (there) continue;
    if (kind != Kind::kOther) return std::optional(file.name);
    if (HoldsData(file.name) && !missing.has_value()) missing = file.name;
  }
  HL_RETURN_IF_ERROR(Retire(state.table, now));
  whole_ = true;
  return missing;
}

// A group that was emptied may come to hold another database.
Status FollowedDirectory::CheckDatabase(const std::vector<FileInfo>& files) const {
  const auto lists = [&](std::string_view name) {
    return std::ranges::find(files, name, &FileInfo::name);
  };
  if (lists("CURRENT") == files.end() && ::access(PathOf("CURRENT").c_str(), F_OK) == 0)
    return Unavailable("the group holds no database any more, which " + path_ + " shows");
  const auto identity = lists("IDENTITY");
  if (identity == files.end() || identity->checksum == 0) return {};
  const std::string shown = ReadIdentity(PathOf("IDENTITY"));
  FileChecksum checksum;
  checksum.Add(shown);
  if (shown.empty() || checksum.value() == identity->checksum) return {};
  return InvalidArgument("name another directory: " + path_ +
                         " shows the database that the group held before it was emptied; it stays "
                         "as it is");
}

// Whether a MANIFEST or CURRENT would change.
bool FollowedDirectory::MovesManifest(const std::vector<FileInfo>& files) const {
  return std::ranges::any_of(files, [&](const FileInfo& file) {
    if (KindOf(file.name) < Kind::kManifest) return false;
    const auto shown = shown_.find(file.name);
    if (shown == shown_.end() || shown->second.size != file.size) return true;
    return file.lane == Lane::kLog &&
           (shown->second.lane != Lane::kLog || shown->second.id != file.id);
  });
}

// Comes before what it speaks of, so that a later process never shows less.
Status FollowedDirectory::Note(uint64_t seq) {
  if (seq == seq_) return {};
  const std::string text = SeqText(seq);
  const auto at = static_cast<off_t>(MarkText(origin_).size());
  if (::pwrite(lock_.get(), text.data(), text.size(), at) != static_cast<ssize_t>(text.size()))
    return FromErrno(errno, "write " + PathOf(kMark));
  seq_ = seq;
  return {};
}

Status FollowedDirectory::NoteAsOf(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  const std::string text = AsOfText(static_cast<uint64_t>(std::max<int64_t>(since.count(), 0)));
  const auto at = static_cast<off_t>(MarkText(origin_).size() + SeqText(0).size());
  if (::pwrite(lock_.get(), text.data(), text.size(), at) != static_cast<ssize_t>(text.size()))
    return FromErrno(errno, "write " + PathOf(kMark));
  return {};
}

Status FollowedDirectory::RetireLeftOver(const FileTable& table, Time now) {
  std::set<std::string> listed;
  for (const FileInfo& file : table.List()) listed.insert(file.name);
  const auto retire = [&](const std::string& name) {
    if (!listed.contains(name)) NoteRetired(name, now);
  };
  HL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path_));
  for (const std::string& name : names)
    if (IsDatabaseName(name)) retire(name);
  const std::string archive(kArchiveDirectory);
  HL_ASSIGN_OR_RETURN(const std::vector<std::string> archived,
                      NamesIn(PathOf(archive.substr(0, archive.size() - 1))));
  for (const std::string& name : archived)
    if (IsLogName(name)) retire(archive + name);
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
    HL_RETURN_IF_ERROR(MakeParent(file.name));
    Result<bool> extended = false;
    if (KindOf(file.name) != Kind::kOther) extended = Extend(*state.store, Whole(file));
    Status given = extended.status();
    if (given.ok() && !*extended) given = Replace(*state.store, Whole(file));
    if (given.code() == Code::kNotFound) return false;
    HL_RETURN_IF_ERROR(given);
  }
  shown_[file.name] = {Lane::kBulk, file.id, file.size, file.checksum};
  retired_.erase(file.name);
  return true;
}

// For an archived log's name.
Status FollowedDirectory::MakeParent(const std::string& name) const {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? Status() : Make(PathOf(name.substr(0, slash)));
}

Status FollowedDirectory::Replace(const FileStore& store, const WholeFile& file) const {
  Status given = Give(store, file, Temporary());
  if (const auto former = BeforeArchived(file); former && given.code() == Code::kNotFound)
    given = Give(store, *former, Temporary());
  HL_RETURN_IF_ERROR(given);
  if (::rename(Temporary().c_str(), PathOf(file.name).c_str()) == 0) return {};
  return FromErrno(errno, "rename into " + PathOf(file.name));
}

// Appends what is missing of a log that left the region, since a reader that has it open goes on
// there. False: what is shown is not its beginning, or is not this directory's alone.
Result<bool> FollowedDirectory::Extend(const FileStore& store, const WholeFile& file) const {
  const std::string path = PathOf(file.name);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  struct stat st;
  if (!fd || ::fstat(fd.get(), &st) != 0 || !IsOwnFile(st)) return false;
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size >= file.size) return false;
  std::vector<std::byte> whole(kPiece), here(kPiece);
  FileChecksum checksum;
  const auto append = [&]() -> Result<bool> {
    for (uint64_t at = 0; at < file.size;) {
      const uint64_t end = at < size ? size : file.size;
      const auto part = std::span(whole).first(std::min<uint64_t>(kPiece, end - at));
      HL_ASSIGN_OR_RETURN(const uint64_t got, store.Read(file, at, part));
      if (got != part.size()) return Corruption("the replica's \"" + file.name + "\" is too short");
      const std::span<const char> bytes(reinterpret_cast<const char*>(part.data()), got);
      checksum.Add(bytes);
      if (at >= size) {
        HL_RETURN_IF_ERROR(WriteAll(fd.get(), bytes, path));
      } else if (::pread(fd.get(), here.data(), got, static_cast<off_t>(at)) !=
                     static_cast<ssize_t>(got) ||
                 std::memcmp(here.data(), part.data(), got) != 0) {
        return false;
      }
      at += got;
    }
    if (checksum.value() == file.checksum) return true;
    return Corruption("the replica's copy of \"" + file.name + "\" fails its checksum");
  };
  const Result<bool> appended = append();
  if (!appended.ok() && ::ftruncate(fd.get(), st.st_size) != 0)
    return FromErrno(errno, "truncate " + path);
  return appended;
}

Result<uint64_t> FollowedDirectory::Present(const State& state, const FileInfo& file) const {
  const std::string path = PathOf(file.name);
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0 || !IsOwnFile(st)) return uint64_t{0};
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
  const bool grown = known && shown->second.lane == Lane::kLog && shown->second.id == file.id &&
                     shown->second.size <= file.size;
  struct stat st;
  const bool same = grown && ::lstat(PathOf(file.name).c_str(), &st) == 0 && IsOwnFile(st) &&
                    static_cast<uint64_t>(st.st_size) == shown->second.size;
  uint64_t has = same ? shown->second.size : 0;
  // What somebody else changed meanwhile is compared, too.
  if (!same && (grown || !known)) {
    HL_ASSIGN_OR_RETURN(has, Present(state, file));
  }
  if (has == 0 && !same) {
    HL_RETURN_IF_ERROR(MakeParent(file.name));
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
    NoteRetired(each.first, now);
    return true;
  });
  uint64_t bytes = 0;
  for (auto each = retired_.begin(); each != retired_.end();) {
    if (now - each->second.since < retention_.time) {
      bytes += each->second.size;
      ++each;
      continue;
    }
    HL_RETURN_IF_ERROR(RemoveName(each->first));
    each = retired_.erase(each);
  }
  while (bytes > retention_.bytes) {
    const auto first =
        std::ranges::min_element(retired_, {}, [](const auto& each) { return each.second.since; });
    HL_RETURN_IF_ERROR(RemoveName(first->first));
    bytes -= first->second.size;
    retired_.erase(first);
    ++gone_early_;
  }
  retained_bytes_ = bytes;
  return {};
}

void FollowedDirectory::NoteRetired(const std::string& name, Time now) {
  struct stat st;
  const bool there = ::lstat(PathOf(name).c_str(), &st) == 0 && S_ISREG(st.st_mode);
  retired_.emplace(name, Retired{now, there ? static_cast<uint64_t>(st.st_size) : 0});
}

// A directory of that name is somebody else's.
Status FollowedDirectory::RemoveName(const std::string& name) const {
  if (::unlink(PathOf(name).c_str()) == 0 || errno == ENOENT || errno == EISDIR) return {};
  return FromErrno(errno, "remove " + PathOf(name));
}

}  // namespace hyperloop
