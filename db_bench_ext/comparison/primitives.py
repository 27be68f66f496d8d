"""hyperloop-bench's cases for the report: group primitives over size and window, raw verbs."""

import json
import subprocess

from comparison import placement, processes
from comparison.errors import ComparisonError

SWEEPS = (
    ["--primitive=gwrite", "--flush", "--size=64,256,1024,4096,16384,65536", "--window=1"],
    ["--primitive=gwrite", "--flush", "--size=1024", "--window=4,16,64"],
    ["--primitive=gcas,gmemcpy,gflush,append", "--size=1024", "--window=1"],
)
RAW_VERBS = ["--raw=all", "--size=64,1024", "--number=20000", "--max_seconds=2"]
LIMITS = ["--number=20000", "--max_seconds=2"]
SLOW_WARMUP = ["--warmup=10"]  # where operations wait for time slices


def commands(program: str, options) -> list[list[str]]:
    """One a sweep, load and speed, and one of raw verbs. Over a device it has raw verbs only, and no noise.
    With hosts apart it has neither raw verbs nor noise."""
    if options.provider == "verbs":
        return [[program, "--json", *RAW_VERBS, "--provider=verbs", *([f"--device={options.device}"] if options.device else [])]]
    datapaths = [each for each in options.datapaths if each != "none"]
    found = []
    for noise in [each for each in options.noise if not (each and options.hosts_apart)]:
        load = [f"--noise={noise}"] if noise else []
        load += ["--hosts_apart"] if options.hosts_apart else []
        load += [f"--netem={options.netem}"] if options.netem else []
        slow = [each for each in datapaths if placement.waits_for_slices(each, noise, options.replicas)]
        fast = [each for each in datapaths if each not in slow]
        for names, limits in ((fast, LIMITS), (slow, LIMITS + SLOW_WARMUP)):
            for sweep in SWEEPS if names else ():
                found.append([program, "--json", *sweep, f"--replicas={options.replicas}", f"--datapath={','.join(names)}", *limits, *load])
        if not options.hosts_apart:
            found.append([program, "--json", *RAW_VERBS, *load])
    return found


def run(command: list[str]) -> list[dict]:
    """The objects that one command prints. ComparisonError quotes it when it fails."""
    with processes.running(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        output, errors = bench.communicate()
        if bench.returncode != 0:
            raise ComparisonError(f"{' '.join(command)} failed (status {bench.returncode}): {errors.strip()}")
    return [{"load": "idle"} | json.loads(line) for line in output.splitlines() if line.startswith("{")]
