"""The parts of a results.json that the report shows: it groups cases so that datapaths can be compared, pools the
histograms of valid runs, and sorts primitives into series over window, size and group."""

import collections
import dataclasses
import math
import statistics

from . import summary
from .db_bench import WRITES

DATAPATHS = ("offload", "fanout", "cpu-polling", "cpu-event", "none")
LOADS = ("idle", "noise")
PERCENTILES = {"p50": "50 %", "p99": "99 %", "p99_9": "99.9 %", "p99_99": "99.99 %"}


_YCSB = "ycsb-"  # begins the names of YCSB's workloads


@dataclasses.dataclass
class Group:
    """The cases that differ in their datapath only, best known as one comparison."""

    benchmark: str
    load: str
    noise_workers: int | None
    setting: str  # what the heading says beside the benchmark: replicas, tenants, provider
    cases: list[dict]

    @property
    def load_title(self) -> str:
        return load_title(self.load, self.noise_workers)

    @property
    def measured(self) -> list[dict]:
        """The cases with at least one valid run."""
        return [case for case in self.cases if case["median"]]

    def label(self, case: dict) -> str:
        """The datapath, or the whole name when two cases have the same datapath."""
        same = [other for other in self.cases if other["datapath"] == case["datapath"]]
        return case["datapath"] if len(same) == 1 else case["name"]

    def case(self, datapath: str) -> dict | None:
        return next((case for case in self.measured if case["datapath"] == datapath), None)


@dataclasses.dataclass
class Kind:
    """One kind of a case's operations; medians over the valid runs."""

    name: str
    operations: float
    latency_ns: dict


def kinds(case: dict) -> list[Kind]:
    """In the order in which the runs name them; none where they do not say."""
    found: dict[str, list[dict]] = {}
    for run in valid_runs(case):
        for each in run.get("types", []):
            found.setdefault(each["type"], []).append(each)
    return [Kind(name, statistics.median(each["operations"] for each in of_kind), summary.median_latency(of_kind))
            for name, of_kind in found.items()]


def counted_kind(cases: list[dict]) -> str:
    """The kind of operations that the cases' latencies are of: the writes where there are any."""
    names = [kind.name for case in cases for kind in kinds(case)]
    return next((name for name in names if name in WRITES), names[0] if names else "operation")


def is_ycsb(case: dict) -> bool:
    return case["benchmark"].startswith(_YCSB)


def offered_rate(benchmark: str) -> int:
    """Operations a second that a workload of YCSB offered ("ycsb-a@2000"); 0: the next was issued when one was done."""
    return int(benchmark.partition("@")[2] or 0)


@dataclasses.dataclass
class OfferedLoad:
    """The groups of one workload of YCSB that differ in the offered rate only, two at least, the least rate first."""

    workload: str
    group: Group  # any of them: setting and load are those of all
    rates: list[tuple[int, Group]]

    def lines(self, percentile: str) -> list[tuple[str, str, list[tuple[int, float]]]]:
        """(label, datapath, latency at each rate) of each case that was measured at any."""
        found: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for rate, group in self.rates:
            for case in group.measured:
                value = case["median"]["latency_ns"][percentile]
                if value is not None:
                    found.setdefault((group.label(case), case["datapath"]), []).append((rate, value))
        return [(label, datapath, points) for (label, datapath), points in found.items()]


def offered_loads(ycsb_groups: list[Group]) -> list[OfferedLoad]:
    found: dict[tuple, OfferedLoad] = {}
    for group in ycsb_groups:
        if rate := offered_rate(group.benchmark):
            workload = group.benchmark.partition("@")[0]
            key = (workload, group.setting, group.load, group.noise_workers)
            found.setdefault(key, OfferedLoad(workload, group, [])).rates.append((rate, group))
    for each in found.values():
        each.rates.sort(key=lambda pair: pair[0])
    return [each for each in found.values() if len(each.rates) > 1]


def load_title(load: str, noise_workers: int | None = None) -> str:
    if load == "idle":
        return "idle machine"
    workers = "stress-ng" if noise_workers is None else f"{noise_workers} stress-ng worker" + ("" if noise_workers == 1 else "s")
    return f"noise: {workers} on the replicas’ processors"


