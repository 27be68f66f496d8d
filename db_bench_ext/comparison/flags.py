"""The command line: which flags are ours, which are db_bench's, and what is refused."""

import argparse
import dataclasses
import difflib
import re
import subprocess

from comparison.errors import ComparisonError, UsageError

DATAPATHS = ("auto", "offload", "fanout", "cpu-polling", "cpu-event", "none")
CPU_DATAPATHS = ("cpu-polling", "cpu-event")
WORKLOADS_OF_YCSB = ("a", "b", "c", "d", "e", "f")
ALONE = {"noise": "10", "ycsb": ",".join(WORKLOADS_OF_YCSB)}  # flags that need no value, and what they mean without
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

LEAST_REGION, GREATEST_REGION = 4 << 20, 15 << 30

# db_bench flags that the comparison sets itself, each with what to do instead.
RESERVED = {
    "db": "each run has a fresh database of its own; --work_dir chooses where",
    "fs_uri": "each run has a group of its own; --datapaths and --provider choose it",
    "env_uri": "each run has a group of its own; --datapaths and --provider choose it",
    "histogram": "it is always on: latencies come from it",
    "use_existing_db": "each run starts with an empty database; put a fill benchmark first in --benchmarks",
    "flagfile": "give its flags on the command line",
    "fromenv": "give its flags on the command line",
    "tryfromenv": "give its flags on the command line",
    "undefok": "give only flags that db_bench knows",
}

# db_bench flags that hold unless the user gives others.
WORKLOAD = {
    "benchmarks": "fillrandom",
    "num": "100000",
    "sync": "1",
    "compression_type": "none",
    "seed": "7",
}


def processor_number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is no processor number")
    return int(text)


def whole(least: int, greatest: int):
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or not least <= int(text) <= greatest:
            raise argparse.ArgumentTypeError(f"'{text}': expected a whole number from {least} to {greatest}")
        return int(text)

    return parse


def size(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)([KMG]?)", text)
    value = int(found[1]) * SIZE_UNITS[found[2]] if found else 0
    if not LEAST_REGION <= value <= GREATEST_REGION:
        raise argparse.ArgumentTypeError(f"'{text}' is no size from 4M to 15G (bytes, or a number with K, M or G)")
    return value


def several(kind):
    """A comma-separated list of distinct values."""

    def parse(text: str) -> list:
        values = [kind(word) for word in text.split(",")]
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"'{text}' names a value twice")
        return values

    return parse


def datapath(text: str) -> str:
    if text not in DATAPATHS:
        raise argparse.ArgumentTypeError(f"'{text}': expected {', '.join(DATAPATHS)}")
    return text


def ycsb_workload(text: str) -> str:
    if text.lower() not in WORKLOADS_OF_YCSB:
        raise argparse.ArgumentTypeError(f"'{text}' is no workload of YCSB: expected {', '.join(WORKLOADS_OF_YCSB)}")
    return text.lower()


