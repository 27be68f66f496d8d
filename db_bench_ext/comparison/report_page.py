"""Puts the page together: what the template (report.html.jinja) needs, section by section."""

import dataclasses
import datetime
import pathlib
import statistics

import jinja2

from . import percentiles
from . import report_model as model
from . import report_plots as plots
from . import report_text as text
from . import summary

_FOLDER = pathlib.Path(__file__).parent
_MAXIMUM_PANELS = 6  # of one kind of primitives' plots; the table has every number


@dataclasses.dataclass
class Figure:
    title: str
    svg: str
    note: str = ""  # what the reader does not see in it, and why


class _Figures:
    """Makes figures with ids of their own."""

    def __init__(self):
        self._count = 0

    def make(self, title: str, draw, *arguments) -> Figure:
        self._count += 1
        return Figure(title, draw(f"f{self._count}-", *arguments))


@dataclasses.dataclass
class Comparison:
    """One group of cases with its figures."""

    group: model.Group
    figures: list[Figure]
    findings: list[str]

    @property
    def title(self) -> str:
        return f"{self.group.benchmark}, {self.group.setting}, {self.group.load_title}"


def _findings(group: model.Group) -> list[str]:
    """Compares offload with the other datapaths in words; empty if offload was not measured."""
    offload = group.case("offload")
    if not offload:
        return []
    found = []
    for name, value, written in (("99th percentile", _case_p99, text.time), ("Operations a second", _case_rate, text.rate)):
        others = [f"{group.label(case)} {text.times(value(case) / value(offload))}" for case in group.measured
                  if case is not offload and value(case) is not None and value(offload)]
        if others:
            found.append(f"{name} with offload: {written(value(offload))}. As multiples of it: {', '.join(others)}.")
    return found


@dataclasses.dataclass
class Headline:
    """What the report is about, in one comparison: the tail of offload and that of a datapath that needs the replicas'
    processors."""

    what: str
    offload: float  # nanoseconds
    other: float
    other_name: str
    figure: Figure

    @property
    def times(self) -> str:
        return text.times(self.other / self.offload)


def _headline(groups: list[model.Group], points: list[model.Point], figures: _Figures) -> Headline | None:
    """Of a database benchmark, else of a primitive; under load if that was measured; against polling if that was. None:
    nothing was measured that can be compared."""
    candidates = [({case["datapath"]: _case_p99(case) for case in group.measured}, group) for group in groups]
    candidates += [({point.datapath: _p99(point) for point in members}, members) for members in model.comparable(points)]
    for load in reversed(model.LOADS):
        for other in ("cpu-polling", "cpu-event"):
            for tails, where in candidates:
                of_load = where.load if isinstance(where, model.Group) else where[0]["load"]
                if of_load == load and tails.get("offload") and tails.get(other):
                    return Headline(*_described(where, figures, tails["offload"], tails[other], other))
    return None


def _described(where, figures: _Figures, offload: float, other: float, other_name: str) -> tuple:
    """The fields of a Headline on a group of cases, or on points that differ in their datapath only."""
    if isinstance(where, model.Group):
        what = f"{where.benchmark}, {where.setting}, {where.load_title}"
        curves = [(where.label(case), case["datapath"], model.pooled_tail(model.valid_runs(case))) for case in where.measured]
    else:
        what = _fixed(where[0].configuration)
        curves = [(point.datapath, point.datapath, model.pooled_tail(point.runs)) for point in where]
    figure = figures.make(f"Latency distribution: {what}", plots.latency_cdf, what, [curve for curve in curves if curve[2]], plots.WHOLE_PAGE)
    return what, offload, other, other_name, figure


def _case_p99(case: dict) -> float | None:
    return case["median"]["latency_ns"]["p99"]


def _case_rate(case: dict) -> float:
    return case["median"]["ops_per_second"]


def _comparison(group: model.Group, figures: _Figures) -> Comparison:
    drawn = []
    if group.measured:
        curves = [(group.label(case), case["datapath"], model.pooled_tail(model.valid_runs(case))) for case in group.measured]
        curves = [curve for curve in curves if curve[2]]
        if curves:
            drawn.append(figures.make("Latency distribution", plots.latency_cdf, f"{group.benchmark}, {group.load}", curves))
        drawn.append(figures.make("Latency percentiles", plots.percentile_bars, group))
        drawn.append(figures.make("Processor time per operation", plots.cpu_bars, group))
        shares = _shares(group)
        if shares and group.load == "noise":
            drawn.append(figures.make("Who had the processors", plots.share_bars, shares))
    return Comparison(group, drawn, _findings(group))


