// Strangers: nodes that answer at the address of a group's replica, and are none of its replicas.
#pragma once

#include <vector>

#include "membership/standing.h"

namespace hyperloop {

// Moves strangers from `looks` to `missing`, as replicas that do not answer: nothing that they say
// is of the group. A stranger answers at an address that the group's newest configuration records
// for another node, and either belongs to another group, or is a copy of a replica that answers at
// its own recorded address and has promised no less. A fresh node is no stranger, nor is a copy
// with a newer epoch than every replica at its own address: it may be the pool itself, and an older
// copy of it in its place. If the looks may be of several groups, the one counts of which most
// replicas answer, so that one that claims a group of its own is a stranger. If there is none,
// nothing is moved: a node of a former group with the same addresses is no stranger to that group,
// to which those of the other one are.
void LeaveOutStrangers(std::vector<MemberLook>* looks, std::vector<MissingReplica>* missing);

// Moves replicas that have no RNIC or tell what cannot be (WhyNonsense, WhyFarAhead), and
// strangers, from `looks` to `missing`.
void LeaveOutUnfit(std::vector<MemberLook>* looks, std::vector<MissingReplica>* missing);

}  // namespace hyperloop
