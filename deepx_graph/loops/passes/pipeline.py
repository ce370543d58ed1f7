"""The passes that every loop program goes through before it becomes code."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.loops.in_place import temporaries_in_results
from deepx_graph.loops.passes.flatten_loops import flatten_loops
from deepx_graph.loops.passes.forward_stores import forward_stores, propagate_copies, without_dead_stores
from deepx_graph.loops.passes.fuse_loops import fuse_loops
from deepx_graph.loops.passes.split_folds import split_folds
from deepx_graph.loops.passes.split_guards import split_guards
from deepx_graph.loops.passes.tile_transposes import pack_columns, tile_transposes
from deepx_graph.loops.passes.vectorise_across import vectorise_across
from deepx_graph.loops.program import LoopProgram

PASSES: tuple[Callable[[LoopProgram], LoopProgram], ...] = (
    propagate_copies, without_dead_stores, fuse_loops, split_guards, forward_stores, vectorise_across, split_folds, fuse_loops,
    pack_columns, forward_stores, flatten_loops, tile_transposes, temporaries_in_results)
"""All passes, in order."""


def optimised(program: LoopProgram) -> LoopProgram:
    """The program after all passes, which change it in place."""
    for apply in PASSES:
        program = apply(program)
    return program
