"""Who knows whom: no circle of modules, no page torn out of its chapter, no class cut in two, ops told apart by their traits.

Each list of exceptions may only shrink: a test fails as soon as an entry allows what is no longer there.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import networkx as nx

from tests.architecture.allowed import CIRCLES, ONE_READER, ONE_SUBCLASS, OP_IDENTITIES
from tests.support.paths import ROOT
from tests.support.sources import source_files

SHORT = 120
"""Lines below which a module with one reader in its own folder belongs into it."""
KNOW_OPS = (
    "deepx_graph/ops/", "deepx_graph/ir/", "deepx_graph/text/", "deepx_graph/rewrite/", "passes/rules/",
    "deepx_graph/runtime/engines/",
)  # fmt: skip
"""Where single operations are the subject."""
MAY_HAVE_ONE = {"ABC", "Protocol", "Enum", "Exception", "DeepxGraphError", "NamedTuple", "Generic"}
Modules = Mapping[str, ast.Module]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "deepx_graph" else ("deepx_graph", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    return {module_name(p): (p, ast.parse(p.read_text(encoding="utf-8"))) for p in source_files()}


def for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(tree: ast.AST, known: Container[str]) -> Iterator[str]:
    """The known modules that a program imports wherever it stands, except for the type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
            yield from (name if name in known else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif not for_types_only(node):
            yield from imported(node, known)


def import_graph(trees: Modules) -> nx.DiGraph:
    """An edge from each module to every one that it imports."""
    graph = nx.DiGraph()
    graph.add_nodes_from(trees)
    for name, tree in trees.items():
        graph.add_edges_from((name, other) for other in imported(tree, trees) if other in trees and other != name)
    return graph


def circles(trees: Modules) -> list[list[str]]:
    return sorted(sorted(c) for c in nx.strongly_connected_components(import_graph(trees)) if len(c) > 1)


def torn_out(trees: Modules, length: Mapping[str, int]) -> dict[str, str]:
    """Short modules that one other imports, of the same folder."""
    graph, found = import_graph(trees), {}
    folders = {name.rpartition(".")[0] for name in trees}
    for name, readers in graph.pred.items():
        folder, _, own = name.rpartition(".")
        if len(readers) == 1 and length[name] < SHORT and not own.startswith("_") and name not in folders:
            (reader,) = readers
            if reader.rpartition(".")[0] == folder:
                found[name] = reader
    return found


def base_names(node: ast.ClassDef) -> set[str]:
    found = (b.value if isinstance(b, ast.Subscript) else b for b in node.bases)
    return {b.attr if isinstance(b, ast.Attribute) else b.id for b in found if isinstance(b, (ast.Attribute, ast.Name))}


def with_one_subclass(trees: Iterable[ast.Module]) -> set[str]:
    """Classes cut in two: the only heir is all that there is of them. Those that say that they are abstract may have one."""
    found = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    classes = {n.name: n for n in found}
    heirs = Counter(base for n in found for base in base_names(n) if base in classes)
    return {name for name, n in heirs.items() if n == 1 and not base_names(classes[name]) & MAY_HAVE_ONE}


def op_identities(tree: ast.Module, structural: set[str]) -> int:
    """Comparisons by identity with an op that is no part of the graph's structure."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "op":
            count += any(isinstance(o, (ast.Is, ast.IsNot)) and isinstance(c, ast.Name) and c.id not in structural | {"self"}
                         for o, c in zip(node.ops, node.comparators, strict=True))
    return count


def test_the_checks_find_what_is_wrong() -> None:
    a, b = ast.parse("from p.b import f"), ast.parse("def f():\n  import p.a")
    later = ast.parse("if TYPE_CHECKING:\n  from p.a import x")
    assert circles({"p.a": a, "p.b": b}) == [["p.a", "p.b"]] and circles({"p.a": a, "p.b": later}) == []
    assert torn_out({"p.a": a, "p.b": later}, {"p.a": 500, "p.b": 119}) == {"p.b": "p.a"}
    assert torn_out({"p.a": a, "p.b": later}, {"p.a": 500, "p.b": 120}) == {}
    assert with_one_subclass([ast.parse("class A: ...\nclass B(A): ...\nclass P(Protocol): ...\nclass Q(P): ...")]) == {"A"}
    assert with_one_subclass([ast.parse("class A: ...\nclass B(A): ...\nclass C(A): ..."), ast.parse("class C: ...")]) == set()
    assert op_identities(ast.parse("x.op is add; x.op is PHI; x.op is not tanh; op is add"), {"PHI"}) == 2


def test_modules_import_no_module_that_imports_them() -> None:
    """Outside the graph itself, whose nodes, ops and builders are of one piece."""
    found = circles({name: tree for name, (_, tree) in modules().items() if not name.startswith("deepx_graph.ir.")})
    assert found == CIRCLES


def test_a_short_module_has_several_readers() -> None:
    length = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, (path, _) in modules().items()}
    assert set(torn_out({n: t for n, (_, t) in modules().items()}, length)) == ONE_READER


def test_a_class_with_one_heir_is_abstract() -> None:
    assert with_one_subclass(tree for _, tree in modules().values()) == ONE_SUBCLASS


def test_ops_are_distinguished_by_what_they_declare() -> None:
    from deepx_graph.ir import structure

    structural = {n for n in vars(structure) if n.isupper()}
    found = {p.relative_to(ROOT).as_posix(): n for p, tree in modules().values() if (n := op_identities(tree, structural))}
    assert {p: n for p, n in found.items() if not p.startswith(KNOW_OPS)} == OP_IDENTITIES
