"""Printing A-normal form: a let for every value, `if` and `case` for branches, `letrec` for loops; types on every let.

What a block holds and in what order is the placement's business. A value of a call, branch or loop is bound by name at once, and no
projection is written. Nothing recurses over the graph: a block is a generator, and `render` keeps the open ones on a stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deepx_graph.errors import InferError
from deepx_graph.ir import Data, Function, Module, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branch_count,
    branches_of,
    callee_of,
    index_of,
    signature_of,
    value_of,
)
from deepx_graph.literal import Literal
from deepx_graph.text.common.regions import TextRegions
from deepx_graph.text.sea.printer import AttributePrinter
from deepx_graph.text.sea.words import dense_text, name_text, quote, type_text
from deepx_graph.types import BOOL, TensorType, TupleType, Type, as_tensor

VERSION = 1
CONTROL = (CALL, CALL_VALUE, REGION, LOOP_END)
"""What a block may end with, in the place of its values."""

Lines = Iterator["str | Lines"]
"""Lines, and blocks of lines. Closing brackets alone go to the end of the line before."""


def write(module: Module) -> str:
    """The text of the module. Raises UsageError for an attribute value that has no text form, naming the node."""
    shared = ModuleTexts(module)
    parts = [f"anf {VERSION}", f"(entry @{name_text(module.entry_name)})", *map(data_text, module.datas)]
    for f in module.functions:
        parts += render(Printer(f, shared).definition())
    return "\n".join(parts) + "\n"


def render(lines: Lines) -> list[str]:
    """The lines of a block, with those of the blocks in it."""
    found: list[str] = []
    stack = [lines]
    while stack:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
        elif not isinstance(item, str):
            stack.append(item)
        elif item.strip(")") or not found:
            found.append(item)
        else:
            found[-1] += item
    return found


def data_text(data: Data) -> str:
    """`(data @List ($A) (Cons $A @List<$A>) (Nil))`."""
    params = " ".join("$" + name_text(p) for p in data.params)
    made = "".join(f" ({' '.join([name_text(c.name), *map(type_text, c.fields)])})" for c in data.constructors)
    return f"(data {'extern ' if data.extern else ''}@{name_text(data.name)} ({params}){made})"


class ModuleTexts:
    """What the functions of a module share: each other, the texts of types, a name for loops that no function has."""

    def __init__(self, module: Module | None) -> None:
        self.functions = {f.name: f for f in module.functions} if module else {}
        self.types: dict[Type, str] = {}
        self.loop = "loop"
        while any(name.startswith(self.loop) for name in self.functions):
            self.loop += "_"


class Printer:
    """One function in A-normal form."""

    def __init__(self, function: Function, shared: ModuleTexts, depth: int = 0) -> None:
        self.function, self.shared, self.pad = function, shared, "  " * (2 * depth)
        self.attributes = AttributePrinter(shared.types, depth, lambda body: render(Printer(body, shared, depth + 1).literal()))
        self.type = self.attributes.type
        self.place = TextRegions(function)
        self.names: dict[Node, str] = {}
        self.items: dict[tuple[Node, int], str] = {}
        self.named = _items(function)
        self.wholes = _wholes(function)
        self._met: dict[str, int] = {}
        self._loops = 0

    # --- functions

    def definition(self) -> Lines:
        """`(define public (@f (%x : T)) -> ((%y : T)) body)`."""
        f = self.function
        vjp = "" if f.vjp is None else f" vjp @{name_text(f.vjp)}"
        said = "".join(f" {name_text(name)} = {quote(text)}" for name, text in f.attributes)
        params = " ".join([f"@{name_text(f.name)}", *self.params(f.params)])
        yield f"(define {'public ' if f.public else ''}({params}) -> {self.results()}{vjp}{' with' + said if said else ''}"
        yield self.block(self.place.root.nodes[::-1], f.results, "  ")
        yield ")"

    def literal(self) -> Lines:
        """`(lambda @f ((%x : T)) -> ((%y : T)) body)`: the value of an attribute."""
        f = self.function
        yield f"(lambda @{name_text(f.name)} ({' '.join(self.params(f.params))}) -> {self.results()}"
        yield self.block(self.place.root.nodes[::-1], f.results, self.pad + "  ")
        yield ")"

    def params(self, params: Iterable[Node]) -> list[str]:
        """Names the parameters, and gives them with their types."""
        return [f"({self.name(p)} : {self.type(p.type)})" for p in params]

    def results(self) -> str:
        """The names and types of the function's results."""
        f = self.function
        return f"({' '.join(f'(%{name_text(f.result_name(k))} : {self.type(r.type)})' for k, r in enumerate(f.results))})"

    # --- names

    def fresh(self, wish: str) -> str:
        """A name that the text does not have yet: the wish, if there is one, else a number."""
        count = self._met[wish] = self._met.get(wish, -1) + 1
        if not wish:
            return f"%{count}"
        return f"%{name_text(wish)}#{count}" if count else f"%{name_text(wish)}"

    def name(self, node: Node) -> str:
        found = self.names[node] = self.fresh(node.name)
        return found

    def bind(self, source: Node) -> list[str]:
        """Names the values of a call, branch or loop; those of a loop's iteration are its begin's."""
        assert isinstance(source.type, TupleType)
        alone = source.name if len(source.type.items) == 1 else ""
        found = [self.fresh(self.named.get((source, k), "") or alone) for k in range(len(source.type.items))]
        self.items.update({(source, k): name for k, name in enumerate(found)})
        return found

    def atom(self, node: Node) -> str:
        """How a value is referred to."""
        if is_plain(node):
            return constant_text(value_of(node))
        if is_item(node):
            return self.items[node.inputs[0], index_of(node)]
        if node.op is PARTIAL and not node.inputs and self.known(node):
            return f"@{name_text(callee_of(node))}"
        return self.names[node]

    def known(self, node: Node) -> bool:
        """Whether the callee's definition tells the signature."""
        callee = self.shared.functions.get(callee_of(node))
        return callee is not None and callee.type == signature_of(node)

    def values(self, nodes: Sequence[Node]) -> str:
        """One value, or several."""
        return several(list(map(self.atom, nodes)))

    # --- blocks

    def is_silent(self, node: Node) -> bool:
        """Whether nothing is written where the node stands."""
        return is_plain(node) or is_item(node) or (node.op is PARTIAL and not node.inputs and self.known(node))

    def block(self, nodes: Sequence[Node], results: Sequence[Node], pad: str) -> Lines:
        """The lets of the nodes around the results. A last call or branch whose values are the results stands in their place."""
        shown = [n for n in nodes if not self.is_silent(n)]
        last = shown.pop() if shown and self.ends(shown[-1], results) else None
        yield from (self.let(node, pad) for node in shown)
        yield iter([pad + self.values(results)]) if last is None else self.compound(last, pad)
        yield self.closing(shown)

    def closing(self, nodes: Sequence[Node]) -> str:
        """The brackets that close the lets of the nodes."""
        return ")" * sum(1 + (n in self.wholes) for n in nodes)

    def ends(self, node: Node, results: Sequence[Node]) -> bool:
        """Whether the results are the values of the node, all without names and of types that it tells."""
        if node in self.wholes or node.name or not _is_inferred(node):
            return False
        if not opens(node):
            return len(results) == 1 and results[0] is node
        return node.op in CONTROL and are_items(results, node) and not any(r.name for r in results)

    def let(self, node: Node, pad: str) -> Lines:
        """`(let (%x : T (op %y))`, to be closed after its body."""
        if not opens(node):
            text = self.primitive(node)
            yield f"{pad}(let ({self.name(node)} : {self.type(node.type)} {text})"
            return
        if node.op is not REGION and node.op is not LOOP_END:
            text = self.called(node)
            yield f"{pad}(let ({self.heads(node)} {text})"
        else:
            yield f"{pad}(let ({self.heads(node)}"
            yield self.compound(node, pad + "    ")
            yield ")"
        if node in self.wholes:
            yield f"{pad}{self.gathered(node)}"

    def gathered(self, node: Node) -> str:
        """The values of a call, branch or loop as one tuple: `(let (%t : (T, U) (tuple %x %y))`."""
        assert isinstance(node.type, TupleType)
        items = " ".join(self.items[node, k] for k in range(len(node.type.items)))
        return f"(let ({self.name(node)} : {self.type(node.type)} (tuple {items}))"

    def heads(self, node: Node) -> str:
        """`%x : T`, or `(%x %y) : (T, U)`, for the values of a call, branch or loop."""
        names = self.bind(node)
        assert isinstance(node.type, TupleType)
        if len(names) == 1 and node.op in CONTROL:
            return f"{names[0]} : {self.type(node.type.items[0])}"
        return f"({' '.join(names)}) : {self.type(node.type)}"

    # --- expressions

    def primitive(self, node: Node) -> str:
        """`(op %x %y {attribute = value})`."""
        if node.op is PARTIAL and self.known(node):
            return f"({' '.join(['partial', '@' + name_text(callee_of(node)), *map(self.atom, node.inputs)])})"
        parts = [name_text(node.op.name), *map(self.atom, node.inputs)]
        return f"({' '.join(parts)}{self.attributes.in_braces(node)})"

    def called(self, node: Node) -> str:
        """A call, or an operation."""
        args = list(map(self.atom, node.inputs))
        if node.op is CALL_VALUE and args[0].startswith("%"):
            return f"({' '.join(args)})"
        if node.op is CALL and self.known(node):
            return f"({' '.join(['@' + name_text(callee_of(node)), *args])})"
        return self.primitive(node)

    def compound(self, node: Node, pad: str) -> Lines:
        """A call, branch or loop."""
        if node.op is REGION:
            return self.region(node, pad)
        return self.loop(node, pad) if node.op is LOOP_END else iter([pad + self.called(node)])

    def region(self, node: Node, pad: str) -> Lines:
        yield f"{pad}({branch_word(node)} {self.atom(node.inputs[0])}"
        for k, block in enumerate(self.place.branches[node]):
            yield self.block(block.nodes[::-1], branches_of(node)[k], pad + "  ")
        yield ")"

    def loop_name(self) -> str:
        """A name for a loop, which no function of the module has."""
        self._loops += 1
        return f"@{self.shared.loop}{self._loops - 1 or ''}"

    def loop(self, node: Node, pad: str) -> Lines:
        """`(letrec (@loop (lambda (variables) test (if go-on (... (@loop nexts)) (values variables)))) (@loop inits))`."""
        begin = node.inputs[0]
        name = self.loop_name()
        variables = self.bind(begin)
        assert isinstance(begin.type, TupleType)
        heads = " ".join(f"({v} : {self.type(t)})" for v, t in zip(variables, begin.type.items, strict=True))
        yield f"{pad}(letrec ({name} (lambda ({heads})"
        test = [n for n in self.place.iteration(self.place.headers[node]) if not self.is_silent(n)]
        inner = pad + "    "
        yield from (self.let(n, inner) for n in test)
        yield f"{inner}(if {self.atom(node.inputs[1])}"
        body = [n for n in self.place.bodies[node].nodes[::-1] if not self.is_silent(n)]
        yield from (self.let(n, inner + "  ") for n in body)
        yield f"{inner}  ({' '.join([name, *map(self.atom, node.inputs[2:])])})"
        yield self.closing(body)
        yield f"{inner}  {several(variables)}"
        yield ")))" + self.closing(test)
        yield f"{pad}  ({' '.join([name, *map(self.atom, begin.inputs)])}))"


