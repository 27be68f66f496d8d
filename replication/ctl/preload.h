// Runs a stock RocksDB program with the plugin preloaded.
#pragma once

#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::ctl {

// The path of librocksdb_hyperloop.so: beside this program, in ../lib of its folder, or where this
// program's installation has its libraries. The message of kNotFound says where it was searched.
Result<std::string> FindPlugin();

// The path of the program `name` of this project: beside this one, or where its installation has
// programs that users do not call. kNotFound.
Result<std::string> FindOwnProgram(const std::string& name);

// The program's path, searched in PATH as execvp does. kNotFound; kPermissionDenied: found, but not
// executable.
Result<std::string> FindProgram(const std::string& name);

enum class Preloaded {
  kRocksDbProgram,  // the program uses RocksDB
  kOrItsStarter,    // it does, or it starts the one that does, as nice, timeout and scripts do
};

// Whether `plugin` can be preloaded into `program`: a 64-bit dynamically linked ELF of this
// machine, without set-user-id or capabilities, that loads (itself or through a library) the
// RocksDB that the plugin was built for. A program that only starts others may also be a script,
// statically linked, or without RocksDB. kInvalidArgument and kNotSupported say what is wrong and
// what to do instead.
Status CheckPreload(const std::string& program, const std::string& plugin,
                    Preloaded what = Preloaded::kRocksDbProgram);

// The argument vector to execute: `--fs_uri=URI` right behind the program, unless one is there
// already or `add_flag` is off.
std::vector<std::string> CommandLine(const std::vector<std::string>& command,
                                     const std::string& uri, bool add_flag);

}  // namespace hyperloop::ctl