class OneLineParser(argparse.ArgumentParser):
    """argparse, with its errors as ours: one line, no usage text."""

    def error(self, message):
        raise UsageError(f"{message}; see db_bench_ext --help")


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Names defaults, where there are any."""

    def _get_help_string(self, action):
        return super()._get_help_string(action) if action.default not in (None, False) else action.help


def own_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="db_bench_ext",
        allow_abbrev=False,
        usage="db_bench_ext [flags below] [flags of db_bench]",
        description="Runs the stock db_bench over emulated HyperLoop clusters, each datapath in turn, and compares: "
        "throughput, latencies, processor time of the primary, of the replicas' host threads and of the RNIC.",
        epilog="All other flags are db_bench's own (db_bench --help) and reach it unchanged. Unless given: "
        + " ".join(f"--{name}={value}" for name, value in WORKLOAD.items())
        + ". Ctrl-C ends everything that was started. Exit status: 0 done, 1 failed, 2 wrong usage, 3 done but a case "
        "has no valid run. docs/benchmarking.md says what is measured and what makes a run invalid.",
        formatter_class=HelpFormatter,
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument("--datapaths", type=several(datapath), metavar="LIST",
                      help=f"of {', '.join(DATAPATHS)}; auto is the primary's choice, none is RocksDB without replication (default: offload,cpu-polling,none; with "
                      "--provider=verbs fanout,cpu-polling,none)")
    what.add_argument("--replicas", type=whole(1, 8), default=3, metavar="N", help="replicas of a group")
    what.add_argument("--provider", choices=["softrnic", "verbs"], default="softrnic",
                      help="softrnic: an RNIC daemon emulates the nodes' RNICs; verbs: an RDMA device of this machine")
    what.add_argument("--device", metavar="NAME", help="with --provider=verbs: the device; default: the first")
    what.add_argument("--hosts_apart", action="store_true",
                      help="each replica has an RNIC daemon and a network namespace of its own, so that everything between nodes passes "
                      "through links; needs root")
    what.add_argument("--netem", metavar="WORDS", help="with --hosts_apart: how what each node sends is delayed, limited or lost, in the words "
                      "of tc-netem(8), such as 'delay 100us'; needs the kernel's module sch_netem")
    what.add_argument("--tenants", type=whole(1, 64), default=1, metavar="N",
                      help="groups side by side, each with a db_bench of its own")
    what.add_argument("--noise", type=several(whole(0, 256)), default="0", metavar="LIST",
                      help="stress-ng workers on the replicas' processor; 0 is idle, a list such as 0,10 runs both; "
                      f"--noise alone means {ALONE['noise']}")
    what.add_argument("--runs", type=whole(1, 1000), default=3, metavar="N",
                      help="how often each case runs; cases take turns")
    what.add_argument("--ycsb", type=several(ycsb_workload), metavar="LIST",
                      help="also run these of YCSB's workloads a to f (hyperloop-ycsb) in the same turns; --ycsb alone means all")
    what.add_argument("--primitives", action="store_true", help="also run hyperloop-bench on the same datapaths and loads; with --provider=verbs its raw verbs alone")
    what.add_argument("--alternatives", action="store_true",
                      help="also run RocksDB with fsync on disk, Redis with WAIT and etcd with three members; with --hosts_apart RocksDB with "
                      "the default options, Redis and etcd on the same nodes, with values of 100 B and 1,000 B unless --value_size is given")
    how = parser.add_argument_group("how")
    how.add_argument("--slow_seconds", type=whole(1, 3600), default=10, metavar="S",
                     help="cases in which a replica's thread waits for time slices (cpu-polling and cpu-event under noise, several "
                     "cpu-polling replicas) run this long (db_bench's --duration) instead of --num operations")
    how.add_argument("--ycsb_records", type=whole(2, 10**9), default=10000, metavar="N", help="of 1 KB each that --ycsb loads")
    how.add_argument("--ycsb_operations", type=whole(1, 10**9), default=10000, metavar="N", help="of each of YCSB's workloads")
    how.add_argument("--ycsb_seconds", type=whole(1, 3600), default=2, metavar="S", help="a workload of YCSB ends then, even before all operations")
    how.add_argument("--ycsb_rate", type=several(whole(0, 10**9)), default="0", metavar="LIST",
                     help="operations a second that YCSB's workloads offer, each workload at one after another; the latency of each operation "
                     "counts from when it was to be issued; 0: the next is issued when one is done")
    how.add_argument("--primary_cpu", type=processor_number, metavar="N", help="processor of db_bench; default: the first")
    how.add_argument("--replica_cpu", type=processor_number, metavar="N",
                     help="processor of replicas, RNIC daemon and noise; default: the last")
    how.add_argument("--rnic_spin_us", type=whole(0, 1000000), metavar="US",
                     help="how long the idle RNIC daemon spins; default: 50 where nothing else needs its processor, else 0")
    how.add_argument("--region_size", type=size, default="256M", metavar="BYTES", help="of each node (K, M, G)")
    how.add_argument("--timeout", type=whole(1, 86400), default=600, metavar="S", help="longest time for one run of db_bench")
    how.add_argument("--work_dir", default="/dev/shm", metavar="DIR",
                     help="where clusters and databases live for a while; on tmpfs, a pool's durability is media=ram")
    how.add_argument("--disk_dir", default="/var/tmp", metavar="DIR",
                     help="with --alternatives: a directory on a disk, for what is made durable by fsync")
    how.add_argument("--db_bench", default="db_bench", metavar="PATH", help="the stock one")
    out = parser.add_argument_group("output, besides the table")
    out.add_argument("--report", metavar="DIR", help="write report.html, results.json and results.csv there")
    out.add_argument("--render", metavar="FILE", help="measure nothing: make the report of that results.json in --report=DIR")
    out.add_argument("--json", metavar="FILE", help="write the results there as JSON")
    out.add_argument("--csv", metavar="FILE", help="write one line a run there as CSV")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def db_bench_flags(program: str) -> dict[str, str]:
    """Name and type of each flag that `program --help` lists."""
    # gflags wraps its help text anywhere, so the lines are joined first. It exits with 1 after --help.
    done = subprocess.run([program, "--help"], capture_output=True, text=True, errors="replace", timeout=60)
    text = re.sub(r"\s+", " ", done.stdout)
    starts = list(re.finditer(r" -(\w+) \(", text))
    flags = {}
    for start, following in zip(starts, starts[1:] + [None]):
        entry = text[start.end() : following.start() if following else len(text)]
        kind = re.search(r"\) type: (\w+)", entry)
        if kind:
            flags[start[1]] = kind[1]
    if "benchmarks" not in flags:
        raise ComparisonError(f"{program} --help lists no flag --benchmarks: it is no db_bench; give another with --db_bench=PATH")
    return flags


@dataclasses.dataclass
class CommandLine:
    own: list[str]  # ours, as --name=value
    bench: dict[str, str]  # db_bench's, by name, in order


def own_names() -> dict[str, bool]:
    """Our flags, and whether each takes a value."""
    names = {}
    for action in own_parser()._actions:
        for option in action.option_strings:
            names[option.lstrip("-")] = action.nargs != 0
    return names


def separate(arguments: list[str], known: dict[str, str]) -> CommandLine:
    """Divides the arguments into ours and db_bench's, `known` being its flags by type. Spellings are gflags': one dash or
    two, `--name=value` or `--name value`, `--name` and `--noname` for booleans. UsageError: an argument that is neither."""
    ours = own_names()
    result = CommandLine([], {})
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        found = re.fullmatch(r"--?(\w+)(?:=(.*))?", word, re.DOTALL)
        if not found:
            raise UsageError(f"unexpected argument '{word}': all arguments are flags; see db_bench_ext --help")
        name, value = found[1], found[2]

        def needed_value(name=name, value=value):
            if value is not None:
                return value
            if not rest:
                raise UsageError(f"--{name} needs a value: --{name}=VALUE")
            return rest.pop(0)

        if name in ALONE and value is None:
            result.own.append(f"--{name}={ALONE[name]}")
        elif name in ours:
            if ours[name]:
                result.own.append(f"--{name}={needed_value()}")
            elif value is None:
                result.own.append(f"--{name}")
            else:
                raise UsageError(f"--{name} takes no value")
        elif name in RESERVED:
            raise UsageError(f"--{name} is not yours to give here: {RESERVED[name]}")
        elif name in known:
            boolean = known[name] == "bool"
            result.bench[name] = (value if value is not None else "true") if boolean else needed_value()
        elif name.startswith("no") and known.get(name[2:]) == "bool" and value is None and name[2:] not in RESERVED:
            result.bench[name[2:]] = "false"
        else:
            near = difflib.get_close_matches(name, [*ours, *known], n=1)
            meant = f"; did you mean --{near[0]}?" if near else ""
            raise UsageError(f"unknown flag --{name}: neither one of db_bench_ext (--help) nor of db_bench (db_bench --help){meant}")
    return result


def parse_render(words: list[str]) -> argparse.Namespace | None:
    """--render and --report when `words` ask for --render, which goes with nothing else; else None."""
    words = [re.sub(r"^-(?=\w)", "--", word) for word in words]
    if not any(word.split("=")[0] == "--render" for word in words):
        return None
    parser = OneLineParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--render", required=True)
    parser.add_argument("--report", required=True)
    options, others = parser.parse_known_args(words)
    if others:
        raise UsageError(f"{others[0]} does not go with --render, which measures nothing; give --render=FILE --report=DIR alone")
    return options


def parse_own(words: list[str]) -> argparse.Namespace:
    """Our flags' values. UsageError: a bad value, or flags that do not go together."""
    options = own_parser().parse_args(words)
    for word in words:
        if word.startswith("--ycsb_") and not options.ycsb:
            raise UsageError(f"{word} goes with --ycsb only")
    if not options.datapaths:
        options.datapaths = ["fanout" if options.provider == "verbs" else "offload", "cpu-polling", "none"]
    if options.provider == "verbs" and "offload" in options.datapaths:
        raise UsageError("--provider=verbs has no datapath offload: no device behind libibverbs offers the queues that it "
                         "needs; give --datapaths=fanout,cpu-polling,cpu-event,none")
    if options.provider == "verbs" and options.alternatives:
        raise UsageError("--alternatives goes with --provider=softrnic only: it compares datapath offload and pools on a disk with other "
                         "systems, and a device has neither")
    if options.hosts_apart and options.provider == "verbs":
        raise UsageError("--hosts_apart goes with --provider=softrnic only: its hosts have RNIC daemons")
    if options.hosts_apart and options.alternatives and options.replicas < 2:
        raise UsageError("--alternatives with --hosts_apart needs --replicas=2 or more: etcd has three members, each on a node of its own")
    if options.hosts_apart and options.alternatives and (any(options.noise) or options.primary_cpu is not None or options.replica_cpu is not None):
        raise UsageError("--alternatives with --hosts_apart compares systems that nothing binds to a processor, on an idle machine: give no "
                         "--noise, --primary_cpu or --replica_cpu")
    if options.netem and not options.hosts_apart:
        raise UsageError("--netem goes with --hosts_apart only")
    if options.device and options.provider != "verbs":
        raise UsageError("--device goes with --provider=verbs only")
    return options


def workload(given: dict[str, str]) -> dict[str, str]:
    """The flags for db_bench: the user's, and ours where the user gave none. UsageError: repetitions in --benchmarks."""
    flags = WORKLOAD | given
    if "[" in flags["benchmarks"]:
        raise UsageError(f"--benchmarks={flags['benchmarks']}: give no [X…] repetitions; --runs repeats every case, in turns")
    if not re.fullmatch(r"\d+", flags["num"]) or int(flags["num"]) == 0:
        raise UsageError(f"--num={flags['num']}: expected a whole number of at least 1")
    return flags
