"""The `.ir` text that MindSpore's compiler dumps after a stage, as the messages of a model.

A dump is for reading by people: large constants are left out, as is which function a function value is. What is left out is
listed, so that it can be said; such constants become values that can be drawn and not run. Versions 1.3 to 2.7 are read: with or
without a space before a colon, names in brackets behind numbers, places of the source. Brackets in quotes do not count, and a
constant may go on over several lines.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain, repeat
from math import prod
from typing import Any

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.common.cursor import whole
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.mindir.schema import Attribute, CallMessage, Graph, Model, TensorData, ValueInfo
from deepx_graph.text.mindir.values import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    GRAPH_CLOSURE,
    INT32,
    INT64,
    IOMONAD,
    NONE,
    STRING,
    TENSORS,
    TUPLE,
    UMONAD,
)

_ENTRY = re.compile(r"^# ?IR entry *: @(\S+)", re.MULTILINE)
_PARAM = re.compile(r"^%(para\S+?) ?: (?=<)", re.MULTILINE)
_GRAPH = re.compile(r"^subgraph @(\S+?)(?: parent: \[subgraph @\S+\])?\(([^)]*)\) \{$", re.MULTILINE)
_TYPES = re.compile(r"^# Parameters: \d+, \((.*)\)$", re.MULTILINE)
_NODE = re.compile(r"  %(\d+)(?:\(([^)\n]*)\))? = (?=\S)")
_RETURN = re.compile(r"  Return\(")
_RESULT = re.compile(r"^ {6}: .* -> \((.*)\)$")
_FILE = re.compile(r"# In file (\S+?):(\d+)")


def parse_dump(source: Source, options: ReadOptions) -> Model:
    """The model that a dump shows. Raises ParseError at what is no dump, LimitError for too many nodes."""
    return _Dump(source, options).model()


class _Dump:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, self.options, self.text = source, options, source.text
        self.elided: dict[str, None] = {}
        self.count = 0

    def fail(self, at: int, message: str, expected: str | None = None) -> ParseError:
        return ParseError(Diagnostic(message, Span(self.source, at, at + 1), expected=expected))

    def model(self) -> Model:
        entry = _ENTRY.search(self.text)
        heads = list(_GRAPH.finditer(self.text))
        if not heads:
            raise self.fail(0, "this is no dump of func graphs", "`# IR entry: @name` and `subgraph @name(...) {`")
        ends = [h.start() for h in heads[1:]] + [len(self.text)]
        graphs = [self._graph(h, before, end) for h, before, end in
                  zip(heads, [0, *(h.end() for h in heads[:-1])], ends, strict=True)]
        by_name = {g.name: g for g in graphs}
        if entry is not None and entry[1] not in by_name:
            raise self.fail(entry.start(1), f"there is no subgraph '{entry[1]}'")
        first = by_name[entry[1]] if entry is not None else graphs[0]
        first.inputs = first.inputs or [self._parameter(m) for m in _PARAM.finditer(self.text, 0, heads[0].start())]
        notes = [f"the dump leaves out {what}" for what in self.elided]
        return Model(first, [g for g in graphs if g is not first], elided=notes, is_dump=True)

    def _parameter(self, found: re.Match[str]) -> ValueInfo:
        """A parameter of the entry: `%para1_x: <type>`, and what else is known of it."""
        at, stop = found.end(), self.text.find("\n", found.end())
        end = closing(self.text, at, stop if stop > 0 else len(self.text))
        return _info(found[1], type_of(self.text[at : end + 1] if end > 0 else ""), found.start())

    def _graph(self, head: re.Match[str], before: int, end: int) -> Graph:
        names = [p.strip().lstrip("%") for p in head[2].split(",") if p.strip()]
        comments = list(_TYPES.finditer(self.text, before, head.start()))
        types = pieces(comments[-1][1]) if comments else []
        inputs = [_info(n, type_of(t), head.start(2)) for n, t in zip(names, chain(types, repeat("")), strict=False)]
        graph = Graph(head[1], inputs=inputs, at=head.start())
        numbers: dict[str, str] = {}
        at = head.end() + 1
        while at < end and not self.text.startswith("}", at):
            at = self._line(graph, numbers, at, end)
        return graph

    def _line(self, graph: Graph, numbers: dict[str, str], at: int, end: int) -> int:
        """One node of a graph, or a line that is none; gives where the next begins."""
        found = _NODE.match(self.text, at, end)
        back = _RETURN.match(self.text, at, end)
        if found is not None:
            stop = self._node(graph, numbers, found, end)
        elif back is not None:
            args, stop = self._arguments(graph, numbers, back.end() - 1, end)
            closure = args[0].partition("@")[2] if args and args[0].startswith("@") else ""
            info = Attribute(type=GRAPH_CLOSURE, s=closure) if closure else self._type_after(stop)
            graph.outputs = [_info(closure or (args[0] if args else ""), info, at)]
        else:
            stop = self._line_end(at)
        return stop + 1

    def _line_end(self, at: int) -> int:
        stop = self.text.find("\n", at)
        return len(self.text) if stop < 0 else stop

    def _node(self, graph: Graph, numbers: dict[str, str], found: re.Match[str], end: int) -> int:
        """One node; gives the end of the line on which its operands end."""
        self.count += 1
        if self.count > self.options.max_nodes:
            raise LimitError(f"the dump has more than {self.options.max_nodes} nodes")
        name = f"{graph.name}:{found[2] or found[1]}"
        if name in numbers.values():
            name += f":{found[1]}"
        open_ = self._operands(found.end(), end)
        args, stop = self._arguments(graph, numbers, open_, end)
        op = self._operator(graph, numbers, self.text[found.end() : open_], found.end())
        type = self._type_after(stop)
        type.name = "shape"
        made = CallMessage([a.removeprefix("@") for a in args], [name], name, op, [type], self._place(stop), found.start(1))
        graph.nodes.append(made)
        numbers[found[1]] = name
        return stop

    def _operands(self, at: int, end: int) -> int:
        """Where the bracket of the operands opens, behind the operator: the first that is in no other."""
        stop = min(self._line_end(at), end)
        start, depth = at, 0
        if self.text.startswith("$(", at):
            start = closing(self.text, at + 1, stop) + 1 or at
        for k in range(start, stop):
            c = self.text[k]
            if c == "(" and depth == 0:
                return k
            depth += (c in "[{") - (c in "]}")
        raise self.fail(at, "this node has no operands", "operator(operands)")

    def _operator(self, graph: Graph, numbers: dict[str, str], text: str, at: int) -> str:
        """What a node calls: a graph, a value, or a primitive by the name that binary files have for it."""
        plain = text.partition("[")[0].partition("{")[0]
        if text.startswith("call @"):
            return f"REF::{text[6:]}"
        if text.startswith("$("):
            return f"REF::{self._outer(plain)}"
        if text.startswith("%") or "[" in text or any(i.name.partition("_")[2] == plain for i in graph.inputs):
            return f"REF::{self._name(graph, numbers, plain, at)}"
        return plain.rpartition("::")[2].removeprefix("PrimFunc_").removeprefix("S-Prim-")

    def _type_after(self, stop: int) -> Attribute:
        """The type that the line behind tells."""
        end = self.text.find("\n", stop + 1)
        found = _RESULT.match(self.text[stop + 1 : end if end > 0 else len(self.text)])
        return type_of(found[1]) if found else Attribute()

    def _place(self, stop: int) -> str:
        """The user's line that a node was made from: the last file that the comments behind it name."""
        at, found = stop + 1, ""
        while self.text.startswith("      ", at):
            end = self.text.find("\n", at)
            end = len(self.text) if end < 0 else end
            match = _FILE.search(self.text, at, end)
            if match is not None:
                found = f"{match[1]}:{match[2]}"
            at = end + 1
        return found

    def _name(self, graph: Graph, numbers: dict[str, str], text: str, at: int) -> str:
        """The name that an operand reads; what is called may be a parameter without its number."""
        if text.startswith("%para"):
            return text[1:]
        if not text.startswith("%"):
            return next((i.name for i in graph.inputs if i.name.partition("_")[2] == text), text)
        number = text[1:]
        if number not in numbers:
            raise self.fail(at, f"'{text}' is read before it is made")
        return numbers[number]

    def _arguments(self, graph: Graph, numbers: dict[str, str], at: int, end: int) -> tuple[list[str], int]:
        """The names of the operands in the bracket at `at`, and the end of its last line; constants become nodes of their own."""
        close = closing(self.text, at, end)
        if close < 0:  # a text in quotes holds what it likes: the last bracket of the line
            close = self.text.rfind(")", at, self._line_end(at))
        if close < 0:
            raise self.fail(at, "a bracket is not closed")
        found = []
        for piece in pieces(self.text[at + 1 : close]):
            if piece.startswith("%"):
                found.append(self._name(graph, numbers, piece, at))
            elif piece.startswith("@"):
                found.append(piece)
            elif piece.startswith("$("):
                found.append(self._outer(piece))
            else:
                found.append(self._constant(graph, piece, at))
        return found, self._line_end(close)

    def _outer(self, text: str) -> str:
        """The name that `$(@graph:name)` reads: one of another graph."""
        owner, _, name = text[2:-1].removeprefix("@").partition(":")
        return name if name.startswith("para") else f"{owner}:{name}"

    def _constant(self, graph: Graph, text: str, at: int) -> str:
        name = f"{graph.name}:value_{len(graph.nodes)}_{at}_{text[:40]}"
        value = value_of(text)
        if value is ELIDED:
            self.elided[text[:80]] = None
            type = Attribute("shape", TENSORS, tensors=[TensorData([-2], 1)])
            graph.nodes.append(CallMessage([], [name], name, "Elided", [type], "", at))
        else:
            assert isinstance(value, Attribute)
            value.name = "value"
            graph.nodes.append(CallMessage([], [name], name, "Constant", [value], "", at))
        return name


