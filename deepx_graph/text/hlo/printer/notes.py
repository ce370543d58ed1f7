"""What HLO text says of an instruction beside what it computes: its layout, sharding and other notes, and where it was made.

Notes are written where they still hold: a layout on the shape that it was given with, predecessors that stand in the same
computation. Nothing here knows an operation.
"""

from __future__ import annotations

from collections.abc import Container

from deepx_graph.errors import Place
from deepx_graph.ir import Node
from deepx_graph.ir.node import Origin
from deepx_graph.text.hlo.printer.values import legal, type_text
from deepx_graph.text.hlo.reader.metadata import FrameTables
from deepx_graph.text.hlo.reader.rules import NOTED
from deepx_graph.text.hlo.reader.shapes import ShapeError, parse_shape
from deepx_graph.text.xla.hlo_text import parse_names
from deepx_graph.types import Type


def shape_text(node: Node) -> str:
    """The node's shape, with the layout that its text gives it."""
    return noted_shape(node.origin, node.type)


def noted_shape(origin: Origin, type: Type) -> str:
    """A shape with the layout that the text gave a value of just that type."""
    for name, text in origin.notes:
        if name == "layout" and _is_shape(text, type):
            return text
    return type_text(type)


def _is_shape(text: str, type: Type) -> bool:
    try:
        return parse_shape(text, 0) == (type, len(text))
    except ShapeError:
        return False


def noted_names(origin: Origin, *attributes: str) -> list[str]:
    """The computations that the text named in these attributes."""
    notes = dict(origin.notes)
    return [name for a in attributes if a in notes for name in parse_names(notes[a])]


class Notes:
    """The notes of all instructions of one text, and the tables that their places need."""

    def __init__(self) -> None:
        self.frames = FrameTables()
        self._places: dict[Place, str] = {}

    def of(self, origin: Origin, known: Container[str]) -> str:
        """`, sharding=..., metadata={...}`; `known` are the instructions that stand before it."""
        found = "".join([f", {name}={text}" for name, text in origin.notes if _holds(name, text, known)])
        return found + self.place(origin)

    def place(self, origin: Origin) -> str:
        """`, metadata={...}`, nothing where the text did not say."""
        place = origin.spans[0].place if origin.spans else None
        if place is None:
            return ""
        if place not in self._places:
            self._places[place] = f", {self.frames.metadata(place)}"
        return self._places[place]


def _holds(name: str, text: str, known: Container[str]) -> bool:
    if name == "control-predecessors":
        return all(legal(n) in known for n in parse_names(text))
    return name in NOTED
