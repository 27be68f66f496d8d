"""The report's plots. Each function draws one and returns it as an <svg> element (report_svg).

Datapaths are told apart by colour, line and marker; bars stand in the legend's order. The tables beside the plots hold
the same numbers."""

import math
import textwrap

import matplotlib
import matplotlib.figure
import matplotlib.lines
import matplotlib.patches
import matplotlib.ticker as ticker

from . import report_model as model
from . import report_text as text
from .report_svg import COLOURS, to_svg

_WIDTH = 6.4  # inches; on a telephone a plot scrolls sideways
_MARKERS = {"offload": "o", "fanout": "s", "cpu-polling": "^", "cpu-event": "D", "none": "X"}
_LINES = {"offload": "-", "fanout": (0, (6, 1.5)), "cpu-polling": "-", "cpu-event": (0, (5, 1.5, 1, 1.5)), "none": (0, (1, 1.2))}
WHOLE_PAGE = 10.5  # inches; a plot across the page
_BAR = 0.145  # inches
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "hyperloop", "path.simplify_threshold": 0.4,
    "font.size": 9, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "legend.fontsize": 8.5,
    "text.color": COLOURS["text"], "axes.labelcolor": COLOURS["text"], "axes.edgecolor": COLOURS["muted"],
    "xtick.color": COLOURS["muted"], "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["text"], "ytick.labelcolor": COLOURS["text"],
    "axes.grid": True, "axes.axisbelow": True, "grid.color": COLOURS["grid"], "grid.linewidth": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "lines.linewidth": 1.6, "lines.markersize": 4.5, "legend.frameon": False, "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2, "legend.borderaxespad": 0.2,
}


class _Plot:
    """A figure with one pair of axes, and the tooltips of what is drawn in it."""

    def __init__(self, height: float, width: float):
        self.figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        self.axes = self.figure.add_subplot()
        self.tooltips: dict[str, list[str]] = {}

    def tooltip(self, artist, texts: list[str]) -> None:
        name = f"t{len(self.tooltips)}"
        artist.set_gid(name)
        self.tooltips[name] = texts

    def line(self, datapath: str, x: list[float], y: list[float], texts: list[str]) -> None:
        """A line with its datapath's look; markers with a tooltip each where there are `texts`."""
        line, = self.axes.plot(x, y, color=COLOURS[datapath], linestyle=_LINES[datapath],
                               marker=_MARKERS[datapath] if texts else None)
        if texts:
            self.tooltip(line, texts)

    def bars(self, rows: list[tuple], start: float) -> None:
        """Horizontal bars from `start`: (position, value, (least, greatest) or None, text, tooltip, colour name)."""
        for position, value, spread, label, tip, name in rows:
            bar, = self.axes.barh(position, max(value - start, 0), left=start, height=0.82, color=COLOURS[name], linewidth=0)
            self.tooltip(bar, [tip])
            end = value
            if spread and spread[1] > spread[0]:
                self.axes.plot(spread, (position, position), color=COLOURS["text"], linewidth=0.8, marker="|", markersize=4)
                end = max(value, spread[1])
            self.axes.annotate(label, (end, position), xytext=(4, 0), textcoords="offset points", va="center",
                               fontsize=7.5, annotation_clip=False)

    def legend(self, names: list[tuple[str, str]], lines: bool) -> None:
        """Above the axes: (label, colour name) of each series, drawn as lines or as bars."""
        if lines:
            handles = [matplotlib.lines.Line2D([], [], color=COLOURS[name], linestyle=_LINES[name], marker=_MARKERS[name],
                                               label=label) for label, name in names]
        else:
            handles = [matplotlib.patches.Patch(facecolor=COLOURS[name], edgecolor="none", label=label) for label, name in names]
        columns = 3 if len(handles) in (3, 5, 6) or max(len(handle.get_label()) for handle in handles) < 12 else 2
        self.axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.01), ncol=columns)

    def svg(self, prefix: str, description: str) -> str:
        # Anchored, so that the page's own fonts cannot shift it.
        self.axes.yaxis.label.set_rotation_mode("anchor")
        return to_svg(self.figure, prefix, description, self.tooltips)