# --- types and constants --------------------------------------------------------------------------------------------

ELIDED = object()
"""What stands for a constant whose value the dump does not show."""

_NAMES = {"Bool": 9, "Int8": 3, "Int16": 5, "Int32": 6, "Int64": 7, "UInt8": 2, "UInt16": 4, "UInt32": 12, "UInt64": 13,
          "Float16": 10, "Float32": 1, "Float64": 11, "BFloat16": 16, "Complex64": 14, "Complex128": 15}  # fmt: skip
_CODES = {9: "?", 3: "b", 5: "h", 6: "i", 7: "q", 2: "B", 4: "H", 12: "I", 13: "Q", 10: "e", 1: "f", 11: "d"}
_SCALARS = {"I64": INT64, "I32": INT32, "F32": FLOAT, "F64": DOUBLE, "Bool": BOOLEAN,
            "Int64": INT64, "Int32": INT32, "Float32": FLOAT, "Float64": DOUBLE}  # fmt: skip
_OLD = re.compile(r"((?:Ref\[)?Tensor\[\w+\]+)x(?:\[const vector\])?\[([\d, -]*)\]")
"""A type as versions before 2.0 write it: `Tensor[Float32]x[const vector][2, 3]`."""
_TENSOR = re.compile(r"Tensor\(shape=\[([\d, ]*)\], dtype=(\w+), value=(.*)\)\Z", re.DOTALL)
_SCALAR = re.compile(r"(\w+)\(([-+\w.]+)\)\Z")


