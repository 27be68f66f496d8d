#include "group/cpu_message.h"

#include <bit>
#include <cstring>

#include "group/check_operation.h"
#include "group/polled_memory.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

static_assert(std::endian::native == std::endian::little);

namespace {

__extension__ using Product = unsigned __int128;

// Any odd numbers with as many ones as zeros.
constexpr uint64_t kFirst = 0xa0761d6478bd642f, kSecond = 0xe7037ed1a0b428db;

// Each bit of the result depends on every bit of a and b.
uint64_t Fold(uint64_t a, uint64_t b) {
  const Product product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t Load(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// What a replica's result adds to a check.
uint64_t CheckOf(uint32_t replica, const ReplicaResult& result) {
  return Fold(result.original ^ kFirst, result.word ^ (kSecond + replica));
}

}  // namespace

uint64_t CpuCheck(uint64_t seed, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  uint64_t sum = seed ^ kFirst;
  for (; left >= 16; left -= 16, at += 16) sum = Fold(Load(at) ^ kSecond, Load(at + 8) ^ sum);
  if (left != 0) {
    std::byte rest[16] = {};
    std::memcpy(rest, at, left);
    sum = Fold(Load(rest) ^ kSecond, Load(rest + 8) ^ sum);
  }
  return Fold(sum ^ bytes.size(), kSecond);
}

uint64_t CpuRingSeed(const MemberInfo& member) {
  return Fold(uint64_t{member.staging_rkey} << 32 | member.up_qpn, kFirst) ^ member.staging_addr;
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
  if (message.result.sequence != sequence || message.has_cas > 1 || message.flush > 1)
      [[unlikely]] {
    return Corruption(Text("message number ", message.result.sequence, " (flags ",
                           unsigned{message.has_cas}, ", ", unsigned{message.flush},
                           ") came where operation ", sequence, " was due"));
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
