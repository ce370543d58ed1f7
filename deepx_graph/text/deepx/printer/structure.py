"""Writing what is not an operation on tensors: constants, tuples, calls and effects; the same table, `STRUCTURE`.

Each function gives the value that the node has from then on (see `print_function`); a state has the value None, as it is only the
order of instructions.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import CALL, CONSTANT, PROJ, TUPLE, index_of, value_of
from deepx_graph.ops import load, module_seed, print_, save
from deepx_graph.text.deepx.printer.forms import Instruction, Tensor, Text, Vector
from deepx_graph.types import FunctionType, TensorType, is_state

if TYPE_CHECKING:
    from deepx_graph.text.deepx.printer.function import FunctionWriter

Write = Callable[["FunctionWriter", Node], Any]


def _item(w: FunctionWriter, node: Node) -> Any:
    whole = w.values[node.inputs[0]]
    return whole[index_of(node)] if type(whole) is tuple else w.broken(node)


def _call(w: FunctionWriter, node: Node) -> Any:
    callee, signature = node.attrs
    if not w.form.has_functions:
        w.fail(node, f"dialect '{w.form.name}' has no calls", hint="inline it first, or write dialect 'function'")
    assert isinstance(signature, FunctionType)
    args = [w.tensor(i, (1,) if i.type.dims == () else None) for i in node.inputs if isinstance(i.type, TensorType)]
    args = [w.apply("reshape", a.type.with_dims((1,)), a, Vector((1,))) if a.type.dims == () else a for a in args]
    if len(args) + sum(is_state(i.type) for i in node.inputs) < len(node.inputs):
        w.fail(node, "deepx passes tensors only")
    outs = [None if is_state(t) else _item_target(w, node, k, t) for k, t in enumerate(signature.results)]
    w.made.append(Instruction(w.names[callee], tuple(args), tuple(o for o in outs if o is not None)))
    return tuple(outs)


def _item_target(w: FunctionWriter, node: Node, index: int, type: Any) -> Tensor:
    out = w.item_targets.get((node, index))
    if out is None:
        if not isinstance(type, TensorType):
            w.fail(node, f"deepx has no values of type {type}")
        out = Tensor(w.name_for(""), type)
        w.create(out, node)
    return out


# --- effects ------------------------------------------------------------------------------------------------------


def _text(w: FunctionWriter, node: Node, text: str) -> Text:
    if not w.form.legal_text.fullmatch(text):
        w.fail(node, f"dialect '{w.form.name}' cannot hold the text '{text}'",
               expected="no comma, bracket, arrow or //" if w.form.name == "wire" else "one plain word")
    return Text(text)


def _print(w: FunctionWriter, node: Node) -> None:
    """The format is left out where it is what it would be without, and the dialect cannot hold it."""
    x, format = w.tensor(node.inputs[1]), node.attr("format")
    is_default = format == ("%.4f" if x.type.dtype.is_float else "%d") and x.type.dtype.kind != "any"
    can_omit = not format or (is_default and not w.form.legal_text.fullmatch(format))
    w.made.append(Instruction("print", (x,) if can_omit else (x, _text(w, node, format))))


def _save(w: FunctionWriter, node: Node) -> None:
    w.made.append(Instruction("save", (w.tensor(node.inputs[1]), _text(w, node, node.attr("path")))))


def loaded_name(path: str) -> str:
    """The name that `load` gives: that of the file, cut at its last dot."""
    base = posixpath.basename(path)
    return base.rpartition(".")[0] or base


def _load(w: FunctionWriter, node: Node) -> Any:
    """`load` names the tensor after the file, so it is renamed at once; then its type is stated."""
    path, type = node.attrs
    name = loaded_name(path)
    if not w.form.accepts_name(name):
        w.fail(node, f"deepx would name what it loads '{name}'", expected="a path that ends in a plain name")
    if type.dtype.np is not None:
        w.word(type.dtype, node)
    made = Tensor(name, type)
    out = w.item_targets.get((node, 0), made)
    w.made.append(Instruction("load", (_text(w, node, path),)))
    if out.name != name or w.item_targets.get((node, 0)) is None:
        out = Tensor(w.name_for(""), type)
        w.made.append(Instruction("renametensor", (Text(out.name),), (made,)))
    w.declare(out, node)
    return (out, None)


STRUCTURE: dict[Op, Write] = {
    CONSTANT: lambda w, node: value_of(node), TUPLE: lambda w, node: tuple(w.values[i] for i in node.inputs), PROJ: _item,
    CALL: _call, print_: _print, save: _save, load: _load, module_seed: lambda w, node: None,
}  # fmt: skip
