#include "files/file_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <tuple>
#include <vector>

#include "hyperloop/core/trusted_files.h"
#include "hyperloop/replication/replica_files.h"
#include "region/directory.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr std::string_view kPart = ".part", kDamaged = ".damaged";
constexpr size_t kChecksumDigits = 16;
constexpr size_t kPiece = 256u << 10;
// A file is synced each time that so many of its bytes have arrived, so that the last fsync has
// little left to do.
constexpr uint64_t kSyncEvery = 32u << 20;

std::string Hex(uint64_t value, size_t digits) {
  std::string text(digits, '0');
  for (size_t i = digits; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 0xf];
  return text;
}

// What stands for its '/' in a directory entry.
constexpr char kSlash = '\\';

Status LinkError(int error, const std::string& from, const std::string& to) {
  const Status status = FromErrno(error, "link " + from + " as " + to);
  const bool refused = error == EXDEV || error == EPERM || error == EMLINK || error == EOPNOTSUPP;
  return refused ? NotSupported(std::string(status.message())) : status;
}

std::string FinishedName(const WholeFile& file) {
  std::string name = file.name;
  std::replace(name.begin(), name.end(), '/', kSlash);
  return name + "@" + Hex(file.checksum, kChecksumDigits);
}

std::string PartName(const WholeFile& file) {
  return FinishedName(file) + "-" + std::to_string(file.size) + std::string(kPart);
}

template <class Number>
bool Parse(std::string_view text, int base, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

Status CheckFile(const WholeFile& file) {
  HL_RETURN_IF_ERROR(CheckWholeFileName(file.name));
  if (file.checksum != 0) return {};
  return InvalidArgument("file \"" + file.name + "\" has no checksum");
}

// The file that a directory entry names, without how much of it has arrived. nullopt: FileStore
// gives no such names.
std::optional<FileStore::Stored> ParseEntry(const std::string_view entry) {
  FileStore::Stored stored;
  stored.finished = !entry.ends_with(kPart);
  std::string_view rest = entry;
  if (!stored.finished) {
    rest.remove_suffix(kPart.size());
    const size_t dash = rest.rfind('-');
    if (dash == std::string_view::npos || !Parse(rest.substr(dash + 1), 10, &stored.file.size))
      return std::nullopt;
    rest = rest.substr(0, dash);
  }
  const size_t at = rest.rfind('@');
  if (at == std::string_view::npos || !Parse(rest.substr(at + 1), 16, &stored.file.checksum))
    return std::nullopt;
  stored.file.name = rest.substr(0, at);
  std::replace(stored.file.name.begin(), stored.file.name.end(), kSlash, '/');
  if (!CheckFile(stored.file).ok()) return std::nullopt;
  // Numbers can be spelled in several ways, of which one is ours.
  if (entry != (stored.finished ? FinishedName(stored.file) : PartName(stored.file)))
    return std::nullopt;
  return stored;
}

// A finished file that was set aside.
bool IsAsideName(std::string_view entry) {
  const size_t end = entry.rfind(kDamaged);
  if (end == std::string_view::npos) return false;
  const std::optional<FileStore::Stored> stored = ParseEntry(entry.substr(0, end));
  return stored.has_value() && stored->finished;
}

Result<UniqueFd> OpenDirectory(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const std::string path, CheckDirectory(directory, DirectoryRule::kOwn));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return FromErrno(errno, "open directory " + path);
  return fd;
}

}  // namespace

Status CheckWholeFileName(std::string_view name) {
  HL_RETURN_IF_ERROR(CheckFileName(name));
  const std::string_view base =
      name.starts_with(kArchiveDirectory) ? name.substr(kArchiveDirectory.size()) : name;
  if (base.front() != '.' && base.find('/') == std::string_view::npos) return {};
  return InvalidArgument("file name \"" + std::string(name) +
                         "\" begins with a dot or names a directory");
}

std::optional<WholeFile> BeforeArchived(const WholeFile& file) {
  if (!file.name.starts_with(kArchiveDirectory)) return std::nullopt;
  return WholeFile{file.name.substr(kArchiveDirectory.size()), file.size, file.checksum};
}

const WholeFile* FindHeld(const std::set<WholeFile>& held, const WholeFile& file) {
  if (const auto same = held.find(file); same != held.end()) return &*same;
  const std::optional<WholeFile> former = BeforeArchived(file);
  const auto found = former.has_value() ? held.find(*former) : held.end();
  return found == held.end() ? nullptr : &*found;
}

