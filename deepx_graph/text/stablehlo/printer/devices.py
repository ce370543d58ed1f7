"""How operations that act on the state are written in StableHLO, but for those of the dialect's table: probes, custom calls.

The state is a token where an operation takes one, and has no text elsewhere. The table is joined to that of `ops`.
"""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Module, Node, Op
from deepx_graph.ir.structure import PARTIAL, callee_of
from deepx_graph.text.xla.hlo_text import present
from deepx_graph.text.xla.mlir_text import NoText, string_text
from deepx_graph.text.xla.rows import GenericForm

TOKENS = frozenset((ops.infeed, ops.outfeed, ops.send, ops.recv))
"""Operations that take a token as their last operand and give one as their last result."""


def has_tokens(module: Module) -> bool:
    """Whether the text of the module needs tokens."""
    return any(n.op in TOKENS for f in module.functions for n in f.nodes)


def _print(n: Node) -> GenericForm:
    if n.attr("format"):
        raise NoText("StableHLO has no print with a format")
    return GenericForm("interpreter.print")


def _expect_probed(n: Node) -> GenericForm:
    given = f"iter = {n.attr('iteration')} : i32, probe_id = {string_text(n.attr('probe_id'))}"
    return GenericForm("check.expect_serialized_eq", given)


def _custom_call(n: Node) -> GenericForm:
    """A custom call by what is known of it."""
    version, config = n.attr("api_version"), n.attr("backend_config")
    said = config if version == 4 and config.startswith("{") else string_text(config)  # a dictionary is one in MLIR too
    return GenericForm("stablehlo.custom_call", present(
        f"api_version = {version} : i32" if version else "", f"backend_config = {said}" if config else "",
        f"call_target_name = {string_text(n.attr('target'))}", f"has_side_effect = {str(n.op is ops.custom_effect).lower()}"))


def programs(n: Node, symbols: dict[str, str]) -> str:
    """The attribute `programs` of a run_parallel."""
    given = n.op.named(n.inputs, n.attrs)
    if given["infeed"] or any(p.op is not PARTIAL or p.inputs for p in given["programs"]):
        raise NoText("StableHLO's run_parallel names functions, and is fed by functions")
    names = [f"@{symbols[callee_of(p)]}" for p in given["programs"]]
    width: int = n.attr("partitions")
    rows = ", ".join(f"[{', '.join(names[k : k + width])}]" for k in range(0, len(names), width))
    return f"programs = [{rows}]"


DEVICES: dict[Op, Callable[[Node], GenericForm]] = {
    ops.print_: _print, ops.expect_probed: _expect_probed, **dict.fromkeys((ops.custom_call, ops.custom_effect), _custom_call),
}  # fmt: skip
"""Operations with how they are written."""
