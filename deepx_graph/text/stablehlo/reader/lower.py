"""From the syntax tree of StableHLO to the sea: names to nodes, functions to functions, regions inlined or closed as bodies.

Regions of control flow use outer values freely: in the sea there is no inside. A body of a reduction must be closed; constants from
outside are copied into it. Every result is checked against the type the text states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, takewhile, zip_longest
from typing import Any

from deepx_graph.errors import (
    DeepxGraphError,
    Diagnostic,
    InferError,
    LimitError,
    ParseError,
    Source,
    Span,
    VerifyError,
    an,
    suggest,
)
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.node import Notes
from deepx_graph.ir.stated_rule import RULE
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.notation import read_fitting, read_mesh
from deepx_graph.sharding.values import GROUP
from deepx_graph.text.stablehlo import quantised
from deepx_graph.text.stablehlo.bytecode.text import operation_text
from deepx_graph.text.stablehlo.notes import LINE, Locations, is_foreign, notes_of
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.dynamic import named_dims
from deepx_graph.text.stablehlo.reader.effects import Effects, without_tokens
from deepx_graph.text.stablehlo.reader.rules import RULES
from deepx_graph.text.stablehlo.reader.shardy_checks import BlockNames, check_stated_rule
from deepx_graph.text.stablehlo.reader.shardy_places import behind_values, groups_of_unused, statements_beside
from deepx_graph.text.stablehlo.syntax import VJP, Noted, Operation, ParsedProgram, RegionBlock
from deepx_graph.text.xla.lowering import MALFORMED, MAX_NESTING, DialectLowering
from deepx_graph.types import STATE, FunctionType, Type, compatible

_RETURNS = ("func.return", "stablehlo.return", "mhlo.return", "sdy.return")
Scope = dict[str, Node]


class MlirLowering(DialectLowering):
    """The functions of one text as a module."""

    def __init__(self, source: Source, program: ParsedProgram) -> None:
        super().__init__()
        self.source, functions = source, program.functions
        self.made: list[Function] = []
        """Functions that are none of the text."""
        self.locations = Locations(program.aliases)
        self.whole = program.module
        for op in functions:
            _named(op)
        if source.binary or "!quant" in source.text:
            quantised.set_aside(functions)
        self.others = [op for op in functions if is_foreign(op.name) or _is_declared(op)]
        self.meshes = dict(self._meshes())
        self.unread = {op.extra.get("symbol", "") for op in self.others if op.name == "sdy.mesh"} - self.meshes.keys()
        """The names of the other meshes: shardings over them are kept as they stand."""
        self.syntax = {op.extra["symbol"]: op for op in functions if "symbol" in op.extra and op not in self.others}
        self.effects = Effects(self.syntax)
        self.effectful = self.effects.functions
        self.kept: dict[str, Diagnostic] = {}
        """What is said of operations that are kept as they stand, once for each of them, or for their dialect."""
        self.bound_axes: frozenset[str] = frozenset()
        """The axes of the mesh along which computations by hand around this one are split."""
        self.place: list[tuple[RegionBlock, Operation]] = []
        """The blocks that are being lowered, the innermost last, each with what it belongs to."""
        self.names: dict[int, BlockNames] = {}
        """What is known of the names of a block, where that has been asked."""
        self.sizes = 0
        """How many sizes of parameters are symbols."""
        self._check_functions(functions)

    def _check_functions(self, functions: Sequence[Operation]) -> None:
        seen: set[str] = set()
        for op in functions:
            name = op.extra.get("symbol")
            if is_foreign(op.name) or _is_declared(op):
                continue
            if op.name != "func.func" or name is None:
                raise self.error(f"'{op.name}' stands outside a function", op, "func.func")
            if name in seen:
                raise self.error(f"a second function '{name}'", op)
            if not op.regions or len(op.regions[0]) != 1:
                raise self.error(f"function '{name}' has no body of one block", op)
            seen.add(name)
        if not seen:
            raise self.error("the text holds no function", functions[0], "func.func @main(...) { ... }")

    def _meshes(self) -> Iterator[tuple[str, Mesh]]:
        """The meshes of the text by name, but for those on which nothing can be run, which is said where something is."""
        for op in self.others:
            if op.name == "sdy.mesh" and "symbol" in op.extra:
                with suppress(DeepxGraphError):
                    yield op.extra["symbol"], read_mesh(op.extra.get("form", "").partition("{")[0], op.extra["symbol"])

    def unused(self, name: str) -> str:
        """The name of a function that no other has."""
        taken = {*self.syntax, *(f.name for f in self.made)}
        return next(n for n in (name, *(f"{name}.{k}" for k in range(1, len(taken) + 2))) if n not in taken)

    def module(self) -> Module:
        functions = tuple(self.function(op) for op in self.syntax.values())
        functions += tuple(self.made)
        public = [f.name for f in functions if f.public]
        entry = "main" if "main" in self.syntax else (public or [functions[0].name])[0]
        name, notes = (self.whole.extra.get("symbol", ""), notes_of(self.whole.attributes)) if self.whole else ("", ())
        notes += tuple((LINE, self.text(op).strip()) for op in self.others)
        return Module(functions, entry, self.source, "stablehlo", name=name, notes=notes)

    def text(self, op: Operation) -> str:
        """The operation as it stands; of bytecode, in generic form."""
        return operation_text(op) if self.source.binary else self.source.text[op.start : op.end]

    # --- errors

    def span(self, op: Operation) -> Span:
        end = self.source.text.find("\n", op.start, op.end)
        place = self.locations.of(op.location) if op.location else None
        return Span(self.source, op.start, op.end if end < 0 else end, place)

    def error(self, message: str, op: Operation, expected: str | None = None, hint: str | None = None) -> ParseError:
        return ParseError(Diagnostic(message, self.span(op), expected=expected, hint=hint))

    # --- shardings

    def notes(self, attributes: Mapping[str, Any], types: Sequence[Type], span: Span) -> Notes:
        """The notes of values of those types, whose shardings fit them."""
        found = notes_of(attributes)
        for name, text in found:
            if name == "sdy.sharding" and types:
                self.shardings(name, text, types, span)
        return found

    def shardings(self, name: str, form: str, types: Sequence[Type], span: Span) -> list[tuple[Mesh, TensorSharding]]:
        """The shardings of `<@mesh, [..]>` or `<[<@mesh, [..]>, ..]>`; none over meshes that are not read.

        Raises ParseError at the span for what Shardy's verifiers refuse: other axes than the mesh has, one that is used twice, a
        sub-axis that is no factor, another number of shardings or dimensions than `types` have, an axis of a
        computation by hand around it.
        """
        if any(f"@{mesh}," in form for mesh in self.unread):
            return []
        try:
            found = read_fitting(form, self.meshes, types)
        except ParseError as e:
            raise ParseError(Diagnostic(f"{name}: {e.diagnostics[0].message}", span, e.diagnostics[0].expected)) from None
        if bound := [a.name for _, sharding in found for a in sharding.every_axis if a.name in self.bound_axes]:
            message = f'operates on axis "{bound[0]}" which is already bound by a parent sdy.manual_computation op'
            raise ParseError(Diagnostic(f"{name}: {message}", span))
        return found

    def keeps(self, op: Operation) -> None:
        """Notes that an operation is kept as it stands."""
        dialect = op.name.partition(".")[0]
        subject, verb = (f"operations of the dialect '{dialect}'", "are") if is_foreign(op.name) else (f"'{op.name}'", "is")
        if subject not in self.kept:
            self.kept[subject] = Diagnostic(f"{subject} {verb} kept as written and cannot be run", self.span(op), severity="note")

    # --- functions and regions

    def signature(self, name: str, op: Operation) -> FunctionType:
        """The type of a function of the text, the state included where it has effects."""
        if name not in self.syntax:
            raise self.error(f"no function '{name}'", op, hint=suggest(name, self.syntax))
        f = self.syntax[name]
        extra = (STATE,) if name in self.effectful else ()
        return FunctionType((*without_tokens(f.operand_types), *extra), (*without_tokens(f.result_types), *extra))

    def function(self, op: Operation) -> Function:
        name = op.extra["symbol"]
        block = op.regions[0][0]
        self._name_sizes(block)
        params = self.params(block)
        plain, self.state = list(params), None
        if name in self.effectful:
            self.b.origin = replace(self.b.origin, notes=())
            self.state = self.b.param(len(params), STATE, "state")
            params.append(self.state)
        scope = self.bound(block, plain, op)
        results = self.run(block, scope, op)
        beside = statements_beside(scope.values(), results) if self.meshes else ()
        if self.state is not None:
            results = [*results, self.state]
        named = op.attributes.get(VJP)
        vjp = named.text.lstrip("@").strip('"') if isinstance(named, Noted) else None
        stated = op.extra.get("results", ())
        notes = tuple(self.notes(a, [t], self.span(op)) for t, a in zip(op.result_types, stated, strict=False) if t != STATE)
        return Function(name, tuple(params), tuple(results), public=op.attributes["sym_visibility"] != "private",
                        vjp=vjp, result_notes=notes if any(notes) else (), span=Span(self.source, op.start, op.start + 9),
                        beside=beside)

    def _name_sizes(self, block: RegionBlock) -> None:
        """Unknown sizes of different parameters are different symbols."""
        for k, arg in enumerate(block.args):
            type, self.sizes = named_dims(arg.type, self.sizes)
            block.args[k] = arg._replace(type=type)

    def params(self, block: RegionBlock) -> list[Node]:
        """Parameters for the arguments of a block that are no tokens."""
        found: list[Node] = []
        groups = groups_of_unused(block)
        for arg in block.args:
            if arg.type == STATE:
                continue
            place = self.locations.of(arg.location) if arg.location else None
            span = Span(self.source, arg.start, arg.start + len(arg.name), place)
            notes = (*self.notes(arg.attributes, [arg.type], span), *((GROUP, number) for number in groups.get(arg.name, ())))
            self.b.origin = Origin("", (span,), (), notes)
            found.append(self.b.param(len(found), arg.type, arg.name.removeprefix("%")))
        return found

    def run(self, block: RegionBlock, scope: Scope, owner: Operation) -> list[Node]:
        """The values that a block returns, its operations being lowered into the sea."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise LimitError(Diagnostic(f"regions nest deeper than {MAX_NESTING}", self.span(owner)))
        outer = self.b.origin
        self.place.append((block, owner))
        for op in behind_values(block):
            if op.name in _RETURNS:
                results = [n for n in self.operands(op, scope) if n.type != STATE]
                break
            self.lower(op, scope)
        else:
            raise self.error("the region does not return", owner, "a return at its end")
        self.place.pop()
        self.b.origin = outer
        self.depth -= 1
        return results

    def region(self, op: Operation, k: int, args: Sequence[Node], scope: Scope) -> list[Node]:
        """Region k of an operation, inlined on the given arguments."""
        block = self._block(op, k)
        return self.run(block, {**scope, **self.bound(block, args, op)}, op)

    def bound(self, block: RegionBlock, args: Sequence[Node], op: Operation) -> Scope:
        """The arguments of a block by name; a token stands for the state that is current."""
        names = [arg.name for arg in block.args if arg.type != STATE]
        if len(names) != len(args):
            raise self.error(f"a region takes {len(names)} arguments and is given {len(args)}", op)
        found = dict(zip(names, args, strict=True))
        if len(names) < len(block.args) and self.state is not None:
            found |= {arg.name: self.state for arg in block.args if arg.type == STATE}
        return found

    def inlined(self, name: str, args: Sequence[Node], op: Operation) -> list[Node]:
        """The results of a function of the text, in a body that cannot call it."""
        self.signature(name, op)
        block = self.syntax[name].regions[0][0]
        return self.run(block, self.bound(block, args, op), op)

    def body(self, op: Operation, k: int, scope: Scope) -> Function:
        """Region k as a closed function of its arguments."""
        constants = {name: node for name, node in scope.items() if node.op is CONSTANT}
        return self._closed(f"body{k}", self._block(op, k), lambda params: self.region(op, k, params, constants))

    def _block(self, op: Operation, k: int) -> RegionBlock:
        if k >= len(op.regions) or len(op.regions[k]) != 1:
            raise self.error(f"{op.name} needs region {k}, with one block", op)
        return op.regions[k][0]

    def closed_function(self, name: str, op: Operation) -> Function:
        """A function of the text as the body of an operation."""
        self.signature(name, op)
        return self._closed(name, self.syntax[name].regions[0][0], lambda params: self.inlined(name, params, op))

    def _closed(self, name: str, block: RegionBlock, lower: Callable[[Sequence[Node]], list[Node]]) -> Function:
        """A body as a function of the arguments of a block, in which nothing acts."""
        outer = self.b.origin
        params = tuple(self.params(block))
        self.b.origin = outer
        state, self.state = self.state, None
        self.closed += 1
        results = lower(params)
        self.closed -= 1
        self.state = state
        return Function(name, params, tuple(results), public=False)

    # --- operations

    def operands(self, op: Operation, scope: Scope) -> list[Node]:
        found: list[Node] = []
        for name, at in op.operands:
            node = scope.get(name)
            if node is None and name.endswith("#0"):
                node = scope.get(name[:-2])
            if node is None and f"{name}#0" in scope:
                found += map(scope.__getitem__, takewhile(scope.__contains__, (f"{name}#{k}" for k in count())))
                continue
            if node is None:
                span = Span(self.source, at, at + len(name))
                raise ParseError(Diagnostic(f"no value '{name}' here", span, hint=suggest(name, scope)))
            found.append(node)
        return found

    def lower(self, op: Operation, scope: Scope) -> None:
        inputs = self.operands(op, scope)
        name = (op.results[0].removeprefix("%").partition("#")[0] if op.results else "")
        notes = self.notes(op.attributes, op.result_types, self.span(op)) if op.attributes else ()
        self.b.origin = Origin(name, (self.span(op),), (), notes)
        self._check_operands(op, inputs)
        for note, text in notes:
            if note == RULE:
                check_stated_rule(self, op, inputs, text)
        rule = RULES.get(op.name, RULES["opaque"])
        plain = [n for n in inputs if n.type != STATE]
        if self.closed and self.effects.acts(op):
            raise self.error(f"{op.name} has an effect, and the body of an operation can have none", op)
        try:
            context = OperationContext(self, op, plain, scope)
            results = quantised.lowered(context, rule) if quantised.KEY in op.extra else rule(context)
        except InferError as e:
            raise VerifyError(e.diagnostic(self.span(op), f"{op.name}: ")) from None
        except MALFORMED:
            raise self.error(f"{op.name} does not have the operands and attributes that it needs", op) from None
        self._named_results(op, results, scope)

    def _named_results(self, op: Operation, results: Sequence[Node], scope: Scope) -> None:
        """Gives results their names; a token stands for the state that is current then."""
        if len(op.result_types) not in (0, len(op.results)):
            raise self.error(f"{op.name} gives {len(results)} results and the text has types for {len(op.result_types)}", op)
        types = op.result_types or [n.type for n in results]
        if len(without_tokens(types)) != len(results) or len(types) != len(op.results):
            raise self.error(f"{op.name} gives {len(results)} results and {len(op.results)} are named", op)
        rest = iter(results)
        for name, type in zip(op.results, types, strict=True):
            if type != STATE:
                scope[name] = self._checked(op, next(rest), type)
            elif self.state is not None:
                scope[name] = self.state

    def _check_operands(self, op: Operation, inputs: Sequence[Node]) -> None:
        if len(op.operand_types) != len(inputs):
            return
        for node, type in zip(inputs, op.operand_types, strict=True):
            if node.type != type and not compatible(node.type, type) and op.operand_types != op.result_types:
                raise VerifyError(Diagnostic(f"{op.name}: the operand '{node.name}' is {an(node.type)} and the text says {type}",
                                             self.span(op)))

    def _checked(self, op: Operation, node: Node, type: Type) -> Node:
        if node.type == type or compatible(node.type, type):
            return node
        raise VerifyError(Diagnostic(f"{op.name} gives {an(node.type)} and the text says {type}", self.span(op),
                                     expected=str(node.type)))


def _is_declared(op: Operation) -> bool:
    """Whether the operation is a function without a body."""
    return op.name == "func.func" and "symbol" in op.extra and not any(op.regions)


def _named(op: Operation) -> None:
    """The generic form of a function, brought to what the pretty form gives."""
    name, type = op.attributes.get("sym_name"), op.attributes.get("function_type")
    if op.name == "func.func" and isinstance(name, str) and isinstance(type, FunctionType):
        op.extra["symbol"] = name
        op.operand_types, op.result_types = list(type.params), list(type.results)
        op.attributes.setdefault("sym_visibility", "public")
        stated = op.attributes.get("arg_attrs")
        if isinstance(stated, list) and any(op.regions):
            block = op.regions[0][0]
            pairs = zip_longest(block.args, stated[: len(block.args)])
            block.args = [arg._replace(attributes=given) if isinstance(given, dict) else arg for arg, given in pairs]
        given = op.attributes.get("res_attrs")
        if isinstance(given, list):
            op.extra["results"] = [each if isinstance(each, dict) else {} for each in given]

