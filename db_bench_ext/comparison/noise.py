"""stress-ng on the replicas' processor for the time of a block."""

import contextlib
import select
import subprocess
import time

from comparison import processes, procfs
from comparison.errors import ComparisonError

START_PATIENCE = 20  # seconds


@contextlib.contextmanager
def running(program: str, workers: int, processor: int):
    """`workers` stress-ng that each multiply matrices without end on `processor`, at normal priority; yields the pids of
    them and of their children. Each has a session of its own: where the kernel groups threads by session (autogroup), as
    Debian's does, workers of one session would have the share of one thread together."""
    command = [program, "--matrix", "1", "--quiet"]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(processes.running(command, processor, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL))
            for _ in range(workers)
        ]
        yield [pid for each in started for pid in (each.pid, *_workers(each))]


def _workers(stress: subprocess.Popen) -> list[int]:
    """Waits until its worker is there and has run."""
    deadline = time.monotonic() + START_PATIENCE
    while True:
        found = procfs.children(stress.pid)
        if found and all(procfs.process_time(pid) > 0 for pid in found):
            return found
        if stress.poll() is not None or time.monotonic() > deadline:
            raise ComparisonError(f"{' '.join(stress.args)} ended (status {stress.poll()}) or does nothing after {START_PATIENCE} s; "
                                  "try it by hand")
        select.select([], [], [], 0.01)
