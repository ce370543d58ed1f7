"""Printing the sea form: a module as text that reads back as the same module.

One line per node, in the order of the function's nodes, with its type. A value keeps the name of its origin, quoted where it
is not a plain word; the second value of a name is `%name#1`, values without name are numbered. Loops are numbered per function.
An op that declares an `assembly` is written in that form, any other as its operands and then its attributes in braces. Attributes
that have their defaults, or that the type tells, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Attr, Data, Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN
from deepx_graph.literal import Literal
from deepx_graph.text.sea.assembly import assembly_of, bare
from deepx_graph.text.sea.words import VERSION, dense_text, float_text, name_text, quote, type_text
from deepx_graph.types import DType, Type

DEPTH_LIMIT = 100


def write(module: Module) -> str:
    """The text of the module. Raises UsageError for an attribute value that has no text form, naming the node."""
    types: dict[Type, str] = {}
    lines = [f"sea {VERSION}", f"entry @{name_text(module.entry_name)}"]
    lines += map(_data, module.datas)
    for function in module.functions:
        lines += FunctionPrinter(function, types, 0).lines()
    return "\n".join(lines) + "\n"


class AttributePrinter:
    """Prints the attributes of the nodes of one function; `body` prints a function that is a value among them."""

    def __init__(self, types: dict[Type, str], depth: int, body: Callable[[Function], Iterable[str]]) -> None:
        self.types, self.depth, self.body = types, depth, body
        self.loops: dict[int, int] = {}

    def in_braces(self, node: Node, placed: frozenset[str] = frozenset()) -> str:
        """` {name = value, ...}`: the attributes that are not placed elsewhere, not told by the type, and no defaults."""
        attrs = [f"{a.name} = {self.text(node, a, v)}" for a, v in zip(node.op.attrs, node.attrs, strict=True)
                 if a.kind != "transient" and a.name not in placed and not _is_default(a, v) and not _is_told(a, v, node)]
        return f" {{{', '.join(attrs)}}}" if attrs else ""

    def text(self, node: Node, attr: Attr, value: Any) -> str:
        """The text of one value. Raises UsageError where it has none."""
        if node.op is LOOP_BEGIN:
            return str(self.loops.setdefault(value, len(self.loops)))
        return self._value(node, attr, value)

    def type(self, type: Type) -> str:
        """The text of a type."""
        text = self.types.get(type)
        if text is None:
            text = self.types[type] = type_text(type)
        return text

    def _value(self, node: Node, attr: Attr, value: Any) -> str:
        match value:
            case None:
                return "none"
            case bool():
                return "true" if value else "false"
            case int():
                return str(int(value))
            case float():
                return float_text(value)
            case str():
                return quote(value)
            case tuple():
                return f"[{', '.join([self._value(node, attr, v) for v in value])}]"
            case DType():
                return value.name
            case Type():
                return self.type(value)
            case Literal():
                return dense_text(value)
            case Function() if self.depth <= DEPTH_LIMIT:
                return "\n".join(self.body(value)).lstrip()
            case Function():
                raise UsageError(Diagnostic(f"{node.op.name}: functions are nested deeper than {DEPTH_LIMIT}", node.span))
        raise UsageError(Diagnostic(f"{node.op.name}: the attribute '{attr.name}' has no text form", node.span))


class FunctionPrinter:
    """Prints one function; `types` is shared by all, as most types recur."""

    def __init__(self, function: Function, types: dict[Type, str], depth: int) -> None:
        self.function, self.depth = function, depth
        self.attributes = AttributePrinter(types, depth, lambda body: FunctionPrinter(body, types, depth + 1).lines())
        self.names: dict[Node, str] = {}
        self._met: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        """The function, line by line."""
        f, pad = self.function, "  " * self.depth
        early = _leading_params(f)
        heads = [f"{self._name(p)}: {self.attributes.type(p.type)}" if k < early else self._name(p) for k, p in enumerate(f.params)]
        results = [f"{_value_word(f.result_name(k))}: {self.attributes.type(r.type)}" for k, r in enumerate(f.results)]
        vjp = "" if f.vjp is None else f" vjp @{name_text(f.vjp)}"
        public = "public " if f.public else ""
        said = "".join(f" {name_text(name)} = {quote(text)}" for name, text in f.attributes)
        said = f" with{said}" if said else ""
        yield f"{pad}func {public}@{name_text(f.name)}({', '.join(heads)}) -> ({', '.join(results)}){vjp}{said} {{"
        for node in f.nodes[early:]:
            yield f"{pad}  {self._node(node)}"
        returned = ", ".join(map(self._name, f.results))
        yield f"{pad}  return {returned}".rstrip()
        yield f"{pad}}}"

    def _node(self, node: Node) -> str:
        attributes, placed = self.attributes, frozenset[str]()
        if node.op.assembly is None:
            operands = ", ".join([self.names[i] for i in node.inputs])
        else:
            form = assembly_of(node.op)
            placed = form.named
            operands = form.write(node, self.names.__getitem__, lambda a, v: v if bare(a, v) else attributes.text(node, a, v))
        text = f"{self._name(node)} = {name_text(node.op.name)}{' ' + operands if operands else ''}"
        text += attributes.in_braces(node, placed)
        return text if node.op is CONSTANT else f"{text} : {self.attributes.type(node.type)}"

    def _name(self, node: Node) -> str:
        name = self.names.get(node)
        if name is None:
            count = self._met[node.name] = self._met.get(node.name, -1) + 1
            word = _value_word(node.name) if node.name else f"%{count}"
            name = self.names[node] = f"{word}#{count}" if count and node.name else word
        return name


def _data(data: Data) -> str:
    """`data @List<$A> { Cons($A, @List<$A>), Nil() }`."""
    params = f"<{', '.join('$' + name_text(p) for p in data.params)}>" if data.params else ""
    made = (f"{name_text(c.name)}({', '.join(map(type_text, c.fields))})" for c in data.constructors)
    return f"data {'extern ' if data.extern else ''}@{name_text(data.name)}{params} {{ {', '.join(made)} }}"


def _value_word(name: str) -> str:
    return f"%{name_text(name)}"


def _leading_params(function: Function) -> int:
    """The number of parameters that stand, in order, before all other nodes; the others get a line where they were made."""
    count = 0
    for node, param in zip(function.nodes, function.params, strict=False):
        if node is not param:
            break
        count += 1
    return count


def _is_told(attr: Attr, value: Any, node: Node) -> bool:
    """Whether the type of the node, which is written after it, tells the value."""
    return attr.from_type is not None and attr.from_type(node.type) == value


def _is_default(attr: Attr, value: Any) -> bool:
    """Whether the reader fills this value in by itself; floats are always written, as 0.0 equals -0.0."""
    return type(value) is type(attr.default) and type(value) in (bool, int, str, type(None)) and value == attr.default
