"""Damaged HLO and StableHLO texts: whatever is cut, doubled or put in, a reader answers with a program or with a diagnostic."""

from __future__ import annotations

import random

import pytest

from deepx_graph.errors import DeepxGraphError
from deepx_graph.session import programs
from tests.support.stablehlo_suite import ADD
from tests.support.xla_texts import CONVOLUTION, LOOP, REDUCE

PIECES = [*"{}()[]<>\"%#,=:\x1b", "-1", "99999999999", "tensor<", "f32[", "0x"]


def damaged(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
        text = rng.choice([
            text[:at] + text[at + rng.randint(1, 20) :],
            text[:at] + rng.choice(PIECES) + text[at:],
            text[:at] + text[other : other + 30] + text[at:],
            text[:at] + rng.choice("0123456789abxyz{}()") + text[at + 1 :],
        ])  # fmt: skip
    return text


@pytest.mark.parametrize(("text", "format"), [(LOOP, "hlo"), (CONVOLUTION, "hlo"), (ADD, "stablehlo"), (REDUCE, "stablehlo")])
def test_damage_is_a_diagnostic(text: str, format: str) -> None:
    programs.loads(text, format)
    rng = random.Random(text)
    refused = 0
    for _ in range(2000):
        broken = damaged(rng, text)
        try:
            programs.loads(broken, format)
        except DeepxGraphError as e:
            refused += bool(e.diagnostics[0].message)
        except Exception as e:
            raise AssertionError(f"{type(e).__name__} on:\n{broken}") from e
    assert refused > 500
