"""Operations that move elements are computed where they are read: what is one kernel then, what is not, and that values stay."""

from __future__ import annotations

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, concatenate, maximum, multiply, pad, reverse, slice_, subtract, transpose
from deepx_graph.types import I32, TensorType, tensor

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.engines.kernel_engine import KernelEngine
from deepx_graph.runtime.engines.native_engine import NativeEngine


def nodes_run(text: str) -> list[str]:
    """The operations that the native engine runs one by one, with how, in order."""
    engine = NativeEngine(1)
    function = engine.canonicalize(dx.optimize(dx.loads(text)).entry, apart=True)
    run = [n for n in function.nodes if n.inputs and not n.op.view]
    for node in run:
        engine.kernel(node)
    return [f"{n.op.name}: {engine.lowering(n)}" for n in run]


def function_text(params: str, body: str, result: str) -> str:
    return f"func.func @main({params}) -> {result} {{\n{body}\n}}"


def part(name: str, x: str, type: str, rows: tuple[int, int], columns: tuple[int, int]) -> str:
    """A slice of a matrix."""
    shape = f"{rows[1] - rows[0]}x{columns[1] - columns[0]}"
    return (f"  %{name} = stablehlo.slice %{x} [{rows[0]}:{rows[1]}, {columns[0]}:{columns[1]}]"
            f" : (tensor<{type}>) -> tensor<{shape}xf32>")


STENCIL = function_text("%x: tensor<32x40xf32>", "\n".join([
    part("n", "x", "32x40xf32", (0, 30), (1, 39)), part("s", "x", "32x40xf32", (2, 32), (1, 39)),
    part("w", "x", "32x40xf32", (1, 31), (0, 38)), part("e", "x", "32x40xf32", (1, 31), (2, 40)),
    part("m", "x", "32x40xf32", (1, 31), (1, 39)),
    "  %a = stablehlo.add %n, %s : tensor<30x38xf32>", "  %b = stablehlo.add %w, %e : tensor<30x38xf32>",
    "  %c = stablehlo.add %a, %b : tensor<30x38xf32>", "  %d = stablehlo.subtract %c, %m : tensor<30x38xf32>",
    "  return %d : tensor<30x38xf32>"]), "tensor<30x38xf32>")  # fmt: skip

ELEMENTWISE = function_text("%x: tensor<50xf32>, %y: tensor<50xf32>", """  %a = stablehlo.add %x, %y : tensor<50xf32>
  %b = stablehlo.multiply %a, %y : tensor<50xf32>
  return %b : tensor<50xf32>""", "tensor<50xf32>")


def test_a_stencil_of_five_points_is_one_kernel() -> None:
    assert nodes_run(STENCIL) == ["fusion: machine code of loops"]
    x = np.random.default_rng(0).random((32, 40), np.float32)
    (found,) = dx.compile(dx.loads(STENCIL), engine="native")(x)
    sums = (x[:-2, 1:-1] + x[2:, 1:-1]) + (x[1:-1, :-2] + x[1:-1, 2:])
    np.testing.assert_array_equal(found, sums - x[1:-1, 1:-1])


def rolled(x: str, name: str, by: int) -> str:
    """A vector of 5000 elements, moved around by some."""
    n = 5000
    return (f"  %{name}0 = stablehlo.slice %{x} [{by}:{n}] : (tensor<{n}xf32>) -> tensor<{n - by}xf32>\n"
            f"  %{name}1 = stablehlo.slice %{x} [0:{by}] : (tensor<{n}xf32>) -> tensor<{by}xf32>\n"
            f"  %{name} = stablehlo.concatenate %{name}0, %{name}1, dim = 0"
            f" : (tensor<{n - by}xf32>, tensor<{by}xf32>) -> tensor<{n}xf32>")


def test_a_kernel_that_keeps_values_of_its_own_reads_others_where_they_are() -> None:
    """A vector is made of neighbours and divided by the largest: the sums are in memory, once, and no neighbours are."""
    text = function_text("%x: tensor<5000xf32>", "\n".join([
        rolled("x", "a", 1), rolled("x", "b", 7), "  %s = stablehlo.add %a, %b : tensor<5000xf32>",
        "  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>",
        "  %m = stablehlo.reduce(%s init: %l) applies stablehlo.maximum across dimensions = [0]"
        " : (tensor<5000xf32>, tensor<f32>) -> tensor<f32>",
        "  %w = stablehlo.broadcast_in_dim %m, dims = [] : (tensor<f32>) -> tensor<5000xf32>",
        "  %d = stablehlo.divide %s, %w : tensor<5000xf32>", "  return %d : tensor<5000xf32>"]), "tensor<5000xf32>")
    assert nodes_run(text) == ["fusion: machine code of loops"]
    compiled = dx.compile(dx.loads(text), engine="native")
    x = np.random.default_rng(0).random(5000, np.float32)
    sums = np.roll(x, -1) + np.roll(x, -7)
    np.testing.assert_array_equal(compiled(x)[0], sums / sums.max())
    assert compiled.plan.peak_bytes < 2 * x.nbytes


