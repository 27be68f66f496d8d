// A benchmark's command line. gflags holds the flags (DEFINE_…), their types, defaults and texts.
//
// These functions read the words instead of gflags::ParseCommandLineFlags. That function skips
// unknown lines of a flag file, accepts the flags of every library in the process (librocksdb has
// some), and ends a program with status 1 both for a wrong command line and for --help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::bench {

// Sets the flags that `words` name, and those in the files of --flagfile=FILE,FILE. Of one flag
// given several times the last counts. A word is --name=value or --name value; --name or --noname
// for a flag that is true or false. One dash will do, and names have dashes or underscores. A line
// of a flag file is --name=value, --name, --noname, a comment that begins with #, or empty.
//
// The flags defined in `file` (a __FILE__) are known, and --flagfile, --help, --version. Strings
// must not be empty. kInvalidArgument: the message names the wrong word, and its file and line;
// flags before it are set.
Status SetFlags(const std::vector<std::string>& words, const std::string& file);

// The beginning of main, after gflags::SetUsageMessage and gflags::SetVersionString. Returns the
// status to exit with: 0 after --help or --version, 2 if the command line is wrong, with the reason
// on standard error. None: the flags are set, and main goes on.
std::optional<int> TakeCommandLine(int argc, char** argv, const std::string& file);

// Whether the flag was on the command line or in a flag file, with whatever value.
bool IsGiven(const char* flag);

// All checks that follow return kInvalidArgument with the flag's name.

// Both are given.
Status CheckApart(const char* flag, const std::vector<const char*>& others);
// `flag` is given and `needed` is not.
Status CheckNeeded(const char* flag, const char* needed);

// The value is outside [least, most], or not a number. T: int32_t, uint32_t, int64_t, uint64_t,
// double.
template <class T>
Status CheckRange(const char* flag, T value, T least, T most);
// The word is not one of `known`.
Status CheckWord(const char* flag, const std::string& word, const std::vector<std::string>& known);
Status CheckWords(const char* flag, const std::vector<std::string>& words,
                  const std::vector<std::string>& known);

// The words of "one,two".
std::vector<std::string> SplitList(const std::string& list);
// The numbers of "1,2". Error: a part is not a number, or outside [least, most]. T: uint32_t,
// double.
template <class T>
Result<std::vector<T>> NumberList(const char* flag, const std::string& list, T least, T most);

}  // namespace hyperloop::bench
