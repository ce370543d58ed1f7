"""Programs changed at random, as far as they still read: their derivatives are programs, or a diagnostic says why there is none."""

from __future__ import annotations

import contextlib
import random
import re

import pytest

import deepx_graph as dx
from tests.support.grad_functional import PROGRAMS as FUNCTIONAL
from tests.support.grad_programs import PROGRAMS, module

UNKNOWN_ARGUMENT = """sea 1
entry @main
func public @main(%x: f32[2,3], %y: f32[2,3]) -> (%out: f32[2,3]) {
  %r = call %x, %y {callee = "outer", signature = (f32[2,3], any[*]) -> (f32[2,3])} : (f32[2,3])
  %out = proj %r[0] : f32[2,3]
  return %out
}
func @outer(%a: f32[2,3], %b: any[*]) -> (%s: f32[2,3]) {
  %r = call %a, %b {callee = "inner", signature = (f32[2,3], f32[2,3]) -> (f32[2,3])} : (f32[2,3])
  %s = proj %r[0] : f32[2,3]
  return %s
}
func @inner(%p: f32[2,3], %q: f32[2,3]) -> (%t: f32[2,3]) {
  %t = add %p, %q : f32[2,3]
  return %t
}
"""

CONSTANT_OF_UNKNOWN_SIZE = """anf 1
(entry @main)
(define public (@main (%x : f32[3])) -> ((%c : f32[3,4]) (%y : f32[3]))
  (let (%c : f32[3,n] (constant {value = dense<1.0> : f32[3,4]}))
  (let (%y : f32[3] (sine %x))
  (values %c %y))))
"""

TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)


def changed(rng: random.Random, text: str) -> str:
    """Numbers and names exchanged, lines lost, doubled or moved."""
    for _ in range(rng.randint(1, 3)):
        tokens, lines = TOKEN.findall(text), text.split("\n")
        kind, at, other = rng.random(), rng.randrange(len(lines)), rng.randrange(len(lines))
        words = [k for k, t in enumerate(tokens) if (t.isdigit() if kind < 0.3 else t.isidentifier())]
        if kind < 0.7 and words:
            tokens[rng.choice(words)] = rng.choice("0123456789") if kind < 0.3 else tokens[rng.choice(words)]
            text = "".join(tokens)
        else:
            lines[at : at + 1] = rng.choice([[], [lines[other]], [lines[at], lines[other]]])
            text = "\n".join(lines)
    return text


def texts() -> list[str]:
    plain = [dx.dumps(module(body, *types), "sea") for body, types in PROGRAMS.values()]
    return [*plain, *map(str, FUNCTIONAL.values()), UNKNOWN_ARGUMENT]


def derivatives(m: dx.Module) -> int:
    """How many derivatives the program has; anything but a DeepxGraphError comes out."""
    count = 0
    for way in (dx.grad, dx.jvp, dx.hvp, lambda m: dx.grad(m, loop="sqrt")):
        with contextlib.suppress(dx.DeepxGraphError):
            way(m)
            count += 1
    return count


@pytest.mark.parametrize("count", [150, pytest.param(6000, marks=pytest.mark.conformance)])
def test_derivatives_of_changed_programs_exist_or_are_refused(count: int) -> None:
    rng, given, found = random.Random(count), texts(), 0
    for _ in range(count):
        try:
            m = dx.loads(changed(rng, rng.choice(given)))
        except dx.DeepxGraphError:
            continue
        found += derivatives(m)
    assert found > count // 4


def test_an_argument_of_unknown_dtype_is_refused_with_its_location() -> None:
    with pytest.raises(dx.VerifyError, match="is not known before its dtypes are") as error:
        dx.grad(dx.loads(UNKNOWN_ARGUMENT))
    assert error.value.diagnostics[0].span is not None


def test_a_constant_of_unknown_size_has_a_tangent_of_its_size() -> None:
    for derivative in (dx.jvp, dx.grad):
        derivative(dx.loads(CONSTANT_OF_UNKNOWN_SIZE))
