"""What a crash is known by, whatever ends it: an exception that is no error of the user, or the death of the process."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Callable

from deepx_graph.errors import INTERNAL, DeepxGraphError, is_interrupt

PATIENCE = 60.0
"""Seconds that a child may take; one that takes longer has not crashed."""


def is_fault(error: BaseException) -> bool:
    """Whether an exception is a fault of this package, and not of what it was given."""
    return not isinstance(error, DeepxGraphError) or error.exit_code == INTERNAL


def signature_of(error: BaseException) -> str:
    """What one cause has in common: the kind of the exception that began it, and the innermost place in this package."""
    while error.__cause__ is not None:
        error = error.__cause__
    ours = [p for p in places(error) if re.match(r"deepx_graph[.:]", p)]
    return f"{type(error).__name__} in {ours[-1]}" if ours else type(error).__name__


def places(error: BaseException) -> list[str]:
    """The functions that an exception went through, as `module:function`, the innermost last."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_name}" for frame in frames]


def death_of(code: int) -> str:
    """What is said of a process that a signal ended; `code` is its exit code as `subprocess` gives it. Empty for any other."""
    if code >= 0:
        return ""
    try:
        return f"the process died of {signal.Signals(-code).name}"
    except ValueError:
        return f"the process died of signal {-code}"


def crash_of(work: Callable[[], object]) -> str:
    """The signature of the crash in which work ends; empty where it ends otherwise. A forked child does the work, so that its death
    is survived.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _work(work, writing)
    os.close(writing)
    said, until = b"", time.monotonic() + PATIENCE
    try:
        while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0] and (more := os.read(reading, 1 << 16)):
            said += more
        if time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
            return ""
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return death_of(code) or said.decode(errors="replace")


def _work(work: Callable[[], object], writing: int) -> None:
    """What the child does, which ends with it."""
    code = 1
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what dies says so to nobody
        try:
            work()
        except Exception as e:  # whatever it is, that it came is the answer
            if is_fault(e) and not is_interrupt(e):
                os.write(writing, signature_of(e).encode())
        code = 0
    os._exit(code)
