"""Values that nobody reads are not computed: dead code elimination.

A subscript of which nothing is left in the position of the element is none: x[q, 64 i + k - 256 q] of rows of 256 elements is that
at 64 i + k, wherever it is, so that the row q = (64 i + k) / 256 need not be known.
"""

from __future__ import annotations

from deepx_graph.loops.program import (
    Get,
    Let,
    Load,
    LoopProgram,
    Statement,
    Store,
    blocks_of,
    position_in,
    reads,
    variables,
    walk,
)


def without_dead_values(program: LoopProgram) -> LoopProgram:
    """The program without values that nobody reads, in place."""
    for s in walk(program.body):
        if isinstance(s, (Load, Store)) and len(s.index) > 1:
            at = position_in(s.buffer, s.index)
            if len(at.terms) < len(set(variables(s.index))):
                s.index = (at,)
    _drop(program.body, set())
    return program


def _drop(block: list[Statement], read: set[object]) -> None:
    """Drops statements of a block, of whose values `read` are read behind it; adds what is read in it."""
    kept: list[Statement] = []
    for s in reversed(block):
        if isinstance(s, (Let, Load, Get)) and s.target not in read:
            continue
        read.update(reads(s))
        for inner in reversed(blocks_of(s)):
            _drop(inner, read)
        kept.append(s)
    block[:] = kept[::-1]
