// Durability: what writes leave behind. Each queue pair remembers the memory that was written
// through it and is not durable yet; a READ on it makes that durable. Bytes that land in the rings
// of queues are counted.
//
// A flush of persistent memory happens at once; of a file it happens at once too, or, if the file's
// disk may take long, on a Flusher's thread, and the READ waits for that (kFlushing) while all
// other queue pairs go on. A PersistenceModel is told of every store and flush.
//
// May call: Turn, the Flusher and the PersistenceModel of EngineOptions.
#pragma once

#include "softrnic/engine/objects.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/turn.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

class Durability {
 public:
  Durability(const EngineOptions& options, Turn& turn) : options_(options), turn_(turn) {}

  // `segment` was written through `qp`. `scatter`: by a receive.
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
  // A READ makes durable what arrived on its queue pair before it. kFlushing: it is to come again
  // (`again`), and then waits for no more than that. Otherwise not kOk: something could not be made
  // durable, and the READ fails with that syndrome.
  Outcome FlushBehindRead(Qp& qp, bool again);
  // Whether a flush of `qp` is under way on the Flusher's thread.
  static bool Flushing(const Qp& qp) {
    return qp.dirty.flush != nullptr && qp.dirty.flush->left.load(std::memory_order_acquire) != 0;
  }
  // `umem` goes: dirty ranges name its memory by address, and nothing of it may be left.
  void FlushAllOf(Qp& qp, const Umem& umem);
  // `qp` is reset: nothing will ask for a flush of what was written through it.
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
