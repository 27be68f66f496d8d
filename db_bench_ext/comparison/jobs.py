"""The jobs of a run's primaries: the stock db_bench with its benchmarks, or hyperloop-ycsb with workloads. Runner asks a job for

    program, hint           the program's name, and what helps when it does not end in time
    title                   of the run, for progress
    stepwise                whether it waits for a line on its standard input when it has said that a benchmark begins
    preparation(…)          a command that makes the database and is not measured, or None
    command(…)              the command that is, with database, cluster (None: unreplicated) and configuration
    reader()                what takes the command's output (as db_bench.OutputReader)
    share(reader, …)        how much of it is done, as well as can be told
"""

import time

from comparison import placement, ycsb
from comparison.db_bench import OutputReader


class DbBench:
    """`workload` as flags.workload returns it; `extra` flags win over it."""

    program = "db_bench"
    hint = ("Give fewer operations (--num); cases that wait for time slices take --slow_seconds only with benchmarks that know --duration, "
            "which fillseq does not")
    title = ""
    stepwise = False

    def __init__(self, options, workload: dict[str, str], program: str, hyperloopctl: str, extra: dict[str, str] | None = None):
        self._options = options
        self._workload = workload
        self._program = program
        self._hyperloopctl = hyperloopctl
        self._extra = extra or {}

    def preparation(self, database, over):
        return None

    def command(self, database, over, configuration) -> list[str]:
        flags = self._flags(configuration)
        command = [self._program, *(f"--{name}={value}" for name, value in flags.items()), "--histogram=1", f"--db={database}"]
        if over is None:
            return command
        return [self._hyperloopctl, "exec", "--uri", over.uri_for(configuration.datapath), "--", *command]

    def reader(self) -> OutputReader:
        return OutputReader()

    def share(self, reader: OutputReader, finished: int, began: float | None, configuration) -> float:
        flags = self._flags(configuration)
        if flags.get("duration", "0") != "0":
            return 0.0 if began is None else min((time.monotonic() - began) / float(flags["duration"]), 1.0)
        return min(finished / int(flags["num"]), 1.0)

    def _flags(self, configuration) -> dict[str, str]:
        flags = dict(self._workload)
        options = self._options
        if placement.waits_for_slices(configuration.datapath, configuration.noise, options.replicas * options.tenants):
            flags.setdefault("duration", str(options.slow_seconds))
        if "duration" in flags:
            flags.setdefault("ops_between_duration_checks", "1")
        return flags | self._extra


class Ycsb:
    """`workloads` on one load: E first, for which YCSB's authors recommend a fresh one, then A, B, C, F, D as they do. Of db_bench's
    `workload` it takes --sync and --threads."""

    program = "hyperloop-ycsb"
    stepwise = True
    hint = "Give smaller --ycsb_records, --ycsb_operations or --ycsb_seconds"

    def __init__(self, options, workload: dict[str, str], program: str):
        self._options = options
        self._program = program
        self._workloads = [letter for letter in "eabcfd" if letter in options.ycsb]
        self._flags = ["--sync"] if workload.get("sync") in ("1", "true") else []
        self._flags += [f"--threads={workload.get('threads', '1')}"]
        self.title = "YCSB " + ",".join(self._workloads)

    def preparation(self, database, over) -> list[str]:
        """Loads over the provider's fastest datapath: a replica's thread that waits for time slices would take minutes."""
        fastest = "fanout" if self._options.provider == "verbs" else "offload"
        return self._base(database, over, fastest) + ["--phase=load"]

    def command(self, database, over, configuration) -> list[str]:
        return self._base(database, over, configuration.datapath) + [
            "--phase=run", "--step", f"--workload={','.join(self._workloads)}", f"--operations={self._options.ycsb_operations}",
            f"--max_seconds={self._options.ycsb_seconds}", f"--rate={','.join(map(str, self._options.ycsb_rate))}"]

    def reader(self) -> ycsb.OutputReader:
        return ycsb.OutputReader()

    def share(self, reader: ycsb.OutputReader, finished: int, began: float | None, configuration) -> float:
        return len(reader.benchmarks) / (len(self._workloads) * len(self._options.ycsb_rate))

    def _base(self, database, over, datapath: str) -> list[str]:
        uri = [] if over is None else [f"--uri={over.uri_for(datapath)}"]
        return [self._program, "--json", f"--db={database}", *uri, f"--records={self._options.ycsb_records}", *self._flags]
