"""Rematerialisation: what takes little is computed again where it is read, rather than kept in memory until then.

A kernel has several results where passes have fused what reads one thing. One of them that only later kernels of its scope read,
and that few operations make of what is in memory by then anyway, becomes part of these kernels (P. Briggs, K. D. Cooper,
L. Torczon, Rematerialization, 1992): it is neither stored nor loaded. Where several results are made of one value that is none,
such as masks and polynomials of a distance, that value may be kept in their place: it is a node that dominates them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.analysis.dominators import Dominators
from deepx_graph.analysis.liveness import liveness
from deepx_graph.analysis.scopes import Placement
from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import alone, on_demand, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of, projections
from deepx_graph.loops.elements import has_element
from deepx_graph.loops.in_place import LEAST_BYTES
from deepx_graph.loops.lower import CHEAP, element_cost, stored_values
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.data.fusion import fused_body, fusion_of
from deepx_graph.ops.tensor.index import dynamic_slice, scatter
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import iota
from deepx_graph.ops.tensor.sort import sort
from deepx_graph.rewrite.epilogue import split_epilogue
from deepx_graph.types import TensorType, TupleType, is_static, nbytes

MOST_WORK = 2.0 * CHEAP
"""What an element that is made again may take, in additions: about what it takes to store and load one."""

MOST_REPEATS = 8
"""So often a kernel may read an element that it makes again each time."""

MOST_OPS = 200
"""Kernels have no more operations then."""


@dataclass(frozen=True)
class Recipe:
    """How a value is made again: `nodes` of the body of its kernel, the last of which it is; `sources` has the values that stand
    for parameters and other results of the body."""

    maker: Node
    nodes: tuple[Node, ...]
    sources: dict[Node, Node]


Recipes = Mapping[Node, Recipe]
"""By the values that are made again."""


def with_rematerialised(function: Function, has_kernel: Callable[[Function], bool]) -> Function:
    """The function with values computed again where they are read; itself where there are none, or where a kernel that changes has
    no machine code then."""
    choice = _Choice(function)
    if not choice.recipes:
        return function
    new, bodies = dict[Node, Node](), list[Function]()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is PROJ and node.inputs[0] in choice.items and node not in choice.recipes:
            kept = choice.kept(node.inputs[0])
            return inputs[0] if len(kept) == 1 else with_inputs(
                Node(PROJ, node.inputs, (kept.index(index_of(node)),), node.type, node.origin), inputs)
        if not choice.is_changed(node):
            return with_inputs(node, inputs)
        operands, body = choice.composed(node)
        bodies.append(body)
        made = fusion_of(body, [new[o] for o in operands], node.origin)
        if (cut := choice.cuts.get(node)) is not None:
            last = len(body.results) - 1
            new[cut] = Node(PROJ, (made,), (last,), cut.type, cut.origin) if last else made
        return made

    found = replaced(function, rebuild(function.nodes, new, step))
    return found if all(map(has_kernel, dict.fromkeys(bodies))) else function


class _Choice:
    """Which values are made again: from readers to what they read."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.scopes = Placement(function, liveness(function)).home
        self.position = {n: k for k, n in enumerate(function.nodes)}
        self.read_at = self.position | {r: self.position[n] for n in function.nodes if (r := _epilogue_of(function, n)) is not None}
        """Where a node reads: an epilogue does so where its product is."""
        self.readers = {n: set(users) for n, users in function.users.items()}
        self.recipes: dict[Node, Recipe] = {}
        self.bodies: dict[Node, Function | None] = {}
        self.items: dict[Node, dict[int, Node]] = {}
        """Of a kernel with several results, those that are read."""
        self.cuts: dict[Node, Node] = {}
        """Of a kernel, the value that is its last result in place of others, which are made of it."""
        self._stored: dict[Function, int] = {}
        for node in reversed(function.nodes):
            body = self.body(node) if node in self.scopes else None
            if body is not None and not any(map(_is_product, body.nodes)):
                self._choose(node, body)

    def body(self, node: Node) -> Function | None:
        """The body of a kernel; None for what is none, or no fusion."""
        if node not in self.bodies:
            self.bodies[node] = fused_body(node) or (alone(node) if is_kernel(node) else None)
        return self.bodies[node]

    def results(self, maker: Node) -> dict[int, Node]:
        """The values that are its results, by their numbers."""
        return self.items.get(maker, {0: maker})

    def kept(self, maker: Node) -> list[int]:
        """The numbers of the results that stay."""
        return [k for k, value in self.results(maker).items() if value not in self.recipes]

    def is_changed(self, node: Node) -> bool:
        """Whether the node is a kernel that stays and computes something else."""
        if self.bodies.get(node) is None or not (kept := self.kept(node)):
            return False
        return len(kept) < len(self.results(node)) or any(i in self.recipes for i in node.inputs)

    def composed(self, node: Node) -> tuple[list[Node], Function]:
        """What a kernel reads, and its body, with recipes for the values that it makes again."""
        body = self.body(node)
        assert body is not None
        whole = body.with_(results=tuple(body.results[k] for k in self.kept(node)), result_names=())
        outer = dict(zip(body.params, node.inputs, strict=True))
        params = dict[Node, Node]()
        opened = dict[Node, dict[Node, Node]]()

        def make(value: Node, sources: tuple[Node, ...]) -> Node:
            recipe = self.recipes.get(value)
            if recipe is None:
                return params.setdefault(value, Node(PARAM, (), (len(params), value.type), value.type, value.origin))
            made = opened.setdefault(recipe.maker, {})
            made |= zip(recipe.sources, sources, strict=True)
            return rebuild(recipe.nodes, made)[recipe.nodes[-1]]

        wanted = [p for p in whole.params if whole.users[p] or p in whole.results]
        inner = on_demand([outer[p] for p in wanted], {}, self._sources, make)
        made = rebuild([n for n in whole.nodes if n.op is not PARAM], dict(zip(wanted, inner, strict=True)))
        return list(params), Function("fusion", tuple(params.values()), tuple(made[r] for r in whole.results), public=False)

    def _sources(self, value: Node) -> Sequence[Node]:
        return tuple(self.recipes[value].sources.values()) if value in self.recipes else ()

    # --- one kernel

    def _choose(self, maker: Node, body: Function) -> None:
        """Chooses results of a kernel that are made again, where that saves memory and no reader stores more of its own."""
        if isinstance(maker.type, TupleType):
            users = self.function.users[maker]
            found = projections(users)
            if len(found) != len(maker.type.items) or len(found) != len(users):
                self.bodies[maker] = None
                return
            self.items[maker] = found
        free = {k: read for k, v in self.results(maker).items() if (read := self._read(maker, v)) is not None}
        self._make_again(maker, body, free)
        left = {k: read for k, read in free.items() if self.results(maker)[k] not in self.recipes}
        cut = _dominator(body, [body.results[k] for k in left]) if len(left) > 1 else None
        if cut is not None:
            self._keep(maker, body, cut, left)

    def _make_again(self, maker: Node, body: Function, free: Mapping[int, Node]) -> None:
        """Chooses some of the free results of a kernel."""
        for ends, is_strict, most_work in itertools.product((True, False), (False, True), (math.inf, MOST_WORK)) if free else ():
            chosen = self._recipes(maker, body, free, self._known(maker, body, free, ends), is_strict, most_work)
            if chosen and self._saves(maker, chosen) and self._is_little(maker, body, chosen) and self._stores_no_more(chosen):
                self._accept(maker, chosen)
                return

    def _keep(self, maker: Node, body: Function, cut: Node, free: Mapping[int, Node]) -> None:
        """Makes a node of a kernel's body its last result, where that lets others be made of it."""
        number = len(body.results)
        value = self.cuts[maker] = self.items[maker][number] = Node(PROJ, (maker,), (number,), cut.type, cut.origin)
        self.bodies[maker] = whole = body.with_(results=(*body.results, cut), result_names=())
        self.readers[value], self.position[value], before = set(), self.position[maker], len(self.recipes)
        self._make_again(maker, whole, free)
        if len(self.recipes) == before:
            self.bodies[maker] = body
            del self.cuts[maker], self.items[maker][number]

    def _read(self, maker: Node, value: Node) -> Node | None:
        """What kernels read of a value: itself, or its elements in another shape; None where it stays, as others read it, too, or
        read its elements many times."""
        (reader, *others) = self.readers[value] or {maker}
        read = reader if reader.op is reshape and not others else value
        if not {read, value}.isdisjoint(self.function.results) or not is_tensor(value) or nbytes(value.type) < LEAST_BYTES:
            return None
        return read if self.readers[read] and all(self._takes_in(r, maker, read) for r in self.readers[read]) else None

    def _takes_in(self, reader: Node, maker: Node, value: Node) -> bool:
        """Whether a kernel is one of the scope of another one and may compute each element of a value itself."""
        body = self.body(reader)
        if body is None or not reader.inputs:
            return False
        if any(n.op is scatter or n.op is sort for n in body.nodes):
            return False  # these loops are no vectors
        inside = {p for p, i in zip(body.params, reader.inputs, strict=True) if i is value}
        if is_apart := self.scopes.get(reader) is not self.scopes[maker]:
            if not self._is_in_loop(reader, maker):
                return False
            if maker.inputs and not all(
                    n.op is dynamic_slice and n.inputs[0] in inside for n in body.nodes if not inside.isdisjoint(n.inputs)):
                return False  # all of it would be made again in every iteration
        for n in body.nodes:
            if not inside.isdisjoint(n.inputs):
                if _is_product(n):
                    return False
                inside.add(n)
        return self._repeats(reader, value) <= (1 if is_apart else MOST_REPEATS)

    def _repeats(self, reader: Node, value: Node) -> float:
        """How often a kernel reads each element of a value, which is broadcast there."""
        body = self.body(reader)
        assert body is not None
        inside = {p for p, i in zip(body.params, reader.inputs, strict=True) if i is value}
        most = size = _elements(value)
        for n in body.nodes:
            if not inside.isdisjoint(n.inputs):
                inside.add(n)
                most = max(most, _elements(n) if n.op is broadcast_in_dim else 0)
        return most / max(1, size)

    def _is_in_loop(self, reader: Node, maker: Node) -> bool:
        """Whether a kernel of another scope runs in one inside of that of a kernel which runs once for all iterations."""
        home, scope = self.scopes[maker], self.scopes.get(reader)
        return scope is not None and scope.within(home.parent if home.kind == "once" else home)

    def _known(self, maker: Node, body: Function, free: Mapping[int, Node], ends: bool) -> dict[Node, Node]:
        """The results of a kernel of which others may be made, by their nodes in the body: those that stay; where it `ends` is no
        matter, also those that are read no more when the others are."""
        last = max(self.read_at[r] for read in free.values() for r in self.readers[read])
        return {body.results[k]: v for k, v in self.results(maker).items()
                if k not in free and (ends or self._is_there(v, last))}

    def _is_there(self, value: Node, at: int) -> bool:
        """Whether a value is in memory at a position, or computed again."""
        return (value.op in (PARAM, CONSTANT) or value in self.recipes or value in self.function.results
                or any(self.read_at[r] >= at for r in self.readers[value]))

    def _recipes(self, maker: Node, body: Function, free: Mapping[int, Node], known: dict[Node, Node], is_strict: bool,
                 most_work: float) -> dict[Node, Recipe]:
        """How results are made of what is known, and learnt here, by so much work at most; `is_strict` where that must be in
        memory anyway."""
        outer, values = dict(zip(body.params, maker.inputs, strict=True)), self.results(maker)
        order = {n: k for k, n in enumerate(body.nodes)}
        found: dict[Node, Recipe] = {}
        for k in sorted(free, key=lambda k: order[body.results[k]]):
            recipe = _recipe(maker, body.results[k], outer, known)
            if recipe is None or sum(map(work, recipe.nodes)) > most_work or (is_strict and self._missing({free[k]: recipe})):
                known[body.results[k]] = values[k]
                continue
            found[values[k]] = recipe
            if free[k] is not values[k]:
                shown = with_inputs(free[k], (recipe.nodes[-1],))
                found[free[k]] = Recipe(maker, (*recipe.nodes, shown), recipe.sources)
        return found

    def _missing(self, found: Recipes) -> set[Node]:
        """What recipes take that is not in memory any more, or made again, where their values are read. What is read in the first
        iteration of a loop is in memory in all of them."""
        last = max(self.read_at[r] for v in found for r in self.readers[v])
        return {s for recipe in found.values() for s in recipe.sources.values()
                if self.scopes[recipe.maker].kind != "once" and not self._is_there(s, last)}

    def _saves(self, maker: Node, found: Recipes) -> bool:
        gone = sum(nbytes(v.type) for v in found if v.op is not reshape)
        missing = sum(nbytes(s.type) for s in self._missing(found))
        return gone > max(missing, self._overwritten(maker, found))

    def _overwritten(self, maker: Node, found: Recipes) -> int:
        """Bytes of values that take no memory: the next kernel alone reads them, and its results may lie in their place. To store
        and load those takes no longer than to load what they are made of, where that kernel does not read it anyway."""
        later = itertools.islice(self.function.nodes, self.position[maker] + 1, None)
        reader = next((n for n in later if n.op is not PROJ and n.op is not reshape and nbytes(n.type) >= LEAST_BYTES), maker)
        values = [v for v, recipe in found.items() if self.readers[v] == {reader}
                  and any(s not in reader.inputs and nbytes(s.type) >= nbytes(v.type) for s in recipe.sources.values())]
        return min(nbytes(reader.type), sum(nbytes(v.type) for v in values))

    def _is_little(self, maker: Node, body: Function, found: Recipes) -> bool:
        """Whether what is computed more often than before takes no longer than what is stored and loaded no more."""
        kept = tuple(body.results[k] for k in self.kept(maker) if self.results(maker)[k] not in found)
        times = Counter(Function("kept", (), kept).nodes)
        readers = dict[Node, dict[Node, float]]()
        for value, recipe in found.items():
            repeats = {r: self._repeats(r, value) for r in self.readers[value] if r not in found}
            for n in recipe.nodes:
                known = readers.setdefault(n, {})
                known |= {r: max(most, known.get(r, 0.0)) for r, most in repeats.items()}
        again = sum(work(n) * (times[n] + sum(r.values()) - 1) for n, r in readers.items())
        return again <= MOST_WORK * sum(v.op is not reshape for v in found)

    def _stores_no_more(self, found: Recipes) -> bool:
        """Whether readers store no more values of their own when they make these again."""
        readers = list(dict.fromkeys(r for v in found for r in self.readers[v] if r not in found))
        try:
            before = [self._stored_by(self.composed(r)[1]) for r in readers]
            self.recipes |= found
            after = [self.composed(r)[1] for r in readers]
            return all(len(f.nodes) <= MOST_OPS and self._stored_by(f) <= n for f, n in zip(after, before, strict=True))
        except NotExpressible:
            return False
        finally:
            for v in found:
                self.recipes.pop(v, None)

    def _stored_by(self, body: Function) -> int:
        """How many values a kernel stores of its own, one with a product in its epilogue; worked out once for bodies that are
        alike, as those of a model's layers."""
        if body not in self._stored:
            loops = _loops_of(body)
            self._stored[body] = 0 if loops is None else len(stored_values(loops))
        return self._stored[body]

    def _accept(self, maker: Node, found: Recipes) -> None:
        self.recipes |= found
        for value, recipe in found.items():
            for s in recipe.sources.values():
                if s.op is not CONSTANT:
                    self.readers[s] |= {r for r in self.readers[value] if r not in found}
        still = self.composed(maker)[0] if self.kept(maker) else []
        for i in maker.inputs:
            if i not in still:
                self.readers[i].discard(maker)


