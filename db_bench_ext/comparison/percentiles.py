"""Leaves out percentiles that too few operations were measured for. One that a share of 1/N of the operations exceeds needs
at least N operations: with fewer it would only repeat the slowest one."""

_LEAST = {"p50": 2, "p75": 4, "p95": 20, "p99": 100, "p99_9": 1_000, "p999": 1_000, "p99_99": 10_000, "p9999": 10_000}


def _counted(run: dict) -> int:
    """The operations behind the run's latencies: of a run with several kinds of operations those that its histogram has."""
    return sum(count for *_, count in run["histogram"]) if run.get("histogram") else run["operations"]


def _latency(latency_ns: dict, operations: int) -> dict:
    return {name: None if operations < _LEAST.get(name, 0) else value for name, value in latency_ns.items()}


def _run(run: dict) -> dict:
    run = run | {"latency_ns": _latency(run["latency_ns"], _counted(run))}
    if "types" in run:
        run["types"] = [kind | {"latency_ns": _latency(kind["latency_ns"], kind["operations"])} for kind in run["types"]]
    return run


def _case(case: dict) -> dict:
    median = case["median"]
    if median:
        least = min(_counted(run) for run in case["runs"] if run["valid"])
        median = median | {"latency_ns": _latency(median["latency_ns"], least)}
    return case | {"runs": [_run(run) for run in case["runs"]], "median": median}


def _alternative(alternative: dict) -> dict:
    valid = [run for run in alternative["runs"] if run["valid"]]
    least = min((_counted(run) for run in valid), default=alternative["operations"])
    latency = alternative["latency_ns"] and _latency(alternative["latency_ns"], least)
    return alternative | {"runs": [_run(run) for run in alternative["runs"]], "latency_ns": latency}


def _primitive(measured: dict) -> dict:
    unsupported = {f"{name}_ns": None for name, least in _LEAST.items() if f"{name}_ns" in measured and measured["number"] < least}
    return measured | unsupported


def supported(results: dict) -> dict:
    """The results with None in place of each percentile that too few operations were measured for."""
    return results | {"cases": [_case(case) for case in results["cases"]],
                      "alternatives": [_alternative(alternative) for alternative in results["alternatives"]],
                      "primitives": [_primitive(measured) for measured in results["primitives"]]}
