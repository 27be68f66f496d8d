"""hyperloop-bench's cases for the report: group primitives over size and window."""

import json
import subprocess

from comparison import placement, processes
from comparison.errors import ComparisonError

SWEEPS = (("64,256,1024,4096,16384,65536", "1"), ("1024", "4,16,64"))  # sizes, windows
NUMBER = 20000
SLOW_NUMBER = 200  # where operations wait for time slices
SLOW_WARMUP = 20


def commands(program: str, options) -> list[list[str]]:
    """One a sweep, load and speed."""
    datapaths = [each for each in options.datapaths if each != "none"]
    found = []
    for noise in options.noise:
        slow = [each for each in datapaths if placement.waits_for_slices(each, noise, options.replicas)]
        fast = [each for each in datapaths if each not in slow]
        for names, number in ((fast, [f"--number={NUMBER}"]), (slow, [f"--number={SLOW_NUMBER}", f"--warmup={SLOW_WARMUP}"])):
            for sizes, windows in SWEEPS if names else ():
                found.append([program, "--json", "--primitive=gwrite", "--flush", f"--replicas={options.replicas}",
                              f"--datapath={','.join(names)}", f"--size={sizes}", f"--window={windows}", *number]
                             + ([f"--noise={noise}"] if noise else []))
    return found


def run(command: list[str]) -> list[dict]:
    """The objects that one command prints. ComparisonError quotes it when it fails."""
    with processes.running(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        output, errors = bench.communicate()
        if bench.returncode != 0:
            raise ComparisonError(f"{' '.join(command)} failed (status {bench.returncode}): {errors.strip()}")
    return [{"load": "idle"} | json.loads(line) for line in output.splitlines() if line.startswith("{")]
