"""Makes one run of a job: cluster, noise, primary, and their processor times."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shlex

from comparison import bench_process, cluster, db_bench, noise, placement, processes, procfs, snapshot, validity
from comparison.errors import ComparisonError

POOL_OVERHEAD = 8 << 20  # of a pool beyond its region
DATAPATH_CHOICE = re.compile(r"datapath ([a-z-]+): ")


@dataclasses.dataclass(frozen=True)
class Programs:
    hyperloopctl: str
    stress_ng: str = ""


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What one run is over: a datapath and how many stress-ng workers run beside the replicas."""

    datapath: str
    noise: int

    @property
    def load(self) -> str:
        return "noise" if self.noise else "idle"


@dataclasses.dataclass
class Measured:
    """One benchmark of one run; `run` is an item of "runs" in results.schema.json."""

    benchmark: str
    command: str
    run: dict
    datapath: str  # that was used: of `auto` the primary's choice


class Runner:
    """`options` as flags.parse_own returns them. Everything lives in `work`, which exists; each run leaves it as it was."""

    def __init__(self, options, programs: Programs, processors: placement.Processors, work: pathlib.Path):
        self._options = options
        self._programs = programs
        self._processors = processors
        self._work = work
        self._bound = processors.primary is not None
        self._numbers = itertools.count()
        self.rocksdb_version = ""

    def bytes_needed(self) -> int:
        """In the working directory, for one run over clusters."""
        options = self._options
        return options.tenants * (options.replicas + 1) * (options.region_size + POOL_OVERHEAD)

    def run(self, job, configuration: Configuration, on_progress, place: pathlib.Path | None = None) -> list[Measured]:
        """Runs `job` (jobs.py) once. `on_progress(share)` is called now and then, with 0 to 1. The run's files lie in
        `place`, by default in the working directory."""
        directory = (place or self._work) / f"run{next(self._numbers)}"
        with contextlib.ExitStack() as stack:
            clusters = self._start_clusters(stack, configuration, directory, self._options.tenants)
            stress = stack.enter_context(noise.running(self._programs.stress_ng, configuration.noise, self._processors.replicas))
            stack.enter_context(processes.directory(directory))
            commands = [self._prepared(job, configuration, directory / f"db{i}", each) for i, each in enumerate(clusters)]
            counters = [_counters(clusters)]
            benches = stack.enter_context(bench_process.running(job, commands, self._processors.primary, self._options.timeout))
            who = snapshot.Participants(
                primary=benches.pids,
                replicas=[pid for each in clusters if each for pid in each.replicas],
                rnic=[pid for each in clusters if each for pid in each.daemons.values()],
                noise=stress,
            )
            begins, ends, reasons = {}, {}, []

            def on_mark(mark: str, number: int, tenants: int) -> None:
                if mark == "opened":
                    if tenants == (len(commands) if job.stepwise else 1):
                        begins[number] = snapshot.take(who)
                    if number == 0 and tenants == len(commands):
                        reasons.extend(self._placement_reasons(who, job.program))
                        reasons.extend(self._daemon_reasons(clusters, configuration))
                    if tenants == len(commands):
                        benches.step()
                    return
                ends[number] = snapshot.take(who)
                if tenants == len(commands):
                    counters.append(_counters(clusters))

            with processes.prompt():
                benches.watch(on_mark, lambda finished: on_progress(
                    job.share(benches.readers[0], finished, begins[0].moment if begins else None, configuration)))
            self.rocksdb_version = self.rocksdb_version or benches.readers[0].version
            on_disk = not placement.in_memory(directory)
            used = chosen_datapath(directory / "db0") if configuration.datapath == "auto" else configuration.datapath
            return self._gather(benches.readers, begins, ends, counters, reasons, shlex.join(commands[0]), configuration, on_disk, used)

    @contextlib.contextmanager
    def nodes(self):
        """The nodes of a cluster whose hosts are apart, for other programs: its own are idle."""
        with contextlib.ExitStack() as stack:
            over, = self._start_clusters(stack, Configuration("auto", 0), self._work / f"run{next(self._numbers)}", 1)
            yield over.nodes

    def _start_clusters(self, stack: contextlib.ExitStack, configuration: Configuration, directory: pathlib.Path, tenants: int):
        options = self._options
        if configuration.datapath == "none":
            return [None] * tenants
        rnic = placement.rnic(configuration.datapath, configuration.noise, tenants, options.hosts_apart, options.rnic_spin_us, self._bound)
        settings = cluster.Settings(options.replicas, options.region_size, options.provider, options.device,
                                    self._processors.replicas, rnic.spin_us, rnic.priority, options.hosts_apart, options.netem)
        return [
            stack.enter_context(cluster.running(self._programs.hyperloopctl, directory.with_name(f"{directory.name}c{i}"), settings))
            for i in range(tenants)
        ]

    def _prepared(self, job, configuration: Configuration, database: pathlib.Path, over) -> list[str]:
        """The command to measure; what must run before it has."""
        preparation = job.preparation(database, over)
        if preparation:
            processes.capture(preparation, self._processors.primary, self._options.timeout)
        return job.command(database, over, configuration)

    def _placement_reasons(self, who: snapshot.Participants, primary: str) -> list[str]:
        """Checks the placement that the kernel reports at run time, not the one that was requested."""
        reasons: list[str] = []
        if not self._bound:
            return reasons
        own, others = self._processors.primary, self._processors.replicas
        for pids, name, processor, normal in ((who.primary, primary, own, False), (who.replicas, "a replica", others, True),
                                              (who.rnic, "the RNIC daemon", others, False), (who.noise, "stress-ng", others, True)):
            for pid in pids:
                reasons += validity.placement_reasons(name, procfs.placements(pid), processor, normal)
        return reasons

    def _daemon_reasons(self, clusters: list, configuration: Configuration) -> list[str]:
        """The rules for the daemon depend only on the case, not on --rnic_spin_us."""
        options = self._options
        if not self._bound:
            return []
        event_driven = placement.rnic(configuration.datapath, configuration.noise, options.tenants, options.hosts_apart, None).spin_us == 0
        return [
            reason
            for each in clusters
            if each is not None
            for name, pid in each.daemons.items()
            for reason in validity.daemon_reasons(procfs.arguments(pid), procfs.placements(pid)[pid], each.daemon_log(name), event_driven)
        ]

    def _gather(self, readers, begins, ends, counters, reasons, command, configuration, on_disk, datapath) -> list[Measured]:
        measured = []
        for number, first in enumerate(readers[0].benchmarks):
            each = [reader.benchmarks[number] for reader in readers if number < len(reader.benchmarks)]
            histograms = [benchmark.histogram() for benchmark in each]
            if number not in begins or any(histogram is None or histogram.count == 0 for histogram in histograms):
                continue  # does not measure operations, such as compact
            cost = snapshot.between(begins[number], ends[number])
            run = _figures(each, db_bench.merge(histograms))
            run["reasons"] = (reasons + [benchmark.fault for benchmark in each if benchmark.fault] +
                              self._cost_reasons(cost, configuration, on_disk))
            run["valid"] = not run["reasons"]
            run["cpu_seconds"] = {"primary": cost.primary, "replicas": cost.replicas, "rnic": self._rnic_seconds(cost, configuration),
                                  "noise": cost.noise if configuration.noise else None}
            run["cpu_share"] = self._shares(cost, configuration)
            run["rnic_counters"] = {name: value - counters[number].get(name, 0) for name, value in counters[number + 1].items()}
            measured.append(Measured(first.name, command, run, datapath))
        if not measured:
            raise ComparisonError(f"no operations were measured by {command}")
        return measured

    def _over_device(self, configuration: Configuration) -> bool:
        return self._options.provider == "verbs" and configuration.datapath != "none"

    def _rnic_seconds(self, cost: snapshot.Snapshot, configuration: Configuration) -> float:
        """The daemon's; of a device what the kernel's own threads and interrupts took, which to Soft-RoCE is the RNIC."""
        if not self._over_device(configuration):
            return cost.rnic
        return cost.kernel + sum(each.interrupts for each in cost.processors.values())

    def _cost_reasons(self, cost: snapshot.Snapshot, configuration: Configuration, on_disk: bool) -> list[str]:
        reasons = []
        if configuration.noise:
            reasons += validity.fair_share_reasons(list(cost.replica_threads.values()), list(cost.noise_threads.values()), cost.rnic, cost.moment)
        if not self._bound:
            together = [told for number, told in cost.processors.items() if number in processes.allowed()]
            return reasons + validity.quiet_reasons("the processors", cost.primary_user + cost.others_user, sum(told.user for told in together),
                                                    sum(told.stolen for told in together), cost.moment * len(together))
        own, others = self._processors.primary, self._processors.replicas
        ours = {own: (cost.primary, cost.primary_user), others: (sum(cost.replicas) + cost.rnic + cost.noise + cost.own, cost.others_user)}
        for processor, (total, user) in ours.items():
            told = cost.processors[processor]
            # For disks, devices and the network between hosts apart the kernel works in threads of its own, and does not say for
            # which process. So only the programs' time outside of the kernel is compared.
            in_kernel = on_disk or self._over_device(configuration) or self._options.hosts_apart
            measured = (user, told.user) if in_kernel else (total, told.busy)
            reasons += validity.quiet_reasons(f"processor {processor}", *measured, told.stolen, cost.moment)
        return reasons

    def _shares(self, cost: snapshot.Snapshot, configuration: Configuration) -> dict[str, dict[str, float]]:
        """By processor. Exact where the placement holds: each part is bound to one processor. Over a device the RNIC's share is
        that of interrupts, since the kernel does not say where its threads were. Empty where nothing is bound."""
        if not self._bound:
            return {}
        own, others = self._processors.primary, self._processors.replicas
        nothing = {"rnic": 0.0, "replicas": 0.0, "noise": 0.0, "primary": 0.0}
        shares = {own: nothing | {"primary": cost.primary},
                  others: nothing | {"rnic": cost.rnic, "replicas": sum(cost.replicas), "noise": cost.noise}}
        if self._over_device(configuration):
            for processor, parts in shares.items():
                parts["rnic"] = cost.processors[processor].interrupts
        return {str(number): {part: seconds / cost.moment for part, seconds in parts.items()} for number, parts in shares.items()}


