"""The `.ir` text that MindSpore's compiler dumps after a stage, as the messages of a model.

A dump is for reading by people: large constants are left out, as is which function a function value is. What is left out is
listed, so that it can be said; such constants become values that can be drawn and not run.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.mindir.dump_values import ELIDED, pieces, type_of, value_of
from deepx_graph.text.mindir.schema import Attribute, Call, Graph, Model, TensorData, ValueInfo
from deepx_graph.text.mindir.values import GRAPH_CLOSURE
from deepx_graph.text.options import ReadOptions

_ENTRY = re.compile(r"^# IR entry: @(\S+)", re.MULTILINE)
_PARAM = re.compile(r"^%(para\w+): (<.*>) +: ", re.MULTILINE)
_GRAPH = re.compile(r"^subgraph @(\S+?)(?: parent: \[subgraph @\S+\])?\(([^)]*)\) \{$", re.MULTILINE)
_TYPES = re.compile(r"^# Parameters: \d+, \((.*)\)$", re.MULTILINE)
_NODE = re.compile(r"  %(\d+)\(([^)]*)\) = (call @\S+?(?=\()|%\d+(?:\[[^\n]*?\])?(?=\()|%para\w+(?:\[[^\n]*?\])?(?=\()"
                   r"|\$\(@[^)]*\)(?=\()|\w+\[[^\n]*?\](?=\()|[\w:.]+)\(")
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
        if entry is None or not heads:
            raise self.fail(0, "this is no dump of func graphs", "`# IR entry: @name` and `subgraph @name(...) {`")
        ends = [h.start() for h in heads[1:]] + [len(self.text)]
        graphs = [self._graph(h, before, end) for h, before, end in
                  zip(heads, [0, *(h.end() for h in heads[:-1])], ends, strict=True)]
        by_name = {g.name: g for g in graphs}
        if entry[1] not in by_name:
            raise self.fail(entry.start(1), f"there is no subgraph '{entry[1]}'")
        first = by_name[entry[1]]
        first.inputs = first.inputs or [self._info(m[1], m[2], m.start()) for m in _PARAM.finditer(self.text, 0, heads[0].start())]
        notes = [f"the dump leaves out {what}" for what in self.elided]
        return Model(first, [g for g in graphs if g is not first], elided=notes, is_dump=True)

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
            at = self._line(graph, numbers, at)
        return graph

    def _line(self, graph: Graph, numbers: dict[str, str], at: int) -> int:
        """One line of a graph; gives where the next begins."""
        stop = self.text.find("\n", at)
        stop = len(self.text) if stop < 0 else stop
        found = _NODE.match(self.text, at, stop)
        if found is not None:
            self._node(graph, numbers, found, stop)
        elif back := _RETURN.match(self.text, at, stop):
            args = self._arguments(graph, numbers, back.end() - 1, stop)
            closure = args[0].partition("@")[2] if args and args[0].startswith("@") else ""
            info = Attribute(type=GRAPH_CLOSURE, s=closure) if closure else self._type_after(stop)
            name = closure or (args[0] if args else "")
            graph.outputs = [ValueInfo(name, list(info.tensors) if info.type == 19 else [], "", info, at)]
        return stop + 1

    def _node(self, graph: Graph, numbers: dict[str, str], found: re.Match[str], stop: int) -> None:
        self.count += 1
        if self.count > self.options.max_nodes:
            raise LimitError(f"the dump has more than {self.options.max_nodes} nodes")
        name = f"{graph.name}:{found[2]}"
        if name in numbers.values():
            name += f":{found[1]}"
        args = self._arguments(graph, numbers, found.end() - 1, stop)
        what = found[3]
        if what.startswith("call @"):
            op = f"REF::{what[6:]}"
        elif what.startswith("$"):
            op = f"REF::{self._outer(what)}"
        elif what.startswith("%") or "[" in what:
            op = f"REF::{self._name(graph, numbers, what.partition('[')[0], found.start(3))}"
        else:
            op = what.removeprefix("PrimFunc_").rpartition("::")[2]
        type = self._type_after(stop)
        type.name = "shape"
        graph.nodes.append(Call([a.removeprefix("@") for a in args], [name], name, op, [type], self._place(stop), found.start(2)))
        numbers[found[1]] = name

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

    def _arguments(self, graph: Graph, numbers: dict[str, str], at: int, stop: int) -> list[str]:
        """The names of the operands in brackets from `at` on; constants become nodes of their own."""
        depth, end = 0, at
        for end in range(at, stop):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.text[end], 0)
            if depth == 0:
                break
        else:
            raise self.fail(at, "a bracket is not closed")
        found = []
        for piece in pieces(self.text[at + 1 : end]):
            if piece.startswith("%"):
                found.append(self._name(graph, numbers, piece, at))
            elif piece.startswith("@"):
                found.append(piece)
            elif piece.startswith("$(@"):
                found.append(self._outer(piece))
            else:
                found.append(self._constant(graph, piece, at))
        return found

    def _outer(self, text: str) -> str:
        """The name that `$(@graph:name)` reads: one of another graph."""
        owner, _, name = text[3:-1].partition(":")
        return name if name.startswith("para") else f"{owner}:{name}"

    def _constant(self, graph: Graph, text: str, at: int) -> str:
        name = f"{graph.name}:value_{len(graph.nodes)}_{at}_{text[:40]}"
        value = value_of(text)
        if value is ELIDED:
            self.elided[text[:80]] = None
            type = Attribute("shape", 19, tensors=[TensorData([-2], 1)])
            graph.nodes.append(Call([], [name], name, "Elided", [type], "", at))
        else:
            assert isinstance(value, Attribute)
            value.name = "value"
            graph.nodes.append(Call([], [name], name, "Constant", [value], "", at))
        return name

