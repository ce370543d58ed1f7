"""Maxima and minima of floats as IEEE 754-2019 (9.6) has them: NaN where an operand is, and +0.0 is above -0.0.

No instruction of x86 does that: theirs takes the second operand where one is NaN, or where both are zeros. Of several operands
(`max(max(a, b), c)`) it is put right once, at the end: whether one is NaN is asked of two at a time, and where one has the sign
that wins, the extreme has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import numpy as np

from deepx_graph.loops.program import Cell, Let, Statement, reads, walk
from deepx_graph.loops.scalar import Scalar, ScalarConst
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue
from deepx_graph.types import F32, F64, DType

EXTREMES = ("max", "min")


def chained(body: Sequence[Statement]) -> list[Statement]:
    """The statements of a block, a chain of maxima or minima as one of all its operands where nothing else reads its links."""
    links: dict[Scalar, Let] = {s.target: s for s in body if isinstance(s, Let) and _is_link(s)}
    if len(links) < 2:
        return list(body)
    uses: Counter[Scalar | Cell] = Counter(x for s in walk(body) for x in reads(s))
    within = {a for s in links.values() for a in s.args if a in links and links[a].primitive == s.primitive and uses[a] == 1}
    found: list[Statement] = []
    for s in body:
        if not isinstance(s, Let) or s.target not in links:
            found.append(s)
        elif s.target not in within:
            found.append(Let(s.target, s.primitive, tuple(_ends(s, links, within))))
    return found


def is_extreme(primitive: str, dtype: DType) -> bool:
    """Whether a primitive is the greatest or least of floats, which `extreme` takes several of."""
    return primitive in EXTREMES and dtype in (F32, F64)


def _is_link(s: Let) -> bool:
    """Whether a statement may be part of a chain. Of a known bound the extreme is less than what a chain takes."""
    return is_extreme(s.primitive, s.target.dtype) and not any(isinstance(a, ScalarConst) for a in s.args)


def _ends(s: Let, links: Mapping[Scalar, Let], within: Container[Scalar]) -> list[Scalar]:
    """The operands of a chain."""
    return [x for a in s.args for x in (_ends(links[a], links, within) if a in within else (a,))]


def extreme(t: IRBuilder, primitive: str, x: VectorValue, *others: VectorValue) -> VectorValue:
    """The greatest or least of some floats."""
    return _of_several(t, primitive, x, others) if len(others) > 1 else _of_two(t, primitive, x, *others)


def _of_several(t: IRBuilder, primitive: str, x: VectorValue, others: Sequence[VectorValue]) -> VectorValue:
    dtype, bits, is_max = x.dtype, np.dtype(f"i{x.dtype.itemsize}"), primitive == "max"
    found, join = x, "and" if is_max else "or"
    for each in others:  # where one is NaN or both are zeros this is `found`: a NaN in x stays
        found = t.select(t.compare("fcmp ogt" if is_max else "fcmp olt", each, found), each, found)
    pairs = [(others[k], others[min(k + 1, len(others) - 1)]) for k in range(0, len(others), 2)]
    known = _all(t, "and", [t.compare("fcmp ord", *pair) for pair in pairs])
    signs = _all(t, join, [t.convert("bitcast", each, bits) for each in others])
    sign = np.iinfo(bits).min
    signs = t.binary("or", signs, t.splat(~sign, bits)) if is_max else t.binary("and", signs, t.splat(sign, bits))
    signed = t.binary(join, t.convert("bitcast", found, bits), signs)
    return t.convert("bitcast", t.select(known, signed, t.splat(-1, bits)), dtype)


def _all(t: IRBuilder, instruction: str, values: Sequence[VectorValue]) -> VectorValue:
    found = values[0]
    for x in values[1:]:
        found = t.binary(instruction, found, x)
    return found


def _of_two(t: IRBuilder, primitive: str, x: VectorValue, y: VectorValue) -> VectorValue:
    zero, beyond = t.splat(0, x.dtype), "fcmp ogt" if primitive == "max" else "fcmp olt"
    if primitive == "max" and zero.text in (x.text, y.text):
        other = x if y.text == zero.text else y
        return t.binary("fadd", t.select(t.compare("fcmp olt", other, zero), zero, other), zero)  # -0.0 + 0.0 is 0.0
    for bound, other in ((x, y), (y, x)):
        if _is_literal(bound) and bound.text not in (t.splat(v, x.dtype).text for v in (0.0, -0.0, np.nan)):
            return t.select(t.compare(beyond, bound, other), bound, other)  # the other where it is NaN: one instruction
    if primitive == "max":
        return _of_several(t, primitive, x, (y,))
    first = t.select(t.compare(beyond, x, y), x, y)
    second, bits = t.select(t.compare(beyond, y, x), y, x), np.dtype(f"i{x.dtype.itemsize}")
    pair = [t.convert("bitcast", v, bits) for v in (first, second)]  # the same, but of zeros and where one is NaN
    return t.convert("bitcast", t.binary("or", *pair), x.dtype)


def _is_literal(x: VectorValue) -> bool:
    return x.text.startswith(("0x", "splat"))
