"""db_bench_ext: compares replication datapaths with the stock db_bench."""

import contextlib
import datetime
import json
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile

from comparison import alternatives, device, flags, jobs, placement, primitives, processes, report, runner, summary, table
from comparison.errors import ComparisonError, Interrupted, UsageError
from comparison.progress import Progress

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INVALID = 0, 1, 2, 3
WANTED_HELP = {"--help", "-h", "-help", "--helpfull", "-helpfull"}


def main(arguments: list[str], binaries: pathlib.Path, version: str) -> int:
    """Returns the exit status. `binaries`: the folder of hyperloopctl and the benchmarks; `version`: of this project."""
    try:
        if WANTED_HELP & set(arguments):
            flags.own_parser().print_help()
            return EXIT_OK
        if "--version" in arguments:
            print(f"db_bench_ext {version}")
            return EXIT_OK
        render = flags.parse_render(arguments)
        if render:
            return _render(pathlib.Path(render.render), pathlib.Path(render.report) / "report.html")
        processes.watch_signals()
        return _compare(arguments, binaries, version)
    except UsageError as error:
        print(f"db_bench_ext: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (ComparisonError, report.ReportError) as error:
        print(f"db_bench_ext: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Interrupted as interruption:
        name = signal.Signals(interruption.number).name
        print(f"\ndb_bench_ext: ended by {name}; everything that it started is gone", file=sys.stderr)
        return 128 + interruption.number


def _render(results: pathlib.Path, path: pathlib.Path) -> int:
    """The report alone, of results that were kept."""
    try:
        report.write_report(report.read(results), path)
    except OSError as error:
        raise ComparisonError(f"cannot write {path}: {error.strerror}") from None
    print(f"written: {path}")
    return EXIT_OK


def _compare(arguments: list[str], binaries: pathlib.Path, version: str) -> int:
    bench = processes.find_program(_named_db_bench(arguments), "install the stock one (apt-get install rocksdb-tools) or give --db_bench=PATH")
    given = flags.separate(arguments, flags.db_bench_flags(bench))
    options = flags.parse_own(given.own)
    workload = flags.workload(given.bench)
    device.check(options)
    processes.be_normal()
    programs = runner.Programs(_beside(binaries, "hyperloopctl"), _stress_ng(options))
    work_of = _Jobs(options, workload, bench, programs.hyperloopctl, binaries)
    processors = placement.choose(options)
    outputs = _Outputs(options)
    if processors.replicas is not None:
        processes.keep_to(processors.replicas)
    results = {"version": 1, "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
               "command": shlex.join(["db_bench_ext", *arguments]), "machine": {}, "cases": [], "primitives": [], "alternatives": []}
    with _own_directory(options.work_dir, "--work_dir") as work:
        run = runner.Runner(options, programs, processors, work)
        runner.check_space(work, run.bytes_needed())
        try:
            _measure(run, work_of, options, workload, work, results)
        finally:  # results from before a failure or Ctrl-C are kept
            if results["cases"]:
                with processes.shield():
                    results["machine"] = summary.machine(run.rocksdb_version, version)
                    print(table.text(results))
                    outputs.write(results)
    return EXIT_OK if all(case["median"] for case in results["cases"]) else EXIT_INVALID


class _Jobs:
    """Everything that may be run, its programs found before anything is."""

    def __init__(self, options, workload: dict[str, str], bench: str, hyperloopctl: str, binaries: pathlib.Path):
        self.db_bench = lambda extra=None: jobs.DbBench(options, workload, bench, hyperloopctl, extra)
        self.in_turns = [self.db_bench()]
        if options.ycsb:
            self.in_turns.append(jobs.Ycsb(options, workload, _beside(binaries, "hyperloop-ycsb")))
        self.sweeps = primitives.commands(_beside(binaries, "hyperloop-bench"), options) if options.primitives else []


def _measure(run: runner.Runner, work_of: _Jobs, options, workload: dict[str, str], work: pathlib.Path, results: dict) -> None:
    """Everything in turns: each round has one run of every case and every alternative."""
    configurations = [runner.Configuration(datapath, noise) for noise in options.noise for datapath in options.datapaths]
    turns = [(job, each) for job in work_of.in_turns for each in configurations]
    with contextlib.ExitStack() as stack:
        others = None
        if options.alternatives:
            disk = None if options.hosts_apart else stack.enter_context(_disk(options, run))
            servers = alternatives.find_programs(lambda text: print(f"db_bench_ext: {text}", file=sys.stderr))
            others = alternatives.Alternatives(run, options, workload, servers, work, disk, work_of.db_bench)
        progress = Progress(options.runs * (len(turns) + (len(others.list) if others else 0)) + len(work_of.sweeps))
        stack.callback(progress.clear)
        for number in range(1, options.runs + 1):
            for job, each in turns:
                progress.step(f"run {number}/{options.runs}: " + ", ".join(part for part in (job.title, each.datapath, each.load) if part))
                measured = run.run(job, each, progress.share)
                summary.add_runs(results["cases"], measured, each, options)
                for benchmark in measured:
                    for reason in benchmark.run["reasons"]:
                        progress.note(f"invalid: {benchmark.benchmark}, {each.datapath}, {each.load}: {reason}")
            for each in others.list if others else ():
                progress.step(f"run {number}/{options.runs}: {each.name}")
                others.run(each)
                results["alternatives"] = others.results()
        for command in work_of.sweeps:
            progress.step(" ".join(["hyperloop-bench", *command[1:]]))
            results["primitives"] += primitives.run(command)


@contextlib.contextmanager
def _disk(options, run: runner.Runner):
    """A directory of this comparison alone on a disk."""
    alternatives.check_disk(options.disk_dir)
    with _own_directory(options.disk_dir, "--disk_dir") as disk:
        runner.check_space(disk, run.bytes_needed())
        yield disk


class _Outputs:
    """Where results go besides the terminal. What cannot be written is refused before anything runs."""

    def __init__(self, options):
        self._report = pathlib.Path(options.report) if options.report else None
        self._json = [pathlib.Path(options.json)] if options.json else []
        self._csv = [pathlib.Path(options.csv)] if options.csv else []
        if self._report:
            report.check_packages()
            self._json.append(self._report / "results.json")
            self._csv.append(self._report / "results.csv")
        for path in self._json + self._csv:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=path.parent).close()
            except OSError as error:
                raise ComparisonError(f"cannot write {path}: {error.strerror}") from None

    def write(self, results: dict) -> None:
        """Writes the figures first, so that they are not lost if the report fails."""
        for path in self._json:
            path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in self._csv:
            path.write_text(summary.as_csv(results), encoding="utf-8")
        if self._report:
            report.write_report(results, self._report / "report.html")
        for path in self._json + self._csv + ([self._report / "report.html"] if self._report else []):
            print(f"written: {path}")


@contextlib.contextmanager
def _own_directory(parent: str, flag: str):
    """A directory of this comparison alone in `parent`, removed with all it holds."""
    try:
        path = pathlib.Path(tempfile.mkdtemp(prefix="db_bench_ext.", dir=parent))
    except OSError as error:
        raise ComparisonError(f"{flag}={parent}: {error.strerror}") from None
    try:
        yield path
    finally:
        with processes.shield():
            shutil.rmtree(path, ignore_errors=True)


def _named_db_bench(arguments: list[str]) -> str:
    """db_bench must be known before the flags can be told apart."""
    name = "db_bench"
    for word, following in zip(arguments, arguments[1:] + [""]):
        flag, has_value, value = word.lstrip("-").partition("=")
        if flag == "db_bench" and word.startswith("-"):
            name = value if has_value else following
    return name


def _beside(binaries: pathlib.Path, name: str) -> str:
    path = binaries / name
    return str(path) if path.exists() else processes.find_program(name, f"it is not in {binaries}, nor in PATH; build it (ninja -C build {name})")


def _stress_ng(options) -> str:
    if not any(options.noise):
        return ""
    return processes.find_program("stress-ng", "--noise needs it (apt-get install stress-ng)")
