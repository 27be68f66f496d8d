#include "softrnic/engine/durability.h"

#include <libpmem.h>

#include <algorithm>
#include <new>
#include <utility>

#include "softrnic/engine/durability_watch.h"
#include "softrnic/engine/flusher.h"

namespace hyperloop::softrnic {
namespace {

// The most bytes of pmem that one queue pair leaves to its next READ, because all other queue pairs
// wait for that flush.
constexpr uint64_t kMaxUnflushed = 16 << 10;
constexpr uint32_t kPersistedPerStep = 1024;
constexpr size_t kStepsPerFlush = 4;

}  // namespace

void Durability::NoteDirty(Qp& qp, const Segment& segment) {
  if (options_.test.watch != nullptr)
    options_.test.watch->Arrived(qp.qpn, segment.at, segment.length);
  // A segment is merged into a range that it touches. When the list is full, a file's segment is
  // merged into the range that grows least, since msync finds the dirty pages. A flush of pmem goes
  // over every line of its range, so a range of pmem must not contain untouched memory.
  const rnic::Media media = segment.key->media;
  const bool pmem = media == rnic::Media::kPmem;
  Qp::Dirty& dirty = qp.dirty;
  std::byte* const begin = segment.at;
  std::byte* const end = segment.at + segment.length;
  DirtyRange* best = nullptr;
  uint64_t best_growth = ~0ull;
  for (size_t i = 0; i < dirty.count; ++i) {
    DirtyRange& range = dirty.ranges[i];
    if (range.media != media || range.umem != segment.key->umem) continue;
    const auto growth = static_cast<uint64_t>(
        (std::max(end, range.end) - std::min(begin, range.begin)) - (range.end - range.begin));
    const bool touches = begin <= range.end && end >= range.begin;
    if (!touches && (pmem || dirty.count < kMaxDirtyRanges)) continue;
    if (growth < best_growth) best = &range, best_growth = growth;
  }
  if (best == nullptr) {
    if (dirty.count == kMaxDirtyRanges) {  // the oldest range is flushed early, which is allowed
      FlushRange(qp, dirty.ranges[0]);
      std::move(dirty.ranges.begin() + 1, dirty.ranges.end(), dirty.ranges.begin());
      --dirty.count;
    }
    best = &dirty.ranges[dirty.count++];
    *best = {begin, begin, media, segment.key->umem};
  }
  best->begin = std::min(best->begin, begin);
  best->end = std::max(best->end, end);
  if (!pmem) return;
  turn_.AddSteps(segment.length / kPersistedPerStep);
  uint64_t unflushed = 0;
  for (size_t i = 0; i < dirty.count; ++i)
    if (dirty.ranges[i].media == media)
      unflushed += static_cast<uint64_t>(dirty.ranges[i].end - dirty.ranges[i].begin);
  if (unflushed <= kMaxUnflushed) return;
  for (size_t i = 0; i < dirty.count; ++i) {
    DirtyRange& range = dirty.ranges[i];
    if (range.media != media) continue;
    FlushRange(qp, range);
    range.begin = range.end;  // it is empty now, and the next write behind it extends it
  }
}

// For pmem this only starts the write-back. FlushDirty waits for it, once for all ranges.
void Durability::FlushRange(Qp& qp, const DirtyRange& range) {
  // A range in RAM is listed for the watch alone.
  if (range.media == rnic::Media::kRam || range.begin == range.end) return;
  ++qp.count.media_flushes;
  turn_.AddSteps(kStepsPerFlush);
  qp.count.media_flushed_bytes += static_cast<uint64_t>(range.end - range.begin);
  if (range.media == rnic::Media::kPmem) {
    pmem_flush(range.begin, static_cast<size_t>(range.end - range.begin));
    undrained_ = true;
    return;
  }
  const Umem& umem = *range.umem;
  FileRange file{range.begin,       range.end,
                 umem.fd,           umem.fd_offset + static_cast<uint64_t>(range.end - umem.base),
                 umem.flush_failed, umem.owner};
  const bool later = options_.flusher != nullptr && umem.waits_for_disk;
  if (!(later ? FlushLater(qp, std::move(file)) : MakeDurable(file))) qp.dirty.flush_failed = true;
}

// False: the flusher has no room for `range`, or there is no memory.
bool Durability::FlushLater(Qp& qp, FileRange range) {
  try {
    if (qp.dirty.flush == nullptr) qp.dirty.flush = std::make_shared<FlushJob>();
  } catch (const std::bad_alloc&) {
    return false;
  }
  qp.dirty.flushes = true;
  qp.dirty.flush->left.fetch_add(1, std::memory_order_relaxed);
  if (options_.flusher->Flush(qp.account->client, std::move(range), qp.dirty.flush)) return true;
  qp.dirty.flush->left.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Durability::FlushDirty(Qp& qp) {
  for (size_t i = 0; i < qp.dirty.count; ++i) FlushRange(qp, qp.dirty.ranges[i]);
  if (std::exchange(undrained_, false)) pmem_drain();
  qp.dirty.count = 0;
}

// Files on a disk are left to the kernel. Otherwise a client that makes and resets queue pairs
// could have any number of flushes under way.
void Durability::Forget(Qp& qp) {
  Qp::Dirty& dirty = qp.dirty;
  DirtyRange* const end = std::remove_if(
      dirty.ranges.data(), dirty.ranges.data() + dirty.count, [this](const DirtyRange& range) {
        return options_.flusher != nullptr && range.umem->waits_for_disk;
      });
  dirty.count = static_cast<uint8_t>(end - dirty.ranges.data());
  if (dirty.count != 0) FlushDirty(qp);
  dirty.flush.reset();
  dirty.flushes = false;
  dirty.flush_failed = false;
}

Outcome Durability::FlushBehindRead(Qp& qp, bool again) {
  Qp::Dirty& dirty = qp.dirty;
  if (dirty.count == 0 && !dirty.flushes) return kOk;
  if (!again) FlushDirty(qp);
  if (dirty.flushes) {
    if (Flushing(qp)) return kFlushing;
    dirty.flush_failed |= dirty.flush->failed.load(std::memory_order_relaxed);
    dirty.flush.reset();
    dirty.flushes = false;
  }
  if (options_.test.watch != nullptr) options_.test.watch->Flushed(qp.qpn);
  if (!dirty.flush_failed) return kOk;
  dirty.flush_failed = false;
  return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
}

void Durability::FlushAllOf(Qp& qp, const Umem& umem) {
  const auto is_of = [&umem](const DirtyRange& range) { return range.umem == &umem; };
  if (std::none_of(qp.dirty.ranges.begin(), qp.dirty.ranges.begin() + qp.dirty.count, is_of))
    return;
  FlushDirty(qp);
  if (options_.test.watch != nullptr) options_.test.watch->Flushed(qp.qpn);
}

}  // namespace hyperloop::softrnic
