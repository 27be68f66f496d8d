// PersistenceModel: what would be left of memory if the power failed now. It is for tests and
// simulation: an engine whose EngineTestHooks::watch it is reports arrivals and flushes to it.
//
// A watched region has two contents: the visible one, which is its memory itself, and a durable
// image kept here. The rules (docs/rnic.md, Durability):
// - Bytes that arrive by a queue pair are visible at once and pending. A READ of at least one byte
//   that this queue pair serves makes durable only the bytes that had arrived by it.
// - Bytes that a CPU stored are durable once Persist names them. A READ does not cover them.
// - At a power failure each 64 B line keeps some of its pending stores: those up to any point in
//   the order in which they became visible, so perhaps all or none.
// - An older store never replaces a newer durable store to the same byte.
//
// Thread safety: any thread may call, the engine's thread included. Images read the visible
// content, so no thread may store to the region meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "softrnic/engine/durability_watch.h"

namespace hyperloop::softrnic {

class PersistenceModel final : public DurabilityWatch {
 public:
  static constexpr size_t kLine = 64;

  // Watches `region` from now on; its present content is durable. It must be 64 B aligned at both
  // ends, must not overlap another, and must be readable until Unwatch.
  void Watch(std::span<const std::byte> region);
  void Unwatch(std::span<const std::byte> region);

  // --- what happens; addresses outside all regions are ignored. The engine calls the first three.
  void Arrived(uint32_t qpn, const std::byte* at, size_t size) override;
  void Flushed(uint32_t qpn) override;
  void Gone(uint32_t qpn) override;
  // A CPU made [at, at + size) durable by the medium's own means.
  void Persist(const void* at, size_t size);

  // --- images; `base`: the first byte of a watched region
  // The content that survives for certain.
  std::vector<std::byte> Durable(const std::byte* base) const;
  // The content after a power failure now: one of the possible outcomes, chosen by `random`.
  std::vector<std::byte> PowerFailure(const std::byte* base, std::mt19937_64& random) const;
  // The number of lines whose visible content is not durable.
  size_t UnflushedLines(const std::byte* base) const;

  // Negative controls: READs that `qpn` serves, or all of them, flush nothing from now on.
  void IgnoreReadsOf(uint32_t qpn);
  void IgnoreAllReads(bool ignore);

 private:
  using LineBytes = std::array<std::byte, kLine>;
  // One queue pair's store into one line.
  struct Store {
    uint32_t qpn = 0;   // 0: gone
    uint64_t mask = 0;  // bit i: byte i of `bytes` counts
    LineBytes bytes;
  };
  struct Region {
    std::span<const std::byte> visible;
    std::vector<std::byte> durable;
    // By line number: pending stores in the order in which they became visible.
    std::unordered_map<uint64_t, std::vector<Store>> pending;
  };

  static LineBytes LineOf(std::span<const std::byte> bytes, uint64_t line);
  static void Apply(const Store& store, uint64_t mask, std::byte* line);
  // The region that overlaps [at, at + size). Null: none. `at` and `size` are cut to it.
  Region* Find(const std::byte*& at, size_t& size) HL_REQUIRES(mutex_);
  const Region& At(const std::byte* base) const HL_REQUIRES(mutex_);
  static void FlushLine(Region& region, uint64_t line, uint32_t qpn);
  // The stores that line `line` may still lose. Stores of a CPU, which no queue pair made, come
  // last.
  static std::vector<Store> Undecided(const Region& region, uint64_t line);

  mutable Mutex mutex_;
  std::map<const std::byte*, Region> regions_ HL_GUARDED_BY(mutex_);
  // Lines with a pending store of a queue pair.
  std::unordered_map<uint32_t, std::set<std::pair<Region*, uint64_t>>> lines_of_
      HL_GUARDED_BY(mutex_);
  std::set<uint32_t> ignored_ HL_GUARDED_BY(mutex_);
  bool ignore_all_ HL_GUARDED_BY(mutex_) = false;
};

}  // namespace hyperloop::softrnic
