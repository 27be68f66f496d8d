#include "ctl/preload.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ctl/elf.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::ctl {
namespace {

constexpr char kRocksDb[] = "librocksdb.so";

constexpr char kInstead[] =
    ". Preloading works for programs with a shared RocksDB only; link the plugin into this one, or "
    "build it into its RocksDB";

bool IsRocksDb(const std::string& name) { return name.starts_with(kRocksDb); }

std::string RocksDbOf(const std::vector<std::string>& libraries) {
  const auto found = std::find_if(libraries.begin(), libraries.end(), IsRocksDb);
  return found == libraries.end() ? "" : *found;
}

struct Loaded {
  std::vector<std::string> names;  // sonames
  std::string holds_rocksdb;       // the path of one that has RocksDB linked in; empty: none has
};

// Every library that the loader would load for the program, from its trace, which ldd prints too.
Loaded LoadedLibraries(const std::string& program) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    ::execl(program.c_str(), program.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t n; pid > 0 && (n = ::read(ends[0], piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<size_t>(n));
  }
  ::close(ends[0]);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  Loaded loaded;
  std::istringstream lines(text);
  for (std::string line, name, arrow, path; std::getline(lines, line);) {
    std::istringstream words(line);
    if (!(words >> name)) continue;
    loaded.names.push_back(name);
    if (IsRocksDb(name)) continue;
    if (!(words >> arrow >> path) || arrow != "=>") path = name;
    const Result<ElfInfo> library = ReadElf(path);
    if (library.ok() && library->holds_rocksdb) loaded.holds_rocksdb = path;
  }
  return loaded;
}

bool IsScript(const std::string& program) {
  std::array<char, 2> first{};
  std::ifstream(program, std::ios::binary).read(first.data(), first.size());
  return first[0] == '#' && first[1] == '!';
}

// With rights of others, the loader takes nothing from the environment, and removes LD_PRELOAD from
// it.
Status CheckRights(const std::string& program) {
  struct stat status {};
  if (::stat(program.c_str(), &status) != 0) return FromErrno(errno, program);
  std::string why;
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) why = "is set-user-id or set-group-id";
  if (::getxattr(program.c_str(), "security.capability", nullptr, 0) > 0)
    why = "has capabilities of its own";
  if (why.empty()) return Status::Ok();
  return NotSupported(program + " " + why +
                      "; the loader ignores preloading there. If it only starts the RocksDB "
                      "program, let it start hyperloopctl exec; else link the plugin into it");
}

// The path of the file `name` in the first of `folders` that has it, with the permission `mode`.
Result<std::string> FirstOf(const std::vector<std::string>& folders, const std::string& name,
                            int mode) {
  std::string searched;
  for (const std::string& folder : folders) {
    std::string path = folder + "/" + name;
    if (::access(path.c_str(), mode) == 0) return path;
    searched += (searched.empty() ? "" : ", ") + folder;
  }
  return NotFound(name + " is in none of " + searched +
                  ": build all programs, or install them all");
}

}  // namespace

Result<std::string> FindPlugin() {
  HL_ASSIGN_OR_RETURN(const std::string folder, ProgramFolder());
  HL_ASSIGN_OR_RETURN(const std::string found,
                      FirstOf({folder, folder + "/../lib", folder + "/" + HYPERLOOP_LIBRARIES},
                              HYPERLOOP_PLUGIN_FILE, R_OK));
  char* resolved = ::realpath(found.c_str(), nullptr);
  std::string path = resolved == nullptr ? found : resolved;
  std::free(resolved);
  return path;
}

Result<std::string> FindOwnProgram(const std::string& name) {
  HL_ASSIGN_OR_RETURN(const std::string folder, ProgramFolder());
  return FirstOf({folder, folder + "/" + HYPERLOOP_OWN_PROGRAMS}, name, X_OK);
}

Result<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0) return FromErrno(errno, "program " + name);
    if (::access(name.c_str(), X_OK) != 0) {
      return PermissionDenied(name + " is not executable; chmod +x it if it is a program");
    }
    return name;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return NotFound("no program " + name +
                  " in PATH (db_bench and ldb are in Debian's rocksdb-tools)");
}

Status CheckPreload(const std::string& program, const std::string& plugin, Preloaded what) {
  const bool may_start = what == Preloaded::kOrItsStarter;
  HL_RETURN_IF_ERROR(CheckRights(program));
  if (may_start && IsScript(program)) return Status::Ok();
  Result<ElfInfo> elf = ReadElf(program);
  if (!elf.ok()) {
    if (elf.status().code() != Code::kInvalidArgument) return elf.status();
    return InvalidArgument(elf.status().message() +
                           "; give the RocksDB program itself that it starts");
  }
  HL_ASSIGN_OR_RETURN(const ElfInfo library, ReadElf(plugin));
  if (elf->machine != library.machine) {
    return NotSupported(program + " is for another processor (ELF machine " +
                        std::to_string(elf->machine) + ", the plugin's is " +
                        std::to_string(library.machine) + ")");
  }
  if (elf->holds_rocksdb) {
    return NotSupported(program + " has a RocksDB of its own, linked in statically" + kInstead);
  }
  if (!elf->has_interpreter)
    return may_start ? Status::Ok() : NotSupported(program + " is statically linked" + kInstead);
  const std::string wanted = RocksDbOf(library.needed);
  std::string has = RocksDbOf(elf->needed);
  if (has.empty()) {
    const Loaded loaded = LoadedLibraries(program);
    if (!loaded.holds_rocksdb.empty()) {
      return NotSupported(program + " loads " + loaded.holds_rocksdb +
                          ", which has a RocksDB of its own, linked in statically" + kInstead);
    }
    has = RocksDbOf(loaded.names);
  }
  if (has.empty()) {
    if (may_start) return Status::Ok();
    return NotSupported(program + " does not load a shared RocksDB: it is no RocksDB program" +
                        kInstead);
  }
  if (!wanted.empty() && has != wanted) {
    return NotSupported(program + " loads " + has + ", the plugin was built for " + wanted +
                        "; build the plugin against the program's RocksDB");
  }
  return Status::Ok();
}

std::vector<std::string> CommandLine(const std::vector<std::string>& command,
                                     const std::string& uri, bool add_flag) {
  std::vector<std::string> line = command;
  const bool given = std::any_of(command.begin() + 1, command.end(), [](const std::string& word) {
    return word.starts_with("--fs_uri") || word.starts_with("-fs_uri") ||
           word.starts_with("--env_uri") || word.starts_with("-env_uri");
  });
  if (add_flag && !given) line.insert(line.begin() + 1, "--fs_uri=" + uri);
  return line;
}

}  // namespace hyperloop::ctl
