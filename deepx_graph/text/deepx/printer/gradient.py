"""A gradient program as lines with `<-`: the program itself in dialect A, then its lines again, backwards.

What can be said so: one function of tensors of known shape without effects, whose lines on the way of a derivative have gradients
in deepx. The text is read again, and given only when that takes and gives what the gradient program does, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Function, Module, Node
from deepx_graph.rewrite.legalise import Legaliser
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.deepx import read
from deepx_graph.text.deepx.printer.forms import Argument, Instruction, Number, Seed, Tensor
from deepx_graph.text.deepx.printer.function import FunctionWriter, Pool
from deepx_graph.text.deepx.printer.module import TARGET, straight_line
from deepx_graph.text.deepx.reader.rules import rule_named
from deepx_graph.types import TensorType, Type, as_tensor


def write_backward(module: Module, gradient: Module) -> str | None:
    """The gradient program of a module, `gradient`, in lines with `<-`; None where it cannot be said so.

    `gradient` takes the inputs of the module's entry and a cotangent of each output with a derivative, in that order.
    """
    entry, wanted = module.entry, gradient.entry
    types = [n.type for f in (entry, wanted) for n in (*f.params, *f.results)]
    scalars = any(r.type.dims == () for r in wanted.results if isinstance(r.type, TensorType))  # arguments have no gradients
    if len(module.functions) > 1 or scalars or not all(isinstance(t, TensorType) and t.is_static for t in types):
        return None
    try:
        text = _Backward(Legaliser(TARGET).function(entry), wanted).text()
        return text if text is not None and _reads_as(text, wanted) else None
    except DeepxGraphError:
        return None


def _reads_as(text: str, wanted: Function) -> bool:
    """Whether the text is a function of the same inputs and outputs."""
    found = read(Source("gradient", text), ReadOptions()).module.entry

    def signature(f: Function) -> list[tuple[str, Type]]:
        return [(p.name, p.type) for p in f.params] + [(f.result_name(k), r.type) for k, r in enumerate(f.results)]

    return signature(found) == signature(wanted)


class _Backward:
    """The lines of one program."""

    def __init__(self, entry: Function, wanted: Function) -> None:
        self.entry, self.wanted = entry, wanted
        pool = Pool()
        pool.taken |= {p.name for p in wanted.params} | {wanted.result_name(k) for k in range(len(wanted.results))}
        pool.taken -= {p.name for p in entry.params}
        self.w = FunctionWriter(entry, Seed(pool.series("a"), pool.series("v")), pool, {})
        self.gradients: dict[str, Tensor] = {}

    def text(self) -> str | None:
        """All lines; None when one on the way has no gradient, or a tensor is written twice."""
        w, count = self.w, len(self.entry.params)
        outs = straight_line(w)
        forward = list(w.made)
        written = [t.name for i in forward if i.op != "newtensor" for t in i.results]
        if len(set(written)) < len(written):
            return None
        cotangents = [self._cotangent(p) for p in self.wanted.params[count:]]
        ends = [out for _, out in outs if out.type.dtype.is_differentiable]
        results = [Tensor(self.wanted.result_name(k), r.type) for k, r in enumerate(self.wanted.results)]  # type: ignore[arg-type]
        starts = [r.name.removeprefix("grad_") for r in results]
        active = _active(forward, starts, [out.name for out in ends])
        for name, result in zip(starts, results, strict=True):
            self._zero(name, result)
        for instruction in forward:
            for t in instruction.results:
                if t.name in active and t.name not in self.gradients:
                    self._zero(t.name, Tensor(w.name_for(f"{t.name}_grad", "g"), t.type))
        for out, given in zip(ends, cotangents, strict=True):
            if out.name in self.gradients:
                self._start(self.gradients[out.name], given)
        for instruction in reversed(forward):
            if any(t.name in active for t in instruction.results) and not self._backwards(instruction, active):
                return None
        kept = {r.name for r in results}
        made = dict.fromkeys(t.name for i in w.made for t in i.results if i.op == "newtensor")
        lines = [line for i in w.made for line in w.form.lines(i)]
        return "\n".join([*lines, *(f"deltensor {name}" for name in made if name not in kept)]) + "\n"

    def _cotangent(self, param: Node) -> Tensor | Argument:
        type = as_tensor(param.type)
        value = (Tensor if type.dims else Argument)(param.name, type)
        self.w.declare(value, param)
        return value

    def _zero(self, name: str, gradient: Tensor) -> None:
        """Makes the gradient of a tensor."""
        self.gradients[name] = gradient
        self.w.create(gradient, self.entry.results[0])
        self.w.emit("constant", Number("0", gradient.type.dtype), into=gradient)

    def _start(self, gradient: Tensor, given: Tensor | Argument) -> None:
        """Adds what is given for an output to its gradient; several outputs may be one tensor."""
        if isinstance(given, Argument):
            given = self.w.apply("constant", gradient.type, given)
        self.w.emit("add", gradient, given, into=gradient)

    def _backwards(self, i: Instruction, active: set[str]) -> bool:
        """The line with its arrow turned; whether there is such a line."""
        rule = rule_named(i.op)
        operands = [t for t in i.reads if isinstance(t, Tensor)]
        if i.op == "newtensor" or not any(t.name in active for t in operands):
            return True
        if rule is None or rule.make is None or len(i.results) != 1:
            return False
        names = {t.name: self.gradients[t.name].name if t.name in active else "" for t in (*operands, *i.results)}
        self.w.made.append(i._replace(gradients=tuple(names.items())))
        return True


def _active(forward: Sequence[Instruction], starts: Sequence[str], ends: Sequence[str]) -> set[str]:
    """The tensors through which a derivative goes from a start to an end."""
    reached, needed = set(starts), set(ends)
    steps = [(i, [t.name for t in i.reads if isinstance(t, Tensor)]) for i in forward if i.op != "newtensor"]
    for i, names in steps:
        reached |= {t.name for t in i.results if t.type.dtype.is_differentiable and not reached.isdisjoint(names)}
    for i, names in reversed(steps):
        if any(t.name in needed and t.name in reached for t in i.results):
            needed |= set(names)
    return reached & needed
