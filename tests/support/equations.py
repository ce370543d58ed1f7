"""Programs as terms of an e-graph (egglog), and what declarations say of parts of operations as equations over them.

A term is a leaf, `(Part t d i j)`: positions i to j of a dimension, `(Join d x y)`: two parts one after the other,
`(Fold f x y)`: partial results combined, or an operation over terms, each of which has a constructor of its own. The equations of
an operation follow from its factor rule (`Op.sharding`), in which splitting one loop of the operation splits dimensions alike:

    dot(Part(x, 0, i, j), w) = Part(dot(x, w), 0, i, j)
    Fold(add, dot(Part(x, 1, i, j), Part(w, 0, i, j)), dot(Part(x, 1, j, k), Part(w, 0, j, k)))
        = dot(Part(x, 1, i, k), Part(w, 0, i, k))

So the proof has the rules that the partitioner has, and none of its decisions; `tests/sharding/test_rule_laws.py` holds the rules
against numbers. They are true of real numbers: sums in another order are the same here. Source of the method: Willsey et al.,
egg: Fast and Extensible Equality Saturation, POPL 2021; Zhang et al., Better Together: Unifying Datalog and Equality Saturation,
PLDI 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from egglog.bindings import EggSmolError
from egglog.bindings import EGraph as Egglog

from deepx_graph.ir import Function, Node
from deepx_graph.ir.factor_rule import FactorRule, Partitioning, tensor_shape
from deepx_graph.ir.peephole import commutes
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.literal import Array
from deepx_graph.sharding.rules import factor_rule, partitioning_of
from deepx_graph.types import TensorType

Term = str

PARTS = """
(datatype T (Leaf String) (Part T i64 i64 i64) (Join i64 T T) (Fold String T T))
(function size (T i64) i64 :no-merge)
(relation cut (i64 i64 i64))
(rule ((= e (Part x d i j))) ((set (size e d) (- j i))))
(rule ((= e (Part x d i j)) (= n (size x c)) (!= c d)) ((set (size e c) n)))
(rule ((= e (Part x d 0 n)) (= n (size x d))) ((union e x)))
(rewrite (Part (Part x d i j) d k l) (Part x d (+ i k) (+ i l)))
(rewrite (Part (Part x c i j) d k l) (Part (Part x d k l) c i j) :when ((!= c d)))
(rewrite (Join d (Part x d i j) (Part x d j k)) (Part x d i k))
(rule ((= e (Part (Join d x y) d i j)) (= n (size x d)) (<= j n)) ((union e (Part x d i j))))
(rule ((= e (Part (Join d x y) d i j)) (= n (size x d)) (>= i n)) ((union e (Part y d (- i n) (- j n)))))
(rewrite (Fold f x y) (Fold f y x))
(rewrite (Fold f (Fold f x y) z) (Fold f x (Fold f y z)))
"""
"""What is true of parts whatever the operations are. `(cut n i j)` are the parts that may be asked for of a dimension of n."""


class Equations:
    """Terms over the equations of their operations; equal terms are one."""

    def __init__(self) -> None:
        self.egraph = Egglog()
        self._names: dict[str, Term] = {}
        self._symbols: dict[Any, str] = {}
        self._bodies: dict[Function, int] = {}
        self._rewrites: set[tuple[str, str]] = set()
        self._run(PARTS)

    # --- terms

    def leaf(self, name: str, shape: Sequence[int] = ()) -> Term:
        """What nothing is known of but its shape."""
        return self._named(f'(Leaf "{name}")', shape)

    def part(self, term: Term, box: Sequence[slice], shape: Sequence[int]) -> Term:
        """What lies in a box of a term of that shape."""
        for d, (at, n) in enumerate(zip(box, shape, strict=True)):
            if (at.start, at.stop) != (0, n):
                self._run(f"(cut {n} {at.start} {at.stop})")
                term = self._named(f"(Part {term} {d} {at.start} {at.stop})")
        return term

    def joined(self, parts: Sequence[Term], dim: int) -> Term:
        """Parts one after the other."""
        term = parts[0]
        for part in parts[1:]:
            term = self._named(f"(Join {dim} {term} {part})")
        return term

    def folded(self, parts: Sequence[Term], op: str) -> Term:
        """Partial results combined."""
        term = parts[0]
        for part in parts[1:]:
            term = self._named(f'(Fold "{op}" {term} {part})')
        return term

    def applied(self, node: Node, operands: Sequence[Term]) -> Term:
        """The operation of a node on terms, with its equations."""
        how, rule = partitioning_of(node), factor_rule(node)
        if how is None or rule is None or len(rule.results) > 1:
            return self._term(self._symbol(node, self._plain(node.attrs), len(operands)), (), operands, node)
        return self.split(node, how, rule, node.op.name, operands)

    def split(self, node: Node, how: Partitioning, rule: FactorRule, name: str, operands: Sequence[Term]) -> Term:
        """An operation that has a factor rule."""
        symbol, sizes = self._split_symbol(node, how, rule, name)
        return self._term(symbol, [rule.sizes[f] for f in sizes], operands, node)

    def _split_symbol(self, node: Node, how: Partitioning, rule: FactorRule, name: str) -> tuple[str, Sequence[int]]:
        """The constructor of an operation that has a factor rule, with its equations, and the factors whose sizes it takes."""
        free = [f for f in range(len(rule.sizes)) if rule.splits_freely(f) and _is_major(rule, f)]
        if how.attrs is None:
            attrs, sizes = node.attrs, []
        else:  # the attributes say sizes: they are arguments, and the symbol is that of parts of one element each
            least = [[_size(rule, dim, free) for dim in t] for t in rule.tensors]
            count = len(rule.operands)
            attrs, sizes = how.attrs(node, [tuple(s) for s in least[:count]], [tuple(s) for s in least[count:]]), free
        dtype = node.type.dtype.name if isinstance(node.type, TensorType) else ""
        units = tuple(_units(rule, f) for f in free)
        key = (name, dtype, self._plain(attrs), rule.operands, rule.results, units)
        if key not in self._symbols:
            symbol = self._declared(key, name, len(sizes), len(rule.operands))
            combiner = how.combiner(node) if how.combiner else None
            for f in free:
                if f not in rule.reduction:
                    self._run(_split_equation(symbol, rule, f, sizes))
                elif combiner is not None:
                    self._run(_fold_equation(symbol, rule, f, sizes, combiner.name))
        return self._symbols[key], sizes

    def rewrite(self, before: Node, after: Node) -> None:
        """The equation of two nodes of elementwise operations over parameters, which stand for any values, and scalar constants."""
        self._rewritten(self._open(before), self._open(after))

    def _rewritten(self, left: str, right: str) -> None:
        if (left, right) not in self._rewrites:
            self._rewrites.add((left, right))
            self._run(f"(rewrite {left} {right})")

    def _open(self, node: Node) -> str:
        if node.op is PARAM:
            return node.name
        if node.op is CONSTANT:
            return f'(Leaf "{scalar_name(value_of(node).array)}")'
        if commutes(node.op, node.type):
            swapped = replace(node, inputs=node.inputs[::-1])
            self._rewritten(f"({self._elementwise(node)} x y)", f"({self._elementwise(swapped)} y x)")
        return _call(self._elementwise(node), (), [self._open(i) for i in node.inputs])

    def _elementwise(self, node: Node) -> str:
        how, rule = partitioning_of(node), factor_rule(node)
        assert how is not None and rule is not None and node.op.elementwise
        return self._split_symbol(node, how, rule, node.op.name)[0]

    def _symbol(self, node: Node, attrs: Any, arity: int) -> str:
        key = (node.op.name, str(node.type), attrs, arity)
        return self._symbols.get(key) or self._declared(key, node.op.name, 0, arity)

    def _declared(self, key: Any, name: str, sizes: int, arity: int) -> str:
        symbol = self._symbols[key] = f"{name}-{len(self._symbols)}"
        self._run(f"(constructor {symbol} ({' '.join(['i64'] * sizes + ['T'] * arity)}) T)")
        return symbol

    def _term(self, symbol: str, sizes: Sequence[int], operands: Sequence[Term], node: Node) -> Term:
        return self._named(f"({' '.join([symbol, *map(str, sizes), *operands])})", tensor_shape(node.type))

    def _named(self, text: str, shape: Sequence[int] = ()) -> Term:
        if text not in self._names:
            name = self._names[text] = f"$t{len(self._names)}"
            self._run(f"(let {name} {text})" + "".join(f"(set (size {name} {d}) {n})" for d, n in enumerate(shape)))
        return self._names[text]

    def _plain(self, attrs: Sequence[Any]) -> tuple[Any, ...]:
        """Attribute values by which two operations are the same; bodies are the same where their structure is."""
        return tuple(("body", self._bodies.setdefault(a, len(self._bodies))) if isinstance(a, Function) else str(a) for a in attrs)

    # --- proofs

    def saturate(self, steps: int = 40) -> None:
        """Applies the equations until nothing new is equal, or so often."""
        self._run(f"(run {steps})")

    def equal(self, a: Term, b: Term) -> bool:
        """Whether the terms were found to be equal."""
        try:
            self._run(f"(check (= {a} {b}))")
        except EggSmolError:
            return False
        return True

    def _run(self, text: str) -> None:
        self.egraph.run_program(*self.egraph.parse_program(text))


def scalar_name(value: Array) -> str:
    """How the leaf of a constant is called."""
    return f"{value.dtype.name} {value.tolist()}"


def _is_major(rule: FactorRule, factor: int) -> bool:
    """Whether a part of the factor is a run of positions wherever it is, and it is no dummy."""
    return rule.sizes[factor] > 0 and all(dim[0] == factor for t in rule.tensors for dim in t if factor in dim)


def _size(rule: FactorRule, dim: Sequence[int], free: Sequence[int]) -> int:
    return math.prod(1 if f in free else rule.sizes[f] for f in dim)


def _units(rule: FactorRule, factor: int) -> tuple[tuple[int, int, int], ...]:
    """Tensor, dimension, and how many of its positions each of a factor's has."""
    return tuple((t, d, math.prod(rule.sizes[f] for f in dim[1:]))
                 for t, mapped in enumerate(rule.tensors) for d, dim in enumerate(mapped) if factor in dim)