bool IsStoredName(std::string_view entry) {
  return ParseEntry(entry).has_value() || IsAsideName(entry);
}

std::string GroupDirectory(const std::string& root, const Uuid& group) {
  return root + "/" + FormatUuid(group);
}

Result<std::string> FindLinkableFile(const std::string& replica_files, const std::string& group,
                                     const WholeFile& file, const std::string& into) {
  HL_RETURN_IF_ERROR(CheckFile(file));
  HL_ASSIGN_OR_RETURN(const UniqueFd directory, OpenDirectory(replica_files + "/" + group));
  const std::string entry = FinishedName(file);
  constexpr unsigned kMask = STATX_BASIC_STATS | STATX_MNT_ID;
  struct statx st, target;
  if (::statx(directory.get(), entry.c_str(), AT_SYMLINK_NOFOLLOW, kMask, &st) != 0)
    return FromErrno(errno, "look at " + entry);
  if (!S_ISREG(st.stx_mode) || st.stx_size != file.size)
    return NotFound(entry + " is not a file of " + std::to_string(file.size) + " B");
  if (::statx(AT_FDCWD, into.c_str(), 0, kMask, &target) != 0)
    return FromErrno(errno, "look at " + into);
  const auto place = [](const struct statx& each) {
    return std::tuple(each.stx_dev_major, each.stx_dev_minor, each.stx_mnt_id);
  };
  if (place(st) != place(target))
    return NotSupported(replica_files + " and " + into + " are not on one file system");
  if (st.stx_uid != target.stx_uid) {
    return NotSupported(entry + " belongs to user " + std::to_string(st.stx_uid) + ", " + into +
                        " to user " + std::to_string(target.stx_uid));
  }
  return replica_files + "/" + group + "/" + entry;
}

Status MakeDurableDirectory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return FromErrno(errno, "create directory " + directory);
  return SyncDirectory(DirectoryOf(directory));
}

Result<std::unique_ptr<FileStore>> FileStore::Open(const std::string& directory) {
  HL_RETURN_IF_ERROR(MakeDurableDirectory(directory));
  return OpenToRead(directory);
}

Result<std::unique_ptr<FileStore>> FileStore::OpenToRead(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(directory));
  return std::unique_ptr<FileStore>(new FileStore(directory, std::move(fd)));
}

Result<std::vector<std::string>> FileStore::Entries() const {
  // Reading a directory moves its descriptor's position, so this uses another descriptor.
  const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (dir == nullptr) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return FromErrno(error, "read directory " + directory_);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;  // the end of the directory leaves it so
    const dirent* const entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return FromErrno(errno, "read directory " + directory_);
  return names;
}

