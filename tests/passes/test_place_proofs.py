"""Every rule about places, proved: whatever the sizes, offsets and paddings, each element is the one that it was.

For ranks 1 and 2 here, 3 and 4 among the long suites; of windows, what is asked at each rank is what is asked at rank 1.
Bounded, where products of symbols would come in, which z3 does not decide: strides and gaps are given numbers, windows have 2
positions along each axis, reshapes have whole shapes; each such case says so by its steps or shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    concatenate,
    convert,
    dynamic_slice,
    gather,
    identity,
    iota,
    pad,
    reduce_window,
    reshape,
    reverse,
    slice_,
    transpose,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.passes.rules import data_movement, shape, windows
from deepx_graph.passes.rules.data_movement import MOVES
from deepx_graph.passes.rules.shape import SHAPES
from deepx_graph.passes.rules.windows import WINDOWS
from deepx_graph.rewrite.engine import Rule
from deepx_graph.types import F32, I32, I64

symbolic = pytest.importorskip("tests.support.symbolic", reason="z3 is not installed (the extra 'proofs')")
Scene = Any


@dataclass(frozen=True)
class Case:
    """A rule on programs of one form."""

    rule: Rule
    build: Callable[[Scene], Node]
    steps: tuple[tuple[int, ...], ...] = ((1,),)
    ranks: tuple[int, ...] = (1, 2)
    most: int = 4
    """The highest rank of the long suite."""


def _pair(s: Scene) -> tuple[Node, Node]:
    x = s.tensor()
    return x, s.beside(x)


def _some(s: Scene) -> Node:
    x = s.tensor()
    return s.slice(s.concatenate(x, s.beside(x), s.beside(x)))


def _neighbours(s: Scene) -> Node:
    x = s.tensor()
    return s.concatenate(s.slice(x), s.slice(x))


def _axes(s: Scene) -> tuple[int, ...]:
    return tuple(range(s.rank))


def _turned(s: Scene) -> tuple[int, ...]:
    return (*range(1, s.rank), 0)


def _rolled(s: Scene, x: Node) -> Node:
    return s.b(transpose, x, permutation=_turned(s))


def _padded_twice(s: Scene) -> Node:
    x, y = s.tensor(), s.value()
    return s.pad(s.pad(x, y), y)


def _padded_alike(s: Scene) -> Node:
    x = s.pad(s.tensor(), s.value())
    return s.b(add, x, s.b(pad, s.tensor(symbolic.shape(x.inputs[0])), s.value(), **x.named_attrs))


def _flipped(s: Scene, x: Node) -> Node:
    return s.b(reverse, x, dimensions=_axes(s)[:1])


def _repeated(s: Scene) -> Node:
    """A tensor some of whose axes are of size 1, repeated along one more."""
    x = s.tensor((*s.numbers()[1:], 1))
    return s.b(broadcast_in_dim, x, shape=(*symbolic.shape(x)[:-1], s.number(), s.number()), broadcast_dimensions=_axes(s))


def _window(s: Scene) -> Node:
    x, init = s.tensor(), s.value()
    ones, base = (1,) * s.rank, s.step()
    return s.b(reduce_window, s.pad(x, init, low=0), init, window_dimensions=(2,) * s.rank, window_strides=ones,
               base_dilations=(base,) * s.rank, window_dilations=ones, padding_low=s.numbers(), padding_high=s.numbers(),
               body=monoid_body(add, F32))  # fmt: skip


def _filled(move: Callable[[Scene, Node], Node]) -> Callable[[Scene], Node]:
    return lambda s: move(s, s.b(broadcast_in_dim, s.value(), shape=s.numbers(), broadcast_dimensions=()))


def _gathered(start: tuple[int, ...]) -> Callable[[Scene], Node]:
    def build(s: Scene) -> Node:
        import numpy as np

        x, axes = s.tensor(tuple(s.number(3) for _ in range(s.rank))), _axes(s)
        return s.b(gather, x, s.b.constant(np.array(start[: s.rank], np.int32)), offset_dims=axes, collapsed_slice_dims=(),
                   operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=axes[::-1], index_vector_dim=0,
                   slice_sizes=(2, 3, 1, 2)[: s.rank])  # fmt: skip

    return build


def _gathered_one(s: Scene) -> Node:
    x, i = s.tensor((s.number(1), s.number(1))), s.value(I32)
    return s.b(gather, x, s.b(reshape, i, shape=(1,)), offset_dims=(0, 1), collapsed_slice_dims=(), operand_batching_dims=(),
               start_indices_batching_dims=(), start_index_map=(1,), index_vector_dim=0, slice_sizes=(1, 1))  # fmt: skip


def _known_start(start: int) -> Callable[[Scene], Node]:
    def build(s: Scene) -> Node:
        x, sizes = s.tensor(), s.numbers()
        s.known += [size <= n for size, n in zip(symbolic.raw(sizes), symbolic.raw(symbolic.shape(x)), strict=True)]
        return s.b(dynamic_slice, x, *(s.b.constant(start, I32) for _ in sizes), slice_sizes=sizes)

    return build


def _shaped(*shapes: tuple[int, ...], move: Callable[[Scene, Node], Node] = lambda s, x: x) -> Callable[[Scene], Node]:
    """Reshapes of a tensor of given sizes one after the other, and something done to it."""

    def build(s: Scene) -> Node:
        x = move(s, s.tensor(shapes[0]))
        for each in shapes[1:]:
            x = s.b(reshape, x, shape=each)
        return x

    return build


def _broadcast(shape: tuple[int, ...], at: tuple[int, ...]) -> Callable[[Scene, Node], Node]:
    return lambda s, x: s.b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=at)


STRIDED = ((1,), (2, 3), (3, 1))
CASES = [
    Case(shape.same_type, _shaped((2, 3), (2, 3)), ranks=(2,), most=2),
    Case(shape.identity_of_anything, lambda s: s.b(identity, s.tensor())),
    Case(shape.reshape_twice, _shaped((4, 3), (2, 6), (3, 2, 2)), ranks=(2,), most=2),
    Case(shape.transpose_nothing, lambda s: s.b(transpose, s.tensor(), permutation=_axes(s))),
    Case(shape.transpose_twice, lambda s: _rolled(s, _rolled(s, s.tensor()))),
    Case(shape.transpose_of_ones, lambda s: s.b(transpose, s.tensor((1, 4, 1)), permutation=(1, 2, 0)), ranks=(3,), most=3),
    Case(shape.broadcast_nothing, lambda s: (lambda x: _broadcast(symbolic.shape(x), _axes(s))(s, x))(s.tensor())),
    Case(shape.broadcast_twice, lambda s: s.b(broadcast_in_dim, _repeated(s), shape=s.numbers(2) + s.numbers(2),
                                              broadcast_dimensions=tuple(range(s.rank + 1))), ranks=(1, 2)),
    Case(shape.transpose_of_broadcast, lambda s: s.b(transpose, _repeated(s), permutation=(s.rank, *_axes(s)))),
    Case(shape.broadcast_of_transpose, lambda s: (lambda x: _broadcast((*symbolic.shape(x), s.number()), _axes(s))(s, x))(
        _rolled(s, s.tensor()))),
    Case(shape.broadcast_of_reshape, lambda s: _broadcast((4, 5), (0, 1))(s, _shaped((4,), (4, 1))(s)), ranks=(1,), most=1),
    Case(shape.move_of_filled, _filled(lambda s, x: s.slice(x))),
    Case(shape.move_of_filled, _filled(_flipped)),
    Case(shape.scalar_operand, _filled(lambda s, x: s.b(add, s.tensor(symbolic.shape(x)), x))),
    Case(shape.all_scalars, _filled(lambda s, x: s.b(add, x, x))),
    Case(shape.slice_everything, lambda s: s.slice(s.tensor())),
    Case(shape.slice_twice, lambda s: s.slice(s.slice(s.tensor())), STRIDED),
    Case(shape.slice_of_part, lambda s: s.slice(s.concatenate(*_pair(s))), ((1,), (2,))),
    Case(shape.pad_nothing, lambda s: s.pad(s.tensor(), s.value())),
    Case(shape.concatenate_one, lambda s: s.concatenate(*_pair(s))),
    Case(shape.concatenate_nested, lambda s: (lambda x: s.concatenate(s.concatenate(x, s.beside(x)), s.beside(x)))(s.tensor())),
    Case(shape.transpose_of_concatenate, lambda s: s.b(transpose, s.b(concatenate, s.tensor((1, 4)), s.tensor((1, 4)), dimension=0),
                                                       permutation=(1, 0)), ranks=(2,), most=2),
    Case(shape.reverse_ones, lambda s: s.b(reverse, s.tensor(), dimensions=_axes(s))),
    Case(data_movement.broadcast_of_squeeze, lambda s: _broadcast((4, 7), (0,))(s, _shaped((4, 1), (4,))(s)), ranks=(2,), most=2),
    Case(data_movement.reshape_of_broadcast, _shaped((3,), (1, 3, 1, 4), move=_broadcast((3, 4), (0,))), ranks=(1,), most=1),
    Case(data_movement.reshape_sinks, lambda s: s.b(add, *(s.b(reshape, s.tensor((3, 4)), shape=(3, 1, 4)) for _ in "ab")),
         ranks=(2,), most=2),
    Case(data_movement.elementwise_of_stack, lambda s: s.b(add, s.b(concatenate, s.tensor((1, 4)), s.tensor((1, 4)), dimension=0),
                                                           s.tensor((2, 4))), ranks=(2,), most=2),
    Case(data_movement.iota_in_shape, lambda s: s.b(transpose, s.b(iota, dtype=I32, shape=(*s.numbers(), s.number()),
                                                                   iota_dimension=0), permutation=(s.rank, *_axes(s)))),
    Case(data_movement.reverse_twice, lambda s: s.b(reverse, _flipped(s, s.tensor()), dimensions=_axes(s))),
    Case(data_movement.reverse_of_repeated, lambda s: s.b(reverse, _repeated(s), dimensions=tuple(range(s.rank + 1)))),
    Case(data_movement.slice_of_some_parts, _some, ((1,), (3,))),
    Case(data_movement.concatenate_of_neighbours, _neighbours),
    Case(data_movement.pad_twice, _padded_twice, ((1,), (2, 1))),
    Case(data_movement.elementwise_of_padded, _padded_alike, ((1,), (2, 1))),
    Case(data_movement.slice_of_padded, lambda s: s.slice(s.pad(s.tensor(), s.value())), ((1,), (1, 2))),
    Case(data_movement.dynamic_slice_at_known, lambda s: s.dynamic_slice(s.tensor())),
    *(Case(data_movement.dynamic_slice_at_known, _known_start(k)) for k in (-2, 0, 1, 5)),
    Case(data_movement.update_everything, lambda s: s.dynamic_update_slice(s.tensor())),
    Case(windows.window_of_padded, _window, ((1,), (2, 1), (1, 3))),
    *(Case(windows.gather_at_known, _gathered(k)) for k in ((0, 1, 2, 0), (-3, 9, 1, -1))),
    Case(windows.gather_of_one, _gathered_one, ranks=(2,), most=2),
]

NOT_PLACES = {
    "known-size": "a size, not an element", "reduce-of-ones": "a reduction", "reduce-of-stack": "a reduction",
    "convolution-of-padded": "sums of products", "window-of-ones": "a reduction", "window-of-everything": "a reduction",
    "dot-of-transposed": "sums of products", "transpose-of-dot": "sums of products", "transpose-of-float-dot": "sums of products",
    "sort-of-ones": "an order", "sort-twice": "an order", "scatter-at-known": "several updates may meet",
    "convert-of-iota": "numbers, not places", "sum-with-padded": "numbers, not places",
}  # fmt: skip
"""Rules of these files that are about something else than places; they are tried, by the laws of passes, and not proved."""


def test_every_rule_about_places_has_a_case() -> None:
    rules = {r.name for r in (*SHAPES, *MOVES, *WINDOWS)}
    assert rules - {c.rule.name for c in CASES} == set(NOT_PLACES)


def _runs(long: bool) -> Iterator[Any]:
    for case in CASES:
        ranks = range(max(case.ranks) + 1, case.most + 1) if long else case.ranks
        for rank in ranks:
            for steps in case.steps:
                yield pytest.param(case, rank, steps, id=f"{case.rule.name}-{rank}-{steps}",
                                   marks=[pytest.mark.conformance] if long else [])


@pytest.mark.parametrize(("case", "rank", "steps"), [*_runs(False), *_runs(True)])
def test_the_rule_holds(case: Case, rank: int, steps: tuple[int, ...]) -> None:
    proof = symbolic.prove(case.rule, case.build, rank, steps)
    assert not proof.refuted, proof.refuted
    assert proof.applied or steps != case.steps[0], "a rule that never applies would be proved for nothing"


@pytest.mark.parametrize("rank", [2, *(pytest.param(k, marks=pytest.mark.conformance) for k in (3, 4))])
def test_windows_are_one_question_for_each_axis(rank: int) -> None:
    """Nothing is asked of several axes at once, and nothing new at a higher rank: so the proof is that of all ranks."""
    case = next(c for c in CASES if c.rule is windows.window_of_padded)
    for steps in ((1,), (1, 3)):
        asked = [symbolic.prove(case.rule, case.build, r, steps).questions for r in (1, rank)]
        assert asked[0] == asked[1] != set()


def _slices_merged(node: Node, b: Builder) -> Node:
    """What XLA's simplifier did: starts are added, as if nothing were clamped."""
    inner = node.inputs[0]
    starts = [b(add, i, o) for i, o in zip(inner.inputs[1:], node.inputs[1:], strict=True)]
    return b(dynamic_slice, inner.inputs[0], *starts, slice_sizes=node.attr("slice_sizes"))