def test_rows_that_are_read_at_several_places_stay_in_a_cache() -> None:
    """A separable filter: sums of three rows, and of three neighbours of these; nothing but its result is in memory."""
    rows, columns = 300, 250
    wide, tall = f"{rows}x{columns + 2}", f"{rows + 2}x{columns + 2}"
    text = function_text(f"%x: tensor<{tall}xf32>", "\n".join([
        f"  %e = stablehlo.negate %x : tensor<{tall}xf32>",
        *(part(f"r{k}", "e", f"{tall}xf32", (k, rows + k), (0, columns + 2)) for k in range(3)),
        f"  %a = stablehlo.add %r0, %r1 : tensor<{wide}xf32>", f"  %s = stablehlo.add %a, %r2 : tensor<{wide}xf32>",
        f"  %t = stablehlo.sqrt %s : tensor<{wide}xf32>",
        *(part(f"c{k}", "t", f"{wide}xf32", (0, rows), (k, columns + k)) for k in range(3)),
        f"  %b = stablehlo.add %c0, %c1 : tensor<{rows}x{columns}xf32>",
        f"  %d = stablehlo.add %b, %c2 : tensor<{rows}x{columns}xf32>",
        f"  return %d : tensor<{rows}x{columns}xf32>"]), f"tensor<{rows}x{columns}xf32>")
    compiled = dx.compile(dx.loads(text), engine="native")
    x = -np.random.default_rng(0).random((rows + 2, columns + 2), np.float32)
    s = np.sqrt((-x[:-2] - x[1:-1]) - x[2:])
    np.testing.assert_array_equal(compiled(x)[0], (s[:, :-2] + s[:, 1:-1]) + s[:, 2:])
    assert compiled.plan.peak_bytes == 4 * rows * columns


def test_what_moves_nothing_keeps_its_kernel() -> None:
    assert nodes_run(ELEMENTWISE) == ["fusion: machine code of loops"]


def test_a_value_that_costs_much_and_is_read_often_is_a_kernel_of_its_own() -> None:
    """The exponential is read by two slices."""
    text = function_text("%x: tensor<100xf32>", """  %e = stablehlo.exponential %x : tensor<100xf32>
  %a = stablehlo.slice %e [0:99] : (tensor<100xf32>) -> tensor<99xf32>
  %b = stablehlo.slice %e [1:100] : (tensor<100xf32>) -> tensor<99xf32>
  %c = stablehlo.add %a, %b : tensor<99xf32>
  return %c : tensor<99xf32>""", "tensor<99xf32>")
    assert [s.split(":")[0] for s in nodes_run(text)] == ["exponential", "fusion"]


def test_a_loop_takes_nothing_in_that_is_computed_once() -> None:
    """What is joined before the loop stays there, and what is read in it is read from memory."""
    text = function_text("%x: tensor<64xf32>, %n: tensor<i32>", """  %e = stablehlo.sine %x : tensor<64xf32>
  %r = stablehlo.reverse %e, dims = [0] : tensor<64xf32>
  %j = stablehlo.concatenate %r, %e, dim = 0 : (tensor<64xf32>, tensor<64xf32>) -> tensor<128xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<64xf32>
  %end:2 = stablehlo.while(%i = %zero, %s = %start) : tensor<i32>, tensor<64xf32>
  cond {
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %p = stablehlo.slice %j [32:96] : (tensor<128xf32>) -> tensor<64xf32>
    %q = stablehlo.reverse %s, dims = [0] : tensor<64xf32>
    %u = stablehlo.add %p, %q : tensor<64xf32>
    %k = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %k, %u : tensor<i32>, tensor<64xf32>
  }
  return %end#1 : tensor<64xf32>""", "tensor<64xf32>")
    x = np.random.default_rng(0).random(64, np.float32)
    function = dx.compile(dx.loads(text), engine="native")
    for n in (0, 1, 4):
        joined, s = np.concatenate([np.sin(x)[::-1], np.sin(x)]), np.zeros(64, np.float32)
        for _ in range(n):
            s = joined[32:96] + s[::-1]
        np.testing.assert_allclose(function(x, np.int32(n))[0], s, rtol=1e-6)


