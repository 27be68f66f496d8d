"""Processor times of all parts at one moment; the difference of two snapshots is the cost of a run."""

import dataclasses
import resource
import time

from comparison import procfs


@dataclasses.dataclass(frozen=True)
class Participants:
    """Process ids by part."""

    primary: list[int]
    replicas: list[int]  # in chain order, tenant after tenant
    rnic: list[int]
    noise: list[int]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    moment: float
    primary: float
    replicas: list[float]
    rnic: float
    noise: float
    own: float  # of this program and what it ran meanwhile
    primary_user: float  # of primary what was not the kernel's
    others_user: float  # of replicas, rnic, noise and own together what was not the kernel's
    replica_threads: dict[int, procfs.Thread]
    noise_threads: dict[int, procfs.Thread]
    processors: dict[int, procfs.Processor]
    kernel_threads: dict[int, float]

    @property
    def kernel(self) -> float:
        """Of all of the kernel's own threads, on whatever processor."""
        return sum(self.kernel_threads.values())


def take(who: Participants) -> Snapshot:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_user = resource.getrusage(resource.RUSAGE_SELF).ru_utime + children.ru_utime
    return Snapshot(
        moment=time.monotonic(),
        primary=sum(map(procfs.process_time, who.primary)),
        replicas=list(map(procfs.process_time, who.replicas)),
        rnic=sum(map(procfs.process_time, who.rnic)),
        noise=sum(map(procfs.process_time, who.noise)),
        own=time.process_time() + children.ru_utime + children.ru_stime,
        primary_user=sum(map(procfs.user_time, who.primary)),
        others_user=sum(map(procfs.user_time, [*who.replicas, *who.rnic, *who.noise])) + own_user,
        replica_threads=_threads(who.replicas),
        noise_threads=_threads(who.noise),
        processors=procfs.processors(),
        kernel_threads=procfs.kernel_threads(),
    )


def between(begin: Snapshot, end: Snapshot) -> Snapshot:
    """What happened from `begin` to `end`; its `moment` is the seconds between them. Threads that are not in both are
    left out of the threads, not of the sums."""
    return Snapshot(
        moment=end.moment - begin.moment,
        primary=end.primary - begin.primary,
        replicas=[after - before for before, after in zip(begin.replicas, end.replicas)],
        rnic=end.rnic - begin.rnic,
        noise=end.noise - begin.noise,
        own=end.own - begin.own,
        primary_user=end.primary_user - begin.primary_user,
        others_user=end.others_user - begin.others_user,
        replica_threads=_difference(begin.replica_threads, end.replica_threads),
        noise_threads=_difference(begin.noise_threads, end.noise_threads),
        processors={
            number: procfs.Processor(*(after - before for after, before in zip(dataclasses.astuple(end.processors[number]),
                                                                               dataclasses.astuple(earlier))))
            for number, earlier in begin.processors.items()
            if number in end.processors
        },
        kernel_threads={pid: seconds - begin.kernel_threads.get(pid, 0.0) for pid, seconds in end.kernel_threads.items()},
    )


def _threads(pids: list[int]) -> dict[int, procfs.Thread]:
    return {tid: thread for pid in pids for tid, thread in procfs.threads(pid).items()}


def _difference(begin: dict[int, procfs.Thread], end: dict[int, procfs.Thread]) -> dict[int, procfs.Thread]:
    return {
        tid: procfs.Thread(after.run - begin[tid].run, after.wait - begin[tid].wait, after.name) for tid, after in end.items() if tid in begin
    }
