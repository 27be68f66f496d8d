"""The comparison as text for a terminal."""

from comparison import percentiles, summary
from comparison.flags import CPU_DATAPATHS

_NONE = "–"


def duration(ns: float | None) -> str:
    """Three figures and a unit."""
    if ns is None:
        return _NONE
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns / size < 1000 else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def _lines(rows: list[list[str]]) -> list[str]:
    """Columns of equal width, the first to the left, the others to the right, and a rule below the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) if column == 0 else text.rjust(width) for column, (text, width) in enumerate(zip(row, widths)))
             for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    return lines


def _cases(cases: list[dict]) -> list[str]:
    rows = [["case (medians of valid runs; (…): none is)", "valid", "op/s", "p50", "p99", "p99.9", "p99.99", "max", "CPU µs/op: primary", "replicas", "RNIC"]]
    for case in cases:
        valid = f"{sum(run['valid'] for run in case['runs'])}/{len(case['runs'])}"
        middle = case["median"] or summary.median(case["runs"], valid_only=False)
        latency, cpu = middle["latency_ns"], middle["cpu_us_per_op"]
        figures = [f"{middle['ops_per_second']:,.0f}", *(duration(latency[name]) for name in ("p50", "p99", "p99_9", "p99_99", "max")),
                   *(f"{cpu[part]:.2f}" for part in ("primary", "replicas", "rnic"))]
        rows.append([case["name"], valid, *(figures if case["median"] else [f"({figure})" for figure in figures])])
    return _lines(rows)


def _shares(cases: list[dict]) -> list[str]:
    """Of the processor that replicas, RNIC and noise share, by the last run."""
    rows = [["share of the processors, last run", "primary's: primary", "replicas': replicas", "RNIC", "noise"]]
    for case in (each for each in cases if each["runs"][-1]["cpu_share"]):
        total: dict[str, float] = {}
        for parts in case["runs"][-1]["cpu_share"].values():
            for part, share in parts.items():
                total[part] = total.get(part, 0) + share
        rows.append([case["name"], *(f"{total[part]:.1%}" for part in ("primary", "replicas", "rnic", "noise"))])
    return _lines(rows) if len(rows) > 1 else []


def _ratios(cases: list[dict]) -> list[str]:
    """p99 of the CPU-forwarded datapaths to that of offload, under the same load."""
    lines = []
    for case in cases:
        if case["datapath"] not in CPU_DATAPATHS or case["median"] is None:
            continue
        load = case["name"].rsplit(" · ", 1)[1]
        other = next((each for each in cases if each["name"] == f"{case['benchmark']} · offload · {load}"), None)
        if other is None or other["median"] is None:
            continue
        p99, other_p99 = (each["median"]["latency_ns"]["p99"] for each in (case, other))
        if p99 is None or not other_p99:
            continue
        ratio = p99 / other_p99
        lines.append(f"{case['benchmark']}, {load}: p99 of {case['datapath']} is {ratio:,.3g} times that of offload")
    return lines


def _alternatives(alternatives: list[dict]) -> list[str]:
    rows = [["what users would pick (medians)", "value", "datapath", "op/s", "p50", "p99", "max", "survives"]]
    for each in alternatives:
        latency = each["latency_ns"]
        what = [f"{each['value_size']:,} B", each.get("datapath") or _NONE]
        figures = [f"{each['ops_per_second']:,.0f}", *(duration(latency[name]) for name in ("p50", "p99", "max"))] if latency else [_NONE] * 4
        rows.append([each["name"], *what, *figures, each["durability"]])
    return _lines(rows)


def _invalid(measured: list[dict]) -> list[str]:
    return [f"invalid: {case['name']}, run {number}: {reason}"
            for case in measured for number, run in enumerate(case["runs"], 1) for reason in run["reasons"]]


def text(results: dict) -> str:
    """Everything that a terminal should show of the results."""
    results = percentiles.supported(results)
    parts = []
    if results["cases"]:
        parts += [_cases(results["cases"]), _shares(results["cases"]), _ratios(results["cases"])]
    if results["alternatives"]:
        parts.append(_alternatives(results["alternatives"]))
    parts.append(_invalid(results["cases"] + results["alternatives"]))
    if results["primitives"]:
        rows = [["primitive", "load", "size", "window", "op/s", "p50", "p99", "p99.9", "max"]]
        for each in results["primitives"]:
            rows.append([f"{each['primitive']} · {each['datapath']}", each["load"], f"{each['size']}", f"{each['window']}",
                         f"{each['ops_per_second']:,.0f}", *(duration(each[f"{name}_ns"]) for name in ("p50", "p99", "p999", "max"))])
        parts.append(_lines(rows))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)
