#include "group/cpu_message.h"

#include <bit>
#include <cstring>

#include "group/check_operation.h"
#include "group/polled_memory.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

static_assert(std::endian::native == std::endian::little);

namespace {

uint64_t Load(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

uint64_t Mixed(uint64_t sum) {
  return CpuCheckStep(CpuCheckStep(sum, 0, kCpuCheckSecond), 0, kCpuCheckFirst);
}

// What a replica's result adds to a check.
uint64_t CheckOf(uint32_t replica, const ReplicaResult& result) {
  const uint64_t start = kCpuCheckSecond + replica;
  return Mixed(CpuCheckStep(CpuCheckStep(start, result.original, kCpuCheckFirst), result.word,
                            kCpuCheckSecond));
}

}  // namespace

// Two sums, of every other word, because each step waits for the one before it.
uint64_t CpuCheck(uint64_t seed, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  uint64_t even = seed ^ kCpuCheckFirst, odd = kCpuCheckSecond;
  const auto add = [&](const std::byte* block) {
    even = CpuCheckStep(even, Load(block), kCpuCheckFirst);
    odd = CpuCheckStep(odd, Load(block + 8), kCpuCheckSecond);
  };
  for (; left >= 16; left -= 16, at += 16) add(at);
  if (left != 0) {
    std::byte rest[16] = {};
    std::memcpy(rest, at, left);
    add(rest);
  }
  return Mixed(
      CpuCheckStep(CpuCheckStep(bytes.size(), even, kCpuCheckSecond), odd, kCpuCheckFirst));
}

uint64_t CpuRingSeed(const MemberInfo& member) {
  const uint64_t key_and_queue = uint64_t{member.staging_rkey} << 32 | member.up_qpn;
  return Mixed(CpuCheckStep(CpuCheckStep(0, key_and_queue, kCpuCheckFirst), member.staging_addr,
                            kCpuCheckSecond));
}

// --- checked messages

CheckedMessage::CheckedMessage(const CpuPlace& place, std::span<const std::byte> carried)
    : place_(place), check_(CpuCheck(CpuCheck(0, carried), {place.begin(), sizeof(CpuMessage)})) {
  for (uint32_t i = 0; i < place.group_size(); ++i) check_ ^= CheckOf(i, place.results()[i]);
}

void CheckedMessage::SetResult(uint32_t replica, const ReplicaResult& result) {
  ReplicaResult& old = place_.results()[replica];
  check_ ^= CheckOf(replica, old) ^ CheckOf(replica, result);
  old = result;
}

bool TakeCpuMessage(const std::byte* slot_end, uint64_t seed, const CpuPlace& place,
                    CheckedMessage* message) {
  const uint32_t fixed = CpuMessageBytes(place.group_size());
  const std::byte* const size_at = slot_end - fixed + offsetof(CpuMessage, write_size);
  const uint32_t carried = CarriedBytes(LoadPolled(reinterpret_cast<const uint64_t*>(size_at)));
  const std::byte* const from = slot_end - fixed - carried;
  CopyPolled(place.carried(carried), from, fixed + carried);
  if (CarriedBytes(place.message().write_size) != carried) return false;  // it has changed since
  *message = CheckedMessage(place, {place.carried(carried), carried});
  if (!message->IsWhole(seed)) return false;
  AcquirePolled(from);
  return true;
}

// --- messages

CpuMessage EncodeCpuMessage(uint64_t sequence, const Operation& op) {
  return {.write_offset = op.write.offset,
          .write_size = op.write.size,
          .copy_source = op.copy.source,
          .copy_destination = op.copy.destination,
          .copy_size = op.copy.size,
          .cas_offset = op.cas.offset,
          .cas_expected = op.cas.expected,
          .cas_desired = op.cas.desired,
          .execute_map = op.cas.execute_map,
          .has_cas = op.cas.present,
          .flush = op.flush,
          .reserved = 0,
          .result = {sequence}};
}

Status DecodeCpuMessage(const CpuMessage& message, uint64_t sequence, uint64_t region_size,
                        uint32_t group_size, Operation* operation) {
  if (message.result.sequence != sequence || message.has_cas > 1 || message.flush > 1 ||
      message.reserved != 0) [[unlikely]] {
    return Corruption(Text("message number ", message.result.sequence, " (flags ",
                           unsigned{message.has_cas}, ", ", unsigned{message.flush}, ", ",
                           message.reserved, ") came where operation ", sequence, " was due"));
  }
  Operation& op = *operation;
  op.write = {message.write_offset, message.write_size};
  op.copy = {message.copy_source, message.copy_destination, message.copy_size};
  op.cas = {message.has_cas != 0, message.cas_offset, message.cas_expected, message.cas_desired,
            message.execute_map};
  op.flush = message.flush != 0;
  if (const Status good = CheckOperation(op, region_size, group_size); !good.ok()) [[unlikely]] {
    return Corruption(Text("operation ", sequence, " of the previous node: ", good.message()));
  }
  return Status::Ok();
}

bool CpuMessages::Encode(uint64_t m, const Operation& operation) {
  const CpuPlace place(message(m) + message_bytes(), geometry_.group_size);
  // The results behind it stay 0: replicas write into their own copies.
  place.message() = EncodeCpuMessage(m + 1, operation);
  const uint32_t carried = CarriedBytes(operation.write.size);
  CheckedMessage(place, {region_ + operation.write.offset, carried}).Finish(seed_);
  return geometry_.forces_flush(m);
}

}  // namespace hyperloop
