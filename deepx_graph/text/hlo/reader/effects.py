"""Which computations of an HLO text act on the state: themselves, or through the computations that they name.

Tokens order effects in the text; in the sea one state does, in the order of the text, which every order of tokens agrees with.
So a computation that has to do with tokens or effects takes and gives that state, and tokens themselves vanish.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepx_graph.ops.host import custom_calls
from deepx_graph.text.hlo.reader.attributes import AttributeFault, parse_groups, parse_names
from deepx_graph.text.hlo.reader.syntax import Computation, Instruction
from deepx_graph.types import STATE, TupleType, Type, is_state

COLLECTIVES = frozenset(
    f"{name}{suffix}" for suffix in ("", "-start") for name in
    ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-broadcast", "collective-permute")
)  # fmt: skip
_ALWAYS = frozenset({"infeed", "outfeed", "send", "send-done", "recv", "recv-done", "after-all", "rng-get-and-update-state"})
_RUNS = ("calls", "condition", "body", "true_computation", "false_computation", "branch_computations")


def plain_leaves(type: Type) -> tuple[Type, ...]:
    """The leaves of a type that are no tokens."""
    if isinstance(type, TupleType):
        return tuple(leaf for item in type.items for leaf in plain_leaves(item))
    return () if type == STATE else (type,)


def groups_of(i: Instruction) -> tuple[tuple[int, ...], ...]:
    """The groups of a collective, or its pairs. Raises AttributeFault."""
    name = "source_target_pairs" if i.opcode.startswith("collective-permute") else "replica_groups"
    return parse_groups(i.attributes[name].text) if name in i.attributes else ()


def is_alone(i: Instruction) -> bool:
    """Whether a collective names only groups of one device, so that nothing moves."""
    try:
        groups = groups_of(i)
    except (AttributeFault, ValueError):
        return False
    if i.opcode.startswith("collective-permute"):
        return groups == ((0, 0),)
    return bool(groups) and all(len(g) == 1 for g in groups)


def text_of(i: Instruction, name: str) -> str:
    """An attribute that is a string, without its quotes; empty where it is missing."""
    raw = i.attributes[name].text if name in i.attributes else ""
    return raw[1:-1].replace('\\"', '"').replace("\\\\", "\\") if raw.startswith('"') and raw.endswith('"') else raw


def acting_computations(computations: Iterable[Computation]) -> set[str]:
    """The names of the computations that act."""
    callers: dict[str, list[str]] = {}
    acting: list[str] = []
    for c in computations:
        for i in c.instructions:
            if acts_itself(i):
                acting.append(c.name)
            for name in named(i):
                callers.setdefault(name, []).append(c.name)
    found: set[str] = set()
    while acting:
        name = acting.pop()
        if name not in found:
            found.add(name)
            acting += callers.get(name, ())
    return found


def named(i: Instruction) -> list[str]:
    """The computations that an instruction runs as part of the program, bodies of reductions and the like left out."""
    if not i.attributes:
        return []
    words = (*_RUNS, "to_apply") if i.opcode == "call" else _RUNS
    return [n for word in words if word in i.attributes for n in parse_names(i.attributes[word].text)]


def acts_itself(i: Instruction) -> bool:
    """Whether the instruction changes or needs the state, apart from what it runs."""
    if i.opcode in _ALWAYS or is_state(i.type):
        return True
    if i.opcode in COLLECTIVES:
        return not is_alone(i)
    return i.opcode == "custom-call" and (
        text_of(i, "custom_call_has_side_effect") == "true" or custom_calls.acts(text_of(i, "custom_call_target")))
