"""One function as Relay text: scopes nested as they are placed, names kept, effects in the order of the state.

A node is printed where something mentions it, in the innermost block around all mentions; users come before operands. A value with
a name, an effect, and what only a stated type tells is a `let`; everything else a numbered binding. Fields of a value that stand in
a branch of a match for their constructor are the variables of its pattern. States are mentioned and never written: the order of
effects is the order of the text. A function that exists for one closure is written where the closure is made, and calls itself by
the closure's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deepx_graph import ops
from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.ir import Data, Function, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branch_count,
    branches_of,
    callee_of,
    index_of,
    value_of,
)
from deepx_graph.literal import Literal
from deepx_graph.text.relay.printer.ops import said, tuple_text, unsaid, writing
from deepx_graph.text.relay.words import NAMES, Text, call, number_text, result_text, type_text, unused
from deepx_graph.types import (
    BOOL,
    DataType,
    DType,
    FunctionType,
    StateType,
    TensorType,
    TupleType,
    Type,
    as_tensor,
    is_state,
    is_static,
    scalar,
)

_ILLEGAL = re.compile(r"\W", re.ASCII)


class Names:
    """Local names and numbers of one definition."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.count = 0

    def local(self, wish: str) -> str:
        """A local variable `%name` that is not taken; `wish` as near as it can be."""
        name = _ILLEGAL.sub("_", wish) or "v"
        if not name[0].isalpha() and name[0] != "_":
            name = f"v{name}"
        return "%_" if name == "_" else f"%{unused(name, self.taken, '_')}"

    def number(self) -> str:
        """The next graph binding, `%0`, `%1`, ..."""
        self.count += 1
        return f"%{self.count - 1}"


# --- placement ------------------------------------------------------------------------------------------------------

EFFECTS = (ops.ref_create, ops.ref_read, ops.ref_write)


def whole(node: Node) -> Node:
    """The node whose name a node goes by: the call of its one result, the branch of its one value."""
    while node.op is PROJ or node.op is PHI:
        source = node.inputs[0]
        if source.op in (CALL, CALL_VALUE, *EFFECTS, REGION) and len(values(source)) == 1:
            node = source
        else:
            return node
    return node


def values(node: Node) -> tuple[int, ...]:
    """The places of the results that are no state."""
    assert isinstance(node.type, TupleType)
    return tuple(k for k, t in enumerate(node.type.items) if not is_state(t))


def is_effect(node: Node) -> bool:
    """Whether the node takes the state, so that its place in the order of the text matters."""
    return any(isinstance(i.type, StateType) for i in node.inputs)


class Blocks(ScopeTree):
    """`say(node)` gives the text of a node that is printed as an expression; regions are this class's own business.

    `cases` maps the branches of a match to value and constructor, `fields` to those fields of the value that they bind.
    """

    def __init__(self, function: Function, say: Callable[[Node], Text], inlined: Callable[[Node], bool]) -> None:
        super().__init__(function, everything(function))
        self.say, self.inlined = say, inlined
        self.mentions: Counter[Node] = Counter()
        self.texts: dict[Node, Text] = {}
        self.columns: dict[Node, set[int]] = {}
        self.cases: dict[Scope, tuple[Node, str]] = {}
        self.fields: dict[Scope, dict[int, Node]] = {}
        self.place_all()
        for scope in self.scopes:
            scope.nodes.reverse()

    def use(self, nodes: Iterable[Node], at: Scope) -> None:
        """Records that the text of `at` mentions the nodes."""
        for node in nodes:
            if node.op is not CONSTANT or not self.inlined(node):
                super().use((node,), at)
                self.mentions[node] += not isinstance(node.type, StateType)

    def place(self, node: Node, latest: Scope) -> None:
        if node.op is PHI and node.inputs[0].op is REGION:
            self.columns.setdefault(node.inputs[0], set()).add(index_of(node))
        if node.op is REGION:
            self._region(node, latest)
        elif (isinstance(node.type, StateType) and node.op in (PHI, PROJ)) or whole(node) is not node:
            self.use(node.inputs[:1], latest)
        elif node.op is not ops.field or not self._binds(node, latest):
            super().place(node, latest)

    def operands(self, node: Node) -> Sequence[Node]:
        """The nodes that the text of a node mentions, and the states that it takes."""
        text = self.texts[node] = self.say(node)
        return [*(part for part in text if isinstance(part, Node)), *(i for i in node.inputs if isinstance(i.type, StateType))]

    def _binds(self, node: Node, scope: Scope) -> bool:
        """Whether the field is a variable of the pattern of a match around it."""
        while self.cases.get(scope) != (node.inputs[0], node.attr("constructor")):
            if scope is self.root:
                return False
            scope = scope.parent
        return self.fields.setdefault(scope, {}).setdefault(node.attr("index"), node) is node

    def _region(self, region: Node, scope: Scope) -> None:
        self.home[region] = scope
        scope.nodes.append(region)
        selector, branches = region.inputs[0], branch_count(region)
        cases = selector.attr("cases") if selector.op is ops.tag else ()
        subject = selector.inputs[0] if cases else selector
        self.open_branches(region, scope)
        if branches >= len(cases):
            self.cases.update((branch, (subject, case)) for branch, case in zip(self.branches[region], cases, strict=False))
        columns = self.columns.get(region, ())
        for branch in self.branches[region]:
            values = self.live.branch(region, branch.branch)
            self.use((values[k] for k in columns), branch)
        self.use((subject,), scope)


