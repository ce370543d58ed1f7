"""Which instructions of an HLO text act on the state: themselves, or through the computations that they name."""

from __future__ import annotations

from deepx_graph.ops.host import custom_calls
from deepx_graph.text.hlo.reader.syntax import HloInstruction
from deepx_graph.text.xla.devices import NOTHING_MOVES, names_single_devices
from deepx_graph.text.xla.hlo_text import AttributeFault, Groups, parse_groups, parse_names, parse_string
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


def is_alone(i: HloInstruction) -> bool:
    """Whether a collective names only groups of one device, so that nothing moves."""
    try:
        if i.opcode.startswith("collective-permute"):
            return _groups(i, "source_target_pairs") == NOTHING_MOVES
        return names_single_devices(_groups(i, "replica_groups"))
    except (AttributeFault, ValueError):
        return False


def _groups(i: HloInstruction, name: str) -> Groups:
    return parse_groups(i.attributes[name].text) if name in i.attributes else ()


def text_of(i: HloInstruction, name: str) -> str:
    """An attribute that is a string, without its quotes; empty where it is missing."""
    return parse_string(i.attributes[name].text) if name in i.attributes else ""


def named(i: HloInstruction) -> list[str]:
    """The computations that an instruction runs as part of the program, bodies of reductions and the like left out."""
    if not i.attributes:
        return []
    words = (*_RUNS, "to_apply") if i.opcode == "call" else _RUNS
    return [n for word in words if word in i.attributes for n in parse_names(i.attributes[word].text)]


def acts_itself(i: HloInstruction) -> bool:
    """Whether the instruction changes or needs the state, apart from what it runs."""
    if i.opcode in _ALWAYS or is_state(i.type):
        return True
    if i.opcode in COLLECTIVES:
        return not is_alone(i)
    return i.opcode == "custom-call" and (
        text_of(i, "custom_call_has_side_effect") == "true" or custom_calls.acts(text_of(i, "custom_call_target")))
