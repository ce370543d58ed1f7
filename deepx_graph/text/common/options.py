"""What every reader takes and gives: `ReadOptions`, with the bounds of hostile input, and `ReadResult`.

Bounds are checked before the memory they guard is used. Nothing here knows a language.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepx_graph.errors import Diagnostic
from deepx_graph.ir import Module
from deepx_graph.literal import Literal


@dataclass(frozen=True)
class ReadOptions:
    """How to read, and how much a text may ask for."""

    broadcast: bool = False
    """Elementwise operands of different shapes are broadcast as numpy does, where the language is stricter."""
    weights: str = "constants"
    """What the weights that a file holds become: `constants`, or `inputs` of the entry."""
    max_nodes: int = 5_000_000
    max_rank: int = 32
    max_depth: int = 100
    """Nesting of brackets, types and functions within functions."""
    max_file_bytes: int = 1 << 28
    data_root: Path | None = None
    """The folder of the tensors that a program loads: where it is given, reading takes their types from it."""


@dataclass(frozen=True)
class Recorded:
    """What a file tells of a run of its program: the values that it was run on, by partition, and what came out, leaf by leaf."""

    arguments: tuple[tuple[Literal, ...], ...]
    results: tuple[Literal, ...] = ()
    platform: str = ""


@dataclass(frozen=True)
class ReadResult:
    """A module that was read, and what its reader put up with."""

    module: Module
    warnings: tuple[Diagnostic, ...] = ()
    recorded: Recorded | None = None
