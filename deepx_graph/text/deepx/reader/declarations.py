"""deepx instructions that do not compute: they make, rename and delete names, set arguments, and touch the outside world."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from contextlib import suppress

from deepx_graph.errors import RunError
from deepx_graph.ir import Node, Op
from deepx_graph.ops import load, print_, save
from deepx_graph.ops.host.host import Host
from deepx_graph.text.deepx.reader.environment import Bound
from deepx_graph.text.deepx.reader.instr import Arg, Instr, Number, parse_literal, parse_number
from deepx_graph.text.deepx.reader.line import Line, Scalar
from deepx_graph.text.deepx.reader.values import default_dtype, number, zeros
from deepx_graph.types import ANY, F64, I64, Dim, Dims, DType, TensorType, as_tensor, tensor

MAX_BYTES = 1 << 62
"""What the bytes of a tensor must stay below to be counted in 64 bits at all; a run has bounds of its own."""


# --- tensors ------------------------------------------------------------------------------------------------------


def created_outputs(instr: Instr) -> Sequence[Arg]:
    """The names that an instruction writing new names makes."""
    return instr.outputs


def created_by_load(instr: Instr) -> Sequence[Arg]:
    """The tensor that `load` makes: named after the file, its name cut at the last dot."""
    return [_loaded_name(instr.inputs[0])] if instr.inputs else []


def created_by_rename(instr: Instr) -> Sequence[Arg]:
    """The new name."""
    return instr.inputs[:1]


def new_tensor(line: Line) -> None:
    """A tensor of zeros whose shape is the vector."""
    shape, stated = line.operands()
    out = line.only_output("makes 1 tensor")
    if parse_number(out.text) is not None and not out.category:
        line.fail(f"'{out.text}' is a number", out, expected="the name of the new tensor")
    type = tensor(default_dtype(line, stated or out.dtype), _checked_shape(line, shape))
    if type.is_static and math.prod(max(d, 1) for d in type.shape) * type.dtype.itemsize >= MAX_BYTES:
        line.fail(f"a tensor of {math.prod(type.shape)} elements", line.inputs[0], expected=f"less than {MAX_BYTES} bytes")
    line.env.create(out, zeros(line, type))


def _checked_shape(line: Line, shape: Sequence[Dim]) -> Dims:
    if len(shape) > line.options.max_rank:
        line.fail(f"a tensor of rank {len(shape)}", line.inputs[0], expected=f"at most {line.options.max_rank} dimensions")
    for d in shape:
        if isinstance(d, int) and d < 0:
            line.fail(f"a dimension of size {d}", line.inputs[0], expected="sizes of 0 or more")
    return tuple(shape)


def clone_tensor(line: Line) -> None:
    """A new name for the value of a tensor."""
    (x,) = line.operands()
    line.env.create(line.only_output("makes 1 tensor"), x)


def delete(line: Line) -> None:
    """Names of tensors or arguments stand for nothing from here on. One that never stood for anything is only warned about."""
    names = {arg.text: arg for arg in (*line.instr.inputs, *line.instr.outputs) if arg.text}
    if not names:
        line.fail(f"{line.instr.op.text} names nothing", expected=f"{line.instr.op.text} name")
    for arg in names.values():
        if not line.env.remove(arg, "deleted"):
            why = "is deleted already" if arg.text in line.env.gone else "was never created"
            line.env.problems.warn(f"'{arg.text}' {why}", arg.start, arg.end, hint=line.env.nearest(arg.text))


def rename_tensor(line: Line) -> None:
    """The tensor that is written gets the name that is read."""
    line.operands()
    old, new = line.only_output("renames 1 tensor", "(new name) -> (tensor)"), line.inputs[0]
    if not new.text:
        line.fail("the new name is empty", new, expected="a name")
    line.env.read(old)
    line.env.rename(old, new)


# --- arguments ----------------------------------------------------------------------------------------------------


def set_argument(line: Line) -> None:
    """A name for one number or several. After a word that is no number, the name stands for the numbers there are."""
    out = line.only_output("sets 1 name", "numbers -> name")
    tags = [line.instr.dtype, *(a.dtype for a in (*line.outputs, *line.inputs))]
    dtype = next((t for t in tags if t is not None and t is not ANY), None)
    items = [i for a in line.inputs for i in (a.items if a.items is not None else (a,))]
    values = [(i, parse_literal(i.text)) for i in items]
    line.env.arguments[out.text] = Bound(tuple(_as(dtype, v) for _, v in values if v is not None), dtype)
    line.env.gone.pop(out.text, None)
    for item, value in values:
        if value is None:
            line.fail(f"'{item.text}' is not a number", item, expected=f"numbers to set '{out.text}' to")
    if not values and not line.inputs:
        line.fail(f"nothing to set '{out.text}' to", expected="numbers -> name")


def _as(dtype: DType | None, value: Number) -> Number:
    is_fraction = dtype is not None and dtype.is_integer and isinstance(value, float) and math.isfinite(value)
    return int(value) if is_fraction else value


# --- effects ------------------------------------------------------------------------------------------------------


def print_tensor(line: Line) -> None:
    """Write a tensor out; the format may be missing or empty."""
    x, format = line.operands()
    if isinstance(x, Scalar):
        bound = line.env.arguments.get(x.arg.text, Bound())
        x = number(line, x, bound.dtype or (I64 if x.node is None and isinstance(x.value, int) else F64))
    _effect(line, print_, x, format=format or "")


def save_tensor(line: Line) -> None:
    """Write a tensor to files."""
    x, path = line.operands()
    line.env.saved[path] = as_tensor(x.type)
    _effect(line, save, x, path=path)


def _effect(line: Line, op: Op, *operands: Node, **attrs: str) -> None:
    if line.outputs:
        line.fail(f"{line.instr.op.text} writes nothing", line.outputs[0], expected="-> ()")
    line.env.state = line.b(op, line.env.take_state(), *operands, **attrs)


def load_tensor(line: Line) -> None:
    """A tensor from files, under the name of the file; it replaces one of that name."""
    (path,) = line.operands()
    name = _loaded_name(line.inputs[0])
    if line.outputs:
        line.fail("load writes nothing: the tensor is named after the file", line.outputs[0], expected="-> ()")
    if not name.text:
        line.fail(f"'{path}' names no file", line.inputs[0], expected="a path")
    key = line.instr.start
    type = line.env.saved.get(path) or line.env.loads.get(key) or _stored_type(line, path)
    slot = line.env.create(name, _loaded(line, path, type), may_exist=True)
    if path not in line.env.saved:
        line.env.loads[key], slot.fact = type, key


def _stored_type(line: Line, path: str) -> TensorType:
    """The type in the `.shape` file, where reading may look for one; what stays unknown is found out by running."""
    if line.options.data_root is not None:
        with suppress(RunError):
            return Host(line.options.data_root).type_of(path)
    return tensor(ANY, None)


def _loaded(line: Line, path: str, type: TensorType) -> Node:
    both = line.b(load, line.env.take_state(), path=path, type=type)
    value, line.env.state = line.b.items(both)
    return value


def _loaded_name(arg: Arg) -> Arg:
    base = posixpath.basename(arg.text)
    return arg._replace(text=base.rpartition(".")[0] or base, category="tensor", dtype=None)


def load_data(line: Line) -> None:
    """The raw elements of a file into an existing tensor; its `.shape` file must stand beside it and agree."""
    (path,) = line.operands()
    out = line.result()
    if not path.endswith(".data"):
        line.fail(f"'{path}' is not a .data file", line.inputs[0], expected="a path ending in .data, beside its .shape file")
    line.env.write(out, _loaded(line, path.removesuffix(".data"), line.known_target()))
