"""What HLO text says of an instruction beside what it computes: its layout, sharding and other notes, and where it was made.

Notes are written where they still hold: a layout on the shape that it was given with, predecessors that stand in the same
computation. Places come from `metadata={op_name=.. source_file=.. stack_frame_id=..}` and tables of the header. A `stack_frame_id`
names a row of `StackFrames`, whose parents are the callers; in the text parents count from 1, and 1 stands for none. A row that is
missing or malformed is no error: the instruction then has no place. Nothing here knows an operation.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from deepx_graph.errors import Place
from deepx_graph.ir import Node
from deepx_graph.ir.node import Origin
from deepx_graph.text.common.cursor import whole
from deepx_graph.text.hlo.shapes import ShapeError, legal, parse_shape, type_text
from deepx_graph.text.xla.hlo_text import parse_names, parse_string, string_text, unescaped
from deepx_graph.types import Type

COMMON_ATTRIBUTES = frozenset({
    "metadata", "sharding", "backend_config", "frontend_attributes", "control-predecessors", "parameter_replication", "statistics",
    "origin", "outer_dimension_partitions", "operand_precision", "result_accuracy", "original_value",
})  # fmt: skip
"""Attributes that any instruction may carry and that do not change what it computes."""

NOTED = COMMON_ATTRIBUTES - {"metadata", "origin"} | {"indices_are_sorted", "unique_indices", "domain", "inferred_dimension"}
"""Attributes that nodes keep as notes and that are written back as they stand."""

KEPT = NOTED | {"condition", "body", "branch_computations", "true_computation", "false_computation"}
"""The same and those that name computations which become part of the one around, so that these get their names again."""



def shape_text(node: Node) -> str:
    """The node's shape, with the layout that its text gives it."""
    return noted_shape(node.origin, node.type) if node.origin.notes else type_text(node.type)


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
        if not origin.notes:
            return self.place(origin)
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


_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[\w.\-]+)', re.DOTALL)
Tables = Mapping[str, Mapping[int, str]]


class Places:
    """The places that the instructions of one text come from."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[str, Place | None] = {}
        self._frames: dict[int, Place | None] = {}

    def of(self, metadata: str) -> Place | None:
        """The place that a `metadata` attribute tells."""
        if metadata not in self._known:
            self._known[metadata] = self._read(metadata)
        return self._known[metadata]

    def _read(self, metadata: str) -> Place | None:
        fields = _fields(metadata)
        label, kind = fields.get("op_name", ""), fields.get("op_type", "")
        frame = self._frame(_number(fields, "stack_frame_id"))
        if "source_file" in fields:
            line, column = _number(fields, "source_line"), _number(fields, "source_column")
            function, caller = (frame.function, frame.caller) if frame else ("", None)
            return Place(fields["source_file"], line, column, function, caller, label, kind)
        if frame:
            return Place(frame.file, frame.line, frame.column, frame.function, frame.caller, label, kind)
        return Place(label=label, kind=kind, line=_number(fields, "source_line")) if label or kind else None

    def _frame(self, number: int) -> Place | None:
        """A row of the table, its callers first."""
        rows = self._tables.get("StackFrames", {})
        path: list[int] = []
        while number in rows and number not in self._frames and number not in path:
            path.append(number)
            number = _number(_fields(rows[number]), "parent_frame_id") - 1
        for k in reversed(path):
            row = _fields(rows[k])
            self._frames[k] = self._located(row, self._frames.get(_number(row, "parent_frame_id") - 1))
        return self._frames.get(path[0] if path else number)

    def _located(self, row: Mapping[str, str], caller: Place | None) -> Place | None:
        at = _fields(self._tables.get("FileLocations", {}).get(_number(row, "file_location_id"), ""))
        file, function = (self._name(table, _number(at, field)) for table, field in
                          (("FileNames", "file_name_id"), ("FunctionNames", "function_name_id")))
        return Place(file, _number(at, "line"), _number(at, "column"), function, caller) if file else caller

    def _name(self, table: str, number: int) -> str:
        return unescaped(self._tables.get(table, {}).get(number, "").strip().strip('"'))


def _fields(text: str) -> dict[str, str]:
    return {k: parse_string(v) for k, v in _FIELD.findall(text)}


def _number(fields: Mapping[str, str], name: str) -> int:
    return whole(fields.get(name, ""), 9) or 0


class FrameTables:
    """The tables of a text that is written: each file, function, location and frame once, numbered from 1."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, int]] = {t: {} for t in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")}
        self._frames: dict[Place, int] = {}

    def metadata(self, place: Place) -> str:
        """`metadata={...}` of an instruction from that place."""
        parts = [f"{name}={string_text(word)}" for name, word in (("op_type", place.kind), ("op_name", place.label)) if word]
        if place.function or place.caller:
            parts.append(f"stack_frame_id={self._frame(place)}")
        else:
            parts += [f"source_file={string_text(place.file)}"] * bool(place.file)
            parts += [f"source_line={place.line}"] * bool(place.line)
        return f"metadata={{{' '.join(parts)}}}"

    def _frame(self, place: Place) -> int:
        chain: list[Place] = []
        at: Place | None = place
        while at is not None and at not in self._frames:
            chain.append(at)
            at = at.caller
        for p in reversed(chain):
            file, function = self._row("FileNames", string_text(p.file)), self._row("FunctionNames", string_text(p.function))
            location = self._row("FileLocations", f"{{file_name_id={file} function_name_id={function} line={p.line} "
                                                  f"end_line={p.line} column={p.column} end_column={p.column}}}")
            parent = self._frames[p.caller] if p.caller else 0
            self._frames[p] = self._row("StackFrames", f"{{file_location_id={location} parent_frame_id={parent + 1}}}")
        return self._frames[place]

    def _row(self, table: str, row: str) -> int:
        rows = self._rows[table]
        return rows.setdefault(row, len(rows) + 1)

    def header(self) -> str:
        """The tables as text; empty where no instruction has a frame."""
        if not self._frames:
            return ""
        return "\n".join("\n".join([name, *(f"{k} {row}" for row, k in rows.items()), ""]) for name, rows in self._rows.items())
