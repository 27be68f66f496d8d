"""The rules by which a run counts or does not."""

import os
import subprocess
import unittest

from comparison import processes, procfs, validity
from comparison.procfs import Placement, Thread


class FairShareTest(unittest.TestCase):
    """Ten seconds on a processor that a replica's thread, noise and the RNIC share."""

    def reasons(self, thread, rnic, noise=1):
        return validity.fair_share_reasons({7: thread}, {80 + i: Thread(1.0, 9.0) for i in range(noise)}, rnic, 10)

    def test_an_rnic_with_no_more_than_one_share_is_fair(self):
        self.assertEqual(self.reasons(Thread(3.5, 6.5), rnic=3.3), [])  # of three contenders
        self.assertEqual(self.reasons(Thread(0.5, 9.5), rnic=0.8, noise=10), [])  # of twelve

    def test_an_rnic_with_more_is_not_and_the_numbers_say_so(self):
        (reason,) = self.reasons(Thread(0.5, 9.5), rnic=9.0)
        for text in ("thread 7", "share of the processor, 33.3%", "ran 5.0% of the time", "waited 95.0%", "the RNIC ran 90.0%"):
            self.assertIn(text, reason)
        self.assertEqual(len(self.reasons(Thread(0.5, 9.5), rnic=0.9, noise=10)), 1)

    def test_a_thread_that_had_its_share_or_did_not_want_it_was_not_kept(self):
        self.assertEqual(self.reasons(Thread(3.4, 6.6), rnic=6.0), [])
        self.assertEqual(self.reasons(Thread(0.1, 0.5), rnic=6.0), [])

    def test_threads_that_sleep_are_no_contenders(self):
        for wait, expected in ((0.1, 0), (9.9, 1)):
            noise = {8: Thread(0.1, wait)}
            self.assertEqual(len(validity.fair_share_reasons({7: Thread(1.0, 9.0)}, noise, 4.5, 10)), expected)


class PlacementTest(unittest.TestCase):
    def test_a_real_process_where_it_was_put_and_elsewhere(self):
        allowed = sorted(os.sched_getaffinity(0))
        child = processes.start(["cat"], allowed[-1], stdin=subprocess.PIPE)
        try:
            found = procfs.placements(child.pid)
            self.assertEqual(validity.placement_reasons("cat", found, allowed[-1], True), [])
            os.sched_setaffinity(child.pid, allowed)
            (reason,) = validity.placement_reasons("cat", procfs.placements(child.pid), allowed[-1], True)
            self.assertIn(f"instead of {allowed[-1]} alone", reason)
        finally:
            processes.stop(child)

    def test_another_priority_is_not_normal(self):
        for placement in (Placement(frozenset({1}), os.SCHED_FIFO, 0), Placement(frozenset({1}), os.SCHED_OTHER, -5)):
            self.assertIn("instead of normal priority", validity.placement_reasons("a replica", {9: placement}, 1, True)[0])
            self.assertEqual(validity.placement_reasons("the RNIC daemon", {9: placement}, 1, False), [])

    def test_the_daemon_is_event_driven_or_free_to_spin(self):
        fifo, normal = (Placement(frozenset({1}), policy, 0) for policy in (os.SCHED_FIFO, os.SCHED_OTHER))
        event_driven, spinning = ["hyperloop-rnicd", "--spin-us", "0"], ["hyperloop-rnicd", "--spin-us", "50"]
        self.assertEqual(validity.daemon_reasons(event_driven, fifo, "", True), [])
        self.assertIn("may spin", validity.daemon_reasons(spinning, fifo, "", True)[0])
        self.assertIn("may spin", validity.daemon_reasons(["hyperloop-rnicd"], fifo, "", True)[0])
        self.assertIn("instead of SCHED_FIFO", validity.daemon_reasons(event_driven, normal, "", True)[0])
        self.assertEqual(validity.daemon_reasons(spinning, normal, "", False), [])
        log = "another hyperloop-rnicd spins on CPU 1: this one will not spin"
        self.assertIn("another hyperloop-rnicd", validity.daemon_reasons(spinning, normal, log, False)[0])


class QuietTest(unittest.TestCase):
    def test_others_and_the_hypervisor_may_have_little(self):
        self.assertEqual(validity.quiet_reasons(0, ours=9.6, busy=10, stolen=0.1, seconds=10), [])
        (reason,) = validity.quiet_reasons(0, ours=8, busy=10, stolen=0, seconds=10)
        self.assertEqual(reason, "other programs took 20% of processor 0")
        self.assertIn("hypervisor", validity.quiet_reasons(0, ours=8, busy=8, stolen=2, seconds=10)[0])

    def test_runs_of_a_few_ticks_say_nothing(self):
        self.assertEqual(validity.quiet_reasons(0, ours=0, busy=3 * procfs.TICK, stolen=0, seconds=3 * procfs.TICK), [])


class ProcfsTest(unittest.TestCase):
    def test_processor_time_of_a_process_that_works_grows_and_is_its_threads(self):
        child = processes.start(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo; read x"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
        try:
            child.stdout.readline()
            spent = procfs.process_time(child.pid)
            self.assertGreater(spent, 0)
            self.assertAlmostEqual(sum(each.run for each in procfs.threads(child.pid).values()), spent, delta=0.02)
        finally:
            processes.stop(child)
        self.assertEqual(procfs.process_time(child.pid), 0)
        self.assertEqual(procfs.threads(child.pid), {})


if __name__ == "__main__":
    unittest.main()
