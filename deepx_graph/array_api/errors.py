"""What the functions of `dx.xp` raise: VerifyErrors that name the caller's line, and that are also what numpy raises.

The standard leaves exceptions open; numpy's are what code that is written for several libraries catches.
"""

from __future__ import annotations

import sys

from deepx_graph.errors import Diagnostic, Place, VerifyError

PACKAGE = __name__.partition(".")[0]


def calling_place() -> Place:
    """The line outside this package that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_code.co_name)


class ArrayError(VerifyError):
    """Arrays and arguments do not fit."""

    def __init__(self, message: str) -> None:
        place = calling_place()
        super().__init__(Diagnostic(f"{place.file}:{place.line}: {message}"))


class ArrayValueError(ArrayError, ValueError):
    """Shapes that do not fit, and arguments of another value than a function takes."""


class ArrayIndexError(ArrayError, IndexError):
    """An axis or an index that an array does not have."""


class ArrayTypeError(ArrayError, TypeError):
    """Dtypes that have no joint dtype or that a function does not take, and objects of another type."""
