"""Operators that runtimes match on, found again in what they were made of: Softmax, LayerNormalization, Gelu, Gemm, Attention.

A pattern is looked for from its last operation upwards, along operands alone, with broadcasts and changes of shape between rows and
what they were reduced from. What it finds becomes a `deferred` node that holds the operator; what made it is left out where nothing
else reads it, and a pattern is not taken where something else does read what it would compute a second time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import reducer_of
from deepx_graph.ops.data.deferred import deferred
from deepx_graph.ops.tensor.layout import reshape_axes
from deepx_graph.types import TensorType, as_tensor

Axes = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class ComposedOperator:
    """An operator of ONNX, and its attributes."""

    op_type: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """An operator that gives the value of a node, over other nodes."""

    op_type: str
    operands: tuple[Node, ...]
    attributes: Mapping[str, Any]


def composed(module: Module, version: int) -> Module:
    """The module with operators of that version of the operator set where their patterns are."""
    return module.with_functions([Composer(f, version).function_with_operators() for f in module.functions])


# --- steps upwards --------------------------------------------------------------------------------------------------

_SAME = (ops.ensure_type, ops.stop_gradient, ops.identity)


def _dims(x: Node) -> tuple[Any, ...]:
    return as_tensor(x.type).dims or ()


def spread(x: Node, at: Axes | None = None) -> tuple[Node, Axes]:
    """What is broadcast or reshaped to become a node; and along which of its axes each of that lies, None for one of size 1."""
    at = tuple(range(len(_dims(x)))) if at is None else at
    while True:
        if x.op in _SAME:
            x = x.inputs[0]
        elif x.op is ops.broadcast_in_dim:
            at, x = tuple(at[a] for a in x.attr("broadcast_dimensions")), x.inputs[0]
        elif x.op is ops.reshape and (axes := reshape_axes(_dims(x.inputs[0]), _dims(x))) is not None:
            at, x = tuple(None if a is None else at[a] for a in axes), x.inputs[0]
        else:
            return x, at


def number(x: Node) -> float | None:
    """The one real number that all elements are."""
    value = splat_of(spread(x)[0])
    return float(value) if value is not None and np.isrealobj(value) else None


def is_number(x: Node, wanted: float) -> bool:
    value = number(x)
    return value is not None and math.isclose(value, wanted, rel_tol=1e-3)


def sides(x: Node, op: Op) -> Iterator[tuple[Node, Node]]:
    """The operands of a node of that op, both ways round where it is commutative."""
    x = spread(x)[0]
    if x.op is op:
        yield x.inputs[0], x.inputs[1]
        if op.commutative:
            yield x.inputs[1], x.inputs[0]


def reduced(x: Node, at: Axes, op: Op) -> tuple[Node, tuple[int, ...]] | None:
    """What was reduced by an op to become a row of something, and the axes: where its other axes lie as they did before."""
    x, at = spread(x, at)
    if op is ops.maximum:
        for bound, rest in sides(x, ops.maximum):
            if number(bound) == -math.inf:
                x, at = spread(rest, at)
                break
    if x.op is not ops.reduce or len(x.inputs) != 2 or reducer_of(x) is not op:
        return None
    axes, start = tuple(sorted(x.attr("dimensions"))), number(x.inputs[1])
    left = tuple(k for k in range(len(_dims(x.inputs[0]))) if k not in axes)
    return (x.inputs[0], axes) if at == left and start == (0 if op is ops.add else -math.inf) else None


def mean(x: Node, at: Axes) -> tuple[Node, tuple[int, ...]] | None:
    """The same of a sum divided by the number of its terms."""
    x, at = spread(x, at)
    for total, count in sides(x, ops.divide) if x.op is ops.divide else sides(x, ops.multiply):
        by = number(count)
        found = reduced(total, at, ops.add) if by else None
        if found is not None and by is not None:
            size = math.prod(d if isinstance(d, int) else 0 for d in (_dims(found[0])[a] for a in found[1]))
            if math.isclose(by if x.op is ops.divide else 1 / by, size, rel_tol=1e-6):
                return found
    return None


def factors(x: Node) -> list[Node]:
    """What a product is made of; half of something is a factor 0.5."""
    if x.op is ops.multiply:
        return [f for i in x.inputs for f in factors(i)]
    return [x]


class Composer:
    """Finds the operators of one function."""

    def __init__(self, function: Function, version: int) -> None:
        self.function, self.version = function, version
        self.found: dict[Node, Found] = {}
        self.made = Builder()

    def function_with_operators(self) -> Function:
        """The function, its patterns replaced; itself where there are none."""
        for node in self.function.nodes:
            for pattern in PATTERNS.get(node.op, ()):
                if isinstance(node.type, TensorType) and node.type.dtype.is_float and (found := pattern(self, node)) is not None:
                    self.found[node] = found
                    break
        if not self.found:
            return self.function
        new: dict[Node, Node] = {}
        for node in self.function.nodes:
            found = self.found.get(node)
            if found is None:
                new[node] = node if node.op in (PARAM, CONSTANT) else with_inputs(node, tuple(new[i] for i in node.inputs))
                continue
            operator = ComposedOperator(found.op_type, found.attributes)
            inputs = tuple(self._again(o, new) for o in found.operands)
            attrs = deferred.bind({"name": f"onnx.{found.op_type}", "type": node.type, "language": "onnx", "lowering": operator})
            new[node] = Node(deferred, inputs, attrs, node.type, node.origin)
        return replaced(self.function, new)

    def _again(self, node: Node, new: Mapping[Node, Node]) -> Node:
        """An operand in the new function: of the old one, or made for an operator over such."""
        return new[node] if node in new else with_inputs(node, tuple(self._again(i, new) for i in node.inputs))

    def read_by(self, node: Node, *readers: Node) -> bool:
        """Whether nothing but these reads a node."""
        return node not in self.function.results and set(self.function.users.get(node, ())) <= set(readers)

    # --- patterns

    def softmax(self, node: Node) -> Found | None:
        """exp(x - max x) / sum exp(x - max x)"""
        power, total = node.inputs
        found = reduced(total, tuple(range(len(_dims(node)))), ops.add)
        if power.op is not ops.exponential or found is None or found[0] is not power or len(found[1]) != 1:
            return None
        x = self._less_greatest(power.inputs[0], found[1])
        if x is None or not self.read_by(power, node, spread(total)[0]):
            return None
        return Found("Softmax", (x,), {"axis": found[1][0]})

    def log_softmax(self, node: Node) -> Found | None:
        """(x - max x) - log sum exp(x - max x)"""
        less, log = node.inputs
        log, at = spread(log)
        found = reduced(log.inputs[0], at, ops.add) if log.op is ops.log else None
        if found is None or found[0].op is not ops.exponential or found[0].inputs[0] is not less or len(found[1]) != 1:
            return None
        x = self._less_greatest(less, found[1])
        return None if x is None else Found("LogSoftmax", (x,), {"axis": found[1][0]})

    def _less_greatest(self, less: Node, axes: tuple[int, ...]) -> Node | None:
        """x, of x - max x along the axes."""
        if less.op is not ops.subtract:
            return None
        found = reduced(less.inputs[1], tuple(range(len(_dims(less)))), ops.maximum)
        return found[0] if found is not None and found[0] is less.inputs[0] and found[1] == axes else None

    def layer_norm(self, node: Node) -> Found | None:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias"""
        if node.op is ops.add:
            for scaled, bias in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
                found = self.layer_norm(scaled) if scaled.op is ops.multiply else None
                row = None if found is None else self._row(bias, found.attributes["axis"])
                if found is not None and row is not None and len(found.operands) == 2 and self.read_by(scaled, node):
                    self.found.pop(scaled, None)
                    return Found("LayerNormalization", (*found.operands, row), found.attributes)
            return None
        for centred, deviation, op, scale in _scaled_norms(factors(node)):
            normal = self._normalised(centred, deviation, op)
            row = None if normal is None else self._row(scale, normal[1])
            if normal is not None and row is not None:
                return Found("LayerNormalization", (normal[0], row), {"axis": normal[1], "epsilon": normal[2]})
        return None

    def _row(self, x: Node, axis: int) -> Node | None:
        """What is broadcast along the axes before that one."""
        rank = len(_dims(x))
        base, at = spread(x)
        return base if at == tuple(range(axis, rank)) and rank > axis and len(_dims(base)) < rank else None

    def _normalised(self, centred: Node, deviation: Node, op: Op) -> tuple[Node, int, float] | None:
        """x, the first of the axes and epsilon, of what has mean 0, and the root that makes its variance 1."""
        rank = len(_dims(centred))
        average = mean(centred.inputs[1], tuple(range(rank))) if centred.op is ops.subtract else None
        if average is None or average[0] is not centred.inputs[0]:
            return None
        x, axes = average
        root, at = spread(deviation)
        if root.op is not op or len(_dims(deviation)) != rank or axes != tuple(range(rank - len(axes), rank)):
            return None
        below = spread(root.inputs[0], at)[1]
        for variance, epsilon in sides(root.inputs[0], ops.add):
            value = number(epsilon)
            if value is not None and self._variance(variance, below, x, axes, centred):
                return x, axes[0], value
        return None

    def _variance(self, x: Node, at: Axes, of: Node, axes: tuple[int, ...], centred: Node) -> bool:
        """Whether it is the mean of squares without the mean, or that of squares less the square of the mean."""
        x, at = spread(x, at)
        for bound, rest in sides(x, ops.maximum):
            if number(bound) == 0:
                x, at = spread(rest, at)
                break
        if x.op is ops.subtract:
            squares = mean(x.inputs[0], at)
            base = _square_of(spread(x.inputs[1], at)[0])
            average = None if base is None else mean(base, spread(x.inputs[1], at)[1])
            return squares is not None and squares[1] == axes and _square_of(squares[0]) is of and average == (of, axes)
        found = mean(x, at)
        square = None if found is None or found[1] != axes else _square_of(found[0])
        return square is not None and (square is centred or (square.op is ops.subtract and square.inputs == centred.inputs))

    def gelu(self, node: Node) -> Found | None:
        """x / 2 (1 + erf(x / sqrt 2)), and the same by tanh"""
        parts = factors(node)
        if self.version < 20 or len(parts) != 3:
            return None
        for half, a, b in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
            if is_number(parts[half], 0.5):
                for x, gate in ((parts[a], parts[b]), (parts[b], parts[a])):
                    approximate = _gate_of(x, gate)
                    if approximate:
                        return Found("Gelu", (x,), {"approximate": approximate})
        return None

    def gemm(self, node: Node) -> Found | None:
        """x w + c for matrices"""
        for product, bias in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
            if product.op is not ops.dot_general or not self.read_by(product, node) or len(_dims(product)) != 2:
                continue
            x, w = product.inputs
            sums = product.attr("lhs_contracting_dimensions"), product.attr("rhs_contracting_dimensions")
            base, at = spread(bias)
            if len(_dims(x)) != 2 or len(_dims(w)) != 2 or any(len(s) != 1 for s in sums) or at not in ((1,), (0, 1)):
                continue
            if as_tensor(x.type).dtype is not as_tensor(node.type).dtype or as_tensor(w.type).dtype is not as_tensor(x.type).dtype:
                continue
            turned = {"transA": int(sums[0][0] == 0), "transB": int(sums[1][0] == 1)}
            return Found("Gemm", (x, w, base), {k: v for k, v in turned.items() if v})
        return None

    def attention(self, node: Node) -> Found | None:
        """softmax(q k' scale + mask) v, over two leading axes"""
        weights, values = node.inputs
        soft = self.found.get(weights)
        if self.version < 23 or soft is None or soft.op_type != "Softmax" or soft.attributes["axis"] != 3:
            return None
        second, scores, mask = _product(node), soft.operands[0], None
        if scores.op is ops.add:
            first_is = _scaled(scores.inputs[0]) is not None
            mask, scores = scores.inputs[first_is], scores.inputs[not first_is]
            mask = None if number(mask) == 0 else mask
        scaled = _scaled(scores)
        first = None if scaled is None else _product(scaled[0])
        if mask is not None and len(_dims(mask)) != 4:
            return None
        if scaled is None or first is None or second is None or second[0] != (0, 1, 2, 3) or not self.read_by(weights, node):
            return None
        scores, scale = scaled
        queries, keys = (self._turned(x, order) for x, order in zip(scores.inputs, first, strict=True))
        batch, summed = second[1][:2], second[1][3]
        free = second[1][2]
        operands = [queries, keys, self._turned(values, (*batch, summed, free))]
        operands += [mask] if mask is not None else []
        return Found("Attention", tuple(operands), {"scale": scale})

    def _turned(self, x: Node, order: Sequence[int]) -> Node:
        return x if tuple(order) == tuple(range(len(order))) else self.made(ops.transpose, x, permutation=tuple(order))


