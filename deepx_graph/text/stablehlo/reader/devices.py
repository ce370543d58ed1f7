"""Reading StableHLO's operations that reach beyond one pure function: collectives, tokens and feeds, probes, calls.

Each acts on the state that the lowering threads through the text. The table is joined to that of `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.effects import is_alone
from deepx_graph.text.stablehlo.syntax import Symbol
from deepx_graph.text.xla import control
from deepx_graph.text.xla.devices import COLLECTIVES
from deepx_graph.text.xla.rows import OperationRow
from deepx_graph.text.xla.table import ROWS
from deepx_graph.types import STATE, is_static

Rule = Callable[[OperationContext], list[Node]]


def _unless_alone(row: OperationRow) -> Rule:
    return lambda c: list(c.inputs) if is_alone(c.op) else row.results(c)


def _token(c: OperationContext) -> list[Node]:
    """A token is the state as it is; several joined are that too."""
    return []


# --- the interpreter's own ----------------------------------------------------------------------------------------


def _print(c: OperationContext) -> list[Node]:
    return c.act(ops.print_, c.inputs[0], format="")


def _probe(c: OperationContext) -> list[Node]:
    c.act(ops.probe, c.inputs[0], probe_id=c.word("probe_id"))
    return [c.inputs[0]]


def _expect_probed(c: OperationContext) -> list[Node]:
    return c.act(ops.expect_probed, c.inputs[0], probe_id=c.word("probe_id"), iteration=c.number("iter", "iteration", default=0))


def _run_parallel(c: OperationContext) -> list[Node]:
    """Rows of `programs` are replicas, columns partitions; what `infeed` functions give is fed to all devices."""
    rows = [[_symbol(f) for f in row] for row in c.op.attributes.get("programs") or ()]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise c.fail("run_parallel needs as many programs in every row", "programs = [[@f, @g], ...]")
    programs = [c.b.partial((name, c.lowering.signature(name, c.op))) for row in rows for name in row]
    fed = [x for f in c.op.attributes.get("infeed") or () for x in call(c, _symbol(f), ())]
    sizes = (1, len(programs), len(fed), len(c.inputs))
    return c.act(ops.run_parallel, *programs, *fed, *c.inputs, replicas=len(rows), partitions=len(rows[0]),
               operand_segment_sizes=sizes)


def _symbol(value: Any) -> str:
    return value.name if isinstance(value, Symbol) else str(value)


def call(c: OperationContext, name: str, args: Sequence[Node]) -> list[Node]:
    """The results of a function of the text; inlined where a body stands for a whole, and where sizes pass through the call."""
    lowering = c.lowering
    signature = lowering.signature(name, c.op)
    if lowering.closed or not is_static(signature):
        return lowering.inlined(name, args, c.op)
    acts = bool(signature.params) and signature.params[-1] == STATE
    return control.call(c, lowering.state if acts else None, (name, signature), args)


_MOVING = (*COLLECTIVES, ROWS[ops.collective_reduce])

DEVICES: dict[str, Rule] = {
    **{row.mlir: _unless_alone(row) for row in _MOVING},
    "stablehlo.after_all": _token,
    "stablehlo.create_token": _token,
    "stablehlo.async_start": lambda c: c.region(0, c.inputs),
    "stablehlo.async_done": lambda c: list(c.inputs),
    "interpreter.print": _print,
    "interpreter.probe": _probe,
    "interpreter.run_parallel": _run_parallel,
    "check.expect_serialized_eq": _expect_probed,
}
"""How they are read."""
