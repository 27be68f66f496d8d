"""Tests the report's content, without a browser."""

import contextlib
import copy
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from comparison import cli, percentiles, report, report_model, report_samples, report_text
from comparison import table as report_table
from comparison.report_samples import case, primitive, run, ycsb_run


class TextTest(unittest.TestCase):
    def test_numbers_have_three_digits_and_a_unit(self):
        plain = {value: report_text.time(value).replace("\u00a0", " ") for value in (850, 999.9, 6312, 12_345_678, 1.5e9, 0)}
        self.assertEqual(plain, {850: "850 ns", 999.9: "1 µs", 6312: "6.31 µs", 12_345_678: "12.3 ms", 1.5e9: "1.5 s", 0: "0 ns"})
        self.assertEqual([report_text.significant(value) for value in (0.0123, 9.996, 158_000)], ["0.0123", "10", "158,000"])
        self.assertEqual([report_text.rate(value).replace("\u00a0", " ") for value in (0.5, 17, 18_000, 1_460_000)],
                         ["0.5", "17", "18 k", "1.46 M"])
        self.assertEqual([report_text.size(value).replace("\u00a0", " ") for value in (64, 1024, 1 << 20)], ["64 B", "1 KiB", "1 MiB"])
        self.assertEqual([report_text.times(value) for value in (0.75, 1 / 164, 1.34, 1730)], ["0.75", "1/164", "1.3", "1,730"])
        self.assertEqual(report_text.percentile(1e-4).replace("\u00a0", " "), "99.99 %")