def _scaled_norms(parts: Sequence[Node]) -> Iterator[tuple[Node, Node, Op, Node]]:
    """How a product may be what has mean 0, the root that makes its variance 1, and a scale."""
    if len(parts) == 2:
        for quotient, scale in (parts, parts[::-1]):
            if quotient.op is ops.divide:
                yield quotient.inputs[0], quotient.inputs[1], ops.sqrt, scale
    if len(parts) == 3:
        for centred, deviation, scale in permutations(parts):
            yield centred, deviation, ops.rsqrt, scale


def _square_of(x: Node) -> Node | None:
    """What it is the square of."""
    if x.op is ops.square:
        return x.inputs[0]
    return x.inputs[0] if x.op is ops.multiply and x.inputs[0] is x.inputs[1] else None


def _gate_of(x: Node, gate: Node) -> str:
    """Which gate of Gelu a factor is: `none` for the one by erf, `tanh`; nothing for another."""
    if gate.op is ops.erfc:
        inner = factors(gate.inputs[0])
        signs = [i.inputs[0] if i.op is ops.negate else i for i in inner]
        turned = any(i.op is ops.negate for i in inner)
        wanted = math.sqrt(0.5) if turned else -math.sqrt(0.5)
        return "none" if len(signs) == 2 and x in signs and any(is_number(s, wanted) for s in signs) else ""
    for one, curve in sides(gate, ops.add):
        if not is_number(one, 1.0):
            continue
        if curve.op is ops.erf:
            argument = curve.inputs[0]
            divided = argument.op is ops.divide and is_number(argument.inputs[1], math.sqrt(2))
            rest = [argument.inputs[0]] if divided else [p for p in factors(argument) if not is_number(p, math.sqrt(0.5))]
            return "none" if rest == [x] and rest != [argument] else ""
        if curve.op is ops.tanh:
            rest = [p for p in factors(curve.inputs[0]) if not is_number(p, math.sqrt(2 / math.pi))]
            cubic = [p for a, b in sides(rest[0], ops.add) if a is x for p in factors(b)] if len(rest) == 1 else []
            powers = [p for p in cubic if not is_number(p, 0.044715)]
            return "tanh" if len(powers) == len(cubic) - 1 and _is_cube(powers, x) else ""
    return ""


