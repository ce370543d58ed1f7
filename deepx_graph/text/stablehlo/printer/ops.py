"""Our operations in StableHLO's terms: the rows of the dialect's table, what MLIR says in a way of its own, what was kept as text.

A rule gives the operation's name, its attributes as text and the functions that become its regions; operands, types and results are
the writer's business. The state is a token where an operation takes one, and has no text elsewhere. What StableHLO does not have is
not in the table, and legalised before (`legal.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError, Source
from deepx_graph.ir import Module, Node, Op
from deepx_graph.ir.structure import CONSTANT, PARTIAL, callee_of, value_of
from deepx_graph.ops.host import custom_calls
from deepx_graph.sharding.annotations import ASKED, BORDER, CONSTRAINT, MOVED
from deepx_graph.sharding.priorities import BARRIER, Direction
from deepx_graph.sharding.values import GROUP
from deepx_graph.text.stablehlo.literals import dense_text, type_text
from deepx_graph.text.stablehlo.reader.parser import MlirParser
from deepx_graph.text.stablehlo.syntax import Operation
from deepx_graph.text.xla.fields import GenericForm
from deepx_graph.text.xla.hlo_text import present
from deepx_graph.text.xla.mlir_text import NoText, string_text, word_text
from deepx_graph.text.xla.table import ROWS

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.printer.function import MlirWriter

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(%[\w$.\-]+)(#\d+)?')
_LOCATION = re.compile(r"\s*\bloc\((?:#\w+|unknown|\"[^\"]*\"(?::\d+:\d+)?)\)")
MAX_TEXT = 1_000_000


def respell(name: str, text: str, operands: Sequence[str], claim: Callable[[str], str]) -> tuple[str, int]:
    """The operation without its results, on these operands, and how many results it names. Raises NoText."""
    op = _parsed(name, text)
    if len(op.operands) != len(operands):
        raise NoText(f"StableHLO cannot express '{name}': its text has {len(op.operands)} operands")
    names = {old: new for (old, _), new in zip(op.operands, operands, strict=True)}
    inner: dict[str, str] = {}
    for name in _defined(op):
        inner.setdefault(name, "")
    for name in inner:
        inner[name] = claim(name[1:])
    if op.results:
        text = text[text.index("=") + 1 :]

    def renamed(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        if match[0] in names:
            return names[match[0]]
        if match[1] not in inner:
            raise NoText(f"StableHLO cannot express '{name}': its region uses '{match[1]}' from outside")
        return inner[match[1]] + (match[2] or "")

    return _TOKEN.sub(renamed, _LOCATION.sub("", text)).strip(), len(op.results)


def _parsed(name: str, text: str) -> Operation:
    refusal = NoText(f"StableHLO cannot express '{name}': its text is not an operation of MLIR, or not all of it is kept")
    try:
        parser = MlirParser(Source("opaque", text), MAX_TEXT, unregistered=True)
        op = parser.operation()
    except DeepxGraphError:
        raise refusal from None
    if text[op.end :].strip() or "." not in op.name or op.name != name.split(" ")[0]:
        raise refusal
    return op


def _defined(op: Operation) -> list[str]:
    """The names of values that the regions of an operation define."""
    found: list[str] = []
    work = [op]
    while work:
        for region in work.pop().regions:
            for block in region:
                found += [arg.name for arg in block.args]
                for inner in block.operations:
                    found += [r.partition("#")[0] for r in inner.results]
                    work.append(inner)
    return found


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


Rule = Callable[[Node], GenericForm]


def _constant(n: Node) -> GenericForm:
    return GenericForm("stablehlo.constant", f"value = {dense_text(value_of(n))} : {type_text(n.type)}")


def _identity(n: Node) -> GenericForm:
    """StableHLO has the barrier alone; what else it is for is said beside it."""
    role = n.attr("role")
    if role in custom_calls.UNCHANGED:
        return GenericForm("stablehlo.custom_call", f"call_target_name = {string_text(role)}")
    if role in (ASKED, MOVED, BORDER) and (said := dict(n.origin.notes).get(CONSTRAINT)):
        return GenericForm("sdy.reshard" if role == MOVED else "sdy.sharding_constraint", f"sharding = {said}")
    if (allowed := dict(n.origin.notes).get(BARRIER)) and role != MOVED:
        return GenericForm("sdy.propagation_barrier", f"allowed_direction = {Direction[allowed].value} : i32")
    is_barrier = role == "optimization_barrier"
    return GenericForm("stablehlo.optimization_barrier", notes="" if is_barrier else f"role = {string_text(role)}")


def _distribution(word: str) -> Rule:
    form = GenericForm("stablehlo.rng", f"rng_distribution = {word_text('rng_distribution', word)}")
    return lambda n: form


FORMS: dict[Op, Rule] = {
    **{op: row.form for op, row in ROWS.items()},
    CONSTANT: _constant,
    ops.identity: _identity,
    ops.rng_uniform: _distribution("UNIFORM"),
    ops.rng_normal: _distribution("NORMAL"),
    **DEVICES,
}
"""Every operation that StableHLO, CHLO or the check dialect has, with how it is written."""


# --- Shardy's statements about values that give none themselves


def groups_of(node: Node) -> list[str]:
    """The numbers of the groups that a value, or what an identity is of, is a member of."""
    return [number for name, number in node.origin.notes if name == GROUP]


def grouped(writer: MlirWriter, node: Node, value: Node) -> None:
    """Says that the value belongs to the groups of a node."""
    for number in groups_of(node):
        text, types = writer.generic(GenericForm("sdy.sharding_group", f"group_id = {number} : i64"), [value])
        writer.put(f"{text} : {types} -> ()")


def identity(writer: MlirWriter, node: Node) -> None:
    """A member of groups is its operand; any other identity has a line."""
    if not groups_of(node):
        writer.operation(node)
        return
    grouped(writer, node, node.inputs[0])
    writer.names[node] = writer.use(node.inputs[0])