def several(atoms: Sequence[str]) -> str:
    return atoms[0] if len(atoms) == 1 else f"({' '.join(['values', *atoms])})"


def opens(node: Node) -> bool:
    """Whether the values are bound one by one: those of calls, branches and loops, and of operations with several results."""
    return isinstance(node.type, TupleType) and (node.op in CONTROL or len(node.op.results) > 1)


def is_item(node: Node) -> bool:
    """A value that is bound by name where its source stands; or a loop variable."""
    return node.op in (PROJ, PHI) and (node.inputs[0].op is LOOP_BEGIN or opens(node.inputs[0]))


def is_plain(node: Node) -> bool:
    """A scalar constant without a name, which is written where it is used."""
    return node.op is CONSTANT and not node.name and isinstance(node.type, TensorType) and node.type.dims == ()


def constant_text(literal: Literal) -> str:
    """`1:i32`."""
    return f"{dense_text(literal)[6:].split('>')[0]}:{literal.dtype.name}"


def branch_word(region: Node) -> str:
    return "if" if as_tensor(region.inputs[0].type).dtype is BOOL and branch_count(region) == 2 else "case"


def _items(function: Function) -> dict[tuple[Node, int], str]:
    """The names that values of calls, branches and loops go by."""
    found: dict[tuple[Node, int], str] = {}
    for node in function.nodes:
        if is_item(node) and node.name:
            found.setdefault((node.inputs[0], index_of(node)), node.name)
    return found


def _wholes(function: Function) -> set[Node]:
    """The calls, branches and loops whose values are used as one tuple."""
    return set(filter(opens, (*function.results, *(i for n in function.nodes if not is_item(n) for i in n.inputs))))


def are_items(nodes: Sequence[Node], source: Node) -> bool:
    """Whether the nodes are the values of the source, all of them and in order."""
    assert isinstance(source.type, TupleType)
    return len(nodes) == len(source.type.items) and all(
        is_item(n) and n.inputs[0] is source and index_of(n) == k for k, n in enumerate(nodes))


def _is_inferred(node: Node) -> bool:
    """Whether the text tells the type without saying it, and the type tells nothing that the text needs."""
    if any(a.from_type is not None for a in node.op.attrs):
        return False
    try:
        return node.op.infer([i.type for i in node.inputs], *node.attrs) == node.type
    except InferError:
        return False
