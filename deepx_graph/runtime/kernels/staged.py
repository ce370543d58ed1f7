"""Steps as functions of Python: nothing is left between numpy's calls.

The same steps are written in two ways: each gives a value of its own, which small tensors can afford, or each fills memory that is
there. What numpy would do to single elements Python's own operators do, on numpy's scalars: a tenth of the time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import copysign
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.lower import lower
from deepx_graph.runtime.kernels.machine import in_machine
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Register, Step, lives
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.runtime.python_code import PythonFunction
from deepx_graph.types import as_tensor

Staged = Callable[..., Any]
Names = dict[int, str]


def larger(x: Any, y: Any) -> Any:
    """The maximum of two scalars; what is no number, where one is none, and +0.0 of two zeros."""
    return x if x > y or x != x or (x == y and copysign(1, y) < 0) else y


def smaller(x: Any, y: Any) -> Any:
    """The minimum."""
    return x if x < y or x != x or (x == y and copysign(1, x) < 0) else y


SCALAR_CALLS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "mul": operator.mul, "sub": operator.sub, "neg": operator.neg, "abs": operator.abs,
    "div": operator.truediv, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "max": larger, "min": smaller, "where": lambda condition, x, y: x if condition else y,
}  # fmt: skip
"""Python's own operators, which give for numpy's scalars the very bits of the ufunc."""


def write(out: PythonFunction, steps: Sequence[Step], program: KernelProgram, names: Names, kept: Collection[int] = (),
          of_scalars: Mapping[str, Staged] = SCALAR_CALLS, rows: str | None = None) -> int:
    """The statements of steps, whose sources have names: targets that have one are filled, others become values, of which those are
    `kept`. Gives the most bytes of temporaries; those of a block of so many `rows` come from the pool of memory.

    What ends with a step is written over by it, where that may be; else its name is given to another value, which frees its memory.
    """
    registers, last, free, most = program.registers, lives(steps), list[str](), dict[str, int]()
    views = {s.target for s in steps if s.is_view}
    for at, step in enumerate(steps):
        sources, target = [names[s] for s in step.sources], registers[step.target]
        ended = [s for s in dict.fromkeys(step.sources) if last[s] == at and names[s] in most]
        if step.target in names:
            out.call(None, step.call.into, *sources, names[step.target])
        elif step.target in kept:
            names[step.target] = f"r{step.target}"
            out.call(names[step.target], _value(step, program, of_scalars), *sources)
        else:
            over = next((s for s in ended if step.in_place and target.shape and registers[s] == target and s not in views), None)
            if over is not None:
                ended.remove(over)
                names[step.target] = names[over]
                out.call(None, step.call.into, *sources, names[over])
            else:
                names[step.target] = name = free.pop() if free else f"t{len(most)}"
                most[name] = max(most.get(name, 0), 0 if step.is_view else target.nbytes)
                if rows is None or step.is_view:
                    out.call(name, _value(step, program, of_scalars), *sources)
                else:
                    out.call(name, partial(_memory, target), rows)
                    out.call(None, step.call.into, *sources, name)
        free += [names[s] for s in ended]
    return sum(most.values())


def within(steps: Sequence[Step], program: KernelProgram, results: Sequence[int]) -> dict[int, int]:
    """The values that may lie in the memory of a result from where they are computed, each with that result: what the result is
    made of in place. Blocks of a result that is cut along another axis than its first do not lie in order."""
    registers, last, made = program.registers, lives(steps), {s.target: at for at, s in enumerate(steps) if not s.is_view}
    found: dict[int, int] = {}
    for result in (r for r in results if registers[r].shape and not registers[r].cut):
        value: int | None = result
        while value is not None and steps[at := made[value]].in_place:
            value = next((s for s in steps[at].sources if s in made and s not in found and s not in results
                          and last[s] == at and registers[s] == registers[result]), None)
            if value is not None:
                found[value] = result
    return found


def _memory(register: Register, rows: int) -> Array:
    return RESULTS.empty(register.block(rows), register.dtype)


def _value(step: Step, program: KernelProgram, of_scalars: Mapping[str, Staged]) -> Staged:
    """A step as a function that gives its value."""
    registers = [program.registers[r] for r in (*step.sources, step.target)]
    if step.primitive in of_scalars and all(r.shape == () and r.dtype in lower_primitives.ALL for r in registers):
        return of_scalars[step.primitive]
    return step.call.value


def begun(program: KernelProgram, given: Sequence[int], *first: str) -> tuple[PythonFunction, Names]:
    """A function that is given registers, and the names of these and of constants."""
    out = PythonFunction([*first, *(f"v{r}" for r in given)])
    return out, {r: out.bind(array[()]) for r, array in program.constants.items()} | {r: f"v{r}" for r in given}


def staged_function(function: Function, of_scalars: Mapping[str, Staged] = SCALAR_CALLS) -> Staged:
    """A function of small tensors, whose results are values of their own; `of_scalars` are functions for primitives of single
    elements. Raises Declined (see `lower`)."""
    program = lower(function)
    program = in_machine(program) or program
    first, shapes = program.steps[0], [program.registers[r].shape for r in program.results]
    if len(program.steps) == 1 and first.sources == program.params and program.result_shapes == (*shapes,):
        return _value(first, program, of_scalars)
    out, names = begun(program, program.params)
    write(out, program.steps, program, names, program.results, of_scalars)
    for r, held, shape in zip(program.results, shapes, program.result_shapes, strict=True):
        if shape != held:
            out.call(names[r], methodcaller("reshape", shape), names[r])
    out.give([names[r] for r in program.results], one=len(program.results) == 1)
    return out.finished()


def reduction_function(node: Node) -> Staged:
    """A `reduce` by any body of elementwise operations: neighbouring pairs are combined, all of them at once, until one is left; by
    a ufunc that does not round at once; the greatest or least element with its position by numpy's search.

    Raises Declined for another body, and for one that numpy reduces by.
    """
    body, gone = node.attr("body"), node.attr("dimensions")
    first, monoid = as_tensor(node.inputs[0].type), None if body.reducer is None else body.reducer.monoid
    if isinstance(monoid, UfuncMonoid) and not monoid.rounds and first.dtype.np in lower_primitives.ALL and 0 not in first.shape:
        function, axes = monoid.function, tuple(gone)
        return lambda x, init: np.asarray(function(np.asarray(function.reduce(x, axis=axes)), init))
    if monoid is not None:
        raise Declined("numpy's own reduction")
    if any(not n.op.elementwise and n.op not in (PARAM, CONSTANT) for n in body.nodes):
        raise Declined("not elementwise")
    count = len(node.inputs) // 2
    rest = [k for k in range(len(first.shape)) if k not in gone]
    order, shape = (*gone, *rest), (-1, *(first.shape[k] for k in rest))
    if 0 in first.shape or any(r.op in (CONSTANT, PARAM) for r in body.results):
        raise Declined("nothing to combine")
    combine = staged_function(body, {})
    search = _search_of(lower(body), combine)
    at_once = None if search is None else _searched(search, combine, shape[1:])

    def run(*values: Any) -> Any:
        if at_once is not None:
            last = (x.transpose(*rest, *gone).reshape(*shape[1:], -1) for x in values[:count])
            if (found := at_once(*last, *values[count:])) is not None:
                return found
        rows = [x.transpose(order).reshape(shape) for x in values[:count]]
        while (size := len(rows[0])) > 1:
            even = size // 2 * 2
            new = combine(*(x[0:even:2] for x in rows), *(x[1:even:2] for x in rows))
            if count == 1:
                new = (new,)
            rows = list(new) if even == size else [np.concatenate((y, x[even:])) for y, x in zip(new, rows, strict=True)]
        return combine(*(np.full(x.shape[1:], v) for v, x in zip(values[count:], rows, strict=True)), *(x[0] for x in rows))

    return run


# --- the greatest or least element, and its position

_LOGIC = frozenset(("and", "or", "xor", "not", "where"))


def _search_of(program: KernelProgram, combine: Callable[..., Any]) -> Callable[..., Any] | None:
    """`np.argmax` or `np.argmin`, where a body of (value, position, value, position) keeps what this finds; else None. Of two zeros
    it may keep the position of the one and the sign of the other. As it keeps one of two elements by comparisons alone, all that it
    can do is seen at an example of each order that two numbers may have."""
    dtypes = [program.registers[p].dtype for p in program.params]
    if len(dtypes) != 4 or len(program.results) != 2 or dtypes[0].kind not in "iuf" or dtypes[1].kind not in "iu" or not all(
            _decides(program, s.primitive, s.sources) for s in program.steps):
        return None
    numbers = np.array([1, 2, *((np.nan,) if dtypes[0].kind == "f" else ())], dtypes[0])
    pair = np.stack([g.ravel() for g in np.meshgrid(numbers, numbers)])
    first, second = (np.full(pair.shape[1], k, dtypes[1]) for k in range(2))
    value, position = combine(pair[0], first, pair[1], second)
    for search in (np.argmax, np.argmin):
        kept = np.where(position == 0, *pair)
        if np.array_equal(position, search(pair, 0)) and np.array_equal(value, kept, equal_nan=dtypes[0].kind == "f"):
            return search
    return None


def _decides(program: KernelProgram, primitive: str, sources: Sequence[int]) -> bool:
    """Whether a step compares two values, or two positions, or chooses by what is known of such comparisons."""
    compared = {program.params.index(s) % 2 if s in program.params else None for s in sources}
    if primitive in lower_primitives.PREDICATES and compared in ({0}, {1}):
        return True
    logical = sources[:1] if primitive == "where" else sources
    return primitive in lower_primitives.PREDICATES | _LOGIC and all(program.registers[s].dtype == np.bool_ for s in logical)


def _searched(search: Callable[..., Any], combine: Callable[..., Any], shape: Sequence[int]) -> Callable[..., Any]:
    """What gives the value and the position that are kept in each row of arrays of that shape and of one more axis, at last beside
    the initial ones; None where positions do not ascend, and for float zeros, of whose signs the search knows nothing."""
    rows = np.indices(shape, sparse=True)

    def run(values: Array, positions: Array, *inits: Any) -> Any:
        if not (positions[..., 1:] > positions[..., :-1]).all():
            return None
        at = (*rows, search(values, -1))
        kept = values[at]
        return combine(*inits, kept, positions[at]) if values.dtype.kind != "f" or kept.all() else None

    return run
