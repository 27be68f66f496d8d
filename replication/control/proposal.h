// Proposals: a host asks the primary of a group to take in one more replica, or to give up for good
// one that the group has left out.
//
// The primary has no port, so a proposal reaches it through the group's members, in their Hellos. A
// member that lies must neither propose replicas of its own nor that others leave. So the host that
// asks vouches for the proposal (voucher.h), and the primary believes itself and hosts with the
// role primary. What was vouched for counts only as long as the group's configuration is the one
// that the asker saw, by its epoch and by the primary that installed it. The asker sees what most
// members tell, so that none can have it vouch for a configuration that is to come. Without keys
// everybody is believed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "control/endpoint.h"
#include "control/messages.h"
#include "control/trust.h"

namespace hyperloop::control {

// The first of these answers that more than half of `of` replicas give alike: the same replicas of
// one group, by the configuration of one epoch and owner, which has served there or has not. Null:
// there is none.
const HelloReplyT* ToldByMost(std::span<const HelloReplyT> answers, size_t of);

// Proposes to the group of `seen`, a member's answer whose configuration has served, that
// `replica`, a control endpoint, comes into it or `leaves` it.
ProposeRequestT MakeProposal(const Trust& trust, const HelloReplyT& seen, std::string replica,
                             bool leaves);

// Checks the proposal that a member of `group` tells, whose configuration is of `epoch` and was
// installed by the owner whose id has the digest `owner`: that of its leaving_replica if it
// `leaves`, else that of its proposed_replica. kPermissionDenied: no host that may propose changes
// vouches for it now. kNotSupported: nobody vouches for it, as where a program is of another
// release.
Status CheckProposal(const Trust& trust, const HelloReplyT& told, bool leaves,
                     const std::string& group, uint64_t epoch, std::span<const uint8_t> owner);

// A replica of a group: its control endpoint, and who answers there.
struct Seat {
  Endpoint endpoint;
  identity::Peer peer;
};
// Checks that a group with these members may take in `newcomer` while it serves: `trusted` places
// its host at this endpoint, and that host has no other seat in the group. This host itself may
// have several, wherever they are. kPermissionDenied: it is not so; the message names the remedy.
Status CheckNewcomer(const Trust& trust, const Seat& newcomer, std::span<const Seat> members);

}  // namespace hyperloop::control
