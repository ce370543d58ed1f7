"""`Builder`: makes nodes, with inferred types, and functions from them.

`Builder()` keeps every node it is asked for, as readers need it. `Builder(peephole=True)` folds, simplifies and interns as it
builds (pessimistic, parse-time optimisation), for code that makes graphs. `b(op, x, y, axis=1)` adds a node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, UsageError, VerifyError
from deepx_graph.ir import peephole
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import NOWHERE, Node, Origin
from deepx_graph.ir.op import Op
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    TUPLE,
)
from deepx_graph.literal import Literal
from deepx_graph.types import DType, FunctionType, TensorType, TupleType, Type, as_tensor, scalar, tensor_named

_loops = itertools.count()

LoopBody = Callable[[tuple[Node, ...]], tuple[Node, Sequence[Node]]]


def _as_type(type: Type | str) -> Type:
    """The type that was given, or that a text names."""
    try:
        return tensor_named(type) if isinstance(type, str) else type
    except ValueError as e:
        raise UsageError(Diagnostic(str(e), expected="such as f32[2,3]")) from None


def fresh_loop() -> int:
    """An identity for a new loop, never given before."""
    return next(_loops)


class Builder:
    """Makes nodes: `b(op, *nodes, **attributes)` with an operation of `deepx_graph.ops`, or operators on nodes; `b.param`,
    `b.literal` and `b.function` make the rest of a program. `origin` is given to every node built until it is changed.

    Raises VerifyError, at that origin, for operands and attributes that do not fit.

    >>> b = dx.Builder()
    >>> f = b.function("main", [("x", "f32[3]")], lambda x: [x * x + 1])
    >>> dx.run(dx.Module((f,)), np.float32([1, 2, 3]))
    (array([ 2.,  5., 10.], dtype=float32),)
    """

    def __init__(self, *, peephole: bool = False, intern: bool | None = None, origin: Origin = NOWHERE) -> None:
        self.peephole = peephole
        self.origin = origin
        self._interned: dict[tuple[Any, ...], Node] | None = {} if (peephole if intern is None else intern) else None
        self._inferred: dict[tuple[Any, ...], Type] = {}

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        """The node `op(inputs)`; operands may be given by name. Raises VerifyError, at the current origin, when they do not fit;
        UsageError for what is no operation, such as the name of one."""
        if not isinstance(op, Op):
            raise UsageError(Diagnostic(f"{op!r} is no operation", expected="one of deepx_graph.ops, such as deepx_graph.ops.add",
                                        hint="deepx_graph.ops.op_named finds one by its name"))
        try:
            if attrs and not op.operand_names.isdisjoint(attrs):
                inputs, attrs = op.arrange(inputs, attrs)
            op.check_arity(len(inputs))
            values = op.bind(attrs)
            types = tuple([i.type for i in inputs])
            key = (op, types, values)
            type = self._inferred.get(key)  # programs repeat themselves: a few hundred signatures in 100 000 operations
            if type is None:
                type = self._inferred[key] = op.infer(types, *values)
        except InferError as e:
            raise VerifyError(e.diagnostic(self.origin.span, f"{op.name}: ")) from None
        return self.make(op, inputs, values, type)

    def make(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type) -> Node:
        """The node with attributes in declared order and a type already inferred."""
        if self.peephole:
            better = self._simpler(op, inputs, attrs, type)
            if better is not None:
                return better
        return self.intern(op, inputs, attrs, type, self.origin)

    def intern(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type, origin: Origin) -> Node:
        """The node as it stands; an equal one made before when this builder interns."""
        if self._interned is None or not peephole.mergeable(op, type):
            return Node(op, inputs, attrs, type, origin)
        key = (op, inputs, attrs, type)
        node = self._interned.get(key)
        if node is None:
            node = self._interned[key] = Node(op, inputs, attrs, type, origin)
        return node

    def _simpler(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type) -> Node | None:
        folded = peephole.fold(op, inputs, attrs, type)
        if isinstance(folded, Literal):
            return self.literal(folded)
        if isinstance(folded, tuple):
            return self.pack(*map(self.literal, folded))
        return peephole.simplify(op, inputs, attrs, type)

    # --- leaves and tuples

    def param(self, index: int, type: Type | str, name: str = "") -> Node:
        """A parameter, of a type or of what a text such as `f32[2,3]` names. Each call makes a new one.

        Raises UsageError for a text that is no type.
        """
        type = _as_type(type)
        return Node(PARAM, (), (index, type), type, Origin(name, self.origin.spans, (), self.origin.notes))

    def literal(self, value: Literal) -> Node:
        """A constant from a literal, which has its type."""
        return self.intern(CONSTANT, (), (value,), value.type, self.origin)

    def constant(self, value: Any, dtype: DType | None = None) -> Node:
        """A constant from a number or array; `dtype` is that of the array when left out (f64 for a Python float)."""
        return self.literal(Literal(np.asarray(value, dtype=None if dtype is None else dtype.np)))

    def splat(self, value: Any, type: TensorType) -> Node:
        """A constant of a static tensor type with the same value everywhere; takes no memory."""
        return self.literal(Literal.splat(value, type))

    def like(self, value: Any, node: Node) -> Node:
        """A rank-0 constant of the node's dtype, for an elementwise op beside it. Raises InferError where it is no tensor."""
        return self.splat(value, scalar(as_tensor(node.type).dtype))

    def pack(self, *items: Node) -> Node:
        """The items as one tuple value."""
        return self(TUPLE, *items)

    def proj(self, node: Node, index: int) -> Node:
        """An item of a tuple, or a result of an operation with several, from 0."""
        return self(PROJ, node, index=index)

    def items(self, node: Node) -> tuple[Node, ...]:
        """All items of a tuple-typed node, as projections."""
        assert isinstance(node.type, TupleType)
        return tuple(self.proj(node, k) for k in range(len(node.type.items)))

    # --- control

    def branch(self, selector: Node, *branches: Sequence[Node]) -> tuple[Node, ...]:
        """The values of the branch that `selector` takes (see `structure`), as phis. Branches have equally many values."""
        if len({len(values) for values in branches}) > 1:
            raise VerifyError("branches have different numbers of values")
        region = self(REGION, selector, *itertools.chain(*branches), branches=len(branches))
        return tuple(self(PHI, region, index=k) for k in range(len(branches[0])))

    def loop(self, inits: Sequence[Node], body: LoopBody) -> tuple[Node, ...]:
        """`while cond: vars = nexts`, where `body(vars)` gives `(cond, nexts)`; the variables at the end."""
        begin = self(LOOP_BEGIN, *inits, loop=fresh_loop())
        condition, nexts = body(tuple(self(PHI, begin, index=k) for k in range(len(inits))))
        end = self(LOOP_END, begin, condition, *nexts)
        return tuple(self.proj(end, k) for k in range(len(inits)))

    # --- functions

    def call(self, function: Function | tuple[str, FunctionType], *args: Node) -> tuple[Node, ...]:
        """The results of a function; given by name and type where it is not built yet (recursion)."""
        name, type = (function.name, function.type) if isinstance(function, Function) else function
        return self.items(self(CALL, *args, callee=name, signature=type))

    def partial(self, function: Function | tuple[str, FunctionType], *captured: Node) -> Node:
        """A closure of the function over its leading arguments."""
        name, type = (function.name, function.type) if isinstance(function, Function) else function
        return self(PARTIAL, *captured, callee=name, signature=type)

    def call_value(self, function: Node, *args: Node) -> tuple[Node, ...]:
        """The results of calling a function value."""
        return self.items(self(CALL_VALUE, function, *args))

    def function(self, name: str, params: Sequence[tuple[str, Type | str]], body: Callable[..., Sequence[Node]],
                 **fields: Any) -> Function:
        """The function whose results are `body(*params)`.

        `params` are names with types, or with texts such as `f32[2,3]`; `fields` are those of Function. Raises UsageError for a
        text that is no type.
        """
        nodes = tuple(self.param(k, type, n) for k, (n, type) in enumerate(params))
        return Function(name, nodes, tuple(body(*nodes)), **fields)
