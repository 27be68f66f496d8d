// OtherDirectories: where the bound database has files, or is told to have some, besides its own
// directory: wal_dir, db_paths, cf_paths, and the files of the stacked BlobDB. Nothing there would
// be replicated, so logs and tables there are refused, and no log can be begun.
//
// RocksDB tells a file system of these directories in two calls: OptimizeForLogWrite, before each
// log, and RegisterDbPaths, for every column family of any database. The caller has found out of
// which database RocksDB speaks (spoken_of.h).
//
// Thread safe.
#pragma once

#include <rocksdb/options.h>

#include <map>
#include <string>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

class OtherDirectories {
 public:
  // These are the options of the database in `directory`.
  void Learn(const std::string& directory, const rocksdb::DBOptions& options);
  // Paths are counted whoever registers them, because nobody says who takes them back. `directory`:
  // that of the bound database, if it registers them; empty: another one does, or it is not known
  // which.
  void Register(const std::vector<std::string>& paths, const std::string& directory);
  void Unregister(const std::vector<std::string>& paths);

  // kNotSupported: the bound database cannot begin a log; the message names the option.
  Status CheckNewLog() const;
  // kNotSupported: logs and tables in this directory, a real path, would be the bound database's.
  Status CheckFilesIn(const std::string& real_directory) const;
  // No database is bound any more. The paths stay registered, as those of another one.
  void Forget();

 private:
  struct Registered {
    int count = 0;
    std::string real;     // the real path, if there is a refusal
    std::string refusal;  // empty: it is not known to be the bound database's, or is its directory
  };

  mutable Mutex mutex_;
  std::string refusal_ HL_GUARDED_BY(mutex_);  // by options; empty: a log may be begun
  // By real path, with the refusal.
  std::map<std::string, std::string> named_by_options_ HL_GUARDED_BY(mutex_);
  std::map<std::string, Registered> registered_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
