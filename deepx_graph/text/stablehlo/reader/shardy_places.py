"""Where Shardy's statements about values stand in a block: behind what makes the value, so that all its users come after them.

A group has a value for all of its users, also those before the line that says so, and a parameter that has none. A constraint that
nothing uses says how its operand lies itself, as long as nothing else does.

Source: Shardy, docs/sdy_dialect.md, and its `apply-sharding-constraints`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from deepx_graph.ir import Node
from deepx_graph.ir.node import reachable
from deepx_graph.sharding.annotations import ASKED
from deepx_graph.sharding.values import GROUP as MEMBER
from deepx_graph.text.stablehlo.syntax import Operation, RegionBlock, plain

GROUP, CONSTRAINT, BY_HAND = "sdy.sharding_group", "sdy.sharding_constraint", "sdy.manual_computation"


def behind_values(block: RegionBlock) -> Sequence[Operation]:
    """The operations of a block, its statements about values moved behind what makes these, or to the front for arguments."""
    operations = block.operations
    about = {id(op): op for op in operations if op.name == GROUP and op.operands}
    if any(op.name == CONSTRAINT for op in operations):
        about |= {id(op): op for op in _dangling(block)}
    if not about:
        return operations
    said: dict[str, list[Operation]] = {}
    for op in about.values():
        said.setdefault(_whole(op.operands[0][0]), []).append(op)
    rest = [op for op in operations if id(op) not in about]
    made = {_whole(name) for op in rest for name in op.results}
    front = [op for name, ops in said.items() if name not in made for op in ops]
    return [*front, *(placed for op in rest for placed in (op, *(s for name in op.results for s in said.get(_whole(name), ()))))]


def groups_of_unused(block: RegionBlock) -> dict[str, list[str]]:
    """The numbers of the groups of each argument that nothing uses beside them."""
    groups = [op for op in block.operations if op.name == GROUP and op.operands]
    if not groups:
        return {}
    used = {_whole(name) for op in _inside(block) if op.name != GROUP for name, _ in op.operands}
    unused = {_whole(arg.name) for arg in block.args} - used
    found: dict[str, list[str]] = {}
    for op in groups:
        if (name := _whole(op.operands[0][0])) in unused:
            found.setdefault(name, []).append(str(plain(op.attributes.get("group_id", 0))))
    return found


def statements_beside(values: Iterable[Node], results: Sequence[Node]) -> tuple[Node, ...]:
    """Constraints and members of groups that no result needs, nor another one of them. What else is unused Shardy's passes drop."""
    needed = set(reachable(results))
    found = [n for n in dict.fromkeys(values) if n not in needed and n.named_attrs.get("role") in (ASKED, MEMBER)]
    inner = {i for n in reachable(found) for i in n.inputs}
    return tuple(n for n in found if n not in inner)


def is_dangling(op: Operation) -> bool:
    """Whether a constraint has been found to be used by nothing."""
    return "dangling" in op.extra


def _dangling(block: RegionBlock) -> Iterator[Operation]:
    """The constraints whose results nothing uses, on values of which nothing else is stated; marked as such."""
    every = list(_inside(block))
    uses = Counter(_whole(name) for op in every for name, _ in op.operands)
    asked = Counter(_whole(name) for op in every if op.name in (CONSTRAINT, BY_HAND) for name, _ in op.operands)
    stated = {_whole(name) for op in every if "sdy.sharding" in op.attributes for name in op.results}
    stated |= {_whole(arg.name) for arg in block.args if "sdy.sharding" in arg.attributes}
    for op in block.operations:
        if op.name != CONSTRAINT or not op.operands or any(uses[_whole(name)] for name in op.results):
            continue
        value = _whole(op.operands[0][0])
        if asked[value] == 1 and value not in stated:
            op.extra["dangling"] = True
            yield op


def _inside(block: RegionBlock) -> Iterator[Operation]:
    for op in block.operations:
        yield op
        for region in op.regions:
            for inner in region:
                yield from _inside(inner)


def _whole(name: str) -> str:
    return name.removesuffix("#0")
