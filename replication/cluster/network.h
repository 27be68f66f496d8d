// Network gives each node of an emulated cluster a network of its own: a Linux network namespace
// that a veth pair joins to a bridge, which is in a further namespace. The primary's node is the
// machine itself, whose end of its pair has the network's name, so any program on the machine can
// be the primary's. What one node sends to another passes through exactly one cable, the sender's,
// and that is where `netem` delays, limits or loses packets.
//
// Making one takes CAP_SYS_ADMIN and CAP_NET_ADMIN, and the programs ip and tc (iproute2). A
// namespace stays until RemoveNetwork, a reboot, or `ip netns del NAME`.
#pragma once

#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::cluster {

struct Network {
  std::string name;  // of the machine's end of its cable; the namespaces are NAME-switch, NAME-NODE
  int subnet = 0;    // 0 to 255: its addresses are 198.18.SUBNET.1 and on
  std::string netem;  // arguments of tc's netem, separated by spaces; empty: none
};

// Names the primary's node.
inline constexpr char kPrimaryNode[] = "primary";

// A network for the cluster in `directory`, of whose path its name is made, with a subnet that no
// interface of this machine has. kNoSpace: there is none.
Result<Network> PlanNetwork(const std::string& directory, const std::string& netem);
// Whether the text can be Network::netem; what its words mean, tc says.
bool IsNetem(const std::string& text);
// Whether it is one that PlanNetwork may have made.
bool IsNetwork(const Network& network);
// Whether a replica of that name can have a node: replica0 to replica99.
bool IsReplicaNode(const std::string& name);

// The address of kPrimaryNode, or of a replica's node.
std::string NodeAddress(const Network& network, const std::string& node);

// Makes the network with the nodes of `replicas`, or completes it: nodes that are there stay. If it
// fails, what this call made is removed again. kPermissionDenied: not root. kNotFound: ip or tc is
// missing. kNotSupported: this kernel lacks what is needed; the message names it.
Status MakeNetwork(const Network& network, const std::vector<std::string>& replicas);
// The namespace of a replica's node, to start processes in.
Result<UniqueFd> OpenNode(const Network& network, const std::string& replica);
// Success if there is none.
Status RemoveNode(const Network& network, const std::string& replica);
Status RemoveNetwork(const Network& network, const std::vector<std::string>& replicas);

}  // namespace hyperloop::cluster
