"""Loop programs as functions of Python: they give what the interpreter gives, to the last bit, where numpy's calls cost more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.scalar_expr import PRIMITIVES
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.primitives import COMPARISONS, MORE, result_dtype
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Conditional,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar
from deepx_graph.ops import add, compare, dynamic_slice, dynamic_update_slice, multiply
from deepx_graph.runtime.compile import compile
from deepx_graph.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64, DType, type_of_array
from tests.support.loop_programs import same_in_python

DTYPES = [BOOL, I8, I16, I32, I64, U8, U32, U64, F16, BF16, F32, F64]
ARITY = {"copy": 1, **PRIMITIVES, **MORE}


def edges(dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers at which a dtype's arithmetic is special, and some others."""
    if dtype is BOOL:
        return np.array([False, True])
    assert dtype.np is not None
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return np.array([0, -0.0, 1, -1.5, 0.1, 3.7, 2.5, 300, -2147483648, 2147483647, 4294967296, 1e30, 1e-42,
                             np.inf, -np.inf, np.nan]).astype(dtype.np)
    ends = np.iinfo(dtype.np)
    return np.array([0, 1, 2, 7, 31, 33, ends.max, ends.max - 1, ends.min, ends.min + 1, ends.max // 3, ends.max & -2], dtype.np)


def elementwise(primitive: str, args: Sequence[DType], result: DType, size: int) -> LoopProgram:
    """A loop that applies a primitive to elements."""
    axis = ScalarVar(0, I64, 0, size - 1)
    at = Affine(((axis, 1),))
    arguments = tuple(Buffer(f"a{k}", d, (size,), "argument") for k, d in enumerate(args))
    out = Buffer("r", result, (size,), "result")
    given = tuple(ScalarVar(k + 1, d) for k, d in enumerate(args))
    target = ScalarVar(9, result)
    body: list[Statement] = [Load(v, a, (at,)) for v, a in zip(given, arguments, strict=True)]
    body += [Let(target, primitive, given), Store(out, (at,), target)]
    return LoopProgram(arguments, (out,), (), (), [For(axis, Affine(), Affine((), size), body)])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in (F16, BF16)], ids=str)
@pytest.mark.parametrize("primitive", [p for p in ARITY if p not in ("cast", "bitcast")])
def test_every_primitive_at_its_edges(primitive: str, dtype: DType) -> None:
    values = edges(dtype)
    grid = np.meshgrid(*[values if ARITY[primitive] < 4 else values[:5]] * ARITY[primitive])
    arrays = [g.ravel() for g in grid]
    dtypes = [dtype] * ARITY[primitive]
    if primitive == "where":
        arrays[0], dtypes[0] = arrays[0] != 0, BOOL
    if primitive in ("quotient", "modulo", "floor_mod") and dtype.is_integer:  # of these divisors nothing is said
        said = (arrays[1] != 0) & ~((arrays[1].astype(float) == -1) & (arrays[0] == np.iinfo(dtype.np).min))
        arrays = [a[said] for a in arrays]
    program = elementwise(primitive, dtypes, result_dtype(primitive, tuple(dtypes)), arrays[0].size)
    try:
        interpret(program, arrays)
    except (TypeError, AttributeError, ValueError, KeyError, ZeroDivisionError, OverflowError):
        return  # no primitive of the dtype
    same_in_python(program, arrays)


