"""Tests the reader of db_bench's output with the output of a real db_bench."""

import subprocess
import tempfile
import unittest

from comparison import db_bench

NAMES = ("mean", "p50", "p75", "p99", "p99_9", "p99_99", "max")


def output_of(*arguments: str) -> list[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        return subprocess.run(["db_bench", "--histogram=1", f"--db={directory}/db", *arguments], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True).stdout.splitlines()


class OutputReaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lines = output_of("--benchmarks=fillrandom,readrandom,overwrite,overwrite,compact,readwhilewriting", "--num=3000", "--sync=1")

    def setUp(self):
        self.reader = db_bench.OutputReader()
        self.marks = [mark for line in self.lines if (mark := self.reader.feed(line))]

    def test_every_benchmark_is_marked_at_its_beginning_and_end(self):
        self.assertEqual(self.marks, ["opened", "result"] * 6)

    def test_figures_of_each_benchmark(self):
        names = [each.name for each in self.reader.benchmarks]
        self.assertEqual(names, ["fillrandom", "readrandom", "overwrite", "overwrite #2", "compact", "readwhilewriting"])
        for each in self.reader.benchmarks[:4]:
            self.assertEqual(each.operations, 3000, each.name)
            self.assertGreater(each.ops_per_second, 0)
            self.assertAlmostEqual(each.seconds, each.operations / each.ops_per_second, delta=0.01)

    def test_histogram_is_whole(self):
        for each in self.reader.benchmarks[:4]:
            histogram = each.histogram()
            self.assertEqual(histogram.count, 3000, each.name)
            self.assertEqual(sum(count for _, _, count in histogram.buckets), 3000)
            self.assertEqual(set(histogram.latency_ns), set(NAMES))
            ordered = [histogram.latency_ns[name] for name in NAMES[1:]]
            self.assertEqual(ordered, sorted(ordered))
            self.assertTrue(all(lower < upper for lower, upper, _ in histogram.buckets))

    def test_our_percentiles_are_those_of_rocksdb(self):
        histogram = self.reader.benchmarks[0].histogram()
        for name, percent in (("p50", 50), ("p99", 99), ("p99_9", 99.9)):
            computed = db_bench.percentile(histogram.buckets, percent, histogram.latency_ns["max"])
            self.assertAlmostEqual(computed, histogram.latency_ns[name], delta=max(10, 0.01 * computed), msg=name)

    def test_a_percentile_at_the_end_of_a_bucket_is_rounded_as_rocksdb_rounds_it(self):
        buckets = [[76000, 110000, 2997], [170000, 250000, 3]]
        self.assertAlmostEqual(db_bench.percentile(buckets, 99.9, 250000), 170000, delta=1)

    def test_version(self):
        self.assertRegex(self.reader.version, r"^\d+\.\d+")

    def test_writes_are_preferred_where_reads_are_counted_too(self):
        kinds = self.reader.benchmarks[-1].histograms
        self.assertIs(self.reader.benchmarks[-1].histogram(), kinds.get("write", next(iter(kinds.values()))))

    def test_tenants_are_merged(self):
        first, second = (self.reader.benchmarks[i].histogram() for i in (0, 2))
        merged = db_bench.merge([first, second])
        self.assertEqual(merged.count, 6000)
        self.assertEqual(merged.latency_ns["max"], max(first.latency_ns["max"], second.latency_ns["max"]))
        low, high = sorted([first.latency_ns["p50"], second.latency_ns["p50"]])
        self.assertTrue(low - 1000 <= merged.latency_ns["p50"] <= high + 1000)


if __name__ == "__main__":
    unittest.main()
