// Memory keys: translation, bounds, what writes leave behind (dirty media, ring bytes), truncated
// files.
#include <libpmem.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

// Bytes of pmem that one queue pair leaves to its next READ: that long everybody waits for it.
constexpr uint64_t kMaxUnflushed = 16 << 10;
constexpr uint32_t kPersistedPerStep = 1024;
constexpr size_t kStepsPerFlush = 4;

constexpr uint32_t kMaxLogLostPages = 18;  // 1 GiB of 4 KiB pages
constexpr char kManyFaults[] =
    "too many faults in files that it truncated (--client-faults of the RNIC daemon)";
constexpr char kLostRings[] = "its queues lie in a file that it truncated";

}  // namespace

Status Engine::Impl::ReserveRings(Umem& umem) {
  if (!umem.ring_map.empty()) return {};
  Account& account = *umem.account;
  const uint64_t bytes = RingMap::BytesFor(umem.length);
  if (account.table_bytes + bytes > options.limits.table_bytes)
    return NoSpace(Text("queues in this memory of ", umem.length, " B need a table of ", bytes,
                        " B; this client's have ", account.table_bytes, " of ",
                        options.limits.table_bytes,
                        " B (--client-table-mib of the RNIC daemon): put queues into smaller "
                        "pieces of memory"));
  if (!umem.ring_map.Create(umem.length))
    return NoSpace(Text("mapping a table of ", bytes, " B for queues"));
  account.table_bytes += bytes;
  for (MemoryKey* key = umem.keys; key != nullptr; key = key->next_of_umem) key->has_rings = true;
  return {};
}

void Engine::Impl::MarkRings(const Qp& qp, bool present) {
  qp.umem->ring_map.Mark(qp.args.sq_addr - qp.umem->addr, (qp.sq_mask + 1ull) * rnic::kWqebbBytes,
                         present);
  qp.umem->ring_map.Mark(qp.args.dbrec_addr - qp.umem->addr, rnic::kDoorbellRecordBytes, present);
  if (qp.has_rq)
    qp.umem->ring_map.Mark(qp.args.rq_addr - qp.umem->addr, (qp.rq_mask + 1ull) << qp.rq_log_stride,
                           present);
}

void Engine::Impl::MarkRings(const Cq& cq, bool present) {
  cq.umem->ring_map.Mark(cq.ring_addr - cq.umem->addr, (cq.mask + 1ull) * sizeof(mlx5_cqe64),
                         present);
  cq.umem->ring_map.Mark(cq.dbrec_addr - cq.umem->addr, rnic::kDoorbellRecordBytes, present);
}

// Remembers what a later READ makes durable.
void Engine::Impl::NoteDirty(Qp& qp, const Segment& segment) {
  if (options.persistence != nullptr)
    options.persistence->Arrived(qp.qpn, segment.at, segment.length);
  // The list merges: into a range it touches; of a file, when the list is full, into the one that
  // grows least (msync finds the dirty pages). A flush of pmem goes over every line of its range,
  // so untouched memory must not be in it.
  const rnic::Media media = segment.key->media;
  const bool pmem = media == rnic::Media::kPmem;
  std::byte* const begin = segment.at;
  std::byte* const end = segment.at + segment.length;
  DirtyRange* best = nullptr;
  uint64_t best_growth = ~0ull;
  for (size_t i = 0; i < qp.dirty_count; ++i) {
    DirtyRange& range = qp.dirty[i];
    if (range.media != media || range.umem != segment.key->umem) continue;
    const auto growth = static_cast<uint64_t>(
        (std::max(end, range.end) - std::min(begin, range.begin)) - (range.end - range.begin));
    const bool touches = begin <= range.end && end >= range.begin;
    if (!touches && (pmem || qp.dirty_count < kMaxDirtyRanges)) continue;
    if (growth < best_growth) best = &range, best_growth = growth;
  }
  if (best == nullptr) {
    if (qp.dirty_count == kMaxDirtyRanges) {  // the oldest is flushed early, which is allowed
      FlushRange(qp, qp.dirty[0]);
      std::move(qp.dirty.begin() + 1, qp.dirty.end(), qp.dirty.begin());
      --qp.dirty_count;
    }
    best = &qp.dirty[qp.dirty_count++];
    *best = {begin, begin, media, segment.key->umem};
  }
  best->begin = std::min(best->begin, begin);
  best->end = std::max(best->end, end);
  if (!pmem) return;
  turn.AddSteps(segment.length / kPersistedPerStep);
  uint64_t unflushed = 0;
  for (size_t i = 0; i < qp.dirty_count; ++i)
    if (qp.dirty[i].media == media)
      unflushed += static_cast<uint64_t>(qp.dirty[i].end - qp.dirty[i].begin);
  if (unflushed <= kMaxUnflushed) return;
  for (size_t i = 0; i < qp.dirty_count; ++i) {
    DirtyRange& range = qp.dirty[i];
    if (range.media != media) continue;
    FlushRange(qp, range);
    range.begin = range.end;  // what follows it touches it
  }
}

// Of pmem the write-back begins here, and is over with FlushDirty: one wait for all ranges.
void Engine::Impl::FlushRange(Qp& qp, const DirtyRange& range) {
  // In RAM it is here for the persistence model alone.
  if (range.media == rnic::Media::kRam || range.begin == range.end) return;
  ++qp.count.media_flushes;
  turn.AddSteps(kStepsPerFlush);
  qp.count.media_flushed_bytes += static_cast<uint64_t>(range.end - range.begin);
  if (range.media == rnic::Media::kPmem) {
    pmem_flush(range.begin, static_cast<size_t>(range.end - range.begin));
    undrained = true;
    return;
  }
  const Umem& umem = *range.umem;
  FileRange file{range.begin,       range.end,
                 umem.fd,           umem.fd_offset + static_cast<uint64_t>(range.end - umem.base),
                 umem.flush_failed, umem.owner};
  const bool later = options.flusher != nullptr && umem.waits_for_disk;
  if (!(later ? FlushLater(qp, std::move(file)) : MakeDurable(file))) qp.flush_failed = true;
}

