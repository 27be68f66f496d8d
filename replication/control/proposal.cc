#include "control/proposal.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "hyperloop/core/text.h"
#include "hyperloop/identity/voucher.h"

namespace hyperloop::control {
namespace {

using identity::kVoucherBytes;
using identity::TrustedPeer;
using identity::Voucher;

// `owner`: the digest of the id of the one that installed the configuration.
std::string Statement(const std::string& group, uint64_t epoch, std::span<const uint8_t> owner,
                      const std::string& replica, bool leaves) {
  std::string statement =
      Text(leaves ? "remove" : "add", " replica ", replica, leaves ? " from" : " to", " group ",
           group, " as configured by epoch ", epoch, " of owner");
  for (const uint8_t each : owner) statement += Text(" ", unsigned{each});
  return statement;
}

bool TellAlike(const HelloReplyT& a, const HelloReplyT& b) {
  return a.group == b.group && a.installed_epoch == b.installed_epoch &&
         a.served_epoch == b.served_epoch && a.served_owner == b.served_owner &&
         a.installed_nodes == b.installed_nodes && a.installed_replicas == b.installed_replicas &&
         a.absent_nodes == b.absent_nodes && a.absent_replicas == b.absent_replicas;
}

std::vector<Voucher> Split(std::span<const uint8_t> bytes) {
  std::vector<Voucher> vouchers(bytes.size() / kVoucherBytes);
  for (size_t i = 0; i < vouchers.size(); ++i)
    std::ranges::copy(bytes.subspan(i * kVoucherBytes, kVoucherBytes), vouchers[i].begin());
  return vouchers;
}

bool IsSameHost(const identity::Peer& a, const identity::Peer& b) {
  return std::ranges::any_of(a.lines(), [&](const TrustedPeer& line) {
    return std::ranges::any_of(b.lines(), [&](const TrustedPeer& other) {
      return line.key == other.key || line.name == other.name;
    });
  });
}

}  // namespace

const HelloReplyT* ToldByMost(std::span<const HelloReplyT> answers, size_t of) {
  for (const HelloReplyT& each : answers) {
    const auto alike = std::ranges::count_if(
        answers, [&](const HelloReplyT& other) { return TellAlike(each, other); });
    if (2 * static_cast<size_t>(alike) > of) return &each;
  }
  return nullptr;
}

ProposeRequestT MakeProposal(const Trust& trust, const HelloReplyT& seen, std::string replica,
                             bool leaves) {
  ProposeRequestT request;
  request.group = seen.group;
  request.leaves = leaves;
  request.epoch = seen.installed_epoch;
  if (const auto ring = trust.Ring(); ring != nullptr) {
    const std::string statement =
        Statement(seen.group, seen.installed_epoch, seen.served_owner, replica, leaves);
    for (const Voucher& each : identity::Vouch(*ring, statement, identity::kRolePrimary))
      request.vouchers.insert(request.vouchers.end(), each.begin(), each.end());
  }
  request.replica = std::move(replica);
  return request;
}

Status CheckProposal(const Trust& trust, const HelloReplyT& told, bool leaves,
                     const std::string& group, uint64_t epoch, std::span<const uint8_t> owner) {
  const auto ring = trust.Ring();
  if (ring == nullptr) return {};
  const std::vector<Voucher> vouchers = Split(told.proposal_vouchers);
  if (vouchers.empty()) {
    return NotSupported(
        Text("it comes without a voucher, as from hyperloopctl or through a replica of an older "
             "release: run hyperloopctl ",
             leaves ? "remove" : "add", " of this release, and the replicas, too"));
  }
  if (told.proposal_epoch != epoch) {
    return PermissionDenied(Text("it was vouched for when the group was as configured by epoch ",
                                 told.proposal_epoch, ", and now it is so by epoch ", epoch));
  }
  const std::string& replica = leaves ? told.leaving_replica : told.proposed_replica;
  const std::string statement = Statement(group, epoch, owner, replica, leaves);
  if (identity::IsVouched(*ring, statement, vouchers, identity::kRolePrimary)) return {};
  return PermissionDenied(
      Text("no host that is a primary in ", ring->dir(),
           "/trusted vouches for it: run hyperloopctl ", leaves ? "remove" : "add",
           " on this host, or on one that has the role primary here, and there trusts this host's "
           "key with that role"));
}

Status CheckNewcomer(const Trust& trust, const Seat& newcomer, std::span<const Seat> members) {
  const auto ring = trust.Ring();
  if (ring == nullptr) return {};
  const auto& lines = newcomer.peer.lines();
  const auto is_own = [&](const TrustedPeer& line) { return line.key == ring->public_key(); };
  if (std::ranges::any_of(lines, is_own)) return {};
  const std::string here = newcomer.endpoint.ToString();
  const auto is_placed = [&](const TrustedPeer& line) {
    return (line.roles & identity::kRoleReplica) != 0 && line.endpoint == here;
  };
  if (std::ranges::none_of(lines, is_placed)) {
    return PermissionDenied(Text(
        "no line of ", newcomer.peer.names(), " in ", ring->dir(),
        "/trusted says that its ENDPOINT is ", here,
        ", and a replica is added only where its line places it: ",
        ring->TrustCommand(lines.front().name, lines.front().key, identity::kRoleReplica, here)));
  }
  for (const Seat& each : members) {
    if (!IsSameHost(newcomer.peer, each.peer)) continue;
    return PermissionDenied(
        Text(newcomer.peer.names(), " is the host of replica ", each.endpoint.ToString(),
             ", too, and a host gets one vote in a group: give the new replica a host and a key "
             "of its own, or add it at an opening (add_replica=)"));
  }
  return {};
}

}  // namespace hyperloop::control
