"""etcd: three members, the first of them the leader, and a writer at its HTTP gateway."""

import base64
import contextlib
import json
import pathlib
import subprocess

from comparison import closed_loop, processes
from comparison.errors import ComparisonError
from comparison.nodes import Node

PACKAGE = "apt-get install etcd-server"
MEMBERS = 3
SETTINGS = ("three members, defaults (every member syncs its log before it answers); PUT through the leader's gRPC gateway: "
            "HTTP with JSON over TCP, one connection kept open")


class Gateway:
    """One HTTP connection to a member's gRPC gateway."""

    def __init__(self, address: str, port: int):
        self._connection = closed_loop.connect(address, port)
        self._buffer = b""

    def call(self, path: bytes, body: bytes) -> bytes:
        """The answer's body. ComparisonError: any status but 200."""
        self._connection.sendall(b"POST %b HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                                 % (path, len(body), body))
        head, rest = self._until(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"content-length" in fields:
            length = int(fields[b"content-length"])
            while len(rest) < length:
                rest += self._receive()
            answer, self._buffer = rest[:length], rest[length:]
        else:
            answer = self._chunks(rest)
        if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
            raise ComparisonError(f"etcd answered {head.splitlines()[0]!r}: {answer[:200]!r}")
        return answer

    def write(self, key: bytes, value: bytes) -> None:
        self.call(b"/v3/kv/put", b'{"key":"%b","value":"%b"}' % (base64.b64encode(key), base64.b64encode(value)))

    def idle_round_trip(self, key: bytes, _value: bytes) -> None:
        """A read that only this member answers, to measure the cost of client, gateway and connection."""
        self.call(b"/v3/kv/range", b'{"key":"%b","serializable":true,"count_only":true}' % base64.b64encode(key))

    def status(self) -> tuple[str, str]:
        """The ids of this member, and of the leader that it follows (0: none)."""
        status = json.loads(self.call(b"/v3/maintenance/status", b"{}"))
        return status["header"]["member_id"], status.get("leader", "0")

    def give_lead(self, member: str) -> None:
        """Of this leader to another member."""
        self.call(b"/v3/maintenance/transfer-leadership", b'{"targetID":"%b"}' % member.encode())

    def close(self) -> None:
        self._connection.close()

    def _receive(self) -> bytes:
        data = self._connection.recv(65536)
        if not data:
            raise ConnectionResetError("etcd closed the connection")
        return data

    def _until(self, mark: bytes) -> tuple[bytes, bytes]:
        while mark not in self._buffer:
            self._buffer += self._receive()
        head, _, rest = self._buffer.partition(mark)
        return head, rest

    def _chunks(self, rest: bytes) -> bytes:
        """The body of an answer in chunks; what follows it stays in the buffer."""
        self._buffer, body = rest, b""
        while True:
            size, self._buffer = self._until(b"\r\n")
            length = int(size, 16)
            while len(self._buffer) < length + 2:
                self._buffer += self._receive()
            body += self._buffer[:length]
            self._buffer = self._buffer[length + 2 :]
            if length == 0:
                return body


@contextlib.contextmanager
def running(program: str, directory: pathlib.Path, nodes: list[Node]):
    """The members on the first of the nodes, with their files in `directory`, which must not exist; yields (the leader's Gateway,
    its command). The leader is on the first node."""
    with processes.directory(directory), contextlib.ExitStack() as stack:
        ports = closed_loop.free_ports(2 * MEMBERS, nodes[0].address)
        peers, clients = ports[:MEMBERS], ports[MEMBERS:]
        nodes = nodes[:MEMBERS]
        everyone = ",".join(f"member{number}=http://{node.address}:{port}" for number, (node, port) in enumerate(zip(nodes, peers)))
        servers, logs = [], []
        for number, node in enumerate(nodes):
            peer, client = f"http://{node.address}:{peers[number]}", f"http://{node.address}:{clients[number]}"
            command = [program, "--name", f"member{number}", "--data-dir", str(directory / f"member{number}"),
                       "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                       "--listen-client-urls", client, "--advertise-client-urls", client,
                       "--initial-cluster", everyone, "--initial-cluster-state", "new", "--log-level", "warn"]
            logs.append(directory / f"member{number}.log")
            output = stack.enter_context(logs[-1].open("wb"))
            servers.append(stack.enter_context(processes.running(node.command(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output)))
        gateways: list[Gateway] = []

        def ready():
            while len(gateways) < len(nodes):
                gateways.append(Gateway(nodes[len(gateways)].address, clients[len(gateways)]))
                stack.callback(gateways[-1].close)
            ids, leaders = zip(*(gateway.status() for gateway in gateways))
            if set(leaders) == {ids[0]}:
                gateways[0].write(b"ready", b"")
                return True
            if len(set(leaders)) == 1 and leaders[0] in ids:
                gateways[ids.index(leaders[0])].give_lead(ids[0])
            return False

        closed_loop.await_ready("etcd", servers, logs, ready)
        yield gateways[0], servers[0].args
