"""Where programs come from: each number is a program, the same one each time, of one of several generators in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session import programs
from deepx_graph.session.fuzzing.control_programs import control_program
from deepx_graph.session.fuzzing.index_programs import index_program
from deepx_graph.session.fuzzing.mutation import mutated
from deepx_graph.types import TensorType
from deepx_graph.validation.programs import RandomProgram, random_program
from deepx_graph.validation.samples import drawn_array, ordinary, positions, special, ties

GENERATORS: dict[str, Callable[[int], RandomProgram]] = {
    "operations": random_program, "indices": index_program, "control": control_program,
}  # fmt: skip
"""By kind: every operation with its samples; operations that move elements; branches, loops and effects."""

MUTANT = "mutant"

DRAWS = (ordinary, positions, ties, special)
"""What inputs of mutants are: no extremes, as whether a sum of these overflows is a matter of its order."""

MOST_NODES, MOST_ELEMENTS = 300, 1 << 16
"""A file of more operations, or with a larger value, has no mutants: they take too long."""


@dataclass(frozen=True)
class Sources:
    """All generators, and mutants of files where there are any."""

    files: tuple[str, ...] = ()

    def kind(self, number: int) -> str:
        """What the program of a number is made by."""
        kinds = (*GENERATORS, *([MUTANT] if self.files else []))
        return kinds[number % len(kinds)]

    def program(self, number: int) -> RandomProgram:
        """The program of a number. Raises as reading a file does."""
        kind = self.kind(number)
        seed = number // (len(GENERATORS) + bool(self.files))
        if kind != MUTANT:
            return GENERATORS[kind](seed)
        module = mutated(_read(self.files[seed % len(self.files)]), seed)
        draw, inputs = DRAWS[seed % len(DRAWS)], dict[str, Array]()
        for k, port in enumerate(input_ports(module.entry)):
            assert isinstance(port.type, TensorType)
            inputs[port.name] = drawn_array(port.type, draw, np.random.default_rng([seed, k]))
        return RandomProgram(module, inputs)


def mutable(paths: Sequence[Path]) -> Sources:
    """The sources with the mutants of those files that can have some: of known and small types."""
    return Sources(tuple(str(p) for p in paths if _can_be_mutated(str(p))))


def _can_be_mutated(path: str) -> bool:
    try:
        module = _read(path)
    except DeepxGraphError:
        return False
    types = [n.type for f in module.functions for n in f.nodes]
    ports = input_ports(module.entry)
    is_small = all(not isinstance(t, TensorType) or (t.is_static and t.size <= MOST_ELEMENTS) for t in types)
    return is_small and len(types) <= MOST_NODES and all(isinstance(p.type, TensorType) for p in ports)


@cache
def _read(path: str) -> Module:
    return programs.load(Path(path)).module
