"""Programs that show metrics, and what a page of metrics says."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

BIN = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else "build/bin").resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "packaging/monitoring"
PATIENCE = 600  # seconds after which something is taken to hang
AT_REST = ("--cpu", "none", "--priority", "none", "--spin-us", "0")
SAMPLE = re.compile(r"^([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def samples(page):
    """[(name, {label: value}, number)]"""
    found = []
    for line in page.splitlines():
        if not line.startswith("#"):
            name, labels, number = SAMPLE.match(line).groups()
            found.append((name, dict(LABEL.findall(labels or "")), float(number)))
    return found


def value(page, name, **labels):
    numbers = [number for other, has, number in samples(page) if other == name and labels.items() <= has.items()]
    assert len(numbers) == 1, f"{name}{labels}: {numbers} in\n{page}"
    return numbers[0]


def free_address():
    """At an address of the loopback network that no other process takes ports of, until somebody listens there."""
    pid = os.getpid() % (1 << 16)
    with socket.socket() as taken:
        taken.bind((f"127.100.{pid >> 8}.{pid & 255}", 0))
        return "{}:{}".format(*taken.getsockname())


def eventually(what):
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.05)
    return found


class Program:
    """A program that shows metrics; killed at the end. `says`: what the first line has that it writes to stdout."""
    def __init__(self, folder, name, *command, says="ready "):
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([BIN / command[0], *command[1:], "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE,
                                            stderr=log, text=True)
        _, said, self.endpoint = self.process.stdout.readline().strip().partition(says)
        assert said, self.log.read_text()
        self.url = re.search(r"metrics at (http://\S+)", self.log.read_text())[1]

    def page(self):
        with urllib.request.urlopen(self.url, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def end(self):
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
