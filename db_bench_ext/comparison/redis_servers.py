"""Redis: one master, its replicas, and a writer that waits for all of them."""

import contextlib
import pathlib
import subprocess

from comparison import closed_loop, processes
from comparison.errors import ComparisonError
from comparison.nodes import Node

PACKAGE = "apt-get install redis-server"
WAIT_MS = 10000
SETTINGS = ("--appendonly yes --appendfsync always --save '' on master and replicas; repl-diskless-sync yes; "
            "SET and WAIT in one request over TCP")


def _command(program: str, address: str, port: int, directory: pathlib.Path) -> list[str]:
    return [program, "--bind", address, "--port", str(port), "--protected-mode", "no", "--dir", str(directory), "--daemonize", "no",
            "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]


class Writer:
    """`write` sets a key and returns when all replicas have said that they have it; `idle_round_trip` is the same without
    any work: what client and connection cost."""

    def __init__(self, address: str, port: int, replicas: int):
        self._connection = closed_loop.connect(address, port)
        self._replicas = replicas

    def write(self, key: bytes, value: bytes) -> None:
        self._exchange(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n%d\r\n$5\r\n%d\r\n"
                       % (len(key), key, len(value), value, self._replicas, WAIT_MS), b"+OK\r\n:%d\r\n" % self._replicas)

    def idle_round_trip(self, _key: bytes, _value: bytes) -> None:
        self._exchange(b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")

    def complete(self) -> bool:
        """Whether all replicas take part."""
        self._connection.sendall(b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n")
        return self._connection.recv(65536).count(b"state=online") == self._replicas

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, request: bytes, expected: bytes) -> None:
        self._connection.sendall(request)
        answer = b""
        while len(answer) < len(expected):
            data = self._connection.recv(4096)
            answer += data
            if not data or not expected.startswith(answer):
                raise ComparisonError(f"Redis answered {answer!r} instead of {expected!r}")


@contextlib.contextmanager
def running(program: str, directory: pathlib.Path, nodes: list[Node]):
    """The master on the first of the nodes and a replica on each other, with their files in `directory`, which must not exist;
    yields (a Writer, the master's command)."""
    with processes.directory(directory), contextlib.ExitStack() as stack:
        ports = closed_loop.free_ports(len(nodes), nodes[0].address)
        servers, logs = [], []
        for number, (node, port) in enumerate(zip(nodes, ports)):
            home = directory / f"redis{number}"
            home.mkdir()
            logs.append(home / "log")
            output = stack.enter_context(logs[-1].open("wb"))
            command = node.command(_command(program, node.address, port, home))
            command += ["--replicaof", nodes[0].address, str(ports[0])] if number else []
            servers.append(stack.enter_context(processes.running(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)))
        writers: list[Writer] = []

        def ready():
            if not writers:
                writers.append(Writer(nodes[0].address, ports[0], len(nodes) - 1))
                stack.callback(writers[0].close)
            return writers[0].complete()

        closed_loop.await_ready("Redis", servers, logs, ready)
        yield writers[0], servers[0].args
