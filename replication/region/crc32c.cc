#include "region/crc32c.h"

#include <immintrin.h>
#include <isa-l/crc.h>

#include <array>

namespace hyperloop {
namespace {

// Numbers here are polynomials over GF(2) modulo Castagnoli's, with the lowest power in the highest
// bit, as in the CRC.
constexpr uint32_t kReversed = 0x82f63b78, kOne = 1u << 31;

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kReversed : 0);
  }
  return product;
}

// Values of x^(8 n), from which that of any n is multiplied: for the three lowest digits of n,
// which have 6 bits each, and for each higher bit of n.
struct Powers {
  std::array<std::array<uint32_t, 64>, 3> digits{};
  std::array<uint32_t, 64> bits{};

  constexpr Powers() {
    uint32_t step = kOne >> 8;  // x^8
    for (auto& digit : digits) {
      digit[0] = kOne;
      for (size_t i = 1; i < digit.size(); ++i) digit[i] = Multiply(digit[i - 1], step);
      step = Multiply(digit[63], step);
    }
    for (size_t i = 18; i < bits.size(); ++i, step = Multiply(step, step)) bits[i] = step;
  }
};
constexpr Powers kPowers;

// Multiply by means of the processor. The product of two such polynomials has 63 bits. A shift by
// one puts it where the CRC of 8 bytes expects its operand, and the CRC instruction reduces it.
#define HL_CARRYLESS __attribute__((target("pclmul,sse4.2")))
HL_CARRYLESS inline uint32_t MultiplyFast(uint32_t a, uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),
                                               _mm_cvtsi32_si128(static_cast<int>(b)), 0);
  const auto bits = static_cast<uint64_t>(_mm_cvtsi128_si64(product)) << 1;
  return static_cast<uint32_t>(bits >> 32) ^ _mm_crc32_u32(0, static_cast<uint32_t>(bits));
}

// `sum`: the CRC of `size` bytes with initial value 0. With initial value c the same bytes have the
// CRC c x^(8 size) + sum. Returns that for a and b.
HL_CARRYLESS Crc32cPair Join(uint32_t a, uint32_t b, uint32_t sum, uint64_t size) {
  uint32_t power = MultiplyFast(kPowers.digits[0][size & 63], kPowers.digits[1][size >> 6 & 63]);
  if (size >= 1 << 12) {
    power = MultiplyFast(power, kPowers.digits[2][size >> 12 & 63]);
    size >>= 18;
    for (size_t bit = 18; size != 0; ++bit, size >>= 1) {
      if ((size & 1) != 0) power = MultiplyFast(power, kPowers.bits[bit]);
    }
  }
  return {MultiplyFast(a, power) ^ sum, MultiplyFast(b, power) ^ sum};
}

const bool kFast = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  constexpr size_t kMost = size_t{1} << 30;  // ISA-L counts in int
  auto* p = static_cast<const unsigned char*>(data);
  while (size > kMost) {
    crc = crc32_iscsi(const_cast<unsigned char*>(p), static_cast<int>(kMost), crc);
    p += kMost;
    size -= kMost;
  }
  return crc32_iscsi(const_cast<unsigned char*>(p), static_cast<int>(size), crc);
}

Crc32cPair Crc32cTwice(uint32_t a, uint32_t b, const void* data, size_t size) {
  if (size < kCrc32cTwiceFrom || !kFast) return {Crc32c(a, data, size), Crc32c(b, data, size)};
  return Join(a, b, Crc32c(0, data, size), size);
}

}  // namespace hyperloop
