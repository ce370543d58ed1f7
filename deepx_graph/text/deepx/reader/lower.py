"""From instructions to a module: straight-line programs, and functions that call each other.

A program is lowered again when the first reading found parameters or loaded files, with what it learned of them, so that they
come in order and with the types that all lines together give them. Errors of all lines are collected; nothing is run.

A function of dialect F is lowered once for every set of numbers that calls pass to it. A scalar, bool or list parameter that a call
gives as a literal is known while the callee is lowered (`sum(x, axis, keepdims)` needs that), so such a function becomes one per
set of literals; a scalar given as a value stays a parameter. Dimensions like `?1` are symbols; a call's results are typed by
matching the callee's parameters with the arguments. Recursion needs no cycle: a call names its callee.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, VerifyError, an, suggest
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL
from deepx_graph.ops import add, convert
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.deepx.reader.environment import Bound, Environment, Parameter, ReadingFacts, TensorName
from deepx_graph.text.deepx.reader.instr import Arg, Formal, FunctionText, Instr, Number, Problems, parse_literal
from deepx_graph.text.deepx.reader.line import Line
from deepx_graph.text.deepx.reader.rules import known_names, rule_named
from deepx_graph.types import ANY, STATE, Dim, FunctionType, TensorType, Type, as_tensor, merge_types, same_dim, tensor

MAX_READINGS = 4
"""How often a program is lowered again before what is known of its parameters is taken as it is."""

MAX_INSTANCES = 1000
"""How many functions the literals of calls may make of those in the text."""

Literals = tuple[tuple[Number | str, ...] | None, ...]

Fallback = Callable[[Environment, Instr], None]


def check(problems: Problems, body: Sequence[Instr], functions: Sequence[str] = ()) -> None:
    """Note unknown operations and missing arrows, before anything is lowered."""
    for instr in body:
        if problems.is_full:
            return
        rule = rule_named(instr.op.text)
        if rule is None and instr.op.text not in functions:
            hint = suggest(instr.op.text, [*known_names(), *functions])
            problems.note(f"unknown operation '{instr.op.text}'", instr.op.start, instr.op.end,
                          expected=None if hint else "an operation of deepx", hint=hint)
        elif not instr.has_arrow and (rule is None or rule.needs_arrow):
            problems.note("the arrow '->' is missing", max(instr.start, instr.end - 1), instr.end,
                          expected="-> and what is written")


def check_size(body_sizes: int, options: ReadOptions) -> None:
    """Raises LimitError for more instructions than nodes are allowed."""
    if body_sizes > options.max_nodes:
        raise LimitError(Diagnostic(f"{body_sizes} instructions, more than {options.max_nodes} nodes", hint="raise --max-nodes"))


def finish(problems: Problems, error: type[ParseError] | type[VerifyError]) -> None:
    """Raise what was noted, in the order of the text."""
    if problems.errors:
        raise error(*sorted(problems.errors, key=lambda d: d.span.start if d.span else -1))


def created_names(body: Sequence[Instr]) -> dict[str, int]:
    """The names that instructions create, with the offset at which each is first created."""
    found: dict[str, int] = {}
    for instr in body:
        rule = rule_named(instr.op.text)
        if rule is not None and rule.creates is not None:
            for arg in rule.creates(instr):
                found.setdefault(arg.text, arg.start)
    return found


def lower_body(env: Environment, options: ReadOptions, body: Sequence[Instr], fallback: Fallback | None = None) -> None:
    """Lower instructions in order; errors are noted, and names that should exist after them are marked as broken."""
    for instr in body:
        try:
            lower_instr(env, options, instr, fallback)
        except VerifyError as e:
            env.problems.errors += e.diagnostics
            if env.problems.is_full:
                return
            for arg in instr.outputs:
                env.break_name(arg)


def lower_instr(env: Environment, options: ReadOptions, instr: Instr, fallback: Fallback | None) -> None:
    """Lower one instruction. Raises VerifyError, with its place, when it cannot be."""
    rule = rule_named(instr.op.text)
    if rule is None:
        assert fallback is not None, "unknown operations are found by `check`"
        fallback(env, instr)
        return
    line = Line(env, options, instr, rule)
    if instr.backward:
        run_backward(line)
    elif rule.act is not None:
        rule.act(line)
    else:
        assert rule.make is not None
        out = line.result()
        value = rule.make(line, *line.operands())
        if value is not None:
            env.write(out, value, reshapes=rule.reshapes)


def lower_program(problems: Problems, options: ReadOptions, body: Sequence[Instr]) -> Module:
    """The module of a program without functions. Raises ParseError or VerifyError with all that is wrong."""
    check(problems, body)
    finish(problems, ParseError)
    check_size(len(body), options)
    created, facts = created_names(body), ReadingFacts()
    warnings = list(problems.warnings)
    for _ in range(MAX_READINGS):
        problems.warnings[:] = warnings
        env = Environment(problems, facts, created)
        lower_body(env, options, body)
        finish(problems, VerifyError)
        if env.facts() == facts:
            break
        facts = env.facts()
    outputs = env.outputs()
    main = Function("main", tuple(env.param_nodes), tuple(node for _, node in outputs), tuple(name for name, _ in outputs))
    return Module((main,), "main", problems.source, "deepx")


# --- functions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    """A function with the literals of its parameters; None for a parameter that stays one."""

    text: FunctionText
    literals: Literals
    name: str

    def runtime(self) -> list[Formal]:
        """The parameters that stay."""
        return [f for f, known in zip(self.text.params, self.literals, strict=True) if known is None]


def lower_functions(problems: Problems, options: ReadOptions, functions: Sequence[FunctionText]) -> Module:
    """The module of a file of functions; its entry is `main`, or the last.

    Raises ParseError or VerifyError with all that is wrong.
    """
    by_name: dict[str, FunctionText] = {}
    for f in functions:
        if f.name.text in by_name:
            problems.note(f"function '{f.name.text}' is defined twice", f.name.start, f.name.end)
        by_name[f.name.text] = f
    for f in functions:
        check(problems, f.body, tuple(by_name))
    finish(problems, ParseError)
    check_size(sum(len(f.body) for f in functions), options)
    entry = by_name["main"] if "main" in by_name else functions[-1]
    made = _Program(problems, options, by_name).lower(entry)
    finish(problems, VerifyError)
    order = {f.name.text: k for k, f in enumerate(functions)}
    made.sort(key=lambda pair: order[pair[0].text.name.text])
    return Module(tuple(f for _, f in made), entry.name.text, problems.source, "deepx")


class _Program:
    """The functions of a file while they are lowered, and the instances that calls have asked for."""

    def __init__(self, problems: Problems, options: ReadOptions, functions: Mapping[str, FunctionText]) -> None:
        self.problems, self.options, self.functions = problems, options, functions
        self.effects = _with_effects(functions)
        self.instances: dict[tuple[str, Literals], Instance] = {}
        self.waiting: list[Instance] = []
        self.draws = itertools.count()

    def lower(self, entry: FunctionText) -> list[tuple[Instance, Function]]:
        """Every function that can be lowered, the entry first."""
        done: list[tuple[Instance, Function]] = []
        self.instance(entry, (None,) * len(entry.params))
        self._drain(done)
        for f in self.functions.values():
            if any(name == f.name.text for name, _ in self.instances):
                continue
            if any(p.kind != "tensor" for p in f.params):
                message = f"'{f.name.text}' is never called: left out, as its numbers are not known"
                self.problems.warn(message, f.name.start, f.name.end)
                continue
            self.instance(f, (None,) * len(f.params))
            self._drain(done)
        return done

    def _drain(self, done: list[tuple[Instance, Function]]) -> None:
        while self.waiting and not self.problems.is_full:
            instance = self.waiting.pop()
            done.append((instance, self._lower(instance)))

    def instance(self, text: FunctionText, literals: Literals) -> Instance:
        """The instance of a function for these literals, to be lowered if it is new."""
        key = (text.name.text, literals)
        found = self.instances.get(key)
        if found is None:
            if len(self.instances) >= MAX_INSTANCES:
                message = f"'{text.name.text}' is called with more than {MAX_INSTANCES} sets of numbers"
                raise self.problems.verify_error(message, text.name)
            same = sum(name == text.name.text for name, _ in self.instances)
            found = self.instances[key] = Instance(text, literals, self._free_name(text.name.text, same))
            self.waiting.append(found)
        return found

    def _free_name(self, name: str, count: int) -> str:
        taken = {i.name for i in self.instances.values()} | set(self.functions)
        while count and f"{name}.{count}" in taken:
            count += 1
        return f"{name}.{count}" if count else name

    def _lower(self, instance: Instance) -> Function:
        text = instance.text
        env = Environment(self.problems, ReadingFacts(), created_names(text.body), is_closed=True, draws=self.draws)
        for formal, known in zip(text.params, instance.literals, strict=True):
            name, type = formal.name, formal.type
            if known is None:
                env.parameter(Parameter(name.text, type, formal.kind != "tensor", name.start, name.end))
            else:
                env.arguments[name.text] = Bound(known, type.dtype if type.dtype is not ANY else None)
        for formal in text.results:
            if formal.name.text not in env.tensors:
                env.tensors[formal.name.text] = TensorName(formal.type, None, formal.name.start, 0)
        if text.name.text in self.effects:
            env.take_state()
        lower_body(env, self.options, text.body, self.call)
        results = [r for formal in text.results if (r := self._result(env, formal)) is not None]
        names = [f.name.text for f in text.results]
        if env.state is not None:
            results.append(env.state)
            names.append("state")
        span = self.problems.span(text.name.start, text.name.end)
        return Function(instance.name, tuple(env.param_nodes), tuple(results), tuple(names), span=span)

    def _result(self, env: Environment, formal: Formal) -> Node | None:
        slot = env.tensors.get(formal.name.text)
        if slot is not None and slot.node is not None:
            return slot.node
        if (slot is None or not slot.is_broken) and not self.problems.errors:
            what = "is never written" if slot is not None else "is deleted"
            self.problems.note(f"the result '{formal.name.text}' {what}", formal.name.start, formal.name.end)
        return None

    # --- calls

    def call(self, env: Environment, instr: Instr) -> None:
        """A call by name: arguments on the left, results on the right."""
        callee = self.functions[instr.op.text]
        if len(instr.inputs) != len(callee.params) or len(instr.outputs) != len(callee.results):
            env.fail(f"{instr.op.text} is called with {len(instr.inputs)} arguments and {len(instr.outputs)} results", instr.op,
                     expected=f"{len(callee.params)} and {len(callee.results)}")
        env.b.origin = Origin("", (self.problems.span(instr.start, instr.end),))
        given = [self._argument(env, f, a) for f, a in zip(callee.params, instr.inputs, strict=True)]
        instance = self.instance(callee, tuple(None if isinstance(g, Node) else g for g in given))
        nodes = [g for g in given if isinstance(g, Node)]
        args = [a for a, g in zip(instr.inputs, given, strict=True) if isinstance(g, Node)]
        signature = self._signature(env, instance, args, nodes, instr)
        if callee.name.text in self.effects:
            nodes.append(env.take_state())
            signature = FunctionType((*signature.params, STATE), (*signature.results, STATE))
        called = env.b(CALL, *nodes, callee=instance.name, signature=signature)
        values = env.b.items(called)
        if callee.name.text in self.effects:
            env.state = values[-1]
        for out, value in zip(instr.outputs, values, strict=False):
            env.target(out, None)
            env.write(out, value)

    def _argument(self, env: Environment, formal: Formal, arg: Arg) -> Node | tuple[Number | str, ...]:
        """A tensor or scalar node, or the numbers of a literal."""
        if formal.kind == "tensor":
            return env.read(arg)
        items = arg.items if arg.items is not None else (arg,)
        values = [parse_literal(i.text) for i in items]
        if all(v is not None for v in values):
            return tuple(v for v in values if v is not None)
        bound = env.argument(arg, None)
        if bound.node is None:
            return bound.values
        dtype = formal.type.dtype
        return bound.node if dtype in (as_tensor(bound.node.type).dtype, ANY) else env.b(convert, bound.node, dtype=dtype)

    def _signature(self, env: Environment, instance: Instance, args: Sequence[Arg], nodes: Sequence[Node],
                   instr: Instr) -> FunctionType:
        """The callee's type with its symbols replaced by the dimensions of the arguments."""
        symbols: dict[str, Dim] = {}
        params: list[Type] = []
        for formal, arg, node in zip(instance.runtime(), args, nodes, strict=True):
            try:
                match_dims(formal.type, as_tensor(node.type), symbols)
                params.append(merge_types(instantiate(formal.type, symbols, instr.start), node.type))
            except InferError as e:
                env.fail(f"'{arg.text}' is {an(node.type)} where '{formal.name.text}' is {an(formal.type)}: {e.message}", arg,
                         expected=str(formal.type))
        results = tuple(instantiate(f.type, symbols, instr.start) for f in instance.text.results)
        return FunctionType(tuple(params), results)


