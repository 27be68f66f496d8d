// hyperloopctl resize
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "ctl/command.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "inspect/resize.h"
#include "options/size_option.h"

namespace hyperloop::ctl {
namespace {

struct ResizeOptions {
  std::string pool, directory;
  ResizeTarget target;
};

Status ResizeOne(const std::string& path, const ResizeTarget& target) {
  HL_ASSIGN_OR_RETURN(const ResizeReport report, ResizePool(path, target));
  const std::string sizes =
      Text("region ", FormatSize(report.geometry.region_size), ", journal ",
           FormatSize(report.geometry.journal_size), ", table of ", report.geometry.table_capacity,
           " files, ", report.geometry.extent_count, " extents");
  if (report.changed) {
    std::printf("%s: %s; the old pool is %s\n", path.c_str(), sizes.c_str(),
                report.set_aside.c_str());
  } else {
    std::printf("%s: %s already\n", path.c_str(), sizes.c_str());
  }
  return {};
}

// Makes every check before the first pool is changed. Members that an interrupted call has already
// resized are accepted as they are.
Status CheckMembers(const std::vector<std::string>& pools, const ResizeTarget& target) {
  std::string first;
  PoolLook known;
  for (const std::string& path : pools) {
    HL_ASSIGN_OR_RETURN(const PoolLook look, LookAtPool(path));
    HL_RETURN_IF_ERROR(PlanResize(look.info.geometry, target).status().WithContext(path));
    if (!look.replica) continue;
    if (first.empty()) {
      first = path;
      known = look;
    } else if (look.info.group != known.info.group || !(look.tail == known.tail)) {
      return Aborted(Text("the logs of ", first, " (record ", known.tail.seq, ") and ", path,
                          " (record ", look.tail.seq,
                          ") differ; start the cluster, open and close the database once, then "
                          "stop the cluster and resize"));
    }
  }
  return {};
}

Status ResizeCluster(const ClusterInfo& cluster, const ResizeTarget& target) {
  std::vector<std::string> pools;
  for (const ClusterProcess& replica : cluster.replicas()) pools.push_back(replica.pool);
  const std::string primary = cluster.directory + "/primary.pool";
  if (std::filesystem::exists(primary)) pools.push_back(primary);
  HL_RETURN_IF_ERROR(CheckMembers(pools, target));
  for (const std::string& pool : pools) HL_RETURN_IF_ERROR(ResizeOne(pool, target));
  return {};
}

Status Resize(const ResizeOptions& options) {
  const ResizeTarget& target = options.target;
  if (!options.pool.empty()) {
    HL_RETURN_IF_ERROR(ResizeOne(options.pool, target));
    std::printf("resize the pools of all other members in the same way, then start the replicas\n");
    return {};
  }
  return ChangeRegionSize(options.directory, target.region_size, [&](const ClusterInfo& cluster) {
    return ResizeCluster(cluster, target);
  });
}

}  // namespace

void AddResize(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ResizeOptions>();
  CLI::App* resize = app.add_subcommand(
      "resize",
      "give a group that nobody uses a larger region: one member's pool on its machine, or all "
      "pools of an emulated cluster; the old pools are set aside");
  CLI::Option_group* where = resize->add_option_group("where");
  where->add_option("--pool", options->pool, "a pool whose process has ended")->type_name("FILE");
  where->add_option("--dir", options->directory, "the directory of a stopped emulated cluster")
      ->type_name("DIR");
  where->require_option(1);
  resize
      ->add_option("--region-size", options->target.region_size,
                   "bytes of the region from now on (K, M, G), at most 15G")
      ->transform(SizeFrom(kMinRegionSize, kMaxRegionSize))
      ->type_name("BYTES")
      ->required();
  resize
      ->add_option("--journal-size", options->target.journal_size,
                   "bytes of the journal (K, M, G), at most 4G; default: unchanged")
      ->transform(SizeFrom(256 << 10, 4ull << 30))
      ->type_name("BYTES");
  resize
      ->add_option("--table-capacity", options->target.table_capacity,
                   "files that the database can have; default: unchanged")
      ->check(CLI::Range(64u, 1048576u))
      ->type_name("N");
  resize->callback([=] {
    *chosen = [=] {
      const Status resized = Resize(*options);
      return resized.ok() ? static_cast<int>(kExitOk) : Fail(resized);
    };
  });
}

}  // namespace hyperloop::ctl
