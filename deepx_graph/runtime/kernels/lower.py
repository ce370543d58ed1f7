"""From a function of elementwise operations, broadcasts and reductions to a `KernelProgram`.

Each op's `kernel` expression becomes steps of primitives. Floats narrower than single precision are computed in that, and rounded
where they are converted to, where they are results, and where something else than such a float is made of them: a comparison must
not tell a value from the same value rounded. Where a primitive has no exact lowering for the dtype, the op's own eval becomes one
step. A broadcast makes no step at all: its register keeps an extent of 1 and numpy's broadcasting does the rest.
Nothing is computed here, and no operation is known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.evaluation import in_blocks
from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.ops.contract.reduce import is_broadcast, reducer_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import axes as axes_
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.program import Array, Call, KernelProgram, Leaf, Reduction, Register, Shape, Step
from deepx_graph.types import BF16, F16, TensorType

BOOL = np.dtype(np.bool_)
Ints = tuple[int, ...]


def lower(function: Function) -> KernelProgram:
    """The program of a body. Raises Declined where it has operations or shapes that no kernel runs (see `axes`), or no element."""
    space = axes_.assign(function)
    if space is None or not function.results or any(0 in axes_.dims(n) for n in function.nodes):
        raise Declined
    lowering = _Lowering(function, space)
    for node in function.nodes:
        lowering.add(node)
    return lowering.program()


class _Lowering:
    """Registers and steps under construction."""

    def __init__(self, function: Function, space: axes_.Axes) -> None:
        self.function, self.space = function, space
        self.registers: list[Register] = []
        self.leaves: list[Leaf] = []
        self.constants: list[tuple[int, Array]] = []
        self.steps: list[Step] = []
        self.of: dict[Node, int] = {}
        self._scalars: dict[tuple[np.dtype[Any], bytes], int] = {}
        self._exact: dict[int, int] = {}
        """The register that has the values of one of narrow floats rounded; itself where they are such already."""

    def add(self, node: Node) -> None:
        """Lowers one node; its operands are lowered already."""
        if node in self.space.leaves:
            if node in self.space.of:
                self.of[node] = self._widened(self._repeated(node) if is_broadcast(node) else self._leaf(node))
        elif node.op.elementwise:
            self.of[node] = self._elementwise(node)
        else:
            self.of[node] = self._same(node) if reducer_of(node) is None else self._reduce(node)

    def program(self) -> KernelProgram:
        """The finished program: every result a register of its own, full along the axes of its type."""
        results, taken = [], {leaf.register for leaf in self.leaves} | {r for r, _ in self.constants}
        for node in self.function.results:
            register, shape = self._narrowed(self.of[node], _dtype(node)), self.space.shape(node)
            if register in taken or self.registers[register].shape != shape:
                register = self._copy(register, shape)
            taken.add(register)
            results.append(register)
        shapes = tuple(axes_.dims(n) for n in self.function.results)
        return KernelProgram(self.space.space, tuple(self.registers), tuple(self.leaves), tuple(self.constants),
                       tuple(self.steps), tuple(results), shapes)

    # --- registers and steps

    def _register(self, dtype: np.dtype[Any], shape: Shape) -> int:
        self.registers.append(Register(dtype, shape))
        return len(self.registers) - 1

    def _step(self, dtype: np.dtype[Any], shape: Shape, sources: Sequence[int], call: Call, primitive: str = "",
              in_place: bool = False, reduction: Reduction | None = None) -> int:
        target = self._register(dtype, shape)
        self.steps.append(Step(target, tuple(sources), call, primitive, in_place, reduction))
        return target

    def _joint(self, sources: Sequence[int]) -> Shape:
        return tuple(map(max, zip(*(self.registers[s].shape for s in sources), strict=True)))

    def _copy(self, register: int, shape: Shape) -> int:
        return self._step(self.registers[register].dtype, shape, (register,), lower_primitives.copy, "copy")

    def _widened(self, register: int) -> int:
        """A register in the type in which it is computed with."""
        wide = self._converted(register, computed_in(self.registers[register].dtype))
        if wide != register:
            self._exact[wide] = wide
        return wide

    def _rounded(self, register: int, dtype: np.dtype[Any]) -> int:
        """A register of values of that type, computed with but rounded."""
        if computed_in(dtype) == dtype:
            return register
        if register not in self._exact:
            self._exact[register] = self._widened(self._narrowed(register, dtype))
        return self._exact[register]

    def _narrowed(self, register: int, dtype: np.dtype[Any]) -> int:
        """A register in the type that the operation gives."""
        return self._converted(register, dtype) if computed_in(dtype) != dtype else register

    def _converted(self, register: int, dtype: np.dtype[Any]) -> int:
        made = self.registers[register]
        return register if made.dtype == dtype else self._step(dtype, made.shape, (register,), lower_primitives.copy, "copy")

    def _constant(self, value: Any, dtype: np.dtype[Any]) -> int:
        array = np.asarray(value, dtype=dtype).reshape((1,) * len(self.space.space))
        key = (dtype, array.tobytes())
        if key not in self._scalars:
            self._scalars[key] = self._register(dtype, array.shape)
            self.constants.append((self._scalars[key], array))
        return self._scalars[key]

    # --- leaves and views

    def _leaf(self, node: Node, order: Ints | None = None, shape: Shape | None = None) -> int:
        """The register of a parameter or constant, seen through views."""
        shape = self.space.shape(node) if shape is None else shape
        views, source = [], node
        while source.op not in (PARAM, CONSTANT):
            views.append((source.op, source.attrs))
            source = source.inputs[0]
        views.reverse()
        if source.op is PARAM:
            register = self._register(_dtype(node), shape)
            self.leaves.append(Leaf(register, self.function.params.index(source), tuple(views), order))
            return register
        literal = value_of(source)
        if literal.splat_value is not None:
            return self._constant(literal.splat_value, _dtype(node))
        array = viewed(literal.array, views, order).reshape(shape)
        register = self._register(_dtype(node), shape)
        self.constants.append((register, array))
        return register

    def _same(self, node: Node) -> int:
        """Broadcasts, and reshapes that only add or drop axes of size 1, are the register of their operand."""
        return self.of[node.inputs[0]]

    def _repeated(self, node: Node) -> int:
        """A broadcast leaf, held once along the axes on which it repeats."""
        operand = node.inputs[0]
        at: Ints = node.attr("broadcast_dimensions")
        order = tuple(sorted(range(len(at)), key=at.__getitem__))
        mine = self.space.of[node]
        kept = {mine[k] for i, k in enumerate(at) if axes_.dims(operand)[i] != 1}
        shape = tuple(size if k in kept else 1 for k, size in enumerate(self.space.space))
        return self._leaf(operand, None if order == tuple(range(len(at))) else order, shape)

    # --- computation

    def _elementwise(self, node: Node) -> int:
        return self.apply(node.op, node.attrs, [self.of[i] for i in node.inputs], _dtype(node), [_dtype(i) for i in node.inputs])

    def apply(self, op: Op, attrs: tuple[Any, ...], sources: Sequence[int], dtype: np.dtype[Any],
              dtypes: Sequence[np.dtype[Any]]) -> int:
        """The register of an elementwise op from operands of those types: its kernel expression in primitives, else its eval."""
        tree, wide = op.kernel(*attrs) if op.kernel else None, computed_in(dtype)
        tree = None if wide != dtype and _alone(tree) in OWN_CORNERS else tree
        if dtype not in NARROW:
            sources = [self._rounded(s, d) for s, d in zip(sources, dtypes, strict=True)]
        before = len(self.registers), len(self.steps), len(self.constants)
        if tree is not None:
            try:
                register = self._expression(tree, sources, wide, {})
                if self.registers[register].dtype == wide and (register not in sources or wide != dtype):
                    is_conversion = wide != dtype and dtype not in dtypes
                    return self._widened(self._narrowed(register, dtype)) if is_conversion else register
            except Declined:
                pass
            self._undo(*before)
        assert op.eval is not None
        operands = [self._narrowed(s, d) for s, d in zip(sources, dtypes, strict=True)]
        return self._widened(self._step(dtype, self._joint(operands), operands, BlockwiseEval(op.eval, attrs), _alone(tree)))

    def _undo(self, registers: int, steps: int, constants: int) -> None:
        del self.registers[registers:], self.steps[steps:], self.constants[constants:]
        self._scalars = {k: r for k, r in self._scalars.items() if r < registers}

    def _expression(self, tree: Expr, operands: Sequence[int], dtype: np.dtype[Any], known: dict[Expr, int]) -> int:
        """The register of an expression; `known` are the parts that have one."""
        if tree not in known:
            known[tree] = self._part(tree, operands, dtype, known)
        return known[tree]

    def _part(self, tree: Expr, operands: Sequence[int], dtype: np.dtype[Any], known: dict[Expr, int]) -> int:
        match tree:
            case Variable(index):
                return operands[index]
            case Immediate(value):
                first = self.registers[operands[0]].dtype
                if first not in lower_primitives.ALL:
                    raise Declined("no exact lowering")
                return self._constant(value, first)
            case Apply(primitive, args):
                return self._primitive(primitive, [self._expression(a, operands, dtype, known) for a in args], dtype)

    def _primitive(self, primitive: str, sources: list[int], dtype: np.dtype[Any]) -> int:
        if primitive == "cast":
            cast = lower_primitives.lower_cast(self.registers[sources[0]].dtype, dtype)
            if cast is None:
                raise Declined("no exact lowering")
            return self._step(dtype, self.registers[sources[0]].shape, sources, cast, primitive)
        if primitive == "where":
            kind = self.registers[sources[1]].dtype
            if kind.itemsize not in lower_primitives.BITS:
                raise Declined("no exact lowering")
            return self._step(kind, self._joint(sources), sources, lower_primitives.where, primitive)
        lowered = lower_primitives.lower_primitive(primitive, [self.registers[s].dtype for s in sources])
        if lowered is None:
            raise Declined("no exact lowering")
        kind = BOOL if lowered.is_predicate else self.registers[sources[0]].dtype
        return self._step(kind, self._joint(sources), sources, lowered.call, primitive, lowered.in_place)

    def _reduce(self, node: Node) -> int:
        operand = node.inputs[0]
        op = reducer_of(node)
        assert op is not None
        source, dtype = self.of[operand], _dtype(node)
        wide = computed_in(dtype)
        gone = {self.space.of[operand][k] for k in node.attr("dimensions")} - {None}
        kept = tuple(1 if k in gone else d for k, d in enumerate(self.registers[source].shape))
        if any(self.registers[source].shape[k] == 1 for k in gone if k is not None):
            full = tuple(n if k in gone else d for (k, n), d in
                         zip(enumerate(self.space.space), self.registers[source].shape, strict=True))
            source = self._copy(source, full)
        axes = tuple(sorted(k for k in gone if k is not None))
        call = lower_primitives.reduction(op, axes, self.registers[source].shape, wide)
        total = self._step(wide, kept, (source,), call, reduction=Reduction(op, axes))
        result = node.attr("body").results[0]
        return self.apply(op, result.attrs, (self.of[node.inputs[1]], total), dtype, (dtype, dtype))


def _alone(tree: Expr | None) -> str:
    """The primitive that the op is, operand for operand; "" where it is none. Another engine may have a lowering of it."""
    if isinstance(tree, Apply) and tree.args == tuple(map(Variable, range(len(tree.args)))):
        return tree.primitive
    return ""


def viewed(array: Array, views: Sequence[tuple[Op, tuple[Any, ...]]], order: Ints | None) -> Array:
    """The array through view ops, its axes then put into `order`."""
    for op, attrs in views:
        assert op.eval is not None
        array = op.eval([array], *attrs)
    return array if order is None else array.transpose(order)


OWN_CORNERS = ("max", "min", "pow")
"""Primitives that numpy computes in single precision with other zeros, or no numbers, than it does in narrow floats."""

NARROW = frozenset(d.np for d in (F16, BF16))


def computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which elements of a type are computed."""
    return np.dtype(np.float32) if dtype in NARROW else dtype


def _dtype(node: Node) -> np.dtype[Any]:
    assert isinstance(node.type, TensorType)
    assert node.type.dtype.np is not None
    return node.type.dtype.np


@dataclass(frozen=True, slots=True)
class BlockwiseEval:
    """The eval of an elementwise op. Its temporaries, which no plan counts, are of blocks smaller than a kernel's own."""

    eval: Callable[..., Any]
    attrs: tuple[Any, ...]

    def __call__(self, *args: Array) -> None:
        """Computes from all arguments but the last into that."""
        *xs, out = args
        (value,) = in_blocks(lambda parts: [self.eval(parts, *self.attrs)], xs, [out.dtype], [out])
        if value is not out:
            np.copyto(out, value)

    def value(self, *xs: Any) -> Any:
        """What it gives for scalars, or for arrays of one shape."""
        return self.eval([np.asarray(x) for x in xs], *self.attrs)[()]
