"""The architecture holds: floors, packaging, light imports, no second table of operations, documentation that is true."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sources import pages, source_files

HEAVY = {"numpy", "networkx", "numexpr", "graphviz", "pygraphviz", "textual", "ml_dtypes", "yaml", "scipy"}


def run_python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


# --- floors


def test_files_import_from_lower_floors_only() -> None:
    done = run_python("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_part_of_the_package_has_a_floor() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    placed = {name for layer in contracts[0]["layers"] for name in layer.split(" | ")}
    parts = {p.stem for p in (ROOT / "deepx_graph").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts - placed == {"__init__", "__main__"}


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import deepx_graph; dir(deepx_graph); deepx_graph.__version__", set()),
        ("import deepx_graph; deepx_graph.UsageError", set()),
        ("from deepx_graph.cli.main import make_parser; make_parser().format_help()", set()),
        ("import deepx_graph as dx; dx.load, dx.optimize, dx.compile, dx.grad, dx.dumps, dx.draw", {"numpy", "ml_dtypes"}),
    ],
)
def test_imports_are_light(code: str, allowed: set[str]) -> None:
    done = run_python("-c", f"import sys; {code}; print(*{{m.partition('.')[0] for m in sys.modules}})")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & HEAVY <= allowed


LANGUAGES = {"deepx", "hlo", "stablehlo", "mindir", "relay", "sea", "anf"}


@pytest.mark.parametrize(("language", "text"), [
    ("stablehlo", "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"),
    ("hlo", "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"),
    ("relay", "def @main(%x: Tensor[(2,), float32]) { %x }"),
    ("sea", "sea 1 entry @f func @f(%x: f32[2]) -> (%y: f32[2]) { return %x }"),
])  # fmt: skip
def test_a_program_is_loaded_by_its_own_reader_alone(language: str, text: str) -> None:
    """The first program that a process loads waits for no engine, pass, picture, session, printer, or other language."""
    code = f"import sys, deepx_graph as dx; dx.loads({text!r}); print(*sys.modules)"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert f"deepx_graph.text.{language}.reader" in loaded or f"deepx_graph.text.{language}.values" in loaded
    assert not {m.partition(".")[0] for m in loaded} & (HEAVY - {"numpy", "ml_dtypes"} | {"ssl", "socket", "subprocess"})
    wrong = [f"deepx_graph.{part}" for part in ("loops", "runtime", "viz", "session.session", "session.show", "passes.fusion",
                                                "passes.rules", "passes.autodiff", f"text.{language}.printer")]
    wrong += [f"deepx_graph.text.{other}.{part}" for other in LANGUAGES - {language} for part in ("reader", "values", "schema")]
    assert not loaded & set(wrong)


@pytest.mark.parametrize("name", ["passes", "viz", "tui"])
def test_parts_refuse_to_be_imported_by_a_generic_name(name: str) -> None:
    done = run_python("-c", f"import {name}")
    assert f"import deepx_graph.{name}" in done.stderr.splitlines()[-1]
    assert run_python("-c", f"import deepx_graph.{name}").returncode == 0


# --- the code


def test_every_module_says_what_it_is() -> None:
    silent = []
    for path in source_files():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        texts = [s.value.value for s in body[:2] if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
        if not any(isinstance(t, str) and len(t) > 10 for t in texts):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def is_op_name(node: ast.expr) -> bool:
    """`x.op.name` or `op.name`."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "name" else None
    return (isinstance(owner, ast.Name) and owner.id == "op") or (isinstance(owner, ast.Attribute) and owner.attr == "op")


def compares_op_names(tree: ast.AST) -> Iterator[int]:
    """Lines that decide something by the name of an op."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(is_op_name, (node.left, *node.comparators))):
            others = [e for e in (node.left, *node.comparators) if not is_op_name(e)]
            if any(isinstance(c, ast.Constant) and isinstance(c.value, str) for e in others for c in ast.walk(e)):
                yield node.lineno
        if isinstance(node, ast.Match) and is_op_name(node.subject):
            yield node.lineno


def test_the_check_on_op_names_finds_them() -> None:
    code = "if x.op.name == 'add': 1\nif op.name in {'a', 'b'}: 1\nif op.name in table: 1\nif op.name == other.op.name: 1"
    assert list(compares_op_names(ast.parse(code))) == [1, 2]


def test_nothing_is_decided_by_the_name_of_an_op() -> None:
    """Readers are left out: what they call `op` is an operation of a foreign text, known by nothing but its name."""
    ours = (p for p in source_files() if "text" not in p.relative_to(ROOT).parts)
    found = [f"{p.relative_to(ROOT)}:{line}" for p in ours for line in compares_op_names(ast.parse(p.read_text("utf-8")))]
    assert found == []


# --- packaging


def packages_on_disk() -> set[str]:
    found = set()
    for path in source_files():
        if path.name == "__init__.py":
            parts = path.parent.relative_to(ROOT).parts
            found.add(".".join(parts if parts[0] == "deepx_graph" else ("deepx_graph", *parts)))
    return found


def test_every_package_is_listed() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(packages_on_disk())


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that no build folder of the checkout leaks into what is built."""
    copy = tmp_path_factory.mktemp("source") / "checkout"
    skip = shutil.ignore_patterns(".git", ".venv", "out", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=skip)
    return copy


