"""etcd: three members, and a writer at the leader's HTTP gateway."""

import base64
import contextlib
import json
import pathlib
import subprocess

from comparison import closed_loop, processes
from comparison.errors import ComparisonError

PACKAGE = "apt-get install etcd-server"
MEMBERS = 3
SETTINGS = ("three members, defaults (every member syncs its log before it answers); PUT through the leader's gRPC gateway: "
            "HTTP with JSON over TCP on the loopback address, one connection kept open")


class Gateway:
    """One HTTP connection to a member's gRPC gateway."""

    def __init__(self, port: int):
        self._connection = closed_loop.connect(port)
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

    def status(self) -> dict:
        return json.loads(self.call(b"/v3/maintenance/status", b"{}"))

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
def running(program: str, directory: pathlib.Path):
    """The members with their files in `directory`, which must not exist; yields (the leader's Gateway, a member's command)."""
    with processes.directory(directory), contextlib.ExitStack() as stack:
        ports = closed_loop.free_ports(2 * MEMBERS)
        peers, clients = ports[:MEMBERS], ports[MEMBERS:]
        everyone = ",".join(f"member{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
        servers, logs = [], []
        for number in range(MEMBERS):
            peer, client = f"http://127.0.0.1:{peers[number]}", f"http://127.0.0.1:{clients[number]}"
            command = [program, "--name", f"member{number}", "--data-dir", str(directory / f"member{number}"),
                       "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                       "--listen-client-urls", client, "--advertise-client-urls", client,
                       "--initial-cluster", everyone, "--initial-cluster-state", "new", "--log-level", "warn"]
            logs.append(directory / f"member{number}.log")
            output = stack.enter_context(logs[-1].open("wb"))
            servers.append(stack.enter_context(processes.running(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)))
        leaders: list[Gateway] = []

        def ready():
            for port in clients:
                gateway = Gateway(port)
                status = gateway.status()
                if status.get("leader", "0") not in ("0", 0) and status["leader"] == status["header"]["member_id"]:
                    gateway.write(b"ready", b"")
                    leaders.append(gateway)
                    stack.callback(gateway.close)
                    return True
                gateway.close()
            return False

        closed_loop.await_ready("etcd", servers, logs, ready)
        yield leaders[0], servers[0].args