def _ycsb(group: model.Group, figures: _Figures) -> Comparison:
    """As _comparison, of the kind of operations that writes, without the processors' figures: the tables have them."""
    drawn = []
    if group.measured:
        kind = model.counted_kind(group.measured)
        curves = [(group.label(case), case["datapath"], model.pooled_tail(model.valid_runs(case))) for case in group.measured]
        drawn.append(figures.make(f"Latency distribution, {kind}", plots.latency_cdf, f"{group.benchmark}, {group.load}, {kind}", curves))
        drawn.append(figures.make(f"Latency percentiles, {kind}", plots.percentile_bars, group))
    return Comparison(group, drawn, _findings(group))


def _offered_loads(groups: list[model.Group], figures: _Figures) -> list[Figure]:
    """Of each workload at several offered rates one figure for each percentile."""
    drawn = []
    for each in model.offered_loads(groups):
        for percentile in ("p50", "p99", "p99_9"):
            if lines := each.lines(percentile):
                title = f"{each.workload}, {model.PERCENTILES[percentile]} over offered load, {each.group.setting}, {each.group.load_title}"
                drawn.append(figures.make(title, plots.offered_load_lines, title, lines))
    return drawn


def _shares(group: model.Group) -> list[tuple[str, dict[str, float]]]:
    """Medians over valid runs of each part's share of each processor."""
    rows = []
    for case in group.measured:
        runs = [run for run in model.valid_runs(case) if run["cpu_share"]]
        for processor in sorted({number for run in runs for number in run["cpu_share"]}):
            parts = {name: statistics.median(run["cpu_share"].get(processor, {}).get(name, 0.0) for run in runs)
                     for name in ("primary", "replicas", "rnic", "noise")}
            rows.append((f"{group.label(case)}, CPU {processor}", parts))
    return rows


def _counters(group: model.Group) -> dict:
    """The RNIC counters that moved: a row for each, a column for each case that has any."""
    runs = {group.label(case): [run["rnic_counters"] for run in model.valid_runs(case) if run["rnic_counters"]]
            for case in group.measured}
    runs = {label: counters for label, counters in runs.items() if counters}
    rows = []
    for name in sorted({name for all_runs in runs.values() for counters in all_runs for name in counters}):
        values = [[counters[name] for counters in all_runs if name in counters] for all_runs in runs.values()]
        if any(any(of_case) for of_case in values):
            rows.append((name, [statistics.median(of_case) if of_case else None for of_case in values]))
    return {"labels": list(runs), "rows": rows}


def _throughput(groups: list[model.Group], figures: _Figures) -> list[Figure]:
    """One figure for each load."""
    drawn = []
    for load in dict.fromkeys(group.load_title for group in sorted(groups, key=lambda group: model.LOADS.index(group.load))):
        measured = [group for group in groups if group.load_title == load and group.measured]
        if measured:
            several = len({group.setting for group in measured}) > 1
            heads = [f"{group.benchmark}\n{group.setting}" if several else group.benchmark for group in measured]
            drawn.append(figures.make(f"Operations a second, {load}", plots.throughput_bars, measured, heads))
    return drawn


def _fixed(fixed: dict) -> str:
    """What all points of a plot share."""
    parts = []
    if fixed["signal_every"] is not None:
        parts += ["inline" if fixed["inline"] else "not inline", f"1 in {fixed['signal_every']} signalled",
                  f"{fixed['requests']} each way" + (", chained" if fixed["chained"] else "")]
    else:
        parts.append(fixed["primitive"] + (" + flush" if fixed["flush"] and fixed["primitive"] == "gwrite" else ""))
        if "window" in fixed:
            parts.append(f"window {fixed['window']:,}")
        if "replicas" in fixed:
            parts.append(text.count(fixed["replicas"], "replica"))
    if fixed.get("size"):
        parts.insert(1, text.size(fixed["size"]))
    if fixed["loop"] == "open":
        parts.append(f"{text.rate(fixed['rate'])} op/s asked for")
    if fixed["wait"] not in (None, "poll"):
        parts.append(f"wait {fixed['wait']}")
    return ", ".join(parts + [fixed["load"]])


@dataclasses.dataclass
class PrimitivePlots:
    title: str
    figures: list[Figure]
    left_out: int


def _ops(point: model.Point) -> float:
    return point.median("ops_per_second")


def _payload(point: model.Point) -> float:
    return point["size"] * _ops(point)


def _p50(point: model.Point) -> float:
    return point.median("p50_ns")


def _p99(point: model.Point) -> float:
    return point.median("p99_ns")


# Title, over which quantity, what, how it is written, the axis.
_GROUP_PLOTS = [
    ("Throughput over window", "window", _ops, text.rate, "operations a second (log scale)"),
    ("Throughput over size", "size", _ops, text.rate, "operations a second (log scale)"),
    ("Bytes a second over size", "size", _payload, text.bandwidth, "payload a second (log scale)"),
    ("Median latency over size", "size", _p50, text.time, "median latency (log scale)"),
    ("99th percentile over size", "size", _p99, text.time, "99th percentile (log scale)"),
    ("Median latency over the number of replicas", "replicas", _p50, text.time, "median latency (log scale)"),
    ("99th percentile over the number of replicas", "replicas", _p99, text.time, "99th percentile (log scale)"),
]
_RAW_PLOTS = [
    ("Median round trip over size", "size", _p50, text.time, "median round trip (log scale)"),
    ("99th percentile of round trips over size", "size", _p99, text.time, "99th percentile (log scale)"),
]


