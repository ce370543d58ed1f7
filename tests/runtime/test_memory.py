"""Memory of results: inputs given away, what is kept from call to call, and that nothing grows."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, broadcast_in_dim, fusion, multiply, reduction, subtract, tanh
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.memory.pool import RESULTS, BufferPool
from deepx_graph.types import F32, tensor

N = 300_000
STEP = f"""
HloModule m
ENTRY e {{
  w = f32[{N}]{{0}} parameter(0)
  v = f32[{N}]{{0}} parameter(1)
  g = f32[{N}]{{0}} parameter(2)
  c = f32[] constant(0.5)
  h = f32[{N}]{{0}} broadcast(c), dimensions={{}}
  a = f32[{N}]{{0}} multiply(v, h)
  b = f32[{N}]{{0}} add(a, g)
  d = f32[{N}]{{0}} multiply(b, h)
  u = f32[{N}]{{0}} subtract(w, d)
  ROOT r = (f32[{N}]{{0}}, f32[{N}]{{0}}) tuple(u, b)
}}
"""
ONE = f"""
HloModule m
ENTRY e {{
  w = f32[{N}]{{0}} parameter(0)
  g = f32[{N}]{{0}} parameter(1)
  a = f32[{N}]{{0}} multiply(g, g)
  ROOT u = f32[{N}]{{0}} subtract(w, a)
}}
"""
LOOP = f"""
HloModule m
cond {{
  p = (s32[], f32[{N}]{{0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(%d)
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], f32[{N}]{{0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[{N}]{{0}} get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[{N}]{{0}} multiply(x, x)
  z = f32[{N}]{{0}} subtract(y, x)
  ROOT r = (s32[], f32[{N}]{{0}}) tuple(j, z)
}}
ENTRY e {{
  x = f32[{N}]{{0}} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[{N}]{{0}}) tuple(z, x)
  w = (s32[], f32[{N}]{{0}}) while(t), condition=cond, body=body
  ROOT o = f32[{N}]{{0}} get-tuple-element(w), index=1
}}
"""
ENGINES = ["numexpr", pytest.param("native", marks=pytest.mark.skipif(not has_native(), reason="llvmlite is not installed"))]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the blocks that are newly made for results."""
    sizes: list[int] = []
    new = BufferPool._new

    def counted(self: BufferPool, size: int) -> np.ndarray:
        sizes.append(size)
        return new(self, size)

    monkeypatch.setattr(BufferPool, "_new", counted)
    gc.collect()
    RESULTS.clear()
    yield sizes
    RESULTS.clear()


def _inputs(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.random(N, dtype=np.float32) for _ in range(count)]


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _of_tensors(made: list[int]) -> list[int]:
    """What was made for whole tensors: the numexpr engine takes smaller memory for temporaries of a block of them."""
    return [nbytes for nbytes in made if nbytes >= 4 * N]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_takes_the_memory_of_an_input_given_away(engine: str, made: list[int]) -> None:
    f = dx.compile(dx.loads(ONE), engine=engine)
    w, g = _inputs(2)
    wanted, kept, where = w - g * g, g.copy(), _address(w)
    (u,) = f(w, g, donate=["w"])
    assert _address(u) == where and _of_tensors(made) == []
    np.testing.assert_allclose(u, wanted, rtol=1e-6)
    np.testing.assert_array_equal(g, kept)
    (again,) = f(g=g, w=u, donate=["w"])
    assert _address(again) == where
    np.testing.assert_allclose(again, wanted - g * g, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_inputs_are_given_away_beside_what_has_no_operand(engine: str) -> None:
    text = """func.func @main(%a: tensor<60000xf32>) -> tensor<60000xf32> {
      %k = stablehlo.iota dim = 0 : tensor<60000xf32>
      %y = stablehlo.add %a, %k : tensor<60000xf32>
      return %y : tensor<60000xf32>
    }"""
    (found,) = dx.compile(dx.loads(text), engine=engine, optimize=False)(np.ones(60000, np.float32), donate=["a"])
    np.testing.assert_array_equal(found, np.arange(1, 60001, dtype=np.float32))


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_every_state_of_a_training_step_is_updated_in_place(made: list[int]) -> None:
    f = dx.compile(dx.loads(STEP), engine="native")
    w, v, g = _inputs(3)
    wanted_v = v * np.float32(0.5) + g
    wanted_w, places = w - wanted_v * np.float32(0.5), {_address(w), _address(v)}
    new_w, new_v = f(w, v, g, donate=["w", "v"])
    assert {_address(new_w), _address(new_v)} == places and made == []
    np.testing.assert_allclose(new_w, wanted_w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_v, wanted_v, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_that_another_input_shares_is_not_written(engine: str) -> None:
    f = dx.compile(dx.loads(ONE), engine=engine)
    (w,) = _inputs(1)
    kept = w.copy()
    (u,) = f(w, w, donate=["w"])
    np.testing.assert_array_equal(w, kept)
    np.testing.assert_allclose(u, w - w * w, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_array_given_away_becomes_one_result(engine: str) -> None:
    """Also where a kernel of two results is given it twice."""
    b, vector = Builder(), tensor(F32, (N,))
    both = b.function("both", [("p", vector), ("q", vector)], lambda p, q: [b(add, p, q), b(subtract, b(multiply, p, q), p)],
                      public=False)
    fused = dx.Module((b.function("main", [("w", vector)], lambda w: b.items(b(fusion, w, w, body=both))),))
    f = dx.compile(fused, engine=engine, optimize=False)
    for _ in range(2):
        (w,) = _inputs(1)
        want = w + w, w * w - w
        for found, wanted in zip(f(w, donate=["w"]), want, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_array_that_may_not_be_written_stays(engine: str) -> None:
    f = dx.compile(dx.loads(ONE), engine=engine)
    w, g = _inputs(2)
    w.flags.writeable = False
    (u,) = f(w, g, donate=["w"])
    np.testing.assert_allclose(u, w - g * g, rtol=1e-6)


def test_an_input_is_given_away_by_its_name() -> None:
    f = dx.compile(dx.loads(ONE), optimize=False)
    with pytest.raises(dx.RunError, match=r"no input 'weights' to give away"):
        f(*_inputs(2), donate=["weights"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_call_makes_no_new_memory(engine: str, made: list[int]) -> None:
    """On one thread: how many take temporaries at once is the machine's to say, and a later call may be the first where two do."""
    f = dx.compile(dx.loads(STEP), engine=engine, threads=1)
    args = _inputs(3)
    f(*args)
    before = len(made)
    assert len(_of_tensors(made)) == 2, "one block for each result"
    for _ in range(3):
        f(*args)
    assert len(made) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_goes_back_and_forth_between_two_blocks(engine: str, made: list[int]) -> None:
    (x,) = _inputs(1)
    counts = []
    for iterations in (3, 40):
        made.clear()
        RESULTS.clear()
        dx.compile(dx.loads(LOOP % iterations), engine=engine)(x)
        counts.append(len(_of_tensors(made)))
    assert counts[0] == counts[1] <= 3


def test_kept_memory_is_reported_and_released(made: list[int]) -> None:
    f = dx.compile(dx.loads(ONE))
    held = f(*_inputs(2))
    use = dx.memory()
    assert use.in_use >= 4 * N and use.free == 0 and use.limit >= use.in_use
    del held
    assert dx.memory().in_use == 0 and dx.memory().free == use.in_use
    assert dx.memory(free=True) == type(use)(0, 0, use.limit)


def _declined(*args: object) -> None:
    raise Declined("kernels are called one by one")


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("allowed", [0, 40_000, 16 << 20])
def test_kernels_of_a_program_keep_no_more_than_they_may(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of two columns by sums, each of another size, so that each is a kernel of its own with temporaries of its own."""
    monkeypatch.setattr("deepx_graph.runtime.engines.native_engine.KEPT_BYTES", allowed)
    b, f32 = Builder(), [tensor(F32, (100 + k, 40)) for k in range(8)]

    def body(*xs: Node) -> list[Node]:
        sums = [reduction(b, add, x, (1,)) for x in xs]
        return [b(multiply, x, b(broadcast_in_dim, b(tanh, s), shape=x.type.shape, broadcast_dimensions=(0,)))
                for x, s in zip(xs, sums, strict=True)]

    module = dx.optimize(Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(f32)], body),)))
    monkeypatch.setattr("deepx_graph.runtime.engines.native_engine.as_kernel", _declined)
    monkeypatch.setattr("deepx_graph.runtime.engines.native_engine.clustered", lambda function, *_: function)
    f, args = dx.compile(module, engine="native", threads=1, optimize=False), [np.ones(t.shape, "f4") for t in f32]
    for _ in range(3):
        for x, made in zip(args, f(*args), strict=True):
            np.testing.assert_allclose(made, x * np.float32(np.tanh(40)), rtol=1e-6)
    kernels = {id(k): k for k in f.engine._built.values() if k is not None}.values()
    assert len(kernels) == 8
    kept = [k.workspace_bytes for k in kernels if k.is_kept and k.workspace_bytes]
    assert sum(kept) <= allowed
    assert (len(kept) > 0) == (allowed > 0) or not any(k.workspace_bytes for k in kernels)
    assert all(not k._spare for k in kernels if not k.is_kept)


PIECES = """func.func @main(%w: tensor<3x128x128xf32>) -> (tensor<128x128xf32>, tensor<3x128x128xf32>) {
  %a = stablehlo.slice %w [0:1, 0:128, 0:128] : (tensor<3x128x128xf32>) -> tensor<1x128x128xf32>
  %b = stablehlo.slice %w [2:3, 0:128, 0:128] : (tensor<3x128x128xf32>) -> tensor<1x128x128xf32>
  %x = stablehlo.reshape %a : (tensor<1x128x128xf32>) -> tensor<128x128xf32>
  %y = stablehlo.reshape %b : (tensor<1x128x128xf32>) -> tensor<128x128xf32>
  %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %q = stablehlo.dot_general %p, %y, contracting_dims = [1] x [0]
    : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %s = stablehlo.broadcast_in_dim %q, dims = [1, 2] : (tensor<128x128xf32>) -> tensor<3x128x128xf32>
  %r = stablehlo.add %w, %s : tensor<3x128x128xf32>
  return %q, %r : tensor<128x128xf32>, tensor<3x128x128xf32>
}"""


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_an_argument_that_is_given_away_is_there_until_its_pieces_are_read() -> None:
    w = np.random.default_rng(0).normal(size=(3, 128, 128)).astype(np.float32) / 8
    product = w[0] @ w[2] @ w[2]
    results = dx.compile(dx.loads(PIECES), engine="native")(w.copy(), donate=["w"])
    for found, expected in zip(results, (product, w + product), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def _step_after_products(rows: int) -> str:
    """A matrix that is read last where it is updated, after two products of `rows` rows by 256 columns, one of the other."""
    return f"""func.func @main(%w: tensor<256x256xf32>, %g: tensor<{rows}x256xf32>) -> tensor<256x256xf32> {{
      %p = stablehlo.dot_general %g, %w, contracting_dims = [1] x [0]
        : (tensor<{rows}x256xf32>, tensor<256x256xf32>) -> tensor<{rows}x256xf32>
      %q = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0]
        : (tensor<{rows}x256xf32>, tensor<256x256xf32>) -> tensor<{rows}x256xf32>
      %s = stablehlo.slice %q [0:1, 0:256] : (tensor<{rows}x256xf32>) -> tensor<1x256xf32>
      %t = stablehlo.reshape %s : (tensor<1x256xf32>) -> tensor<256xf32>
      %u = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<256xf32>) -> tensor<256x256xf32>
      %r = stablehlo.subtract %w, %u : tensor<256x256xf32>
      return %r : tensor<256x256xf32>
    }}"""


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("rows", [8, 64, 200])
def test_a_result_lies_over_what_is_given_away_where_less_than_it_could_lie_in_the_result(rows: int) -> None:
    """And where nothing is given away, values lie in the result before it is there: calls of both kinds may follow one another."""
    rng = np.random.default_rng(0)
    w, g = (rng.normal(size=(n, 256)).astype(np.float32) / 16 for n in (256, rows))
    f = dx.compile(dx.loads(_step_after_products(rows)), engine="native")
    assert f.plan.peak_bytes < w.nbytes + 2 * g.nbytes
    for call in range(6):
        wanted, where, is_given = w - (g @ w @ w)[0], _address(w), call % 3 != 1
        (found,) = f(w, g, donate=["w"] if is_given else [])
        assert (_address(found) == where) == is_given
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        w = np.array(found)
