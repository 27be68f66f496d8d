"""Decides whether a run is valid. Each rule gives its reasons against the run as text; docs/benchmarking.md explains them."""

import os
import statistics

from comparison import procfs

OTHERS_LIMIT = 0.05  # share of a processor that programs other than the comparison's may take
STOLEN_LIMIT = 0.05  # share of a processor that the hypervisor may take
FORWARDING_THREAD = "hyperloop-chain"  # of replicas, with cpu-polling and cpu-event
BULK_THREAD, BULK_NICE = "hl-bulk", 10  # of replicas: takes whole files
EAGER = 0.9  # share of the time in which a thread that always wants the processor is seen to want it
LEAST_OF_FAIR = 0.8  # part of a fair share that such a thread must have had
TICKS = 4  # with fewer clock ticks, times of processors mean nothing


def fair_share_reasons(replicas: list[procfs.Thread], noise: list[procfs.Thread], rnic_seconds: float, seconds: float) -> list[str]:
    """The rule of fair shares for a run of `seconds` beside noise, of all threads on the processor that replicas, noise and the
    RNIC daemon share. It asks nothing where no replica has a forwarding thread.

    A thread wants the processor while it runs or waits for it. n, the sum of run + wait over all threads of normal priority,
    divided by `seconds`, is how many wanted it on average; with the RNIC as one more, a fair share is 1 / (n + 1) of the
    processor. What the RNIC left them is seen on the threads that wanted the processor all the time, which stress-ng's do:
    the scheduler treats all alike, and a replica's thread could have had as much. An RNIC that had no more than a fair share
    itself kept nobody from theirs."""
    if not any(each.name == FORWARDING_THREAD for each in replicas):
        return []
    fair = 1 / (sum(each.run + each.wait for each in [*replicas, *noise]) / seconds + 1)
    eager = [each.run for each in noise if each.run + each.wait > EAGER * seconds]
    if not eager:
        return ["no stress-ng worker wanted the processor all the time, so nothing shows what the RNIC left to replicas"]
    had = statistics.mean(eager) / seconds
    if rnic_seconds <= fair * seconds or had >= LEAST_OF_FAIR * fair:
        return []
    return [f"the RNIC ran {rnic_seconds / seconds:.1%} of the time and kept the threads beside it from their fair share, {fair:.1%} of the "
            f"processor: one that wanted it all the time had {had:.1%}, less than {LEAST_OF_FAIR:.0%} of that"]


def placement_reasons(who: str, found: dict[int, procfs.Placement], processor: int, normal: bool) -> list[str]:
    """Threads of `who` must be allowed on `processor` alone, and, where `normal`, have normal policy and nice 0, but for a
    replica's thread for whole files, on which no commit waits."""
    reasons = []
    for tid, placement in found.items():
        if placement.processors != {processor}:
            allowed = ", ".join(map(str, sorted(placement.processors)))
            reasons.append(f"thread {tid} of {who} may run on processor {allowed} instead of {processor} alone")
        nice = BULK_NICE if placement.name == BULK_THREAD else 0
        if normal and (placement.policy != os.SCHED_OTHER or placement.nice != nice):
            reasons.append(f"thread {tid} of {who} has policy {placement.policy} and nice {placement.nice} instead of normal priority")
    return reasons


def daemon_reasons(arguments: list[str], data_thread: procfs.Placement, log: str, event_driven: bool) -> list[str]:
    """The RNIC daemon's command line, the thread that executes work requests, and what it logged. Event-driven, it must
    not spin and must have SCHED_FIFO; else it must be free to spin."""
    reasons = []
    if event_driven:
        if "--spin-us" not in arguments or arguments[arguments.index("--spin-us") + 1] != "0":
            reasons.append("the RNIC daemon may spin beside threads that want its processor: it has no --spin-us 0")
        if data_thread.policy & ~os.SCHED_RESET_ON_FORK != os.SCHED_FIFO:
            reasons.append(f"the RNIC daemon has policy {data_thread.policy} instead of SCHED_FIFO: it waits for the host's programs, which "
                           "an RNIC does not (it needs CAP_SYS_NICE or ulimit -r)")
    elif "will not spin" in log:
        reasons.append("the RNIC daemon does not spin as it does idle: another hyperloop-rnicd has its processor")
    return reasons


def quiet_reasons(where: str, ours: float, busy: float, stolen: float, seconds: float) -> list[str]:
    """Nobody else may have taken much of a processor that was measured, or of several together; `ours`, `busy` and `stolen` in
    seconds of the `seconds` that there were."""
    reasons = []
    ticks = TICKS * procfs.TICK
    others = busy - ours
    if others > max(OTHERS_LIMIT * seconds, ticks):
        reasons.append(f"other programs took {others / seconds:.0%} of {where}")
    if stolen > max(STOLEN_LIMIT * seconds, ticks):
        reasons.append(f"the hypervisor took {stolen / seconds:.0%} of {where}")
    return reasons
