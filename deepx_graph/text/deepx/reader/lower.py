"""From instructions to a module: straight-line programs, and functions that call each other.

A program is lowered again when the first reading found parameters or loaded files, with what it learned of them, so that they
come in order and with the types that all lines together give them. Errors of all lines are collected; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.errors import Diagnostic, LimitError, ParseError, VerifyError, an, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ops import add
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.deepx.reader.environment import Environment, ReadingFacts
from deepx_graph.text.deepx.reader.instr import Arg, Instr, Problems
from deepx_graph.text.deepx.reader.line import Line
from deepx_graph.text.deepx.reader.rules import known_names, rule_named
from deepx_graph.types import TensorType

MAX_READINGS = 4
"""How often a program is lowered again before what is known of its parameters is taken as it is."""

Fallback = Callable[[Environment, Instr], None]


def check(problems: Problems, body: Sequence[Instr], functions: Sequence[str] = ()) -> None:
    """Note unknown operations and missing arrows, before anything is lowered."""
    for instr in body:
        if problems.is_full:
            return
        rule = rule_named(instr.op.text)
        if rule is None and instr.op.text not in functions:
            hint = suggest(instr.op.text, [*known_names(), *functions])
            problems.errors += problems.parse_error(f"unknown operation '{instr.op.text}'", instr.op.start, instr.op.end,
                                                    expected=None if hint else "an operation of deepx", hint=hint).diagnostics
        elif not instr.has_arrow and (rule is None or rule.needs_arrow):
            problems.errors += problems.parse_error("the arrow '->' is missing", max(instr.start, instr.end - 1), instr.end,
                                                    expected="-> and what is written").diagnostics


def check_size(body_sizes: int, options: ReadOptions) -> None:
    """Raises LimitError for more instructions than nodes are allowed."""
    if body_sizes > options.max_nodes:
        raise LimitError(Diagnostic(f"{body_sizes} instructions, more than {options.max_nodes} nodes", hint="raise --max-nodes"))


def finish(problems: Problems, error: type[ParseError] | type[VerifyError]) -> None:
    """Raise what was noted, in the order of the text."""
    if problems.errors:
        raise error(*sorted(problems.errors, key=lambda d: d.span.start if d.span else -1))


def created_names(body: Sequence[Instr]) -> dict[str, int]:
    """The names that instructions create, with the place where each is first created."""
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
    names, results = _named_results(env)
    main = Function("main", tuple(env.param_nodes), results, names)
    return Module((main,), "main", problems.source, "deepx")


def _named_results(env: Environment) -> tuple[tuple[str, ...], tuple[Node, ...]]:
    outputs = env.outputs()
    if env.state is not None:
        outputs.append(("state", env.state))
    return tuple(n for n, _ in outputs), tuple(node for _, node in outputs)


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
        assert isinstance(node.type, TensorType)
        if not node.type.dtype.is_differentiable:
            line.fail(f"'{arg.text}' is {an(node.type)}: only floats have gradients", arg)
        old = _gradient(line, name, node, is_named=arg.grad is not None)
        if term is not None:
            line.env.write(name, line.b(add, old, term))


def gradient_name(arg: Arg) -> Arg | None:
    """The operand naming the gradient of this one, its place that of the operand where it is not written; None for `name()`."""
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
        assert isinstance(of.type, TensorType)
        try:
            return env.refine(name, of.type)
        except VerifyError:
            span = env.problems.span(name.start, max(name.end, name.start + 1))
            message = f"'{name.text}' is {an(node.type)}, the gradient of {an(of.type)}"
            raise VerifyError(Diagnostic(message, span, str(of.type))) from None
    return node