def valid_runs(case: dict) -> list[dict]:
    return [run for run in case["runs"] if run["valid"]]


def _setting(case: dict) -> str:
    if case["datapath"] == "none":
        return "not replicated"
    parts = [f"{case['replicas']} replica" + ("" if case["replicas"] == 1 else "s")]
    if case["tenants"] > 1:
        parts.append(f"{case['tenants']} tenants")
    if case["provider"] != "softrnic":
        parts.append(f"provider {case['provider']}")
    if case.get("hosts_apart"):
        parts.append("hosts apart, over links")
    return ", ".join(parts)


def groups(cases: list[dict]) -> list[Group]:
    """Every comparison, benchmarks in the file's order, idle before noise. An unreplicated case belongs to each
    comparison of its benchmark, tenants and load, whatever their number of replicas."""

    def surroundings(case: dict) -> tuple:
        return case["benchmark"], case["tenants"], case["load"], case.get("noise_workers")

    found: dict[tuple, Group] = {}
    for case in sorted(cases, key=lambda case: DATAPATHS.index(case["datapath"])):
        replicated = case["datapath"] != "none"
        homes = [group for key, group in found.items() if key[0] == surroundings(case)]
        if replicated or not homes:
            key = (surroundings(case), _setting(case))
            group = Group(case["benchmark"], case["load"], case.get("noise_workers"), _setting(case), [])
            homes = [found.setdefault(key, group)]
        for group in homes:
            group.cases.append(case)
    order = list(dict.fromkeys(case["benchmark"] for case in cases))
    return sorted(found.values(), key=lambda group: (
        order.index(group.benchmark), group.setting, LOADS.index(group.load), group.noise_workers or 0))


def pooled_tail(runs: list[dict]) -> list[tuple[float, float]]:
    """(latency, share of operations that took longer) over all runs' histograms together; the last point is the slowest
    operation, with the share of one."""
    counts: collections.Counter = collections.Counter()
    for run in runs:
        greatest = run["latency_ns"]["max"] if "latency_ns" in run else run["max_ns"]
        for _, upper, count in run["histogram"]:
            counts[max(min(upper, greatest), 1)] += count  # a logarithmic scale has no 0
    total = sum(counts.values())
    points, slower = [], total
    for upper in sorted(counts):
        slower -= counts[upper]
        if slower > 0:
            points.append((upper, slower / total))
    if total:
        first = min(lower for run in runs for lower, _, _ in run["histogram"])
        points = [(max(first, 1), 1.0)] + points + [(max(counts), 1 / total)]
    return points


def at_tail(points: list[tuple[float, float]], wanted: float) -> float | None:
    """The latency that a share of `wanted` exceeds, on the line that joins `points` of pooled_tail on logarithmic scales;
    None when fewer operations than that were measured."""
    for (x, tail), (next_x, next_tail) in zip(points, points[1:]):
        if next_tail <= wanted < tail:
            part = math.log(tail / wanted) / math.log(tail / next_tail)
            return x * (next_x / x) ** part
    return None


def spread(runs: list[dict], value) -> tuple[float, float]:
    """The least and the greatest `value(run)` of those that have one."""
    values = [value(run) for run in runs if value(run) is not None]
    return min(values), max(values)


# --- the primitives -------------------------------------------------------------------------------------------------

# What tells one measurement of a primitive from another, besides the datapath. Absent fields count as not set.
_CONFIGURATION = ("primitive", "flush", "size", "window", "replicas", "load", "loop", "rate", "wait",
                  "inline", "signal_every", "requests", "chained")
_RAW = "verb-"  # begins the names of raw verbs


@dataclasses.dataclass
class Point:
    """Repeated measurements of one primitive in one configuration."""

    datapath: str
    configuration: dict
    runs: list[dict]

    def median(self, field: str) -> float | None:
        values = [run[field] for run in self.runs if run.get(field) is not None]
        return statistics.median(values) if values else None

    def cpu_us(self, part: str) -> float | None:
        """Microseconds of processor time per operation, of all replicas together."""
        values = []
        for run in self.runs:
            seconds = run.get("cpu_seconds", {}).get(part)
            if seconds is not None and run["number"]:
                values.append(1e6 * (sum(seconds) if part == "replicas" else seconds) / run["number"])
        return statistics.median(values) if values else None

    def __getitem__(self, name: str):
        return self.configuration[name]

    @property
    def raw(self) -> bool:
        return self["primitive"].startswith(_RAW)

    @property
    def verb(self) -> str:
        return self["primitive"].removeprefix(_RAW)


