"""From a function of elementwise operations, views and reductions to a `KernelProgram`.

Each op's `kernel` expression becomes steps of primitives. Where a primitive has no exact lowering for the dtype, the op's own eval
becomes one step. Views are views of numpy, and a broadcast only gives its operand axes of extent 1. Nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.ops.contract.reduce import reducer_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives as primitives
from deepx_graph.runtime.kernels.cuts import CannotCut, moved_axes
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Register, Shape, Step, StepFunction
from deepx_graph.types import TensorType, as_tensor

BOOL = np.dtype(np.bool_)


def lower(function: Function, cut: Mapping[Node, int] | None = None) -> KernelProgram:
    """The program of a function, with values cut along those axes. Raises Declined where it has operations or types that no kernel
    runs, or no element."""
    types = [n.type for n in function.nodes]
    if not function.results or not all(isinstance(t, TensorType) and t.is_static and t.size and t.dtype.np for t in types):
        raise Declined
    lowering = _Lowering(function, cut or {})
    for node in function.nodes:
        lowering.add(node)
    return lowering.program()


class _Lowering:
    """Registers and steps under construction."""

    def __init__(self, function: Function, cut: Mapping[Node, int]) -> None:
        self.function, self.cut = function, cut
        self.registers: list[Register] = []
        self.constants: dict[int, Array] = {}
        self.steps: list[Step] = []
        self.of: dict[Node, int] = {}
        self.at: int | None = None
        """The axis along which the values are cut that are being made."""
        self._scalars: dict[tuple[np.dtype[Any], bytes], int] = {}
        self._wide: dict[int, int] = {}
        """The registers of f32 that have the values of those of narrow floats."""
        for node in function.params:
            self.registers.append(Register(dtype_of(node), shape_of(node), cut.get(node)))
            self.of[node] = len(self.registers) - 1
        self.params = tuple(self.of[p] for p in function.params)
        for node, register in list(self.of.items()):
            if shape_of(node) and math.prod(shape_of(node)) == 1:
                self.of[node] = self._step(dtype_of(node), (), (register,), _view(methodcaller("reshape", ())))

    def add(self, node: Node) -> None:
        """Lowers one node; its operands are lowered already."""
        self.at = self.cut.get(node)
        if node.op is PARAM:
            return
        if node.op is CONSTANT:
            literal = value_of(node)
            value = literal.splat_value
            self.of[node] = self._held(literal.array) if value is None else self._constant(value, dtype_of(node))
        elif node.op.elementwise:
            self.of[node] = self._apply(node.op, node.attrs, [self.of[i] for i in node.inputs], dtype_of(node))
        elif reducer_of(node) is not None and len(node.inputs) == 2:
            self.of[node] = self._reduce(node)
        elif node.op.view and len(node.inputs) == 1:
            self.of[node] = self._seen(node)
        else:
            raise Declined

    def program(self) -> KernelProgram:
        """The finished program: every result a register of its own, full along the axes of its type, which a step writes."""
        taken, results = {*self.params, *self.constants, *(s.target for s in self.steps if s.is_view)}, []
        for node in self.function.results:
            register, shape = self.of[node], shape_of(node)
            if register in taken or self.registers[register].size != math.prod(shape):
                self.at = self.cut.get(node)
                register = self._full(register, shape)
            taken.add(register)
            results.append(register)
        return KernelProgram(tuple(self.registers), self.params, self.constants, _needed(self.steps, results), tuple(results),
                             tuple(map(shape_of, self.function.results)))

    # --- registers and steps

    def _register(self, dtype: np.dtype[Any], shape: Shape) -> int:
        shape = shape if math.prod(shape) > 1 else ()
        self.registers.append(Register(dtype, shape, self.at if self.at is not None and shape and shape[self.at] > 1 else None))
        return len(self.registers) - 1

    def _step(self, dtype: np.dtype[Any], shape: Shape, sources: Sequence[int], call: StepFunction, primitive: str = "",
              in_place: bool = False, total: Callable[[Array], Any] | None = None) -> int:
        target = self._register(dtype, shape)
        self.steps.append(Step(target, tuple(sources), call, primitive, in_place, total))
        return target

    def _joint(self, sources: Sequence[int]) -> Shape:
        shapes = [self.registers[s].shape for s in sources]
        rank = max(map(len, shapes))
        return tuple(map(max, zip(*(s for s in shapes if len(s) == rank), strict=True)))

    def _full(self, register: int, shape: Shape) -> int:
        """A register with its elements repeated to fill the shape."""
        dtype = self.registers[register].dtype
        return self._step(dtype, shape, (register,), primitives.lower_copy(shape, dtype), "copy")

    def _repeated(self, register: int, shape: Shape, at: int | None) -> int:
        """A register that fills the shape of an operand, which is cut along that axis."""
        if self.registers[register].shape == shape:
            return register
        self.at, mine = at, self.at
        full = self._full(register, shape)
        self.at = mine
        return full

    def _constant(self, value: Any, dtype: np.dtype[Any]) -> int:
        array = np.asarray(value, dtype)
        key = (dtype, array.tobytes())
        if key not in self._scalars:
            self._scalars[key] = self._held(array)
        return self._scalars[key]

    def _held(self, array: Array) -> int:
        register = self._register(array.dtype, array.shape)
        self.constants[register] = array.reshape(self.registers[register].shape)
        return register

    # --- views and reductions

    def _seen(self, view: Node) -> int:
        """A view. What is the same everywhere has no axes to be moved."""
        source, axes = self.of[view.inputs[0]], moved_axes(view)
        held, dtype = self.registers[source].shape, dtype_of(view)
        if held == ():
            return source
        if axes is None:
            assert view.op.eval is not None
            source = self._repeated(source, shape_of(view.inputs[0]), None)
            return self._step(dtype, shape_of(view), (source,), _view(partial(_evaluated, view.op.eval, view.attrs)))
        shape = [1] * len(shape_of(view))
        target_axes = [-1 if k is None else k for k in axes]
        for i, k in enumerate(target_axes):
            if k >= 0:
                shape[k] = held[i]
        order = sorted(range(len(target_axes)), key=target_axes.__getitem__)
        aligned = [-1 if k == self.at and d > 1 else d for k, d in enumerate(shape)]
        permutation = None if order == sorted(order) else order
        return self._step(dtype, tuple(shape), (source,), _view(partial(_aligned, permutation, aligned)))

    def _reduce(self, node: Node) -> int:
        operand, init = node.inputs
        op, dtype = reducer_of(node), dtype_of(node)
        assert op is not None and op.monoid is not None
        source, whole, gone = self.of[operand], shape_of(operand), node.attr("dimensions")
        held = self.registers[source].shape or (1,) * len(whole)
        full = tuple(n if k in gone else d for k, (n, d) in enumerate(zip(whole, held, strict=True)))
        source = self._repeated(source, full, self.cut.get(operand))
        kept = tuple(d for k, d in enumerate(full) if k not in gone)
        full = self.registers[source].shape
        axes = tuple(sorted(gone)) if math.prod(kept) > 1 else tuple(range(len(full)))
        crosses = self.registers[source].cut in axes
        if crosses and (dtype.kind not in EXACT_PARTIALS or (dtype.kind == "f" and dtype.itemsize < 4)):
            raise CannotCut
        call = primitives.lower_reduction(op, axes, full, dtype) if axes else primitives.lower_copy(full, dtype)
        made = self._step(dtype, kept, (source,), call, total=partial(_total, op.monoid, dtype) if crosses else None)
        result = node.attr("body").results[0]
        return self._apply(op, result.attrs, (self.of[init], made), dtype)

    # --- computation

    def _apply(self, op: Op, attrs: tuple[Any, ...], sources: Sequence[int], dtype: np.dtype[Any]) -> int:
        """The register of an elementwise op: its kernel expression in primitives, else its eval."""
        tree = op.kernel(*attrs) if op.kernel else None
        before = len(self.registers), len(self.steps)
        if tree is not None:
            try:
                if isinstance(tree, Apply) and (narrow := self._narrow(tree, sources, dtype)) is not None:
                    return narrow
                register = self._expression(tree, sources, dtype, {})
                if self.registers[register].dtype == dtype:
                    return register
            except Declined:
                pass
            self._undo(*before)
        assert op.eval is not None
        return self._step(dtype, self._joint(sources), sources, primitives.lower_eval(op.eval, attrs))

    def _narrow(self, tree: Apply, sources: Sequence[int], dtype: np.dtype[Any]) -> int | None:
        """The register of one primitive of narrow floats, computed in f32 and rounded; None for anything else."""
        dtypes = {self.registers[s].dtype for s in sources} - {BOOL}
        (narrow,) = dtypes if len(dtypes) == 1 else (BOOL,)
        is_rounded = tree.primitive in primitives.ROUNDED.get(narrow, ())
        if narrow not in primitives.ROUNDED or not (is_rounded or tree.primitive in primitives.UNROUNDED) or not all(
                isinstance(a, Variable) for a in tree.args):
            return None
        operands = [self._widened(sources[a.index]) for a in tree.args if isinstance(a, Variable)]
        made = self._primitive(tree.primitive, operands, primitives.F32)
        if dtype != narrow:
            return made
        shape = self.registers[made].shape
        if is_rounded:
            made = self._step(primitives.F32, shape, (made,), primitives.lower_round(narrow), in_place=True)
        register = self._step(narrow, shape, (made,), primitives.lower_convert(narrow))
        self._wide[register] = made
        return register

    def _widened(self, register: int) -> int:
        """A narrow float as f32; any other register as it is."""
        held = self.registers[register]
        if held.dtype not in primitives.ROUNDED:
            return register
        if register not in self._wide:
            if register in self.constants:
                self._wide[register] = self._held(self.constants[register].astype(primitives.F32))
            else:
                self._wide[register] = self._step(primitives.F32, held.shape, (register,), primitives.lower_convert(primitives.F32))
        return self._wide[register]

    def _undo(self, registers: int, steps: int) -> None:
        del self.registers[registers:], self.steps[steps:]
        self.constants = {r: a for r, a in self.constants.items() if r < registers}
        self._scalars = {k: r for k, r in self._scalars.items() if r < registers}
        self._wide = {k: r for k, r in self._wide.items() if r < registers}

    def _expression(self, tree: Expr, operands: Sequence[int], dtype: np.dtype[Any], known: dict[Expr, int]) -> int:
        """The register of an expression; `known` are the parts that have one."""
        if tree not in known:
            match tree:
                case Variable(index):
                    return operands[index]
                case Immediate(value):
                    first = self.registers[operands[0]].dtype
                    if first not in primitives.ALL:
                        raise Declined("no exact lowering")
                    return self._constant(value, first)
                case Apply(primitive, args):
                    parts = [self._expression(a, operands, dtype, known) for a in args]
                    known[tree] = self._primitive(primitive, parts, dtype)
        return known[tree]

    def _primitive(self, primitive: str, sources: list[int], dtype: np.dtype[Any]) -> int:
        dtypes = [self.registers[s].dtype for s in sources]
        match primitive:
            case "cast":
                call = primitives.lower_cast(dtypes[0], dtype)
            case "where":
                call, dtype = primitives.lower_where(dtypes[1]), dtypes[1]
            case _:
                call = primitives.lower_primitive(primitive, dtypes)
                dtype = BOOL if primitive in primitives.PREDICATES else dtypes[0]
        return self._step(dtype, self._joint(sources), sources, call, primitive, in_place=primitive not in ("cast", "where"))


EXACT_PARTIALS = frozenset("?biuf")
"""Kinds whose partial results can be combined later without rounding twice; narrow floats are checked by size."""


def wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which partial results of `dtype` are combined: double for single precision."""
    return np.dtype(np.float64) if dtype == np.float32 else dtype


def _needed(steps: Sequence[Step], results: Sequence[int]) -> tuple[Step, ...]:
    """The steps without those whose value nobody reads."""
    read, kept = set(results), []
    for step in reversed(steps):
        if step.target in read:
            read.update(step.sources)
            kept.append(step)
    return tuple(reversed(kept))


def _total(monoid: Any, dtype: np.dtype[Any], parts: Array) -> Array:
    return np.asarray(monoid(parts.astype(wider(dtype), copy=False), (0,))).astype(dtype)


def _view(value: Callable[..., Any]) -> StepFunction:
    return StepFunction(None, value)


def _evaluated(eval: Callable[..., Any], attrs: tuple[Any, ...], x: Any) -> Any:
    return eval([np.asarray(x)], *attrs)


def _aligned(order: Sequence[int] | None, shape: Sequence[int], x: Array) -> Array:
    return (x if order is None else x.transpose(order)).reshape(shape)


def dtype_of(node: Node) -> np.dtype[Any]:
    """Of a tensor node that numpy has."""
    dtype = as_tensor(node.type).dtype.np
    assert dtype is not None
    return dtype


def shape_of(node: Node) -> Shape:
    """The static shape of a tensor node."""
    return as_tensor(node.type).shape