Result<std::vector<FileStore::Stored>> FileStore::List() {
  HL_RETURN_IF_ERROR(SyncNames());
  HL_ASSIGN_OR_RETURN(const std::vector<std::string> entries, Entries());
  std::vector<Stored> files;
  for (const std::string& entry : entries) {
    std::optional<Stored> stored = ParseEntry(entry);
    if (!stored.has_value()) continue;
    struct stat st;
    if (::fstatat(fd_.get(), entry.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return FromErrno(errno, "look at " + PathOf(entry));
    }
    if (!S_ISREG(st.st_mode)) continue;
    stored->received = static_cast<uint64_t>(st.st_size);
    if (stored->finished) stored->file.size = stored->received;
    files.push_back(std::move(*stored));
  }
  return files;
}

Result<std::vector<std::string>> FileStore::Aside() const {
  HL_ASSIGN_OR_RETURN(const std::vector<std::string> entries, Entries());
  std::vector<std::string> aside;
  for (const std::string& entry : entries)
    if (IsAsideName(entry)) aside.push_back(entry);
  std::sort(aside.begin(), aside.end());
  return aside;
}

Result<bool> FileStore::IsFinished(const WholeFile& file) const {
  const std::string entry = FinishedName(file);
  struct stat st;
  if (::fstatat(fd_.get(), entry.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return FromErrno(errno, "look at " + PathOf(entry));
  }
  return S_ISREG(st.st_mode) && static_cast<uint64_t>(st.st_size) == file.size;
}

// A log that left the region is renamed when RocksDB archives it. Its bytes are not sent again.
Result<bool> FileStore::LinkSame(const WholeFile& file) {
  const std::optional<WholeFile> former = BeforeArchived(file);
  if (!former.has_value()) return false;
  HL_ASSIGN_OR_RETURN(const bool held, IsFinished(*former));
  if (!held) return false;
  HL_RETURN_IF_ERROR(SyncNames());
  const std::string from = FinishedName(*former), to = FinishedName(file);
  names_durable_ = false;
  // An entry of that name is not the file, and is replaced when the bytes have arrived.
  if (::linkat(fd_.get(), from.c_str(), fd_.get(), to.c_str(), 0) != 0) return false;
  HL_RETURN_IF_ERROR(SyncNames());
  return true;
}

// Opens the arriving file, and reads what has arrived to compute the checksum of it.
Status FileStore::Begin(const WholeFile& file) {
  Arriving arriving{file, PartName(file), UniqueFd()};
  const std::string& entry = arriving.name;
  arriving.fd.Reset(
      ::openat(fd_.get(), entry.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (arriving.fd.get() < 0) return FromErrno(errno, "create " + PathOf(entry));
  std::vector<char> buffer(kPiece);
  while (true) {
    const ssize_t n = ::pread(arriving.fd.get(), buffer.data(), buffer.size(),
                              static_cast<off_t>(arriving.received));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "read " + PathOf(entry));
    if (n == 0) break;
    arriving.checksum.Add(std::span(buffer).first(static_cast<size_t>(n)));
    arriving.received += static_cast<uint64_t>(n);
  }
  if (arriving.received > file.size)
    return Corruption(PathOf(entry) + " is longer than the file that it is a part of");
  arriving_.emplace(std::move(arriving));
  return {};
}

Status FileStore::WriteAll(std::span<const std::byte> bytes) {
  const std::string path = PathOf(arriving_->name);
  uint64_t at = arriving_->received;
  for (std::span<const std::byte> left = bytes; !left.empty();) {
    const ssize_t n =
        ::pwrite(arriving_->fd.get(), left.data(), left.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      // The file is cut to the bytes that its checksum covers.
      if (::ftruncate(arriving_->fd.get(), static_cast<off_t>(arriving_->received)) != 0)
        arriving_.reset();
      return FromErrno(error, "write " + path);
    }
    at += static_cast<uint64_t>(n);
    left = left.subspan(static_cast<size_t>(n));
  }
  arriving_->received = at;
  arriving_->checksum.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (at - arriving_->durable < kSyncEvery) return {};
  if (::fdatasync(arriving_->fd.get()) != 0) {
    const int error = errno;
    GiveUpArriving();
    return FromErrno(error, "sync " + path);
  }
  arriving_->durable = at;
  return {};
}

void FileStore::GiveUpArriving() noexcept {
  ::unlinkat(fd_.get(), arriving_->name.c_str(), 0);
  arriving_.reset();
}

Status FileStore::SyncNames() {
  if (names_durable_) return {};
  if (::fsync(fd_.get()) != 0) return FromErrno(errno, "sync directory " + directory_);
  names_durable_ = true;
  return {};
}

Status FileStore::Finish() {
  const WholeFile& file = arriving_->file;
  if (arriving_->checksum.value() != file.checksum) {
    const Status wrong =
        Corruption("file \"" + file.name +
                   "\": the bytes that arrived are not those that the group lists; they were "
                   "dropped");
    GiveUpArriving();
    return wrong;
  }
  const std::string part = arriving_->name, finished = FinishedName(file);
  if (::fsync(arriving_->fd.get()) != 0) {
    const int error = errno;
    GiveUpArriving();
    return FromErrno(error, "sync " + PathOf(part));
  }
  arriving_.reset();
  names_durable_ = false;
  if (::renameat(fd_.get(), part.c_str(), fd_.get(), finished.c_str()) != 0)
    return FromErrno(errno, "rename " + PathOf(part));
  return SyncNames();
}

Result<uint64_t> FileStore::Write(const WholeFile& file, uint64_t offset,
                                  std::span<const std::byte> bytes) {
  HL_RETURN_IF_ERROR(CheckFile(file));
  if (!arriving_.has_value() || arriving_->file != file) {
    arriving_.reset();
    HL_ASSIGN_OR_RETURN(const bool finished, IsFinished(file));
    if (finished) {
      HL_RETURN_IF_ERROR(SyncNames());
      return file.size;
    }
    HL_ASSIGN_OR_RETURN(const bool linked, LinkSame(file));
    if (linked) return file.size;
    HL_RETURN_IF_ERROR(Begin(file));
  }
  if (offset == arriving_->received) {
    if (bytes.size() > file.size - offset) {
      return InvalidArgument("file \"" + file.name + "\" of " + std::to_string(file.size) +
                             " B is to get " + std::to_string(bytes.size()) + " B at " +
                             std::to_string(offset));
    }
    HL_RETURN_IF_ERROR(WriteAll(bytes));
  }
  // All may have arrived earlier, if memory or the process ended before this last step.
  if (arriving_->received < file.size) return arriving_->received;
  HL_RETURN_IF_ERROR(Finish());
  return file.size;
}

Status FileStore::Remove(const WholeFile& file) {
  HL_RETURN_IF_ERROR(CheckFile(file));
  if (arriving_.has_value() && arriving_->file == file) arriving_.reset();
  HL_ASSIGN_OR_RETURN(const bool finished, IsFinished(file));
  const std::string entry = finished ? FinishedName(file) : PartName(file);
  if (::unlinkat(fd_.get(), entry.c_str(), 0) == 0 || errno == ENOENT) return {};
  return FromErrno(errno, "remove " + PathOf(entry));
}

Result<uint64_t> FileStore::Read(const WholeFile& file, uint64_t offset,
                                 std::span<std::byte> out) const {
  HL_RETURN_IF_ERROR(CheckFile(file));
  const std::string entry = FinishedName(file);
  const UniqueFd fd(::openat(fd_.get(), entry.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return FromErrno(errno, "open " + PathOf(entry));
  uint64_t got = 0;
  while (got < out.size()) {
    const ssize_t n =
        ::pread(fd.get(), out.data() + got, out.size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EIO) return Corruption("the disk cannot read " + PathOf(entry));
    if (n < 0) return FromErrno(errno, "read " + PathOf(entry));
    if (n == 0) break;
    got += static_cast<uint64_t>(n);
  }
  return got;
}

Status FileStore::Link(const WholeFile& file, const std::string& path) const {
  HL_RETURN_IF_ERROR(CheckFile(file));
  HL_ASSIGN_OR_RETURN(const bool finished, IsFinished(file));
  const std::string entry = FinishedName(file);
  if (!finished) return NotFound(PathOf(entry) + " is not there");
  if (::linkat(fd_.get(), entry.c_str(), AT_FDCWD, path.c_str(), 0) == 0) return {};
  return LinkError(errno, PathOf(entry), path);
}

Status FileStore::LinkFrom(const std::string& path, const WholeFile& file) {
  HL_RETURN_IF_ERROR(CheckFile(file));
  const std::string entry = FinishedName(file);
  if (::linkat(AT_FDCWD, path.c_str(), fd_.get(), entry.c_str(), 0) != 0 && errno != EEXIST)
    return LinkError(errno, path, PathOf(entry));
  names_durable_ = false;
  return SyncNames();
}

bool FileStore::IsLink(const WholeFile& file, const struct stat& st) const {
  struct stat own;
  return ::fstatat(fd_.get(), FinishedName(file).c_str(), &own, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(own.st_mode) && own.st_dev == st.st_dev && own.st_ino == st.st_ino;
}

void FileStore::Uncache(const WholeFile& file) const {
  const UniqueFd fd(
      ::openat(fd_.get(), FinishedName(file).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

Result<std::string> FileStore::SetAside(const WholeFile& file) {
  HL_RETURN_IF_ERROR(CheckFile(file));
  const std::string entry = FinishedName(file), base = entry + std::string(kDamaged);
  std::string aside = base;
  for (int number = 2;
       ::renameat2(fd_.get(), entry.c_str(), fd_.get(), aside.c_str(), RENAME_NOREPLACE) != 0;
       ++number) {
    if (errno != EEXIST) return FromErrno(errno, "set aside " + PathOf(entry));
    aside = base + "." + std::to_string(number);
  }
  // Whoever has a link to it, and has read it before it was damaged, reads it again.
  ::utimensat(fd_.get(), aside.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  names_durable_ = false;
  HL_RETURN_IF_ERROR(SyncNames());
  return PathOf(aside);
}

}  // namespace hyperloop
