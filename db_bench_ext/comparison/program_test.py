"""Tests the program as users run it: real clusters, real db_bench, real noise."""

import csv
import fnmatch
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import jsonschema

from comparison import procfs

BINARIES = pathlib.Path(os.environ["HYPERLOOP_BIN"])
PROGRAM = str(BINARIES / "db_bench_ext")
SCHEMA = pathlib.Path(__file__).with_name("results.schema.json")
PATIENCE = 500  # seconds
SMALL = ["--num=300", "--region_size=64M"]


def environment_without(*missing: str) -> dict[str, str]:
    """PATH with every program of /usr/bin but some."""
    directory = tempfile.mkdtemp()
    for path in pathlib.Path("/usr/bin").iterdir():
        if path.name not in missing:
            os.symlink(path, f"{directory}/{path.name}")
    return os.environ | {"PATH": directory}


def processes_in(directory: str) -> list[int]:
    """Processes that name `directory` in their arguments."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if directory in " ".join(procfs.arguments(int(entry.name))):
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def descendants(pid: int) -> list[int]:
    return [each for child in procfs.children(pid) for each in (child, *descendants(child))]


class Comparison(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0 and os.getpriority(os.PRIO_PROCESS, 0) > 0:
            self.skipTest("started niced, which db_bench_ext refuses to a user who may not change it back")
        parent = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="comparison-test.")
        self.addCleanup(parent.cleanup)
        self.work = pathlib.Path(parent.name) / "work"
        self.work.mkdir()
        self.out = pathlib.Path(parent.name) / "out"
        self.out.mkdir()

    def start(self, *arguments, **popen):
        process = subprocess.Popen([PROGRAM, f"--work_dir={self.work}", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   **popen)
        self.addCleanup(process.communicate)
        self.addCleanup(lambda: process.poll() is None and process.terminate())
        return process

    def run_program(self, *arguments, **popen):
        process = self.start(*arguments, **popen)
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(list(self.work.iterdir()), [], "files were left")
        self.assertEqual(processes_in(str(self.work)), [], "processes were left")
        return process.returncode, output, errors

    def results(self, *arguments, **popen):
        path = self.out / "results.json"
        status, output, errors = self.run_program(f"--json={path}", f"--csv={self.out}/results.csv", *SMALL, *arguments, **popen)
        self.assertIn(status, (0, 3), errors)
        results = json.loads(path.read_text())
        jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(results)
        self.assertEqual(status == 0, all(case["median"] for case in results["cases"]), "3 says that a case has no valid run")
        return results, output, errors

    def refusal(self, *arguments, status, **popen):
        """What it says, once, when it does not even begin."""
        returned, output, errors = self.run_program(*arguments, **popen)
        self.assertEqual((returned, output), (status, ""), errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        return errors


class QuickTest(Comparison):
    def test_two_datapaths_take_turns_and_results_keep_to_the_schema(self):
        results, output, errors = self.results("--datapaths=offload,none", "--runs=2", "--benchmarks=fillrandom,overwrite")
        self.assertEqual(results["machine"]["processors"], len(os.sched_getaffinity(0)))
        steps = [line.split(": ")[1] for line in errors.splitlines() if line.startswith("[")]
        self.assertEqual(steps, ["offload, idle", "none, idle"] * 2)
        names = [case["name"] for case in results["cases"]]
        self.assertEqual(names, [f"{benchmark} · {datapath} · idle" for datapath in ("offload", "none") for benchmark in ("fillrandom", "overwrite")])
        for case in results["cases"]:
            self.assertIn(case["name"], output)
            self.assertEqual(len(case["runs"]), 2)
            for run in case["runs"]:
                self.assertEqual(run["operations"], 300)
                self.assertEqual(run["valid"], run["reasons"] == [])
                if case["datapath"] == "none":
                    self.assertEqual((run["cpu_seconds"]["replicas"], run["rnic_counters"]), ([], {}))
        # Where one benchmark follows another, times and counters may be read a little late: for a benchmark of
        # milliseconds that may be all of it. All together are.
        spent = [run["cpu_seconds"] for case in results["cases"] for run in case["runs"]]
        self.assertGreater(sum(each["primary"] for each in spent), 0)
        self.assertGreater(sum(each["rnic"] for each in spent if each["replicas"]), 0)
        for first, second in zip(*(case["runs"] for case in results["cases"][:2])):
            executed = sum(run["rnic_counters"]["replica2.wqes_executed"] for run in (first, second))
            self.assertGreaterEqual(executed, 600)
        with (self.out / "results.csv").open() as file:
            self.assertEqual(len(list(csv.DictReader(file))), 8)

    def test_a_failing_db_bench_is_quoted(self):
        errors = self.run_program("--datapaths=none", "--benchmarks=nonsense")[2]
        self.assertIn("db_bench failed (status 1)", errors)
        self.assertIn("unknown benchmark 'nonsense'", errors)

    def test_a_run_without_end_is_ended(self):
        status, _, errors = self.run_program("--datapaths=none", "--num=100000000", "--timeout=1")
        self.assertEqual(status, 1)
        self.assertIn("did not end within 1 s (--timeout)", errors)

    def test_refusals(self):
        self.assertIn("unknown flag --nonsense", self.refusal("--nonsense", status=2))
        self.assertIn("--primary_cpu=4095: this process may use", self.refusal("--primary_cpu=4095", status=2))
        self.assertIn("no program /nowhere/db_bench", self.refusal("--db_bench=/nowhere/db_bench", status=1))
        self.assertIn("give a smaller --region_size", self.refusal("--region_size=15G", "--tenants=64", status=1))
        self.assertIn("cannot write /proc/results.json", self.refusal("--json=/proc/results.json", status=1))
        self.assertIn("'g' is no workload of YCSB", self.refusal("--ycsb=a,g", status=2))
        self.assertIn("where fsync does nothing", self.refusal("--alternatives", f"--disk_dir={self.work}", status=2))

    def test_missing_programs_are_named_with_their_package(self):
        for name, package, arguments in (("db_bench", "rocksdb-tools", []), ("stress-ng", "stress-ng", ["--noise"])):
            with self.subTest(name):
                environment = environment_without(name)
                self.addCleanup(shutil.rmtree, environment["PATH"])
                errors = self.refusal(*arguments, status=1, env=environment)
                self.assertIn(f"no program {name}", errors)
                self.assertIn(f"apt-get install {package}", errors)

    @unittest.skipIf(os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"), "this machine has an RDMA device")
    def test_verbs_without_a_device_is_refused_before_anything_runs(self):
        errors = self.refusal("--provider=verbs", status=1)
        self.assertIn("needs an RDMA device, and this machine has none", errors)
        self.assertIn("rdma link add rxe0 type rxe", errors)

    def test_a_missing_program_of_ours_is_named(self):
        binaries = pathlib.Path(self.out) / "bin"
        binaries.mkdir()
        for name in ("db_bench_ext", "hyperloopctl"):
            (binaries / name).symlink_to(BINARIES / name)
        code = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); from comparison.cli import main; sys.exit(main(['--ycsb'], pathlib.Path(sys.argv[2]), '0'))"
        done = subprocess.run(["/usr/bin/python3", "-c", code, str(pathlib.Path(__file__).parents[1]), str(binaries)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("no program hyperloop-ycsb", done.stderr)
        self.assertIn("build it (ninja -C build hyperloop-ycsb)", done.stderr)

    def test_one_processor_is_too_few(self):
        first = min(os.sched_getaffinity(0))
        errors = self.refusal(status=1, preexec_fn=lambda: os.sched_setaffinity(0, {first}))
        self.assertIn("the primary needs one to itself", errors)

    def test_help_and_version(self):
        for argument in ("--help", "--version"):
            status, output, errors = self.run_program(argument)
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("db_bench_ext", output)


class LongTest(Comparison):
    """What takes long, and what needs the RNIC daemon's real-time priority."""

    def test_placement_beside_noise_is_as_promised(self):
        results, _, _ = self.results("--datapaths=cpu-event", "--runs=1", "--noise=2", "--slow_seconds=1", "--replicas=1")
        self.assertEqual(results["cases"][0]["noise_workers"], 2)
        (run,) = results["cases"][0]["runs"]
        wrong = [reason for reason in run["reasons"] if "instead of" in reason or "spin" in reason]
        if os.geteuid() != 0:  # who may not have SCHED_FIFO is told so, and of nothing else
            wrong = [reason for reason in wrong if "instead of SCHED_FIFO" not in reason]
        self.assertEqual(wrong, [])
        self.assertGreater(run["cpu_seconds"]["noise"], 0)
        self.assertEqual(len(run["cpu_seconds"]["replicas"]), 1)
        self.assertGreater(run["cpu_seconds"]["replicas"][0], 0)

    def test_started_niced_it_measures_at_normal_priority_or_refuses(self):
        niced = {"preexec_fn": lambda: os.setpriority(os.PRIO_PROCESS, 0, 12)}
        if os.geteuid() != 0:  # may not go back; a system's limits (ulimit -e) may permit it
            self.assertIn("Start it without nice", self.refusal("--datapaths=none", status=1, **niced))
            return
        results, _, _ = self.results("--datapaths=offload", "--runs=1", "--replicas=1", **niced)
        (run,) = results["cases"][0]["runs"]
        self.assertEqual([reason for reason in run["reasons"] if "normal priority" in reason], [])

    def test_ycsb_takes_turns_with_db_bench(self):
        results, output, errors = self.results("--datapaths=none,offload", "--runs=2", "--replicas=1", "--ycsb=e,a,c", "--ycsb_records=50",
                                               "--ycsb_operations=200", "--threads=2", f"--report={self.out}/report")
        steps = [line.split(": ")[1] for line in errors.splitlines() if line.startswith("[")]
        self.assertEqual(steps, [f"{title}{datapath}, idle" for title in ("", "YCSB e,a,c, ") for datapath in ("none", "offload")] * 2)
        cases = {case["name"]: case for case in results["cases"] if case["benchmark"].startswith("ycsb-")}
        kinds = {"a": ["read", "update"], "c": ["read"], "e": ["insert", "scan"]}
        self.assertEqual(list(cases), [f"ycsb-{letter} · {datapath} · idle" for datapath in ("none", "offload") for letter in "eac"])
        for name, case in cases.items():
            self.assertIn(name, output)
            self.assertIn("--threads=2", case["command"])
            self.assertEqual("--uri=" in case["command"], case["datapath"] == "offload")
            self.assertEqual(len(case["runs"]), 2)
            for run in case["runs"]:
                self.assertEqual(run["operations"], 200)
                self.assertEqual(sorted(each["type"] for each in run["types"]), kinds[case["benchmark"][-1]])
                self.assertEqual(sum(each["operations"] for each in run["types"]), 200)
                counted = next((each for each in run["types"] if each["type"] in ("update", "insert")), run["types"][0])
                self.assertEqual((run["latency_ns"], run["histogram"]), (counted["latency_ns"], counted["histogram"]))
                self.assertEqual(len(run["cpu_seconds"]["replicas"]), case["replicas"])
                # Times and counters are of this workload alone: it waits until those of the one before are read.
                self.assertGreater(run["cpu_seconds"]["primary"], 0)
                writes = sum(each["operations"] for each in run["types"] if each["type"] in ("update", "insert"))
                if case["datapath"] == "offload":
                    executed = run["rnic_counters"]["replica0.wqes_executed"]
                    self.assertGreaterEqual(executed, writes)
                    self.assertLess(executed, 100 * writes + 1000)
        with (self.out / "results.csv").open() as file:
            self.assertEqual(sum(row["benchmark"].startswith("ycsb-") for row in csv.DictReader(file)), 12)
        self.assertIn('<section id="ycsb">', (self.out / "report" / "report.html").read_text())

    def test_ycsb_offers_each_rate_of_a_list(self):
        results, _, _ = self.results("--datapaths=offload", "--runs=1", "--replicas=1", "--ycsb=a", "--ycsb_records=50", "--ycsb_operations=60",
                                     "--ycsb_rate=0,600,300")
        cases = {case["benchmark"]: case for case in results["cases"] if case["benchmark"].startswith("ycsb-")}
        self.assertEqual(list(cases), ["ycsb-a", "ycsb-a@600", "ycsb-a@300"])
        for benchmark, case in cases.items():
            (run,) = case["runs"]
            self.assertGreater(run["operations"], 0)
            if "@" in benchmark:  # never faster than it was offered, but for the first operation, which has no other before it
                rate = int(benchmark.partition("@")[2])
                self.assertLessEqual(run["ops_per_second"], rate * run["operations"] / (run["operations"] - 1))

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_hosts_apart_it_compares_itself_with_others_on_the_same_nodes(self):
        environment = environment_without("etcd")
        self.addCleanup(shutil.rmtree, environment["PATH"])
        results, output, errors = self.results("--hosts_apart", "--alternatives", "--datapaths=auto", "--runs=1", env=environment)
        self.assertIn("no program etcd: --alternatives leaves it out (apt-get install etcd-server)", errors)
        (case,) = results["cases"]
        self.assertEqual((case["name"], case["datapath"]), ("fillrandom · auto (fanout) · idle", "fanout"))
        self.assertEqual(case["runs"][0]["cpu_share"], {})
        rows = [(each["name"], each["value_size"], each["datapath"], len(each["runs"])) for each in results["alternatives"]]
        self.assertEqual(rows, [(name, size, datapath, runs) for size in (100, 1000) for name, datapath, runs in (
            ("RocksDB with HyperLoop ×3", "fanout", 1), ("Redis, WAIT 3, in memory", None, 1), ("etcd, three members, in memory", None, 0))])
        for each in results["alternatives"]:
            self.assertIn(each["name"], output)
            for run in each["runs"]:
                self.assertGreater(run["operations"], 0)

    def test_a_spinning_rnic_beside_noise_makes_a_run_invalid(self):
        results, output, _ = self.results("--datapaths=offload", "--runs=1", "--noise=1", "--rnic_spin_us=1000", "--replicas=1")
        self.assertIsNone(results["cases"][0]["median"])
        self.assertIn("the RNIC daemon may spin beside threads that want its processor", output)

    def test_tenants_run_side_by_side(self):
        results, _, _ = self.results("--datapaths=offload", "--runs=1", "--tenants=2", "--replicas=1", f"--report={self.out}/report")
        self.assertIn(results["cases"][0]["name"], (self.out / "report" / "report.html").read_text())
        self.assertEqual(json.loads((self.out / "report" / "results.json").read_text()), results)
        (run,) = results["cases"][0]["runs"]
        self.assertEqual(run["operations"], 600)
        self.assertEqual(sum(count for _, _, count in run["histogram"]), 600)
        for tenant in ("tenant0", "tenant1"):
            self.assertGreaterEqual(run["rnic_counters"][f"{tenant}.replica0.wqes_executed"], 300)

    def test_signals_leave_nothing_running(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                process = self.start("--datapaths=offload", "--noise=2", "--tenants=2", "--replicas=1", "--num=100000000", "--region_size=64M")
                everyone = self.await_benches(process, 2)
                process.send_signal(number)
                _, errors = process.communicate(timeout=PATIENCE)
                self.assertEqual(process.returncode, 128 + number, errors)
                self.assertIn(f"ended by {signal.Signals(number).name}", errors)
                for pid, descriptor in everyone.items():
                    self.assertTrue(select.select([descriptor], [], [], 0)[0], f"process {pid} is left")
                    os.close(descriptor)
                self.assertEqual(list(self.work.iterdir()), [])
                self.assertEqual(processes_in(str(self.work)), [])

    def logs(self):
        """How many logs there are of db_bench's databases. db_bench may remove a directory while this looks."""
        folders = (names for folder, _, names in os.walk(self.work) if fnmatch.fnmatch(folder, f"{self.work}/*/run*/db*"))
        return sum(name.endswith(".log") for names in folders for name in names)

    def await_benches(self, process, count):
        """Waits until `count` db_bench write; returns a handle of each process of the comparison: its children (db_bench,
        stress-ng) and those that name its directory (daemons, replicas)."""
        deadline = time.monotonic() + PATIENCE
        while self.logs() < count:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            select.select([], [], [], 0.01)
        everyone = set(descendants(process.pid)) | set(processes_in(str(self.work))) - {process.pid}
        names = sorted(pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in everyone)
        for name, least in (("db_bench", 2), ("hyperloop-repli", 2), ("hyperloop-rnicd", 2), ("stress-ng", 2)):
            self.assertGreaterEqual(names.count(name), least, names)
        return {pid: os.pidfd_open(pid) for pid in everyone}


if __name__ == "__main__":
    unittest.main()
