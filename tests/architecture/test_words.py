"""Names and arrangement: the field's words, one class for a name, no crowded folder, attributes by name, tests as the package."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.sources import SOURCES, source_files, trees

MOST_MODULES = 18
STRUCTURE = "deepx_graph/ir/structure.py"
"""Where the accessors of structural ops are."""

DIALECT = re.compile(r"(?<!in )\bturns?\b|\bhanded\b|\blent\b|[Ww]hat follows|\bgoes? round\b|asked for ahead|asks? ahead")
IN_NAMES = re.compile(r"(?:^|_)(?:turns?|handed|lent)(?:_|$)|(?:Turn|Turns|Handed|Lent)(?=[A-Z]|$)")

PRIVATE = re.compile(r"(?:^|_)(?:turn(?:s|ed|ing)?|handed|len[dt]s?|follow(?:s|ed|ing)?|spell(?:s|ed|ing|ings)?|ways?|straightly|"
                     r"(?<!in_)places?)(?=_|$)")
"""In no name: the field says iteration, transposed, donated, in use, epilogue, successor, lowering, buffer, position."""

CLEAN = ("deepx_graph/runtime/",)


def dialect(tree: ast.Module) -> int:
    """Definitions whose public name, or whose first line, has a word that the field has another for."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            name, first = getattr(node, "name", "_"), (ast.get_docstring(node) or "").partition("\n")[0]
            count += bool(DIALECT.search(first) or (not name.startswith("_") and IN_NAMES.search(name)))
    return count


def private_names(tree: ast.Module) -> list[str]:
    """Functions, classes, parameters, variables and attributes that a module names by words of its own."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return sorted(n for n in names if PRIVATE.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", n).lower()))


def positions(tree: ast.Module) -> int:
    """Reads of `.attrs` by a number."""
    return sum(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute) and n.value.attr == "attrs"
               and isinstance(n.slice, ast.Constant) and isinstance(n.slice.value, int) for n in ast.walk(tree))


def counted(count: Callable[[ast.Module], int]) -> dict[str, int]:
    """What there is by file, where there is any."""
    return {path: n for path, tree in trees() if (n := count(tree))}


def homonyms(modules: Iterable[tuple[str, ast.Module]]) -> dict[str, int]:
    """Public classes at the top of a module by name, where there are several."""
    found = Counter(n.name for _, tree in modules for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))
    return {name: n for name, n in found.items() if n > 1}


def crowded(files: Iterable[Path]) -> list[str]:
    """Folders with more modules than a reader takes in at once."""
    folders = Counter(p.parent.as_posix() for p in files if p.name != "__init__.py")
    return [folder for folder, n in folders.items() if n > MOST_MODULES]


def strays(files: Iterable[Path], parts: dict[str, set[str]]) -> list[str]:
    """Tests in a folder that mirrors no part of the package; `parts` are the folders of each part."""
    wrong = []
    for path in files:
        part, *inner = path.parts[:-1] or ("",)
        if part not in parts or "/".join(inner) not in {"", *parts[part]}:
            wrong.append(path.as_posix())
    return wrong


def test_the_checks_find_what_is_wrong() -> None:
    assert dialect(ast.parse('def turn_count():\n  """Iterations."""\ndef f():\n  """What follows a product."""')) == 2
    assert dialect(ast.parse('def _turn():\n  """Returns an iteration."""')) == 0
    assert private_names(ast.parse("def f(given, way): turned = x\nself.in_place = 1\nclass SpellingBee: lends_it: int")) == [
        "SpellingBee", "lends_it", "turned", "way"]
    assert positions(ast.parse("x.attrs[0]; x.attrs[k]; x.attr('k')")) == 1
    assert homonyms([("a", ast.parse("class A: 1")), ("b", ast.parse("class A: 1\nclass _B: 1"))]) == {"A": 2}
    assert crowded(Path(f"a/m{k}.py") for k in range(19)) == ["a"]
    assert strays([Path("ops/test_a.py"), Path("opps/test_a.py"), Path("ops/x/test_a.py"), Path("test_a.py")], {"ops": set()}) == [
        "opps/test_a.py", "ops/x/test_a.py", "test_a.py"]


def test_names_and_first_lines_have_the_words_of_the_field() -> None:
    assert counted(dialect) == {}, "use the field's word"


def test_attributes_are_read_by_name() -> None:
    assert list(counted(positions)) == [STRUCTURE], "use an accessor of ir/structure.py, or `.attr(name)`"


def test_a_name_belongs_to_one_class() -> None:
    assert homonyms(trees()) == {}


def test_names_are_the_fields_own_words() -> None:
    assert {path: names for path, tree in trees() if path.startswith(CLEAN) and (names := private_names(tree))} == {}


def test_no_folder_is_crowded() -> None:
    assert crowded(source_files()) == []


def test_tests_mirror_the_package() -> None:
    free = ("conformance", "architecture", "support", "bench", "examples")
    parts: dict[str, set[str]] = defaultdict(set, {name: set() for name in free})
    for path in source_files():
        inner = path.parent.relative_to(ROOT).parts
        inner = inner[1:] if inner[0] == SOURCES[0] else inner
        if inner:
            parts[inner[0]].add("/".join(inner[1:]))
    tests = (p.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py"))
    assert strays(tests, parts) == []


def test_no_test_is_a_library_of_another() -> None:
    """What several tests share is in tests/support."""
    imported = re.compile(r"^\s*from tests\S*\.test_\w+", re.MULTILINE)
    files = (ROOT / "tests").rglob("*.py")
    assert [p.relative_to(ROOT).as_posix() for p in files if imported.search(p.read_text(encoding="utf-8"))] == []