# --- operations


def is_kernel(node: Node) -> bool:
    """Whether a node is a kernel of operations that are computed element by element, or one such operation."""
    return fused_body(node) is not None or ((node.op.elementwise or node.op is iota) and is_tensor(node))


def _recipe(maker: Node, result: Node, outer: Mapping[Node, Node], known: Mapping[Node, Node]) -> Recipe | None:
    """The operations that make a result of parameters, which stand for values outside, and of known results; None where one of them
    does not say what its elements are, or moves them: readers would no longer be loops of vectors."""
    nodes, sources = dict[Node, None](), dict[Node, Node]()
    stack = [result]
    while stack:
        node = stack.pop()
        if node in nodes or node in sources:
            continue
        if node in known or node in outer:
            sources[node] = known.get(node) or outer[node]
            continue
        if node.op is not CONSTANT and not _is_made_by_element(node):
            return None
        nodes[node] = None
        stack += node.inputs
    if not nodes:
        return None
    return Recipe(maker, tuple(n for n in Function("recipe", (), (result,)).nodes if n in nodes), sources)


def _is_made_by_element(node: Node) -> bool:
    """Whether an operation says what its elements are, and does not move them."""
    return has_element(node) and (node.op.elementwise or node.op is iota or node.op is broadcast_in_dim)