# --- text -----------------------------------------------------------------------------------------------------------


@dataclass
class Shared:
    """What all functions of a module share: names of functions, those written as literals, constants of the metadata section."""

    functions: dict[str, Function]
    names: dict[str, str]
    literals: frozenset[str]
    datas: dict[str, Data]
    constants: dict[Literal, int] = field(default_factory=dict)

    def constant(self, literal: Literal) -> str:
        """A reference into the metadata section."""
        return f"meta[relay.Constant][{self.constants.setdefault(literal, len(self.constants))}]"


class Writer:
    """Writes the body of one function. `known` gives the text of parameters; `around` that of functions written around this one."""

    def __init__(self, shared: Shared, function: Function, names: Names, known: dict[Node, str],
                 around: dict[str, tuple[str, tuple[str, ...]]]) -> None:
        self.shared, self.function, self.names, self.around = shared, function, names, around
        self.refs = dict(known)
        self.captured = {i for n in function.nodes if n.op is PARTIAL and self.is_literal(n) for i in n.inputs}
        self.place = Blocks(function, self.say, self.is_inline)

    def params(self, params: Sequence[Node]) -> list[str]:
        """Names the parameters; gives `%x: T` for each that is no state."""
        heads = []
        for k, p in enumerate(params):
            if isinstance(p.type, StateType):
                continue
            name = self.refs[p] = self.names.local(p.name or f"p{k}")
            with writing(p):
                stated = type_text(p.type)
            heads.append(name if stated == "_" else f"{name}: {stated}")
        return heads

    def body(self, pad: str) -> list[str]:
        """The lines of the function's block."""
        results = [r for r in self.function.results if not isinstance(r.type, StateType)]
        return self.block(self.place.root, results, pad)

    # --- what nodes say

    def is_inline(self, node: Node) -> bool:
        """Whether a constant is written where it is used: unless a function literal captures it."""
        return node not in self.captured

    def say(self, node: Node) -> Text:
        """The text of a node other than a region; a literal says only what it captures."""
        with writing(node):
            return self._said(node)

    def _said(self, node: Node) -> Text:
        given = [i for i in node.inputs if not isinstance(i.type, StateType)]
        if node.op is CALL:
            return self._called(node, given)
        if node.op is CALL_VALUE:
            return call(given[0], *given[1:])
        if node.op is PARTIAL:
            return given if self.is_literal(node) else self._partial(node, given)
        if node.op is CONSTANT:
            return [self._constant(node)]
        if node.op is ops.ref_create:
            return call("ref", *given)
        if node.op is ops.ref_read or node.op is ops.ref_write:
            return call(node.op.name, *given)
        if node.op is ops.field:
            return self._field(node)
        if node.op is ops.match_failed:
            return []
        if node.op is ops.broadcast_in_dim and not is_static(node.type):
            return self._broadcast_like(node)
        return node.inputs if _is_item(node) else said(node)

    def _broadcast_like(self, node: Node) -> Text:
        """A broadcast to sizes that are not known: to those of a value that has them."""
        type, axes = node.type, node.attr("broadcast_dimensions")
        assert isinstance(type, TensorType)
        older = (n for n in self.function.nodes if n.serial < node.serial and isinstance(n.type, TensorType))
        like = next((n for n in older if isinstance(n.type, TensorType) and n.type.dims == type.dims), None)
        trailing = type.dims is not None and axes == tuple(range(len(type.dims) - len(axes), len(type.dims)))
        if like is None or not trailing:
            raise unsaid(node, "nothing before it has these sizes")
        return call("broadcast_to_like", node.inputs[0], like)

    def _called(self, node: Node, given: Sequence[Node]) -> Text:
        name = callee_of(node)
        if name in self.around:
            local, captured = self.around[name]
            if tuple(self.refs.get(i, "") for i in given[: len(captured)]) == captured:
                return call(local, *given[len(captured) :])
            raise unsaid(node, "a local function called with other captured values")
        return call(f"@{self.shared.names[name]}", *given)

    def is_literal(self, node: Node) -> bool:
        return callee_of(node) in self.shared.literals and callee_of(node) not in self.around

    def _partial(self, node: Node, given: Sequence[Node]) -> Text:
        name = callee_of(node)
        if name in self.around:
            return [self.around[name][0]]
        if not given:
            return [f"@{self.shared.names[name]}"]
        assert isinstance(node.type, FunctionType)
        rest = [t for t in node.type.params if not isinstance(t, StateType)]
        heads = ", ".join(f"%a{k}: {type_text(t)}" for k, t in enumerate(rest))
        inner = call(f"@{self.shared.names[name]}", *given, *(f"%a{k}" for k in range(len(rest))))
        return [f"fn ({heads}) {{ ", *inner, " }"]

    def _field(self, node: Node) -> Text:
        constructor, index, _ = node.attrs
        count = self._fields_of(constructor, node.inputs[0].type)
        inner = ", ".join("%a" if k == index else "_" for k in range(count))
        return ["match? (", node.inputs[0], f") {{ {constructor}({inner}) => %a }}"]

    def _fields_of(self, constructor: str, type: Type) -> int:
        assert isinstance(type, DataType)
        made = self.shared.datas[type.name].constructor(constructor)
        return len(made.fields) if made else 0

    # --- references

    def ref(self, node: Node) -> str:
        """How a node is referred to."""
        node = whole(node)
        if node not in self.refs:
            self.refs[node] = self._constant(node)
        return self.refs[node]

    def _constant(self, node: Node) -> str:
        literal = value_of(node)
        value = number_text(literal)
        name = NAMES.get(literal.dtype)
        if name is None:
            raise unsaid(node)
        if value is None or literal.type.dims == ():
            return self.shared.constant(literal) if value is None else value
        if not literal.splat_value and not str(literal.splat_value).startswith("-"):
            return f'zeros(shape={list(literal.type.shape)}, dtype="{name}")'
        return f'full({value}, shape={list(literal.type.shape)}, dtype="{name}")'

    def words(self, text: Text) -> str:
        return "".join(part if isinstance(part, str) else self.ref(part) for part in text)

    # --- blocks

    def block(self, block: Scope, results: Sequence[Node], pad: str) -> list[str]:
        """The lines of a scope whose value is the results."""
        lines: list[str] = []
        last: tuple[Node, str] | None = None
        for node in block.nodes:
            text = self.expression(node, pad)
            name, stated = self._binding(node)
            is_name = text.startswith(("@", "%")) if node.op is PARTIAL else node.op is ops.construct and not node.inputs
            if is_name and not name:
                self.refs[node] = text
                continue
            self.refs[node] = local = name or self.names.number()
            lines.append(f"{pad}{'let ' if name else ''}{local}{stated} = {text};")
            last = (node, text) if not name else None
        if len(results) == 1:
            node = whole(results[0])
            if last is not None and last[0] is node and self.place.mentions[node] == 1:
                self.names.count -= 1
                return [*lines[:-1], f"{pad}{last[1]}"]
            return [*lines, f"{pad}{self.ref(node)}"]
        return [*lines, f"{pad}{self.words(tuple_text(results))}"]

    def _binding(self, node: Node) -> tuple[str, str]:
        """The name of a let for the node, empty for a numbered binding, and the type that it states."""
        name = node.name or self.names_of.get(node, "")
        if node.op is PARTIAL and self.is_literal(node):
            return self.refs.get(node, ""), ""
        if is_effect(node) and not name:
            name = "_" if node.op is ops.ref_write or not self.place.mentions.get(node) else "v"
        if not name:
            return "", ""
        return self.names.local(name), f": {type_text(node.type)}" if node.op is ops.construct and not node.inputs else ""

    @cached_property
    def names_of(self) -> dict[Node, str]:
        """The first name of a projection by which a node may go."""
        found: dict[Node, str] = {}
        for n in self.function.nodes:
            if n.name and n.op in (PROJ, PHI) and not isinstance(n.type, StateType) and whole(n) is not n:
                found.setdefault(whole(n), n.name)
        return found

    def expression(self, node: Node, pad: str) -> str:
        """The text of a node, with the blocks inside it."""
        with writing(node):
            return self._expression(node, pad)

    def _expression(self, node: Node, pad: str) -> str:
        if node.op is REGION:
            return self._region(node, pad)
        if node.op is ops.match_failed:
            return self._never(node)
        if node.op is PARTIAL and self.is_literal(node):
            return self._literal(node, pad)
        if _is_item(node):
            source = node.inputs[0]
            said = self.place.columns[source] if source.op is REGION else values(source)
            columns = [k for k in values(source) if k in said]
            if source.op is REGION and len(columns) == 1:  # the only value that is read, of a branch of several: no tuple
                return self.ref(source)
            return f"{self.ref(source)}.{columns.index(index_of(node))}"
        return self.words(self.place.texts[node])

    def _never(self, node: Node) -> str:
        """A match that fails and would give a value of the type: of a constructor without fields against another one."""
        for data in self.shared.datas.values():
            bare = [c for c in data.constructors if not c.fields]
            other = [c for c in data.constructors if bare and c is not bare[0]]
            if other:
                fields = f"({', '.join('_' for _ in other[0].fields)})" if other[0].fields else ""
                function = f"fn () -> {type_text(node.type)} {{ %never() }}"
                return f"(let %never = {function}; match? ({bare[0].name}) {{ {other[0].name}{fields} => %never() }})"
        raise unsaid(node, "outside the last branch of a match")

    def _literal(self, node: Node, pad: str) -> str:
        """A function written where its closure is made. Its name is taken before its body, which may call it."""
        function = self.shared.functions[callee_of(node)]
        captured = tuple(self.ref(i) for i in node.inputs)
        wish = node.name or ("" if callee_of(node) not in _called_in(function) else callee_of(node).rpartition(".")[2])
        name = self.names.local(wish) if wish else ""
        if name:
            self.refs[node] = name
        around = {**self.around, **({callee_of(node): (name, captured)} if name else {})}
        known = dict(zip(function.params, captured, strict=False))
        inner = Writer(self.shared, function, self.names, known, around)
        heads = inner.params(function.params[len(captured) :])
        heads += [f"{k}={v}" for k, v in function.attributes]
        result = result_text([r.type for r in function.results if not isinstance(r.type, StateType)])
        arrow = "" if "_" in result else f" -> {result}"
        return "\n".join([f"fn ({', '.join(heads)}){arrow} {{", *inner.body(pad + "  "), f"{pad}}}"])

    # --- branches

    def _region(self, region: Node, pad: str) -> str:
        selector, branches = region.inputs[0], branch_count(region)
        columns = [k for k in sorted(self.place.columns.get(region, ())) if k in values(region)]
        results = [[values[k] for k in columns] for values in branches_of(region)]
        if selector.op is ops.tag and branches >= len(selector.attr("cases")):
            return self._match(region, selector, results, pad)
        blocks = [self.block(block, r, pad + "  ") for block, r in zip(self.place.branches[region], results, strict=True)]
        if branches == 1:
            return "\n".join(["(", *blocks[0], f"{pad})"])
        text: list[str] = []
        shown, dtype = self.ref(selector), as_tensor(selector.type).dtype
        for k, lines in enumerate(blocks[:-1]):
            test = shown if branches == 2 and dtype is BOOL else f"equal({shown}, {self._index(k, dtype)})"
            text += [f"{'} else ' if k else ''}if ({test}) {{", *lines]
        return "\n".join([*text[:1], *_indented(text[1:], pad), f"{pad}}} else {{", *blocks[-1], f"{pad}}}"])

    def _index(self, k: int, dtype: DType) -> str:
        literal = Literal.splat(k, scalar(dtype))
        return number_text(literal) or self.shared.constant(literal)

    def _match(self, region: Node, tag: Node, results: Sequence[Sequence[Node]], pad: str) -> str:
        cases: tuple[str, ...] = tag.attr("cases")
        blocks = self.place.branches[region]
        type = tag.inputs[0].type
        assert isinstance(type, DataType)
        clauses: list[str] = []
        partial = False
        for k, (block, values_) in enumerate(zip(blocks, results, strict=True)):
            if k >= len(cases) and all(v.op is ops.match_failed for v in values_) and values_:
                partial = True
                continue
            head = self._pattern(block, cases[k], type) if k < len(cases) else "_"
            clauses += [f"{pad}  {head} => {{", *self.block(block, values_, pad + "    "), f"{pad}  }},"]
        if len(blocks) == len(cases) and len(cases) < len(self.shared.datas[type.name].constructors):
            partial = True
        return "\n".join([f"match{'?' if partial else ''} ({self.ref(tag.inputs[0])}) {{", *clauses, f"{pad}}}"])

    def _pattern(self, block: Scope, constructor: str, type: Type) -> str:
        count, fields = self._fields_of(constructor, type), self.place.fields.get(block, {})
        for k, node in sorted(fields.items()):
            self.refs[node] = self.names.local(node.name or f"f{k}")
        inner = ", ".join(self.refs[fields[k]] if k in fields else "_" for k in range(count))
        return f"{constructor}({inner})" if count else constructor


def _is_item(node: Node) -> bool:
    """Whether the node is one of several results of a call or branch."""
    return node.op in (PROJ, PHI) and node.inputs[0].op in (CALL, CALL_VALUE, REGION)


def _indented(lines: list[str], pad: str) -> list[str]:
    return [f"{pad}{line}" if line.startswith("} else ") else line for line in lines]


def _called_in(function: Function) -> set[str]:
    return {callee_of(n) for n in function.nodes if n.op is CALL or n.op is PARTIAL}
