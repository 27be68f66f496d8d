"""The kernel's accounts of processes and processors (proc(5)); times in seconds."""

import dataclasses
import os
import pathlib
import time

NS = 1e-9
TICK = 1 / os.sysconf("SC_CLK_TCK")
KTHREADD = 2  # pid of the parent of all kernel threads
_CPUCLOCK_SCHED = 2  # of clock_getcpuclockid(3): the whole process, threads that have ended included


@dataclasses.dataclass(frozen=True)
class Thread:
    """`run`: time on a processor; `wait`: time runnable without one."""

    run: float
    wait: float
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Placement:
    processors: frozenset[int]
    policy: int  # os.SCHED_OTHER, os.SCHED_FIFO, …
    nice: int
    name: str = ""


def process_time(pid: int) -> float:
    """Processor time of a process, user and system; 0 when it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def user_time(pid: int) -> float:
    """Of process_time what was spent outside of the kernel, in clock ticks' precision; 0 when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(text[text.rindex(")") + 2 :].split()[11]) * TICK


def threads(pid: int) -> dict[int, Thread]:
    """Scheduling times of a process's threads, from /proc/PID/task/TID/schedstat; empty when it is gone."""
    found = {}
    for tid in _thread_ids(pid):
        try:
            run, wait, _ = pathlib.Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()
            name = pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[tid] = Thread(int(run) * NS, int(wait) * NS, name)
    return found


def placements(pid: int) -> dict[int, Placement]:
    """Where and how each thread of a process may run."""
    found = {}
    for tid in _thread_ids(pid):
        try:
            name = pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
            found[tid] = Placement(frozenset(os.sched_getaffinity(tid)), os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid), name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def children(pid: int) -> list[int]:
    """Processes that a process has started, all of its threads together."""
    found = []
    for tid in _thread_ids(pid):
        try:
            found += [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{tid}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def arguments(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


@dataclasses.dataclass(frozen=True)
class Processor:
    busy: float  # all but idle and waiting for disks; what the hypervisor took is not in it
    user: float  # of busy: programs outside of the kernel
    interrupts: float  # of busy: the kernel's interrupt handlers, soft ones too
    stolen: float


def processors() -> dict[int, Processor]:
    """What each processor has done since the system started, in clock ticks' precision."""
    found = {}
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0].startswith("cpu") and words[0] != "cpu":
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) * TICK for word in words[1:9])
            found[int(words[0][3:])] = Processor(user + nice + system + irq + softirq, user + nice, irq + softirq, steal)
    return found


def kernel_threads() -> dict[int, float]:
    """Processor time of each of the kernel's own threads; empty where it shows none (in a container)."""
    return {pid: process_time(pid) for pid in children(KTHREADD)}


def _thread_ids(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
