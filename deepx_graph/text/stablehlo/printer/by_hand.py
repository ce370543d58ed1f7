"""Writing what every device of a mesh does by hand: `sdy.manual_computation`, with the function of one device as its region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of
from deepx_graph.sharding.by_hand.found import FoundByHand, found_by_hand
from deepx_graph.sharding.by_hand.manual import IN, OUT
from deepx_graph.sharding.mesh import count_of
from deepx_graph.text.stablehlo.literals import type_text
from deepx_graph.types import as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.printer.function import MlirWriter


def written_inside(module: Module) -> set[str]:
    """The functions that nothing names but computations by hand, of which they are the regions."""
    named, inside = {module.entry_name, *(f.vjp for f in module.functions)}, set[str]()
    for f in module.functions:
        found = found_by_hand(f)
        inside.update(each.callee for each in found.values())
        named.update(callee_of(n) for n in f.nodes if n.op is CALL or (n.op is PARTIAL and not found.keys() >= {*f.users[n]}))
        named.update([f.name] if f.public else [])
    return inside - named


def by_hand(writer: MlirWriter, node: Node, found: FoundByHand, body: MlirWriter) -> None:
    """The computation; its whole results get their names. `body` writes the function of one device."""
    notes = dict(node.origin.notes)
    params = body.declared()
    body.body("sdy.return")
    parts = [as_tensor(r.type) for r in body.shown(body.function.results)]
    wholes = [part.with_dims(tuple(n * count_of(axes) for n, axes in zip(part.shape, said.axes, strict=True)))
              for part, said in zip(parts, found.stated.split(found.stated.after), strict=True)]
    head, types = writer.results(node, wholes)
    for k, result in found.results:
        writer.names[result] = writer.parts[node][k]
    axes = ", ".join(f'"{name}"' for name, _ in found.stated.mesh.axes if name in found.stated.axes)
    writer.put(f"{head}sdy.manual_computation({', '.join(map(writer.use, found.operands))}) in_shardings={_each(notes[IN])} "
               f"out_shardings={_each(notes[OUT])} manual_axes={{{axes}}} ({params}) {{")
    writer.lines += body.lines
    writer.problems += body.problems
    writer.put(f"}} : ({', '.join(type_text(x.type) for x in found.operands)}) -> {types}{writer.at(node)}")


def _each(note: str) -> str:
    """`[<mesh<..>, [..]>, ...]`, as the note has it."""
    return note.removeprefix("#sdy.sharding_per_value<").removesuffix(">")
