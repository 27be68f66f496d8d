"""Tests what is compared with other systems, without any of them."""

import contextlib
import os
import pathlib
import tempfile
import unittest

from comparison import alternatives, flags, nodes, runner, table
from comparison.errors import ComparisonError

LATENCY = {"mean": 2.0, "p50": 150_000, "p75": 2, "p99": 400_000, "p99_9": 4, "p99_99": 5, "max": 6}
FIGURES = {"valid": True, "reasons": [], "operations": 20000, "seconds": 3, "ops_per_second": 6000, "latency_ns": LATENCY, "histogram": []}


class _Runner:
    """Measures nothing."""

    def __init__(self):
        self.ran = []

    def run(self, job, configuration, on_progress, place):
        self.ran.append((configuration.datapath, job["value_size"], job.get("duration")))
        return [runner.Measured("fillrandom", "db_bench", FIGURES, "fanout" if configuration.datapath == "auto" else configuration.datapath)]

    @contextlib.contextmanager
    def nodes(self):
        raise AssertionError("no server may be started")


class AlternativesTest(unittest.TestCase):
    def compared(self, *words, runs=1, **workload):
        """The results of `runs` rounds without any server, and what the runner did."""
        fake = _Runner()
        options = flags.parse_own(["--alternatives", *words])
        disk = None if options.hosts_apart else pathlib.Path("/")
        compared = alternatives.Alternatives(fake, options, {"num": "10", **workload}, {}, pathlib.Path("/dev/shm"), disk, lambda extra: extra)
        for _ in range(runs):
            for each in compared.list:
                compared.run(each)
        return compared.results(), fake.ran

    def test_hosts_apart_each_system_has_both_sizes_and_the_datapath_that_was_chosen(self):
        results, ran = self.compared("--hosts_apart", runs=2)
        self.assertEqual([(each["name"], each["value_size"], each["datapath"], len(each["runs"])) for each in results],
                         [(name, size, datapath, runs) for size in (100, 1000) for name, datapath, runs in (
                             ("RocksDB with HyperLoop ×3", "fanout", 2), ("Redis, WAIT 3, in memory", None, 0),
                             ("etcd, three members, in memory", None, 0))])
        self.assertEqual(ran, [("auto", "100", "3"), ("auto", "1000", "3")] * 2)
        (results, _) = self.compared("--hosts_apart", "--replicas=2", value_size="512")
        self.assertEqual([(each["name"], each["value_size"]) for each in results][:2], [("RocksDB with HyperLoop ×2", 512), ("Redis, WAIT 2, in memory", 512)])

    def test_on_one_machine_there_is_a_disk_and_one_size(self):
        results, ran = self.compared()
        self.assertEqual(ran, [("none", "100", None), ("none", "100", "3"), ("offload", "100", None), ("offload", "100", "3")])
        self.assertEqual([each["datapath"] for each in results], [None, None, "offload", "offload", None, None, None, None])
        self.assertEqual({each["value_size"] for each in results}, {100})

    def test_a_missing_server_is_named_with_its_package_and_its_row_says_so(self):
        said = []
        path = os.environ["PATH"]
        with tempfile.TemporaryDirectory() as empty:
            os.environ["PATH"] = empty
            self.addCleanup(os.environ.__setitem__, "PATH", path)
            self.assertEqual(alternatives.find_programs(said.append), {})
        self.assertEqual(said, ["no program redis-server: --alternatives leaves it out (apt-get install redis-server)",
                                "no program etcd: --alternatives leaves it out (apt-get install etcd-server)"])
        results, _ = self.compared("--hosts_apart")
        self.assertEqual((results[2]["settings"], results[2]["latency_ns"], results[2]["ops_per_second"], results[2]["operations"]),
                         ("there is no program etcd (apt-get install etcd-server)", None, None, 0))

    def test_the_terminal_shows_all_in_one_table(self):
        results, _ = self.compared("--hosts_apart")
        lines = table.text({"cases": [], "primitives": [], "alternatives": results}).splitlines()
        self.assertEqual(lines[0].split(), "what users would pick (medians) value datapath op/s p50 p99 max survives".split())
        self.assertIn(" 100 B    fanout  6,000  150 µs  400 µs", lines[2])
        self.assertIn(" 1,000 B    fanout  6,000  150 µs  400 µs", lines[5])


class NodesTest(unittest.TestCase):
    def test_servers_run_on_the_nodes_of_the_cluster(self):
        status = {"network": "hl01", "network_address": "198.18.5.1", "processes": [
            {"name": "rnicd", "listen": ""}, {"name": "replica0", "listen": "198.18.5.2:4001"}, {"name": "replica1", "listen": "198.18.5.3:4002"},
            {"name": "replica0-rnicd", "listen": ""}]}
        here, first, second = nodes.apart(status)
        self.assertEqual((here.address, here.command(["etcd"])), ("198.18.5.1", ["etcd"]))
        self.assertEqual((first.address, first.command(["etcd"])), ("198.18.5.2", ["ip", "netns", "exec", "hl01-replica0", "etcd"]))
        self.assertEqual(second, nodes.Node("198.18.5.3", "hl01-replica1"))
        self.assertEqual(nodes.here(2), [nodes.Node("127.0.0.1", "")] * 2)


class ChoiceTest(unittest.TestCase):
    def test_the_last_choice_of_a_database_s_log_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "LOG"
            log.write_text("2026/01/01 HyperLoop: datapath offload: one RNIC serves all replicas\n"
                           "2026/01/01 HyperLoop: datapath fanout: the replicas' RNICs are apart\n")
            self.assertEqual(runner.chosen_datapath(log.parent), "fanout")
            log.write_text("nothing\n")
            with self.assertRaisesRegex(ComparisonError, "does not say which datapath"):
                runner.chosen_datapath(log.parent)


if __name__ == "__main__":
    unittest.main()
