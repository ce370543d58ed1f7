"""Derivatives of functions: what a call, a closure and a call of a closure become in a gradient program.

The derivative of `f` is two functions. `f_fwd` takes what `f` takes and gives its results and one more: a closure of `f_bwd` over
the residuals. `f_bwd` takes residuals and cotangents of results and gives cotangents of arguments. The residual of a call inside
`f` is the closure that this call gives, so recursion needs no recursive type. A function value becomes one whose calls give such a
closure too; its own cotangent is a tape with those of what it has captured, as their types are not in its type.
Variants are made on demand, one for each set of arguments and results that matter. A function that names its own `vjp` is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARTIAL, loop_of
from deepx_graph.ops.data.tape import cotangent_type
from deepx_graph.ops.vjp.accumulate import carries
from deepx_graph.passes.autodiff.prepare import sqrt_checkpointed
from deepx_graph.passes.fusion.fuse import unfused
from deepx_graph.passes.rules.fold import fold_rule
from deepx_graph.passes.rules.powers import recognise_logistic
from deepx_graph.passes.rules.shape import scalar_operand
from deepx_graph.passes.scalar.cse import merged
from deepx_graph.passes.scalar.dce import prune
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.rewrite.engine import RuleSet, rewrite_function
from deepx_graph.types import TAPE, FunctionType, TapeType, TupleType, Type

SCALAR = 16
"""Bytes of a scalar, the longest one."""

_SHORTER = RuleSet((scalar_operand, recognise_logistic, fold_rule(SCALAR)), fast_math=True)


class Variant(NamedTuple):
    """A derivative of a function: by these parameters, for cotangents of these results.

    `captured`: as a closure over so many leading arguments, whose cotangents are given on a tape; -1 for a call.
    """

    callee: str
    by: tuple[int, ...]
    of: tuple[int, ...]
    captured: int = -1


class Kept(NamedTuple):
    """What a loop keeps of one value: bytes of all rows, or bytes that an iteration puts on a tape; there as long as the origin
    is."""

    origin: Origin
    row_bytes: int
    iteration_bytes: int


class Derivatives:
    """The derivatives that a program needs. `wanted` lists the variants that were asked for, in order, with their names.

    `kept` lists what its loops keep, as far as nothing drops it later.
    """

    def __init__(self, module: Module, loop: str = "keep") -> None:
        self.module, self.loop = module, loop
        self.kept: list[Kept] = []
        self._runs: set[int] = set()
        self.closures = any(n.op is PARTIAL or n.op is CALL_VALUE for f in module.functions for n in f.nodes)
        """Whether there are function values: then all of them, everywhere, are of the derived kind."""
        self.wanted: dict[Variant, tuple[str, str]] = {}
        self._names = {f.name for f in module.functions}

    def prepared(self, function: Function) -> Function:
        """The function as it is differentiated: without kernels, what nothing needs and what is there twice; a sigmoid that is
        written out is one operation, whose derivative is shorter. Scalars that are known are computed, as they may tell that a
        loop never runs. Loops in runs where these are wanted."""
        function = prune(unfused(function), RewriteControl(), invariants=True)
        function = merged(rewrite_function(function, _SHORTER, RewriteControl()), RewriteControl())
        if self.loop == "sqrt":
            function, runs = sqrt_checkpointed(function)
            self._runs |= runs
        return function

    def repeats(self, end: Node) -> bool:
        """Whether values of a loop are computed again from its variables rather than kept."""
        return self.loop == "recompute" or loop_of(end.inputs[0]) in self._runs

    def names(self, variant: Variant) -> tuple[str, str]:
        """The names of the forward and the backward function of a variant, which is made later."""
        if variant not in self.wanted:
            self.wanted[variant] = self._unused(f"{variant.callee}_fwd"), self._unused(f"{variant.callee}_bwd")
        return self.wanted[variant]

    def _unused(self, name: str) -> str:
        found, k = name, 0
        while found in self._names:
            k += 1
            found = f"{name}{k}"
        self._names.add(found)
        return found

    # --- types

    def derived(self, type: Type) -> Type:
        """The type that a value has in the forward part: function values give a closure more."""
        if not self.closures:
            return type
        if isinstance(type, TupleType):
            return TupleType(tuple(map(self.derived, type.items)))
        if not isinstance(type, FunctionType):
            return type
        results = tuple(map(self.derived, type.results))
        return FunctionType(tuple(map(self.derived, type.params)), (*results, self.pullback_of_value(type)))

    def pullback_of_value(self, type: FunctionType) -> FunctionType:
        """The type of the closure that a call of a function value gives: for cotangents, those of arguments, and a tape."""
        return FunctionType(cotangents(type.results), (*cotangents(type.params), TAPE))

    def pullback(self, variant: Variant) -> FunctionType:
        """The type of the closure that the forward function of a variant gives. Raises InferError where a dtype is not known."""
        type = self.module[variant.callee].type
        of = tuple(type.results[k] for k in variant.of)
        by = [type.params[k] for k in variant.by if k >= variant.captured]
        for t in (*of, *by):
            if carries(t) and cotangent_type(t) is None:
                raise InferError(f"the gradient of '{variant.callee}', {an(type)}, is not known before its dtypes are",
                                 hint="give the inputs' types first")  # fmt: skip
        return FunctionType(cotangents(of), (*cotangents(by), *([TAPE] if variant.captured >= 0 else [])))

    def forward_type(self, variant: Variant) -> FunctionType:
        """The type of the forward function of a variant."""
        type = self.module[variant.callee].type
        results = (*map(self.derived, type.results), self.pullback(variant))
        return FunctionType(tuple(map(self.derived, type.params)), results)

    # --- nodes

    def crosses(self, node: Node) -> bool:
        """Whether a function value or a tape goes in or out of a call."""
        signature = node.attr("signature")
        return self.closures and any(map(_holds_functions, (*signature.params, *signature.results)))

    def call(self, node: Node, by: Sequence[int], of: Sequence[int]) -> tuple[Any, ...]:
        """The attributes of the call of the forward function that takes a call's place."""
        variant = Variant(node.attr("callee"), tuple(by), tuple(of))
        return self.names(variant)[0], self.forward_type(variant)

    def closure(self, node: Node) -> tuple[Any, ...]:
        """The attributes of the closure that takes a closure's place."""
        type = self.module[node.attr("callee")].type
        by = tuple(k for k, t in enumerate(type.params) if carries(t))
        of = tuple(k for k, t in enumerate(type.results) if carries(t))
        variant = Variant(node.attr("callee"), by, of, len(node.inputs))
        return self.names(variant)[0], self.forward_type(variant)

    def own(self, node: Node) -> Function | None:
        """The derivative that the callee of a call names itself. Raises InferError when that does not fit."""
        callee = self.module[node.attr("callee")]
        if callee.vjp is None:
            return None
        if callee.vjp not in self.module:
            raise InferError(f"'{callee.name}' names '{callee.vjp}' as its derivative, and there is no such function")
        found = self.module[callee.vjp]
        type = callee.type
        want = FunctionType((*type.params, *cotangents(type.results)), cotangents(type.params))
        if found.type != want:
            raise InferError(f"'{found.name}' is no derivative of '{callee.name}': it is {an(found.type)}", expected=str(want))
        return found

    def attrs(self, node: Node) -> tuple[Any, ...]:
        """The attributes of a node of the forward part that no derivative passes."""
        if node.op is PARTIAL and self.closures:
            return self.closure(node)
        if node.op is CALL and self.crosses(node):
            return self.call(node, (), ())
        if not self.closures or node.op is CALL:
            return node.attrs
        return tuple(self.derived(v) if isinstance(v, Type) else v for v in node.attrs)


def cotangents(types: Sequence[Type]) -> tuple[Type, ...]:
    """The types of the cotangents of those that can have one."""
    return tuple(c for t in types if (c := cotangent_type(t)) is not None)


def _holds_functions(type: Type) -> bool:
    return isinstance(type, (FunctionType, TapeType)) or (isinstance(type, TupleType) and any(map(_holds_functions, type.items)))