def _unquoted(text: str, at: int, end: int) -> Iterator[tuple[int, str]]:
    """The characters with their places, those in quotes left out; a quote that no other closes is a character."""
    while at < end:
        if text[at] == '"' and (close := text.find('"', at + 1, end)) > 0:
            at = close
        else:
            yield at, text[at]
        at += 1


def closing(text: str, at: int, end: int) -> int:
    """The place of the bracket that closes the one at `at`; -1 where none does before `end`."""
    pairs = {"(": 1, "[": 1, ")": -1, "]": -1} if text[at] != "<" else {"<": 1, ">": -1}
    depth = 0
    for k, c in _unquoted(text, at, end):
        depth += pairs.get(c, 0)
        if depth == 0:
            return k
    return -1


def pieces(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket and no quotes."""
    found, depth, start = [], 0, 0
    for k, c in _unquoted(text, 0, len(text)):
        depth = max(0, depth + (1 if c in "([<{" else -1 if c in ")]>}" else 0))
        if c == "," and depth == 0:
            found.append(text[start:k].strip())
            start = k + 1
    last = text[start:].strip()
    return [*found, last] if last else found


def _info(name: str, type: Attribute, at: int) -> ValueInfo:
    return ValueInfo(name, list(type.tensors) if type.type == TENSORS else [], "", type, at)


def type_of(text: str) -> Attribute:
    """The type that `<element type, shape>` names; an unknown one for functions and whatever else."""
    parts = pieces(text.strip()[1:-1]) if text.strip().startswith("<") else []
    if parts and (old := _OLD.fullmatch(", ".join(parts))):
        parts = [old[1], f"({old[2]})"]
    if len(parts) < 2:
        return Attribute()
    return _type(parts[0], parts[1])


def _type(kind: str, shape: str) -> Attribute:
    if kind in ("UMonad", "IOMonad"):
        return Attribute(type=UMONAD if kind == "UMonad" else IOMONAD)
    if kind.startswith("Tuple[") and shape.startswith("TupleShape("):
        kinds = chain.from_iterable(map(_repeated, pieces(kind[6:-1])))
        return Attribute(type=TUPLE, values=[_type(k, s) for k, s in zip(kinds, pieces(shape[11:-1]), strict=False)])
    kind = kind[4:-1] if kind.startswith("Ref[") else kind
    number = _NAMES.get(kind.removeprefix("Tensor[").removesuffix("]"))
    if number is None:
        return Attribute()
    dims = [-1 if (size := whole(d.strip())) is None else size for d in pieces(shape.strip("()"))] if shape.startswith("(") else []
    return Attribute(type=TENSORS, tensors=[TensorData(dims, number)])


def _repeated(item: str) -> Iterator[str]:
    """The items that `kind*3` stands for, made as they are taken."""
    kind, _, times = item.rpartition("*")
    count = whole(times)
    return repeat(item, 1) if not kind or count is None else repeat(kind, count)


def value_of(text: str) -> Any:
    """The constant as an attribute; ELIDED where its value is not shown."""
    if text in ("UMonad[U]", "IOMonad[IO]", "U", "IO"):
        return Attribute(type=IOMONAD if "IO" in text else UMONAD)
    if text.startswith("(") and text.endswith(")"):
        values = [value_of(p) for p in pieces(text[1:-1])]
        return ELIDED if ELIDED in values else Attribute(type=TUPLE, values=values)
    if text.startswith('"'):
        return Attribute(type=STRING, s=text.strip('"'))
    if text == "None" or text.startswith("ValueProblem"):
        return Attribute(type=NONE)
    tensor = _TENSOR.match(text)
    if tensor is not None:
        return _tensor(tensor[1], tensor[2], tensor[3])
    scalar = _SCALAR.match(text)
    return _scalar(scalar[1], scalar[2]) if scalar is not None else ELIDED


def _scalar(kind: str, text: str) -> Any:
    type = _SCALARS.get(kind)
    if type is None:
        return ELIDED
    try:
        value = float(text) if type in (FLOAT, DOUBLE) else int(text)
        real = float(value)
    except (ValueError, OverflowError):
        return ELIDED
    return Attribute(type=type, f=real, d=real, i=int(value) if type not in (FLOAT, DOUBLE) else 0)


def _tensor(dims: str, kind: str, text: str) -> Any:
    number = _NAMES.get(kind)
    shape = [whole(d.strip()) or 0 for d in dims.split(",") if d.strip()]
    code = _CODES.get(number or 0)
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    if number is None or code is None or len(words) != prod(shape):
        return ELIDED
    try:
        values = [float(w) if code in "efd" else w in ("true", "True") if code == "?" else int(w) for w in words]
        raw = struct.pack(f"<{len(words)}{code}", *values)
    except (ValueError, OverflowError, struct.error):
        return ELIDED
    return Attribute(type=TENSORS, tensors=[TensorData(shape, number, raw=raw)])
