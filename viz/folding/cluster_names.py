"""What several nodes together are called, from what they are: `norm + attention + mlp`, or their most telling operations.

The words are a reading of the operations, for a person's eye only: nothing is decided by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import ViewNode

LISTED = 3
"""Operations that a name lists where no word fits."""


@dataclass(frozen=True)
class NameWord:
    """A word, with operations of which at least so many must be there, and operations one of which must be."""

    word: str
    least: tuple[tuple[str, int], ...]
    one_of: tuple[str, ...] = ()


WORDS = (
    NameWord("attention", (("dot_general", 2), ("exponential", 1), ("divide", 1), ("reduce", 1))),
    NameWord("norm", (("reduce", 1),), ("rsqrt", "sqrt")),
    NameWord("mlp", (("dot_general", 2),), ("tanh", "logistic", "erf", "maximum")),
    NameWord("convolution", (("convolution", 1),)),
)
"""Tried in this order; each takes its products away, so that two of them need four."""

TELLING = ("linear", "reduce", "call", "fusion", "random", "effects")
"""Families whose operations say most of what a part does."""


def op_of(node: ViewNode) -> str:
    """The operation that a box names; its kind where it is none."""
    return node.title.split("(")[0].split()[0] if node.kind in ("op", "call") and node.title else node.kind


def contents(members: Sequence[ViewNode]) -> str:
    """A name for the nodes together; `nodes` where there is nothing to say."""
    named = [n for n in members if n.kind not in ("param", "constant", "result")]
    return name_of(Counter(map(op_of, named)), {op_of(n): n.family for n in named})


def name_of(ops: Counter[str], families: Mapping[str, str]) -> str:
    """A name for so many of each operation, from the family of each; `nodes` where there is nothing to say."""
    words = _words(ops)
    if words:
        return " + ".join(words)
    telling = sorted(ops, key=lambda op: (families[op] not in TELLING, -ops[op], op))
    return short(" + ".join(telling[:LISTED]) + (" + …" if len(telling) > LISTED else ""), 48) or "nodes"


def _words(ops: Counter[str]) -> list[str]:
    found = []
    left = Counter(ops)
    for word in WORDS:
        if all(left[op] >= n for op, n in word.least) and (not word.one_of or any(left[op] for op in word.one_of)):
            found.append(word.word)
            left["dot_general"] -= dict(word.least).get("dot_general", 0)
    return sorted(found, key=["norm", "attention", "mlp", "convolution"].index)
