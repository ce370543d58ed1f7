"""Whether two programs are equal as algebra: both run over residues modulo a few primes (`validation/residues.py`)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.double import widened
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import Port, flatten, input_ports
from deepx_graph.types import TensorType
from deepx_graph.validation.residue_engine import ResidueEngine, over_residues
from deepx_graph.validation.residues import PRIMES, PrimeField
from deepx_graph.validation.samples import samples

PREPARED = "inline,unfuse,inline,fold,legalise{target=primitive},fold"
"""What a program goes through first: constants are folded in the program's own types, as whoever made the other may have done."""

DRAWS = 2
"""Sets of residues, and of random functions, for each prime."""


@dataclass(frozen=True)
class AlgebraicEvidence:
    """What residues say of two programs. `equal` is None where they say nothing, and `reason` why."""

    equal: bool | None
    reason: str = ""
    rational: bool = False
    """Whether both programs are rational functions of their inputs, so that unequal residues prove that they are not the same."""

    def __str__(self) -> str:
        if self.equal:
            return f"equal as algebra (modulo {counted(len(PRIMES), 'prime')} near 2^20, {counted(DRAWS, 'draw')} for each)"
        if self.equal is None:
            return f"algebra says nothing: {self.reason}"
        return "not equal as algebra" + ("" if self.rational else ", which proves nothing here: not all is rational functions")


def compare_algebra(a: Module, b: Module, seed: int = 0, max_bytes: int | None = None) -> AlgebraicEvidence:
    """Runs both over residues, the second with the inputs of the first in order. Never raises what a program is to blame for."""
    rational = True
    try:
        wide = [widened(run_pipeline(m, parse_pipeline(PREPARED))) for m in (a, b)]
        for k, prime in enumerate(PRIMES):
            engines = [ResidueEngine(PrimeField(prime)) for _ in wide]
            runs = [compile(over_residues(m, e.field), engine=e, seed=seed, max_bytes=max_bytes, out=io.StringIO())
                    for m, e in zip(wide, engines, strict=True)]
            for draw in range(DRAWS):
                rng = np.random.default_rng([seed, k, draw])
                arrays = list(_residues(input_ports(wide[0].entry), engines[0].field, rng).values())
                outputs = []
                for engine, run in zip(engines, runs, strict=True):
                    engine.begin(draw)
                    outputs.append([np.asarray(x) for x in flatten(run(*arrays))])
                rational = rational and all(e.field.rational for e in engines)
                if any(x.size for x in outputs[0]) and not any(np.isfinite(x).any() for x in outputs[0]):
                    return AlgebraicEvidence(None, "no output is finite")
                if not all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in zip(*outputs, strict=True)):
                    return AlgebraicEvidence(False, "", rational)
    except DeepxGraphError as e:
        return AlgebraicEvidence(None, str(e).splitlines()[0])
    return AlgebraicEvidence(True, "", rational)


def _residues(ports: tuple[Port, ...], field: PrimeField, rng: np.random.Generator) -> Mapping[str, Array]:
    """Random residues for floats, ordinary samples for all else."""
    drawn = samples(ports, 1, int(rng.integers(1 << 30)))[0]
    found: dict[str, Array] = {}
    for port in ports:
        array, type = drawn[port.name], port.type
        if isinstance(type, TensorType) and type.dtype.is_differentiable:
            parts = [rng.integers(-(field.prime // 2), field.prime // 2 + 1, array.shape).astype(np.float64) for _ in range(2)]
            whole: Any = parts[0] if type.dtype.is_float else parts[0] + 1j * parts[1]
            array = np.asarray(whole)
        found[port.name] = array
    return found
