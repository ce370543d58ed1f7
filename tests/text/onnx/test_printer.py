"""Programs of other languages as ONNX: what is written means the same when it is read, and what ONNX lacks is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.cli.main import main
from deepx_graph.errors import Source, UsageError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.session import programs
from deepx_graph.text.onnx.printer.model import original
from deepx_graph.types import BOOL, F32, I32, I64, U8, is_static, tensor, type_of_array

RNG = np.random.default_rng(0)


def reals(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def module_of(make: Any, *inputs: Any) -> Module:
    """A program of one function; `make(builder, parameters)` gives its results."""
    b = Builder()
    params = [b.param(k, type_of_array(np.asarray(x)), f"x{k}") for k, x in enumerate(inputs)]
    made = make(b, *params)
    return Module((Function("main", tuple(params), tuple(made) if isinstance(made, (list, tuple)) else (made,)),))


def operators(data: bytes) -> list[str]:
    model = original(Source("m", data=memoryview(data)))
    assert model is not None and model.graph is not None
    return [n.op_type for n in model.graph.nodes]


def check(module: Module, *inputs: Any, rtol: float = 1e-5) -> list[str]:
    """The operators that are written; read back they give the same results."""
    data = programs.encoded(module, "onnx")
    wanted = dx.compile(module, engine="numpy", optimize=False)(*inputs)
    found = dx.compile(dx.loads(data), engine="numpy", optimize=False)(*inputs)
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_allclose(f, w, rtol=rtol, atol=1e-5)
    return operators(data)


def dot(b: Builder, x: Node, y: Node, batch: Any, sums: Any) -> Node:
    return b(ops.dot_general, x, y, lhs_batching_dimensions=batch[0], rhs_batching_dimensions=batch[1],
             lhs_contracting_dimensions=sums[0], rhs_contracting_dimensions=sums[1])  # fmt: skip


@pytest.mark.parametrize(("a", "c", "batch", "sums", "said"), [
    ((2, 3), (3, 4), ((), ()), ((1,), (0,)), ["MatMul"]),
    ((5, 2, 3), (3, 4), ((), ()), ((2,), (0,)), ["MatMul"]),
    ((2, 3), (4, 3), ((), ()), ((1,), (1,)), ["Transpose", "MatMul"]),
    ((3, 2), (3, 4), ((), ()), ((0,), (0,)), ["Transpose", "MatMul"]),
    ((5, 2, 3), (5, 4, 3), ((0,), (0,)), ((2,), (2,)), ["Transpose", "MatMul"]),
    ((2, 5, 3), (3, 4, 5), ((1,), (2,)), ((2,), (0,)), ["Einsum"]),
    ((2, 3, 4), (4, 3), ((), ()), ((1, 2), (1, 0)), ["Einsum"]),
    ((3,), (3,), ((), ()), ((0,), (0,)), ["MatMul"]),
])  # fmt: skip
def test_products(a: Any, c: Any, batch: Any, sums: Any, said: list[str]) -> None:
    x, y = reals(*a), reals(*c)
    assert check(module_of(lambda b, p, q: dot(b, p, q, batch, sums), x, y), x, y) == said


PLAIN_CONV: dict[str, Any] = {
    "window_strides": (1, 1), "padding_low": (0, 0), "padding_high": (0, 0), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
    "window_reversal": (0, 0), "input_batch_dimension": 0, "input_feature_dimension": 1, "input_spatial_dimensions": (2, 3),
    "kernel_output_feature_dimension": 0, "kernel_input_feature_dimension": 1, "kernel_spatial_dimensions": (2, 3),
    "output_batch_dimension": 0, "output_feature_dimension": 1, "output_spatial_dimensions": (2, 3), "feature_group_count": 1,
    "batch_group_count": 1,
}  # fmt: skip


@pytest.mark.parametrize(("x", "w", "changed"), [
    ((1, 2, 5, 6), (4, 2, 3, 2), {}),
    ((1, 2, 5, 6), (4, 2, 3, 2), {"window_strides": (2, 1), "padding_low": (1, 0), "padding_high": (2, 1), "rhs_dilation": (1, 2)}),
    ((1, 4, 5, 6), (6, 2, 3, 2), {"feature_group_count": 2}),
    ((1, 2, 5, 6), (4, 2, 3, 2), {"lhs_dilation": (2, 3), "window_reversal": (1, 0)}),
    ((1, 2, 5, 6), (4, 2, 3, 2), {"padding_low": (-1, 2)}),
    ((4, 2, 5, 6), (4, 2, 3, 2), {"batch_group_count": 2}),
    ((1, 5, 6, 2), (3, 2, 2, 4), {
        "input_feature_dimension": 3, "input_spatial_dimensions": (1, 2), "kernel_output_feature_dimension": 3,
        "kernel_input_feature_dimension": 2, "kernel_spatial_dimensions": (0, 1), "output_feature_dimension": 3,
        "output_spatial_dimensions": (1, 2)}),
])  # fmt: skip
def test_convolutions(x: Any, w: Any, changed: dict[str, Any]) -> None:
    a, k = reals(*x), reals(*w)
    assert "Conv" in check(module_of(lambda b, p, q: b(ops.convolution, p, q, **{**PLAIN_CONV, **changed}), a, k), a, k, rtol=1e-4)


def windows(sizes: Any, strides: Any = None, low: Any = None, high: Any = None, dilations: Any = None) -> dict[str, Any]:
    ones, none = (1,) * len(sizes), (0,) * len(sizes)
    return {"window_dimensions": sizes, "window_strides": strides or ones, "base_dilations": ones,
            "window_dilations": dilations or ones, "padding_low": low or none, "padding_high": high or none}


@pytest.mark.parametrize(("op", "attrs", "said"), [
    (ops.maximum, windows((1, 1, 2, 2), (1, 1, 2, 2)), "MaxPool"),
    (ops.maximum, windows((1, 2, 2, 1), (1, 2, 1, 1), (0, 1, 0, 0)), "MaxPool"),
    (ops.add, windows((1, 1, 2, 3), low=(0, 0, 1, 0), high=(0, 0, 0, 1)), "AveragePool"),
    (ops.add, windows((1, 1, 1, 6), low=(0, 0, 0, 5)), "CumSum"),
    (ops.minimum, windows((1, 1, 2, 2), dilations=(1, 1, 2, 1)), "Slice"),
    (ops.multiply, windows((2, 1, 2, 1), low=(1, 0, 0, 0)), "Slice"),
])  # fmt: skip
def test_windows(op: Any, attrs: dict[str, Any], said: str) -> None:
    x = reals(2, 3, 4, 6)
    made = module_of(lambda b, p: b(ops.reduce_window, p, b.like(op.identity_for(F32), p), body=monoid_body(op, F32), **attrs), x)
    assert said in check(made, x, rtol=1e-4)


@pytest.mark.parametrize("op", [ops.add, ops.maximum, ops.minimum, ops.multiply])
def test_reductions_start_from_what_they_are_given(op: Any) -> None:
    x = reals(2, 3, 4)

    def make(b: Builder, p: Node) -> list[Node]:
        body = monoid_body(op, F32)
        return [b(ops.reduce, p, b.like(op.identity_for(F32), p), dimensions=(0, 2), body=body),
                b(ops.reduce, p, b.like(0.5, p), dimensions=(1,), body=body)]

    check(module_of(make, x), x)


def test_bools_are_reduced_as_numbers() -> None:
    x = RNG.random((3, 4)) < 0.6

    def make(b: Builder, p: Node) -> list[Node]:
        return [b(ops.reduce, p, b.like(op.identity_for(BOOL), p), dimensions=(1,), body=monoid_body(op, BOOL))
                for op in (ops.and_, ops.or_)]

    check(module_of(make, x), x)


def test_a_broadcast_that_only_arithmetic_reads_is_not_written() -> None:
    x, bias, column = reals(2, 3, 4), reals(4), reals(3)

    def make(b: Builder, p: Node, q: Node, r: Node) -> Node:
        wide = b(ops.broadcast_in_dim, q, shape=(2, 3, 4), broadcast_dimensions=(2,))
        other = b(ops.broadcast_in_dim, r, shape=(2, 3, 4), broadcast_dimensions=(1,))
        return b(ops.multiply, b(ops.add, p, wide), other)

    assert check(module_of(make, x, bias, column), x, bias, column) == ["Add", "Reshape", "Mul"]


def test_elements_are_moved() -> None:
    x = reals(2, 3, 4)

    def make(b: Builder, p: Node) -> list[Node]:
        padding = {"edge_padding_low": (1, -1, 0), "edge_padding_high": (0, 2, -1), "interior_padding": (0, 1, 2)}
        return [b(ops.pad, p, b.like(7, p), **padding), b(ops.reverse, p, dimensions=(0, 2)),
                b(ops.slice_, p, start_indices=(0, 1, 0), limit_indices=(2, 3, 4), strides=(1, 1, 3)),
                b(ops.concatenate, p, p, dimension=1), b(ops.iota, dtype=I32, shape=(2, 3), iota_dimension=1),
                b(ops.broadcast_in_dim, b(ops.slice_, p, start_indices=(0, 0, 0), limit_indices=(1, 3, 1), strides=(1, 1, 1)),
                  shape=(3, 5, 2), broadcast_dimensions=(1, 0, 2))]

    check(module_of(make, x), x)


@pytest.mark.parametrize("shape", [(3, 0, 1), (0, 2, 4), (2, 3, 0)])
def test_what_is_empty_is_moved(shape: tuple[int, ...]) -> None:
    """A size of zero in a shape is no size to be copied, as it is in ONNX unless one says so."""
    x = np.zeros(shape, np.int32)

    def make(b: Builder, p: Node) -> list[Node]:
        padding = {"edge_padding_low": (1, 2, 0), "edge_padding_high": (0, 2, 1), "interior_padding": (2, 1, 1)}
        return [b(ops.pad, p, b.like(7, p), **padding), b(ops.reverse, p, dimensions=(0, 2)),
                b(ops.reshape, p, shape=(0, 7)), b(ops.transpose, p, permutation=(2, 0, 1)), b(ops.concatenate, p, p, dimension=0),
                b(ops.broadcast_in_dim, p, shape=(*shape[:1], 2, *shape[1:]), broadcast_dimensions=(0, 2, 3)),
                b(ops.broadcast_in_dim, p, shape=(*shape, 5), broadcast_dimensions=(0, 1, 2)),
                dot(b, p, p, ((0,), (0,)), ((1,), (1,))), dot(b, p, p, ((), ()), ((0, 1, 2), (0, 1, 2)))]

    check(module_of(make, x), x)


def test_what_changes_nothing_is_its_operand() -> None:
    """Its name is not given to the operator before, whose value others read."""
    x = reals(4)

    def make(b: Builder, p: Node) -> list[Node]:
        sine = b(ops.sine, p)
        same = b(ops.slice_, sine, start_indices=(0,), limit_indices=(4,), strides=(1,))
        return [same, b(ops.add, same, sine)]

    check(module_of(make, x), x)


@pytest.mark.parametrize("start", [(0, 1), (5, -3), (1, 2)])
def test_slices_at_computed_places_stay_inside(start: Any) -> None:
    x, part, i, j = reals(4, 5), reals(2, 3), np.int32(start[0]), np.int32(start[1])

    def make(b: Builder, p: Node, q: Node, r: Node, s: Node) -> list[Node]:
        return [b(ops.dynamic_slice, p, r, s, slice_sizes=(2, 3)), b(ops.dynamic_update_slice, p, q, r, s)]

    check(module_of(make, x, part, i, j), x, part, i, j)


def test_slices_at_computed_places_are_read_with_their_types() -> None:
    """Nothing waits for where they begin, so that a loop in which they are stays one and gradients go through them."""
    x, i, j = reals(4, 5), np.int32(1), np.int32(9)
    module = module_of(lambda b, p, r, s: [b(ops.dynamic_slice, p, r, s, slice_sizes=(2, 3))], x, i, j)
    assert dx.loads(dx.dumps(module, "onnx"), "onnx").entry.results[0].type == tensor(F32, (2, 3))


@pytest.mark.parametrize(("low", "high", "static"), [(0, 3, True), (-1, 3, False), (0, 4, False)])
def test_slices_that_may_reach_outside_wait_for_their_places(low: int, high: int, static: bool) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
g (float[5] x, int64[1] i) => (y)
<int64[1] low = {{{low}}}, int64[1] high = {{{high}}}, int64[1] two = {{2}}> {{
  a = Max (i, low)
  start = Min (high, a)
  end = Add (two, start)
  y = Slice (x, start, end)
}}
"""
    module = dx.loads(text, "onnx")
    assert is_static(module.entry.results[0].type) is static
    x = reals(5)
    for i in (-3, 0, 2, 9):
        start = min(max(i, low), high)
        (found,) = dx.compile(module)(x, np.array([i]))
        np.testing.assert_array_equal(found, x[start : start + 2])


