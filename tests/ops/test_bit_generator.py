"""Random bits: the known answers of Random123, and XLA's own words for every algorithm, width and shape."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ops.math.bit_generator import philox4x32, threefry2x32
from deepx_graph.runtime.compile import compile
from deepx_graph.text import ReadOptions, hlo, stablehlo
from tests.support import jax_oracle
from tests.support.reference import evaluate

FULL = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
"""Words of pi, as in Random123's file of known answers."""


def words(*values: int) -> Any:
    return tuple(np.array([v], np.uint32) for v in values)


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)), ((FULL, FULL), (FULL, FULL), (0x1CB996FC, 0xBB002BE7)),
     (PI[:2], PI[2:4], (0xC4923A9C, 0x483DF7A0))],
)
def test_threefry_known_answers(counter: Any, key: Any, want: Any) -> None:
    assert [int(w[0]) for w in threefry2x32(words(*key), words(*counter))] == list(want)


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
     ((FULL,) * 4, (FULL, FULL), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
     (PI[:4], PI[4:], (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))],
)
def test_philox_known_answers(counter: Any, key: Any, want: Any) -> None:
    assert [int(w[0]) for w in philox4x32(key, words(*counter))] == list(want)


# --- XLA's order of elements: (algorithm, state, shape, type) to (state after, first elements), as jaxlib 0.10 computed them

NEAR_END = 2**64 - 2
LONGER = (7, NEAR_END, 2**64 - 1)
STORED = [
    ("THREE_FRY", (7, NEAR_END), "", "ui64", (7, 2**64 - 1), [11623698188067921303]),
    ("THREE_FRY", (7, NEAR_END), "3x", "ui64", (7, 1), [11623698188067921303, 6868590399942727175, 13563526760692328810]),
    ("THREE_FRY", (7, NEAR_END), "3x", "ui32", (7, 0), [3290684823, 2706353130, 3493762567]),
    ("THREE_FRY", (7, NEAR_END), "5x3x", "ui32", (7, 7), [3290684823, 3493762567, 3901892970]),
    ("THREE_FRY", (7, NEAR_END), "3x5x7x", "ui16", (7, 58), [56727, 44010, 38407]),
    ("THREE_FRY", (7, NEAR_END), "4x2x3x", "ui8", (7, 10), [151, 7, 106]),
    ("THREE_FRY", (7, NEAR_END), "3x", "ui4", (7, 0), [7, 10, 7]),
    ("PHILOX", (7, NEAR_END), "3x", "ui64", (7, 0), [7737797851250693273, 37151234922317839, 12582623120030231089]),
    ("PHILOX", LONGER, "5x3x", "ui32", (7, 2, 0), [660720218, 515718778, 289299272]),
    ("DEFAULT", LONGER, "3x5x7x", "ui8", (7, 25, 0), [90, 122, 72]),
    ("DEFAULT", (7, NEAR_END), "3x", "ui16", (7, NEAR_END + 1), [5273, 11814, 2063]),
]  # fmt: skip


def program(algorithm: str, count: int, shape: str, element: str) -> str:
    state, bits = f"tensor<{count}xui64>", f"tensor<{shape}{element}>"
    return (f"func.func @main(%s: {state}) -> ({state}, {bits}) {{\n"
            f"  %a, %b = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({state}) -> ({state}, {bits})\n"
            f"  return %a, %b : {state}, {bits}\n}}")


def run(text: str, state: Any) -> list[Any]:
    return evaluate(stablehlo.read(Source("t.mlir", text), ReadOptions()).module, [state])


@pytest.mark.parametrize(("algorithm", "state", "shape", "element", "after", "first"), STORED)
def test_what_xla_draws(algorithm: str, state: Any, shape: str, element: str, after: Any, first: list[int]) -> None:
    new, drawn = run(program(algorithm, len(state), shape, element), np.array(state, np.uint64))
    assert tuple(new.tolist()) == after
    assert [int(x) for x in drawn.reshape(-1)[: len(first)]] == first


