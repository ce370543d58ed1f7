"""How collectives are split along other axes of the mesh than those over which they meet."""

from __future__ import annotations

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule, Partitioning, RuleBuilder


def beside(*dims: str) -> Partitioning:
    """Of a collective that leaves all dimensions as they are but those that these of its attributes name, which stay whole."""

    def rule(node: Node) -> FactorRule:
        r, met = RuleBuilder(node), sorted({node.attr(name) for name in dims})
        for k, size in enumerate(r.results[0]):
            if k not in met:
                r.factor(size, [k], [k])
        for k in met:
            r.of_operand(k, "replicated")
            r.of_result(k, "replicated")
        return r.rule()

    return Partitioning(rule)