@dataclasses.dataclass
class Series:
    """One line of a plot; `look` is the datapath whose colour, line and marker it has."""

    label: str
    look: str
    points: list[Point]


@dataclasses.dataclass
class Panel:
    """One plot of primitives: series along one quantity, all else the same."""

    over: str  # window, size or replicas
    fixed: dict
    series: list[Series]


def points(primitives: list[dict]) -> list[Point]:
    """The valid measurements, those of the same configuration together."""
    keyed: dict[tuple, Point] = {}
    for measurement in primitives:
        if measurement.get("valid", True):
            configuration = {name: measurement.get(name) for name in _CONFIGURATION}
            key = (measurement["datapath"], *configuration.values())
            keyed.setdefault(key, Point(measurement["datapath"], configuration, [])).runs.append(measurement)
    return sorted(keyed.values(), key=lambda point: (
        point["primitive"], point["flush"], LOADS.index(point["load"]), point["size"], point["window"], point["replicas"],
        DATAPATHS.index(point.datapath)))


def panels(all_points: list[Point], over: str) -> list[Panel]:
    """The plots over `over`: closed-loop measurements that differ in nothing else, one line for each datapath or raw verb.
    Those with most points on a line come first; lines of two points only where nothing has more."""
    keyed: dict[tuple, dict[str, list[Point]]] = {}
    for point in all_points:
        if point["loop"] != "open":
            different = (over, "primitive") if point.raw else (over,)
            fixed = tuple((name, value) for name, value in point.configuration.items() if name not in different)
            label = point.verb if point.raw else point.datapath
            keyed.setdefault(fixed, {}).setdefault(label, []).append(point)
    found = []
    for fixed, lines in keyed.items():
        lines = {label: sorted(line, key=lambda point: point[over]) for label, line in lines.items() if len(line) > 1}
        if lines:
            looks = {label: label if label in DATAPATHS else DATAPATHS[number % len(DATAPATHS)] for number, label in enumerate(lines)}
            found.append(Panel(over, dict(fixed), [Series(label, looks[label], line) for label, line in lines.items()]))

    def longest(panel: Panel) -> int:
        return max(len(series.points) for series in panel.series)

    found.sort(key=lambda panel: (-longest(panel), -sum(len(series.points) for series in panel.series)))
    return [panel for panel in found if longest(panel) > 2 or longest(found[0]) == 2]


def absences(panel: Panel, primitives: list[dict]) -> list[str]:
    """Why a datapath of which there are measurements of groups is not in the panel, or not with all of its points."""
    of_groups = [each for each in primitives if not each["primitive"].startswith(_RAW)]
    found = []
    for datapath in DATAPATHS:
        if not any(each["datapath"] == datapath for each in of_groups):
            continue
        alike = [each for each in of_groups if each["datapath"] == datapath and all(each.get(name) == value for name, value in panel.fixed.items())]
        invalid = sum(not each.get("valid", True) for each in alike)
        drawn = any(series.label == datapath for series in panel.series)
        if not alike:
            found.append(f"{datapath} was not measured")
        elif not drawn:
            found.append(f"no measurement of {datapath} is valid" if invalid == len(alike) else f"{datapath} has one valid point only")
        elif invalid:
            found.append(f"{invalid} of {len(alike)} measurements of {datapath} are not valid")
    return found


def comparable(all_points: list[Point]) -> list[list[Point]]:
    """Points that differ in their datapath only and have a histogram, where there are two or more; the widest
    comparisons first, idle before noise."""
    keyed: dict[tuple, list[Point]] = {}
    for point in all_points:
        if any(run["histogram"] for run in point.runs):
            keyed.setdefault(tuple(point.configuration.values()), []).append(point)
    return sorted((members for members in keyed.values() if len(members) > 1), key=lambda members: -len(members))