@pytest.mark.parametrize("result", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_conversion_at_its_edges(dtype: DType, result: DType) -> None:
    values = edges(dtype)
    for primitive in ("cast", *(["bitcast"] if dtype.bits == result.bits and BOOL not in (dtype, result) else [])):
        same_in_python(elementwise(primitive, [dtype], result, values.size), [values])


class RandomProgram:
    """A program of nested loops, branches and cells over values of every kind, from a seed."""

    SIZE = 6

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dtypes = self.random.sample([I8, I32, I64, U32, F32, F64], 3) + [BOOL]
        self.count = 0
        self.arguments = tuple(Buffer(f"a{k}", d, (self.SIZE,), "argument") for k, d in enumerate(self.dtypes))
        self.results = tuple(Buffer(f"r{k}", d, (self.SIZE,), "result") for k, d in enumerate(self.dtypes))
        self.cells = [Cell(self._number(), d) for d in self.dtypes]

    def program(self) -> LoopProgram:
        body: list[Statement] = []
        for cell, argument, result in zip(self.cells, self.arguments, self.results, strict=True):
            x = self._var(cell.dtype)
            body += [Load(x, argument, (Affine(),)), Set(cell, x)]
            axis = self._axis()
            x = self._var(cell.dtype)
            at = (Affine(((axis, 1),)),)
            body.append(For(axis, Affine(), Affine((), self.SIZE), [Load(x, argument, at), Store(result, at, x)]))
        body += self._block([], [], 3)
        return LoopProgram(self.arguments, self.results, (), (), body)

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _var(self, dtype: DType) -> ScalarVar:
        return ScalarVar(self._number(), dtype)

    def _axis(self) -> ScalarVar:
        return ScalarVar(self._number(), I64, 0, self.SIZE - 1)

    def _at(self, axes: Sequence[ScalarVar]) -> tuple[Affine, ...]:
        if not axes or self.random.random() < 0.2:
            return (Affine((), self.random.randrange(self.SIZE)),)
        axis = self.random.choice(axes)
        return (Affine(((axis, -1),), self.SIZE - 1) if self.random.random() < 0.5 else Affine(((axis, 1),)),)

    def _scalar(self, seen: Sequence[ScalarVar], dtype: DType) -> Scalar:
        fitting = [v for v in seen if v.dtype is dtype]
        if fitting and self.random.random() < 0.8:
            return self.random.choice(fitting)
        assert dtype.np is not None
        return ScalarConst(self.random.choice(list(edges(dtype))), dtype)

    def _block(self, seen: Sequence[ScalarVar], axes: Sequence[ScalarVar], depth: int) -> list[Statement]:
        made, body = list(seen), list[Statement]()
        for _ in range(self.random.randrange(2, 7)):
            body += self._statement(made, axes, depth)
        return body

    def _statement(self, made: list[ScalarVar], axes: Sequence[ScalarVar], depth: int) -> list[Statement]:
        k = self.random.randrange(len(self.dtypes))
        dtype, cell = self.dtypes[k], self.cells[k]
        nested = [*(["for", "if", "while"] if depth else []), *(["choice"] if axes else [])]
        match self.random.choice(["let", "let", "let", "load", "store", "get", "set", "combine", *nested]):
            case "let":
                primitive = self.random.choice(["max", "min", "where", "eq", "lt", "cast", "copy"] + (
                    ["add", "sub", "mul"] if dtype is not BOOL else ["and", "or", "not"]))
                result = self.random.choice(self.dtypes) if primitive == "cast" else BOOL if primitive in COMPARISONS else dtype
                args = tuple(self._scalar(made, BOOL if primitive == "where" and not i else dtype) for i in range(ARITY[primitive]))
                target = self._var(result)
                made.append(target)
                return [Let(target, primitive, args)]
            case "load":
                target = self._var(dtype)
                made.append(target)
                return [Load(target, self.random.choice((self.arguments, self.results))[k], self._at(axes))]
            case "get":
                target = self._var(dtype)
                made.append(target)
                return [Get(target, cell)]
            case "store":
                return [Store(self.results[k], self._at(axes), self._scalar(made, dtype))]
            case "set":
                return [Set(cell, self._scalar(made, dtype))]
            case "combine":
                return [Combine(cell, "or" if dtype is BOOL else "add", self._scalar(made, dtype))]
            case "if":
                then, otherwise = (self._block(made, axes, depth - 1) for _ in range(2))
                return [Conditional(self._scalar(made, BOOL), then, otherwise)]
            case "choice":
                condition, target = self._var(BOOL), self._var(dtype)
                test = Let(condition, self.random.choice(["eq", "lt"]), (*self._at(axes), *self._at(())))
                given = self._scalar(made, dtype), self._scalar(made, dtype)
                made.append(target)
                return [test, Let(target, "where", (condition, *given)), Store(self.results[k], self._at(axes), target)]
            case "while":
                return self._while(made, axes, depth)
        axis = self._axis()
        return [For(axis, Affine(), Affine((), self.SIZE), self._block([*made, axis], [*axes, axis], depth - 1))]

    def _while(self, made: Sequence[ScalarVar], axes: Sequence[ScalarVar], depth: int) -> list[Statement]:
        """A loop that ends when a cell of its own has counted so far."""
        counter, now, next_, test = Cell(self._number(), I32), self._var(I32), self._var(I32), self._var(BOOL)
        before: list[Statement] = [Get(now, counter), Let(test, "lt", (now, ScalarConst(np.int32(3), I32)))]
        after: list[Statement] = [Let(next_, "add", (now, ScalarConst(np.int32(1), I32))), Set(counter, next_)]
        body = [*self._block(made, axes, depth - 1), *after]
        return [Set(counter, ScalarConst(np.int32(0), I32)), While(before, test, body)]


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_give_the_bits_of_the_interpreter(seed: int) -> None:
    """Loops in loops, branches, cells, integers that wrap, and numbers that are no longer finite."""
    made = RandomProgram(seed)
    arrays = [np.random.default_rng(seed).choice(edges(d), made.SIZE) for d in made.dtypes]
    same_in_python(made.program(), arrays)


# --- the engine


def recurrence(size: int, steps: int) -> Function:
    """Each row of so many elements is the one before, times a half, and a row of the operand."""
    b = Builder()
    x = b.param(0, type_of_array(np.zeros((steps, size), np.float32)))

    def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        k, y, rows = v
        zero = b.like(0, k)
        new = b(add, b(multiply, y, b.like(0.5, y)), b(dynamic_slice, x, k, zero, slice_sizes=(1, size)))
        return b(compare, k, b.like(steps, k), direction="LT"), (
            b(add, k, b.like(1, k)), new, b(dynamic_update_slice, rows, new, k, zero))

    start = b.splat(0, type_of_array(np.zeros((1, size), np.float32)))
    return Function("main", (x,), (b.loop((b.constant(np.int32(0)), start, b.splat(0, x.type)), whole)[2],))


@pytest.mark.parametrize(("size", "is_python"), [(1, True), (3, True), (2000, False)])
def test_loops_over_scalars_run_in_python_and_those_over_arrays_do_not(size: int, is_python: bool) -> None:
    module = Module((recurrence(size, 50),), "main")
    compiled = compile(module, engine="numexpr")
    assert any("loops of Python" in step.kind for step in compiled.python_steps) is is_python
    x = np.random.default_rng(0).normal(size=(50, size)).astype(np.float32)
    wanted = compile(module, engine="numpy")(x)[0]
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x)[0], wanted, strict=True)
    np.testing.assert_array_equal(compiled(x[::-1])[0], compile(module, engine="numpy")(x[::-1])[0], strict=True)


def test_an_argument_given_away_may_be_written_over() -> None:
    module = Module((recurrence(2, 50),), "main")
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    wanted = compile(module, engine="numpy")(x)[0]
    compiled = compile(module, engine="numexpr")
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x.copy(), donate=("arg0",))[0], wanted, strict=True)


def test_a_loop_that_prints_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """What loops do beside computing has no loop program."""
    text = """sea 1
entry @main
func public @main(%x: f32[], %state: state) -> (%done: state) {
  %zero = constant dense<0> : i32[]
  %three = constant dense<3> : i32[]
  %one = constant dense<1> : i32[]
  %loop = loop_begin %zero, %state {loop = 0} : (i32[], state)
  %k = phi %loop[0] : i32[]
  %before = phi %loop[1] : state
  %goes = compare %k, %three {direction = "LT"} : bool[]
  %next = add %k, %one : i32[]
  %after = print %before, %x {format = "%g;"} : state
  %end = loop_end %loop, %goes, %next, %after : (i32[], state)
  %last = proj %end[1] : state
  return %last
}
"""
    compile(dx.loads(text, "sea"), engine="numexpr")(np.float32(2.5))
    assert capsys.readouterr().out.count("2.5;") == 3
