"""What a crash is known by, whatever ends it: an exception that is no error of the user, or the death of the process."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

from deepx_graph.errors import INTERNAL, DeepxGraphError, is_interrupt


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


def fault_of(work: Callable[[], object]) -> str:
    """Does the work; the signature of the exception in which it ends, where that is a fault of this package, else empty."""
    try:
        work()
    except Exception as e:  # whatever it is, that it came is the answer
        if is_interrupt(e):
            raise
        return signature_of(e) if is_fault(e) else ""
    return ""
