"""Masked loops: which loops may run all iterations of one element, or of a group of them, before those of the next.

The loop's variables are arrays of one shape and scalars; an iteration computes each element from the same elements and from
scalars, and scalars from scalars. It goes on while a test of the scalars holds and, where it has one, while any element is `live`.
An element that is not live must stay as it is, so that it does not matter how many more iterations it takes:

- Where the test looks at the elements as they are, an iteration must give such an element's variables back unchanged.
- Where it looks at a flag that the iteration before has set, that iteration has run for every element. Then a variable may also
  become `x + 0.0`, which changes at most the sign of a zero and only once.

In both cases whether an element is live depends only on variables that a dead element keeps and on what the loop does not change.
Nothing is emitted here, and no operation is known by name: what an op does is read off its kernel expression and the laws of its
traits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.peephole import primitive_of, splat_of
from deepx_graph.ir.rebuild import made_by, opened, rebuild, with_inputs
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, index_of
from deepx_graph.loops.elements import tensor_type
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops.contract.reduce import reducer_of
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.ops.math.elementwise import and_
from deepx_graph.types import BOOL, TensorType


@dataclass(frozen=True)
class MaskedLoop:
    """A loop by its iteration. Parameters of `iteration`: the `arrays` variables, the `scalars` variables, then the `given`
    values of outside. Its results: the next arrays and scalars, whether the scalars' test holds, and, where elements may end
    before that does, whether one is live."""

    body: Function
    """The function that consists of the loop, and of what is computed before it."""
    end: Node
    iteration: Function
    arrays: tuple[int, ...]
    """Numbers of the variables that are arrays."""
    scalars: tuple[int, ...]
    flag: int | None
    """The variable that says whether any element was live in the iteration before; None where the test looks itself."""
    asks_all: bool
    """Whether the last result of `iteration` says that an element is dead, and the flag that all are; else live, and any."""
    given: tuple[Node, ...]
    shape: tuple[int, ...]
    bound: int | None
    """How many iterations there are at most, where a scalar counts them from one constant to another."""

    @property
    def ends_alike(self) -> bool:
        """Whether all elements take the same number of iterations: no element is asked whether it is live."""
        return len(self.iteration.results) == len(self.arrays) + len(self.scalars) + 1

    @property
    def inits(self) -> tuple[Node, ...]:
        """The first values of all variables."""
        return self.end.inputs[0].inputs


def recognise(body: Function) -> MaskedLoop:
    """The loop of a body that has one. Raises NotExpressible, with the reason."""
    return _Recogniser(opened(body, _straight_body, made_by(Builder(intern=True)))).found()


def _straight_body(node: Node) -> Function | None:
    """The body of a fusion without loops and branches."""
    body = fused_body(node)
    return None if body is None or any(n.op is LOOP_BEGIN or n.op is REGION for n in body.nodes) else body


class _Recogniser:
    def __init__(self, body: Function) -> None:
        self.body = body
        ends = [n for n in body.nodes if n.op is LOOP_END]
        if len(ends) != 1 or any(n.op is REGION for n in body.nodes):
            raise NotExpressible("loops or branches inside")
        (self.end,) = ends
        self.begin = self.end.inputs[0]
        self.nexts = self.end.inputs[2:]
        self.phis = {index_of(n): n for n in body.nodes if n.op is PHI}
        self.inside = self._dependent()
        self.reductions = [n for n in self.inside if reducer_of(n) is not None]
        self.flag: int | None = None
        self.tests: list[Node] = []

    def found(self) -> MaskedLoop:
        """The loop, once everything about it is checked."""
        self._take_test_apart()
        arrays, scalars = self._variables()
        live = self.reductions[0].inputs[0] if self.reductions else None
        b = Builder(intern=True)
        test = self.tests[0] if self.tests else b.constant(np.True_)
        for t in self.tests[1:]:
            test = b(and_, test, t)
        iteration, given = self._iteration(b, arrays, scalars, test, live)
        if live is not None:
            _check_dead(iteration, len(arrays), len(arrays) + len(scalars), is_all=self._is_all(), is_late=self.flag is not None)
        return MaskedLoop(self.body, self.end, iteration, arrays, scalars, self.flag, self._is_all(), given,
                          self.shape, self._bound())

    # --- the condition: scalars' tests, and at most one question whether any element is live

    def _take_test_apart(self) -> None:
        if len(self.reductions) > 1:
            raise NotExpressible("several reductions")
        stack = [(self.end.inputs[1], False)]
        asked = False
        while stack:
            node, is_negated = stack.pop()
            primitive = _primitive(node)
            if primitive == "and" and not is_negated:
                stack += ((i, False) for i in node.inputs)
            elif primitive == "not" and self._asks(node.inputs[0]):
                stack.append((node.inputs[0], not is_negated))
            elif self._asks(node):
                if asked or self._is_all() != is_negated:
                    raise NotExpressible("a test that is not whether any element goes on")
                asked = True
                self.flag = index_of(node) if node.op is PHI else None
            else:
                self.tests.append(node)
        if self.reductions and not asked:
            raise NotExpressible("a reduction beside the test")

    def _bound(self) -> int | None:
        """The fewest iterations that some test of scalars alone would allow."""
        found = [trip_count(Node(LOOP_END, (self.begin, t, *self.nexts), (), self.end.type)) for t in self.tests]
        return min((n for n in found if n is not None), default=None)

    def _asks(self, node: Node) -> bool:
        """Whether the node is the reduction, or the variable that carries it from the iteration before."""
        if node in self.reductions:
            return True
        return node.op is PHI and self.nexts[index_of(node)] in self.reductions

    def _is_all(self) -> bool:
        """Whether the reduction asks for all elements (to be dead) and not for any (to be live)."""
        if not self.reductions:
            return False
        node = self.reductions[0]
        reducer = reducer_of(node)
        name = primitive_of(reducer) if reducer is not None else ""
        whole = len(node.inputs) == 2 and len(node.attr("dimensions")) == len(_shape(node.inputs[0]))
        start = splat_of(node.inputs[1]) if whole else None
        if node.type != TensorType(BOOL, ()) or name not in ("and", "or") or start is None or bool(start) != (name == "and"):
            raise NotExpressible("a reduction that is not any or all")
        return name == "and"

    # --- variables and their values

    def _variables(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        users = [n for n in self.inside if n.op is not LOOP_END]
        if self.reductions and any(i in self.reductions for n in users if n not in self._test_nodes() for i in n.inputs):
            raise NotExpressible("a reduction that an iteration uses")
        flag = self.phis.get(self.flag) if self.flag is not None else None
        if flag is not None and any(flag in n.inputs for n in users if n not in self._test_nodes()):
            raise NotExpressible("a flag that an iteration uses")
        carriers = {k for k, n in enumerate(self.nexts) if n in self.reductions}
        if carriers - {self.flag}:
            raise NotExpressible("a reduction that the loop carries and does not test")
        types = [n.type for n in self.begin.inputs]
        rest = [k for k in range(len(types)) if k != self.flag]
        if not all(isinstance(t, TensorType) and t.is_static for t in types):
            raise NotExpressible("variables that are not tensors")
        arrays = tuple(k for k in rest if _shape(self.begin.inputs[k]) != ())
        shapes = {_shape(self.begin.inputs[k]) for k in arrays}
        if len(shapes) != 1:
            raise NotExpressible("variables of several shapes" if shapes else "no array")
        (self.shape,) = shapes
        for n in users:
            ok = n.op.elementwise or n.op is PHI or n in self.reductions
            if not ok or (n not in self.reductions and _shape(n) not in ((), self.shape)):
                raise NotExpressible(f"{n.op.name} inside")
        return arrays, tuple(k for k in rest if k not in arrays)

    def _dependent(self) -> list[Node]:
        """The nodes that change from iteration to iteration, the loop's end included."""
        found: set[Node] = set()
        for n in self.body.nodes:
            variable = n.op is PHI
            if n.op is not LOOP_BEGIN and n.op is not PROJ and (variable or any(i in found for i in n.inputs)):
                found.add(n)
        return [n for n in self.body.nodes if n in found]

    def _test_nodes(self) -> set[Node]:
        """The logic that joins the parts of the condition."""
        found, stack = set[Node](), [self.end.inputs[1]]
        while stack:
            n = stack.pop()
            if n not in found and n not in self.tests and not self._asks(n):
                found.add(n)
                stack += n.inputs
        return found

    # --- one iteration as a function

    def _iteration(self, b: Builder, arrays: Sequence[int], scalars: Sequence[int], test: Node,
                   live: Node | None) -> tuple[Function, tuple[Node, ...]]:
        wanted = (*(self.nexts[k] for k in (*arrays, *scalars)), test, *([live] if live is not None else []))
        new: dict[Node, Node] = {}
        params: list[Node] = []
        given: list[Node] = []

        def param(node: Node) -> Node:
            params.append(Node(PARAM, (), (len(params), node.type), node.type))
            return params[-1]

        for k in (*arrays, *scalars):
            made = param(self.begin.inputs[k])
            if k in self.phis:
                new[self.phis[k]] = made
        order = Function("order", self.body.params, wanted).nodes
        outside = set(self.body.nodes).difference(self.inside)
        read = set(wanted).union(*(n.inputs for n in order if n not in outside and n.op is not PHI))
        for node in order:
            if node in outside:
                if node in read and node.op is CONSTANT and splat_of(node) is not None:
                    new[node] = node
                elif node in read:
                    new[node] = param(node)
                    given.append(node)
            elif node not in new:
                if node.op is PHI:
                    raise NotExpressible("a flag that an iteration uses")
                new[node] = b.make(node.op, tuple(new[i] for i in node.inputs), node.attrs, node.type)
        return Function("iteration", tuple(params), tuple(new[n] for n in wanted)), tuple(given)


