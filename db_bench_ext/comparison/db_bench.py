"""Reads db_bench's output as it comes: when a benchmark begins and ends, its figures and its histogram."""

import dataclasses
import re

RESULT = re.compile(r"^(\S+)\s*:\s+([\d.]+) micros/op (\d+) ops/sec ([\d.]+) seconds (\d+) operations;")
HISTOGRAM = re.compile(r"^Microseconds per (\w+):")
COUNT = re.compile(r"^Count: (\d+) Average: ([\d.]+)")
LIMITS = re.compile(r"^Min: (\d+)\s+Median: ([\d.]+)\s+Max: (\d+)")
PERCENTILES = re.compile(r"(P[\d.]+): ([\d.]+)")
BUCKET = re.compile(r"^[\[(]\s*(\d+),\s*(\d+) \]\s+(\d+)\s")
VERSION = re.compile(r"^RocksDB:\s+version (\S+)")
OPENED = re.compile(r"^DB path: \[")

PERCENTILE_NAMES = {"P50": "p50", "P75": "p75", "P99": "p99", "P99.9": "p99_9", "P99.99": "p99_99"}
NS_PER_US = 1000
WRITES = {"write", "update", "insert", "read-modify-write"}  # kinds of operations that replication is about: db_bench's, YCSB's


@dataclasses.dataclass
class Histogram:
    """Latencies in nanoseconds, though db_bench counts whole microseconds; buckets are (lower, upper, count)."""

    count: int = 0
    latency_ns: dict[str, float] = dataclasses.field(default_factory=dict)
    buckets: list[list] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Benchmark:
    name: str
    micros_per_op: float
    ops_per_second: float
    seconds: float
    operations: int
    histograms: dict[str, Histogram] = dataclasses.field(default_factory=dict)  # by kind: write, read, …
    fault: str = ""  # why it does not count, though the program succeeded

    def histogram(self) -> Histogram | None:
        """The histogram of the writes if there are any, else of the first kind."""
        writes = [histogram for kind, histogram in self.histograms.items() if kind in WRITES]
        return next(iter(writes or self.histograms.values()), None)


class OutputReader:
    """Takes what db_bench prints line by line, standard error too. `feed` says what a line marks: "opened" when a benchmark is about
    to begin, "result" when it has ended, else None."""

    def __init__(self):
        self.version = ""
        self.benchmarks: list[Benchmark] = []
        self._histogram: Histogram | None = None

    def feed(self, line: str) -> str | None:
        if OPENED.match(line):
            return "opened"
        if found := RESULT.match(line):
            name = found[1]
            repeated = sum(each.name.split(" #")[0] == name for each in self.benchmarks)
            self.benchmarks.append(Benchmark(f"{name} #{repeated + 1}" if repeated else name, float(found[2]),
                                             float(found[3]), float(found[4]), int(found[5])))
            self._histogram = None
            return "result"
        if found := VERSION.match(line):
            self.version = found[1]
        elif self.benchmarks and (found := HISTOGRAM.match(line)):
            self._histogram = Histogram()
            self.benchmarks[-1].histograms[found[1]] = self._histogram
        elif self._histogram is not None:
            self._feed_histogram(self._histogram, line)
        return None

    @staticmethod
    def _feed_histogram(histogram: Histogram, line: str) -> None:
        if found := COUNT.match(line):
            histogram.count = int(found[1])
            histogram.latency_ns["mean"] = float(found[2]) * NS_PER_US
        elif found := LIMITS.match(line):
            histogram.latency_ns["max"] = float(found[3]) * NS_PER_US
        elif line.startswith("Percentiles:"):
            for name, value in PERCENTILES.findall(line):
                if name in PERCENTILE_NAMES:
                    histogram.latency_ns[PERCENTILE_NAMES[name]] = float(value) * NS_PER_US
        elif found := BUCKET.match(line):
            histogram.buckets.append([int(found[1]) * NS_PER_US, int(found[2]) * NS_PER_US, int(found[3])])


def percentile(buckets: list[list], percent: float, greatest: float) -> float:
    """The latency below which `percent` of the counted lie, linear inside a bucket and at most `greatest`, as RocksDB's
    histogram computes it: 99.9 % of 3000 is a little more than 2997 in floating point, which decides between two buckets."""
    threshold = sum(count for _, _, count in buckets) * (percent / 100)
    below = 0
    for lower, upper, count in buckets:
        if below + count >= threshold:
            return min(lower + (upper - lower) * (threshold - below) / count, greatest)
        below += count
    return greatest


def merge(histograms: list[Histogram]) -> Histogram:
    """One histogram with the counts of several (several tenants)."""
    if len(histograms) == 1:
        return histograms[0]
    counts: dict[tuple, int] = {}
    for histogram in histograms:
        for lower, upper, count in histogram.buckets:
            counts[(lower, upper)] = counts.get((lower, upper), 0) + count
    merged = Histogram(sum(each.count for each in histograms), {}, [[*limits, count] for limits, count in sorted(counts.items())])
    greatest = max(each.latency_ns["max"] for each in histograms)
    merged.latency_ns = {"mean": sum(each.latency_ns["mean"] * each.count for each in histograms) / max(merged.count, 1)}
    for text, name in PERCENTILE_NAMES.items():
        merged.latency_ns[name] = percentile(merged.buckets, float(text[1:]), greatest)
    merged.latency_ns["max"] = greatest
    return merged
