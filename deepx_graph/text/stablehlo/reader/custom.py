"""Reading custom calls of StableHLO: what XLA itself makes of a target it knows, or a call of the host."""

from __future__ import annotations

import re
from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.common.lapack import as_operations
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.effects import target
from deepx_graph.text.stablehlo.syntax import Noted, Symbol
from deepx_graph.types import TupleType, as_tensor, compatible


def custom_call(c: OperationContext) -> list[Node]:
    """A call of the host, or what a target that XLA knows means."""
    name, types = target(c.op), c.results
    if name in custom_calls.UNCHANGED and [x.type for x in c.inputs] == types:
        return [c(ops.identity, x, role=name) for x in c.inputs]
    if name == "shape_assertion":
        return c.act(ops.expect_eq, c.inputs[0], c.b.constant(True))
    known = _KNOWN.get(name)
    found = None if custom_calls.find(name) else known(c) if known else as_operations(c.b, name, _config(c), c.inputs)
    if found is not None and len(found) == len(types) and all(compatible(f.type, t) for f, t in zip(found, types, strict=True)):
        return found
    given = {
        "target": name, "types": TupleType(tuple(types)), "backend_config": _config(c),
        "api_version": c.number("api_version", default=0), "text": c.lowering.source.text[c.op.start : c.op.end],
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
    value, named = c.raw("mhlo.backend_config"), c.op.attributes.get("called_computations")
    found = dict(re.findall(r"\b(\w+)\s*=\s*(\d+)", value.text if isinstance(value, Noted) else ""))
    if not {"reduction_dim", "top_k"} <= set(found) or not isinstance(named, list) or not isinstance(named[0], Symbol):
        return None
    arrays, axis = c.inputs[: len(c.inputs) // 2], int(found["reduction_dim"])
    shape = as_tensor(arrays[0].type).shape
    ordered = c(ops.sort, *arrays, dimension=axis, is_stable=False, comparator=c.lowering.closed_function(named[0].name, c.op))
    limit = tuple(int(found["top_k"]) if k == axis else size for k, size in enumerate(shape))
    return [c(ops.slice_, x, start_indices=(0,) * len(shape), limit_indices=limit, strides=(1,) * len(shape))
            for x in (c.b.items(ordered) if len(arrays) > 1 else [ordered])]


def _elementwise(op: Op) -> Callable[[OperationContext], list[Node]]:
    return lambda c: [c(op, *c.inputs)]


_KNOWN: dict[str, Callable[[OperationContext], list[Node] | None]] = {
    "ApproxTopK": _approx_top_k,
    "mhlo.topk": _top_k,
    **{f"mhlo.{op.name}": _elementwise(op) for op in
       (ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atanh, ops.cosh, ops.erf, ops.sinh, ops.tan)},
}  # fmt: skip
"""Operations that have no StableHLO form and are written as custom calls."""
