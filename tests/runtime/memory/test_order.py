"""The order of a whole program's instructions: what ends more memory than it makes runs as soon as it can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.lowering import bytecode
from deepx_graph.lowering.bytecode import Instruction, Jump, Move, Return, Run
from deepx_graph.runtime.memory.order import StorageAccess, StorageBytes, blocks, ordered

SIDE, THIN = 64, 4
PRODUCTS = f"""
HloModule products
ENTRY e {{
  x = f32[{SIDE},{SIDE}]{{1,0}} parameter(0)
  v = f32[{SIDE},{THIN}]{{1,0}} parameter(1)
  a = f32[{SIDE},{SIDE}]{{1,0}} dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = f32[{SIDE},{SIDE}]{{1,0}} dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  c = f32[{SIDE},{SIDE}]{{1,0}} dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  p = f32[{SIDE},{THIN}]{{1,0}} dot(a, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  q = f32[{SIDE},{THIN}]{{1,0}} dot(b, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[{SIDE},{THIN}]{{1,0}} dot(c, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[{SIDE},{THIN}]{{1,0}}, f32[{SIDE},{THIN}]{{1,0}}, f32[{SIDE},{THIN}]{{1,0}}) tuple(p, q, r)
}}
"""


def test_products_of_which_little_is_made_share_memory() -> None:
    """Three large products, each read by a thin one: no two of them are there at once."""
    function = dx.compile(dx.loads(PRODUCTS), engine="native")
    rng = np.random.default_rng(0)
    x, v = (rng.standard_normal((SIDE, n)).astype(np.float32) for n in (SIDE, THIN))
    for found, product in zip(function(x, v), (x @ x, x.T @ x, x @ x.T), strict=True):
        np.testing.assert_allclose(found, product @ v, rtol=1e-3, atol=1e-3)
    results, large = 3 * v.nbytes, x.nbytes
    assert function.plan.peak_bytes < results + 2 * large


def run(number: int) -> Run:
    return Run(None, number, ())  # type: ignore[arg-type]  # no block looks at the node


def access(read: Sequence[int], made: Sequence[int], scratch: int = 0, over: Sequence[int] = ()) -> StorageAccess:
    return StorageAccess(frozenset(read), frozenset(made), scratch, frozenset(over))


def test_blocks_end_at_jumps_and_where_code_jumps_to() -> None:
    condition = bytecode.Test(None, 0, to=6)  # type: ignore[arg-type]
    code: list[Instruction] = [run(0), run(1), condition, run(2), run(3), Jump(1), run(4), Move(), run(5), Return(())]
    assert blocks(code) == [range(1), range(1, 2), range(3, 5), range(6, 7), range(8, 9)]


def most(block: Sequence[StorageAccess], order: Sequence[int], sizes: Sequence[int], kept: set[int]) -> int:
    """The most bytes there before or behind an instruction, value by value: it is there from where it is made, or from the begin of
    the block, to where it is read for the last time, or to its end."""
    made = {s for a in block for s in a.made}
    step = {k: at for at, k in enumerate(order)}
    total = [0] * (len(block) + 1)
    for s, size in enumerate(sizes):
        first = min((step[k] + 1 for k, a in enumerate(block) if s in a.made), default=0)
        last = max((step[k] for k, a in enumerate(block) if s in a.read), default=first if s in made else -1)
        for at in range(first, len(block) + 1 if s in kept else last + 1):
            total[at] += size
    return max(total)


@pytest.mark.parametrize("seed", range(40))
def test_an_order_keeps_what_is_read_before_it_and_takes_no_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, given = int(rng.integers(2, 14)), 3
    reads = [rng.choice(given + k, min(given + k, int(rng.integers(1, 4))), replace=False).tolist() for k in range(count)]
    block = [access(read, [given + k]) for k, read in enumerate(reads)]
    sizes = [0, *(1 + rng.permutation(100)[: given + count - 1]).tolist()]  # no two alike, so none is taken to lie over another
    kept = set(rng.choice(given + count, 2, replace=False).tolist())
    order = ordered(block, StorageBytes(sizes, sum(1 << s for s in kept)))
    assert sorted(order) == list(range(count))
    assert most(block, order, sizes, kept) <= most(block, range(count), sizes, kept)
    there = set(range(given))
    for k in order:
        assert block[k].read <= there
        there |= block[k].made


def test_what_ends_two_values_does_not_wait() -> None:
    """Two values, 4 bytes each, of which a sum of one byte is made: before the two next ones, not behind them."""
    block = [*(access([0], [k]) for k in range(1, 5)), access([1, 2], [5]), access([3, 4], [6]), access([5, 6], [7])]
    sizes, kept = [0, 4, 4, 4, 4, 1, 1, 1], {7}
    order = ordered(block, StorageBytes(sizes, 1 << 7))
    assert order == [0, 1, 4, 2, 3, 5, 6]
    assert most(block, range(7), sizes, kept) == 16 and most(block, order, sizes, kept) == 9


def test_the_given_order_stays_where_another_takes_as_much() -> None:
    block = [access([0], [1]), access([0], [2]), access([1], [3])]
    assert list(ordered(block, StorageBytes([8, 1, 8, 0], 0b1110))) == [0, 1, 2]


def test_what_has_scratch_memory_waits_until_there_is_room() -> None:
    """The last one could run when value 6 is there, and end 4 bytes; but it has 16 for itself, and value 5 ends first."""
    block = [access([0], [1]), access([0], [2]), access([1], [3]), access([2], [4]), access([0], [6]), access([0], [5, 7]),
             access([5], [8]), access([6, 7], [9], scratch=16)]
    sizes, kept = [0, 20, 20, 1, 1, 8, 4, 1, 1, 1], 1 << 3 | 1 << 4 | 1 << 8 | 1 << 9
    assert list(ordered(block, StorageBytes(sizes, kept))) == [0, 2, 1, 3, 4, 5, 6, 7]


def test_what_may_be_written_over_an_argument_waits_for_others_that_read_it() -> None:
    """0 is an argument, 1 ends with the result 3 that may lie over it; 2 is read with it, too."""
    sizes = [0, 100, 10, 50, 10]
    block = [access([], [1]), access([0], [2]), access([0, 2], [4]), access([0, 1], [3], over=[0])]
    assert list(ordered(block, StorageBytes(sizes, 1 << 3 | 1 << 4))) == [0, 1, 2, 3]
    freely = [*block[:3], access([0, 1], [3])]
    assert list(ordered(freely, StorageBytes(sizes, 1 << 3 | 1 << 4))) == [0, 3, 1, 2]