def chosen_datapath(database: pathlib.Path) -> str:
    """The last that the primary chose, by its log. ComparisonError: the log names none."""
    found = DATAPATH_CHOICE.findall((database / "LOG").read_text(errors="replace"))
    if not found:
        raise ComparisonError(f"{database}/LOG does not say which datapath the primary chose")
    return found[-1]


def _figures(benchmarks: list[db_bench.Benchmark], histogram: db_bench.Histogram) -> dict:
    operations = sum(each.operations for each in benchmarks)
    kinds = dict.fromkeys(kind for each in benchmarks for kind in each.histograms)
    types = {kind: db_bench.merge([each.histograms[kind] for each in benchmarks if kind in each.histograms]) for kind in kinds}
    return {
        "operations": operations,
        "seconds": max(each.seconds for each in benchmarks),
        "ops_per_second": sum(each.ops_per_second for each in benchmarks),
        "micros_per_op": sum(each.micros_per_op * each.operations for each in benchmarks) / max(operations, 1),
        "latency_ns": histogram.latency_ns,
        "histogram": histogram.buckets,
        "types": [{"type": kind, "operations": each.count, "latency_ns": each.latency_ns, "histogram": each.buckets}
                  for kind, each in types.items()],
    }


def _counters(clusters: list) -> dict[str, int]:
    """Of all clusters; with several tenants each name begins with the tenant's number."""
    several = len(clusters) > 1
    return {
        f"tenant{number}.{name}" if several else name: value
        for number, each in enumerate(clusters)
        if each is not None
        for name, value in each.counters().items()
    }


def check_space(work: pathlib.Path, needed: int) -> None:
    """ComparisonError when `work` has no room for a run."""
    found = os.statvfs(work)
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise ComparisonError(f"{work} has {free >> 20} MiB free, one run's pools need {needed >> 20}: give a smaller --region_size or "
                              "--tenants, another --work_dir, or mount -o remount,size=… /dev/shm")