def _plot(height: float, width: float = _WIDTH) -> _Plot:
    matplotlib.rcParams.update(_STYLE)
    return _Plot(height, width)


def _log_ticks(axis, low: float, high: float, formatter) -> None:
    """Labels at 1, 10, 100 …, and at 2 and 5 between them where the range is short."""
    decades = math.log10(high / low) if low > 0 else 1
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1,), numticks=30))
    axis.set_major_formatter(lambda value, _: formatter(value))
    axis.set_minor_formatter(ticker.NullFormatter())


def latency_cdf(prefix: str, title: str, curves: list[tuple[str, str, list[tuple[float, float]]]], width: float = _WIDTH) -> str:
    """(label, datapath, report_model.pooled_tail). Both axes logarithmic: the slow tail is what differs."""
    plot = _plot(3.35, width)
    axes = plot.axes
    for label, datapath, points in curves:
        plot.line(datapath, [x for x, _ in points], [tail for _, tail in points], [])
        marked = [(model.at_tail(points, tail), tail) for tail in (0.5, 0.01, 0.001)]
        marked = [(x, tail) for x, tail in marked if x is not None]
        dots, = axes.plot([x for x, _ in marked], [tail for _, tail in marked], linestyle="", marker=_MARKERS[datapath],
                          color=COLOURS[datapath], zorder=3)
        plot.tooltip(dots, [f"{label}: {text.percentile(tail)} within {text.time(x)}" for x, tail in marked])
    least = min(tail for _, _, points in curves for _, tail in points)
    decades = max(2, math.ceil(-math.log10(least)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1.15, 10 ** -decades * 0.8)  # downwards: the share of slower operations shrinks towards the top
    tails = [1, 0.5] + [10.0 ** -power for power in range(1, decades + 1)]
    axes.yaxis.set_major_locator(ticker.FixedLocator(tails))
    axes.yaxis.set_major_formatter(lambda tail, _: text.percentile(tail))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    latencies = [x for _, _, points in curves for x, _ in points]
    _log_ticks(axes.xaxis, min(latencies), max(latencies), text.time)
    axes.set_xlabel("latency of an operation (log scale)")
    axes.set_ylabel("operations within that time")
    plot.legend([(label, datapath) for label, datapath, _ in curves], lines=True)
    return plot.svg(prefix, f"{title}: share of operations done within a time, one line for each datapath, tail to the top.")


def _grouped_bars(prefix: str, description: str, heads: list[str], names: list[tuple[str, str]], cells: dict, axis_label: str,
                  formatter, log: bool) -> str:
    """cells[head index][name index] = (value, spread, tooltip)."""
    rows, ticks, position = [], [], 0.0
    for index in range(len(heads)):
        present = [number for number in range(len(names)) if (index, number) in cells]
        ticks.append(position + (len(present) - 1) / 2)
        for number in present:
            value, spread, tip = cells[index, number]
            rows.append((position, value, spread, formatter(value), tip, names[number][1]))
            position += 1
        position += 0.9
    plot = _plot(1.0 + _BAR * position)
    axes = plot.axes
    least = min((row[1] for row in rows if row[1] > 0), default=1)
    greatest = max(least, *(max(row[1], row[2][1] if row[2] else 0) for row in rows))
    if log:
        low = 10 ** math.floor(math.log10(least) - 0.15)
        axes.set_xscale("log")
        plot.bars(rows, low)
        axes.set_xlim(low, greatest * (greatest / low) ** 0.2)  # room for the last bar's number
        _log_ticks(axes.xaxis, low, greatest, formatter)
    else:
        plot.bars(rows, 0)
        axes.set_xlim(0, greatest * 1.18)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda value, _: formatter(value))
    axes.set_ylim(position - 1.3, -0.7)
    axes.set_yticks(ticks, heads)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(axis_label)
    plot.legend(names, lines=False)
    return plot.svg(prefix, description)