def match_dims(formal: TensorType, actual: TensorType, symbols: dict[str, Dim]) -> None:
    """Find what the symbols of a parameter's type stand for in an argument's. Raises InferError when one stands for two sizes."""
    if formal.dims is None or actual.dims is None:
        return
    if len(formal.dims) != len(actual.dims):
        raise InferError("the ranks differ")
    for want, have in zip(formal.dims, actual.dims, strict=True):
        if not isinstance(want, str):
            continue
        known = symbols.setdefault(want, have)
        if not same_dim(known, have):
            raise InferError(f"'{want}' is {known} elsewhere and {have} here")
        if isinstance(known, str):
            symbols[want] = have


def instantiate(type: TensorType, symbols: Mapping[str, Dim], offset: int) -> TensorType:
    """The type with symbols replaced; one that no argument fixes becomes a symbol of this call."""
    if type.dims is None:
        return type
    return tensor(type.dtype, tuple(symbols.get(d, f"{d}@{offset}") if isinstance(d, str) else d for d in type.dims))


def _with_effects(functions: Mapping[str, FunctionText]) -> set[str]:
    """The functions that print, save or load, or call one that does."""
    callers: dict[str, set[str]] = {name: set() for name in functions}
    waiting: list[str] = []
    for name, f in functions.items():
        for instr in f.body:
            rule = rule_named(instr.op.text)
            if rule is None:
                callers[instr.op.text].add(name)
            elif rule.has_effect:
                waiting.append(name)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += callers[name]
    return found