def _is_cube(parts: Sequence[Node], x: Node) -> bool:
    """Whether a product is x to the third."""
    degree = 0
    for p in parts:
        if p.op is ops.power and p.inputs[0] is x and number(p.inputs[1]) is not None:
            degree += int(number(p.inputs[1]) or 0)
        elif _square_of(p) is x:
            degree += 2
        else:
            degree += p is x or 99
    return degree == 3


def _scaled(x: Node) -> tuple[Node, float] | None:
    """A product of tensors, and the number that it is multiplied by."""
    if x.op is ops.dot_general:
        return x, 1.0
    for product, by in sides(x, ops.divide) if x.op is ops.divide else sides(x, ops.multiply):
        value = number(by)
        if value and product.op is ops.dot_general:
            return product, 1 / value if x.op is ops.divide else value
    return None


def _product(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The axes of both operands of a product over two leading axes: these, the free one, the one that is summed."""
    if node.op is not ops.dot_general:
        return None
    orders = []
    for side, x in zip(("lhs", "rhs"), node.inputs, strict=True):
        batch, summed = node.attr(f"{side}_batching_dimensions"), node.attr(f"{side}_contracting_dimensions")
        free = [k for k in range(len(_dims(x))) if k not in (*batch, *summed)]
        if len(batch) != 2 or len(summed) != 1 or len(free) != 1:
            return None
        orders.append((*batch, *free, *summed))
    return orders[0], orders[1]


Pattern = Callable[[Composer, Node], Found | None]

PATTERNS: dict[Op, tuple[Pattern, ...]] = {
    ops.divide: (Composer.softmax,), ops.subtract: (Composer.log_softmax,),
    ops.multiply: (Composer.gelu, Composer.layer_norm), ops.add: (Composer.layer_norm, Composer.gemm),
    ops.dot_general: (Composer.attention,),
}
"""What is looked for at the nodes of each operation, in order."""
