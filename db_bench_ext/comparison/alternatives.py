"""Alternatives that users might choose, each measured on this machine in the same turns as the cases."""

import contextlib
import dataclasses
import itertools
import pathlib
import shlex
import statistics
from collections.abc import Callable

from comparison import closed_loop, etcd_servers, jobs, nodes, placement, processes, redis_servers, runner, summary
from comparison.errors import ComparisonError, UsageError

SECONDS = 3.0  # of each run whose operations may be slow
OVERHEAD_SECONDS = 0.3
SIZES_APART = (100, 1000)  # of values, unless --value_size says otherwise
ONE_WRITER = "db_bench fillrandom, sync=1, one thread"
SERVERS = {"redis-server": redis_servers, "etcd": etcd_servers}


@dataclasses.dataclass(frozen=True)
class Alternative:
    name: str
    guarantee: str
    durability: str
    settings: str
    value_size: int
    run: Callable[[], tuple[dict, str, str | None]] | None  # figures of one run, its command, its datapath; None: `settings` says why not


@dataclasses.dataclass(frozen=True)
class _Home:
    """Where files lie, and so what a write survives."""

    directory: pathlib.Path
    place: str  # in names
    kind: str  # of the file system


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
    """`work` and `disk` (None with hosts apart) are directories of this comparison alone; `programs` as find_programs returns them;
    `db_bench(extra flags)` makes a job."""

    def __init__(self, run: runner.Runner, options, workload: dict[str, str], programs: dict[str, str], work: pathlib.Path,
                 disk: pathlib.Path | None, db_bench: Callable[[dict[str, str]], jobs.DbBench]):
        self._runner = run
        self._db_bench = db_bench
        self._keys = int(workload["num"])
        self._programs = programs
        self._replicas = options.replicas
        self._numbers = itertools.count()
        self._results: dict[tuple, dict] = {}
        memory = _Home(work, "in memory", "tmpfs")
        if disk is None:
            sizes = [int(workload["value_size"])] if "value_size" in workload else SIZES_APART
            self.list = [each for size in sizes for each in self._apart(memory, size)]
        else:
            size = int(workload.get("value_size", "100"))
            self.list = self._on_one_machine(memory, _Home(disk, "on disk", placement.file_system(disk)), size)

    def _on_one_machine(self, memory: _Home, disk: _Home, size: int) -> list[Alternative]:
        group = f"RocksDB with HyperLoop ×{self._replicas}"
        return [
            Alternative("RocksDB, not replicated, in memory", "in the memory of this machine", "the process's end",
                        f"{ONE_WRITER}; database on tmpfs", size, lambda: self._rocksdb("none", memory, size)),
            Alternative("RocksDB, not replicated, fsync to disk", "on this machine's disk", "a power cut; not the loss of the machine or its disk",
                        f"{ONE_WRITER}; database on {disk.kind}, {SECONDS:g} s a run", size, lambda: self._rocksdb("none", disk, size)),
            Alternative(f"{group}, in memory", f"on all {self._replicas} replicas, flushed by their RNICs",
                        "whatever leaves one of the group's machines powered",
                        f"{ONE_WRITER}; datapath offload, software RNIC, pools on tmpfs (media=ram)", size,
                        lambda: self._rocksdb("offload", memory, size)),
            Alternative(f"{group}, on disk", f"on all {self._replicas} replicas, each with an msync",
                        "a power cut of all, and the loss of all machines but one",
                        f"{ONE_WRITER}; datapath offload, software RNIC, pools on {disk.kind} (media=file), {SECONDS:g} s a run", size,
                        lambda: self._rocksdb("offload", disk, size)),
            *(self._redis(home, size, lambda: contextlib.nullcontext(nodes.here(1 + self._replicas))) for home in (memory, disk)),
            *(self._etcd(home, size, lambda: contextlib.nullcontext(nodes.here(etcd_servers.MEMBERS))) for home in (memory, disk)),
        ]

    def _apart(self, memory: _Home, size: int) -> list[Alternative]:
        """All with a network namespace for each node, none bound to a processor, and what writes on the primary's node."""
        return [
            Alternative(f"RocksDB with HyperLoop ×{self._replicas}", f"on all {self._replicas} replicas, flushed by their RNICs",
                        "whatever leaves one of the group's machines powered",
                        f"{ONE_WRITER}; default options, software RNICs with encrypted links, pools on tmpfs (media=ram), {SECONDS:g} s a run", size,
                        lambda: self._rocksdb("auto", memory, size)),
            self._redis(memory, size, self._runner.nodes), self._etcd(memory, size, self._runner.nodes)]

    def _redis(self, home: _Home, size: int, make_nodes) -> Alternative:
        count = self._replicas
        survives = {"in memory": "whatever leaves one of the machines powered, if that one is made master",
                    "on disk": "a power cut of all, or the loss of all but one that is then made master"}
        return self._server("redis-server", f"Redis, WAIT {count}, {home.place}",
                            f"processed by {count} of {count} replicas; no consensus: a failover may still lose it", survives[home.place],
                            home, size, make_nodes)

    def _etcd(self, home: _Home, size: int, make_nodes) -> Alternative:
        survives = {"in memory": "the loss of one member; not a power cut of two", "on disk": "the loss of one member; a power cut of all"}
        return self._server("etcd", f"etcd, three members, {home.place}",
                            "written by a majority, 2 of 3; linearizable, with automatic failover", survives[home.place], home, size, make_nodes)

    def _server(self, program: str, name: str, guarantee: str, survives: str, home: _Home, size: int, make_nodes) -> Alternative:
        kind = SERVERS[program]
        if program not in self._programs:
            return Alternative(name, guarantee, survives, f"there is no program {program} ({kind.PACKAGE})", size, None)
        return Alternative(name, guarantee, survives, f"{kind.SETTINGS}; files on {home.kind}", size,
                           lambda: self._write_to(program, home.directory, size, make_nodes))

    def run(self, alternative: Alternative) -> None:
        """One more run of it."""
        entry = self._results.setdefault((alternative.name, alternative.value_size), {
            "name": alternative.name, "guarantee": alternative.guarantee, "durability": alternative.durability,
            "settings": alternative.settings, "value_size": alternative.value_size, "datapath": None, "command": "", "runs": []})
        if alternative.run:
            figures, entry["command"], entry["datapath"] = alternative.run()
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

    def _rocksdb(self, datapath: str, home: _Home, size: int) -> tuple[dict, str, str | None]:
        extra = {"benchmarks": "fillrandom", "sync": "1", "threads": "1", "value_size": str(size)}
        if datapath == "auto" or not placement.in_memory(home.directory):
            extra |= {"duration": f"{SECONDS:g}", "ops_between_duration_checks": "1"}
        measured = self._runner.run(self._db_bench(extra), runner.Configuration(datapath, 0), lambda share: None, home.directory)[0]
        names = ("valid", "reasons", "operations", "seconds", "ops_per_second", "latency_ns", "histogram")
        return {name: measured.run[name] for name in names}, measured.command, None if datapath == "none" else measured.datapath

    def _write_to(self, program: str, home: pathlib.Path, size: int, make_nodes) -> tuple[dict, str, None]:
        directory = home / f"server{next(self._numbers)}"
        with make_nodes() as each, SERVERS[program].running(self._programs[program], directory, each) as (writer, command):
            overhead = closed_loop.measure(writer.idle_round_trip, OVERHEAD_SECONDS, self._keys, size)
            figures = closed_loop.measure(writer.write, SECONDS, self._keys, size)
        return figures | {"valid": True, "reasons": [], "round_trip_p50_ns": overhead["latency_ns"]["p50"]}, shlex.join(command), None


def find_programs(note: Callable[[str], None]) -> dict[str, str]:
    """The paths of those of SERVERS that are installed, by name. `note` is told what is missing, with the remedy."""
    found = {}
    for name, kind in SERVERS.items():
        try:
            found[name] = processes.find_program(name, f"--alternatives leaves it out ({kind.PACKAGE})")
        except ComparisonError as missing:
            note(str(missing))
    return found
