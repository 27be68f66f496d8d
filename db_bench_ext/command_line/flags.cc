#include "command_line/flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "hyperloop/core/nearest_name.h"

DECLARE_bool(help);
DECLARE_bool(version);
DEFINE_bool(help_json, false, "");

namespace hyperloop::bench {
namespace {

using gflags::CommandLineFlagInfo;

// Flags that every program knows, and their texts.
struct SharedFlag {
  const char* name;
  const char* type;
  const char* text;
};
constexpr SharedFlag kSharedFlags[] = {
    {"flagfile", "string", "list of files with flags, one a line; # begins a comment"},
    {"help", "bool", "print this text, and exit"},
    {"help_json", "bool", "print this text as JSON, for other programs, and exit"},
    {"version", "bool", "print the version, and exit"},
};

constexpr int kNestedFiles = 8;  // flag files that name flag files

template <class T>
std::string WholeNumbers() {
  return "a whole number from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
         std::to_string(std::numeric_limits<T>::max());
}

std::string ValuesOf(const std::string& type) {
  if (type == "bool") return "true or false";
  if (type == "int32") return WholeNumbers<int32_t>();
  if (type == "uint32") return WholeNumbers<uint32_t>();
  if (type == "int64") return WholeNumbers<int64_t>();
  if (type == "uint64") return WholeNumbers<uint64_t>();
  if (type == "double") return "a number";
  return "a text that is not empty";
}

std::string Trimmed(const std::string& text) {
  const char* const spaces = " \t\r\n";
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// The flags that are defined in `file`, then those of every program.
std::vector<CommandLineFlagInfo> KnownFlags(const std::string& file) {
  std::vector<CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::erase_if(flags, [&](const CommandLineFlagInfo& flag) { return flag.filename != file; });
  for (const SharedFlag& shared : kSharedFlags) {
    CommandLineFlagInfo flag{};
    flag.name = shared.name;
    flag.type = shared.type;
    flag.description = shared.text;
    flags.push_back(flag);
  }
  return flags;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Status Read(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      HL_ASSIGN_OR_RETURN(Setting setting, Parse(words[i]));
      if (!setting.value && i + 1 < words.size() && words[i + 1].rfind("--", 0) != 0) {
        setting.value = words[++i];
      }
      HL_RETURN_IF_ERROR(Apply(setting));
    }
    return Status::Ok();
  }

 private:
  struct Setting {
    CommandLineFlagInfo flag{};
    std::optional<std::string> value;  // none: it is the next word
  };

  bool Find(const std::string& name, CommandLineFlagInfo* flag) const {
    if (!gflags::GetCommandLineFlagInfo(name.c_str(), flag)) return false;
    return flag->filename == file_ ||
           std::any_of(std::begin(kSharedFlags), std::end(kSharedFlags),
                       [&](const SharedFlag& shared) { return flag->name == shared.name; });
  }

  // "; did you mean --NAME?", or empty.
  std::string Meant(std::string name) const {
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> names;
    for (const CommandLineFlagInfo& flag : KnownFlags(file_)) names.push_back("--" + flag.name);
    return DidYouMean("--" + name, std::vector<std::string_view>(names.begin(), names.end()));
  }

  Result<Setting> Parse(const std::string& word) const {
    const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
    if (dashes == 0 || dashes == word.size()) {
      return InvalidArgument("'" + word + "' is no flag; --help lists them");
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(dashes, equals - dashes);
    Setting setting;
    if (equals != std::string::npos) setting.value = word.substr(equals + 1);
    if (dashes <= 2 && Find(name, &setting.flag)) {
      if (!setting.value && setting.flag.type == "bool") setting.value = "true";
      return setting;
    }
    if (dashes <= 2 && name.rfind("no", 0) == 0 && !setting.value &&
        Find(name.substr(2), &setting.flag) && setting.flag.type == "bool") {
      setting.value = "false";
      return setting;
    }
    const std::string meant = Meant(name);
    return InvalidArgument("no flag " + word.substr(0, equals) + (meant.empty() ? ";" : meant) +
                           " --help lists them");
  }

  Status Apply(const Setting& setting) {
    const std::string flag = "--" + setting.flag.name;
    if (!setting.value) {
      return InvalidArgument(flag + " needs a value: " + ValuesOf(setting.flag.type));
    }
    const std::string& value = *setting.value;
    const bool empty_text = setting.flag.type == "string" && value.empty();
    if (!empty_text && setting.flag.name == "flagfile") return ReadFiles(SplitList(value));
    if (empty_text ||
        gflags::SetCommandLineOption(setting.flag.name.c_str(), value.c_str()).empty())
      return InvalidArgument(flag + "='" + value + "': the value must be " +
                             ValuesOf(setting.flag.type));
    return Status::Ok();
  }

  Status ReadFiles(const std::vector<std::string>& names) {
    if (depth_ == kNestedFiles) {
      return InvalidArgument("--flagfile: more than " + std::to_string(kNestedFiles) +
                             " flag files name one another");
    }
    ++depth_;
    for (const std::string& name : names) HL_RETURN_IF_ERROR(ReadFile(name));
    --depth_;
    return Status::Ok();
  }

  Status ReadFile(const std::string& name) {
    std::ifstream file(name);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      line = Trimmed(line);
      if (line.empty() || line[0] == '#') continue;
      Result<Setting> setting = Parse(line);
      const Status status = setting.ok() ? Apply(*setting) : setting.status();
      if (!status.ok()) return status.WithContext(name + ":" + std::to_string(number));
    }
    if (!file.eof()) return InvalidArgument("--flagfile: " + name + " cannot be read");
    return Status::Ok();
  }

  const std::string& file_;
  int depth_ = 0;
};

// Each flag on a line with its type and default, its text on the next.
void PrintHelp(const std::string& file) {
  std::printf("%s: %s\n\nFlags:\n", gflags::ProgramInvocationShortName(), gflags::ProgramUsage());
  for (const CommandLineFlagInfo& flag : KnownFlags(file)) {
    const std::string value = flag.default_value.empty() ? "" : ", default " + flag.default_value;
    std::printf("  --%s (%s%s)\n      %s\n", flag.name.c_str(), flag.type.c_str(), value.c_str(),
                flag.description.c_str());
  }
}

// The same for other programs to read, in the form of hyperloopctl --help-json.
void PrintHelpJson(const std::string& file) {
  using Json = nlohmann::ordered_json;
  Json options = Json::array();
  for (const CommandLineFlagInfo& flag : KnownFlags(file)) {
    options.push_back({{"names", {"--" + flag.name}},
                       {"value", flag.type == "bool" ? "" : flag.type},
                       {"default", flag.default_value},
                       {"text", flag.description}});
  }
  const Json program = {{"name", gflags::ProgramInvocationShortName()},
                        {"text", gflags::ProgramUsage()},
                        {"options", options}};
  std::printf("%s\n", program.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
}

template <class T>
std::string Text(T number) {
  std::ostringstream text;
  text.precision(15);
  text << number;
  return text.str();
}

}  // namespace

Status SetFlags(const std::vector<std::string>& words, const std::string& file) {
  return Reader(file).Read(words);
}

std::optional<int> TakeCommandLine(int argc, char** argv, const std::string& file) {
  gflags::SetArgv(argc, const_cast<const char**>(argv));
  const Status status = SetFlags({argv + 1, argv + argc}, file);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", gflags::ProgramInvocationShortName(),
                 status.message().c_str());
    return 2;
  }
  if (FLAGS_help) {
    PrintHelp(file);
    return 0;
  }
  if (FLAGS_help_json) {
    PrintHelpJson(file);
    return 0;
  }
  if (FLAGS_version) {
    std::printf("%s %s\n", gflags::ProgramInvocationShortName(), gflags::VersionString());
    return 0;
  }
  return std::nullopt;
}

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

