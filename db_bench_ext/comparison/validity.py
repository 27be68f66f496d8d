"""When a run counts. Each rule gives reasons against it, as text; docs/benchmarking.md explains them."""

import os

from comparison import procfs

OTHERS_LIMIT = 0.05  # of a processor, that programs other than the comparison's may take
STOLEN_LIMIT = 0.05  # of a processor, that the hypervisor may take
TICKS = 4  # below so many clock ticks, times of processors say nothing


def fair_share_reasons(forwarding: dict[int, procfs.Thread], others: dict[int, procfs.Thread], rnic_seconds: float,
                       seconds: float) -> list[str]:
    """The rule of fair shares for a run of `seconds` beside noise: on the processor that all of these share, `forwarding`
    threads of replicas, `others` of normal priority (noise, the replicas' other threads) and the RNIC daemon.

    A thread wants the processor while it runs or waits for it. n, the sum of run + wait over all threads of normal
    priority, divided by `seconds`, is how many wanted it on average; with the RNIC as one more, a fair share is
    1 / (n + 1) of the processor. The RNIC kept a forwarding thread from its fair share if the RNIC ran for more than
    that, and the thread wanted that much and ran for less."""
    wanted = sum(each.run + each.wait for each in [*forwarding.values(), *others.values()])
    fair = seconds / (wanted / seconds + 1)
    return [
        f"the RNIC kept replica thread {tid} from its fair share of the processor, {fair / seconds:.1%}: the thread ran "
        f"{thread.run / seconds:.1%} of the time and waited {thread.wait / seconds:.1%}, the RNIC ran {rnic_seconds / seconds:.1%}"
        for tid, thread in forwarding.items()
        if rnic_seconds > fair and thread.run + thread.wait >= fair > thread.run
    ]


def placement_reasons(who: str, found: dict[int, procfs.Placement], processor: int, normal: bool) -> list[str]:
    """Threads of `who` must be allowed on `processor` alone, and, where `normal`, have normal policy and nice 0."""
    reasons = []
    for tid, placement in found.items():
        if placement.processors != {processor}:
            allowed = ", ".join(map(str, sorted(placement.processors)))
            reasons.append(f"thread {tid} of {who} may run on processor {allowed} instead of {processor} alone")
        if normal and (placement.policy != os.SCHED_OTHER or placement.nice != 0):
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


def quiet_reasons(processor: int, ours: float, busy: float, stolen: float, seconds: float) -> list[str]:
    """Nobody else may have taken much of a processor that was measured; `ours`, `busy` and `stolen` in seconds."""
    reasons = []
    ticks = TICKS * procfs.TICK
    others = busy - ours
    if others > max(OTHERS_LIMIT * seconds, ticks):
        reasons.append(f"other programs took {others / seconds:.0%} of processor {processor}")
    if stolen > max(STOLEN_LIMIT * seconds, ticks):
        reasons.append(f"the hypervisor took {stolen / seconds:.0%} of processor {processor}")
    return reasons
