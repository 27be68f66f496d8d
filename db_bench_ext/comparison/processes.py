"""Starts programs so that none outlives the comparison, and handles signals so that it ends orderly."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess

from comparison.errors import ComparisonError, Interrupted

PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 10  # seconds between SIGTERM and SIGKILL

_allowed = os.sched_getaffinity(0)
_libc = ctypes.CDLL(None, use_errno=True)
_shielded = 0
_pending: list[int] = []


def _on_signal(number, _frame):
    if _shielded:
        _pending.append(number)
    else:
        raise Interrupted(number)


def watch_signals() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise Interrupted in the main thread."""
    for number in STOP_SIGNALS:
        signal.signal(number, _on_signal)


@contextlib.contextmanager
def shield():
    """Puts Interrupted off until the block is done: for steps that must not be left half way, such as cleaning up."""
    global _shielded
    _shielded += 1
    try:
        yield
    finally:
        _shielded -= 1
        if not _shielded and _pending:
            number = _pending[0]
            _pending.clear()
            raise Interrupted(number)


def keep_to(processor: int) -> None:
    """This program itself stays on `processor` from now on. What it starts does not inherit that."""
    os.sched_setaffinity(0, {processor})


def be_normal() -> None:
    """This program, and so what it starts, has normal policy and nice 0 from now on, whatever it was started with: what is
    measured must have them. ComparisonError: it may not."""
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        raise ComparisonError(f"started with nice {os.getpriority(os.PRIO_PROCESS, 0)} and policy {os.sched_getscheduler(0)}, which this "
                              "user may not change back: what is measured would wait behind other programs. Start it without nice and "
                              "chrt, or as root") from None


@contextlib.contextmanager
def prompt():
    """For the time of a block this program gets a processor at once when it wants one, if the system permits that
    (CAP_SYS_NICE, ulimit -r); what it starts does not inherit it. For blocks that mostly sleep."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def allowed() -> set[int]:
    """The processors that this program could use when it started, keep_to aside."""
    return set(_allowed)


def find_program(name: str, remedy: str) -> str:
    """Path of a program. ComparisonError with `remedy` when there is none."""
    path = shutil.which(name)
    if path is None:
        raise ComparisonError(f"no program {name}: {remedy}")
    return path


def start(arguments: list[str], processor: int | None = None, **popen) -> subprocess.Popen:
    """Starts a program in a session of its own (a terminal's Ctrl-C does not reach it), bound to `processor` if given;
    the kernel kills it when this process dies."""

    def prepare():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, _allowed if processor is None else {processor})

    return subprocess.Popen(arguments, preexec_fn=prepare, start_new_session=True, **popen)


def stop(process: subprocess.Popen) -> None:
    """SIGTERM, after 10 s SIGKILL, and SIGKILL to what it left of its session; returns when it is gone."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr, process.stdin):
        if pipe:
            pipe.close()


@contextlib.contextmanager
def running(arguments: list[str], processor: int | None = None, **popen):
    """A program for the time of a block."""
    with contextlib.ExitStack() as stack:
        with shield():
            process = start(arguments, processor, **popen)
            stack.callback(stop_shielded, process)
        yield process


def stop_shielded(process: subprocess.Popen) -> None:
    with shield():
        stop(process)


@contextlib.contextmanager
def directory(path: pathlib.Path):
    """A new directory, private to this user, for the time of a block."""
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        with shield():
            shutil.rmtree(path, ignore_errors=True)


def capture(arguments: list[str], processor: int | None = None, timeout: float = 120) -> str:
    """Standard output of a program that must succeed. ComparisonError quotes what it said otherwise."""
    process = start(arguments, processor, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise ComparisonError(f"{' '.join(arguments)} did not end within {timeout:g} s") from None
    finally:
        with shield():
            stop(process)
    if process.returncode != 0:
        raise ComparisonError(f"{' '.join(arguments)} failed (status {process.returncode}): {errors.strip() or output.strip()}")
    return output