class _Moves:
    """Random programs of integers that move elements of matrices and combine those of equal shapes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.b = rng, Builder()
        self.values: list[Node] = []

    def module(self) -> Module:
        shapes = [(self.rng.randint(1, 20), self.rng.randint(1, 30)) for _ in range(2)]
        self.values = [self.b.param(k, tensor(I32, s)) for k, s in enumerate(shapes)]
        params = tuple(self.values)
        for _ in range(self.rng.randint(3, 14)):
            self.values.append(self.step())
        results = (self.values[-1], *self.rng.sample(self.values, self.rng.randint(0, 2)))
        return Module((Function("main", params, results),))

    def step(self) -> Node:
        x = self.rng.choice(self.values[-4:])
        make = self.rng.choice([self.combined] * 4 + [self.cut, self.padded, self.rolled, self.turned, self.joined])
        return make(x, shape_of(x))

    def combined(self, x: Node, shape: tuple[int, int]) -> Node:
        same = [v for v in self.values if shape_of(v) == shape]
        return self.b(self.rng.choice([add, subtract, multiply, maximum]), x, self.rng.choice(same))

    def cut(self, x: Node, shape: tuple[int, int]) -> Node:
        low = tuple(self.rng.randint(0, n // 2) for n in shape)
        high = tuple(self.rng.randint(a + 1, n) for a, n in zip(low, shape, strict=True))
        steps = tuple(self.rng.choice([1, 1, 2]) for _ in shape)
        return self.b(slice_, x, start_indices=low, limit_indices=high, strides=steps)

    def padded(self, x: Node, shape: tuple[int, int]) -> Node:
        low, high = (tuple(self.rng.randint(-(n // 3), 4) for n in shape) for _ in range(2))
        interior = tuple(self.rng.choice([0, 0, 1]) for _ in shape)
        value = self.b.constant(np.int32(7))
        return self.b(pad, x, value, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)

    def rolled(self, x: Node, shape: tuple[int, int]) -> Node:
        axis = self.rng.randint(0, 1)
        at = [0, 0]
        at[axis] = self.rng.randint(0, shape[axis] - 1)
        end = list(shape)
        end[axis] = at[axis]
        parts = [self.b(slice_, x, start_indices=tuple(at), limit_indices=shape, strides=(1, 1))]
        if at[axis]:
            parts.append(self.b(slice_, x, start_indices=(0, 0), limit_indices=tuple(end), strides=(1, 1)))
        return self.b(concatenate, *parts, dimension=axis)

    def turned(self, x: Node, shape: tuple[int, int]) -> Node:
        if self.rng.random() < 0.5:
            return self.b(reverse, x, dimensions=(self.rng.randint(0, 1),))
        return self.b(transpose, x, permutation=(1, 0))

    def joined(self, x: Node, shape: tuple[int, int]) -> Node:
        return self.b(concatenate, x, x, dimension=self.rng.randint(0, 1))


def shape_of(node: Node) -> tuple[int, int]:
    assert isinstance(node.type, TensorType)
    rows, columns = node.type.shape
    return rows, columns


@pytest.mark.parametrize("seed", range(24))
def test_fused_programs_give_what_unfused_ones_give(seed: int) -> None:
    rng = random.Random(seed)
    module = _Moves(rng).module()
    values = np.random.default_rng(seed)
    arrays = [values.integers(-9, 9, p.type.shape, np.int32) for p in module.entry.params]  # type: ignore[attr-defined]
    expected = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    found = dx.compile(module, engine="native", threads=2)(*arrays)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_engine_without_machine_code_fuses_nothing() -> None:
    function = dx.optimize(dx.loads(STENCIL)).entry
    assert KernelEngine.canonicalize(NativeEngine(1), function).nodes == function.nodes


def test_a_result_that_is_moved_is_written_where_it_is_given() -> None:
    """Not made first and then copied: channels that come first are a few elements apart."""
    text = function_text("%x: tensor<2x64x64x3xf32>", """  %e = stablehlo.exponential %x : tensor<2x64x64x3xf32>
  %r = stablehlo.reverse %e, dims = [2] : tensor<2x64x64x3xf32>
  %t = stablehlo.transpose %r, dims = [0, 3, 1, 2] : (tensor<2x64x64x3xf32>) -> tensor<2x3x64x64xf32>
  return %t : tensor<2x3x64x64xf32>""", "tensor<2x3x64x64xf32>")
    assert nodes_run(text) == ["fusion: machine code of loops"]
    x = np.random.default_rng(0).random((2, 64, 64, 3), np.float32)
    (found,) = dx.compile(dx.loads(text), engine="native")(x)
    np.testing.assert_allclose(found, np.exp(x)[:, :, ::-1].transpose(0, 3, 1, 2), rtol=1e-6)


def test_a_scatter_computes_what_it_reads_once() -> None:
    """Its indices, counts and zeros are never in memory."""
    text = function_text("%p: tensor<50000xi32>", """  %c = stablehlo.constant dense<0> : tensor<50000xi32>
  %n = stablehlo.constant dense<50000> : tensor<50000xi32>
  %i = stablehlo.iota dim = 0 : tensor<50000xi32>
  %b = stablehlo.compare LT, %p, %c, SIGNED : (tensor<50000xi32>, tensor<50000xi32>) -> tensor<50000xi1>
  %a = stablehlo.add %p, %n : tensor<50000xi32>
  %s = stablehlo.select %b, %a, %p : tensor<50000xi1>, tensor<50000xi32>
  %at = stablehlo.reshape %s : (tensor<50000xi32>) -> tensor<50000x1xi32>
  %r = "stablehlo.scatter"(%c, %at, %i) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    stablehlo.return %y : tensor<i32>
  }) : (tensor<50000xi32>, tensor<50000x1xi32>, tensor<50000xi32>) -> tensor<50000xi32>
  return %r : tensor<50000xi32>""", "tensor<50000xi32>")
    assert nodes_run(text) == ["fusion: machine code of loops"]
    order = np.random.default_rng(0).permutation(50000).astype(np.int32)
    (found,) = dx.compile(dx.loads(text), engine="native")(np.where(order % 3, order, order - 50000).astype(np.int32))
    np.testing.assert_array_equal(found, np.argsort(order))


def test_a_scatter_into_one_number_reads_no_table_of_it() -> None:
    text = """func.func @main(%i: tensor<400x1xi32>, %u: tensor<400x8xf32>) -> tensor<50x8xf32> {
  %c = stablehlo.constant dense<1.5> : tensor<50x8xf32>
  %r = "stablehlo.scatter"(%c, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<50x8xf32>, tensor<400x1xi32>, tensor<400x8xf32>) -> tensor<50x8xf32>
  return %r : tensor<50x8xf32>
}"""
    rng = np.random.default_rng(0)
    i, u = rng.integers(0, 60, (400, 1)).astype("i4"), rng.standard_normal((400, 8)).astype("f4")
    step = dx.compile(dx.loads(text), engine="native")
    expected = np.full((50, 8), 1.5, "f4")
    np.maximum.at(expected, i[i[:, 0] < 50, 0], u[i[:, 0] < 50])
    np.testing.assert_array_equal(step(i, u)[0], expected)
    (kernel,) = (n for n in step.lowered.entry.nodes if n.inputs)
    assert [k.op.name for k in kernel.inputs] == ["param", "param"]


@pytest.mark.parametrize("divisor", [-(2**31), -7, -1, 0, 1, 10, 64, 2**31 - 1])
@pytest.mark.parametrize("name", ["divide", "remainder"])
def test_a_division_by_one_number_knows_it(name: str, divisor: int) -> None:
    """Its kernel is no division then, and has one operand; that by 0 is -1, and leaves all."""
    text = function_text("%x: tensor<1000xi32>", f"""  %c = stablehlo.constant dense<{divisor}> : tensor<1000xi32>
  %q = stablehlo.{name} %x, %c : tensor<1000xi32>
  return %q : tensor<1000xi32>""", "tensor<1000xi32>")
    if divisor != 1 or name == "remainder":
        assert nodes_run(text) == ["fusion: machine code of loops"]
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 1000).astype(np.int32)
    x[:4] = -(2**31), 2**31 - 1, 0, divisor
    wide = x.astype(np.int64)
    quotient = np.sign(wide) * np.sign(divisor) * (abs(wide) // max(1, abs(divisor))) if divisor else np.full(1000, -1)
    expected = quotient if name == "divide" else wide - quotient * divisor
    np.testing.assert_array_equal(dx.compile(dx.loads(text), engine="native")(x)[0], expected.astype(np.int32))


def test_a_search_for_the_nearest_computes_distances_where_it_reads_them() -> None:
    text = function_text("%x: tensor<90x8xf32>, %y: tensor<20x8xf32>", """
  %i = stablehlo.iota dim = 1 : tensor<90x20xi32>
  %a = stablehlo.slice %x [0:90, 3:4] : (tensor<90x8xf32>) -> tensor<90x1xf32>
  %b = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<90x1xf32>) -> tensor<90x20xf32>
  %c = stablehlo.slice %y [0:20, 3:4] : (tensor<20x8xf32>) -> tensor<20x1xf32>
  %d = stablehlo.broadcast_in_dim %c, dims = [1, 0] : (tensor<20x1xf32>) -> tensor<90x20xf32>
  %e = stablehlo.subtract %b, %d : tensor<90x20xf32>
  %f = stablehlo.abs %e : tensor<90x20xf32>
  %most = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.reduce(%f init: %most), (%i init: %zero) across dimensions = [1]
    : (tensor<90x20xf32>, tensor<90x20xi32>, tensor<f32>, tensor<i32>) -> (tensor<90xf32>, tensor<90xi32>)
   reducer(%p: tensor<f32>, %q: tensor<f32>) (%m: tensor<i32>, %n: tensor<i32>) {
    %less = stablehlo.compare LT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %value = stablehlo.select %less, %p, %q : tensor<i1>, tensor<f32>
    %place = stablehlo.select %less, %m, %n : tensor<i1>, tensor<i32>
    stablehlo.return %value, %place : tensor<f32>, tensor<i32>
  }
  return %r#1 : tensor<90xi32>""", "tensor<90xi32>")
    assert [s.split(":")[0] for s in nodes_run(text)] == ["fusion", "proj"]
    x, y = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((90, 8), (20, 8)))
    (found,) = dx.compile(dx.loads(text), engine="native")(x, y)
    np.testing.assert_array_equal(found, np.abs(x[:, 3:4] - y[:, 3]).argmin(1))


