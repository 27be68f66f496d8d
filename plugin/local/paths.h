// Classifies the files of a database directory. RocksDB sets no IO type, so a file is classified by
// its name and directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hyperloop::plugin {

enum class FileClass : uint8_t {
  kOutside,   // not in the bound directory, or in a subdirectory of it other than archive/
  kLogLane,   // NNNNNN.log in the directory and in archive/, MANIFEST-NNNNNN, CURRENT, NNNNNN.dbtmp
              // (which becomes CURRENT)
  kListed,    // SST, blob, OPTIONS, IDENTITY and whatever else: the group lists the file, and it is
              // shipped whole to the replicas (bulk lane)
  kUnlisted,  // LOG*, *_LOG, LOCK, the pairing file, trash, other temporary names; names
              // that the group would not take: they begin with a dot, have characters other than
              // those of printable ASCII or a backslash, or are longer than kMaxFileNameBytes
};

// The class of a name relative to the bound directory.
FileClass Classify(std::string_view name);
bool IsManifest(std::string_view name);
// Whether it ends like the name of a log, whichever directory it is in.
bool IsLog(std::string_view name);
// A log that RocksDB recovers from: one that is not archived.
bool IsLiveLog(std::string_view name);
bool IsArchivedLog(std::string_view name);
// A MANIFEST, or an NNNNNN.dbtmp that names one and becomes CURRENT.
bool LeadsToManifest(std::string_view name);

inline constexpr std::string_view kPairingFileName = "HYPERLOOP";
inline constexpr std::string_view kLockFileName = "LOCK";
// It is there while the directory is bound, and until the next opening if it was not released.
inline constexpr std::string_view kOpenMarkName = "HYPERLOOP.open";
// The suffix that a file has in the group while it is being filled, before a rename gives it its
// name. No local file has it.
inline constexpr std::string_view kImportSuffix = ".import";
// The name of CURRENT in a group that is taking in a database (adoption.h). No local file has it.
inline constexpr std::string_view kAdoptionMark = "CURRENT.adopting";
// Suffix of a local file that is being written anew, before a rename gives it its name.
inline constexpr std::string_view kNewSuffix = ".hyperloop-new";
inline constexpr std::string_view kArchivePrefix = "archive/";
// The directory below the bound one for content that an opening replaced.
inline constexpr std::string_view kSetAsideName = "hyperloop-set-aside";
// The directory below one that is to be bound, for files that a switchover or a standby brings
// beforehand.
inline constexpr std::string_view kSwitchoverName = "hyperloop-switchover";
std::string BroughtFiles(const std::string& directory);

// NNNNNN.sst or NNNNNN.blob.
bool IsTableOrBlob(std::string_view name);
// Of a file of the bulk lane: whether it is one that RocksDB does not change in place any more, a
// table, a blob file, or a log that has left the region, archived or not.
bool StaysAsListed(std::string_view name);
// The first number in a name; 0 without one.
uint64_t NumberOf(std::string_view name);

// Whether `path` is the file LOG of the database in `directory`, or the one that stands for it in a
// db_log_dir: its name is then the directory's absolute path, with "_" for most characters that are
// neither letters nor digits, and "_LOG".
bool IsInfoLogOf(const std::string& path, const std::string& directory);

// "a/b" → "a", "b" → ".", "/b" → "/". Trailing slashes do not count.
std::string ParentOf(std::string_view path);
std::string BaseOf(std::string_view path);
// The path with symbolic links, "." and ".." resolved; unchanged if it does not exist.
std::string RealPath(const std::string& path);
// RealPath of the parent, then the name. Works for files that do not exist yet.
std::string RealPathOfEntry(const std::string& path);

}  // namespace hyperloop::plugin
