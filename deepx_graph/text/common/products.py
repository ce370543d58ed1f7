"""Matrix products and contractions with explicit operands: as numpy has them, by an equation, determinants."""

from __future__ import annotations

import string
from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.text.common.steps import joint_dims
from deepx_graph.types import I32


def product(c: KnownSteps, x: Node, y: Node) -> Node:
    """The matrix product as numpy has it: batches are broadcast, vectors are rows or columns."""
    a, b = c.dims_of(x), c.dims_of(y)
    if not a or not b:
        raise InferError(f"operands {x.type} and {y.type}", expected="vectors or matrices")
    if len(b) <= 2:  # no batch of its own: one contraction
        return c(ops.dot_general, x, y, lhs_contracting_dimensions=(len(a) - 1,), rhs_contracting_dimensions=(max(0, len(b) - 2),))
    if len(a) == 1:
        made = product(c, c.add_axes(x, (0,)), y)
        dims = c.dims_of(made)
        return c.shaped(made, (*dims[:-2], dims[-1]))
    if a[:-2] != b[:-2]:
        c.static(a[:-2]), c.static(b[:-2])
        batch = joint_dims([a[:-2], b[:-2]])
        x, y = c.broadcast_to(x, (*batch, *a[-2:])), c.broadcast_to(y, (*batch, *b[-2:]))
    n = len(c.dims_of(y)) - 2
    many = tuple(range(n))
    return c(ops.dot_general, x, y, lhs_batching_dimensions=many, rhs_batching_dimensions=many, lhs_contracting_dimensions=(n + 1,),
             rhs_contracting_dimensions=(n,))


def scaled(c: KnownSteps, x: Node, factor: float) -> Node:
    """The operand times a number; itself for one."""
    return x if factor == 1 else c(ops.multiply, x, c.like(factor if c.dtype_of(x).is_float else int(factor), x))


# --- by an equation -------------------------------------------------------------------------------------------------


