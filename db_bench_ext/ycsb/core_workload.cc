#include "ycsb/core_workload.h"

namespace hyperloop::ycsb {
namespace {

//                                   read update insert scan rmw
constexpr CoreWorkload kWorkloads[] = {
    {'a', {0.5, 0.5, 0, 0, 0}, RequestDistribution::kZipfian},
    {'b', {0.95, 0.05, 0, 0, 0}, RequestDistribution::kZipfian},
    {'c', {1, 0, 0, 0, 0}, RequestDistribution::kZipfian},
    {'d', {0.95, 0, 0.05, 0, 0}, RequestDistribution::kLatest},
    {'e', {0, 0, 0.05, 0.95, 0}, RequestDistribution::kZipfian},
    {'f', {0.5, 0, 0, 0, 0.5}, RequestDistribution::kZipfian},
};

std::variant<ScrambledZipfian, Latest> RecordsFor(const CoreWorkload& workload, uint64_t loaded,
                                                  uint64_t operations) {
  if (workload.distribution == RequestDistribution::kLatest) return Latest(loaded);
  // Twice as many records as are likely to be inserted, so that insertions do not change the
  // scattering.
  const double share = workload.shares[static_cast<size_t>(OperationType::kInsert)];
  return ScrambledZipfian(loaded +
                          static_cast<uint64_t>(2 * share * static_cast<double>(operations)));
}

}  // namespace

std::string_view TypeName(OperationType type) {
  constexpr std::string_view kNames[] = {"read", "update", "insert", "scan", "read-modify-write"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<CoreWorkload> FindWorkload(std::string_view name) {
  for (const CoreWorkload& workload : kWorkloads) {
    if (name.size() == 1 && (name[0] | 0x20) == workload.name) return workload;
  }
  return std::nullopt;
}

std::string KeyOf(uint64_t record) {
  const uint64_t hash = FnvHash(record);
  return "user" + std::to_string(hash >> 63 != 0 ? -hash : hash);  // YCSB hashes to a signed number
}

void InsertSequence::Acknowledge(uint64_t record) {
  const MutexLock lock(mutex_);
  ahead_.insert(record);
  uint64_t complete = complete_.load(std::memory_order_relaxed);
  while (!ahead_.empty() && *ahead_.begin() == complete) {
    ahead_.erase(ahead_.begin());
    ++complete;
  }
  complete_.store(complete, std::memory_order_release);
}

Chooser::Chooser(const CoreWorkload& workload, const InsertSequence& inserts, uint64_t operations,
                 uint64_t seed)
    : workload_(workload),
      inserts_(inserts),
      random_(seed),
      records_(RecordsFor(workload, inserts.complete(), operations)) {}

OperationType Chooser::NextType() {
  double at = Uniform(random_);
  size_t last = 0;
  for (size_t type = 0; type < kOperationTypes; ++type) {
    if (workload_.shares[type] == 0) continue;
    if (at < workload_.shares[type]) return static_cast<OperationType>(type);
    at -= workload_.shares[type];
    last = type;
  }
  return static_cast<OperationType>(last);  // the shares' sum was rounded
}

uint64_t Chooser::NextRecord() {
  const uint64_t complete = inserts_.complete();
  if (auto* const latest = std::get_if<Latest>(&records_)) return latest->Next(random_, complete);
  const auto& scattered = std::get<ScrambledZipfian>(records_);
  uint64_t record = scattered.Next(random_);
  while (record >= complete) record = scattered.Next(random_);
  return record;
}

}  // namespace hyperloop::ycsb
