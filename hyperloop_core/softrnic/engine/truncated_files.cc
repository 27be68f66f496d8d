#include "softrnic/engine/truncated_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace hyperloop::softrnic {
namespace {

constexpr uint32_t kMaxLogLostPages = 18;  // 1 GiB of 4 KiB pages
// The signal and the new mapping take as long as so many WQEs.
constexpr size_t kStepsOfFault = 64;
constexpr char kManyFaults[] =
    "too many faults in files that it truncated (--client-faults of the RNIC daemon)";
constexpr char kLostRings[] = "its queues lie in a file that it truncated";

bool Overlap(const std::byte* a, uint64_t a_length, const std::byte* b, const std::byte* b_end) {
  return a < b_end && a + a_length > b;
}

// Whether the context has rings in that memory. Queues in memory that is gone would run on over
// zeros.
bool HasRingsIn(const Context& c, const Umem& umem, const std::byte* begin, const std::byte* end) {
  bool found = false;
  const auto look = [&](const Umem* of, const std::byte* at, uint64_t length) {
    found |= of == &umem && Overlap(at, length, begin, end);
  };
  ForEachQp(c, [&](const Qp& qp) {
    if (qp.service.responder_only) return;
    look(qp.umem, qp.send.ring, (qp.send.mask + 1ull) * rnic::kWqebbBytes);
    look(qp.umem, qp.receive.dbrec, rnic::kDoorbellRecordBytes);
    if (qp.receive.exists)
      look(qp.umem, qp.receive.ring, (qp.receive.mask + 1ull) << qp.receive.log_stride);
  });
  for (const auto& [cqn, cq] : c.cqs) {
    look(cq->umem, cq->ring, (cq->mask + 1ull) * sizeof(mlx5_cqe64));
    look(cq->umem, cq->dbrec, rnic::kDoorbellRecordBytes);
  }
  return found;
}

bool ReplaceByZeros(std::byte* begin, std::byte* end) {
  return mmap(begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

}  // namespace

bool TruncatedFiles::HandleFault(void* address) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  auto* begin = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(address) & ~(page - 1));
  // All pages behind the new end of the file are lost. Each further fault in the same memory
  // replaces more of them, so that a file of many pages costs few mappings.
  std::byte* end = nullptr;
  const Umem* lost = nullptr;
  size_t looked = 0;
  clients_.ForEachContext([&](Context& c) {
    looked += c.umems.size();
    for (auto& [id, umem] : c.umems) {
      if (!Overlap(umem->base, umem->length, begin, begin + page)) continue;
      lost = umem.get();
      const uint64_t wanted = page << std::min(2 * umem->faults++, kMaxLogLostPages);
      const auto left = static_cast<uint64_t>(umem->base + umem->length - begin);
      const uint64_t taken = std::min(wanted, (left + page - 1) & ~(page - 1));
      if (end == nullptr || begin + taken < end) end = begin + taken;
      if (++c.account->faults > options_.limits.faults) clients_.Doom(*c.account, kManyFaults);
    }
  });
  if (lost == nullptr) return false;
  if (!ReplaceByZeros(begin, end)) {
    // The process may have no further mapping. One in place of all of the memory's is none.
    begin = lost->base;
    end = begin + ((lost->length + page - 1) & ~(page - 1));
    if (!ReplaceByZeros(begin, end)) return false;
  }
  clients_.ForEachContext([&](Context& c) {
    for (auto& [id, umem] : c.umems) {
      if (!Overlap(umem->base, umem->length, begin, end)) continue;
      const bool first = umem->lost_end == nullptr;
      umem->lost_begin = first ? begin : std::min(umem->lost_begin, begin);
      umem->lost_end = std::max(umem->lost_end, end);
      for (MemoryKey* key = umem->keys; key != nullptr; key = key->next_of_umem)
        if (Overlap(key->base, key->length, begin, end)) key->poisoned = true;
      if (HasRingsIn(c, *umem, begin, end)) clients_.Doom(*c.account, kLostRings);
    }
  });
  keys_.NoteFault();
  turn_.AddSteps(kStepsOfFault + looked / kPiecesPerStep);
  return true;
}

}  // namespace hyperloop::softrnic
