#include "pairing_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include "crc_line.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr size_t kMaxPairingFile = 8192;
constexpr char kUnfinished[] = "unfinished\n";
constexpr char kForPeople[] =
    "# This directory holds a RocksDB database that HyperLoop replicates to other machines.\n"
    "# Open it only with the HyperLoop plugin, as its service does. What a tool without the "
    "plugin\n"
    "# writes here (ldb put, ldb compact) is not replicated, and the plugin refuses it at its next "
    "open.\n"
    "# hyperloopctl doctor --db DIRECTORY says what state the directory is in, and what to do.\n"
    "# Do not change or copy this file. If it is moved away, the directory is a plain database "
    "that\n"
    "# is no longer in its group.\n";

// A release that knows no version 4 opens the directories of all groups but those that have
// branched.
std::string TextOf(const Pairing& pairing, const std::string& branch, const PairingPlace& place,
                   bool finished) {
  const std::string version = branch.empty() ? "3" : "4";
  return WithCrcLine("hyperloop pairing " + version + "\n" + kForPeople + "group " + pairing.group +
                     "\n" + (branch.empty() ? std::string() : "branch " + branch + "\n") +
                     "database " + pairing.database + "\ndirectory " + place.path + "\ndevice " +
                     std::to_string(place.device) + "\ninode " + std::to_string(place.inode) +
                     "\n" + (finished ? "" : kUnfinished));
}

// Takes the line "key value\n" off the front of `rest`, and sets `value`. False: `rest` does not
// start with such a line.
bool TakeLine(std::string_view key, std::string_view* rest, std::string* value) {
  size_t end = rest->find('\n');
  if (end == std::string_view::npos || rest->substr(0, key.size()) != key || end < key.size())
    return false;
  *value = std::string(rest->substr(key.size(), end - key.size()));
  rest->remove_prefix(end + 1);
  return true;
}

bool TakeNumber(std::string_view key, std::string_view* rest, uint64_t* value) {
  std::string text;
  if (!TakeLine(key, rest, &text)) return false;
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, *value) == std::from_chars_result{end, std::errc()};
}

// Version 1 has no place, from version 3 on there are lines for people, and version 4 has a branch.
bool Parse(std::string_view text, PairingFile* file) {
  std::string_view rest = AboveCrcLine(text);
  std::string version, comment;
  if (!TakeLine("hyperloop pairing ", &rest, &version)) return false;
  if (version.size() != 1 || version < "1" || version > "4") return false;
  while (version >= "3" && TakeLine("#", &rest, &comment)) continue;
  if (!TakeLine("group ", &rest, &file->pairing.group) ||
      (version == "4" && !TakeLine("branch ", &rest, &file->branch)) ||
      !TakeLine("database ", &rest, &file->pairing.database))
    return false;
  if (version == "1") return rest.empty();
  if (!TakeLine("directory ", &rest, &file->recorded.path) ||
      !TakeNumber("device ", &rest, &file->recorded.device) ||
      !TakeNumber("inode ", &rest, &file->recorded.inode))
    return false;
  file->finished = rest != kUnfinished;
  return rest.empty() || !file->finished;
}

// The place of the file `path` of `directory`. RocksDB's FileSystem does not report inodes, so the
// kernel is asked. A file that only another FileSystem has gets inode 0.
PairingPlace PlaceOf(FileSystem& fs, const std::string& directory, const std::string& path) {
  PairingPlace place;
  if (!fs.GetAbsolutePath(directory, IOOptions(), &place.path, nullptr).ok()) {
    place.path = directory;
  }
  std::replace(place.path.begin(), place.path.end(), '\n', '?');
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return place;
  place.device = found.st_dev;
  place.inode = found.st_ino;
  return place;
}

}  // namespace

bool PairingFile::IsCopy() const {
  if (recorded.inode == 0 || found.inode == 0) return false;
  const bool same_file = recorded.inode == found.inode;
  return !same_file || (recorded.path != found.path && recorded.device != found.device);
}

Status ReadPairing(FileSystem& fs, const std::string& directory, PairingFile* file) {
  const std::string path = directory + "/" + std::string(kPairingFileName);
  IOStatus exists = fs.FileExists(path, IOOptions(), nullptr);
  if (exists.IsNotFound()) {
    *file = PairingFile();
    return Status::Ok();
  }
  std::unique_ptr<rocksdb::FSSequentialFile> reader;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewSequentialFile(path, FileOptions(), &reader, nullptr),
                                  "cannot open " + path));
  auto buffer = std::make_unique<char[]>(kMaxPairingFile);
  rocksdb::Slice bytes;
  HL_RETURN_IF_ERROR(
      FromIOStatus(reader->Read(kMaxPairingFile, IOOptions(), &bytes, buffer.get(), nullptr),
                   "cannot read " + path));
  PairingFile read;
  if (!Parse({bytes.data(), bytes.size()}, &read)) {
    return Corruption(path + " (" + std::to_string(bytes.size()) +
                      " B), which says to which group this directory belongs, is damaged, or of a "
                      "later version; put the file back, or move the directory away and open an "
                      "empty one with restore=true&rebind=true");
  }
  read.found = PlaceOf(fs, directory, path);
  *file = std::move(read);
  return Status::Ok();
}

Status WritePairing(FileSystem& fs, const std::string& directory, const Pairing& pairing,
                    const std::string& branch, bool finished) {
  const std::string path = directory + "/" + std::string(kPairingFileName);
  const std::string fresh = path + ".tmp";
  auto fill = [&](rocksdb::FSWritableFile& file) {
    const std::string text = TextOf(pairing, branch, PlaceOf(fs, directory, fresh), finished);
    return FromIOStatus(file.Append(text, IOOptions(), nullptr), "cannot write " + fresh);
  };
  HL_RETURN_IF_ERROR(WriteWhole(fs, fresh, true, fill));
  HL_RETURN_IF_ERROR(RenameOver(fs, fresh, path));
  return SyncDirectory(fs, directory);
}

}  // namespace hyperloop::plugin
