// Options as a URI.
#include <algorithm>
#include <set>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"
#include "options/node_group.h"
#include "options/option_text.h"

namespace hyperloop {
namespace {

constexpr std::string_view kScheme = "hyperloop";

Status Malformed(std::string_view uri, const std::string& what) {
  return InvalidArgument("\"" + std::string(uri) + "\" " + what +
                         "; expected hyperloop://host:port,host:port?name=value&…");
}

// Refuses an option of a URI that names a group of this host, if the host's files say it.
Status CheckIsFree(std::string_view uri, std::string_view option, const NodeGroup& group) {
  const bool decided = group.decided.contains(option);
  if (!decided && !IsOfHosts(option)) return {};
  return InvalidArgument(
      Text("\"", uri, "\" sets ", option, ", which ",
           decided ? group.file : Text(group.hosts_file, " and ", group.file),
           decided ? " sets" : " decide",
           " for all hosts: ", decided ? "change it there" : "leave it out",
           ", or give the whole URI, hyperloop://host:port,host:port?name=value&…"));
}

// `group`: which the URI names; null: it lists replicas.
Status ParseQuery(std::string_view uri, std::string_view query, const NodeGroup* group,
                  std::set<std::string, std::less<>>* seen, StoreOptions* options) {
  for (size_t start = 0; start <= query.size();) {
    size_t end = std::min(query.find('&', start), query.size());
    std::string_view pair = query.substr(start, end - start);
    start = end + 1;
    size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Malformed(uri, "has \"" + std::string(pair) + "\" where name=value is expected");
    }
    std::string_view name = pair.substr(0, equals);
    std::optional<std::string> value = option_text::PercentDecode(pair.substr(equals + 1));
    if (!value) {
      return Malformed(uri, "has a bad percent-encoding in the value of " + std::string(name) +
                                " (each % needs two hexadecimal digits, not 00)");
    }
    if (group != nullptr) HL_RETURN_IF_ERROR(CheckIsFree(uri, name, *group));
    if (!seen->insert(std::string(name)).second)
      return Malformed(uri, "sets " + std::string(name) + " twice");
    HL_RETURN_IF_ERROR(SetStoreOption(name, *value, options));
  }
  return Status::Ok();
}

// Sets what the group's files say, and what follows from them, and nothing else.
void TakeGroup(const NodeGroup& group, StoreOptions* options) {
  options->replicas = group.store.replicas;
  options->provider = group.store.provider;
  options->device = group.store.device;
  options->host = group.store.host;
  options->keys = group.store.keys;
  options->pool = group.store.pool;
  // They were set from text, so they can be.
  for (const std::string& name : group.decided)
    SetStoreOption(name, *GetStoreOption(name, group.store), options).IgnoreError();
}

}  // namespace

Status ParseStoreUri(std::string_view uri, StoreOptions* options) {
  std::string_view rest = uri;
  if (!rest.starts_with(kScheme)) return Malformed(uri, "is not a hyperloop URI");
  rest.remove_prefix(kScheme.size());
  if (rest.empty() || rest == ":") return Status::Ok();
  if (!rest.starts_with("://")) return Malformed(uri, "is not a hyperloop URI");
  rest.remove_prefix(3);

  StoreOptions parsed = *options;
  std::set<std::string, std::less<>> seen;
  size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view hosts = rest.substr(0, question);
  std::optional<NodeGroup> group;
  if (hosts.starts_with('/')) {
    HL_ASSIGN_OR_RETURN(group, ReadNodeGroup(hosts.substr(1)));
    TakeGroup(*group, &parsed);
  } else if (!hosts.empty()) {
    seen.insert("replicas");
    HL_RETURN_IF_ERROR(SetStoreOption("replicas", hosts, &parsed));
  }
  if (question < rest.size())
    HL_RETURN_IF_ERROR(ParseQuery(uri, rest.substr(question + 1),
                                  group.has_value() ? &*group : nullptr, &seen, &parsed));
  *options = std::move(parsed);
  return Status::Ok();
}

std::string FormatStoreUri(const StoreOptions& options) {
  const StoreOptions defaults;
  std::string hosts, query;
  for (const OptionInfo& info : StoreOptionTable()) {
    Result<std::string> value = GetStoreOption(info.name, options);
    if (info.name == "replicas") {
      hosts = *value;
    } else if (*value != *GetStoreOption(info.name, defaults)) {
      query += (query.empty() ? "?" : "&") + std::string(info.name) + "=" +
               option_text::PercentEncode(*value);
    }
  }
  return std::string(kScheme) + "://" + hosts + query;
}

}  // namespace hyperloop
