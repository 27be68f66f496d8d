#include "agent/files_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"

namespace hyperloop::agent {
namespace {

using Verdict = GroupFiles::Verdict;

constexpr std::chrono::seconds kReadFiles{1};

}  // namespace

FilesReader::FilesReader(NodeGroup group, StoreOptions store, ReadStore read_store, Say say)
    : name_(group.name),
      host_(group.has_host ? group.host : ""),
      read_store_(std::move(read_store)),
      say_(std::move(say)),
      files_(std::move(group), std::move(store)) {}

Verdict FilesReader::Read(Time now, const std::vector<std::string>& recorded) {
  if (now < next_) return Verdict::kGoOn;
  next_ = now + kReadFiles;
  const Result<Verdict> read = ReadOnce(recorded);
  const std::string& error = read.status().message();
  if (!read.ok() && error != error_)
    say_(LogLevel::kWarn, Text("goes on with what the files of this host said before: ", error));
  error_ = error;
  return read.ok() ? *read : Verdict::kGoOn;
}

Result<Verdict> FilesReader::ReadOnce(const std::vector<std::string>& recorded) {
  if (IsTakenOut()) {
    const Verdict left = files_.JudgeLeft();
    if (left == Verdict::kLeave)
      say_(LogLevel::kInfo, Text("ends: this host, ", host_, ", is none of the hosts of group ",
                                 name_, " any more, says its file"));
    return left;
  }
  const std::string before = FormatStoreUri(files_.store());
  StoreOptions store;
  Status read = read_store_(&store);
  const Result<NodeGroup> group = ReadNodeGroup(name_);
  if (read.ok()) read = group.status();
  if (!read.ok()) files_.Forget();
  HL_RETURN_IF_ERROR(read);
  HL_ASSIGN_OR_RETURN(const Verdict verdict, files_.Judge(*group, std::move(store), recorded));
  if (verdict != Verdict::kTake) return verdict;
  if (!files_.later().empty())
    say_(LogLevel::kWarn,
         Text("the file of the group says something else of: ", files_.later(),
              "; that counts from the next start of the agent, and of the replica here"));
  if (FormatStoreUri(files_.store()) == before) return Verdict::kGoOn;
  say_(LogLevel::kInfo, Text("the files of this host say something else of the group: ",
                             files_.store().replicas.size(), " replicas"));
  return Verdict::kTake;
}

// Whether the file of the group names other hosts only, whatever else is to be said of it.
bool FilesReader::IsTakenOut() const {
  if (host_.empty()) return false;
  const auto path = identity::GroupFileIn(identity::NodeFolder(), name_);
  if (!path.ok()) return false;
  const auto file = identity::ReadGroup(*path);
  return file.ok() && std::ranges::count(file->hosts, host_) == 0;
}

}  // namespace hyperloop::agent
