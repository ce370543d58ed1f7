"""Running a program over residues: the meaning of an operation from what its declaration says of it.

An elementwise operation is its kernel expression over residues (`validation/residues.py`), or a random function where it has none;
one that is `algebraic`, or a view, is its `eval`, which is exact on residues and reduced. Any other, of floats, has no meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.scalar_expr import Apply, Expr
from deepx_graph.ir.structure import PROJ, TUPLE
from deepx_graph.literal import Array, Literal
from deepx_graph.numerics.observed import OPERATIONS, ObservedEngine, OperationBudget
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.types import TensorType, TupleType, Type
from deepx_graph.validation.constants import map_literals
from deepx_graph.validation.residues import EXACT, POLYNOMIAL, RING, NoResidue, PrimeField, expression


class ResidueEngine(Engine):
    """Runs a program in double precision (`numerics/double.py`) whose floats are residues. Its constants have to be, too
    (`over_residues`)."""

    name = "numpy"

    def __init__(self, field: PrimeField) -> None:
        self.budget, self.field = OperationBudget(), field
        self.inner = ObservedEngine(self.budget)

    def begin(self, draw: int) -> None:
        """Before each run: with other random functions for each draw."""
        self.budget.left, self.field.seed, self.field.rational = OPERATIONS, draw, True

    def writes(self, node: Node) -> bool:
        """As the reference: never."""
        return self.inner.writes(node)

    def kernel(self, node: Node) -> KernelFn:
        """The operation's meaning over residues. Raises NoResidue where it has none."""
        evaluate = self.inner.kernel(node)
        if not any(_has_floats(t) for t in (node.type, *(i.type for i in node.inputs))):
            return evaluate
        if node.op in (TUPLE, PROJ) or not node.inputs:
            return evaluate
        if node.op.algebraic or node.op.view:
            return self._algebraic(node, evaluate)
        if node.op.elementwise and isinstance(node.type, TensorType):
            return self._elementwise(node, _tree(node), node.type)
        raise NoResidue(f"{node.op.name} has no meaning over residues")

    def _elementwise(self, node: Node, tree: Expr | None, type: TensorType) -> KernelFn:
        if tree is None and not _is_real(node):
            raise NoResidue(f"{node.op.name} has no meaning over residues")
        field, name = self.field, f"{node.op.name}{node.attrs}"

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            xs = list(map(np.asarray, operands))
            if tree is not None:
                found = expression(field, tree, xs, type)
            else:
                found = field.function(name, lambda *ys: node.op.eval(ys, *node.attrs), *xs)  # type: ignore[misc]
            return np.broadcast_to(found, type.shape).astype(type.dtype.np)

        return run

    def _algebraic(self, node: Node, evaluate: KernelFn) -> KernelFn:
        """`eval`, reduced, unless a sum or product can be inexact: then it would be so of the absolute values, too."""
        bodies = [a for a in node.attrs if isinstance(a, Function)]
        for body in bodies:
            _check_body(body)
        sums = not node.op.view and (bool(bodies) or len(node.inputs) > 1)
        rational = _has_floats(node.type) and not isinstance(node.type, TupleType) and all(
            tree is None or _is_made_of(tree, POLYNOMIAL) for body in bodies for tree in map(_tree, body.nodes))

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            self.field.rational = self.field.rational and rational
            found = evaluate(operands, out)
            if sums:
                sizes = evaluate([np.abs(x).astype(x.dtype) if _is_float(x) else x for x in map(np.asarray, operands)], None)
                if any(map(_is_beyond, sizes if isinstance(sizes, tuple) else (sizes,))):
                    raise NoResidue(f"sums of {node.op.name} are too long to be exact")
            return tuple(map(self._reduced, found)) if isinstance(found, tuple) else self._reduced(found)

        return run

    def _reduced(self, x: Any) -> Any:
        return self.field.reduced(x).astype(x.dtype) if _is_float(x) else x


def _is_float(x: Any) -> bool:
    return bool(x.dtype.kind in "fc")


def _is_beyond(x: Any) -> bool:
    x = np.asarray(x)
    return _is_float(x) and bool(np.any(np.isfinite(x) & (np.abs(x) >= EXACT)))


def _has_floats(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_has_floats, type.items))
    return isinstance(type, TensorType) and type.dtype.is_differentiable


def _is_real(node: Node) -> bool:
    return not any(isinstance(t, TensorType) and t.dtype.kind == "complex" for t in (node.type, *(i.type for i in node.inputs)))


def _tree(node: Node) -> Expr | None:
    return node.op.kernel(*node.attrs) if node.op.kernel and node.op.elementwise else None


def _check_body(body: Function) -> None:
    """Raises NoResidue for a body that does more than move, compare, add and multiply."""
    for node in body.nodes:
        tree = _tree(node)
        if node.inputs and not (node.op.view or node.op.algebraic or (tree is not None and _is_made_of(tree, RING))):
            raise NoResidue(f"{node.op.name} in the body of an operation has no meaning over residues")


def _is_made_of(tree: Expr, primitives: Collection[str]) -> bool:
    """Whether the expression has these primitives only."""
    return not isinstance(tree, Apply) or (tree.primitive in primitives and all(_is_made_of(a, primitives) for a in tree.args))


def over_residues(module: Module, field: PrimeField) -> Module:
    """A module in double precision with residues for its constants, those of bodies included."""
    return map_literals(module, lambda literal: _literal(literal, field))


def _literal(literal: Literal, field: PrimeField) -> Literal:
    splat, dtype = literal.splat_value, literal.dtype.np
    if splat is not None:
        return Literal.splat(field.number(splat).astype(dtype)[()], literal.type)
    return Literal(field.number(literal.array).astype(dtype))