def _pads_merged(node: Node, b: Builder) -> Node | None:
    """`pad_twice` without its guard."""
    inner = node.inputs[0]
    if inner.op is not pad:
        return None
    sums = [tuple(x + y for x, y in zip(p, q, strict=True)) for p, q in zip(inner.attrs, node.attrs, strict=True)]
    return b(pad, *inner.inputs, edge_padding_low=sums[0], edge_padding_high=sums[1], interior_padding=sums[2])


def _second_part(node: Node, b: Builder) -> Node:
    """A slice of a concatenation with its parts swapped."""
    first, second = node.inputs[0].inputs
    return b(slice_, b(concatenate, second, first, dimension=node.inputs[0].attr("dimension")), **node.named_attrs)


def _not_reversed(node: Node, b: Builder) -> Node:
    return b(convert, node.inputs[0].inputs[0], dtype=I64)


@pytest.mark.parametrize(("wrong", "build"), [
    (_slices_merged, lambda s: s.dynamic_slice(s.dynamic_slice(s.tensor()))),
    (_pads_merged, _padded_twice),
    (_second_part, lambda s: s.slice(s.concatenate(*_pair(s)))),
    (_not_reversed, lambda s: s.b(convert, _flipped(s, s.tensor(dtype=I32)), dtype=I64)),
])  # fmt: skip
def test_wrong_rules_are_refuted(wrong: Any, build: Callable[[Scene], Node]) -> None:
    def guarded(node: Node, b: Builder) -> Node | None:
        try:
            return wrong(node, b)  # type: ignore[no-any-return]
        except Exception:
            return None  # no program

    assert symbolic.prove(guarded, build, 1).refuted