def percentile_bars(prefix: str, group: model.Group) -> str:
    """Medians over valid runs; the thin line spans the runs."""
    cells = {}
    for index, percentile in enumerate(model.PERCENTILES):
        for number, case in enumerate(group.measured):
            value = case["median"]["latency_ns"][percentile]
            if value is None:
                continue
            spread = model.spread(model.valid_runs(case), lambda run: run["latency_ns"][percentile])
            cells[index, number] = (value, spread, f"{group.label(case)}, {model.PERCENTILES[percentile]}: {text.time(value)}, "
                                                   f"runs {text.time(spread[0])} to {text.time(spread[1])}")
    names = [(group.label(case), case["datapath"]) for case in group.measured]
    shown = sorted({index for index, _ in cells})
    cells = {(shown.index(index), number): cell for (index, number), cell in cells.items()}
    heads = [list(model.PERCENTILES.values())[index] for index in shown]
    return _grouped_bars(prefix, "Latency percentiles of each datapath as bars.", heads, names, cells,
                         "latency of an operation (log scale)", text.time, log=True)


def throughput_bars(prefix: str, groups: list[model.Group], heads: list[str]) -> str:
    """Operations a second of several benchmarks under one load."""
    names = [(datapath, datapath) for datapath in model.DATAPATHS if any(group.case(datapath) for group in groups)]
    cells = {}
    for index, group in enumerate(groups):
        for number, (datapath, _) in enumerate(names):
            case = group.case(datapath)
            if case:
                value = case["median"]["ops_per_second"]
                spread = model.spread(model.valid_runs(case), lambda run: run["ops_per_second"])
                cells[index, number] = (value, spread, f"{heads[index]}, {datapath}: {text.rate(value)} op/s, runs "
                                                       f"{text.rate(spread[0])} to {text.rate(spread[1])}")
    return _grouped_bars(prefix, "Operations a second of each benchmark and datapath as bars.", heads, names, cells,
                         "operations a second", text.rate, log=False)


def _stacked_bars(prefix: str, description: str, rows: list[tuple[str, dict[str, float], str]], axis_label: str, formatter,
                  limit: float | None = None) -> str:
    """(label, value of each part, text at the end)."""
    plot = _plot(1.05 + 0.3 * len(rows))
    axes = plot.axes
    names = list(dict.fromkeys(name for _, parts, _ in rows for name in parts))
    greatest = limit or max(sum(parts.values()) for _, parts, _ in rows) or 1
    for position, (label, parts, end) in enumerate(rows):
        left = 0.0
        for name, value in parts.items():
            bar, = axes.barh(position, value, left=left, height=0.62, color=COLOURS[name], edgecolor=COLOURS["text"], linewidth=0.3)
            plot.tooltip(bar, [f"{label}, {name}: {formatter(value)}"])
            left += value
        axes.annotate(end, (left, position), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, greatest * (1 if limit else 1.2))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: formatter(value))
    axes.set_xlabel(axis_label)
    plot.legend([("RNIC" if name == "rnic" else name, name) for name in names], lines=False)
    return plot.svg(prefix, description)


def cpu_bars(prefix: str, group: model.Group) -> str:
    """Microseconds of processor time per operation: primary, replicas' host threads, RNIC."""
    rows = []
    for case in group.measured:
        parts = {name: case["median"]["cpu_us_per_op"][name] for name in ("primary", "replicas", "rnic")}
        rows.append((group.label(case), parts, text.significant(sum(parts.values())) + "\u00a0µs"))
    return _stacked_bars(prefix, "Processor time per operation of each datapath, stacked by who used it.", rows,
                         "processor time per operation (µs)", text.significant)


def share_bars(prefix: str, rows: list[tuple[str, dict[str, float]]]) -> str:
    """Who had a processor: (label, part -> 0 to 1)."""
    return _stacked_bars(prefix, "Share of a processor's time that each part had.",
                         [(label, parts, "") for label, parts in rows], "share of the processor's time", text.share, limit=1)


