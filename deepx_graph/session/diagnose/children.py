"""Work done in a forked child: that it dies, spoils something or never ends is survived, and it is given so much time."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from deepx_graph.errors import DeepxGraphError

USAGE = 2
"""The exit code of a child that ended in an error of the user."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: what its work gave, empty where it gave nothing, the user's error in which it ended, the exit code as
    `subprocess` has it, the seconds of processor time that it took, and whether it was ended because it took too long."""

    said: str
    error: str
    code: int
    processor_seconds: float
    late: bool

    @property
    def death(self) -> str:
        """What is said of a process that a signal ended by a fault of its own."""
        return "" if self.late else death_of(self.code)


def death_of(code: int) -> str:
    """What is said of a process that a signal ended; `code` is its exit code as `subprocess` gives it. Empty for any other."""
    if code >= 0:
        return ""
    try:
        return f"the process died of {signal.Signals(-code).name}"
    except ValueError:
        return f"the process died of signal {-code}"


def in_child(work: Callable[[], str], seconds: float, processor_seconds: float | None = None) -> Ended:
    """Does work in a forked child, for at most so many seconds, and so many of processor time. Of what it raises the
    text of a DeepxGraphError is kept."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _work(work, writing, processor_seconds)
    os.close(writing)
    said, late, until = b"", False, time.monotonic() + seconds
    try:
        while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0] and (more := os.read(reading, 1 << 16)):
            said += more
        late = time.monotonic() >= until
        if late:
            os.kill(child, signal.SIGKILL)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    used = usage.ru_utime + usage.ru_stime
    if processor_seconds is not None:  # the timer and what is counted differ by ticks of a clock, either way
        late = late or used > processor_seconds or code == -signal.SIGPROF
    told = "" if late else said.decode(errors="replace")
    return Ended(told if not code else "", told if code == USAGE else "", code, used, late)


def _work(work: Callable[[], str], writing: int, processor_seconds: float | None) -> None:
    """What the child does, which ends with it."""
    code = 1
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        if processor_seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, max(processor_seconds, 1e-6))  # 0 would be no limit
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what dies says so to nobody
        try:
            told, code = work(), 0
        except DeepxGraphError as e:
            told, code = str(e), USAGE
        os.write(writing, told.encode())
    os._exit(code)
