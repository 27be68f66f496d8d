#include "softrnic/engine/testing/persistence_model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t Bits(size_t first, size_t count) {
  return (count == 64 ? ~0ull : (1ull << count) - 1) << first;
}

}  // namespace

PersistenceModel::LineBytes PersistenceModel::LineOf(std::span<const std::byte> bytes,
                                                     uint64_t line) {
  LineBytes out;
  std::memcpy(out.data(), bytes.data() + line * kLine, kLine);
  return out;
}

void PersistenceModel::Apply(const Store& store, uint64_t mask, std::byte* line) {
  for (mask &= store.mask; mask != 0; mask &= mask - 1) {
    const auto i = static_cast<size_t>(__builtin_ctzll(mask));
    line[i] = store.bytes[i];
  }
}

void PersistenceModel::Watch(std::span<const std::byte> region) {
  const MutexLock lock(mutex_);
  if (reinterpret_cast<uintptr_t>(region.data()) % kLine != 0 || region.size() % kLine != 0)
    std::abort();  // a test's mistake
  Region& added = regions_[region.data()];
  added.visible = region;
  added.durable.assign(region.begin(), region.end());
}

void PersistenceModel::Unwatch(std::span<const std::byte> region) {
  const MutexLock lock(mutex_);
  const auto it = regions_.find(region.data());
  if (it == regions_.end()) return;
  for (auto& [qpn, lines] : lines_of_)
    std::erase_if(lines, [&](const auto& line) { return line.first == &it->second; });
  regions_.erase(it);
}

PersistenceModel::Region* PersistenceModel::Find(const std::byte*& at, size_t& size) {
  const std::byte* const end = at + size;
  auto it = regions_.lower_bound(end);  // the first that begins at or behind the end
  if (it == regions_.begin()) return nullptr;
  Region& region = (--it)->second;
  const std::byte* const region_end = region.visible.data() + region.visible.size();
  const std::byte* const first = std::max(at, region.visible.data());
  const std::byte* const last = std::min(end, region_end);
  if (first >= last) return nullptr;
  at = first;
  size = static_cast<size_t>(last - first);
  return &region;
}

const PersistenceModel::Region& PersistenceModel::At(const std::byte* base) const {
  const auto it = regions_.find(base);
  if (it == regions_.end()) std::abort();  // not watched: a test's mistake
  return it->second;
}

void PersistenceModel::Arrived(uint32_t qpn, const std::byte* at, size_t size) {
  const MutexLock lock(mutex_);
  Region* const region = Find(at, size);
  if (region == nullptr) return;
  auto offset = static_cast<uint64_t>(at - region->visible.data());
  const uint64_t end = offset + size;
  while (offset < end) {
    const uint64_t line = offset / kLine;
    const size_t first = offset % kLine;
    const size_t count = std::min<size_t>(end - offset, kLine - first);
    Store store{qpn, Bits(first, count), {}};
    std::memcpy(store.bytes.data() + first, region->visible.data() + offset, count);
    region->pending[line].push_back(store);
    lines_of_[qpn].insert({region, line});
    offset += count;
  }
}

// Makes the pending stores of `qpn` to the line durable. A later store to a byte wins over an
// earlier one: newer pending stores keep their mask, and older ones lose the bytes that are durable
// now.
void PersistenceModel::FlushLine(Region& region, uint64_t line, uint32_t qpn) {
  const auto it = region.pending.find(line);
  if (it == region.pending.end()) return;
  uint64_t durable = 0;
  for (auto store = it->second.rbegin(); store != it->second.rend(); ++store) {
    if (store->qpn == qpn) {
      Apply(*store, ~durable, region.durable.data() + line * kLine);
      durable |= store->mask;
      store->mask = 0;
    } else {
      store->mask &= ~durable;
    }
  }
  std::erase_if(it->second, [](const Store& store) { return store.mask == 0; });
  if (it->second.empty()) region.pending.erase(it);
}

