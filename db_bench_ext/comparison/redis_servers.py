"""Redis: one master, three replicas, and a writer that waits for all three."""

import contextlib
import pathlib
import subprocess

from comparison import closed_loop, processes
from comparison.errors import ComparisonError

PACKAGE = "apt-get install redis-server"
REPLICAS = 3
WAIT_MS = 10000
SETTINGS = ("--appendonly yes --appendfsync always --save '' on master and replicas; repl-diskless-sync yes; "
            "SET and WAIT 3 in one request over TCP on the loopback address")


def _command(program: str, port: int, directory: pathlib.Path, master: int | None) -> list[str]:
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--daemonize", "no", "--save", "",
               "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
    return command if master is None else command + ["--replicaof", "127.0.0.1", str(master)]


class Writer:
    """`write` sets a key and returns when all replicas have said that they have it; `idle_round_trip` is the same without
    any work: what client and connection cost."""

    def __init__(self, port: int):
        self._connection = closed_loop.connect(port)

    def write(self, key: bytes, value: bytes) -> None:
        self._exchange(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n%d\r\n$5\r\n%d\r\n"
                       % (len(key), key, len(value), value, REPLICAS, WAIT_MS), b"+OK\r\n:%d\r\n" % REPLICAS)

    def idle_round_trip(self, _key: bytes, _value: bytes) -> None:
        self._exchange(b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")

    def replicas_online(self) -> int:
        self._connection.sendall(b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n")
        return self._connection.recv(65536).count(b"state=online")

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
def running(program: str, directory: pathlib.Path):
    """Master and replicas with their files in `directory`, which must not exist; yields (a Writer, the master's command)."""
    with processes.directory(directory), contextlib.ExitStack() as stack:
        ports = closed_loop.free_ports(1 + REPLICAS)
        servers, logs = [], []
        for number, port in enumerate(ports):
            home = directory / f"redis{number}"
            home.mkdir()
            logs.append(home / "log")
            output = stack.enter_context(logs[-1].open("wb"))
            command = _command(program, port, home, ports[0] if number else None)
            servers.append(stack.enter_context(processes.running(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)))
        writers: list[Writer] = []

        def ready():
            if not writers:
                writers.append(Writer(ports[0]))
                stack.callback(writers[0].close)
            return writers[0].replicas_online() == REPLICAS

        closed_loop.await_ready("Redis", servers, logs, ready)
        yield writers[0], servers[0].args
