"""What goes wrong in a kernel, as an error at the place of its node."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, RunError, is_interrupt
from deepx_graph.ir import Node

FAULTS = (ArithmeticError, LookupError, ValueError, OSError)
"""What numpy, and the functions of a program's custom calls, raise for values that they do not take."""


def fail(error: Exception, node: Node | None) -> NoReturn:
    """Raises what an exception under way says of the node that ran: a RunError at its place, a LimitError for want of memory.

    What comes from elsewhere goes on as it is: a deadline of the caller, an error of our own, whatever is raised between nodes.
    """
    if is_interrupt(error):
        raise error
    if isinstance(error, MemoryError):
        raise LimitError(Diagnostic("there is not enough memory for the result", node.span if node else None)) from None
    if node is None:
        raise error
    if isinstance(error, DeepxGraphError):
        raise type(error)(*(d if d.span else replace(d, span=node.span) for d in error.diagnostics)) from error
    if isinstance(error, FAULTS):
        raise RunError(Diagnostic(f"{node.op.name}: {error or type(error).__name__}", node.span)) from error
    raise error
