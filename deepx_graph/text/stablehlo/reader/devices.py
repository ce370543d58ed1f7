"""Reading StableHLO's operations that reach beyond one pure function: collectives, tokens, probes, checks, calls.

Each acts on the state that the lowering threads through the text. The table is joined to that of `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.stablehlo.reader import dynamic
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.effects import is_alone, symbol_name, target
from deepx_graph.text.stablehlo.syntax import Dense, Noted, Symbol
from deepx_graph.text.xla.devices import COLLECTIVES
from deepx_graph.text.xla.fields import OperationRow
from deepx_graph.text.xla.lapack import lapack_operations
from deepx_graph.text.xla.lowering import several
from deepx_graph.text.xla.table import ROWS
from deepx_graph.types import STATE, TupleType, as_tensor, compatible, is_static

Rule = Callable[[OperationContext], list[Node]]


def _unless_alone(row: OperationRow) -> Rule:
    return lambda c: list(c.inputs) if is_alone(c.op) else row.results(c)


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
    rows = [[symbol_name(f) for f in row] for row in c.op.attributes.get("programs") or ()]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise c.fail("run_parallel needs as many programs in every row", "programs = [[@f, @g], ...]")
    programs = [c.b.partial((name, c.lowering.signature(name, c.op))) for row in rows for name in row]
    fed = [x for f in c.op.attributes.get("infeed") or () for x in call(c, symbol_name(f), ())]
    sizes = (1, len(programs), len(fed), len(c.inputs))
    return c.act(ops.run_parallel, *programs, *fed, *c.inputs, replicas=len(rows), partitions=len(rows[0]),
               operand_segment_sizes=sizes)


def call(c: OperationContext, name: str, args: Sequence[Node]) -> list[Node]:
    """The results of a function of the text; inlined where a body stands for a whole, and where sizes pass through the call."""
    lowering = c.lowering
    signature = lowering.signature(name, c.op)
    if lowering.closed or not is_static(signature) or any(map(dynamic.depends_on_sizes, args)):
        return lowering.inlined(name, args, c.op)
    acts = bool(signature.params) and signature.params[-1] == STATE
    return c.call(lowering.state if acts else None, (name, signature), args)


# --- checks -------------------------------------------------------------------------------------------------------


_CHECKS: dict[str, tuple[Op, dict[str, Any], dict[str, Any]]] = {
    "expect_eq": (ops.expect_eq, {}, {}),
    "expect_almost_eq": (ops.expect_almost_eq, {"tolerance": 1e-4}, {"tolerance": 1e-3}),
    "expect_close": (ops.expect_close, {"max_ulp_difference": 1, "min_ulp_difference": 0},
                     {"max_ulp_difference": 3, "min_ulp_difference": 0}),
}  # fmt: skip
"""The ops, with what their attributes are where they are missing: in the check dialect, and in a custom call."""


def _check(c: OperationContext, name: str, in_custom_call: bool = False) -> list[Node]:
    got, *rest = c.inputs
    value = c.op.attributes.get("value")
    want = rest[0] if rest else c.b.literal(c.dense(value, got.type)) if isinstance(value, Dense) else None
    if want is None:
        raise c.fail(f"{name} needs something to compare with")
    c.inputs = [got, want]
    kind = name.removeprefix("check.").removesuffix("_const")
    if kind not in _CHECKS:
        return c.opaque()
    op, *defaults = _CHECKS[kind]
    return ROWS[op].results(c, **{k: v for k, v in defaults[in_custom_call].items() if c.raw(k) is None})


# --- custom calls -------------------------------------------------------------------------------------------------


def _custom_call(c: OperationContext) -> list[Node]:
    """A call of the host, or what a target that XLA knows means."""
    name, types = target(c.op), c.results
    if name.startswith("check."):
        return _check(c, name, in_custom_call=True)
    if name in custom_calls.UNCHANGED and [x.type for x in c.inputs] == types:
        return [c(ops.identity, x, role=name) for x in c.inputs]
    if name == "shape_assertion":
        return c.act(ops.expect_eq, c.inputs[0], c.b.constant(True))
    known = _KNOWN.get(name)
    found = None if custom_calls.find(name) else known(c) if known else lapack_operations(c.b, name, _config(c), c.inputs, types)
    if found is not None and len(found) == len(types) and all(compatible(f.type, t) for f, t in zip(found, types, strict=True)):
        return found
    given = {
        "target": name, "types": TupleType(tuple(types)), "backend_config": _config(c),
        "api_version": c.number("api_version", default=0), "text": c.lowering.text(c.op),
        "language": "stablehlo",
    }  # fmt: skip
    if c.lowering.effects.acts(c.op):
        return c.act(ops.custom_effect, *c.inputs, **given)
    node = c(ops.custom_call, *c.inputs, **given)
    return [node] if len(types) == 1 else list(c.b.items(node))


def _config(c: OperationContext) -> str:
    value = c.raw("mhlo.backend_config", "backend_config")
    return value.text if isinstance(value, Noted) else value if isinstance(value, str) else "" if value is None else repr(value)


def _top_k(c: OperationContext) -> list[Node] | None:
    value = c.raw("mhlo.attributes")
    text = value.text if isinstance(value, Noted) else ""
    count = re.search(r"\bk\s*=\s*(\d+)", text)
    if count is None or re.search(r"\blargest\s*=\s*false\b", text):
        return None
    return list(c.b.items(c(ops.top_k, *c.inputs, k=int(count[1]))))


def _approx_top_k(c: OperationContext) -> list[Node] | None:
    """XLA's exact form of it: the arrays sorted by the named comparator, and the first of each row."""
    found, arrays = _best_first(c)
    if "top_k" not in found:
        return None
    shape = as_tensor(arrays[0].type).shape
    limit = tuple(found["top_k"] if k == found["reduction_dim"] else size for k, size in enumerate(shape))
    return [c(ops.slice_, x, start_indices=(0,) * len(shape), limit_indices=limit, strides=(1,) * len(shape)) for x in arrays]