def build(checkout: Path, kind: str, pattern: str) -> Path:
    """A distribution, made without a warning about what stands in it."""
    done = run_python("-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(checkout / "dist"), str(checkout))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not [line for line in said.splitlines() if any(word in line for word in ("would be ignored", "Warning", "deprecat"))]
    return next((checkout / "dist").glob(pattern))


@pytest.fixture(scope="session")
def wheel(checkout: Path) -> Path:
    return build(checkout, "wheel", "*.whl")


@pytest.mark.conformance
def test_the_source_archive_has_all_that_a_reader_needs(checkout: Path) -> None:
    with tarfile.open(build(checkout, "sdist", "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = (p for folder in ("docs", "examples", "bench") for p in (ROOT / folder).rglob("*") if p.is_file())
    wanted = {str(p.relative_to(ROOT)) for p in files if "__pycache__" not in p.parts}
    assert wanted | {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "tests/conftest.py"} <= names
    assert not [name for name in names if name.endswith(".pyc") or ".venv" in name]


def test_the_wheel_has_every_module_once_and_nothing_generic(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = sorted(n for n in names if ".dist-info/" not in n)
    expected = []
    for path in source_files():
        relative = path.relative_to(ROOT).as_posix()
        expected.append(relative if relative.startswith("deepx_graph/") else f"deepx_graph/{relative}")
    assets = (f"deepx_graph/viz/assets/{p.name}" for p in (ROOT / "viz" / "assets").iterdir())
    assert inside == sorted([*expected, *assets, "deepx_graph/py.typed"])
    assert any(n.endswith("licenses/LICENSE") for n in names)


PYTHONS = os.environ.get("DEEPX_GRAPH_PYTHONS", sys.executable).split(os.pathsep)
"""What the wheel is installed for: `make wheels` with programs of several versions, `:` between them."""


@pytest.mark.conformance
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_works_in_a_fresh_environment_elsewhere(wheel: Path, tmp_path: Path, python: str) -> None:
    """Installs it with its dependencies from the package index, and the example of a plugin beside it."""
    home = tmp_path / "env"
    subprocess.run([python, "-m", "venv", str(home)], check=True)
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", str(wheel)], check=True)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "viz").mkdir(parents=True)  # a folder of the user's own, of the same name as ours
    (elsewhere / "viz" / "__init__.py").touch()
    shutil.copy(ROOT / "examples" / "transformer_block.dx", elsewhere)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    for arguments in (["opt", "transformer_block.dx", "-o", "out.dx"], ["run", "out.dx", "--random-inputs"],
                      ["grad", "transformer_block.dx", "-o", "grad.dx"], ["draw", "out.dx", "-o", "out.svg"]):  # fmt: skip
        subprocess.run([str(home / "bin" / "deepx-graph"), *arguments], cwd=elsewhere, check=True, env=environment)
    plugin = tmp_path / "plugin"
    shutil.copytree(ROOT / "examples" / "plugin", plugin, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", str(plugin)], check=True)
    (elsewhere / "p.steps").write_text("x negate softsign tanh\n")
    for arguments in (["ops", "softsign"], ["run", "p.steps", "--engine", "counting", "--random-inputs"]):
        subprocess.run([str(home / "bin" / "deepx-graph"), *arguments], cwd=elsewhere, check=True, env=environment)
    silent = "import deepx_graph as dx; dx.run(dx.trace(lambda x: x * x, 'f32[]'), 1, engine='numexpr')"
    subprocess.run([str(home / "bin" / "python"), "-W", "error", "-c", silent], cwd=elsewhere, check=True, env=environment)
    assert {p.name for p in elsewhere.iterdir()} >= {"out.dx", "grad.dx", "out.svg"}


# --- documentation


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)|src(?:set)?=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}, link


def test_the_reference_of_operations_is_what_the_declarations_say() -> None:
    done = run_python("-m", "deepx_graph", "ops", "--markdown")
    assert (ROOT / "docs" / "ops.md").read_text(encoding="utf-8") == done.stdout, "run `make docs`"


def test_the_page_of_reports_is_what_the_schemas_say() -> None:
    done = run_python("-m", "deepx_graph", "schema", "--markdown")
    assert (ROOT / "docs" / "json.md").read_text(encoding="utf-8") == done.stdout, "run `make docs`"


def test_the_changelog_says_nothing_twice() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in set(lines) if len(line) > 30 and lines.count(line) > 1] == []


def test_no_path_of_one_machine_is_written_down() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    bad = re.compile("|".join(f"(?<![A-Za-z0-9_.])/{root}/" for root in ("ho" + "me", "ro" + "ot", "wo" + "rk", "Us" + "ers")))
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and bad.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(name)
    assert found == []
