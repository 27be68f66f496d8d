"""Reads the output of hyperloop-ycsb --json as it comes (docs/ycsb.md): when a workload begins and ends, its figures and histograms."""

import json

from comparison.db_bench import WRITES, Benchmark, Histogram

_LATENCIES = ("mean", "p50", "p75", "p99", "p99_9", "p99_99", "max")
_READ_ONLY = {"c"}


class OutputReader:
    """As db_bench's: takes the output line by line, says what a line marks, keeps what was measured."""

    def __init__(self):
        self.version = ""
        self.benchmarks: list[Benchmark] = []

    def feed(self, line: str) -> str | None:
        try:
            found = json.loads(line)
        except ValueError:
            return None
        if not isinstance(found, dict) or found.get("phase") != "run":
            return None
        if "begins" in found:
            return "opened"
        self.benchmarks.append(_benchmark(found))
        return "result"


def _benchmark(phase: dict) -> Benchmark:
    operations = phase["operations"]
    kinds = {each["type"]: Histogram(each["operations"], {name: each["latency_ns"][name] for name in _LATENCIES}, each["histogram"])
             for each in phase["types"]}
    fault = ""
    if phase["workload"] not in _READ_ONLY and not WRITES & set(kinds):
        fault = f"none of its {operations} operations was a write, so its latencies are those of reads; give more --ycsb_operations"
    offered = f"@{phase['rate']:.0f}" if phase["rate"] else ""
    return Benchmark(f"ycsb-{phase['workload']}{offered}", 1e6 * phase["seconds"] / max(operations, 1), phase["ops_per_second"], phase["seconds"],
                     operations, kinds, fault)