class ModelTest(unittest.TestCase):
    def test_cases_are_compared_where_only_the_datapath_differs(self):
        cases = [case("none", [run(1)]), case("offload", [run(1)]), case("offload", [run(1)], replicas=5),
                 case("cpu-polling", [run(1)], "noise", noise_workers=4), case("cpu-polling", [run(1)], "noise", noise_workers=8),
                 case("none", [run(1)], benchmark="ycsb-a")]
        found = [(group.benchmark, group.setting, group.load_title, [each["datapath"] for each in group.cases])
                 for group in report_model.groups(cases)]
        self.assertEqual(found, [
            ("fillrandom", "3 replicas", "idle machine", ["offload", "none"]),
            ("fillrandom", "3 replicas", "noise: 4 stress-ng workers on the replicas’ processors", ["cpu-polling"]),
            ("fillrandom", "3 replicas", "noise: 8 stress-ng workers on the replicas’ processors", ["cpu-polling"]),
            ("fillrandom", "5 replicas", "idle machine", ["offload", "none"]),
            ("ycsb-a", "not replicated", "idle machine", ["none"])])

    def test_cases_of_one_datapath_are_told_apart_by_name(self):
        group, = report_model.groups([case("offload", [run(1)], name="first"), case("offload", [run(1)], name="second")])
        self.assertEqual([group.label(each) for each in group.cases], ["first", "second"])

    def test_the_distribution_pools_runs_and_ends_at_the_slowest_operation(self):
        runs = [{"histogram": [[0, 10, 98], [50, 100, 1]], "max_ns": 80}, {"histogram": [[20, 40, 1]], "max_ns": 40}]
        points = report_model.pooled_tail(runs)
        self.assertEqual(points, [(1, 1.0), (10, 0.02), (40, 0.01), (80, 0.01)])
        self.assertEqual(report_model.pooled_tail([{"histogram": [], "max_ns": 0}]), [])
        self.assertEqual([report_model.at_tail(points, tail) for tail in (0.02, 0.01, 0.001)], [10, 40, None])
        self.assertAlmostEqual(report_model.at_tail(points, 0.2 ** 0.5 * 0.1 ** 0.5), 10 ** 0.5)

    def test_repeated_measurements_of_a_primitive_are_one_point_without_invalid_ones(self):
        point, = report_model.points([primitive("offload", 10), primitive("offload", 30), primitive("offload", 20),
                                      primitive("offload", 999, valid=False)])
        self.assertEqual((len(point.runs), point.median("p50_ns")), (3, 20))

    def test_panels_hold_all_but_one_quantity_still(self):
        points = report_model.points([primitive(datapath, 10, size=size, window=window) for datapath in ("offload", "fanout")
                                      for size in (64, 128, 256) for window in (1, 8)] + [primitive("offload", 10, loop="open", rate=5)])
        panels = report_model.panels(points, "size")
        self.assertEqual([panel.fixed["window"] for panel in panels], [1, 8])
        self.assertEqual([(series.label, [point["size"] for point in series.points]) for series in panels[0].series],
                         [("offload", [64, 128, 256]), ("fanout", [64, 128, 256])])
        self.assertEqual(len(report_model.panels(points, "window")), 3)
        self.assertEqual(report_model.panels(points, "replicas"), [])


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The whole page is made once, by the command; drawing is slow."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.results, cls.whole = cls.folder / "results.json", cls.folder / "made" / "report.html"
        cls.results.write_text(json.dumps(report_samples.results()), encoding="utf-8")
        cls.made = cls.command(cls.results, cls.whole)
        cls.page = cls.read(cls.whole)

    @staticmethod
    def command(*arguments):
        return subprocess.run([sys.executable, "-m", "comparison.report", *map(str, arguments)], capture_output=True, text=True,
                              cwd=pathlib.Path(__file__).parents[1], check=False)

    @staticmethod
    def read(path: pathlib.Path) -> str:
        return path.read_text(encoding="utf-8").replace("\u00a0", " ")

    def rendered(self, results: dict) -> str:
        path = self.folder / "part.html"
        report.write_report(results, path)
        return self.read(path)

    def test_each_section_is_there_with_its_numbers(self):
        page = self.page
        for said in ("3 February 2026, 04:05 UTC", "<td>12.2 µs</td>", "6.2 µs", "As multiples of it: cpu-polling 1.5, none 0.69.",
                     "Raw verbs", "processed by 3 replicas", '<td class="number">100 B</td><td>–</td>', "not measured", "db_bench_ext --noise=0,10 --primitives --alternatives", "12,345"):
            self.assertIn(said, page)
        self.assertIn("Processor &lt;4 &amp; 5&gt;", page)
        self.assertNotIn("<4 & 5>", page)

    def test_it_begins_with_the_tail_of_offload_against_polling(self):
        def headline(page):
            return re.sub(r"<[^>]*>", "", page[page.index('<section id="headline">') : page.index("<figure>")])

        self.assertIn("12.2 µs with offload, 18.2 µs with cpu-polling", headline(self.page))
        self.assertIn("fillrandom, 3 replicas, idle machine. With cpu-polling it is 1.5 times", headline(self.page))
        results = report_samples.results()
        results["cases"].append(case("cpu-polling", [run(7_000_000)], "noise", noise_workers=10))
        self.assertIn("14 µs with offload, 14 ms with cpu-polling", headline(self.rendered(results)))
        results["cases"] = []
        self.assertIn("2.03 µs with offload, 5.08 µs with cpu-polling", headline(self.rendered(results)))
        results["primitives"] = []
        self.assertNotIn('id="headline"', self.rendered(results))

    def test_percentiles_that_too_few_operations_support_are_left_out(self):
        def row(operations):
            few = run(6000) | {"operations": operations, "histogram": [[3000, 6000, operations]]}
            results = report_samples.results() | {"cases": [case("offload", [few, run(6000)])], "primitives": [], "alternatives": []}
            page = self.rendered(results)
            found = re.search(r"<tbody>\s*<tr>(.*?)</tr>", page[page.index("Medians over valid runs: latency") :], re.DOTALL)
            return re.findall(r"<td>([^<]*)</td>", found[1])[1:6], len(re.findall("offload, 99.9 %", page))

        self.assertEqual(row(999), (["6 µs", "7.2 µs", "12 µs", "–", "–"], 0))
        self.assertEqual(row(1000), (["6 µs", "7.2 µs", "12 µs", "24 µs", "–"], 1))
        self.assertEqual(row(99), (["6 µs", "7.2 µs", "–", "–", "–"], 0))
        measured = percentiles.supported(report_samples.results() | {"primitives": [primitive("offload", 1000, number=999)]})["primitives"][0]
        self.assertEqual((measured["p99_ns"], measured["p999_ns"]), (2000, None))
        self.assertEqual(report_table.duration(None), "–")

    def test_ycsb_has_a_section_of_its_own_with_every_kind_of_operations(self):
        section = self.page[self.page.index('<section id="ycsb">') : self.page.index('<section id="primitives">')]
        self.assertEqual(re.findall(r"<h3>(ycsb-.)", section), ["ycsb-a", "ycsb-c", "ycsb-f"])
        for title in ("Operations a second, idle machine", "Latency distribution, update", "Latency percentiles, read-modify-write",
                      "Latency distribution, read"):
            self.assertIn(f"<figcaption>{title}</figcaption>", section)
        for kind, median in (("read", "1.5 µs"), ("update", "7.35 µs"), ("read-modify-write", "3.35 µs")):
            self.assertRegex(section, rf'<td class="name">{kind}</td><td>500</td>\n<td>[^<]*</td><td>{median}</td>')
        self.assertNotIn("ycsb", self.page[self.page.index('<section id="summary">') : self.page.index('<section id="ycsb">')])

    def test_offered_loads_are_drawn_over_their_rates_for_each_load_of_the_machine(self):
        results = report_samples.results()
        results["cases"] = [case(datapath, [ycsb_run(p50 * factor, "update")], load, benchmark=f"ycsb-a{offered}")
                            for datapath, p50 in (("offload", 7000), ("cpu-polling", 9000)) for load in ("idle", "noise")
                            for offered, factor in (("", 1), ("@10000", 3), ("@900", 2))]
        results["cases"].append(case("offload", [ycsb_run(7000, "update")], benchmark="ycsb-f@900"))  # one rate alone is no line
        page = self.rendered(results)
        section = page[page.index('<section id="ycsb">') : page.index('<section id="primitives">')]
        drawn = re.findall(r"<figcaption>(ycsb-\S+ \S+)\s%", section)
        self.assertEqual(drawn, ["ycsb-a, 50", "ycsb-a, 99", "ycsb-a, 99.9"] * 2)
        for tip in ("offload, 900 operations a second offered: 14", "offload, 10,000 operations a second offered: 21",
                    "cpu-polling, 10,000 operations a second offered: 54"):
            self.assertIn(tip, section)
        self.assertEqual(list(dict.fromkeys(re.findall(r"<h3>(ycsb-[^,]*)", section))), ["ycsb-a", "ycsb-a@900", "ycsb-a@10000", "ycsb-f@900"])

    def test_a_plot_says_which_datapath_is_absent_and_why(self):
        results = report_samples.results() | {"cases": [], "alternatives": []}
        sizes = (64, 256, 1024, 65536)
        results["primitives"] = [primitive(datapath, 1000, size=size, **fields) for size in sizes for datapath, fields in (
            ("offload", {}), ("cpu-polling", {"valid": size == 64, "reasons": ["unfair"]}), ("cpu-event", {"valid": False, "reasons": ["unfair"]}),
            ("fanout", {"load": "noise", "valid": size < 65536}))]
        page = self.rendered(results)
        self.assertIn("Incomplete: fanout was not measured; cpu-polling has one valid point only; no measurement of cpu-event is valid.", page)
        self.assertIn("1 of 4 measurements of fanout are not valid", page)
        results["primitives"] = [each for each in results["primitives"] if each["datapath"] == "offload"]
        self.assertNotIn("Incomplete", self.rendered(results))

    def test_runs_that_do_not_count_are_named_with_their_reasons_and_left_out(self):
        page = self.page
        self.assertIn("3 runs not valid.", page)
        self.assertEqual(len(re.findall("<td>the RNIC kept a replica thread from its fair share</td>", page)), 2)
        self.assertIn("<td>the processor was taken</td>", page)
        self.assertIn(">2 of 3</td>", page)
        self.assertIn("<td>99.9 k – 101 k</td>", page)  # the invalid run did 16.5 k
        self.assertIn('<td class="invalid">(1.6 ms)</td>', page)
        self.assertIn("no run of the case is valid", page)
        self.assertIn("cpu-event: no run is valid, so it is in no plot.", page)
        self.assertNotIn("1.23 µs", page)  # the invalid primitive's median
        self.assertNotIn("cpu-event, 50", page)  # no bar of it

    def test_what_is_missing_is_said(self):
        results = report_samples.results() | {"cases": [], "primitives": [], "alternatives": []}
        page = self.rendered(results)
        for part in ("database benchmarks", "measurements of the group primitives", "measurements of other systems"):
            self.assertIn(f"There are no {part} in these results.", page)
        self.assertNotIn("<svg", page)
        results["cases"] = [case("offload", [run(6000)])]
        self.assertIn("nothing here shows replicas under load", self.rendered(results))

    def test_nothing_is_loaded_and_ids_are_unique(self):
        page = self.page
        self.assertNotRegex(page, r"https?:|<script|<link|@import|url\((?!#)")
        ids = re.findall(r'\bid="([^"]*)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertLessEqual(set(re.findall(r'(?:href="#|url\(#)([^")]*)', page)), set(ids))

    def test_results_that_do_not_follow_the_schema_are_refused_and_the_old_report_stays(self):
        broken = copy.deepcopy(report_samples.results())
        del broken["cases"][1]["runs"][0]["latency_ns"]["p99"]
        with self.assertRaisesRegex(report.ReportError, r"cases\[1\]\.runs\[0\]\.latency_ns: 'p99' is a required property"):
            report.write_report(broken, self.whole)
        self.assertEqual(self.read(self.whole), self.page)
        self.assertEqual([each.name for each in self.whole.parent.iterdir()], ["report.html"])

    def test_db_bench_ext_renders_kept_results_without_measuring(self):
        def call(*arguments):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = cli.main([str(each) for each in arguments], pathlib.Path("/nowhere"), "0")
            return status, said.getvalue()

        again = self.folder / "again"
        self.assertEqual(call(f"--render={self.results}", "-report", again), (0, f"written: {again}/report.html\n"))
        self.assertEqual(self.read(again / "report.html"), self.page)
        for arguments, status, said in (
            ([f"--render={self.results}"], 2, "required: --report"),
            ([f"--render={self.results}", f"--report={again}", "--runs=3"], 2, "--runs=3 does not go with --render"),
            (["--render=/nowhere/results.json", f"--report={again}"], 1, "cannot read /nowhere/results.json: No such file"),
            ([f"--render={self.results}", f"--report={self.results}"], 1, f"cannot write {self.results}/report.html: "),
        ):
            with self.subTest(said):
                found = call(*arguments)
                self.assertEqual((found[0], found[1].count("\n")), (status, 1), found)
                self.assertIn(said, found[1])

    def test_the_command_renders_a_file_or_says_why_not(self):
        self.assertEqual((self.made.returncode, self.made.stdout, self.made.stderr), (0, "", ""))
        self.assertTrue(self.page.endswith("</html>\n"))
        broken = self.folder / "broken.json"
        broken.write_text("{", encoding="utf-8")
        for results, said in ((broken, "is not JSON"), (self.folder / "no", "No such file")):
            refused = self.command(results, self.folder / "refused.html")
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, rf"^comparison\.report: .*{said}[^\n]*\n$")
        self.assertFalse((self.folder / "refused.html").exists())


if __name__ == "__main__":
    unittest.main()