Status CheckApart(const char* flag, const std::vector<const char*>& others) {
  for (const char* other : others) {
    if (IsGiven(flag) && IsGiven(other)) {
      return InvalidArgument(std::string("--") + flag + " excludes --" + other);
    }
  }
  return Status::Ok();
}

Status CheckNeeded(const char* flag, const char* needed) {
  if (!IsGiven(flag) || IsGiven(needed)) return Status::Ok();
  return InvalidArgument(std::string("--") + flag + " requires --" + needed);
}

template <class T>
Status CheckRange(const char* flag, T value, T least, T most) {
  if (value >= least && value <= most) return Status::Ok();
  return InvalidArgument("--" + std::string(flag) + ": " + Text(value) + " is not between " +
                         Text(least) + " and " + Text(most));
}
template Status CheckRange(const char*, int32_t, int32_t, int32_t);
template Status CheckRange(const char*, uint32_t, uint32_t, uint32_t);
template Status CheckRange(const char*, int64_t, int64_t, int64_t);
template Status CheckRange(const char*, uint64_t, uint64_t, uint64_t);
template Status CheckRange(const char*, double, double, double);

Status CheckWord(const char* flag, const std::string& word, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return Status::Ok();
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  return InvalidArgument("--" + std::string(flag) + ": '" + word + "' is none of " + names);
}

Status CheckWords(const char* flag, const std::vector<std::string>& words,
                  const std::vector<std::string>& known) {
  for (const std::string& word : words) HL_RETURN_IF_ERROR(CheckWord(flag, word, known));
  return Status::Ok();
}

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char byte : list) {
    if (byte == ',') {
      words.emplace_back();
    } else {
      words.back() += byte;
    }
  }
  return words;
}

template <class T>
Result<std::vector<T>> NumberList(const char* flag, const std::string& list, T least, T most) {
  std::vector<T> numbers;
  for (const std::string& word : SplitList(list)) {
    T number{};
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || stop != end || !CheckRange(flag, number, least, most).ok()) {
      return InvalidArgument("--" + std::string(flag) + ": '" + word + "' is no number between " +
                             Text(least) + " and " + Text(most));
    }
    numbers.push_back(number);
  }
  return numbers;
}
template Result<std::vector<uint32_t>> NumberList(const char*, const std::string&, uint32_t,
                                                  uint32_t);
template Result<std::vector<double>> NumberList(const char*, const std::string&, double, double);

}  // namespace hyperloop::bench