def test_of_a_value_of_which_a_part_is_read_only_that_is_computed() -> None:
    """The product that reads the slice is a kernel of its own, and the outer product is nowhere in memory."""
    text = function_text("%x: tensor<2000x1xf32>, %y: tensor<1x2000xf32>, %w: tensor<500x40xf32>", """
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<2000x1xf32>) -> tensor<2000x2000xf32>
  %b = stablehlo.broadcast_in_dim %y, dims = [0, 1] : (tensor<1x2000xf32>) -> tensor<2000x2000xf32>
  %c = stablehlo.multiply %a, %b : tensor<2000x2000xf32>
  %d = stablehlo.slice %c [0:40, 0:2000:4] : (tensor<2000x2000xf32>) -> tensor<40x500xf32>
  %e = stablehlo.dot_general %d, %w, contracting_dims = [1] x [0] : (tensor<40x500xf32>, tensor<500x40xf32>) -> tensor<40x40xf32>
  return %e : tensor<40x40xf32>""", "tensor<40x40xf32>")
    compiled = dx.compile(dx.loads(text), engine="native")
    assert compiled.plan.peak_bytes < 1 << 20
    rng = np.random.default_rng(0)
    x, y, w = (rng.standard_normal(s).astype(np.float32) for s in ((2000, 1), (1, 2000), (500, 40)))
    np.testing.assert_allclose(compiled(x, y, w)[0], (x * y)[:40, ::4] @ w, rtol=1e-4, atol=1e-4)