HLO = """HloModule m
ENTRY main {
  s = u64[2]{0} parameter(0)
  ROOT r = (u64[2]{0}, u32[2,3]{1,0}) rng-bit-generator(s), algorithm=rng_three_fry
}
"""


def test_hlo_reads_and_prints_it() -> None:
    module = hlo.read(Source("t.hlo", HLO), ReadOptions()).module
    assert "rng-bit-generator(s), algorithm=rng_three_fry" in hlo.write(module)
    _, drawn = evaluate(module, [np.array([7, NEAR_END], np.uint64)])
    np.testing.assert_array_equal(drawn, run(program("THREE_FRY", 2, "2x3x", "ui32"), np.array([7, NEAR_END], np.uint64))[1])


def test_stablehlo_prints_what_it_reads() -> None:
    module = stablehlo.read(Source("t.mlir", program("PHILOX", 3, "2x", "f32")), ReadOptions()).module
    text = stablehlo.write(module)
    assert "rng_algorithm = #stablehlo<rng_algorithm PHILOX>" in text
    assert stablehlo.read(Source("u.mlir", text), ReadOptions()).module.entry == module.entry


def test_a_state_of_another_size_is_refused() -> None:
    with pytest.raises(DeepxGraphError, match=r"the state of THREE_FRY is a u64\[3\]"):
        run(program("THREE_FRY", 3, "2x", "ui32"), np.zeros(3, np.uint64))


needs_xla = pytest.mark.skipif(jax_oracle.VARIABLE not in os.environ, reason=f"{jax_oracle.VARIABLE} names no Python with jaxlib")


@needs_xla
@pytest.mark.conformance
def test_every_width_and_shape_against_xla() -> None:
    states = {2: np.array([7, NEAR_END], np.uint64), 3: np.array(LONGER, np.uint64)}
    cases = [(a, n, shape, e) for a in ("THREE_FRY", "PHILOX", "DEFAULT") for n in states if (a, n) != ("THREE_FRY", 3)
             for e in ("ui64", "i32", "ui16", "ui8", "ui4", "f32", "bf16")
             for shape in ("", "1x", "3x", "5x3x", "4x2x3x", "3x5x7x", "3x1x6x")]
    texts = {f"{case}": (program(*case), [states[case[1]]]) for case in cases}
    answers = jax_oracle.ask(texts)
    for case in cases:
        want, got = answers[f"{case}"], run(program(*case), states[case[1]])
        assert not isinstance(want, str), want
        for w, g in zip(want, got, strict=True):
            assert np.asarray(w).tobytes() == np.ascontiguousarray(g).tobytes(), case


COUNTER = """HloModule m
body {
  p = (s32[], u64[2]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  s = u64[2]{0} rng-get-and-update-state(), delta=10
  ROOT t = (s32[], u64[2]{0}) tuple(j, s)
}
cond {
  p = (s32[], u64[2]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  a = u64[2]{0} rng-get-and-update-state(), delta=5
  b = u64[2]{0} rng-get-and-update-state(), delta=7
  z = s32[] constant(0)
  k = u64[2]{0} constant({0,0})
  t = (s32[], u64[2]{0}) tuple(z, k)
  w = (s32[], u64[2]{0}) while(t), condition=cond, body=body
  x = u64[2]{0} get-tuple-element(w), index=1
  ROOT r = (u64[2]{0}, u64[2]{0}, u64[2]{0}) tuple(a, b, x)
}
"""


@pytest.mark.parametrize("again", [False, True])
def test_states_count_on_as_they_do_in_xla(again: bool) -> None:
    """As jaxlib gives them: each instruction has a counter, and the loop goes round three times."""
    module = hlo.read(Source("t.hlo", COUNTER), ReadOptions()).module
    if again:
        module = hlo.read(Source("u.hlo", hlo.write(module)), ReadOptions()).module
    assert [x.tolist() for x in compile(module)()] == [[117515157, 0], [117515157, 0], [117515177, 0]]
