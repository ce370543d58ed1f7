"""What reverse mode adds to the forward part: columns that loops and branches get, and nodes of ours that belong there.

Nothing is changed yet: `grad_rebuild` makes constructs with these columns.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import PHI, PROJ
from deepx_graph.ops import add
from deepx_graph.ops.trips import counters
from deepx_graph.passes.grad_calls import Derivatives
from deepx_graph.passes.grad_scopes import Scope, Scopes, items_of
from deepx_graph.types import I32, Type, scalar


class Columns:
    """The additions to one function.

    `grown[node]` holds columns that a loop_begin or region gets beyond those it has: (first value, next value), or one value
    per branch with None for whatever. `aux` gives the scopes of nodes of ours.
    """

    def __init__(self, b: Builder, scopes: Scopes, derivatives: Derivatives) -> None:
        self.b, self.scopes, self.derivatives = b, scopes, derivatives
        self.grown: dict[Node, list[tuple[Node | None, ...]]] = {}
        self.aux: dict[Node, Scope] = {}
        self._counters: dict[Node, Node] = {}

    def column(self, begin: Node, type: Type) -> Node:
        """The loop variable that the next call of `grow` defines."""
        return Node(PHI, (begin,), (items_of(begin) + len(self.grown.get(begin, ())),), type, self.b.origin)

    def grow(self, node: Node, *values: Node | None) -> None:
        """One more column: first and next value of a loop variable, or a value per branch."""
        self.grown.setdefault(node, []).append(values)

    def type_of(self, node: Node) -> Type:
        """The type that a value has in the forward part."""
        return self.derivatives.derived(node.type) if node in self.scopes.home else node.type

    def forward(self, node: Node, home: Scope) -> Node:
        """Declares a node of ours to belong to the forward part, in that scope."""
        self.aux[node] = home
        return node

    def is_forward(self, node: Node) -> bool:
        return node in self.scopes.home or node in self.aux

    def home(self, node: Node) -> Scope:
        """The scope of a node of the forward part."""
        return self.scopes.home.get(node) or self.aux[node]

    def counter(self, end: Node) -> Node:
        """In the loop: the number of the turn, from 0; a variable that is there or a new one."""
        begin, body = end.inputs[0], self.scopes.bodies[end]
        for k, counter in counters(end).items():
            if counter == (0, 1):
                return self.forward(self.b(PHI, begin, index=k), body)
        return self._own_counter(end)

    def _own_counter(self, end: Node) -> Node:
        begin, body = end.inputs[0], self.scopes.bodies[end]
        if end not in self._counters:
            b = Builder(intern=False, origin=end.origin)
            phi = self.forward(self.column(begin, scalar(I32)), body)
            after = self.forward(b(add, phi, b.constant(1, I32)), body)
            self.grow(begin, b.constant(0, I32), after)
            self._counters[end] = phi
        return self._counters[end]

    def turn_count(self, end: Node) -> Node:
        """After the loop: how many turns it took."""
        phi = self.counter(end)
        return self.forward(Node(PROJ, (end,), phi.attrs, phi.type, end.origin), self.scopes.home[end])
