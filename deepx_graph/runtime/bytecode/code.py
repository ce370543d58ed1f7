"""A schedule as flat code over numbered slots: what `plan` measures and `execute` walks.

Nested blocks become jumps, so that neither recursion nor nesting depth costs anything at run time. Every slot has one life: from
`first` to `last` position, the loops that it crosses included; it is dropped there (`frees`). A value whose definition lies
outside a loop or branch and whose last use lies inside lives to the end of that construct, as the code may come by again.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.analysis.schedule import Schedule
from deepx_graph.ir import Node
from deepx_graph.types import Type


@dataclass(slots=True)
class Run:
    """Compute a node (an op with `eval`, a call or a closure) into `target`."""

    node: Node
    target: int
    sources: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Move:
    """Copy references, all at once; then drop. `clears` are slots to empty first (the marks of `once` blocks)."""

    targets: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    clears: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Pack:
    """Make a tuple, for a region or loop whose values are used as one."""

    target: int
    sources: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Jump:
    """Go on at position `to`."""

    to: int = -1


@dataclass(slots=True)
class Select:
    """Go on at the position that the selector names: the first for true, else by number and the last when out of range."""

    node: Node
    source: int
    to: list[int]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Test:
    """Go on at `to` when the condition is false."""

    node: Node
    source: int
    to: int = -1
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Skip:
    """Go on at `to` when `mark` is set; set it otherwise."""

    mark: int
    to: int = -1


@dataclass(slots=True)
class Return:
    """Give the results to the caller."""

    sources: tuple[int, ...]


Instruction = Run | Move | Pack | Jump | Select | Test | Skip | Return


def reads(i: Instruction) -> tuple[int, ...]:
    """The slots whose values an instruction uses."""
    match i:
        case Run(sources=sources) | Move(sources=sources) | Pack(sources=sources) | Return(sources=sources):
            return sources
        case Select(source=source) | Test(source=source):
            return (source,)
        case Skip(mark=mark):
            return (mark,)
    return ()


def writes(i: Instruction) -> tuple[int, ...]:
    """The slots to which an instruction gives values."""
    match i:
        case Run(target=target) | Pack(target=target):
            return (target,)
        case Move(targets=targets):
            return targets
    return ()


def successors(i: Instruction, at: int) -> list[int]:
    """The positions at which the code may go on behind an instruction."""
    match i:
        case Return():
            return []
        case Jump(to=to):
            return [to]
        case Select(to=to):
            return to
        case Test(to=to) | Skip(to=to):
            return [at + 1, to]
    return [at + 1]


@dataclass(slots=True, eq=False)
class PositionRange:
    """The positions of a construct, `end` included. `outer` of a once block: how many spans lie around the loops it outlives."""

    start: int
    loop: Node | None = None
    outer: int = -1
    end: int = -1


@dataclass(slots=True, eq=False)
class FrameSlot:
    """What is known of a slot: its node and type, and the positions from which and to which it holds its value."""

    node: Node
    type: Type
    first: int
    last: int = -1
    loop: Node | None = None
    """The loop whose variable it is."""
    span: PositionRange | None = None
    depth: int = 0
    until: PositionRange | None = None


@dataclass(frozen=True, eq=False)
class Code:
    """Flat code. `constants` are slots filled before the start, `params` those of the arguments, in order."""

    schedule: Schedule
    instructions: tuple[Instruction, ...]
    slots: tuple[FrameSlot, ...]
    params: tuple[int, ...]
    constants: tuple[tuple[int, Node], ...]
    loops: dict[Node, PositionRange]
