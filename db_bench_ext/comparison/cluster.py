"""An emulated cluster for the time of a block, by hyperloopctl."""

import contextlib
import dataclasses
import json
import pathlib

from comparison import nodes, processes
from comparison.errors import ComparisonError


@dataclasses.dataclass(frozen=True)
class Settings:
    replicas: int
    region_size: int
    provider: str
    device: str | None
    processor: int | None  # of replicas and RNIC daemon; None: any
    spin_us: int | None  # None, and of priority: as hyperloopctl has it
    priority: str | None
    hosts_apart: bool = False
    netem: str | None = None


@dataclasses.dataclass
class Cluster:
    hyperloopctl: str
    directory: pathlib.Path
    uri: str
    daemons: dict[str, int]  # pids by name, the primary's first; empty with provider verbs
    replicas: list[int]  # pids in chain order
    nodes: list[nodes.Node]  # hosts apart: the primary's, then the replicas' in chain order; else empty

    def uri_for(self, datapath: str) -> str:
        base = "&".join(part for part in self.uri.split("&") if not part.startswith("datapath="))
        return f"{base}&datapath={datapath}"

    def daemon_log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def counters(self) -> dict[str, int]:
        """Counters of the RNICs of all hosts, as HOST.NAME."""
        text = processes.capture([self.hyperloopctl, "counters", "--dir", str(self.directory), "--json"])
        return {f"{host}.{name}": value for host, counters in json.loads(text).items() for name, value in counters.items()}


@contextlib.contextmanager
def running(hyperloopctl: str, directory: pathlib.Path, settings: Settings):
    """Starts a cluster in `directory`, which must not exist, and ends it with the block, directory included.
    ComparisonError quotes hyperloopctl."""
    start = [hyperloopctl, "cluster", "start", "--dir", str(directory), "--replicas", str(settings.replicas),
             "--region-size", str(settings.region_size)]
    if settings.provider == "verbs":
        start += ["--provider", "verbs"] + (["--device", settings.device] if settings.device else [])
    else:
        start += ["--hosts-apart"] if settings.hosts_apart else []
        start += ["--netem", settings.netem] if settings.netem else []
        for flag, value in (("--cpu", settings.processor), ("--spin-us", settings.spin_us), ("--priority", settings.priority)):
            start += [] if value is None else [flag, str(value)]
    with processes.directory(directory), contextlib.ExitStack() as stack:
        stack.callback(_stop, hyperloopctl, directory)
        # A start is not interrupted, because it would leave the processes that it had begun.
        with processes.shield():
            processes.capture(start, settings.processor)
            status = json.loads(processes.capture([hyperloopctl, "cluster", "status", "--dir", str(directory), "--json"]))
        pids = {each["name"]: each["pid"] for each in status["processes"]}
        daemons = {name: pid for name, pid in pids.items() if name.endswith("rnicd")}
        yield Cluster(hyperloopctl, directory, status["uri"], daemons,
                      [pids[f"replica{i}"] for i in range(settings.replicas)],
                      nodes.apart(status) if settings.hosts_apart else [])


def _stop(hyperloopctl: str, directory: pathlib.Path) -> None:
    if not (directory / "cluster.json").exists():
        return
    with processes.shield():
        try:
            processes.capture([hyperloopctl, "cluster", "stop", "--dir", str(directory)])
        except ComparisonError as error:
            raise ComparisonError(f"the cluster in {directory} could not be stopped: {error}") from None
