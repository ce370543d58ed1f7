"""Continuation-passing style: every function and call takes a continuation, `k`, and nothing returns. For looking; not read back.

A call is given what to do with its values; a last call is given `k` itself, so that tail calls are seen at once. The rest
behind a branch is a function that both sides call. Operations stay lets, functions that are values of attributes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import LOOP_END, REGION, branches_of
from deepx_graph.text.anf.printer import CONTROL, Lines, ModuleTexts, Printer, are_items, branch_word, data_text, render
from deepx_graph.text.sea.words import name_text
from deepx_graph.types import TupleType


def write(module: Module) -> str:
    """The text of the module. Raises UsageError for an attribute value that has no text form, naming the node."""
    shared = ModuleTexts(module)
    parts = ["; cps", f"(entry @{name_text(module.entry_name)})", *map(data_text, module.datas)]
    for f in module.functions:
        parts += render(ContinuationPrinter(f, shared).definition())
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class End:
    """How a block ends; where it ends with results for a continuation `k`, a last call may be given `k` instead."""

    write: Callable[[str], Lines]
    results: Sequence[Node] = ()
    k: str = ""


class ContinuationPrinter:
    """One function in continuation-passing style; names, types and operations are `p`'s, as in A-normal form."""

    def __init__(self, function: Function, shared: ModuleTexts) -> None:
        self.p = Printer(function, shared)
        self._continuations = 0

    def definition(self) -> Lines:
        """`(define (@f (%x : T) k) body)`."""
        f = self.p.function
        yield f"(define {'public ' if f.public else ''}({' '.join([f'@{name_text(f.name)}', *self.p.params(f.params), 'k'])})"
        yield self.rest(self._shown(self.p.place.root.nodes[::-1]), f.results, "k", "  ")
        yield ")"

    def _shown(self, nodes: Sequence[Node]) -> list[Node]:
        return [n for n in nodes if not self.p.is_silent(n)][::-1]

    def _fresh(self) -> str:
        self._continuations += 1
        return f"k{self._continuations}"

    # --- blocks

    def rest(self, nodes: list[Node], results: Sequence[Node], k: str, pad: str) -> Lines:
        """What is left of a block: `nodes`, the next one last, and then the results for the continuation."""
        return self.until(nodes, End(lambda at: iter([f"{at}({' '.join([k, *map(self.p.atom, results)])})"]), results, k), pad)

    def until(self, nodes: list[Node], end: End, pad: str) -> Lines:
        """What is left of a block, the next node last, up to its end."""
        opened = 0
        while nodes:
            node = nodes.pop()
            if node.op in CONTROL:
                last = not nodes and end.k and self.passes_on(node, end.results)
                yield self.called_with(node, end.k, pad) if last else self.continued(node, nodes, end, pad)
                break
            yield self.p.let(node, pad)
            opened += 1 + (node in self.p.wholes)
        else:
            yield end.write(pad)
        yield ")" * opened

    def passes_on(self, node: Node, results: Sequence[Node]) -> bool:
        """Whether the results are the values of this call, branch or loop, one by one."""
        return node not in self.p.wholes and are_items(results, node)

    def continued(self, node: Node, nodes: list[Node], end: End, pad: str) -> Lines:
        """A call, branch or loop, with the rest of the block as its continuation."""
        k, whole = self._fresh(), node in self.p.wholes
        yield f"{pad}(let ({k} (lambda ({self.values_of(node)})"
        if whole:
            yield f"{pad}  {self.p.gathered(node)}"
        yield self.until(nodes, end, pad + "  ")
        yield ")" * (2 + whole)
        yield self.called_with(node, k, pad)
        yield ")"

    def values_of(self, node: Node) -> str:
        names = self.p.bind(node)
        assert isinstance(node.type, TupleType)
        return " ".join(f"({name} : {self.p.type(t)})" for name, t in zip(names, node.type.items, strict=True))

    def called_with(self, node: Node, k: str, pad: str) -> Lines:
        """A call, branch or loop that goes on with `k`."""
        if node.op is REGION:
            return self.chosen(node, k, pad)
        return self.looped(node, k, pad) if node.op is LOOP_END else iter([f"{pad}{self.p.called(node)[:-1]} {k})"])

    def chosen(self, node: Node, k: str, pad: str) -> Lines:
        """A branch, each side of which goes on with `k`."""
        yield f"{pad}({branch_word(node)} {self.p.atom(node.inputs[0])}"
        for j, block in enumerate(self.p.place.branches[node]):
            yield self.rest(self._shown(block.nodes[::-1]), branches_of(node)[j], k, pad + "  ")
        yield ")"

    def looped(self, node: Node, k: str, pad: str) -> Lines:
        """A loop: a function that calls itself last of all, and leaves by its continuation."""
        begin = node.inputs[0]
        name, leave = self.p.loop_name(), self._fresh()
        heads = self.values_of(begin)
        variables = [self.p.items[begin, j] for j in range(len(begin.inputs))]
        yield f"{pad}(letrec ({name} (lambda ({heads} {leave})"
        test = self._shown(self.p.place.iteration(self.p.place.headers[node]))
        yield self.until(test, End(lambda at: self._iteration(node, name, leave, variables, at)), pad + "    ")
        yield "))"
        yield f"{pad}  ({' '.join([name, *map(self.p.atom, begin.inputs), k])}))"

    def _iteration(self, node: Node, name: str, leave: str, variables: list[str], pad: str) -> Lines:
        """The branch of a loop: the next iteration, or out."""
        yield f"{pad}(if {self.p.atom(node.inputs[1])}"
        body = self._shown(self.p.place.bodies[node].nodes[::-1])
        again = End(lambda at: iter([f"{at}({' '.join([name, *map(self.p.atom, node.inputs[2:]), leave])})"]))
        yield self.until(body, again, pad + "  ")
        yield f"{pad}  ({' '.join([leave, *variables])}))"