def einsum(c: KnownSteps, equation: str, nodes: Sequence[Node]) -> Node:
    """The contraction that the equation states, as numpy and torch read it. Raises InferError for one that does not fit."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(nodes) or not set(equation) <= set(string.ascii_letters + ",.->"):
        raise InferError(f"the equation '{equation:.60}' of {len(nodes)} operands")
    spare = [s for s in string.ascii_letters if s not in equation]
    ranks = [len(c.dims_of(n)) for n in nodes]
    dotted = [ranks[k] - len(t.replace("...", "")) for k, t in enumerate(terms)]
    most = max((r for r, t in zip(dotted, terms, strict=True) if "..." in t), default=0)
    dots = "".join(spare[:most])
    terms = [t.replace("...", dots[most - r :] if r > 0 else "") for t, r in zip(terms, dotted, strict=True)]
    if not arrow:
        whole = "".join(terms)
        right = dots + "".join(sorted(s for s in set(whole) if whole.count(s) == 1 and s not in dots))
    out = right.replace("...", dots)
    if any(len(t) != ranks[k] for k, t in enumerate(terms)) or not set(out) <= set("".join(terms)) or len(set(out)) < len(out):
        raise InferError(f"the equation '{equation:.60}' does not fit the operands")
    pieces = [_diagonal(c, n, t) for n, t in zip(nodes, terms, strict=True)]
    made, letters = pieces[0]
    for k, (piece, own) in enumerate(pieces[1:], 1):
        later = set(out).union(*(own for _, own in pieces[k + 1 :]))
        made, letters = _contracted(c, made, letters, piece, own, later)
    summed = tuple(k for k, s in enumerate(letters) if s not in out)
    made = ops.reduction(c.b, ops.add, made, summed) if summed else made
    letters = [s for s in letters if s in out]
    return c.transposed(made, [letters.index(s) for s in out])


def _diagonal(c: KnownSteps, x: Node, term: str) -> tuple[Node, list[str]]:
    """The operand with each letter once: of repeated letters the diagonal."""
    letters = list(term)
    for s in dict.fromkeys(letters):
        while letters.count(s) > 1:
            a = letters.index(s)
            b = letters.index(s, a + 1)
            dims = c.dims_of(x)
            same = c(ops.compare, c.indices(I32, dims, a), c.indices(I32, dims, b), direction="EQ")
            x = ops.reduction(c.b, ops.add, c(ops.select, same, x, c.full(0, c.type_of(x))), (b,))
            del letters[b]
    return x, letters


def _contracted(c: KnownSteps, x: Node, a: list[str], y: Node, b: list[str], later: set[str]) -> tuple[Node, list[str]]:
    """The product of two operands: letters of both are batches where they are read later, else summed."""
    shared = [s for s in a if s in b]
    for s in shared:  # a size of 1 is stretched
        m, n = c.dims_of(x)[a.index(s)], c.dims_of(y)[b.index(s)]
        if m == 1 and n != 1:
            x = _stretched(c, x, a.index(s), n)
        elif n == 1 and m != 1:
            y = _stretched(c, y, b.index(s), m)
    batch, inner = [s for s in shared if s in later], [s for s in shared if s not in later]
    made = c(ops.dot_general, x, y, lhs_batching_dimensions=tuple(map(a.index, batch)),
             rhs_batching_dimensions=tuple(map(b.index, batch)),
             lhs_contracting_dimensions=tuple(map(a.index, inner)), rhs_contracting_dimensions=tuple(map(b.index, inner)))
    return made, [*batch, *(s for s in a if s not in shared), *(s for s in b if s not in shared)]


def _stretched(c: KnownSteps, x: Node, axis: int, size: int | str) -> Node:
    return c.broadcast_to(x, tuple(size if k == axis else d for k, d in enumerate(c.dims_of(x))))


# --- determinants ---------------------------------------------------------------------------------------------------

MAX_ROWS = 64


def determinant(c: KnownSteps, x: Node, n: int, batch: Sequence[int]) -> Node:
    if n > MAX_ROWS:
        raise InferError(f"the determinant of {n} by {n}", expected=f"at most {MAX_ROWS}")
    rank = len(batch) + 2
    result = c.full(1, c.type_of(x).with_dims(batch))
    for k in range(n):
        rows = n - k
        column = c.shaped(c.sliced(x, (0,) * rank, (*batch, rows, 1)), (*batch, rows))
        size = c(ops.abs_, column)
        most = c.along(ops.reduction(c.b, ops.maximum, size, (rank - 2,)), (*batch, rows), tuple(range(rank - 2)))
        places = c.indices(I32, (*batch, rows), rank - 2)
        hit = c(ops.select, c(ops.compare, size, most, direction="EQ"), places, c.full(rows - 1, c.type_of(places)))
        first = ops.reduction(c.b, ops.minimum, hit, (rank - 2,))
        at = c(ops.compare, places, c.along(first, (*batch, rows), tuple(range(rank - 2))), direction="EQ")
        wide = c.along(at, (*batch, rows, rows), tuple(range(rank - 1)))
        row = ops.reduction(c.b, ops.add, c(ops.select, wide, x, c.full(0, c.type_of(x))), (rank - 2,))
        pivot = c.shaped(c.sliced(row, (0,) * (rank - 1), (*batch, 1)), batch)
        swapped = c(ops.compare, first, c.full(0, c.type_of(first)), direction="NE")
        result = c(ops.multiply, result, c(ops.select, swapped, c(ops.negate, pivot), pivot))
        if rows == 1:
            break
        # the pivot's row changes places with the first one; what is left of the others follows
        head = c.sliced(x, (0,) * rank, (*batch, 1, rows))
        head = c.along(c.shaped(head, (*batch, rows)), (*batch, rows, rows), (*range(rank - 2), rank - 1))
        moved = c(ops.select, wide, head, x)
        rest = c.sliced(moved, (*(0,) * len(batch), 1, 0), (*batch, rows, rows))
        safe = c(ops.select, c(ops.compare, pivot, c.full(0, c.type_of(pivot)), direction="EQ"), c.full(1, c.type_of(pivot)), pivot)
        factor = c(ops.divide, c.shaped(c.sliced(rest, (0,) * rank, (*batch, rows - 1, 1)), (*batch, rows - 1)),
                   c.along(safe, (*batch, rows - 1), tuple(range(rank - 2))))
        full = (*batch, rows - 1, rows - 1)
        tail = c.sliced(row, (0,) * (rank - 2) + (1,), (*batch, rows))
        step = c(ops.multiply, c.along(factor, full, tuple(range(rank - 1))), c.along(tail, full, (*range(rank - 2), rank - 1)))
        x = c(ops.subtract, c.sliced(rest, (*(0,) * len(batch), 0, 1), (*batch, rows - 1, rows)), step)
    return result
