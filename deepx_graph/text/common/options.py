"""What every reader takes and gives: `ReadOptions`, with the bounds of hostile input, and `ReadResult`.

Bounds are checked before the memory they guard is used. Nothing here knows a language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    operators: str = "lowered"
    """What the operators of an ONNX model become: `lowered` to operations of ours, or `kept` as they are, to be written back; those
    that follow from constants, or compute again what there is, are left out. They are lowered when the program is run."""
    unregistered: bool = False
    """Operations that StableHLO and CHLO do not have are kept as they stand, as those of foreign dialects are, and not refused."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """How many items the inputs have that are sequences, by name; -1 for an optional input without a value."""
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
class Exported:
    """What a file of `jax.export` says of its program: the version of the calling convention; what it was made for; of each
    argument and result its element type and shape, and the trees of Python that these are leaves of; which arguments it takes.
    """

    name: str
    calling_convention: int
    platforms: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_tree: str
    out_tree: str
    kept: tuple[int, ...]
    jax: str = ""
    vjp: Callable[[], ReadResult] | None = None
    """Reads the derivative that the file has: a program of the arguments and the cotangents of results."""

    def lines(self) -> list[str]:
        """The same as text."""
        by, platforms = f"jax {self.jax}".strip(), ", ".join(self.platforms) or "any platform"
        found = [f"exported by {by} as {self.name} for {platforms}; calling convention {self.calling_convention}",
                 f"  takes {self.in_tree}", f"  gives {self.out_tree}"]
        return [*found, "  its derivative is stored: check-grad --against-vjp compares ours with it"] if self.vjp else found

    def to_json(self) -> dict[str, object]:
        """The same as plain data."""
        return {"name": self.name, "calling_convention": self.calling_convention, "platforms": self.platforms, "jax": self.jax,
                "inputs": self.inputs, "outputs": self.outputs, "in_tree": self.in_tree, "out_tree": self.out_tree,
                "kept": self.kept, "has_vjp": self.vjp is not None}


@dataclass(frozen=True)
class ReadResult:
    """A module that was read, and what its reader put up with."""

    module: Module
    warnings: tuple[Diagnostic, ...] = ()
    recorded: Recorded | None = None
    exported: Exported | None = None
