#include "hyperloop/replication/directory_call.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

constexpr std::string_view kDb = "--db", kUri = "--uri", kReplicaFiles = "--replica-files",
                           kLost = "--lost", kWait = "--wait";
constexpr std::pair<DirectoryCall::Promote::Lost, std::string_view> kLostWords[] = {
    {DirectoryCall::Promote::Lost::kRefuse, "refuse"},
    {DirectoryCall::Promote::Lost::kAsk, "ask"},
    {DirectoryCall::Promote::Lost::kGiveUp, "give-up"}};

// The named arguments that nobody has asked for yet.
class Named {
 public:
  static Result<Named> Of(std::span<const std::string> arguments) {
    Named named;
    for (const std::string& each : arguments) {
      const size_t sign = each.find('=');
      if (!each.starts_with("--") || sign == std::string::npos)
        return InvalidArgument(Text("argument ", each, " is no --NAME=VALUE"));
      if (!named.values_.emplace(each.substr(0, sign), each.substr(sign + 1)).second)
        return InvalidArgument(Text("argument ", each.substr(0, sign), " is there twice"));
    }
    return named;
  }
  // Empty: it is not there.
  std::string Take(std::string_view name) {
    const auto found = values_.find(name);
    if (found == values_.end()) return "";
    return values_.extract(found).mapped();
  }
  Status CheckAllTaken(std::string_view verb) const {
    if (values_.empty()) return {};
    return InvalidArgument(Text(verb, " has no argument ", values_.begin()->first));
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

Result<DirectoryCall::Promote::Lost> ParseLost(const std::string& word) {
  if (word.empty()) return DirectoryCall::Promote::Lost::kRefuse;
  for (const auto& [lost, each] : kLostWords)
    if (each == word) return lost;
  return InvalidArgument(Text(kLost, "=", word, " is none of refuse, ask, give-up"));
}

Result<std::chrono::seconds> ParseWait(const std::string& text) {
  uint32_t seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seconds);
  const std::chrono::seconds wait(seconds);
  if (error == std::errc() && rest == end && wait <= kMostSwitchoverWait) return wait;
  return InvalidArgument(
      Text(kWait, "=", text, " is no number from 0 to ", kMostSwitchoverWait.count()));
}

Result<DirectoryCall::What> ParseWhat(const std::string& verb, Named* named) {
  if (verb == "adopt") return DirectoryCall::What(DirectoryCall::Adopt{});
  if (verb == "doctor") return DirectoryCall::What(DirectoryCall::Doctor{});
  if (verb == "verify-deep") return DirectoryCall::What(DirectoryCall::Deep{});
  if (verb == "promote") {
    HL_ASSIGN_OR_RETURN(const auto lost, ParseLost(named->Take(kLost)));
    return DirectoryCall::What(DirectoryCall::Promote{named->Take(kReplicaFiles), lost});
  }
  if (verb == "standby")
    return DirectoryCall::What(DirectoryCall::Standby{named->Take(kReplicaFiles)});
  if (verb == "switchover") {
    HL_ASSIGN_OR_RETURN(const std::chrono::seconds wait, ParseWait(named->Take(kWait)));
    return DirectoryCall::What(DirectoryCall::Switchover{named->Take(kReplicaFiles), wait});
  }
  return InvalidArgument(
      Text("unknown verb ", verb, "; adopt, promote, standby, switchover, doctor, verify-deep"));
}

void Add(std::string_view name, std::string_view value, std::vector<std::string>* arguments) {
  if (!value.empty()) arguments->push_back(Text(name, "=", value));
}

void AddWhat(const DirectoryCall::Promote& promote, std::vector<std::string>* arguments) {
  Add(kReplicaFiles, promote.replica_files, arguments);
  for (const auto& [lost, word] : kLostWords)
    if (lost == promote.lost) Add(kLost, word, arguments);
}
void AddWhat(const DirectoryCall::Standby& standby, std::vector<std::string>* arguments) {
  Add(kReplicaFiles, standby.replica_files, arguments);
}
void AddWhat(const DirectoryCall::Switchover& switchover, std::vector<std::string>* arguments) {
  Add(kReplicaFiles, switchover.replica_files, arguments);
  Add(kWait, std::to_string(switchover.wait.count()), arguments);
}
void AddWhat(const DirectoryCall::Adopt&, std::vector<std::string>*) {}
void AddWhat(const DirectoryCall::Doctor&, std::vector<std::string>*) {}
void AddWhat(const DirectoryCall::Deep&, std::vector<std::string>*) {}

}  // namespace

const char* DirectoryCall::verb() const {
  static constexpr const char* kVerbs[] = {"adopt",      "promote", "standby",
                                           "switchover", "doctor",  "verify-deep"};
  static_assert(std::size(kVerbs) == std::variant_size_v<What>);
  return kVerbs[what.index()];
}

std::vector<std::string> ArgumentsOf(const DirectoryCall& call) {
  std::vector<std::string> arguments{call.verb()};
  Add(kDb, call.directory, &arguments);
  if (call.group.has_value()) Add(kUri, FormatStoreUri(*call.group), &arguments);
  std::visit([&](const auto& each) { AddWhat(each, &arguments); }, call.what);
  return arguments;
}

Result<DirectoryCall> ParseDirectoryCall(std::span<const std::string> arguments) {
  if (arguments.empty()) return InvalidArgument("a verb is needed");
  const std::string& verb = arguments.front();
  HL_ASSIGN_OR_RETURN(Named named, Named::Of(arguments.subspan(1)));
  DirectoryCall call;
  HL_ASSIGN_OR_RETURN(call.what, ParseWhat(verb, &named));
  call.directory = named.Take(kDb);
  if (call.directory.empty()) return InvalidArgument(Text(verb, " needs ", kDb, "=DIR"));
  const bool of_no_group = std::holds_alternative<DirectoryCall::Deep>(call.what);
  const std::string uri = of_no_group ? "" : named.Take(kUri);
  if (!uri.empty())
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &call.group.emplace()).WithContext(std::string(kUri)));
  if (uri.empty() && !of_no_group && !std::holds_alternative<DirectoryCall::Doctor>(call.what))
    return InvalidArgument(Text(verb, " needs ", kUri, "=URI"));
  HL_RETURN_IF_ERROR(named.CheckAllTaken(verb));
  return call;
}

}  // namespace hyperloop
