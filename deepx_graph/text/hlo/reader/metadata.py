"""Where an instruction of HLO text comes from: `metadata={op_name=.. source_file=.. stack_frame_id=..}` and tables of the header.

Read once per distinct text. A `stack_frame_id` names a row of `StackFrames`, whose parents are the callers; in the text parents
count from 1, and 1 stands for none. A row that is missing or malformed is no error: the instruction then has no place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from deepx_graph.errors import Place
from deepx_graph.text.common.numbers import whole
from deepx_graph.text.xla.hlo_text import parse_string, string_text, unescaped

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
