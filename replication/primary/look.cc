#include "primary/look.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "common/group_error.h"
#include "control/endpoint.h"
#include "hyperloop/core/text.h"
#include "region/directory.h"
#include "region/region_layout.h"

namespace hyperloop {
Result<std::vector<std::unique_ptr<ReplicaHandle>>> ReplicasOf(const StoreOptions& options,
                                                               const control::Trust& trust) {
  std::vector<std::unique_ptr<ReplicaHandle>> replicas;
  for (const std::string& each : options.replicas) {
    HL_ASSIGN_OR_RETURN(control::Endpoint endpoint, control::ParseEndpoint(each));
    replicas.push_back(
        std::make_unique<ReplicaHandle>(std::move(endpoint), trust, options.connect_timeout));
  }
  return replicas;
}

FailureRules RulesOf(const StoreOptions& options) {
  return {GoesOnWithoutSome(options), options.min_replicas, options.given_up};
}

Result<std::vector<MemberLook>> LookAtReplicas(
    std::span<const std::unique_ptr<ReplicaHandle>> replicas, const AnswerTimes& times,
    bool may_leave_out, std::vector<MissingReplica>* missing) {
  std::vector<ReplicaHandle*> asked;
  for (const auto& replica : replicas) asked.push_back(replica.get());
  std::vector<Result<control::HelloReplyT>> answers = HelloAll(asked, times);
  std::vector<MemberLook> looks;
  std::vector<Status> failed;
  for (size_t i = 0; i < asked.size(); ++i) {
    Result<control::HelloReplyT>& hello = answers[i];
    if (hello.ok()) {
      looks.push_back({asked[i]->name(), asked[i]->address(), std::move(hello).value()});
      continue;
    }
    missing->push_back({asked[i]->name(), asked[i]->address(), hello.status().message()});
    failed.push_back(hello.status());
  }
  if (failed.empty() || (may_leave_out && !looks.empty())) return looks;
  return AllReasons(failed);
}

namespace {

// Gives a pool file another name, which no file has.
Result<std::string> SetPoolAside(const std::string& path, uint64_t region_size) {
  const std::string base = Text(path, ".before-resize-", region_size);
  std::string name = base;
  for (int number = 2;
       ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) != 0;
       ++number) {
    if (errno != EEXIST) return FromErrno(errno, Text("set pool ", path, " aside as ", name));
    name = Text(base, ".", number);
  }
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(path)));
  return name;
}

Status OpenOrMake(const StoreOptions& options, const TakePlan& plan, std::unique_ptr<Pool>* pool) {
  const PoolOptions pool_options{options.media};
  Result<std::unique_ptr<Pool>> opened = Pool::Open(options.pool, pool_options);
  if (opened.status().code() == Code::kNotFound)
    opened = Pool::Create(options.pool, plan.region_size, pool_options);
  if (!opened.ok()) return opened.status();
  *pool = std::move(opened).value();
  return {};
}

}  // namespace

Status OpenOwnPool(const StoreOptions& options, const TakePlan& plan, std::unique_ptr<Pool>* pool,
                   std::string* set_aside) {
  if (*pool == nullptr) HL_RETURN_IF_ERROR(OpenOrMake(options, plan, pool));
  const auto mismatch = [&](const std::string& what) {
    return InvalidArgument(
        Text("name another path, or move the file away, and keep it while its own group may need "
             "it, because it may be the last copy of what that group acknowledged: the primary's "
             "pool ",
             options.pool, " ", what));
  };
  const uint64_t size = (*pool)->region().size();
  // The page may never have been written, or be torn. What the region holds is compared with the
  // group anyway.
  const Result<NodeState> state = ReadNodeState((*pool)->node_page());
  if (state.ok() && state->sealed_epoch != 0)
    return InvalidArgument(Text(options.pool, " is a replica's pool; name another path"));
  if (state.ok() && state->group != kNilUuid && state->group != plan.group) {
    return mismatch(Text("belongs to group ", FormatUuid(state->group), ", the replicas are ",
                         plan.format ? "fresh" : Text("group ", FormatUuid(plan.group))));
  }
  if (size == plan.region_size) return {};
  if (!state.ok() || state->group != plan.group || size > plan.region_size) {
    return mismatch(Text("has a region of ", size, " B, the replicas have ", plan.region_size,
                         " B (hyperloopctl resize changes pools)"));
  }
  pool->reset();
  if (set_aside == nullptr) return {};
  HL_ASSIGN_OR_RETURN(*set_aside, SetPoolAside(options.pool, size));
  return OpenOrMake(options, plan, pool);
}

}  // namespace hyperloop
