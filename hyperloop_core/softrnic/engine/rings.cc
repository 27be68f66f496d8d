#include "softrnic/engine/rings.h"

#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {

std::byte* RingAt(const Umem& umem, uint64_t addr, uint64_t bytes, uint64_t align) {
  if ((addr & (align - 1)) != 0 || addr < umem.addr) return nullptr;
  const uint64_t offset = addr - umem.addr;
  if (offset > umem.length || bytes > umem.length - offset) return nullptr;
  return umem.base + offset;
}

Status ReserveRings(Umem& umem, const ClientLimits& limits) {
  if (!umem.ring_map.empty()) return {};
  Account& account = *umem.account;
  const uint64_t bytes = RingMap::BytesFor(umem.length);
  if (account.table_bytes + bytes > limits.table_bytes)
    return NoSpace(Text("queues in this memory of ", umem.length, " B need a table of ", bytes,
                        " B; this client's have ", account.table_bytes, " of ", limits.table_bytes,
                        " B (--client-table-mib of the RNIC daemon): put queues into smaller "
                        "pieces of memory"));
  if (!umem.ring_map.Create(umem.length))
    return NoSpace(Text("mapping a table of ", bytes, " B for queues"));
  account.table_bytes += bytes;
  for (MemoryKey* key = umem.keys; key != nullptr; key = key->next_of_umem) key->has_rings = true;
  return {};
}

void MarkRings(const Qp& qp, bool present) {
  qp.umem->ring_map.Mark(qp.args.sq_addr - qp.umem->addr, (qp.send.mask + 1ull) * rnic::kWqebbBytes,
                         present);
  qp.umem->ring_map.Mark(qp.args.dbrec_addr - qp.umem->addr, rnic::kDoorbellRecordBytes, present);
  if (qp.receive.exists)
    qp.umem->ring_map.Mark(qp.args.rq_addr - qp.umem->addr,
                           (qp.receive.mask + 1ull) << qp.receive.log_stride, present);
}

void MarkRings(const Cq& cq, bool present) {
  cq.umem->ring_map.Mark(cq.ring_addr - cq.umem->addr, (cq.mask + 1ull) * sizeof(mlx5_cqe64),
                         present);
  cq.umem->ring_map.Mark(cq.dbrec_addr - cq.umem->addr, rnic::kDoorbellRecordBytes, present);
}

}  // namespace hyperloop::softrnic