# --- backward lines -----------------------------------------------------------------------------------------------


def run_backward(line: Line) -> None:
    """Lower a backward line, `op a(a_grad) b(b_grad) <- c(c_grad)`: the gradients of one line, added to the named gradient tensors.

    The line's forward expression is built again on the values that its operands have now, and pulled back from the gradient of its
    result. A gradient tensor that no line creates is an input, as any name is. Gradients accumulate (`+=`), each operand by its own
    term, so `mul t(g) t(g) <- ..` adds both. `name()` asks for none; where nothing is written after a name its gradient is
    `name.grad`, which must exist. The seed's forward-mode formulas are not used. Raises VerifyError for an op without gradient and
    for gradients that do not exist or do not fit.
    """
    if line.rule.make is None:
        line.fail(f"{line.instr.op.text} has no gradient", expected="'->'")
    out = line.result()
    result = line.rule.make(line, *line.operands())
    gradient = gradient_name(out)
    if result is None or gradient is None:
        line.fail(f"the gradient of '{out.text}' is not named", out, expected=f"{out.text}(name of its gradient)")
    if out.text in line.env.tensors:
        result = line.env.fitted(out, result, reshapes=line.rule.reshapes)
    cotangent = _gradient(line, gradient, result, is_named=out.grad is not None)
    found = pullback(line.b, [result], [cotangent], [node for _, node in line.read])
    line.b.origin = line.origin
    for (arg, node), term in zip(line.read, found, strict=True):
        name = gradient_name(arg)
        if name is None:
            continue
        if not as_tensor(node.type).dtype.is_differentiable:
            line.fail(f"'{arg.text}' is {an(node.type)}: only floats have gradients", arg)
        old = _gradient(line, name, node, is_named=arg.grad is not None)
        if term is not None:
            line.env.write(name, line.b(add, old, term))


def gradient_name(arg: Arg) -> Arg | None:
    """The operand naming the gradient of this one, its position that of the operand where it is not written; None for `name()`."""
    if arg.grad is None:
        return Arg(f"{arg.text}.grad", arg.start, arg.end)
    return arg.grad if arg.grad.text else None


def _gradient(line: Line, name: Arg, of: Node, *, is_named: bool) -> Node:
    """The gradient tensor as it is now, of the type of what it is the gradient of; an input if it is named and nobody makes it."""
    env = line.env
    if not is_named and name.text not in env.tensors and name.text not in env.gone and name.text not in env.created:
        env.fail(f"there is no gradient tensor '{name.text}'", name, expected="a tensor made before this line",
                 hint=env.nearest(name.text) or "name the gradient, as in t(t_grad): then it may be an input")
    node = env.read(name)
    if of.type != node.type:
        try:
            return env.refine(name, as_tensor(of.type))
        except VerifyError:
            env.fail(f"'{name.text}' is {an(node.type)}, the gradient of {an(of.type)}", name, expected=str(of.type))
    return node
