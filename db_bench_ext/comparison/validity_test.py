"""Tests the rules by which a run is valid."""

import os
import subprocess
import unittest

from comparison import flags, placement, processes, procfs, validity
from comparison.procfs import Placement, Thread


class FairShareTest(unittest.TestCase):
    """Ten seconds on a processor that three replicas' threads, stress-ng and the RNIC share."""

    def reasons(self, rnic, workers=10, waits=2.0, name="hyperloop-chain"):
        replicas = [Thread(0.2, waits, name)] * 3
        left = 10 - rnic - 0.6
        noise = [Thread(left / workers, 10 - left / workers)] * workers + [Thread(0.0, 0.0)] * workers  # and its parents, asleep
        return validity.fair_share_reasons(replicas, noise, rnic, 10)

    def test_an_rnic_that_leaves_others_their_fair_share_is_fair_however_long_replicas_wait(self):
        for waits in (0.0, 2.0, 9.8):
            self.assertEqual(self.reasons(rnic=0.5, waits=waits), [])
            self.assertEqual(self.reasons(rnic=1.5, waits=waits), [])

    def test_an_rnic_that_takes_more_is_not_and_the_numbers_say_so(self):
        (reason,) = self.reasons(rnic=4.0)
        for text in ("the RNIC ran 40.0% of the time", "their fair share, 8.6% of the", "had 5.4%, less than 80% of that"):
            self.assertIn(text, reason)
        self.assertEqual(len(self.reasons(rnic=9.0, workers=1)), 1)

    def test_what_others_took_is_not_laid_on_an_rnic_with_a_fair_share(self):
        replicas, noise = [Thread(0.2, 2.0, "hyperloop-chain")], [Thread(0.3, 9.7)] * 10
        self.assertEqual(validity.fair_share_reasons(replicas, noise, 0.5, 10), [])
        self.assertEqual(len(validity.fair_share_reasons(replicas, noise, 1.0, 10)), 1)

    def test_replicas_without_a_forwarding_thread_are_kept_from_nothing(self):
        self.assertEqual(self.reasons(rnic=4.0, name="hyperloop-repli"), [])

    def test_without_a_thread_that_always_wanted_the_processor_nothing_is_shown(self):
        (reason,) = validity.fair_share_reasons([Thread(1.0, 1.0, "hyperloop-chain")], [Thread(1.0, 1.0)], 0.1, 10)
        self.assertIn("no stress-ng worker wanted the processor all the time", reason)


class PlacementTest(unittest.TestCase):
    def test_idle_hosts_apart_are_not_bound_unless_asked_for(self):
        first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
        for words, expected in ((["--hosts_apart"], (None, None)), (["--hosts_apart", "--noise=2"], (first, last)),
                                (["--hosts_apart", f"--replica_cpu={last}"], (first, last)), ([], (first, last))):
            with self.subTest(words):
                chosen = placement.choose(flags.parse_own(words))
                self.assertEqual((chosen.primary, chosen.replicas), expected)

    def test_a_real_process_where_it_was_put_and_elsewhere(self):
        allowed = sorted(os.sched_getaffinity(0))
        child = processes.start(["cat"], allowed[-1], stdin=subprocess.PIPE)
        try:
            found = procfs.placements(child.pid)
            self.assertEqual(validity.placement_reasons("cat", found, allowed[-1], False), [])
            os.sched_setaffinity(child.pid, allowed)
            (reason,) = validity.placement_reasons("cat", procfs.placements(child.pid), allowed[-1], False)
            self.assertIn(f"instead of {allowed[-1]} alone", reason)
            os.sched_setaffinity(child.pid, allowed[-1:])
            os.setpriority(os.PRIO_PROCESS, child.pid, 7)  # nicer than any test is started
            (reason,) = validity.placement_reasons("cat", procfs.placements(child.pid), allowed[-1], True)
            self.assertIn("nice 7 instead of normal priority", reason)
        finally:
            processes.stop(child)

    def test_another_priority_is_not_normal(self):
        for placement in (Placement(frozenset({1}), os.SCHED_FIFO, 0), Placement(frozenset({1}), os.SCHED_OTHER, -5)):
            self.assertIn("instead of normal priority", validity.placement_reasons("a replica", {9: placement}, 1, True)[0])
            self.assertEqual(validity.placement_reasons("the RNIC daemon", {9: placement}, 1, False), [])

    def test_a_replicas_thread_for_files_yields(self):
        for name, reasons in (("hl-bulk", 0), ("other", 1)):
            placement = Placement(frozenset({1}), os.SCHED_OTHER, 10, name)
            self.assertEqual(len(validity.placement_reasons("a replica", {9: placement}, 1, True)), reasons, name)

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
        self.assertEqual(validity.quiet_reasons("processor 0", ours=9.6, busy=10, stolen=0.1, seconds=10), [])
        (reason,) = validity.quiet_reasons("processor 0", ours=8, busy=10, stolen=0, seconds=10)
        self.assertEqual(reason, "other programs took 20% of processor 0")
        self.assertIn("hypervisor", validity.quiet_reasons("processor 0", ours=8, busy=8, stolen=2, seconds=10)[0])

    def test_runs_of_a_few_ticks_say_nothing(self):
        self.assertEqual(validity.quiet_reasons("processor 0", ours=0, busy=3 * procfs.TICK, stolen=0, seconds=3 * procfs.TICK), [])


class ProcfsTest(unittest.TestCase):
    def test_processor_time_of_a_process_that_works_grows_and_is_its_threads(self):
        child = processes.start(["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; read x"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
        try:
            child.stdout.readline()
            spent = procfs.process_time(child.pid)
            self.assertGreater(spent, 0)
            self.assertTrue(0 < procfs.user_time(child.pid) <= spent + 2 * procfs.TICK)
            self.assertAlmostEqual(sum(each.run for each in procfs.threads(child.pid).values()), spent, delta=0.02)
        finally:
            processes.stop(child)
        self.assertEqual((procfs.process_time(child.pid), procfs.user_time(child.pid)), (0, 0))
        self.assertEqual(procfs.threads(child.pid), {})


if __name__ == "__main__":
    unittest.main()