@pytest.mark.parametrize("rows", [[[0], [2], [1]], [[5], [-1], [2]]])
def test_rows_are_gathered_and_scattered(rows: Any) -> None:
    """Gathering holds indices inside, scattering leaves out what is not."""
    x, at, new = reals(4, 5), np.array(rows, np.int32), reals(3, 5)

    def make(b: Builder, p: Node, q: Node, r: Node) -> list[Node]:
        taken = b(ops.gather, p, q, offset_dims=(1,), collapsed_slice_dims=(0,), operand_batching_dims=(),
                  start_indices_batching_dims=(), start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, 5))
        put = b(ops.scatter, p, q, r, update_window_dims=(1,), inserted_window_dims=(0,), input_batching_dims=(),
                scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
                update_computation=monoid_body(ops.add, F32))  # fmt: skip
        return [taken, put]

    check(module_of(make, x, at, new), x, at, new)


def test_a_loop_and_branches() -> None:
    x, n, which = reals(3), np.int64(4), np.int32(1)

    def make(b: Builder, p: Node, q: Node, r: Node) -> list[Node]:
        def step(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            i, total = now
            doubled = b(ops.multiply, total, b.like(2, total))
            return b(ops.compare, i, q, direction="LT"), [b(ops.add, i, b.splat(1, type_of_array(n))), b(ops.add, doubled, p)]

        _, end = b.loop([b.constant(0, I64), p], step)
        one, two, three = end, b(ops.negate, p), b(ops.exponential, p)
        (chosen,) = b.branch(r, [one], [two], [three])
        (other,) = b.branch(b(ops.compare, q, b.splat(2, type_of_array(n)), direction="GT"), [chosen], [p])
        return [end, chosen, other]

    for k in (-1, 0, 1, 2, 5):
        check(module_of(make, x, n, which), x, n, np.int32(k))
    check(module_of(make, x, n, which), x, np.int64(0), which)


def test_what_the_test_of_a_loop_reads_in_branches_is_written_in_both_places() -> None:
    """The test is written before the loop and in its body; a loop within a branch of it is made in both."""
    n, which, flag = np.int32(3), np.int32(1), np.bool_(True)

    def make(b: Builder, count: Node, selector: Node, go: Node) -> Node:
        one, zero = b.constant(1, I32), b.constant(0, I32)

        def counted(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            return b(ops.compare, now[0], count, direction="LT"), [b(ops.add, now[0], one), b(ops.not_, now[1])]

        odd = b.loop([zero, go], counted)[1]
        (chosen,) = b.branch(selector, [go], [odd], [b(ops.not_, go)])

        def step(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            return b(ops.and_, chosen, b(ops.compare, now[0], count, direction="LT")), [b(ops.add, now[0], one)]

        return b.loop([zero], step)[0]

    for k in range(3):
        for go in (False, True):
            check(module_of(make, n, which, flag), n, np.int32(k), np.bool_(go))


def test_a_gradient_of_a_model_is_a_model(tmp_path: Path) -> None:
    x, w = reals(2, 3), reals(3, 4)

    def make(b: Builder, p: Node, q: Node) -> Node:
        return b(ops.tanh, dot(b, p, q, ((), ()), ((1,), (0,))))

    (tmp_path / "m.onnx").write_bytes(programs.encoded(module_of(make, x, w), "onnx"))
    assert main(["grad", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "g.onnx")]) == 0
    found = dx.compile(dx.load(tmp_path / "g.onnx"), engine="numpy", optimize=False)
    seed = reals(2, 4)
    given = {p.name: v for p, v in zip(found.inputs, (x, w, seed), strict=True)}
    inner = seed * (1 - np.tanh(x @ w) ** 2)
    gradients = {p.name: v for p, v in zip(found.outputs, found(*given.values()), strict=True)}
    wanted = {2: inner @ w.T, 3: x.T @ inner}
    for value in gradients.values():
        if value.shape in ((2, 3), (3, 4)):
            np.testing.assert_allclose(value, wanted[value.shape[0]], rtol=1e-4, atol=1e-5)


def test_versions() -> None:
    x = reals(2)
    module = module_of(lambda b, p: b(ops.tanh, p), x)
    for version in (18, 21, 28):
        model = original(Source("m", data=memoryview(programs.encoded(module, "onnx", opset=version))))
        assert model is not None and [o.version for o in model.opsets] == [version]
    with pytest.raises(UsageError, match="operator set 9"):
        programs.encoded(module, "onnx", opset=9)


def test_what_onnx_lacks_is_refused_by_name() -> None:
    x = np.eye(3, dtype=np.float32)
    with pytest.raises(VerifyError, match="ONNX: cholesky: there is no such operation") as caught:
        programs.encoded(module_of(lambda b, p: b(ops.negate, b(ops.add, p, b(ops.cholesky, p, lower=True))), x), "onnx")
    assert len(caught.value.diagnostics) == 1, "of what reads it nothing is said"


def test_narrow_constants_are_packed() -> None:
    value = np.arange(5, dtype=np.uint8)
    data = programs.encoded(module_of(lambda b, p: b(ops.add, p, b.constant(value, U8)), value), "onnx")
    assert value.tobytes() in data
