#include "ctl/standing.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "control/client.h"
#include "control/endpoint.h"
#include "ctl/command.h"
#include "files/file_store.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"
#include "membership/take_plan.h"
#include "primary/asking.h"
#include "primary/look.h"

namespace hyperloop::ctl {
namespace {

constexpr std::chrono::seconds kListPatience{10};

// What a replica keeps: whole files, and of others the bytes that have arrived.
struct Kept {
  std::set<WholeFile> whole;
  std::map<WholeFile, uint64_t> parts;
};

// A directory of files on this machine can be read whatever became of the process.
Result<Kept> ReadKept(const NodePlace& place, const std::string& group) {
  HL_ASSIGN_OR_RETURN(const Uuid uuid, ParseUuid(group));
  const Result<std::unique_ptr<FileStore>> store =
      FileStore::OpenToRead(GroupDirectory(place.files, uuid));
  if (store.status().code() == Code::kNotFound) return Kept();
  HL_RETURN_IF_ERROR(store.status());
  HL_ASSIGN_OR_RETURN(const std::vector<FileStore::Stored> files, (*store)->List());
  Kept kept;
  for (const FileStore::Stored& each : files) {
    if (each.finished) kept.whole.insert(each.file);
    if (!each.finished) kept.parts[each.file] = each.received;
  }
  return kept;
}

Result<Kept> AskKept(const Nodes& nodes, const NodePlace& place) {
  HL_RETURN_IF_ERROR(place.silent);
  HL_ASSIGN_OR_RETURN(const auto replica, nodes.BulkLane(place));
  const Result<control::ListFilesReplyT> reply =
      replica->Call<control::ListFilesReplyT>(control::ListFilesRequestT{}, kListPatience);
  if (reply.status().code() == Code::kNotFound) return Kept();  // it is of no group yet
  HL_RETURN_IF_ERROR(reply.status());
  Kept kept;
  for (const auto& each : reply->files) {
    const WholeFile file{each->name, each->size, each->checksum};
    if (each->finished) kept.whole.insert(file);
    if (!each->finished) kept.parts[file] = each->received;
  }
  return kept;
}

std::set<WholeFile> WholeFilesOf(const NodeStatus& status) {
  std::set<WholeFile> files;
  for (const FileInfo& file : status.files)
    if (file.lane == Lane::kBulk) files.insert({file.name, file.size, file.checksum});
  return files;
}

Standing::Lack LackOf(const Kept& kept, const std::set<WholeFile>& listed) {
  Standing::Lack lack;
  for (const WholeFile& file : listed) {
    if (FindHeld(kept.whole, file) != nullptr) continue;
    const auto part = kept.parts.find(file);
    ++lack.files;
    lack.bytes += file.size - (part == kept.parts.end() ? 0 : std::min(part->second, file.size));
  }
  return lack;
}

// Those of the files that the group still lists. The others may have been dropped since.
std::set<WholeFile> StillListed(Nodes& nodes, const NodePlace& place,
                                const std::set<WholeFile>& listed) {
  const Result<std::unique_ptr<NodeView>> view = nodes.View(place);
  const Result<NodeStatus> now = view.ok() ? (*view)->ReadStatus() : view.status();
  if (!now.ok() || !now->log_error.empty()) return listed;
  const std::set<WholeFile> later = WholeFilesOf(*now);
  std::set<WholeFile> both;
  std::ranges::set_intersection(listed, later, std::inserter(both, both.end()));
  return both;
}

// What each replica lacks of the files that the newest one lists.
std::vector<Result<Standing::Lack>> LacksOf(Nodes& nodes, const NodePlace& place,
                                            const NodeStatus& newest) {
  std::set<WholeFile> listed = WholeFilesOf(newest);
  if (listed.empty())
    return std::vector<Result<Standing::Lack>>(nodes.replicas().size(), Standing::Lack());
  const std::vector<Result<Kept>> kept = AtOnce(nodes.replicas().size(), [&](size_t i) {
    const NodePlace& each = nodes.replicas()[i];
    return each.files.empty() ? AskKept(nodes, each) : ReadKept(each, newest.group);
  });
  const bool any_lacks = std::ranges::any_of(kept, [&](const Result<Kept>& each) {
    return each.ok() && LackOf(*each, listed).files != 0;
  });
  if (any_lacks) listed = StillListed(nodes, place, listed);
  std::vector<Result<Standing::Lack>> lacks;
  for (const Result<Kept>& each : kept)
    lacks.push_back(each.ok() ? LackOf(*each, listed) : Result<Standing::Lack>(each.status()));
  return lacks;
}

bool IsListed(const std::vector<std::string>& addresses, const std::string& listen) {
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(listen);
  const std::string address = endpoint.ok() ? endpoint->ToString() : listen;
  return std::ranges::count(addresses, address) != 0;
}

bool IsMemberOf(const NodeStatus& newest, const NodePlace& place, const NodeStatus& status) {
  return status.group == newest.group && status.installed_epoch == newest.installed_epoch &&
         IsListed(newest.replicas, place.listen);
}

}  // namespace

bool Standing::whole() const {
  return member && status != nullptr && place->silent.ok() &&
         place->state == ProcessState::kRunning && lack.ok() && lack->files == 0;
}

const NodeStatus* NewestOf(std::span<const NodeStatus* const> statuses) {
  const auto age = [](const NodeStatus& status) {
    return std::pair(status.installed_epoch, status.last_seq);
  };
  const NodeStatus* newest = nullptr;
  for (const NodeStatus* each : statuses) {
    if (each == nullptr || !each->formatted || !each->log_error.empty()) continue;
    if (newest == nullptr || age(*each) > age(*newest)) newest = each;
  }
  return newest;
}

std::vector<Standing> StandingsOf(Nodes& nodes, std::span<const NodeStatus* const> statuses) {
  const NodeStatus* const newest = NewestOf(statuses);
  const auto at = static_cast<size_t>(std::ranges::find(statuses, newest) - statuses.begin());
  std::vector<Result<Standing::Lack>> lacks;
  if (newest != nullptr) lacks = LacksOf(nodes, nodes.replicas()[at], *newest);
  std::vector<Standing> standings;
  for (size_t i = 0; i < statuses.size(); ++i) {
    Standing standing;
    standing.place = &nodes.replicas()[i];
    const NodeStatus* const status = statuses[i];
    if (status != nullptr && status->log_error.empty()) standing.status = status;
    if (newest != nullptr) {
      standing.lack = std::move(lacks[i]);
      standing.member = status != nullptr && IsMemberOf(*newest, *standing.place, *status);
    }
    standings.push_back(std::move(standing));
  }
  return standings;
}

std::string LackText(const Standing& standing) {
  if (!standing.lack.ok()) {
    return Text("it is not known which files it holds: ", standing.lack.status().message());
  }
  const auto& [files, bytes] = *standing.lack;
  if (files == 0) return "";
  return Text(files, files == 1 ? " file (" : " files (", FormatSize(bytes), ") lacking");
}

std::string NextFailureOf(const std::string& uri, const NodeStatus* newest,
                          std::span<const Standing> standings) {
  StoreOptions options;
  if (newest == nullptr || !ParseStoreUri(uri, &options).ok()) return "";
  Redundancy now;
  now.members = newest->replicas.size();
  now.absent = newest->absent.size();
  now.silent = now.members;
  for (const Standing& each : standings) {
    if (!each.member || !each.place->silent.ok() || each.place->state != ProcessState::kRunning)
      continue;
    --now.silent;
    if (each.whole()) ++now.holders;
    now.catching_up = now.catching_up || !each.whole();
  }
  return NextFailure(now, RulesOf(options));
}

}  // namespace hyperloop::ctl
