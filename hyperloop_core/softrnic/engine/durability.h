// Durability notes what was written through each queue pair and is not durable yet; a READ on that
// queue pair makes it durable. It also counts the bytes that land in the rings of queues.
//
// Persistent memory is flushed at once. A file is flushed at once too, unless its disk may take
// long: then a Flusher's thread flushes it, and the READ waits for that (kFlushing) while all other
// queue pairs go on. A DurabilityWatch is told of every store and flush.
//
// May call: Turn, the Flusher and the DurabilityWatch of EngineOptions.
#pragma once

#include "softrnic/engine/objects.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/turn.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

class Durability {
 public:
  Durability(const EngineOptions& options, Turn& turn) : options_(options), turn_(turn) {}

  // Notes that `segment` was written through `qp`. `scatter`: a receive wrote it.
  void NoteWrite(Qp& qp, const Segment& segment, bool scatter) {
    const MemoryKey* const key = segment.key;
    if (key == nullptr) return;
    if (key->has_rings)
      (scatter ? qp.count.ring_bytes_by_scatter : qp.count.ring_bytes_by_other) +=
          key->umem->ring_map.Count(static_cast<uint64_t>(segment.at - key->umem->base),
                                    segment.length);
    if (key->has_media) [[unlikely]]
      NoteDirty(qp, segment);
  }
  // Makes durable, for a READ, what arrived on its queue pair before it. kFlushing: a Flusher is at
  // work; the READ is to come again with `again` set, which starts no further flush. Any other
  // value than kOk: something could not be made durable, and the READ fails with that syndrome.
  Outcome FlushBehindRead(Qp& qp, bool again);
  // Whether a flush of `qp` is under way on the Flusher's thread.
  static bool Flushing(const Qp& qp) {
    return qp.dirty.flush != nullptr && qp.dirty.flush->left.load(std::memory_order_acquire) != 0;
  }
  // Flushes what was written through `qp` if any of it lies in `umem`, which is about to be freed:
  // dirty ranges name memory by its address.
  void FlushAllOf(Qp& qp, const Umem& umem);
  // For the reset of `qp`, after which no READ asks for what was written through it. Flushes that
  // at once, except for files on a disk, which are left to the kernel.
  void Forget(Qp& qp);

 private:
  void NoteDirty(Qp& qp, const Segment& segment);
  void FlushRange(Qp& qp, const DirtyRange& range);
  bool FlushLater(Qp& qp, FileRange range);
  void FlushDirty(Qp& qp);

  const EngineOptions& options_;
  Turn& turn_;
  bool undrained_ = false;  // write-backs of pmem have begun since the last pmem_drain
};

}  // namespace hyperloop::softrnic
