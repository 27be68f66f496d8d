// Which directories of a program belong to which groups, where the program itself has no option to
// say so. `HYPERLOOP_BIND=DIR=URI[;DIR=URI…]` says it, or a file with a DIR=URI on each line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

inline constexpr char kBindVariable[] = "HYPERLOOP_BIND";
inline constexpr char kBindingsFile[] = "/etc/hyperloop/bindings";

// DIR=URI: what is in DIR, and below it, belongs to the group that URI names.
struct DirectoryBinding {
  std::string directory;  // absolute, without "." and "..", repeated or trailing slashes
  std::string origin;     // where it is said, for messages
  StoreOptions options;
  Status status;  // what is wrong with the URI: whoever opens the directory gets this error
};

struct Bindings {
  std::vector<DirectoryBinding> list;  // of two, one below the other, the lower one counts below it
  // What is wrong with the text, so that it is not known which directories are bound: whoever opens
  // any directory gets this error.
  Status status;
  bool empty() const { return list.empty() && status.ok(); }
};

// Adds what `text`, the value of HYPERLOOP_BIND, says. Empty entries count for nothing.
void AddBindings(std::string_view text, Bindings* bindings);

// Adds what the file says about directories that are not bound yet. Blank lines and those that
// begin with # count for nothing, and no file says nothing. `status` says if the file cannot be
// read, or others than this user and root could have written it. In a program that runs with rights
// of others (AT_SECURE, as programs with set-user-id do) it must be root's.
void AddBindingsFile(const std::string& path, Bindings* bindings);

// The bindings of this process: those of its environment, which count more, and of kBindingsFile. A
// program that runs with rights of others takes none from its environment.
Bindings BindingsOfProcess();

}  // namespace hyperloop
