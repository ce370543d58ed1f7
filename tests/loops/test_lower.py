"""Which values are put in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.ir import Builder, Node
from deepx_graph.loops.lower import lower
from deepx_graph.loops.program import Let, LoopProgram, walk
from deepx_graph.ops import add, broadcast_in_dim, compare, exponential, multiply, reverse, select
from deepx_graph.types import C64, F32, Type, tensor


def made(body: Callable[..., Sequence[Node]], *types: Type) -> LoopProgram:
    return lower(Builder().function("f", [(f"x{k}", t) for k, t in enumerate(types)], body))


def test_what_one_nest_reads_at_one_place_is_computed_there_once() -> None:
    b = Builder()

    def chosen(x: Node) -> Sequence[Node]:
        e = b(exponential, x)
        return b(select, b(compare, e, x, direction="LT"), e, b(multiply, e, e)), b(add, e, x)

    program = made(chosen, tensor(F32, (9,)))
    assert not program.scratch
    assert sum(isinstance(s, Let) and s.primitive == "exp" for s in walk(program.body)) == 1


def test_a_complex_element_is_read_once() -> None:
    b = Builder()
    whole = tensor(C64, (9,))
    assert not made(lambda x, y: [b(add, b(multiply, x, x), y)], whole, whole).scratch


def test_what_is_read_at_two_places_is_put_in_memory() -> None:
    b = Builder()

    def mirrored(x: Node) -> Sequence[Node]:
        e = b(exponential, x)
        return [b(add, e, b(reverse, e, dimensions=(0,)))]

    assert len(made(mirrored, tensor(F32, (9,))).scratch) == 1


def test_what_is_broadcast_is_put_in_memory() -> None:
    b = Builder()
    program = made(lambda x: [b(broadcast_in_dim, b(exponential, x), shape=(9, 50), broadcast_dimensions=(0,))], tensor(F32, (9,)))
    assert len(program.scratch) == 1
