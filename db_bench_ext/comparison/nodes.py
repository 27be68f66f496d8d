"""The nodes on which the servers of other systems run: this machine, or the nodes of a cluster whose hosts are apart."""

import dataclasses

LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Node:
    """`space`: its network namespace; empty: this program's."""

    address: str = LOOPBACK
    space: str = ""

    def command(self, arguments: list[str]) -> list[str]:
        """What runs `arguments` there, as the same process."""
        return ["ip", "netns", "exec", self.space, *arguments] if self.space else arguments


def here(count: int) -> list[Node]:
    return [Node()] * count


def apart(status: dict) -> list[Node]:
    """Of a cluster, by `hyperloopctl cluster status --json`: the primary's node, which is this machine, then the replicas' in the
    order of the chain."""
    network = status["network"]
    return [Node(status["network_address"])] + [Node(each["listen"].rpartition(":")[0], f"{network}-{each['name']}")
                                                for each in status["processes"] if each["listen"]]
