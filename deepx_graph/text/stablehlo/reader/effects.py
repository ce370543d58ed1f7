"""Which operations of a StableHLO text act on the state: themselves, in a region, or through what they call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.literal import MAX_BOUNDED
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.stablehlo.literals import dense_value
from deepx_graph.text.stablehlo.syntax import Dense, Operation, Symbol, Typed, plain
from deepx_graph.text.xla.devices import COLLECTIVES, moves_nothing
from deepx_graph.text.xla.hlo_text import Groups
from deepx_graph.text.xla.lowering import acting
from deepx_graph.types import STATE, TensorType, TupleType, Type, is_state

_ALWAYS = re.compile(r"^(check\.|interpreter\.|sdy\.manual_computation$)")
_COLLECTIVES = {row.mlir for row in COLLECTIVES} | {"stablehlo.collective_reduce"}


def without_tokens(types: Iterable[Type]) -> list[Type]:
    """The types that are no tokens."""
    return [t for t in types if t != STATE]


def is_alone(op: Operation) -> bool:
    """Whether a collective names only groups of one device, so that nothing moves."""
    is_still = moves_nothing(op.name, lambda name: numbers(op.attributes.get(name)))
    return is_still and ("permute" in op.name or op.operand_types[: len(op.result_types)] == op.result_types)


def numbers(value: Any) -> Groups:
    """The rows of a matrix of numbers, entries of -1 (none) left out. Raises ValueError, TypeError, AttributeError, InferError."""
    if isinstance(value, Typed):
        value = value.value
    if isinstance(value, Dense) and isinstance(value.type, TensorType):
        if not value.type.is_static or value.type.size > MAX_BOUNDED:
            raise ValueError(f"a matrix of type {value.type}")
        value = dense_value(value, value.type).bounded().tolist()
    return tuple(tuple(int(n) for n in row if n >= 0) for row in value or ())


def callees(op: Operation) -> list[str]:
    """The functions that an operation runs by name."""
    found = [op.extra["symbol"]] if op.name == "func.call" and "symbol" in op.extra else []
    names = ("callee",) if op.name == "func.call" else ("decomposition",) if op.name == "stablehlo.composite" else ()
    values = (op.attributes.get(n) for n in names)
    return found + [symbol_name(v) for v in values if v is not None]


def target(op: Operation) -> str:
    """The target of a custom call."""
    return str(op.extra.get("symbol") or symbol_name(op.attributes.get("call_target_name", "")))


def symbol_name(value: Any) -> str:
    """What `@name` or a string names."""
    return value.name if isinstance(value, Symbol) else str(value)


class Effects:
    """`functions` are the names of functions that act on the state."""

    def __init__(self, functions: dict[str, Operation]) -> None:
        outer: dict[int, Operation | None] = {}
        runs: dict[str, list[str]] = {name: [] for name in functions}
        acting_ops: list[tuple[str, Operation]] = []
        calls: list[Operation] = []
        for name, f in functions.items():
            work: list[tuple[Operation, Operation | None]] = [(f, None)]
            while work:
                op, around = work.pop()
                outer[id(op)] = around
                if _acts_itself(op):
                    acting_ops.append((name, op))
                if named := callees(op):
                    calls.append(op)
                    runs[name] += named
                work += [(inner, op) for region in op.regions for block in region for inner in block.operations]
        self.functions = acting(runs, (name for name, _ in acting_ops))
        self._acting: set[int] = set()
        for found in (*(op for _, op in acting_ops), *(op for op in calls if self.functions.intersection(callees(op)))):
            at: Operation | None = found
            while at is not None and id(at) not in self._acting:
                self._acting.add(id(at))
                at = outer[id(at)]

    def acts(self, op: Operation) -> bool:
        """Whether the operation changes or needs the state."""
        return id(op) in self._acting


def _acts_itself(op: Operation) -> bool:
    if op.name in _COLLECTIVES:
        return not _is_alone_or_odd(op)
    if op.name == "stablehlo.custom_call":
        name = target(op)
        return name.startswith("check.") or plain(op.attributes.get("has_side_effect")) is True or custom_calls.acts(name) or (
            _has_token(op))
    return _ALWAYS.match(op.name) is not None or _has_token(op)


def _is_alone_or_odd(op: Operation) -> bool:
    try:
        return is_alone(op)
    except (ValueError, TypeError, AttributeError, InferError):
        return False


def _has_token(op: Operation) -> bool:
    """Whether a token goes in or out, or into a region."""
    regions = (arg.type for region in op.regions for block in region for arg in block.args)
    return _any_token(op.operand_types) or _any_token(op.result_types) or any(map(is_state, regions))


def _any_token(types: Sequence[Type]) -> bool:
    return any(t == STATE or (isinstance(t, TupleType) and is_state(t)) for t in types)
