"""Tests how flags are divided between db_bench_ext and db_bench, with the flags of the real db_bench."""

import shutil
import unittest

from comparison import flags
from comparison.errors import ComparisonError, UsageError


class FlagsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = flags.db_bench_flags(shutil.which("db_bench"))

    def separate(self, *arguments):
        return flags.separate(list(arguments), self.known)

    def refusal(self, *arguments):
        with self.assertRaises(UsageError) as caught:
            flags.parse_own(self.separate(*arguments).own)
        return str(caught.exception)

    def test_db_bench_lists_its_flags_with_types(self):
        self.assertGreater(len(self.known), 300)
        self.assertEqual(self.known["num"], "int64")
        self.assertEqual(self.known["sync"], "bool")
        self.assertEqual(self.known["benchmarks"], "string")

    def test_no_flag_of_ours_is_also_one_of_db_bench(self):
        self.assertEqual((set(flags.own_names()) - {"help", "version"}) & set(self.known), set())

    def test_each_spelling_of_gflags_reaches_the_right_side(self):
        line = self.separate("--num=5", "-value_size", "200", "--sync", "--nouse_direct_reads", "--datapaths=offload,none", "--runs", "2",
                             "--noise", "--alternatives")
        self.assertEqual(line.bench, {"num": "5", "value_size": "200", "sync": "true", "use_direct_reads": "false"})
        self.assertEqual(line.own, ["--datapaths=offload,none", "--runs=2", "--noise=10", "--alternatives"])

    def test_ycsb_is_a_list_or_all_and_off_unless_asked_for(self):
        self.assertEqual(flags.parse_own(self.separate("--ycsb").own).ycsb, list("abcdef"))
        self.assertEqual(flags.parse_own(self.separate("--ycsb=E,a").own).ycsb, ["e", "a"])
        self.assertIsNone(flags.parse_own([]).ycsb)

    def test_ycsb_rates_are_a_list_and_a_closed_loop_unless_asked_for(self):
        self.assertEqual(flags.parse_own(self.separate("--ycsb=a").own).ycsb_rate, [0])
        self.assertEqual(flags.parse_own(self.separate("--ycsb=a", "--ycsb_rate=500,2000").own).ycsb_rate, [500, 2000])

    def test_datapaths_are_what_the_provider_has(self):
        self.assertEqual(flags.parse_own([]).datapaths, ["offload", "cpu-polling", "none"])
        self.assertEqual(flags.parse_own(["--provider=verbs"]).datapaths, ["fanout", "cpu-polling", "none"])

    def test_noise_is_a_list(self):
        self.assertEqual(flags.parse_own(self.separate("--noise=0,4").own).noise, [0, 4])

    def test_what_the_user_gives_wins_over_our_workload(self):
        self.assertEqual(flags.workload({"num": "5"})["num"], "5")
        self.assertEqual(flags.workload({})["benchmarks"], "fillrandom")

    def test_refusals_name_cause_and_remedy(self):
        for arguments, expected in (
            (["--nonsense=1"], "unknown flag --nonsense"),
            (["--replica=1"], "did you mean --replicas?"),
            (["--benchmark=fillseq"], "did you mean --benchmarks?"),
            (["nonsense"], "unexpected argument 'nonsense'"),
            (["--num"], "--num needs a value"),
            (["--db=/tmp/x"], "--work_dir chooses where"),
            (["--fs_uri=hyperloop://x"], "--datapaths and --provider choose it"),
            (["--nohistogram=1"], "unknown flag --nohistogram"),
            (["--datapaths=offload,warp"], "'warp': expected auto, offload"),
            (["--datapaths=offload,offload"], "names a value twice"),
            (["--runs=0"], "whole number from 1"),
            (["--replicas=9"], "from 1 to 8"),
            (["--region_size=many"], "is no size from 4M to 15G"),
            (["--region_size=1M"], "is no size from 4M to 15G"),
            (["--region_size=-256M"], "is no size from 4M to 15G"),
            (["--primary_cpu=-7"], "'-7' is no processor number"),
            (["--alternatives=yes"], "--alternatives takes no value"),
            (["--provider=verbs", "--datapaths=offload"], "no datapath offload"),
            (["--provider=verbs", "--alternatives"], "--alternatives goes with --provider=softrnic only"),
            (["--ycsb=a,g"], "'g' is no workload of YCSB: expected a, b, c, d, e, f"),
            (["--ycsb="], "'' is no workload of YCSB"),
            (["--ycsb=a,A"], "names a value twice"),
            (["--ycsb", "--ycsb_records=1"], "whole number from 2"),
            (["--ycsb", "--ycsb_rate=100,-1"], "whole number from 0"),
            (["--ycsb_rate=5"], "--ycsb_rate=5 goes with --ycsb only"),
            (["--ycsb_seconds=3"], "--ycsb_seconds=3 goes with --ycsb only"),
            (["--device=rxe0"], "goes with --provider=verbs only"),
            (["--hosts_apart", "--provider=verbs"], "--hosts_apart goes with --provider=softrnic only"),
            (["--hosts_apart", "--alternatives", "--replicas=1"], "needs --replicas=2 or more"),
            (["--hosts_apart", "--alternatives", "--noise"], "give no --noise"),
            (["--hosts_apart", "--alternatives", "--replica_cpu=0"], "give no --noise, --primary_cpu or --replica_cpu"),
            (["--netem=delay 1ms"], "--netem goes with --hosts_apart only"),
        ):
            with self.subTest(arguments):
                self.assertIn(expected, self.refusal(*arguments))

    def test_repetitions_and_bad_counts_are_refused(self):
        for given, expected in (({"benchmarks": "fillrandom[X3]"}, "--runs repeats"), ({"num": "0"}, "--num=0"), ({"num": "1e6"}, "--num=1e6")):
            with self.subTest(given), self.assertRaisesRegex(UsageError, expected):
                flags.workload(given)

    def test_another_program_is_no_db_bench(self):
        with self.assertRaisesRegex(ComparisonError, "it is no db_bench"):
            flags.db_bench_flags("/bin/true")


if __name__ == "__main__":
    unittest.main()
