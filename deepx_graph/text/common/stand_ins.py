"""The types of an operator's results where sizes are symbols, found by lowering it with sizes that stand for them.

The rules of most operators ask for sizes that are numbers. So the operator is lowered twice, in builders of its own, each time with
other numbers for the symbols; a size of a result is the expression over the symbols that gives both numbers. Where there is none,
or the rule asks for more than sizes, nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, TUPLE
from deepx_graph.ops.known import KnownValues
from deepx_graph.ops.known_sizes import known_sizes
from deepx_graph.types import Dim, TensorType, Type, add_dims, as_tensor, is_static, mul_dims, resolve_type, tensor
from deepx_graph.types.symbols import dim_value, symbols_of

PRIMES = ((101, 103, 107, 109, 113, 127), (139, 149, 151, 157, 163, 167))
"""The numbers for the symbols, each time."""

Lowering = Callable[[Builder, Sequence[Node], Callable[[Node], Any]], Node]


def types_by_stand_ins(lowering: Lowering, operands: Sequence[Node], known: Callable[[Node], Any]) -> tuple[Type, ...] | None:
    """The types of the results, static but for symbols of the operands' types; None where they are not known.

    `known` gives the array of an operand, or None.
    """
    if any(not isinstance(o.type, TensorType) or o.type.dims is None for o in operands):
        return None
    sizes = [known_sizes(o, known) for o in operands]
    told: dict[Dim, None] = dict.fromkeys(d for o, s in zip(operands, sizes, strict=True)
                                          for d in (*(as_tensor(o.type).dims or ()), *(s or ())) if isinstance(d, str))
    symbols = list(dict.fromkeys(name for d in told for name in symbols_of(d)))
    if not symbols or len(symbols) > len(PRIMES[0]):
        return None
    both = [dict(zip(symbols, primes, strict=False)) for primes in PRIMES]
    try:
        first, second = ([r.type for r in _lowered(lowering, operands, sizes, known, stand_ins)] for stand_ins in both)
    except (DeepxGraphError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError):
        return None
    candidates = {(a, b): d for d, (a, b) in _expressions([*told, *symbols], both)}
    found = []
    for x, y in zip(first, second, strict=True):
        if not (isinstance(x, TensorType) and isinstance(y, TensorType) and is_static(x) and is_static(y)) or x.rank != y.rank:
            return None
        dims = [_size(a, b, candidates) for a, b in zip(x.shape, y.shape, strict=True)]
        if None in dims:
            return None
        found.append(tensor(x.dtype, tuple(dims)))
    return tuple(found)


def _lowered(lowering: Lowering, operands: Sequence[Node], sizes: Sequence[tuple[Dim | None, ...] | None],
             known: Callable[[Node], Any], stand_ins: Mapping[str, int]) -> Sequence[Node]:
    b = Builder()
    given: list[Node] = []
    for k, (o, s) in enumerate(zip(operands, sizes, strict=True)):
        type = as_tensor(o.type)
        if o.op is CONSTANT:
            given.append(o)
        elif s is not None and None not in s:
            values = np.asarray([dim_value(d, dict(stand_ins)) for d in s if d is not None])
            given.append(b.constant(values.reshape(type.shape), type.dtype))
        elif (value := known(o)) is not None:
            given.append(b.constant(value, type.dtype))
        else:
            given.append(b.param(k, resolve_type(type, dict(stand_ins))))
    made = lowering(b, given, KnownValues())
    return made.inputs if made.op is TUPLE else [made]


def _expressions(dims: Sequence[Dim], both: Sequence[Mapping[str, int]]) -> list[tuple[Dim, tuple[int, int]]]:
    """Sizes over the symbols and what they are each time: those that there are, then products of two."""
    plain = list(dict.fromkeys(dims))
    pairs: list[Dim] = [mul_dims(p) for p in itertools.combinations_with_replacement(plain, 2)] if len(plain) <= 8 else []
    found = []
    for d in (*pairs, *plain):
        values = [dim_value(d, dict(s)) for s in both]
        if all(isinstance(v, int) for v in values):
            found.append((d, (int(values[0]), int(values[1]))))
    return found


def _size(a: int, b: int, candidates: Mapping[tuple[int, int], Dim]) -> Dim | None:
    """The size that is these numbers: one of the candidates, a multiple of one, or one with a number added."""
    if a == b:
        return a
    if (a, b) in candidates:
        return candidates[a, b]
    for (x, y), d in candidates.items():
        if x and y and a % x == 0 and b % y == 0 and a // x == b // y:
            return mul_dims([d, a // x])
    return next((add_dims(d, a - x) for (x, y), d in candidates.items() if a - x == b - y and a > x), None)