def _dominator(body: Function, results: Sequence[Node]) -> Node | None:
    """The node of a body that dominates results of the most bytes beyond its own, where what must be kept is given and all else is
    made of it; None where none saves memory."""
    found = Dominators((n for n in body.nodes if n.op is not PARAM and n.op is not CONSTANT),
                       lambda n: not _is_made_by_element(n) or work(n) > CHEAP)
    saved: dict[Node, float] = {}
    for r in results:
        for n in found.of(r):
            saved[n] = saved.get(n, -nbytes(n.type) if is_tensor(n) else -math.inf) + nbytes(r.type)
    best = max(saved, key=lambda n: (saved[n], found.depth[n]), default=None)
    return best if best is not None and saved[best] > 0 and best not in body.results else None


def work(node: Node) -> float:
    """What an element takes, in additions, where its operands are in registers."""
    if node.op is CONSTANT:
        return 0.0
    try:
        return max(0.0, element_cost(node).work - len(node.inputs))
    except NotExpressible:
        return math.inf


def _is_product(node: Node) -> bool:
    return node.op is dot_general or node.op is convolution


def is_tensor(node: Node) -> bool:
    """Whether a node is a tensor of known sizes."""
    return isinstance(node.type, TensorType) and is_static(node.type)


def _loops_of(body: Function) -> Function | None:
    """What of a kernel is loops over elements: all of it, or the epilogue of its product; None where that is nothing."""
    op = next((n.op for n in body.nodes if _is_product(n)), None)
    parts = None if op is None else split_epilogue(body, op)
    return body if op is None else None if parts is None else parts.epilogue


def _epilogue_of(function: Function, node: Node) -> Node | None:
    """The kernel that alone reads a product, of whose kernel it becomes part where it has one result in the end."""
    users = function.users[node] if _is_product(node) and node not in function.results else ()
    return users[0] if len(users) == 1 and is_kernel(users[0]) else None


def _elements(node: Node) -> int:
    return node.type.size if isinstance(node.type, TensorType) else 0
