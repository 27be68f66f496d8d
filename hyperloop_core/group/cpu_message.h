// The message of the cpu-polling and cpu-event datapaths, and the ring in which it arrives. It has
// the operation, the bytes of a short gWRITE, and the result area: every replica's CPU adds to
// that, and the last one writes it to the primary. All nodes are little-endian, and so is the
// message.
//
// Each replica has a ring of N slots, registered for remote writes. Whoever has the ring's key and
// a queue pair of the epoch's protection domain with remote write could write there; of the
// member's own that is `up` alone. The node before it puts message m into slot m mod N with one
// WRITE, which ends where the slot ends:
//
//   | unused | carried bytes of the gWRITE | CpuMessage | ReplicaResult × n | check, sequence |
//
// With cpu-polling the thread polls the slot's last word; nothing is received and no completion is
// made. With cpu-event the WRITE has an immediate, because a thread that sleeps needs a completion
// to be woken by.
//
// A slot is free when its message is sent. The primary starts operation m after the acknowledgement
// of operation m − W, and N ≥ 2W, so operation m − N, which had the slot, is acknowledged. The
// acknowledgement of an operation was sent by the last replica because of a message that each
// replica sent on after it had copied its own message out of the ring. So no node needs to be told
// of room: the acknowledgements that come anyway are the credits.
//
// A message is whole when its last word is its number and the check is right over all of it. That
// holds on any device, because nothing is assumed of the order in which the bytes of one WRITE
// arrive (polled_memory.h has what is assumed). While the last word is still that of the slot's
// last lap, nothing has come. All else is a message that is not whole yet, or never will be.
//
// The check has the ring's own key and queue in it (CpuRingSeed), so a message for another
// replica's ring is not whole in this one. Against those of an earlier arming, first of all, the
// ring is zeroed memory and the queue by which they would arrive is destroyed. The key and the
// queue's number are most often new, too, but a provider may give them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "group/messages.h"
#include "group/result_area.h"

namespace hyperloop {

struct CpuMessage {
  uint64_t write_offset, write_size;
  uint64_t copy_source, copy_destination, copy_size;
  uint64_t cas_offset, cas_expected, cas_desired;
  uint32_t execute_map;
  uint8_t has_cas, flush;
  uint16_t reserved;
  ResultHeader result;  // behind it a ReplicaResult for each replica
};
struct CpuMessageEnd {
  uint64_t check;
  uint64_t sequence;  // once more, as the last word
};
static_assert(sizeof(CpuMessage) == 80 && std::is_trivially_copyable_v<CpuMessage>);
static_assert(sizeof(CpuMessageEnd) == 16);
inline constexpr uint32_t kCpuMessageResult = offsetof(CpuMessage, result);

// A gWRITE of at most so many bytes travels in the message, and each replica's CPU puts them into
// the region. It saves a request for each hop. Longer ones cost the CPU more than the request.
inline constexpr uint32_t kMostCarried = 256;
constexpr uint32_t CarriedBytes(uint64_t write_size) {
  return write_size <= kMostCarried ? static_cast<uint32_t>(write_size) : 0;
}

// Without the carried bytes.
constexpr uint32_t CpuMessageBytes(uint32_t group_size) {
  return kCpuMessageResult + ResultBytes(group_size) + uint32_t{sizeof(CpuMessageEnd)};
}
constexpr uint32_t CpuSlotBytes(uint32_t group_size) {
  return (kMostCarried + CpuMessageBytes(group_size) + 63) / 64 * 64;
}
// Where slot `slot`, and so its message, ends in a ring that begins at `ring`.
constexpr uint64_t CpuSlotEnd(uint64_t ring, uint32_t slot, uint32_t group_size) {
  return ring + (uint64_t{slot} + 1) * CpuSlotBytes(group_size);
}
// Of the ring of `member`.
uint64_t CpuRingSeed(const MemberInfo& member);

// A place in private memory with a message that ends where the place ends. Not owned.
class CpuPlace {
 public:
  CpuPlace(std::byte* end, uint32_t group_size) : end_(end), group_size_(group_size) {}
  uint32_t group_size() const { return group_size_; }
  std::byte* end() const { return end_; }
  std::byte* begin() const { return end_ - CpuMessageBytes(group_size_); }
  std::byte* carried(uint32_t bytes) const { return begin() - bytes; }
  CpuMessage& message() const { return *reinterpret_cast<CpuMessage*>(begin()); }
  ReplicaResult* results() const { return reinterpret_cast<ReplicaResult*>(&message() + 1); }
  CpuMessageEnd& tail() const {
    return *reinterpret_cast<CpuMessageEnd*>(end_ - sizeof(CpuMessageEnd));
  }

