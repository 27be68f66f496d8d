"""A closed loop of one writer against a server: the next write starts when the last was acknowledged."""

import contextlib
import math
import pathlib
import random
import select
import socket
import time

from comparison.errors import ComparisonError
from comparison.nodes import LOOPBACK

KEY_BYTES = 16
SUB_BUCKETS = 8  # of each power of two
START_PATIENCE = 30  # seconds for a server to become ready
ANSWER_PATIENCE = 30  # seconds for an answer
GIVEN_OUT = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")  # ports that the kernel chooses for sockets
LEAST_PORT = 10000  # the least one that is chosen here


def measure(write, seconds: float, keys: int, value_size: int) -> dict:
    """Calls `write(key, value)` again and again for about `seconds`, with random keys of 16 digits out of `keys` and values
    of half random, half equal bytes as db_bench's; returns operations, rates and latencies as results.schema.json names
    them, exact to the clock. Each latency includes the cost of the client itself."""
    generator = random.Random(7)
    values = [generator.randbytes(value_size // 2) + bytes(value_size - value_size // 2) for _ in range(256)]
    latencies = []
    started = now = time.perf_counter_ns()
    end = started + int(seconds * 1e9)
    while now < end:
        key = b"%016d" % generator.randrange(keys)
        before = time.perf_counter_ns()
        write(key, values[len(latencies) & 255])
        now = time.perf_counter_ns()
        latencies.append(now - before)
    taken = (now - started) / 1e9
    return {"operations": len(latencies), "seconds": taken, "ops_per_second": len(latencies) / taken,
            "latency_ns": _latency(latencies), "histogram": _histogram(latencies)}


def _latency(latencies: list[int]) -> dict:
    ordered = sorted(latencies)

    def at(share):
        return ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1]

    return {"mean": sum(ordered) / len(ordered), "p50": at(0.5), "p75": at(0.75), "p99": at(0.99), "p99_9": at(0.999),
            "p99_99": at(0.9999), "max": ordered[-1]}


def _histogram(latencies: list[int]) -> list[list]:
    counts: dict[int, int] = {}
    for latency in latencies:
        bucket = math.floor(math.log2(max(latency, 1)) * SUB_BUCKETS)
        counts[bucket] = counts.get(bucket, 0) + 1
    return [[2 ** (bucket / SUB_BUCKETS), 2 ** ((bucket + 1) / SUB_BUCKETS), count] for bucket, count in sorted(counts.items())]


def free_ports(count: int, address: str = LOOPBACK) -> list[int]:
    """Ports of an address of this machine that nobody listens on now.

    The kernel gives none of them to another process that asks for any free port, so they are still
    free when a server starts. Where it gives out nearly all ports, they may not be.
    """
    candidates = range(LEAST_PORT, int(GIVEN_OUT.read_text().split()[0]))
    asked = random.sample(candidates, len(candidates)) if len(candidates) > 1000 else [0] * count
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in asked:
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                server = held.enter_context(socket.create_server((address, port)))
                ports.append(server.getsockname()[1])
    if len(ports) < count:
        raise ComparisonError(f"{count} servers need a port each on {address}, and only {len(ports)} are free")
    return ports


def connect(address: str, port: int) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=ANSWER_PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def await_ready(what: str, servers: list, logs: list, ready) -> None:
    """Returns once `ready()` is true; it may raise OSError meanwhile. ComparisonError with the end of a log: a server
    ended, or 30 s passed."""
    deadline = time.monotonic() + START_PATIENCE
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        for server, log in zip(servers, logs):
            if server.poll() is not None or time.monotonic() > deadline:
                state = "ended" if server.poll() is not None else f"was not ready after {START_PATIENCE} s"
                last = "\n    ".join(log.read_text(errors="replace").splitlines()[-5:])
                raise ComparisonError(f"{what}: {' '.join(server.args)} {state}; its log says:\n    {last}")
        select.select([], [], [], 0.02)
