"""Real Redis and etcd groups, written to for a moment."""

import pathlib
import tempfile
import unittest

from comparison import alternatives, closed_loop, etcd_servers, nodes, placement, processes, redis_servers
from comparison.errors import ComparisonError, UsageError

SECONDS = 0.2


class ServersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = alternatives.find_programs(cls.fail)

    def setUp(self):
        parent = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(parent.cleanup)
        self.place = pathlib.Path(parent.name) / "servers"

    def check_figures(self, figures):
        self.assertGreater(figures["operations"], 0)
        self.assertEqual(sum(count for _, _, count in figures["histogram"]), figures["operations"])
        self.assertGreaterEqual(figures["seconds"], SECONDS)
        latency = figures["latency_ns"]
        self.assertTrue(0 < latency["p50"] <= latency["p99"] <= latency["max"])

    def test_the_kernel_gives_a_servers_port_to_nobody_else(self):
        first, last = map(int, closed_loop.GIVEN_OUT.read_text().split())
        ports = closed_loop.free_ports(8)
        self.assertEqual(len(set(ports)), 8)
        if first > closed_loop.LEAST_PORT + 1000:
            self.assertFalse([port for port in ports if first <= port <= last])

    def test_redis_acknowledges_only_what_three_replicas_have(self):
        with redis_servers.running(self.programs["redis-server"], self.place, nodes.here(4)) as (writer, _):
            self.check_figures(closed_loop.measure(writer.write, SECONDS, 1000, 100))
            writer.idle_round_trip(b"", b"")
            for home in self.place.glob("redis*"):  # appendfsync always: it is in every member's file, too
                self.assertGreater(sum(file.stat().st_size for file in home.glob("appendonlydir/*.incr.aof")), 100, home)
        self.assertFalse(self.place.exists())

    def test_redis_that_answers_otherwise_is_an_error(self):
        with redis_servers.running(self.programs["redis-server"], self.place, nodes.here(4)) as (writer, _):
            with self.assertRaisesRegex(ComparisonError, "Redis answered"):
                writer._exchange(b"*1\r\n$8\r\nNONSENSE\r\n", b"+OK\r\n")

    def test_etcd_keeps_what_it_acknowledged(self):
        with etcd_servers.running(self.programs["etcd"], self.place, nodes.here(3)) as (leader, command):
            self.check_figures(closed_loop.measure(leader.write, SECONDS, 1000, 100))
            self.assertEqual(len(set(leader.status())), 1, "it is the leader")
            self.assertIn("member0", command)
            leader.write(b"one", b"1")
            leader.idle_round_trip(b"one", b"")
            self.assertIn(b'"count":"1"', leader.call(b"/v3/kv/range", b'{"key":"b25l"}'))
            with self.assertRaisesRegex(ComparisonError, "etcd answered"):
                leader.call(b"/v3/kv/put", b"{nonsense")
        self.assertFalse(self.place.exists())

    def test_a_server_that_ends_at_once_is_quoted(self):
        with self.assertRaisesRegex(ComparisonError, "ended"), redis_servers.running("/bin/false", self.place, nodes.here(4)):
            self.fail("it started")

    def test_fsync_is_not_measured_in_memory(self):
        with self.assertRaisesRegex(UsageError, "on tmpfs, where fsync does nothing"):
            alternatives.check_disk("/dev/shm")
        self.assertEqual(placement.file_system(pathlib.Path("/dev/shm")), "tmpfs")


if __name__ == "__main__":
    unittest.main()