def _call(symbol: str, sizes: Sequence[str], operands: Sequence[str]) -> str:
    return f"({' '.join([symbol, *sizes, *operands])})"


def _scaled(x: str, unit: int) -> str:
    return x if unit == 1 else f"(* {x} {unit})"


def _split_equation(symbol: str, rule: FactorRule, factor: int, sizes: Sequence[int]) -> str:
    """op(parts along a factor) = the part of op(wholes)."""
    count, places = len(rule.operands), _units(rule, factor)
    inner = [(t, d, unit) for t, d, unit in places if t < count]
    outer = next(((d, unit) for t, d, unit in places if t >= count), None)
    if outer is None:
        return ""
    given, wholes = [f"s{f}" for f in sizes], [f"x{k}" for k in range(count)]
    parts, facts = list(wholes), []
    for k, d, unit in inner:
        parts[k] = f"(Part x{k} {d} i{k} j{k})"
        facts += [f"(= {x} (/ {x}{k} {unit}))" for x in "ij"] + [f"(= {x}{k} {_scaled(x, unit)})" for x in "ij"]
    if inner:
        k, d, unit = inner[0]
        facts.append(f"(= n (/ (size x{k} {d}) {unit}))")
    else:  # what is repeated along the factor: any part of it
        facts += ["(cut m i j)", f"(= n (/ m {outer[1]}))", f"(= s{factor} (- j i))"]
    grown = ["n" if f == factor else f"s{f}" for f in sizes]
    whole = _call(symbol, grown, wholes)
    return (f"(rule ((= e {_call(symbol, given, parts)}) {' '.join(facts)}) "
            f"((union e (Part {whole} {outer[0]} {_scaled('i', outer[1])} {_scaled('j', outer[1])}))))")


def _fold_equation(symbol: str, rule: FactorRule, factor: int, sizes: Sequence[int], combiner: str) -> str:
    """op(parts) and op(the parts that follow), combined = op(both)."""
    count, inner = len(rule.operands), _units(rule, factor)

    def over(low: str, high: str, size: str) -> str:
        parts = [f"x{k}" for k in range(count)]
        for k, d, unit in inner:
            parts[k] = f"(Part x{k} {d} {_scaled(low, unit)} {_scaled(high, unit)})"
        return _call(symbol, [size if f == factor else f"s{f}" for f in sizes], parts)

    assert all(unit == 1 for _, _, unit in inner), rule
    return (f'(rule ((= e (Fold "{combiner}" {over("i", "j", "s")} {over("j", "k", "r")}))) '
            f"((union e {over('i', 'k', '(- k i)')})))")
