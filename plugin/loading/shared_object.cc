// What happens when librocksdb_hyperloop.so is loaded: it registers itself, and removes itself from
// LD_PRELOAD, so that the programs that this process starts, such as shells and compression
// helpers, run without it. Where directories are bound it stays there, because a program that is
// started may be the service itself, and what opens a bound directory must have the library.
#include <dlfcn.h>
#include <rocksdb/env.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "default_file_system.h"
#include "hyperloop/plugin/register.h"
#include "linked_rocksdb_check.h"
#include "local/local_file_system.h"
#include "local/paths.h"

namespace {

// A bare name is searched for in the system's folders, and found by any of its forms:
// librocksdb_hyperloop.so is a link to a file whose name goes on with the version.
bool IsBareNameOf(std::string_view self, std::string_view entry) {
  const std::string base = hyperloop::plugin::BaseOf(self);
  return entry.find(".so") != std::string_view::npos && base.starts_with(entry) &&
         (base.size() == entry.size() || base[entry.size()] == '.');
}

using hyperloop::plugin::DefaultFileSystem;

bool DirectoriesAreBound() {
  return std::string_view(DefaultFileSystem()->Name()) == hyperloop::plugin::kBindingFileSystemName;
}

[[noreturn]] void EndProgram(const std::string& why) {
  std::fprintf(stderr, "hyperloop: directories are bound to groups, but %s\n", why.c_str());
  _exit(1);
}

// A program in which this library does not see all of RocksDB's files would open bound directories
// without their groups, so it is ended.
void CheckThatBindingsTakeEffect() {
  if (const std::string linked = hyperloop::plugin::FindLinkedRocksDb(); !linked.empty()) {
    EndProgram(
        linked +
        " has a RocksDB of its own, linked in statically, which librocksdb_hyperloop.so does "
        "not reach: link the plugin into it, or start it without the library (env -u "
        "LD_PRELOAD) if it opens none of these directories");
  }
  // The library was loaded behind RocksDB, or RocksDB was built to call its own functions only.
  if (rocksdb::Env::Default()->GetFileSystem() == DefaultFileSystem()) return;
  EndProgram(
      "this program's RocksDB does not see it: preload librocksdb_hyperloop.so, or link it before "
      "librocksdb");
}

// Returns the entries of LD_PRELOAD, which ':' or ' ' separates, without those that are the file
// `self`.
std::string WithoutSelf(std::string_view preload, const std::string& self) {
  std::string kept;
  for (size_t start = 0; start <= preload.size();) {
    size_t end = std::min(preload.find_first_of(": ", start), preload.size());
    std::string entry(preload.substr(start, end - start));
    start = end + 1;
    if (entry.empty()) continue;
    const bool same = entry.find('/') == std::string::npos
                          ? IsBareNameOf(self, entry)
                          : hyperloop::plugin::RealPath(entry) == self;
    if (!same) kept += (kept.empty() ? "" : ":") + entry;
  }
  return kept;
}

void LeavePreload() {
  const char* preload = getenv("LD_PRELOAD");
  Dl_info info{};
  if (preload == nullptr || dladdr(reinterpret_cast<void*>(&register_hyperloop), &info) == 0)
    return;
  std::string kept = WithoutSelf(preload, hyperloop::plugin::RealPath(info.dli_fname));
  if (kept == preload) return;
  if (kept.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", kept.c_str(), 1);
  }
}

[[maybe_unused]] const int kLoaded = [] {
  if (DirectoriesAreBound()) {
    CheckThatBindingsTakeEffect();
  } else {
    LeavePreload();
  }
  return register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
}();

}  // namespace
