"""Printing HLO text: a module as XLA's own parser reads it, computations before their use, the entry last.

Branches, loop conditions and bodies are outlined; bodies of reductions and the like are written once for equal functions. Only
functions that the entry reaches are written. What HLO cannot express raises VerifyError naming the node and its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Function, Module, Node, Op
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_END, REGION
from deepx_graph.literal import Literal
from deepx_graph.rewrite.legalise import Legaliser
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.hlo.literals import literal_text
from deepx_graph.text.hlo.notes import Notes, noted_names, shape_text
from deepx_graph.text.hlo.printer.body import ComputationWriter, Emit, shown_results
from deepx_graph.text.hlo.printer.ops import EMITTERS, TARGET
from deepx_graph.text.hlo.printer.place import ClosedComputation, Computations, without_fixed_variables
from deepx_graph.text.hlo.shapes import NoWord, legal, tuple_text, word
from deepx_graph.types import STATE

Order = Callable[[Sequence[Node]], list[Node]]


def write(module: Module) -> str:
    """The module as HLO text. Raises VerifyError for what HLO cannot express."""
    return HloPrinter(module).text()


class HloPrinter:
    """Writes the computations that the entry needs, outermost first, and puts them in order; `literal` says constants."""

    unnamed_items = (CALL, CALL_VALUE, LOOP_END, REGION)
    """Ops whose items get their names from the whole: names of their own do not outlive reading."""

    def __init__(self, module: Module, literal: Callable[[Literal], str] = literal_text) -> None:
        self.module, self.literal = module, literal
        self.emitters: dict[Op, Emit] = EMITTERS
        self.legaliser = Legaliser(TARGET)
        self.blocks: dict[str, str] = {}
        self.uses: dict[str, dict[str, Node]] = {}
        self._functions: dict[str, str] = {}
        self._bodies: dict[Function, str] = {}
        self._foreign: dict[str, Function] = {}
        self._loops: dict[Node, tuple[list[Node], str, str]] = {}
        self._regions: dict[Node, list[tuple[list[Node], str]]] = {}
        self.notes = Notes()
        self._jobs: deque[Callable[[], None]] = deque()
        self._next: dict[str, int] = {}

    def text(self) -> str:
        """The whole text."""
        main = self.function(self.module.entry)
        while self._jobs:
            self._jobs.popleft()()
        *before, last = self._ordered(main)
        said = "".join(f", {name}={text}" for name, text in self.module.notes if self.module.format == "hlo")
        name = word(self.module.name or self.module.entry_name)
        head = f"HloModule {name}{said}, entry_computation_layout={{{self._layout()}}}\n"
        if tables := self.notes.frames.header():
            head += f"\n{tables}"
        return "\n".join([head, *(self.blocks[n] for n in before), "ENTRY " + self.blocks[last]])

    def _layout(self) -> str:
        entry = self.module.entry
        try:
            params = tuple_text(shape_text(p) for p in entry.params if p.type != STATE)
            results = [shape_text(r) for r in shown_results(entry.results)]
            return f"{params}->{results[0] if len(results) == 1 else tuple_text(results)}"
        except NoWord as e:
            raise VerifyError(Diagnostic(str(e), entry.span)) from None

    # --- computations

    def use(self, user: str, name: str, node: Node) -> str:
        """Notes that computation `user` names computation `name` at a node; gives the name."""
        self.uses[user].setdefault(name, node)
        return name

    def is_entry(self, name: str) -> bool:
        """Whether that is the computation of the entry."""
        return self._functions.get(self.module.entry_name) == name

    def function(self, function: Function) -> str:
        """The computation of a function of the module."""
        if function.name not in self._functions:
            self._functions[function.name] = self._whole(function)
        return self._functions[function.name]

    def body(self, function: Function) -> str:
        """The computation of a function that is an attribute; equal ones share it."""
        if function not in self._bodies:
            self._bodies[function] = self._whole(function)
        return self._bodies[function]

    def foreign(self, name: str, w: ComputationWriter, node: Node) -> str:
        """The computation that a kept instruction names, from the text the module was read from."""
        if name not in self._foreign:
            from deepx_graph.text.hlo.reader.lower import HloLowering, parsed

            source = self.module.source
            known = source is not None and self.module.format == "hlo"
            program = parsed(source, ReadOptions(max_nodes=1 << 62))[0] if source is not None and known else None
            found = next((c for c in program.computations if c.name == name), None) if program else None
            if program is None or found is None:
                raise w.fail(node, f"the computation '{name}' that this instruction names is not known")
            self._foreign[name] = HloLowering(program).function(found)
        return self.body(self._foreign[name])

    def _whole(self, function: Function) -> str:
        function = without_fixed_variables(self.legaliser.function(function))
        name = self._reserve(function.name or "computation")
        writer = partial(ComputationWriter, self, name)
        self._jobs.append(lambda: self._finish(writer(Computations(function)), lambda w: w.function(function)))
        return name

    def loop(self, w: ComputationWriter, end: Node, base: str, order: Order) -> tuple[list[Node], str, str]:
        """What a loop captures, and its condition and body."""
        if end not in self._loops:
            scopes = w.placement.of_loops[end]
            captures = order(list(scopes[0].captures))
            said = noted_names(end.origin, "condition", "body") or [f"{base}.condition", f"{base}.body"]
            condition, body = (self._inner(w, name, partial(_write_loop, end=end, scope=scope, captures=captures))
                               for name, scope in zip(said, scopes, strict=True))
            self._loops[end] = captures, condition, body
        captures, condition, body = self._loops[end]
        return captures, self.use(w.name, condition, end), self.use(w.name, body, end)

    def region(self, w: ComputationWriter, node: Node, base: str, order: Order) -> list[tuple[list[Node], str]]:
        """What each branch captures, and its computation."""
        if node not in self._regions:
            self._regions[node] = []
            scopes = w.placement.of_branches[node]
            said = noted_names(node.origin, "branch_computations", "true_computation", "false_computation")
            for k, scope in enumerate(scopes):
                captures = order(list(scope.captures))
                wish = said[k] if len(said) == len(scopes) else f"{base}.branch{k}"
                name = self._inner(w, wish, partial(_write_branch, scope=scope, captures=captures))
                self._regions[node].append((captures, name))
        for _, name in self._regions[node]:
            self.use(w.name, name, node)
        return self._regions[node]

    def _inner(self, outer: ComputationWriter, wish: str, write: Callable[[ComputationWriter], None]) -> str:
        """The name of a computation that is written later."""
        name = self._reserve(wish)
        self._jobs.append(lambda: self._finish(ComputationWriter(self, name, outer.placement), write))
        return name

    def _finish(self, w: ComputationWriter, write: Callable[[ComputationWriter], None]) -> None:
        w.guard(lambda: write(w))
        self.blocks[w.name] = w.text()

    def _reserve(self, base: str) -> str:
        """A name for a computation."""
        word = legal(base)
        name, count = word, self._next.get(word, 0)
        while name in self.uses:
            count += 1
            name = f"{word}.{count}"
        self._next[word] = count
        self.uses[name] = {}
        return name

    def _ordered(self, main: str) -> list[str]:
        """All computations, each after those it uses. Raises VerifyError where one uses itself."""
        order: list[str] = []
        state: dict[str, bool] = {main: False}
        stack = [(main, iter(self.uses[main].items()))]
        while stack:
            name, rest = stack[-1]
            for used, node in rest:
                if used not in state:
                    state[used] = False
                    stack.append((used, iter(self.uses[used].items())))
                    break
                if not state[used]:
                    raise VerifyError(Diagnostic(f"'{used}' calls itself, and HLO has no recursion", node.span))
            else:
                state[name] = True
                order.append(name)
                stack.pop()
        return order


def _write_loop(w: ComputationWriter, end: Node, scope: ClosedComputation, captures: Sequence[Node]) -> None:
    """A condition (its one root is the result) or a body (its roots and what it captures, passed on, make the state)."""
    is_body = scope is w.placement.of_loops[end][1]
    w.state(end, scope, captures, captures if is_body else _reached(w, scope))
    w.run(scope)
    w.root(w.pack("next", [*scope.roots, *captures]) if is_body else w.value(scope.roots[0]))


def _reached(w: ComputationWriter, scope: ClosedComputation) -> set[Node]:
    """What the nodes of a scope use."""
    found = set(scope.roots)
    for items in scope.items.values():
        for i in items:
            found.update(i.inputs)
    for n in scope.members:
        found.update(w.placement.needs(n))
    return found


def _write_branch(w: ComputationWriter, scope: ClosedComputation, captures: Sequence[Node]) -> None:
    w.taken(captures)
    w.run(scope)
    w.finish(scope.roots)