// False: there is no room for it.
bool Engine::Impl::FlushLater(Qp& qp, FileRange range) {
  try {
    if (qp.flush == nullptr) qp.flush = std::make_shared<FlushJob>();
  } catch (const std::bad_alloc&) {
    return false;
  }
  qp.flushes = true;
  qp.flush->left.fetch_add(1, std::memory_order_relaxed);
  if (options.flusher->Flush(qp.account->client, std::move(range), qp.flush)) return true;
  qp.flush->left.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Engine::Impl::FlushDirty(Qp& qp) {
  for (size_t i = 0; i < qp.dirty_count; ++i) FlushRange(qp, qp.dirty[i]);
  if (std::exchange(undrained, false)) pmem_drain();
  qp.dirty_count = 0;
}

// Nothing will ask for a flush of what `qp` wrote. Of files on a disk it is left to the kernel: a
// client that makes and resets queue pairs would have any number of flushes under way.
void Engine::Impl::ForgetDirty(Qp& qp) {
  DirtyRange* const end = std::remove_if(
      qp.dirty.data(), qp.dirty.data() + qp.dirty_count, [this](const DirtyRange& range) {
        return options.flusher != nullptr && range.umem->waits_for_disk;
      });
  qp.dirty_count = static_cast<uint8_t>(end - qp.dirty.data());
  if (qp.dirty_count != 0) FlushDirty(qp);
  qp.flush.reset();
  qp.flushes = false;
  qp.flush_failed = false;
}

// A READ makes durable what arrived on its queue pair before it. kFlushing: it is to come again,
// and then waits for no more than that.
Outcome Engine::Impl::FlushBehindRead(Qp& qp, bool again) {
  if (qp.dirty_count == 0 && !qp.flushes) return kOk;
  if (!again) FlushDirty(qp);
  if (qp.flushes) {
    if (Flushing(qp)) return kFlushing;
    qp.flush_failed |= qp.flush->failed.load(std::memory_order_relaxed);
    qp.flush.reset();
    qp.flushes = false;
  }
  if (options.persistence != nullptr) options.persistence->Flushed(qp.qpn);
  if (!qp.flush_failed) return kOk;
  qp.flush_failed = false;
  return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
}

// --- truncated files

namespace {

bool Overlap(const std::byte* a, uint64_t a_length, const std::byte* b, const std::byte* b_end) {
  return a < b_end && a + a_length > b;
}

}  // namespace

// Queues in memory that is nobody's any more would go on over zeros.
bool Engine::Impl::HasRingsIn(const Context& c, const Umem& umem, const std::byte* begin,
                              const std::byte* end) {
  bool found = false;
  const auto look = [&](const Umem* of, const std::byte* at, uint64_t length) {
    found |= of == &umem && Overlap(at, length, begin, end);
  };
  ForEachQp(c, [&](const Qp& qp) {
    if (qp.responder_only) return;
    look(qp.umem, qp.sq, (qp.sq_mask + 1ull) * rnic::kWqebbBytes);
    look(qp.umem, qp.dbrec, rnic::kDoorbellRecordBytes);
    if (qp.has_rq) look(qp.umem, qp.rq, (qp.rq_mask + 1ull) << qp.rq_log_stride);
  });
  for (const auto& [cqn, cq] : c.cqs) {
    look(cq->umem, cq->ring, (cq->mask + 1ull) * sizeof(mlx5_cqe64));
    look(cq->umem, cq->dbrec, rnic::kDoorbellRecordBytes);
  }
  return found;
}

bool Engine::Impl::HandleFault(void* address) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  auto* const begin =
      reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(address) & ~(page - 1));
  // What follows the end of a file is lost with it. Each further fault takes more of the same
  // memory, so that a file of many pages costs few mappings.
  std::byte* end = nullptr;
  for (auto& [number, c] : contexts)
    for (auto& [id, umem] : c->umems) {
      if (!Overlap(umem->base, umem->length, begin, begin + page)) continue;
      const uint64_t wanted = page << std::min(2 * umem->faults++, kMaxLogLostPages);
      const auto left = static_cast<uint64_t>(umem->base + umem->length - begin);
      const uint64_t taken = std::min(wanted, (left + page - 1) & ~(page - 1));
      if (end == nullptr || begin + taken < end) end = begin + taken;
      if (++c->account->faults > options.limits.faults) Doom(*c->account, kManyFaults);
    }
  if (end == nullptr ||
      mmap(begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
    return false;
  for (auto& [number, c] : contexts)
    for (auto& [id, umem] : c->umems) {
      if (!Overlap(umem->base, umem->length, begin, end)) continue;
      const bool first = umem->lost_end == nullptr;
      umem->lost_begin = first ? begin : std::min(umem->lost_begin, begin);
      umem->lost_end = std::max(umem->lost_end, end);
      for (MemoryKey* key = umem->keys; key != nullptr; key = key->next_of_umem)
        if (Overlap(key->base, key->length, begin, end)) key->poisoned = true;
      if (HasRingsIn(*c, *umem, begin, end)) Doom(*c->account, kLostRings);
    }
  keys.NoteFault();
  return true;
}

void Engine::Impl::EvictDoomed() {
  doomed = false;
  for (auto& [number, account] : accounts)
    if (const char* const why = std::exchange(account->doomed, nullptr)) Evict(*account, why);
}

}  // namespace hyperloop::softrnic