void PersistenceModel::Flushed(uint32_t qpn) {
  const MutexLock lock(mutex_);
  if (ignore_all_ || ignored_.count(qpn) != 0) return;
  const auto it = lines_of_.find(qpn);
  if (it == lines_of_.end()) return;
  for (const auto& [region, line] : it->second) FlushLine(*region, line, qpn);
  lines_of_.erase(it);
}

void PersistenceModel::Gone(uint32_t qpn) {
  const MutexLock lock(mutex_);
  const auto it = lines_of_.find(qpn);
  if (it == lines_of_.end()) return;
  for (const auto& [region, line] : it->second) {
    const auto stores = region->pending.find(line);
    if (stores == region->pending.end()) continue;
    for (Store& store : stores->second)
      if (store.qpn == qpn) store.qpn = 0;
  }
  lines_of_.erase(it);
}

void PersistenceModel::Persist(const void* data, size_t size) {
  const MutexLock lock(mutex_);
  const auto* at = static_cast<const std::byte*>(data);
  Region* const region = Find(at, size);
  if (region == nullptr) return;
  const auto offset = static_cast<uint64_t>(at - region->visible.data());
  std::memcpy(region->durable.data() + offset, at, size);
  if (region->pending.empty()) return;
  for (uint64_t line = offset / kLine; line * kLine < offset + size; ++line) {
    const auto it = region->pending.find(line);
    if (it == region->pending.end()) continue;
    const uint64_t first = std::max(offset, line * kLine);
    const uint64_t last = std::min(offset + size, (line + 1) * kLine);
    for (Store& store : it->second) store.mask &= ~Bits(first % kLine, last - first);
    std::erase_if(it->second, [](const Store& store) { return store.mask == 0; });
    if (it->second.empty()) region->pending.erase(it);
  }
}

std::vector<std::byte> PersistenceModel::Durable(const std::byte* base) const {
  const MutexLock lock(mutex_);
  return At(base).durable;
}

std::vector<PersistenceModel::Store> PersistenceModel::Undecided(const Region& region,
                                                                 uint64_t line) {
  std::vector<Store> stores;
  LineBytes known = LineOf(region.durable, line);
  if (const auto it = region.pending.find(line); it != region.pending.end()) {
    stores = it->second;
    for (const Store& store : stores) Apply(store, ~0ull, known.data());
  }
  Store cpu{0, 0, LineOf(region.visible, line)};
  for (size_t i = 0; i < kLine; ++i)
    if (cpu.bytes[i] != known[i]) cpu.mask |= Bits(i, 1);
  if (cpu.mask != 0) stores.push_back(cpu);
  return stores;
}

std::vector<std::byte> PersistenceModel::PowerFailure(const std::byte* base,
                                                      std::mt19937_64& random) const {
  const MutexLock lock(mutex_);
  const Region& region = At(base);
  std::vector<std::byte> left = region.durable;
  for (uint64_t line = 0; line < left.size() / kLine; ++line) {
    std::byte* const at = left.data() + line * kLine;
    if (std::memcmp(at, region.visible.data() + line * kLine, kLine) == 0 &&
        region.pending.count(line) == 0)
      continue;
    const std::vector<Store> stores = Undecided(region, line);
    const size_t kept = random() % 2 == 0 ? (random() % 2) * stores.size()  // old or new
                                          : random() % (stores.size() + 1);
    for (size_t i = 0; i < kept; ++i) Apply(stores[i], ~0ull, at);
  }
  return left;
}

void PersistenceModel::IgnoreReadsOf(uint32_t qpn) {
  const MutexLock lock(mutex_);
  ignored_.insert(qpn);
}

void PersistenceModel::IgnoreAllReads(bool ignore) {
  const MutexLock lock(mutex_);
  ignore_all_ = ignore;
}

size_t PersistenceModel::UnflushedLines(const std::byte* base) const {
  const MutexLock lock(mutex_);
  const Region& region = At(base);
  size_t count = 0;
  for (uint64_t line = 0; line < region.durable.size() / kLine; ++line)
    count += std::memcmp(region.durable.data() + line * kLine, region.visible.data() + line * kLine,
                         kLine) != 0;
  return count;
}

}  // namespace hyperloop::softrnic