 private:
  std::byte* end_;
  uint32_t group_size_;
};

// Any odd numbers with as many ones as zeros.
inline constexpr uint64_t kCpuCheckFirst = 0xa0761d6478bd642f, kCpuCheckSecond = 0xe7037ed1a0b428db;

// One step of a check. With either of `sum` and `word` given, different others have different
// results. So no word makes the sum forget what came before it, and no sum overlooks a word.
constexpr uint64_t CpuCheckStep(uint64_t sum, uint64_t word, uint64_t odd_factor) {
  const uint64_t product = (sum ^ word) * odd_factor;
  return product ^ product >> 32;
}

// A sum of 64 bits over `bytes`. Contents that differ in one word never have the same one, and
// others by chance only. It is meant for what a device has not written yet, not for an enemy, who
// can compute it.
uint64_t CpuCheck(uint64_t seed, std::span<const std::byte> bytes);

// A message in a place, and its check, which covers what it carries, its CpuMessage and its
// results.
class CheckedMessage {
 public:
  CheckedMessage() : place_(nullptr, 0) {}
  // `carried`: what the message in `place` carries, wherever that is.
  CheckedMessage(const CpuPlace& place, std::span<const std::byte> carried);

  const CpuPlace& place() const { return place_; }
  // Changes a replica's result, and the check with it.
  void SetResult(uint32_t replica, const ReplicaResult& result);
  // Completes the message for the ring with this seed.
  void Finish(uint64_t seed) const {
    place_.tail() = {check_ ^ seed, place_.message().result.sequence};
  }
  bool IsWhole(uint64_t seed) const {
    const CpuMessageEnd& end = place_.tail();
    return end.sequence == place_.message().result.sequence && end.check == (check_ ^ seed);
  }

 private:
  CpuPlace place_;
  uint64_t check_ = 0;
};

// Copies what lies in the slot that ends at `slot_end`, and may be changed by its writer at any
// time, to `place`. Nothing else may be read of the slot. Returns whether the copy is a whole
// message, of whatever number, for the ring with this seed.
bool TakeCpuMessage(const std::byte* slot_end, uint64_t seed, const CpuPlace& place,
                    CheckedMessage* message);

CpuMessage EncodeCpuMessage(uint64_t sequence, const Operation& operation);
// Sets the operation in a message that came from another node. kCorruption: it is not number
// `sequence`, or no primary could have submitted it. The caller must then do no part of it.
Status DecodeCpuMessage(const CpuMessage& message, uint64_t sequence, uint64_t region_size,
                        uint32_t group_size, Operation* operation);

// The primary's messages; it sends what they carry from the region, and the check covers that as it
// is at Encode. If the caller changes it before the device fetches it, the message is never whole.
// The replicas' CPUs make bytes durable themselves. The primary reads only with every N/2-th
// operation: the READ's answer proves that the device will not fetch earlier requests in its ring
// again.
class CpuMessages final : public Messages {
 public:
  // `region`: the primary's.
  CpuMessages(const GroupGeometry& geometry, const std::byte* region)
      : Messages(geometry, CpuMessageBytes(geometry.group_size)), region_(region) {}
  bool Encode(uint64_t m, const Operation& operation) override;

 private:
  void WriteConstants(const PrimaryInfo&, std::span<const MemberInfo> chain) override {
    seed_ = CpuRingSeed(chain.front());
  }

  const std::byte* const region_;
  uint64_t seed_ = 0;
};

}  // namespace hyperloop
