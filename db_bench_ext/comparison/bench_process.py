"""Runs a job's processes side by side and watches their output."""

import collections
import contextlib
import os
import re
import selectors
import subprocess
import time
import tty

from comparison import processes
from comparison.errors import ComparisonError

FINISHED = re.compile(rb"finished (\d+) ops")
KEPT_LINES = 6


class _Bench:
    """One process. Its standard output is a terminal of ours, so that each line comes when it is printed."""

    def __init__(self, process: subprocess.Popen, output: int, reader):
        self.process = process
        self.output = output
        self.reader = reader
        self.finished = 0  # operations, as its progress says
        self.last_errors: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._partial = b""
        self._partial_error = b""

    def take_output(self) -> list[str] | None:
        """Marks of the lines that came (see db_bench.OutputReader); None at the end."""
        try:
            data = os.read(self.output, 65536)
        except OSError:  # EIO: the other side is closed
            data = b""
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        marks = []
        for raw in lines:
            mark = self.reader.feed(raw.decode(errors="replace"))
            if mark:
                marks.append(mark)
        return marks

    def take_errors(self) -> bool:
        """Reads standard error, where progress and errors come; false at the end."""
        data = os.read(self.process.stderr.fileno(), 65536)
        *pieces, self._partial_error = re.split(rb"[\r\n]+", self._partial_error + data)
        if not data:
            pieces.append(self._partial_error)
        for piece in pieces:
            numbers = FINISHED.findall(piece)
            if numbers:
                self.finished = int(numbers[-1])
            else:
                line = piece.decode(errors="replace").strip()
                self.reader.feed(line)
                if line:
                    self.last_errors.append(line)
        return bool(data)


class Benches:
    """All processes of one run of `job` (jobs.py), one a tenant."""

    def __init__(self, job, benches: list[_Bench], timeout: float):
        self._job = job
        self._benches = benches
        self._timeout = timeout

    @property
    def pids(self) -> list[int]:
        return [bench.process.pid for bench in self._benches]

    @property
    def readers(self) -> list:
        return [bench.reader for bench in self._benches]

    def step(self) -> None:
        """Lets each begin the benchmark that it has announced, if the job is one that waits for that."""
        for bench in self._benches if self._job.stepwise else ():
            with contextlib.suppress(BrokenPipeError):  # it has failed; watch says so
                bench.process.stdin.write(b"\n")
                bench.process.stdin.flush()

    def watch(self, on_mark, on_progress) -> None:
        """Until all have ended. Calls `on_mark("opened" or "result", number of the benchmark from 0, how many tenants have
        reached it)` and `on_progress(operations that the slowest tenant has finished)`. ComparisonError: one failed, or
        did not end in time."""
        counts: collections.Counter = collections.Counter()
        reached: collections.Counter = collections.Counter()
        deadline = time.monotonic() + self._timeout
        with selectors.DefaultSelector() as selector:
            for bench in self._benches:
                selector.register(bench.output, selectors.EVENT_READ, (bench, True))
                selector.register(bench.process.stderr, selectors.EVENT_READ, (bench, False))
            while selector.get_map():
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise ComparisonError(f"{self._job.program} did not end within {self._timeout:g} s (--timeout). {self._job.hint}")
                for key, _ in ready:
                    bench, is_output = key.data
                    if not is_output:
                        if not bench.take_errors():
                            selector.unregister(key.fileobj)
                        on_progress(min(each.finished for each in self._benches))
                        continue
                    marks = bench.take_output()
                    if marks is None:
                        selector.unregister(key.fileobj)
                    for mark in marks or []:
                        number = counts[(bench, mark)]
                        counts[(bench, mark)] += 1
                        reached[(mark, number)] += 1
                        on_mark(mark, number, reached[(mark, number)])
        for bench in self._benches:
            if bench.process.wait() != 0:
                said = "\n    ".join(bench.last_errors)
                raise ComparisonError(f"{self._job.program} failed (status {bench.process.returncode}): {' '.join(bench.process.args)}\n    {said}")


@contextlib.contextmanager
def running(job, commands: list[list[str]], processor: int, timeout: float):
    """Starts the job's commands, only on `processor`; none of them is left when the block ends."""
    with contextlib.ExitStack() as stack:
        benches = []
        for command in commands:
            with processes.shield():
                output, terminal = os.openpty()
                stack.callback(os.close, output)
                tty.setraw(terminal)
                process = processes.start(command, processor, stdin=subprocess.PIPE if job.stepwise else subprocess.DEVNULL, stdout=terminal,
                                          stderr=subprocess.PIPE)
                stack.callback(processes.stop_shielded, process)
                os.close(terminal)
            benches.append(_Bench(process, output, job.reader()))
        yield Benches(job, benches, timeout)