def primitive_lines(prefix: str, title: str, panel: model.Panel, value, formatter, axis_label: str) -> str:
    """Lines over the panel's quantity; `value(point)` is shown."""
    label, in_words, tick = _QUANTITY[panel.over]
    plot = _plot(2.9)
    axes = plot.axes
    for series in panel.series:
        plot.line(series.look, [point[panel.over] for point in series.points], [value(point) for point in series.points],
                  [f"{series.label}, {in_words(point[panel.over])}: {formatter(value(point))}" for point in series.points])
    axes.set_xlabel(label)
    axes.set_ylabel(axis_label)
    axes.set_yscale("log")
    values = [value(point) for series in panel.series for point in series.points]
    _log_ticks(axes.yaxis, min(values), max(values), formatter)
    positions = sorted({point[panel.over] for series in panel.series for point in series.points})
    if panel.over == "replicas":
        axes.xaxis.set_major_locator(ticker.FixedLocator(positions))
    else:
        axes.set_xscale("log")
        base = 10 if panel.over == "window" else 4 if positions[-1] <= 4 ** 5 * positions[0] else 16
        axes.xaxis.set_major_locator(ticker.LogLocator(base=base, numticks=20))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.xaxis.set_major_formatter(lambda number, _: tick(number))
        axes.set_xlim(positions[0] / 1.25, positions[-1] * 1.25)
    plot.legend([(series.label, series.look) for series in panel.series], lines=True)
    return plot.svg(prefix, f"{title}: one line for each of {', '.join(series.label for series in panel.series)}.")


def offered_load_lines(prefix: str, title: str, lines: list[tuple[str, str, list[tuple[int, float]]]]) -> str:
    """report_model.OfferedLoad.lines: a latency over the operations a second that were offered."""
    plot = _plot(2.9)
    axes = plot.axes
    for label, datapath, points in lines:
        plot.line(datapath, [rate for rate, _ in points], [value for _, value in points],
                  [f"{label}, {rate:,} operations a second offered: {text.time(value)}" for rate, value in points])
    values = [value for _, _, points in lines for _, value in points]
    axes.set_yscale("log")
    _log_ticks(axes.yaxis, min(values), max(values), text.time)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
    axes.xaxis.set_major_formatter(lambda value, _: text.rate(value))
    axes.set_xlim(left=0)
    axes.set_xlabel("operations a second that were offered")
    axes.set_ylabel("latency from the intended start (log scale)")
    plot.legend([(label, datapath) for label, datapath, _ in lines], lines=True)
    return plot.svg(prefix, f"{title}: one line for each of {', '.join(label for label, _, _ in lines)}.")


# Of each quantity: the axis' label, a point in words, a tick.
_QUANTITY = {
    "window": ("window: operations in flight (log scale)", lambda value: f"window {value:,}", lambda value: f"{value:,.0f}"),
    "size": ("size of an operation (log scale)", text.size, text.size),
    "replicas": ("replicas in the chain", lambda value: f"{value} replicas", lambda value: f"{value:.0f}"),
}


def alternative_bars(prefix: str, alternatives: list[dict]) -> str:
    """Median and 99th percentile of a durable write, HyperLoop and what users would pick instead."""
    names = [("50\u00a0%", "primary"), ("99\u00a0%", "replicas")]
    cells = {}
    several = len({alternative.get("value_size") for alternative in alternatives}) > 1

    def label(alternative: dict) -> str:
        return alternative["name"] + (f", {alternative['value_size']:,} B" if several else "")

    for index, alternative in enumerate(alternatives):
        for number, percentile in enumerate(("p50", "p99")):
            value = alternative["latency_ns"][percentile]
            if value is None:
                continue
            cells[index, number] = (value, None, f"{label(alternative)}, {names[number][0]}: {text.time(value)}")
    return _grouped_bars(prefix, "Median and 99th percentile of the latency of a write, for each system.",
                         [textwrap.fill(label(alternative), 20) for alternative in alternatives], names, cells,
                         "latency of a write (log scale)", text.time, log=True)