def _shape(node: Node) -> tuple[int, ...]:
    if not isinstance(node.type, TensorType) or not node.type.is_static:
        raise NotExpressible(f"{node.op.name} of no tensor")
    return node.type.shape


def _primitive(node: Node) -> str:
    """The primitive that an op of one primitive is, of bools; else ""."""
    boolean = isinstance(node.type, TensorType) and node.type.dtype == BOOL
    return primitive_of(node.op, node.attrs) if boolean else ""


def narrowed(iteration: Function, width: int) -> Function:
    """An iteration of `width` elements."""

    def each(node: Node, inputs: tuple[Node, ...]) -> Node:
        type = tensor_type(node.type)
        if not type.shape:
            return with_inputs(node, inputs)
        type = TensorType(type.dtype, (width,))
        if node.op is CONSTANT:
            return Builder().splat(splat_of(node), type)
        return Builder().param(index_of(node), type) if node.op is PARAM else Node(node.op, inputs, node.attrs, type)

    new = rebuild(iteration.nodes, {}, each)
    return Function("iteration", tuple(new[p] for p in iteration.params), tuple(new[r] for r in iteration.results))


# --- the proof that dead elements stay as they are


def _check_dead(iteration: Function, arrays: int, variables: int, *, is_all: bool, is_late: bool) -> None:
    """Raises NotExpressible where a dead element changes, or might be live again: by what the laws of the operations make of an
    iteration of one element in which it is known to be dead. `is_late` says that the loop goes on for one iteration more."""
    one, b = narrowed(iteration, 1), Builder(peephole=True)
    live = one.results[-1]
    known = {n: b.splat(value, tensor_type(n.type)) for n, value in _implied(live, is_all).items()}

    def simpler(node: Node, inputs: tuple[Node, ...]) -> Node:
        if not inputs:
            return node
        which = splat_of(inputs[0]) if primitive_of(node.op, node.attrs) == "where" else None
        true = [i for i in inputs if splat_of(i)] if _primitive(node) == "or" else []
        return true[0] if true else inputs[1 if which else 2] if which is not None else made_by(b)(node, inputs)

    after = rebuild(one.nodes, known, simpler)
    kept = {p for p, r in zip(one.params, one.results[:variables], strict=False) if after[r] is after[p]}
    for p, r in zip(one.params[:arrays], one.results, strict=False):
        if p not in kept and not (is_late and _is_with_zero(after[r], p)):
            raise NotExpressible("an element that is done still changes")
    if not kept.issuperset(set(one.params[:variables]).intersection(Function("live", (), (live,)).nodes)):
        raise NotExpressible("whether an element goes on depends on what changes all the same")


def _implied(node: Node, value: bool) -> dict[Node, bool]:
    """The bools that the value of one implies, and their values."""
    found: dict[Node, bool] = {}
    stack = [(node, value)]
    while stack:
        n, is_true = stack.pop()
        found[n] = is_true
        primitive = _primitive(n)
        if primitive == ("and" if is_true else "or"):
            stack += ((i, is_true) for i in n.inputs)
        elif primitive == "not":
            stack.append((n.inputs[0], not is_true))
    return found


def _is_with_zero(node: Node, x: Node) -> bool:
    """Whether a node is `x + 0.0`."""
    values = [splat_of(i) for i in node.inputs if i is not x]
    return primitive_of(node.op, node.attrs) == "add" and len(values) == 1 and values[0] == 0 and not np.signbit(values[0])
