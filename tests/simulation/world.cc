#include "simulation/world.h"

#include <algorithm>
#include <utility>

#include "pool/pool.h"
#include "primary/session_store.h"
#include "simulation/impossible.h"
#include "simulation/network.h"

namespace hyperloop::simulation {
namespace {

constexpr std::chrono::milliseconds kAckTimeout{2000};
constexpr uint64_t kMostDamage = 4096;
constexpr std::array<size_t, 6> kCounts{1, 2, 3, 3, 3, 5};  // of replicas

std::vector<std::string> Hosts(size_t replicas) {
  std::vector<std::string> hosts(kPrimaries.begin(), kPrimaries.end());
  for (size_t i = 0; i < replicas; ++i) hosts.push_back(World::NameOf(static_cast<int>(i)));
  return hosts;
}

// Half of the worlds have an RNIC that takes each freedom which the specification leaves to it.
softrnic::EngineOptions EngineOptionsBy(std::mt19937_64& random) {
  using softrnic::EngineOptions;
  EngineOptions options;
  if (random() % 2 == 0) return options;
  options.schedule = EngineOptions::Schedule::kRandom;
  options.fetch = EngineOptions::Fetch::kRandom;
  options.defer_delivery = true;
  options.retransmit = random() % 2 == 0;
  options.late_acknowledgements = random() % 2 == 0;
  return options;
}

// The offset of a line that is in use, by the bytes in it.
uint64_t UsedLine(std::span<const std::byte> region, std::mt19937_64& random) {
  constexpr uint64_t kLine = softrnic::PersistenceModel::kLine;
  std::vector<uint64_t> used;
  for (uint64_t at = 0; at < region.size(); at += kLine) {
    const auto empty = [](std::byte each) { return each == std::byte{0}; };
    if (!std::ranges::all_of(region.subspan(at, kLine), empty)) used.push_back(at);
  }
  return used[random() % used.size()];
}

}  // namespace

World::World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log)
    : World(std::move(folder), random, std::move(log), kCounts[random() % kCounts.size()]) {}

World::World(std::string folder, std::mt19937_64& random, std::shared_ptr<Log> log, size_t count)
    : folder_(std::move(folder)),
      random_(random),
      log_(std::move(log)),
      fabric_{Hosts(count), random() % 2 == 0, EngineOptionsBy(random), random()},
      replicas_(count) {
  ports_.resize(count);
  for (int i = 0; i < this->count(); ++i) Start(i);
  for (const auto& each : replicas_) options_.replicas.push_back(each->address());
  options_.device = "simulated";
  options_.journal_size = 256 << 10;
  options_.table_capacity = 64;
  options_.ack_timeout = kAckTimeout;
  options_.connect_timeout = kAckTimeout;
}

World::~World() = default;

bool World::AllUp() const {
  return std::ranges::all_of(replicas_, [](const auto& each) { return each != nullptr; });
}

void World::Start(int replica) {
  const std::string name = NameOf(replica);
  auto started = test::EmbeddedReplica::Start(
      fabric_.rnic(name), name, folder_ + "/" + name, kRegion,
      [](const control::BodyUnion&) { return test::EmbeddedReplica::Fate::kHandled; },
      &fabric_.power(name), ports_[Index(replica)]);
  MustBeOk(started.status());
  replicas_[Index(replica)] = std::move(started).value();
  ports_[Index(replica)] = replicas_[Index(replica)]->port();
}

void World::Kill(int replica) { replicas_[Index(replica)].reset(); }

void World::LosePower(int replica) {
  replicas_[Index(replica)]->LosePower(random_);
  Kill(replica);
}

void World::SetReachable(int replica, bool reachable) const {
  simulation::SetReachable(ports_[Index(replica)], reachable);
}

uint64_t World::Damage(const std::string& host) {
  auto pool = Pool::Open(folder_ + "/" + host);
  MustBeOk(pool.status());
  const std::span<std::byte> region = (*pool)->region();
  const uint64_t at = UsedLine(region, random_);
  const uint64_t size = random_() % 2 == 0 ? 1 : kMostDamage;
  for (std::byte& each : region.subspan(at, std::min(size, region.size() - at)))
    each ^= static_cast<std::byte>(1 + random_() % 255);
  return at;
}

Result<std::unique_ptr<Store>> World::Open(const std::string& host) {
  StoreOptions options = options_;
  options.pool = folder_ + "/" + host;
  return OpenSessionStore(
      options, [this, host] { return fabric_.rnic(host).OpenDevice(host); }, log_);
}

}  // namespace hyperloop::simulation
