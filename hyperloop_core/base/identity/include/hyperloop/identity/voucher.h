// Vouchers: how a host says something to others through hosts that neither believes.
//
// A voucher is a keyed hash of what is said. Its key is the secret that the key pairs of two hosts
// have in common, so only these two can make it. There is one for each host that is to believe it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {

inline constexpr size_t kVoucherBytes = 32;
using Voucher = std::array<unsigned char, kVoucherBytes>;
// Of the hosts that are to believe something, no more get a voucher.
inline constexpr size_t kMostVouchers = 64;

// This host's vouchers for `what`, for itself and the hosts that its `trusted` gives one of
// `roles`.
std::vector<Voucher> Vouch(const KeyRing& ring, std::string_view what, Roles roles);
// Whether one of these is for this host, and was made by itself or by a host that its `trusted`
// gives one of `roles`.
bool IsVouched(const KeyRing& ring, std::string_view what, std::span<const Voucher> vouchers,
               Roles roles);

}  // namespace hyperloop::identity
