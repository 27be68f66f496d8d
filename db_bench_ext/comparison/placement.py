"""Places processes on processors, and files in memory or on a disk. The primary has a processor alone; replicas, RNIC daemon and
noise share another."""

import dataclasses
import os
import pathlib

from comparison.errors import ComparisonError, UsageError
from comparison.flags import CPU_DATAPATHS

SPIN_US = 50  # hyperloop-rnicd's own default
_MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}


@dataclasses.dataclass(frozen=True)
class Processors:
    """None: nothing is bound to a processor."""

    primary: int | None
    replicas: int | None


def choose(options) -> Processors:
    """From --primary_cpu and --replica_cpu, by default the first and the last that this process may use. Idle hosts apart are not
    bound, unless the flags say so: each node has programs of its own, which share all processors as those of other systems do."""
    if options.hosts_apart and not any(options.noise) and options.primary_cpu is None and options.replica_cpu is None:
        return Processors(None, None)
    allowed = sorted(os.sched_getaffinity(0))
    primary = options.primary_cpu if options.primary_cpu is not None else allowed[0]
    replicas = options.replica_cpu
    if replicas is None:
        others = [each for each in allowed if each != primary]
        if not others:
            raise ComparisonError("one processor only: the primary needs one to itself and the replicas another (nproc, taskset -p $$)")
        replicas = others[-1]
    for name, processor in (("--primary_cpu", primary), ("--replica_cpu", replicas)):
        if processor not in allowed:
            raise UsageError(f"{name}={processor}: this process may use processors {', '.join(map(str, allowed))}")
    if primary == replicas:
        raise UsageError(f"--primary_cpu and --replica_cpu are both {primary}: the primary needs a processor to itself")
    return Processors(primary, replicas)


@dataclasses.dataclass(frozen=True)
class Rnic:
    """How the RNIC daemon runs. `priority` as hyperloop-rnicd's --priority: nice may spin, fifo is event-driven. None: as
    hyperloopctl has it."""

    spin_us: int | None
    priority: str | None


def rnic(datapath: str, noise: int, tenants: int, hosts_apart: bool, spin_us: int | None, bound: bool = True) -> Rnic:
    """Event-driven wherever another thread wants the daemon's processor: noise, a replica that forwards, another tenant's or
    another host's daemon. Elsewhere it spins as it does by default. `spin_us`, if given, decides instead. Daemons that are not
    bound to a processor run as they do for users."""
    if not bound:
        return Rnic(spin_us, None)
    if spin_us is None:
        shared = noise > 0 or datapath in CPU_DATAPATHS or tenants > 1 or hosts_apart
        spin_us = 0 if shared else SPIN_US
    return Rnic(spin_us, "fifo" if spin_us == 0 else "nice")


def waits_for_slices(datapath: str, noise: int, pollers: int) -> bool:
    """Whether an operation waits until the scheduler comes round to a replica's thread, milliseconds a hop: its processor
    has noise on it, or other threads that poll (`pollers` in all, one a replica of each tenant)."""
    return datapath in CPU_DATAPATHS and (noise > 0 or (datapath == "cpu-polling" and pollers > 1))


def file_system(path: pathlib.Path) -> str:
    """Type of the file system that holds `path`."""
    path, best, kind = path.resolve(), "", ""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, found = line.split()[:3]
        if path.is_relative_to(mounted) and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind


def in_memory(path: pathlib.Path) -> bool:
    """Whether the file system that holds `path` keeps its files in memory."""
    return file_system(path) in _MEMORY_FILE_SYSTEMS