def test_a_scatter_takes_in_what_is_made_of_its_array_by_way_of_memory() -> None:
    """Fields that are updated in turns, each by slopes of the other: two kernels."""
    update = """  %%%s = "stablehlo.scatter"(%%%s, %%at, %%%s) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}> ({
  ^bb0(%%u: tensor<f32>, %%v: tensor<f32>):
    %%w = stablehlo.add %%u, %%v : tensor<f32>
    stablehlo.return %%w : tensor<f32>
  }) : (tensor<500xf32>, tensor<1xi32>, tensor<499xf32>) -> tensor<500xf32>"""

    def slope(name: str, x: str) -> str:
        return f"""  %{name}a = stablehlo.slice %{x} [1:500] : (tensor<500xf32>) -> tensor<499xf32>
  %{name}b = stablehlo.slice %{x} [0:499] : (tensor<500xf32>) -> tensor<499xf32>
  %{name} = stablehlo.subtract %{name}a, %{name}b : tensor<499xf32>"""

    text = function_text("%e: tensor<500xf32>, %h: tensor<500xf32>", "\n".join([
        "  %at = stablehlo.constant dense<1> : tensor<1xi32>", slope("d", "e"), update % ("h1", "h", "d"),
        slope("c", "h1"), update % ("e1", "e", "c"), "  return %h1, %e1 : tensor<500xf32>, tensor<500xf32>"]),
        "(tensor<500xf32>, tensor<500xf32>)")  # fmt: skip
    assert nodes_run(text) == ["fusion: machine code of loops"] * 2
    e, h = np.random.default_rng(0).standard_normal((2, 500)).astype(np.float32)
    h1 = h.copy()
    h1[1:] += np.diff(e)
    e1 = e.copy()
    e1[1:] += np.diff(h1)
    for found, wanted in zip(dx.compile(dx.loads(text), engine="native")(e, h), (h1, e1), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_scatter_takes_in_what_is_made_of_values_that_others_read_too() -> None:
    """The slope of a result, which is made of the array that is updated: it is in memory before, so the update is one kernel."""
    text = function_text("%e: tensor<500xf32>, %h: tensor<499xf32>", """  %at = stablehlo.constant dense<1> : tensor<1xi32>
  %b = stablehlo.slice %e [1:500] : (tensor<500xf32>) -> tensor<499xf32>
  %a = stablehlo.slice %e [0:499] : (tensor<500xf32>) -> tensor<499xf32>
  %d = stablehlo.subtract %b, %a : tensor<499xf32>
  %f = stablehlo.add %h, %d : tensor<499xf32>
  %i = stablehlo.slice %f [1:499] : (tensor<499xf32>) -> tensor<498xf32>
  %j = stablehlo.slice %f [0:498] : (tensor<499xf32>) -> tensor<498xf32>
  %k = stablehlo.subtract %i, %j : tensor<498xf32>
  %r = "stablehlo.scatter"(%e, %at, %k) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}> ({
  ^bb0(%u: tensor<f32>, %v: tensor<f32>):
    %w = stablehlo.add %u, %v : tensor<f32>
    stablehlo.return %w : tensor<f32>
  }) : (tensor<500xf32>, tensor<1xi32>, tensor<498xf32>) -> tensor<500xf32>
  return %f, %r : tensor<499xf32>, tensor<500xf32>""", "(tensor<499xf32>, tensor<500xf32>)")
    assert nodes_run(text) == ["fusion: machine code of loops"] * 2
    rng = np.random.default_rng(0)
    e, h = rng.standard_normal(500).astype(np.float32), rng.standard_normal(499).astype(np.float32)
    f, r = h + np.diff(e), e.copy()
    r[1:-1] += np.diff(f)
    for found, wanted in zip(dx.compile(dx.loads(text), engine="native")(e, h), (f, r), strict=True):
        np.testing.assert_array_equal(found, wanted)


SUMS = {
    "rows that are gathered": ("""  %r = stablehlo.reshape %i : (tensor<900xi32>) -> tensor<900x1xi32>
  %m = "stablehlo.gather"(%x, %r) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 32>}>
    : (tensor<900x32xi32>, tensor<900x1xi32>) -> tensor<900x32xi32>""", lambda x, i: x[i].sum(0)),
    "bits that are counted": ("""  %m = stablehlo.popcnt %x : tensor<900x32xi32>""", lambda x, i: np.bitwise_count(x).sum(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_reads_elements_where_they_come_from(name: str) -> None:
    """Operations that no kernel of elementwise operations has, and that a sum alone reads: nothing of them is in memory."""
    lines, meaning = SUMS[name]
    text = function_text("%x: tensor<900x32xi32>, %i: tensor<900xi32>", f"""{lines}
  %z = stablehlo.constant dense<0> : tensor<i32>
  %s = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<900x32xi32>, tensor<i32>) -> tensor<32xi32>
  return %s : tensor<32xi32>""", "tensor<32xi32>")
    assert nodes_run(text) == ["fusion: machine code of loops"]
    rng = np.random.default_rng(0)
    x, i = rng.integers(0, 1 << 20, (900, 32)).astype(np.int32), rng.integers(0, 900, 900).astype(np.int32)
    f = dx.compile(dx.loads(text), engine="native")
    np.testing.assert_array_equal(f(x, i)[0], meaning(x, i))
    assert f.plan.peak_bytes < x.nbytes / 2


ROWS = """func.func @main(%x: tensor<500x32xf32>, %i: tensor<900xi32>) -> tensor<900x32xf32> {
  %n = stablehlo.constant dense<500> : tensor<900xi32>
  %z = stablehlo.constant dense<0> : tensor<900xi32>
  %m = stablehlo.add %i, %n : tensor<900xi32>
  %l = stablehlo.compare LT, %i, %z : (tensor<900xi32>, tensor<900xi32>) -> tensor<900xi1>
  %s = stablehlo.select %l, %m, %i : tensor<900xi1>, tensor<900xi32>
  %r = stablehlo.reshape %s : (tensor<900xi32>) -> tensor<900x1xi32>
  %g = "stablehlo.gather"(%x, %r) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 32>}>
    : (tensor<500x32xf32>, tensor<900x1xi32>) -> tensor<900x32xf32>
  return %g : tensor<900x32xf32>
}"""


def test_positions_of_rows_are_computed_once_a_row_where_they_are_read() -> None:
    assert nodes_run(ROWS) == ["fusion: machine code of loops"]
    f = dx.compile(dx.loads(ROWS), engine="native")
    rng = np.random.default_rng(0)
    x, i = rng.random((500, 32), np.float32), rng.integers(-500, 500, 900, np.int32)
    np.testing.assert_array_equal(f(x, i)[0], x[i])
    assert f.plan.peak_bytes == 900 * 32 * 4, "the result alone"


def test_what_is_looked_up_in_memory_does_not_keep_what_it_is_made_of_apart() -> None:
    """A sum by segments is read at positions; what its updates are joined from is not."""
    text = """func.func @main(%x: tensor<400xf32>, %y: tensor<400xf32>, %i: tensor<800x1xi32>) -> tensor<800xf32> {
      %a = stablehlo.reverse %x, dims = [0] : tensor<400xf32>
      %u = stablehlo.concatenate %a, %y, dim = 0 : (tensor<400xf32>, tensor<400xf32>) -> tensor<800xf32>
      %z = stablehlo.constant dense<0.0> : tensor<50xf32>
      %s = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %t = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %t : tensor<f32>
      }) : (tensor<50xf32>, tensor<800x1xi32>, tensor<800xf32>) -> tensor<50xf32>
      %g = "stablehlo.gather"(%s, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
        index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<50xf32>, tensor<800x1xi32>) -> tensor<800xf32>
      return %g : tensor<800xf32>
    }"""
    assert len(nodes_run(text)) == 2, "a scatter of what is joined, and a gather"
    rng = np.random.default_rng(0)
    x, y, i = *rng.random((2, 400), np.float32), rng.integers(0, 50, (800, 1), np.int32)
    sums = np.bincount(i[:, 0], np.concatenate([x[::-1], y]), 50)
    np.testing.assert_allclose(dx.compile(dx.loads(text), engine="native")(x, y, i)[0], sums[i[:, 0]], rtol=1e-5)


@pytest.mark.parametrize(("rows", "run"), [(4, ["fusion", "exponential"]), (60, ["concatenate", "fusion"])])
def test_of_what_is_put_together_few_elements_are_read_where_their_parts_are(rows: int, run: list[str]) -> None:
    """They ask of which part each of them is; of many that takes longer than to put the parts together."""
    text = function_text(f"%x: tensor<90x50xf32>, %y: tensor<10x50xf32>, %i: tensor<{rows}x1xi32>", f"""
  %c = stablehlo.concatenate %x, %y, dim = 0 : (tensor<90x50xf32>, tensor<10x50xf32>) -> tensor<100x50xf32>
  %g = "stablehlo.gather"(%c, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 50>}}>
    : (tensor<100x50xf32>, tensor<{rows}x1xi32>) -> tensor<{rows}x50xf32>
  %e = stablehlo.exponential %g : tensor<{rows}x50xf32>
  return %e : tensor<{rows}x50xf32>""", f"tensor<{rows}x50xf32>")
    assert [name.split(":")[0] for name in nodes_run(text)] == run
    rng = np.random.default_rng(rows)
    x, y = rng.random((90, 50), np.float32), rng.random((10, 50), np.float32)
    i = rng.integers(0, 100, (rows, 1)).astype("i4")
    (found,) = dx.compile(dx.loads(text), engine="native")(x, y, i)
    np.testing.assert_allclose(found, np.exp(np.concatenate([x, y])[i[:, 0]]), rtol=1e-6)


def test_what_is_in_no_cache_is_made_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forces between all pairs of points: the distances are a matrix, which is read as one of three axes."""
    n = 300
    text = function_text(f"%x: tensor<{n}x3xf32>, %m: tensor<{n}xf32>", f"""
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<{n}x{n}xf32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<{n}x3xf32>) -> tensor<{n}x{n}x3xf32>
  %b = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<{n}x3xf32>) -> tensor<{n}x{n}x3xf32>
  %d = stablehlo.subtract %a, %b : tensor<{n}x{n}x3xf32>
  %s = stablehlo.multiply %d, %d : tensor<{n}x{n}x3xf32>
  %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<{n}x{n}x3xf32>, tensor<f32>) -> tensor<{n}x{n}xf32>
  %t = stablehlo.add %r, %one : tensor<{n}x{n}xf32>
  %u = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<{n}x{n}xf32>) -> tensor<{n}x{n}x1xf32>
  %k = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<{n}xf32>) -> tensor<{n}x{n}x1xf32>
  %g = stablehlo.divide %k, %u : tensor<{n}x{n}x1xf32>
  %v = stablehlo.broadcast_in_dim %g, dims = [0, 1, 2] : (tensor<{n}x{n}x1xf32>) -> tensor<{n}x{n}x3xf32>
  %q = stablehlo.multiply %d, %v : tensor<{n}x{n}x3xf32>
  %f = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<{n}x{n}x3xf32>, tensor<f32>) -> tensor<{n}x3xf32>
  return %f : tensor<{n}x3xf32>""", f"tensor<{n}x3xf32>")
    assert len(nodes_run(text)) > 1
    monkeypatch.setattr("deepx_graph.rewrite.subscript_fusion.FAR", n * n)
    assert len(nodes_run(text)) == 1
    rng = np.random.default_rng(0)
    x, m = rng.random((n, 3), np.float32), rng.random(n, np.float32)
    d = x[:, None] - x
    wanted = (d * (m / ((d * d).sum(-1) + 1))[..., None]).sum(1)
    np.testing.assert_allclose(dx.compile(dx.loads(text), engine="native")(x, m)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [40, 64])
def test_positions_put_together_before_a_loop_are_read_there_where_they_lie(n: int) -> None:
    """A loop that gathers at the same places in each iteration: rows and columns are in memory, and not once more as pairs."""
    square = f"{n}x{n}"
    gather = f"""<{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1],
      index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}}>
      : (tensor<{square}xf32>, tensor<{square}x2xi32>) -> tensor<{square}xf32>"""
    text = function_text(f"%x: tensor<{square}xf32>, %i: tensor<{square}xi32>, %j: tensor<{square}xi32>", f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %times = stablehlo.constant dense<3> : tensor<i32>
  %last = stablehlo.constant dense<{n - 1}> : tensor<{square}xi32>
  %row = stablehlo.subtract %last, %i : tensor<{square}xi32>
  %column = stablehlo.subtract %last, %j : tensor<{square}xi32>
  %a = stablehlo.reshape %row : (tensor<{square}xi32>) -> tensor<{square}x1xi32>
  %b = stablehlo.reshape %column : (tensor<{square}xi32>) -> tensor<{square}x1xi32>
  %at = stablehlo.concatenate %a, %b, dim = 2 : (tensor<{square}x1xi32>, tensor<{square}x1xi32>) -> tensor<{square}x2xi32>
  %to = stablehlo.concatenate %b, %a, dim = 2 : (tensor<{square}x1xi32>, tensor<{square}x1xi32>) -> tensor<{square}x2xi32>
  %r:2 = stablehlo.while(%k = %zero, %y = %x) : tensor<i32>, tensor<{square}xf32>
   cond {{
    %more = stablehlo.compare LT, %k, %times, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %next = stablehlo.add %k, %one : tensor<i32>
    %here = "stablehlo.gather"(%y, %at) {gather}
    %there = "stablehlo.gather"(%y, %to) {gather}
    %sum = stablehlo.add %here, %there : tensor<{square}xf32>
    stablehlo.return %next, %sum : tensor<i32>, tensor<{square}xf32>
  }}
  return %r#1 : tensor<{square}xf32>""", f"tensor<{square}xf32>")
    f = dx.compile(dx.loads(text), engine="native", threads=1)
    rng = np.random.default_rng(0)
    x, i, j = rng.random((n, n), np.float32), *rng.integers(0, n, (2, n, n), np.int32)
    want = x
    for _ in range(3):
        want = want[n - 1 - i, n - 1 - j] + want[n - 1 - j, n - 1 - i]
    np.testing.assert_array_equal(f(x, i, j)[0], want)
    assert f.plan.peak_bytes < (4 + 1) * 4 * n * n, "two of positions, two that change places, and little more"


