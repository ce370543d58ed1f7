"""The `.ir` text that MindSpore's compiler dumps after a stage, as the messages of a model.

A dump is for reading by people: large constants are left out, as is which function a function value is. What is left out is
listed, so that it can be said; such constants become values that can be drawn and not run. Versions 1.3 to 2.7 are read: with or
without a space before a colon, names in brackets behind numbers, places of the source. Brackets in quotes do not count, and a
constant may go on over several lines.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.mindir.dump_values import ELIDED, closing, pieces, type_of, value_of
from deepx_graph.text.mindir.schema import Attribute, CallMessage, Graph, Model, TensorData, ValueInfo
from deepx_graph.text.mindir.values import GRAPH_CLOSURE

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
        return self._info(found[1], self.text[at : end + 1] if end > 0 else "", found.start())

    def _info(self, name: str, type: str, at: int) -> ValueInfo:
        attribute = type_of(type)
        return ValueInfo(name, list(attribute.tensors) if attribute.type == 19 else [], "", attribute, at)

    def _graph(self, head: re.Match[str], before: int, end: int) -> Graph:
        names = [p.strip().lstrip("%") for p in head[2].split(",") if p.strip()]
        comments = list(_TYPES.finditer(self.text, before, head.start()))
        types = pieces(comments[-1][1]) if comments else []
        inputs = [self._info(n, types[k] if k < len(types) else "", head.start(2)) for k, n in enumerate(names)]
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
            name = closure or (args[0] if args else "")
            graph.outputs = [ValueInfo(name, list(info.tensors) if info.type == 19 else [], "", info, at)]
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
            type = Attribute("shape", 19, tensors=[TensorData([-2], 1)])
            graph.nodes.append(CallMessage([], [name], name, "Elided", [type], "", at))
        else:
            assert isinstance(value, Attribute)
            value.name = "value"
            graph.nodes.append(CallMessage([], [name], name, "Constant", [value], "", at))
        return name

