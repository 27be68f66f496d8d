"""Alternatives that users might choose, each measured on this machine in the same turns as the cases."""

import dataclasses
import itertools
import pathlib
import shlex
import statistics
from collections.abc import Callable

from comparison import closed_loop, etcd_servers, jobs, placement, processes, redis_servers, runner, summary
from comparison.errors import UsageError

SECONDS = 3.0  # of each run whose operations may be slow
OVERHEAD_SECONDS = 0.3


@dataclasses.dataclass(frozen=True)
class Alternative:
    name: str
    guarantee: str
    durability: str
    settings: str
    run: Callable[[], tuple[dict, str]]  # figures of one run, and its command


def check_disk(directory: str) -> str:
    """The type of its file system. UsageError when it is none on a disk."""
    path = pathlib.Path(directory)
    if not path.is_dir():
        raise UsageError(f"--disk_dir={directory} is no directory")
    kind = placement.file_system(path)
    if placement.in_memory(path):
        raise UsageError(f"--disk_dir={directory} is on {kind}, where fsync does nothing; give a directory on a disk")
    return kind


class Alternatives:
    """`work` and `disk` are directories of this comparison alone; `programs` has the paths of redis-server and etcd;
    `db_bench(extra flags)` makes a job."""

    def __init__(self, run: runner.Runner, options, workload: dict[str, str], programs: dict[str, str], work: pathlib.Path,
                 disk: pathlib.Path, db_bench: Callable[[dict[str, str]], jobs.DbBench]):
        self._runner = run
        self._db_bench = db_bench
        self._keys = int(workload["num"])
        self._value_size = int(workload.get("value_size", "100"))
        self._programs = programs
        self._numbers = itertools.count()
        self._results: dict[str, dict] = {}
        replicas = options.replicas
        disk_kind = placement.file_system(disk)
        one_writer = "db_bench fillrandom, sync=1, one thread"
        group = f"RocksDB with HyperLoop ×{replicas}"
        self.list = [
            Alternative("RocksDB, not replicated, in memory", "in the memory of this machine", "the process's end",
                        f"{one_writer}; database on tmpfs", lambda: self._rocksdb("none", work)),
            Alternative("RocksDB, not replicated, fsync to disk", "on this machine's disk", "a power cut; not the loss of the machine or its disk",
                        f"{one_writer}; database on {disk_kind}, {SECONDS:g} s a run", lambda: self._rocksdb("none", disk)),
            Alternative(f"{group}, in memory", f"on all {replicas} replicas, flushed by their RNICs",
                        "whatever leaves one of the group's machines powered",
                        f"{one_writer}; datapath offload, software RNIC, pools on tmpfs (media=ram)", lambda: self._rocksdb("offload", work)),
            Alternative(f"{group}, on disk", f"on all {replicas} replicas, each with an msync", "a power cut of all, and the loss of all machines but one",
                        f"{one_writer}; datapath offload, software RNIC, pools on {disk_kind} (media=file), {SECONDS:g} s a run",
                        lambda: self._rocksdb("offload", disk)),
            *(Alternative(f"Redis, WAIT 3, {place}", "processed by 3 of 3 replicas; no consensus: a failover may still lose it", survives,
                          f"{redis_servers.SETTINGS}; files on {kind}", lambda home=home: self._server(redis_servers, "redis-server", home))
              for place, survives, kind, home in (
                  ("in memory", "whatever leaves one of the four machines powered, if that one is made master", "tmpfs", work),
                  ("on disk", "a power cut of all, or the loss of all but one that is then made master", disk_kind, disk))),
            *(Alternative(f"etcd, three members, {place}", "written by a majority, 2 of 3; linearizable, with automatic failover", survives,
                          f"{etcd_servers.SETTINGS}; files on {kind}", lambda home=home: self._server(etcd_servers, "etcd", home))
              for place, survives, kind, home in (
                  ("in memory", "the loss of one member; not a power cut of two", "tmpfs", work),
                  ("on disk", "the loss of one member; a power cut of all", disk_kind, disk))),
        ]

    def run(self, alternative: Alternative) -> None:
        """One more run of it."""
        figures, command = alternative.run()
        entry = self._results.setdefault(alternative.name, {
            "name": alternative.name, "guarantee": alternative.guarantee, "durability": alternative.durability,
            "settings": alternative.settings, "command": command, "runs": []})
        entry["runs"].append(figures)
        overheads = [run["round_trip_p50_ns"] for run in entry["runs"] if "round_trip_p50_ns" in run]
        if overheads:
            entry["settings"] = (f"{alternative.settings}; of each latency {statistics.median(overheads) / 1000:.0f} µs (p50) are the client's and "
                                 "the server's for a request without any replication")
        valid = [run for run in entry["runs"] if run["valid"]]
        entry["operations"] = sum(run["operations"] for run in entry["runs"])
        entry["ops_per_second"] = statistics.median(run["ops_per_second"] for run in valid) if valid else None
        entry["latency_ns"] = summary.median_latency(valid) if valid else None

    def results(self) -> list[dict]:
        return list(self._results.values())

    def _rocksdb(self, datapath: str, place: pathlib.Path) -> tuple[dict, str]:
        extra = {"benchmarks": "fillrandom", "sync": "1", "threads": "1"}
        if not placement.in_memory(place):
            extra |= {"duration": f"{SECONDS:g}", "ops_between_duration_checks": "1"}
        measured = self._runner.run(self._db_bench(extra), runner.Configuration(datapath, 0), lambda share: None, place)[0]
        names = ("valid", "reasons", "operations", "seconds", "ops_per_second", "latency_ns", "histogram")
        return {name: measured.run[name] for name in names}, measured.command

    def _server(self, kind, program: str, home: pathlib.Path) -> tuple[dict, str]:
        with kind.running(self._programs[program], home / f"server{next(self._numbers)}") as (writer, command):
            overhead = closed_loop.measure(writer.idle_round_trip, OVERHEAD_SECONDS, self._keys, self._value_size)
            figures = closed_loop.measure(writer.write, SECONDS, self._keys, self._value_size)
        return figures | {"valid": True, "reasons": [], "round_trip_p50_ns": overhead["latency_ns"]["p50"]}, shlex.join(command)


def find_programs() -> dict[str, str]:
    """ComparisonError, with the remedy, for what is missing."""
    return {"redis-server": processes.find_program("redis-server", f"--alternatives needs it ({redis_servers.PACKAGE})"),
            "etcd": processes.find_program("etcd", f"--alternatives needs it ({etcd_servers.PACKAGE})")}