def _dynamic_approx_top_k(c: OperationContext) -> list[Node] | None:
    """The same, with how many there are, and the shapes of the results, as operands."""
    count = len(c.results)
    if len(c.inputs) != 3 * count + 1:
        return None
    shapes = c.inputs[2 * count + 1 :]
    return [dynamic.first(c, x, shape, type) for x, shape, type in zip(_best_first(c)[1], shapes, c.results, strict=False)]


def _best_first(c: OperationContext) -> tuple[dict[str, int], list[Node]]:
    """The numbers of the configuration, and the arrays sorted along its axis by the named comparator: none where it names none."""
    value, named = c.raw("mhlo.backend_config"), c.op.attributes.get("called_computations")
    found = {k: int(v) for k, v in re.findall(r"\b(\w+)\s*=\s*(\d+)", value.text if isinstance(value, Noted) else "")}
    if "reduction_dim" not in found or not isinstance(named, list) or not isinstance(named[0], Symbol):
        return {}, []
    arrays = c.inputs[: len(c.results)]
    ordered = c(ops.sort, *arrays, dimension=found["reduction_dim"], is_stable=False,
                comparator=c.lowering.closed_function(named[0].name, c.op))
    return found, list(c.b.items(ordered)) if len(arrays) > 1 else [ordered]


def _elementwise(op: Op) -> Callable[[OperationContext], list[Node]]:
    return lambda c: [c(op, *c.inputs)]


_KNOWN: dict[str, Callable[[OperationContext], list[Node] | None]] = {
    "ApproxTopK": _approx_top_k,
    "mhlo.topk": _top_k,
    "stablehlo.dynamic_approx_top_k": _dynamic_approx_top_k,
    "stablehlo.dynamic_reduce_window": dynamic.reduce_window,
    "stablehlo.dynamic_rng_bit_generator": dynamic.random_bits,
    "stablehlo.dynamic_top_k": dynamic.top_k,
    **{f"mhlo.{op.name}": _elementwise(op) for op in
       (ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atanh, ops.cosh, ops.erf, ops.sinh, ops.tan)},
}  # fmt: skip
"""Operations that have no StableHLO form and are written as custom calls."""

def _async_start(c: OperationContext) -> list[Node]:
    """What is begun is done; several results are one future, a tuple."""
    results = c.region(0, c.inputs)
    return results if len(results) == 1 else [c.b.pack(*results)]


# --- the table ----------------------------------------------------------------------------------------------------

_MOVING = (*COLLECTIVES, ROWS[ops.collective_reduce])

DEVICES: dict[str, Rule] = {
    **{row.mlir: _unless_alone(row) for row in _MOVING},
    **dict.fromkeys(("stablehlo.after_all", "stablehlo.create_token"), lambda c: []),  # a token is the state as it is
    "stablehlo.async_start": _async_start,
    "stablehlo.async_done": lambda c: list(c.inputs) if len(c.results) == 1 else several(c, c.inputs[0]),
    "interpreter.print": _print,
    "interpreter.probe": _probe,
    "interpreter.run_parallel": _run_parallel,
    "check.expect_serialized_eq": _expect_probed,
    **{f"check.{name}{suffix}": lambda c: _check(c, c.name) for name in _CHECKS for suffix in ("", "_const")},
    "stablehlo.custom_call": _custom_call,
}
"""How they are read."""
