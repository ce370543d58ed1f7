"""Objects have parts of their own, not all they do by inheritance: no class is long, counted with all that it inherits from us."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.architecture.allowed import CLASSES
from tests.support.sources import trees

MOST_LINES = 400


@dataclass
class Namespace:
    """The classes that a module defines, and where the names come from that it imports."""

    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


def module_of(path: str) -> str:
    """The name by which a file is imported: tui/app.py as deepx_graph.tui.app."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("deepx_graph") else f"deepx_graph.{name}"


def namespace(tree: ast.Module) -> Namespace:
    found = Namespace()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imported |= {a.asname or a.name: (node.module, a.name) for a in node.names}
    return found


class Ancestry:
    """Every class with the classes of ours that it inherits from, as pairs of module and name."""

    def __init__(self, modules: Iterable[tuple[str, ast.Module]]) -> None:
        self.spaces = {module_of(path): namespace(tree) for path, tree in modules}

    def defined(self, module: str, name: str) -> tuple[str, str] | None:
        """Where the class is that a module knows by a name; None for one that is not ours."""
        while (space := self.spaces.get(module)) is not None and name not in space.classes:
            if name not in space.imported:
                return None
            module, name = space.imported[name]
        return (module, name) if space is not None else None

    def base(self, module: str, expr: ast.expr) -> tuple[str, str] | None:
        """The class that an expression in a list of bases stands for."""
        if isinstance(expr, ast.Subscript):  # Generic[T]
            return self.base(module, expr.value)
        if isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name):  # of an imported module
            parent, name = self.spaces[module].imported.get(expr.value.id, ("", ""))
            return self.defined(f"{parent}.{name}", expr.attr)
        return self.defined(module, expr.id) if isinstance(expr, ast.Name) else None

    def family(self, module: str, name: str) -> set[tuple[str, str]]:
        """A class and all that it inherits from."""
        found, waiting = set(), [(module, name)]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += filter(None, (self.base(here[0], b) for b in self.spaces[here[0]].classes[here[1]].bases))
        return found

    def lines(self, module: str, name: str) -> int:
        node = self.spaces[module].classes[name]
        return (node.end_lineno or node.lineno) - node.lineno + 1


def long_classes(modules: Iterable[tuple[str, ast.Module]]) -> dict[str, int]:
    """Classes that have, with all that they inherit from ours, more than MOST_LINES lines."""
    ancestry = Ancestry(modules)
    names = [(module, name) for module, space in ancestry.spaces.items() for name in space.classes]
    lines = {f"{m}.{c}": sum(ancestry.lines(*a) for a in ancestry.family(m, c)) for m, c in names}
    return {name: n for name, n in lines.items() if n > MOST_LINES}


def wrong(found: dict[str, int], allowed: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What there is and what is allowed: of classes that have grown, and of entries that are no longer needed."""
    return {k: (found.get(k, 0), allowed.get(k, 0)) for k in {*found, *allowed} if not 0 < found.get(k, 0) <= allowed.get(k, 0)}


def test_the_check_counts_what_is_inherited() -> None:
    body = "\n".join(f"    x{k} = 1" for k in range(199))
    split = [
        ("tui/a.py", f"class A:\n{body}\n"),
        ("tui/__init__.py", "from deepx_graph.tui.a import A as Base\n"),
        ("tui/b.py", f"from textual.app import App\nfrom deepx_graph.tui import Base\nclass B(Base, App[int]):\n{body}\n"),
        ("tui/c.py", "from deepx_graph.tui import b\nclass C(b.B):\n    y = 1\nclass D(C): ...\n"),
        ("tui/e.py", f"class A:\n{body}\n"),  # another of the same name
    ]
    assert long_classes((path, ast.parse(text)) for path, text in split) == {"deepx_graph.tui.c.C": 402, "deepx_graph.tui.c.D": 403}
    assert wrong({"a": 450, "b": 450, "c": 450}, {"b": 449, "c": 460, "d": 450}) == {"a": (450, 0), "b": (450, 449), "d": (0, 450)}


def test_no_class_is_long_with_what_it_inherits() -> None:
    assert wrong(long_classes(trees()), CLASSES) == {}, "(found, allowed): give the object parts, or shrink the list"
