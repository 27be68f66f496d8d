// When librocksdb_hyperloop.so is loaded, it registers itself and removes itself from LD_PRELOAD.
// So the programs that this process starts, such as shells and compression helpers, run without it.
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "hyperloop/plugin/register.h"
#include "paths.h"

namespace {

// A bare name is searched for in the system's folders, and found by any of its forms:
// librocksdb_hyperloop.so is a link to a file whose name goes on with the version.
bool IsBareNameOf(std::string_view self, std::string_view entry) {
  const std::string base = hyperloop::plugin::BaseOf(self);
  return entry.find(".so") != std::string_view::npos && base.starts_with(entry) &&
         (base.size() == entry.size() || base[entry.size()] == '.');
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
  LeavePreload();
  return register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
}();

}  // namespace
