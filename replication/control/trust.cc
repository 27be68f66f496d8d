#include "control/trust.h"

#include <algorithm>

#include "hyperloop/core/text.h"

namespace hyperloop::control {
namespace {

using identity::kRolePrimary;
using identity::kRoleReplica;

std::unique_ptr<identity::SecureChannel> MakeChannel(bool dialer,
                                                     const std::shared_ptr<identity::KeyRing>& ring,
                                                     identity::Roles peer_roles,
                                                     std::vector<std::string> peer_names) {
  identity::SecureChannelOptions options;
  options.dialer = dialer;
  options.purpose = Text("hyperloop control ", kProtocolVersion);
  options.ring = ring;
  options.peer_roles = peer_roles;
  options.peer_names = std::move(peer_names);
  return std::make_unique<identity::SecureChannel>(std::move(options));
}

}  // namespace

Result<Trust> Trust::Load(const std::string& dir, std::shared_ptr<Log> log) {
  Trust trust;
  trust.log_ = std::move(log);
  if (dir.empty()) return trust;
  HL_ASSIGN_OR_RETURN(trust.ring_, identity::KeyRing::Load(dir));
  return trust;
}

void Trust::Refresh() const {
  if (ring_ == nullptr) return;
  const Status read = ring_->Refresh();
  if (read.ok() || log_ == nullptr) return;
  log_->Write(LogLevel::kError,
              Text("keys: ", read.message(), "; what was read before stays in force"));
}

std::unique_ptr<identity::SecureChannel> Trust::Dial(const Endpoint& endpoint) const {
  Refresh();
  std::vector<std::string> names;
  if (keyed()) names = ring_->NamesAt(endpoint.ToString());
  return MakeChannel(true, ring_, kRoleReplica, std::move(names));
}

std::unique_ptr<identity::SecureChannel> Trust::Answer() const {
  Refresh();
  return MakeChannel(false, ring_, identity::kEveryRole, {});
}

Status Trust::CheckPlace(const identity::Peer& peer, const Endpoint& endpoint) const {
  if (!keyed()) return {};
  const std::string here = endpoint.ToString();
  std::string elsewhere;
  for (const identity::TrustedPeer& line : peer.lines()) {
    if ((line.roles & kRoleReplica) == 0) continue;
    if (line.endpoint.empty() || line.endpoint == here) return {};
    elsewhere += (elsewhere.empty() ? "" : ", ") + line.endpoint;
  }
  return PermissionDenied(Text(peer.names(), " answers at ", here, ", and ", ring_->dir(),
                               "/trusted places it at ", elsewhere,
                               ": look at the address, or correct the line of ", peer.name(),
                               " (hyperloopctl keys trust)"));
}

Status Trust::CheckHost(const identity::Peer& peer, std::string_view host) const {
  if (!keyed()) return {};
  const auto lines = ring_->trusted();
  const auto named = [&](const identity::TrustedPeer& line) { return line.name == host; };
  if (host != ring_->name() && std::none_of(lines.begin(), lines.end(), named)) return {};
  if (std::any_of(peer.lines().begin(), peer.lines().end(), named)) return {};
  return PermissionDenied(Text(
      peer.names(), " says that its RNIC is that of host ", host, ", and in ", ring_->dir(),
      "/trusted that is another host's name. If it is that host, ", "too: ",
      peer.lines().empty() ? std::string("give it keys")
                           : ring_->TrustCommand(host, peer.lines().front().key, peer.roles())));
}

// Every replica learns the owner's id, so the id alone must not show that the owner lives.
Status Trust::CheckRequest(const identity::Peer& peer, const BodyUnion& request) const {
  const auto* const hello = As<HelloRequestT>(request);
  if (!keyed() || (hello != nullptr && hello->owner_id.empty())) return {};
  if ((peer.roles() & kRolePrimary) != 0) {
    const auto* const propose = As<ProposeRequestT>(request);
    if (propose == nullptr || !propose->vouchers.empty()) return {};
    return NotSupported(
        "no primary would believe this proposal, because it comes without a voucher, as from "
        "hyperloopctl of an older release: run that of this release");
  }
  return PermissionDenied(
      Text(BodyName(request.type), hello == nullptr ? "" : " of an owner",
           " needs the role primary, and ", peer.names(), " has the roles ",
           identity::RolesText(peer.roles()), " on ", ring_->name(), ": to give it, there ",
           ring_->TrustCommand(peer.name(), peer.lines().front().key, kRolePrimary)));
}

std::shared_ptr<const identity::KeyRing> Trust::Ring() const {
  Refresh();
  return ring_;
}

}  // namespace hyperloop::control
