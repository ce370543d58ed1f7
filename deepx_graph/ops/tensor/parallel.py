"""`run_parallel`: function values run side by side as the devices of a grid. The runtime runs it; it has no `eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Node, Op, Operand, Result
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.constraint import POSITIVE, STATE_VALUE
from deepx_graph.ir.signature import SEGMENTS
from deepx_graph.types import STATE, FunctionType, StateType, TupleType, Type


def _type(types: Sequence[Type], replicas: int, partitions: int, sizes: tuple[int, ...]) -> Type:
    count = sizes[1]
    functions, args = types[1 : 1 + count], list(types[1 + count + sizes[2] :])
    if count != replicas * partitions:
        raise InferError(f"{count} functions for {replicas * partitions} devices")
    results: list[Type] = []
    for k, f in enumerate(functions):
        if not isinstance(f, FunctionType):
            raise InferError(f"operand {k + 1} is {an(f)}", operand=k + 1, expected="a function value")
        wanted = [p for p in f.params if not isinstance(p, StateType)]
        if args[: len(wanted)] != wanted:
            raise InferError(f"device {k} is given {_shown(args[: len(wanted)])}", expected=_shown(wanted))
        del args[: len(wanted)]
        results += (r for r in f.results if not isinstance(r, StateType))
    if args:
        raise InferError(f"{len(args)} arguments are left over")
    return TupleType((*results, STATE))


def _shown(types: Sequence[Any]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def parallel_grid(node: Node) -> Grid | None:
    """The devices on which a node runs functions; None where it runs none side by side."""
    return Grid(node.attr("replicas"), node.attr("partitions")) if node.op is run_parallel else None


run_parallel: Op = Op(
    "run_parallel", "Runs functions as the devices of a grid, replica by replica; arguments and results are in their order.",
    operands=(Operand("state", "what happened before", type=STATE_VALUE), Operand("programs", "function values", variadic=True),
              Operand("infeed", "what the devices are fed", variadic=True), Operand("args", variadic=True)),
    attrs=(Attr("replicas", "int", check=POSITIVE), Attr("partitions", "int", check=POSITIVE), Attr(SEGMENTS, "ints")),
    results=(Result("results", variadic=True), Result("state", "what has happened then", type=STATE_VALUE)),
    infer=_type, foldable=False, total=False, source="StableHLO interpreter.run_parallel",
)  # fmt: skip
