"""What is laid over a picture: an amount or a word of every box, as its colour and in its last line, and what the colours mean.

An `Overlay` is of the nodes before folding; a box of several has the sum of their amounts, or the word that all of them have.
Colours are those of the page (`viz/assets/`), which takes the table of measures from here.
"""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deepx_graph.errors import human, sized
from deepx_graph.viz.picture.style import Theme
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import View, ViewNode

Unit = Literal["bytes", "count", "ms", "ratio"]

UNITS: Mapping[Unit, Callable[[float], str]] = {
    "bytes": sized, "count": human, "ms": lambda v: f"{v:.2f} ms" if v >= 1 else f"{v * 1e3:.1f} µs", "ratio": lambda v: f"{v:.1e}",
}  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A number of every node that adds up: what it is, and in what it is counted."""

    about: str
    unit: Unit


MEASURES: Mapping[str, Measure] = {
    "time": Measure("median time of a run", "ms"),
    "bytes": Measure("bytes of the values", "bytes"),
    "moved": Measure("bytes read and written", "bytes"),
    "flops": Measure("arithmetic operations", "count"),
    "error": Measure("what rounding adds to the error of the outputs", "ratio"),
    "nonfinite": Measure("elements made NaN or infinite of finite ones", "count"),
    "apart": Measure("bytes that one kernel with its readers would save", "bytes"),
}
"""The measures, by the fields of the query language that have them."""

HEAT, HOTTEST = "#e5484d", 0.75
"""The colour of much, and its part in that of the box with the most."""

STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the most that the legend shows."""

SEVERAL, UNKNOWN, WHOLE = "several shardings", "not decided", 0.15
TAG = 36
"""Letters of a word in a box."""


@dataclass(frozen=True)
class Painted:
    """A picture whose boxes say what is laid over them, in their last line; their fills by id; the legend: texts with colours."""

    view: View
    fills: Mapping[int, str]
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Amounts:
    """A measure of the nodes of a view, by id."""

    measure: Measure
    of: Mapping[int, float]

    def over(self, view: View, theme: Theme) -> Painted:
        """The boxes of a picture by the sum of what they hold: the more, the redder; with its share of the whole."""
        text, total = UNITS[self.measure.unit], sum(self.of.values())
        sums = {n.id: sum(self.of.get(m, 0.0) for m in _members(n)) for n in view.nodes}
        top = max(sums.values(), default=0.0) or 1.0
        fills = {k: mixed(HEAT, theme.ground, HOTTEST * (v / top) ** 0.5) for k, v in sums.items()}
        tags = {k: f"{text(v)} · {v / total:.1%}" for k, v in sums.items() if v > 0}
        scale = [(text(top * s), mixed(HEAT, theme.ground, HOTTEST * s**0.5)) for s in STEPS]
        legend = [(f"{self.measure.about}:", ""), *scale, ("in one box, and its share of the whole", "")]
        return Painted(_told(view, tags), fills, legend)


@dataclass(frozen=True)
class Words:
    """A word of each node of a view, by id: how its value lies on a mesh. One with a quote in it names an axis."""

    about: str
    of: Mapping[int, str]

    def over(self, view: View, theme: Theme) -> Painted:
        """The boxes of a picture, in one colour for each word, the frequent ones first."""
        order = {word: k for k, (word, _) in enumerate(Counter(self.of.values()).most_common())}
        words: dict[int, str] = {}
        for n in view.nodes:
            found = {self.of[m] for m in _members(n) if m in self.of}
            words[n.id] = UNKNOWN if not found else found.pop() if len(found) == 1 else SEVERAL
        fills = {k: _word_colour(word, order, theme) for k, word in words.items()}
        tags = {k: short(word, TAG) for k, word in words.items() if word != UNKNOWN}
        seen = sorted(set(words.values()), key=lambda w: order.get(w, len(order)))
        legend = [(f"{self.about}:", ""), *((short(w, TAG), _word_colour(w, order, theme)) for w in seen)]
        return Painted(_told(view, tags), fills, legend)


Overlay = Amounts | Words


def _told(view: View, tags: Mapping[int, str]) -> View:
    nodes = (n._replace(below=f"{n.subtitle}\n{tags[n.id]}".strip()) if n.id in tags else n for n in view.nodes)
    return replace(view, nodes=tuple(nodes))


def _members(node: ViewNode) -> Sequence[int]:
    return node.members or (node.id,)


def _word_colour(word: str, order: Mapping[str, int], theme: Theme) -> str:
    if word == UNKNOWN:
        return theme.ground
    if word == SEVERAL or '"' not in word:
        return mixed(theme.faint, theme.ground, 0.45 if word == SEVERAL else WHOLE)
    rgb = colorsys.hls_to_rgb(order[word] * 137 % 360 / 360, 0.5, 0.8)
    return mixed("#" + "".join(f"{round(c * 255):02x}" for c in rgb), theme.ground, 0.4)


def mixed(colour: str, ground: str, share: float) -> str:
    """So much of a colour in another, both as `#rrggbb`."""
    pairs = ((int(colour[k : k + 2], 16), int(ground[k : k + 2], 16)) for k in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)
