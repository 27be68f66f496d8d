"""Progress on standard error: one line that is rewritten on a terminal, one line a step elsewhere."""

import sys
import time

INTERVAL = 0.2  # seconds between two rewritings


class Progress:
    def __init__(self, steps: int, stream=None):
        self._steps = steps
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._step = 0
        self._name = ""
        self._shown = 0.0

    def step(self, name: str) -> None:
        """The next step begins."""
        self._step += 1
        self._name = name
        self._shown = 0.0
        self._write(self._line() if self._terminal else self._line() + "\n")

    def share(self, share: float) -> None:
        """How much of the step is done, 0 to 1."""
        if self._terminal and time.monotonic() - self._shown >= INTERVAL:
            self._shown = time.monotonic()
            self._write(f"{self._line()}  {share:4.0%}")

    def note(self, text: str) -> None:
        """Something that stays on the screen."""
        self.clear()
        self._write(text + "\n")
        if self._terminal:
            self._write(self._line())

    def clear(self) -> None:
        if self._terminal:
            self._write("\r\033[K")

    def _line(self) -> str:
        start = "\r\033[K" if self._terminal else ""
        return f"{start}[{self._step}/{self._steps}] {self._name}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
