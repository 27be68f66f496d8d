#include "agent/group_files.h"

#include <algorithm>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop::agent {
namespace {

constexpr char kLeft[] = "left";

}  // namespace

std::string GroupFiles::TextOf(const NodeGroup& group, const StoreOptions& store) {
  std::string text = FormatStoreUri(store);
  for (const std::string& each : {group.pool, group.database, group.http}) text += '\n' + each;
  for (const std::string& each : group.service) text += '\n' + each;
  for (const std::string& each : group.hooks) text += "\nhook " + each;
  return text;
}

bool GroupFiles::IsSecond(const std::string& text) { return std::exchange(last_, text) == text; }

Result<GroupFiles::Verdict> GroupFiles::Judge(const NodeGroup& group, StoreOptions store,
                                              const std::vector<std::string>& recorded) {
  store.pool = store_.pool;
  const std::string text = TextOf(group, store);
  if (!IsSecond(text) || text == taken_) return Verdict::kGoOn;
  const auto listed =
      static_cast<size_t>(std::ranges::count_if(recorded, [&](const std::string& each) {
        return std::ranges::count(store.replicas, each) != 0;
      }));
  if (!recorded.empty() && 2 * listed <= recorded.size())
    return InvalidArgument(Text(group.file, " and ", group.hosts_file, " list ", listed, " of the ",
                                recorded.size(),
                                " replicas that the group has: list them all, and change one "
                                "host at a time"));
  taken_ = text;
  store_ = std::move(store);
  later_.clear();
  const auto note = [this](const char* name, bool same) {
    if (!same) later_ += Text(later_.empty() ? "" : ", ", name);
  };
  note("folder", group.pool == began_.pool);
  note("database", group.database == began_.database);
  note("service", group.service == began_.service);
  note("http_port", group.http == began_.http);
  note("hook", group.hooks == began_.hooks);
  return Verdict::kTake;
}

GroupFiles::Verdict GroupFiles::JudgeLeft() {
  return IsSecond(kLeft) ? Verdict::kLeave : Verdict::kGoOn;
}

std::vector<std::string> ReplicasToOpen(const std::vector<std::string>& listed,
                                        const std::vector<std::string>& recorded,
                                        const std::map<std::string, Resident>& residents,
                                        const std::string& group) {
  const auto has = [](const std::vector<std::string>& all, const std::string& address) {
    return std::ranges::count(all, address) != 0;
  };
  const auto node = [&](const std::string& address) {
    const auto found = residents.find(address);
    return found == residents.end() ? "" : found->second.node;
  };
  std::vector<std::string> open, left;
  for (const std::string& each : recorded)
    if (!has(listed, each)) left.push_back(each);
  for (const std::string& each : listed) {
    const auto seen = residents.find(each);
    const bool foreign = seen != residents.end() && !group.empty() && !seen->second.group.empty() &&
                         seen->second.group != group;
    const bool moved = !has(recorded, each) && !foreign && !node(each).empty() &&
                       std::erase_if(left, [&](const auto& it) { return node(it) == node(each); });
    if (has(recorded, each) || foreign || moved) open.push_back(each);
  }
  open.insert(open.end(), left.begin(), left.end());
  return open;
}

}  // namespace hyperloop::agent
