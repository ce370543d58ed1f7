"""`op a(a_grad) b(b_grad) <- c(c_grad)`: the gradients of one line, added to the named gradient tensors.

The line's forward expression is built again on the values that its operands have now, and pulled back from the gradient of its
result. A gradient tensor that no line creates is an input, as any name is. Gradients accumulate (`+=`), each operand by its own
term, so `mul t(g) t(g) <- ..` adds both. `name()` asks for none; where nothing is written after a name its gradient is `name.grad`,
which must exist. The seed's forward-mode formulas are not used.
"""

from __future__ import annotations

from deepx_graph.errors import Diagnostic, VerifyError, an
from deepx_graph.ir import Node
from deepx_graph.ops import add
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.text.deepx.reader.instr import Arg
from deepx_graph.text.deepx.reader.line import Line
from deepx_graph.types import TensorType


def run_backward(line: Line) -> None:
    """Lower a backward line. Raises VerifyError for an op without gradient and for gradients that do not exist or do not fit."""
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
