"""How operations that act on the state are written in StableHLO: collectives, feeds, channels, custom calls.

The state is a token where an operation takes one, and has no text elsewhere. The table is joined to that of `printer_ops`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Function, Module, Node, Op
from deepx_graph.ir.structure import PARTIAL
from deepx_graph.text.stablehlo.printer.values import NoText

TOKENS = frozenset((ops.infeed, ops.outfeed, ops.send, ops.recv))
"""Operations that take a token as their last operand and give one as their last result."""


def has_tokens(module: Module) -> bool:
    """Whether the text of the module needs tokens."""
    return any(n.op in TOKENS for f in module.functions for n in f.nodes)


def groups_text(name: str, groups: tuple[tuple[int, ...], ...]) -> str:
    """`name = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>`."""
    width = max(map(len, groups), default=0)
    rows = ", ".join(f"[{', '.join(map(str, [*g, *[-1] * (width - len(g))]))}]" for g in groups)
    return f"{name} = dense<{f'[{rows}]' if rows else ''}> : tensor<{len(groups)}x{width}xi64>"


def _channel(n: Node, type: int = 1) -> str:
    number = n.attr("channel_id")
    return f"channel_handle = #stablehlo.channel_handle<handle = {number}, type = {type}>" if number else ""


def _joined(*parts: str) -> str:
    return ", ".join(p for p in parts if p)


Parts = tuple[str, str, tuple[Function, ...]]
"""The operation's name, its attributes as text and the functions that become its regions."""

Rule = Callable[[Node], Parts]


def _collective(op: Op, *numbers: str, flag: str = "use_global_device_ids") -> Rule:
    names = set(op.attr_index)

    def rule(n: Node) -> Parts:
        groups = "source_target_pairs" if "source_target_pairs" in names else "replica_groups"
        shown = [f"{k} = {n.attr(k)} : i64" for k in numbers] + [groups_text(groups, n.attr(groups))]
        set_ = flag if flag in names and n.attr(flag) else ""
        bodies = (n.attr("computation"),) if "computation" in names else ()
        return f"stablehlo.{op.name}", _joined(_channel(n), *shown, set_), bodies

    return rule


def _all_to_all(n: Node) -> Parts:
    if n.attr("split_dimension") < 0:
        raise NoText("StableHLO's all_to_all splits one operand and does not take one for each device")
    return _collective(ops.all_to_all, "concat_dimension", "split_count", "split_dimension")(n)


def _feed(name: str) -> Rule:
    return lambda n: (f"stablehlo.{name}", f"{name}_config = {json.dumps(n.attr(f'{name}_config'))}", ())


def _transfer(name: str, host: int) -> Rule:
    def rule(n: Node) -> Parts:
        is_host: bool = n.attr("is_host_transfer")
        handle = f"channel_handle = #stablehlo.channel_handle<handle = {n.attr('channel_id')}, type = {host if is_host else 1}>"
        pairs = n.attr("source_target_pairs")
        shown = (f"is_host_transfer = {str(is_host).lower()}", groups_text("source_target_pairs", pairs) if pairs else "")
        return f"stablehlo.{name}", _joined(handle, *shown), ()

    return rule


def _print(n: Node) -> Parts:
    if n.attr("format"):
        raise NoText("StableHLO has no print with a format")
    return "interpreter.print", "", ()


def _expect_probed(n: Node) -> Parts:
    return "check.expect_serialized_eq", f"iter = {n.attr('iteration')} : i32, probe_id = {json.dumps(n.attr('probe_id'))}", ()


def custom_call(n: Node) -> Parts:
    """A custom call by what is known of it."""
    version, config = n.attr("api_version"), n.attr("backend_config")
    said = config if version == 4 and config.startswith("{") else json.dumps(config)  # a dictionary is one in MLIR too
    return "stablehlo.custom_call", _joined(
        f"api_version = {version} : i32" if version else "", f"backend_config = {said}" if config else "",
        f"call_target_name = {json.dumps(n.attr('target'))}", f"has_side_effect = {str(n.op is ops.custom_effect).lower()}"), ()


def programs(n: Node, symbols: dict[str, str]) -> str:
    """The attribute `programs` of a run_parallel."""
    given = n.op.named(n.inputs, n.attrs)
    if given["infeed"] or any(p.op is not PARTIAL or p.inputs for p in given["programs"]):
        raise NoText("StableHLO's run_parallel names functions, and is fed by functions")
    names = [f"@{symbols[p.attrs[0]]}" for p in given["programs"]]
    width: int = n.attr("partitions")
    rows = ", ".join(f"[{', '.join(names[k : k + width])}]" for k in range(0, len(names), width))
    return f"programs = [{rows}]"


DEVICE_PARTS: dict[Op, Rule] = {
    ops.all_reduce: _collective(ops.all_reduce),
    ops.all_gather: _collective(ops.all_gather, "all_gather_dim"),
    ops.reduce_scatter: _collective(ops.reduce_scatter, "scatter_dimension"),
    ops.all_to_all: _all_to_all,
    ops.collective_permute: _collective(ops.collective_permute),
    ops.collective_broadcast: _collective(ops.collective_broadcast, flag="has_dynamic_root"),
    ops.collective_reduce: _collective(ops.collective_reduce),
    ops.partition_id: lambda n: ("stablehlo.partition_id", "", ()),
    ops.replica_id: lambda n: ("stablehlo.replica_id", "", ()),
    ops.infeed: _feed("infeed"),
    ops.outfeed: _feed("outfeed"),
    ops.send: _transfer("send", 2),
    ops.recv: _transfer("recv", 3),
    ops.print_: _print,
    ops.expect_probed: _expect_probed,
    ops.custom_call: custom_call,
    ops.custom_effect: custom_call,
}
"""Operations with how they are written."""