BOXES = function_text("%t: tensor<6x40xi32>, %s: tensor<6x40xi32>, %x: tensor<6x16xi32>, %i: tensor<i32>, %j: tensor<i32>", """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %p = stablehlo.dynamic_slice %t, %zero, %read, sizes = [6, 16] : (T, I, I) -> X
  %q = stablehlo.dynamic_slice %s, %zero, %i, sizes = [6, 16] : (T, I, I) -> X
  %y = stablehlo.multiply %x, %x : X
  %r = moved : X
  %a = stablehlo.add %r, %y : X
  %b = stablehlo.subtract %q, %y : X
  %u = stablehlo.dynamic_update_slice %t, %a, %zero, %i : (T, X, I, I) -> T
  %v = stablehlo.dynamic_update_slice %s, %b, %zero, %i : (T, X, I, I) -> T
  return %u, %v : T, T""", "(T, T)").replace("X", "tensor<6x16xi32>").replace("T", "tensor<6x40xi32>").replace("I", "tensor<i32>")


@pytest.mark.parametrize("moved", ["stablehlo.negate %p", "stablehlo.reverse %p, dims = [1]"])
@pytest.mark.parametrize("read", ["i", "j"])
@pytest.mark.parametrize("at", [-3, 0, 11, 24, 90])
def test_what_is_added_to_a_box_is_one_kernel_with_its_update(read: str, moved: str, at: int) -> None:
    """It is done in the array's own memory; not so where other places of the array are read. Boxes are moved inside."""
    text = BOXES.replace("%read", f"%{read}").replace("moved", moved)
    if read == "i" and "negate" in moved:
        assert nodes_run(text) == ["fusion: machine code of loops"] * 2
    rng = np.random.default_rng(0)
    t, s = (rng.integers(-9, 9, (6, 40), np.int32) for _ in range(2))
    x = rng.integers(-9, 9, (6, 16), np.int32)
    i, j = (min(max(k, 0), 24) for k in (at, at - 5))
    box = t[:, (i if read == "i" else j):][:, :16]
    expected = [t.copy(), s.copy()]
    expected[0][:, i : i + 16] = (-box if "negate" in moved else box[:, ::-1]) + x * x
    expected[1][:, i : i + 16] -= x * x
    args = (t, s, x, np.int32(at), np.int32(at - 5))
    run = dx.compile(dx.loads(text), engine="native")
    for given in ((), ("t", "s")):
        found = run(*(a.copy() for a in args), donate=given)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_what_a_result_and_a_sum_of_it_are_made_of_is_not_kept() -> None:
    """Positions of two hashes that have a number in common: the result is there to be added up, so that they are computed once."""
    text = function_text("%x: tensor<5000xui32>, %t: tensor<64xf32>", """
  %m = stablehlo.constant dense<2654435761> : tensor<5000xui32>
  %n = stablehlo.constant dense<73244475> : tensor<5000xui32>
  %s = stablehlo.constant dense<15> : tensor<5000xui32>
  %k = stablehlo.constant dense<26> : tensor<5000xui32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.multiply %x, %m : tensor<5000xui32>
  %b = stablehlo.shift_right_logical %a, %s : tensor<5000xui32>
  %c = stablehlo.xor %a, %b : tensor<5000xui32>
  %d = stablehlo.multiply %c, %n : tensor<5000xui32>
  %e = stablehlo.shift_right_logical %d, %s : tensor<5000xui32>
  %f = stablehlo.xor %d, %e : tensor<5000xui32>
  %g = stablehlo.shift_right_logical %f, %k : tensor<5000xui32>
  %h = stablehlo.multiply %f, %m : tensor<5000xui32>
  %i = stablehlo.shift_right_logical %h, %k : tensor<5000xui32>
  %p = "stablehlo.torch_index_select"(%t, %g) <{dim = 0 : i64, batch_dims = 0 : i64}> : (T, X) -> Y
  %q = "stablehlo.torch_index_select"(%t, %i) <{dim = 0 : i64, batch_dims = 0 : i64}> : (T, X) -> Y
  %r = stablehlo.multiply %p, %q : tensor<5000xf32>
  %u = stablehlo.reduce(%r init: %zero) applies stablehlo.add across dimensions = [0] : (Y, tensor<f32>) -> tensor<f32>
  return %r, %u : Y, tensor<f32>""", "(Y, tensor<f32>)")
    text = text.replace("T,", "tensor<64xf32>,").replace("X)", "tensor<5000xui32>)").replace("Y", "tensor<5000xf32>")
    assert [n for n in nodes_run(text) if not n.startswith("proj")] == ["fusion: machine code of loops"]
    rng = np.random.default_rng(0)
    x, t = rng.integers(0, 1 << 32, 5000, np.uint32), rng.random(64, np.float32)
    c = x * np.uint32(2654435761)
    d = (c ^ (c >> 15)) * np.uint32(73244475)
    f = d ^ (d >> 15)
    expected = t[f >> 26] * t[(f * np.uint32(2654435761)) >> 26]
    found, total = dx.compile(dx.loads(text), engine="native")(x, t)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(total, expected.sum(dtype=np.float64), rtol=1e-5)