def _line_plots(kinds: list[tuple], points: list[model.Point], figures: _Figures, primitives: list[dict]) -> list[PrimitivePlots]:
    """`primitives`: all measurements, for what is absent from plots of groups."""
    drawn = []
    for title, over, value, formatter, label in kinds:
        found = model.panels([point for point in points if (value(point) or 0) > 0], over)
        made = [figures.make(_fixed(panel.fixed), plots.primitive_lines, f"{title}, {_fixed(panel.fixed)}", panel, value, formatter, label)
                for panel in found[:_MAXIMUM_PANELS]]
        for figure, panel in zip(made, found):
            figure.note = "; ".join(model.absences(panel, primitives))
        if made:
            drawn.append(PrimitivePlots(title, made, len(found) - len(made)))
    return drawn


def _distributions(points: list[model.Point], figures: _Figures) -> list[PrimitivePlots]:
    found = model.comparable(points)
    made = []
    for members in found[:_MAXIMUM_PANELS]:
        name = _fixed(members[0].configuration)
        curves = [(point.datapath, point.datapath, model.pooled_tail(point.runs)) for point in members]
        made.append(figures.make(name, plots.latency_cdf, name, curves))
    return [PrimitivePlots("Latency distribution", made, len(found) - len(made))] if made else []


def _missing(results: dict) -> list[str]:
    parts = {"cases": "database benchmarks", "primitives": "measurements of the group primitives",
             "alternatives": "measurements of other systems"}
    missing = [f"There are no {name} in these results." for part, name in parts.items() if not results[part]]
    measured = {case["load"] for case in results["cases"]}
    if results["cases"] and "noise" not in measured:
        missing.append("All database benchmarks ran on the idle machine; nothing here shows replicas under load (--noise).")
    return missing


def _invalid(results: dict) -> list[tuple[str, str, list[str]]]:
    """(what, the run's number from 1, reasons) of every run that does not count."""
    found = [(each["name"], str(number), run["reasons"]) for each in results["cases"] + results["alternatives"]
             for number, run in enumerate(each["runs"], 1) if not run.get("valid", True)]
    for measured in results["primitives"]:
        if not measured.get("valid", True):
            found.append((f"{measured['primitive']}, {measured['datapath']}, {text.size(measured['size'])}, window {measured['window']:,}, "
                          f"{text.count(measured['replicas'], 'replica')}, {measured['load']}", "–", measured.get("reasons", [])))
    return found


def _when(started: str) -> str:
    try:
        moment = datetime.datetime.fromisoformat(started.replace("Z", "+00:00"))
    except ValueError:
        return started
    return moment.strftime("%-d %B %Y, %H:%M ") + (moment.tzname() or "")


def page(results: dict) -> str:
    """The whole page, of results that follow results.schema.json."""
    results = percentiles.supported(results)
    figures = _Figures()
    groups = model.groups([case for case in results["cases"] if not model.is_ycsb(case)])
    ycsb_groups = sorted(model.groups([case for case in results["cases"] if model.is_ycsb(case)]), 
                         key=lambda group: (group.benchmark.partition("@")[0], model.offered_rate(group.benchmark)))
    every_point = model.points(results["primitives"])
    points = [point for point in every_point if not point.raw]
    raw_points = [point for point in every_point if point.raw]
    alternatives = [alternative for alternative in results["alternatives"] if alternative["latency_ns"]]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(time=text.time, us=text.microseconds, rate=text.rate, size=text.size, share=text.share,
                               significant=text.significant)
    environment.globals.update(count=text.count, valid_runs=model.valid_runs, spread=model.spread, median=summary.median,
                               ops_of=lambda run: run["ops_per_second"], counter_table=_counters, kinds=model.kinds)
    return environment.get_template("report.html.jinja").render(
        results=results, style=(_FOLDER / "report.css").read_text(encoding="utf-8"),
        started=_when(results["started"]), missing=_missing(results), invalid=_invalid(results),
        headline=_headline(groups, points, figures), throughput=_throughput(groups, figures), comparisons=[_comparison(group, figures) for group in groups],
        ycsb_throughput=_throughput(ycsb_groups, figures), ycsb_offered=_offered_loads(ycsb_groups, figures), ycsb=[_ycsb(group, figures) for group in ycsb_groups],
        shares=_shares, points=points, raw_points=raw_points,
        primitive_plots=_line_plots(_GROUP_PLOTS, points, figures, results["primitives"]) + _distributions(points, figures),
        raw_plots=_line_plots(_RAW_PLOTS, raw_points, figures, []),
        alternatives_figure=figures.make("Latency of a write", plots.alternative_bars, alternatives) if alternatives else None)
