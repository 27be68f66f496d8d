#include "replica/replica_metrics.h"

#include <cstring>
#include <utility>

#include "hyperloop/core/out_of_memory.h"
#include "log/log_scan.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

using metrics::Page;

std::string UuidText(const Uuid& uuid) { return uuid == kNilUuid ? "" : FormatUuid(uuid); }

}  // namespace

ReplicaMetrics::ReplicaMetrics(const Pool& pool, const NodeStateStore& store, const Node& node,
                               const RdmaService& service, const IdleScrub& scrub,
                               const BulkServer& bulk, const Requests& requests)
    : pool_(pool),
      store_(store),
      node_(node),
      service_(service),
      scrub_(scrub),
      bulk_(bulk),
      requests_(requests) {}

std::shared_ptr<const std::string> ReplicaMetrics::Get() const {
  const MutexLock lock(mutex_);
  return page_;
}

void ReplicaMetrics::Sample() {
  static_cast<void>(RanOutOfMemory([this] {
    auto page = std::make_shared<const std::string>(Make());
    const MutexLock lock(mutex_);
    page_ = std::move(page);
  }));
}

std::string ReplicaMetrics::Make() {
  Page page;
  page.Add("hyperloop_build_info", 1,
           {{"program", "hyperloop-replica"}, {"version", HYPERLOOP_VERSION}});
  page.Add("process_start_time_seconds", started_);
  page.Add("hyperloop_replica_sampled_timestamp_seconds", metrics::NowSeconds());
  AddNode(&page);
  AddLog(&page);
  page.Add("hyperloop_replica_damaged", scrub_.damaged() ? 1 : 0, {{"what", "region"}});
  page.Add("hyperloop_replica_damaged", ReadFileDamage(pool_.node_page()).empty() ? 0 : 1,
           {{"what", "files"}});
  page.Add("hyperloop_replica_refuses_files", ReadFileRefusal(pool_.node_page()).empty() ? 0 : 1);
  page.Add("hyperloop_replica_files_disk_bytes", bulk_.disk_bytes());
  page.Add("hyperloop_replica_files_disk_free_bytes", bulk_.disk_free_bytes());
  page.Add("hyperloop_replica_checks_total", scrub_.passes());
  page.Add("hyperloop_replica_requests_total", requests_.handled);
  page.Add("hyperloop_replica_requests_refused_total", requests_.refused);
  return page.Text();
}

void ReplicaMetrics::AddNode(Page* page) {
  const NodeState& state = node_.state();
  page->Add("hyperloop_replica_info", 1,
            {{"node", UuidText(state.node)},
             {"group", UuidText(state.group)},
             {"media", MediaName(pool_.media().kind())}});
  page->Add("hyperloop_replica_device_up", service_.state() == "ready" ? 1 : 0);
  page->Add("hyperloop_replica_region_bytes", pool_.region().size());
  page->Add("hyperloop_replica_sealed_epoch", state.sealed_epoch);
  page->Add("hyperloop_replica_installed_epoch", state.installed.epoch);
  page->Add("hyperloop_replica_released", state.released ? 1 : 0);
  page->Add("hyperloop_replica_awaits_opening", state.awaits_opening ? 1 : 0);
  page->Add("hyperloop_replica_filling", node_.filling() ? 1 : 0);
  page->Add("hyperloop_replica_members", state.installed.replicas.size());
  page->Add("hyperloop_replica_absent", state.installed.absent.size());
  const uint64_t heartbeat = store_.heartbeat();
  if (std::exchange(heartbeat_, heartbeat) != heartbeat) moved_ = Clock::now();
  page->Add("hyperloop_replica_heartbeat_age_seconds",
            std::chrono::duration<double>(Clock::now() - moved_).count());
}

void ReplicaMetrics::AddLog(Page* page) {
  if (until_log_-- <= 0) {
    const std::span<const std::byte> region = pool_.region();
    const Result<RegionInfo> info = ParseSuperblock(region, region.size());
    if (!info.ok()) return;  // not formatted: the next sample looks again
    until_log_ = kLogSamples - 1;
    log_ = ReadLog(*info);
  }
  if (!log_.has_value()) return;
  page->Add("hyperloop_replica_ring_bytes", log_->ring);
  page->Add("hyperloop_replica_ring_used_bytes", log_->ring_used);
  page->Add("hyperloop_replica_sequence", log_->sequence);
  page->Add("hyperloop_replica_acknowledged_sequence", log_->acknowledged);
  page->Add("hyperloop_replica_data_bytes", log_->data);
  page->Add("hyperloop_replica_data_used_bytes", log_->data_used);
}

// The RNIC may write meanwhile. Then the log that is found ends a little earlier or later.
std::optional<ReplicaMetrics::Log> ReplicaMetrics::ReadLog(const RegionInfo& info) const {
  const std::span<const std::byte> region = pool_.region();
  const Result<LogState> found = ScanLog(region, info);
  if (!found.ok()) return std::nullopt;
  const RegionGeometry& geometry = info.geometry;
  Log log;
  log.ring = geometry.journal_size;
  log.ring_used = found->tail.position - found->head.cursor.position;
  log.sequence = found->tail.seq;
  log.acknowledged = found->highest_acked;
  log.data = geometry.data_bytes();
  for (uint32_t extent = 0; extent < geometry.extent_count; ++extent) {
    MapEntry entry;
    std::memcpy(&entry, region.data() + geometry.MapOffset(extent), sizeof entry);
    if (entry.slot_plus_one != 0) log.data_used += geometry.extent_size;
  }
  return log;
}

}  // namespace hyperloop
