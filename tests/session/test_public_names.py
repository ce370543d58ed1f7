"""What `import deepx_graph as dx` offers: its names and nothing else, each with a docstring, and with examples that are run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import TextReport
from deepx_graph.interop.jax import JitFunction
from deepx_graph.runtime.aot.executable import Executable
from deepx_graph.runtime.aot.program import BuiltProgram
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import F32, tensor
from tests.support import viz_modules as programs
from tests.support.jax_oracle import VARIABLE
from tests.support.paths import ROOT

JAX = ("from_jax", "jit", "to_jax")
APART = {n for n in dx.__all__ if n.startswith("register_")} | {"build", "load_compiled"}
"""Names whose examples register something or write files: they run in a process and a folder of their own."""

RUNNER = """
import doctest, inspect, sys, numpy as np, deepx_graph as dx
known = {"dx": dx, "np": np, **({"jax": __import__("jax")} if sys.argv[1] == "jax" else {})}
for name in sys.argv[2:]:
    tests = doctest.DocTestFinder().find(inspect.unwrap(getattr(dx, name)), name, globs=dict(known))
    tests = [t for t in tests if t.examples]
    assert tests and not any(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(t).failed for t in tests), name
"""

FUNCTIONS = [n for n in dx.__all__ if inspect.isfunction(getattr(dx, n))]
CLASSES = [n for n in dx.__all__ if inspect.isclass(getattr(dx, n))]


def test_dir_is_the_interface() -> None:
    assert dir(dx) == sorted([*dx.__all__, "__version__"])


@pytest.mark.parametrize("name", dx.__all__)
def test_every_name_has_a_docstring(name: str) -> None:
    assert len(inspect.getdoc(getattr(dx, name)) or "") > 20


ERRORS = {n for n in CLASSES if issubclass(getattr(dx, n), dx.DeepxGraphError)} | {"PassError", "LayoutError"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_what_it_raises(name: str) -> None:
    """By the name of an error that there is; or that it raises nothing of its own."""
    text = prose(name)
    said = re.findall(r"[Rr]aises (.*?)(?:\.(?: |$))", text)
    assert said, "the docstring does not say what is raised"
    named = {w for clause in said for w in re.findall(r"\b\w+Error\b|\bCheckFailed\b", clause)}
    assert named <= ERRORS and (named or re.search(r"[Rr]aises (nothing|what)", text)), said


def prose(name: str) -> str:
    """The docstring of a public function without its example."""
    return " ".join((inspect.getdoc(getattr(dx, name)) or "").partition(">>>")[0].split())


def unnamed_parameters(name: str) -> set[str]:
    """Those of which the docstring says nothing, nor does that of a function that it refers to (as `load`)."""
    others = [o for o in re.findall(r"\bas (?:in )?`(\w+)`", prose(name)) if o in FUNCTIONS]
    said = " ".join(map(prose, [name, *others]))
    return {p for p in inspect.signature(getattr(dx, name)).parameters
            if p not in ("module", "args", "kwargs") and not re.search(rf"\b{p}\b", said)}


def without_types(name: str) -> bool:
    """Whether arrays go in or out and the docstring does not speak of their shapes and dtypes."""
    example = (inspect.getdoc(getattr(dx, name)) or "").partition(">>>")[2]
    arrays = re.search(r"\bnp\.|\barrays?\b", prose(name) + example)
    return bool(arrays) and not all(re.search(said, prose(name)) for said in (r"\bshapes?\b", r"\bdtypes?\b|\belement types?\b"))


UNITS = {"bytes": r"\bbytes\b|\bmemory\b", "budget": r"\bbytes\b|\bfigure\b", "bits": r"\bvectors\b", "timeout": r"\bseconds\b"}
"""The last word of a parameter's name, and what its docstring then says."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_describes_what_it_takes(name: str) -> None:
    """Every parameter is named; arrays have shapes and dtypes, quantities their units."""
    assert not unnamed_parameters(name)
    assert not without_types(name)
    last = {p.rpartition("_")[2] for p in inspect.signature(getattr(dx, name)).parameters}
    delegated = re.search(r"\bas (?:in )?`", prose(name))
    assert [w for w, said in UNITS.items() if w in last and not re.search(said, prose(name)) and not delegated] == []


def test_the_checks_on_docstrings_find_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(module: dx.Module, arrays: Any, slack: int) -> None:
        """Runs on arrays, as `grad` does."""

    monkeypatch.setattr(dx, "careless", careless, raising=False)
    assert unnamed_parameters("careless") == {"slack"} and without_types("careless")


def members(kind: type) -> Iterable[tuple[str, str]]:
    """The public methods and properties that a class of this package defines or inherits from one, and their docstrings."""
    for base in kind.__mro__:
        for name, value in vars(base).items() if base.__module__.startswith("deepx_graph") else ():
            inner = getattr(value, "func", getattr(value, "fget", getattr(value, "__func__", value)))
            if not name.startswith("_") and inspect.isfunction(inner):
                yield f"{base.__name__}.{name}", inspect.getdoc(inner) or ""


def results() -> list[type]:
    """The classes of this package that public functions give."""
    found: set[type] = set()
    for name in FUNCTIONS:
        function = inspect.unwrap(getattr(dx, name))
        source = inspect.getsource(sys.modules[function.__module__])
        homes = {n: home for home, n in re.findall(r"^    from (deepx_graph\S+) import (\w+)$", source, re.MULTILINE)}
        words = re.findall(r"\w+", str(inspect.signature(function).return_annotation))
        found |= {getattr(importlib.import_module(homes[w]), w) for w in words if w in homes}
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", [*(getattr(dx, n) for n in CLASSES), *results()], ids=lambda kind: kind.__name__)
def test_every_member_of_what_is_public_is_described(kind: type) -> None:
    assert len(inspect.getdoc(kind) or "") > 20
    assert [name for name, said in members(kind) if len(said) < 10] == []


@pytest.mark.parametrize("name", [n for n in [*FUNCTIONS, *CLASSES] if n not in APART and n not in JAX])
def test_examples_run(name: str) -> None:
    value = inspect.unwrap(getattr(dx, name))
    found = [t for t in doctest.DocTestFinder().find(value, name, globs={"dx": dx, "np": np}) if t.examples]
    assert any(t.name == name for t in found), "the docstring has no example"
    for test in found:
        said: list[str] = []
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append).failed
        assert not failed, "".join(said)


def _run_apart(python: str, kind: str, names: Iterable[str], folder: Path) -> None:
    done = subprocess.run([python, "-c", RUNNER, kind, *sorted(names)], cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_that_register_or_write_run(tmp_path: Path) -> None:
    native = {"build", "load_compiled"} if has_native() else set()
    _run_apart(sys.executable, "here", APART - {"build", "load_compiled"} | native, tmp_path)


def test_examples_of_jax_run(tmp_path: Path) -> None:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with JAX")
    _run_apart(python, "jax", JAX, tmp_path)


def test_modules_print_as_text_and_show_briefly() -> None:
    module = programs.straight()
    assert str(module) == dx.dumps(module)
    assert repr(module).startswith("<module ") and len(repr(module)) < 80
    assert str(dx.loads(str(module))) == str(module)


def test_notebooks_show_programs_that_run_and_differences() -> None:
    module = dx.trace(lambda x, y: dx.xp.exp(x @ y), "f32[4,4]", "f32[4,4]")
    for value, text in ((dx.compile(module, optimize=False), "in   x: f32[4,4]"), (dx.diff(module, module), "verdict")):
        shown = value._repr_mimebundle_()
        assert text in shown["text/plain"] and shown["image/svg+xml"].startswith("<svg")
    assert (dx.draw(module)._repr_svg_() or "").startswith("<svg")


def test_find_on_modules_and_functions() -> None:
    module = programs.straight()
    assert module.find("op:add") == [n for n in module.entry.nodes if n.op.name == "add"] == module.entry.find("op:add")
    with pytest.raises(dx.UsageError):
        module.find("op:(")


def test_operators_make_nodes() -> None:
    b = dx.Builder()
    function = b.function("main", [("x", tensor(F32, (2, 2))), ("y", tensor(F32, (2,)))],
                          lambda x, y: [-(2 * x + y / 4 - 1) @ x ** 2])
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([4, 8])
    (found,) = dx.compile(dx.Module((function,)), optimize=False)(x, y)
    np.testing.assert_allclose(found, -(2 * x + y / 4 - 1) @ x**2)


def test_what_the_command_line_knows_are_functions() -> None:
    module = dx.trace(lambda x, y: dx.xp.exp(x @ y), "f32[4,4]", "f32[4,4]")
    assert "one run:" in str(dx.info(module)) and dx.info(module).functions[0].name == "main"
    assert not dx.diff(module, module) and not dx.diff(module, module, as_written=True)
    changed = dx.diff(module, dx.trace(lambda x, y: dx.xp.sin(x @ y), "f32[4,4]", "f32[4,4]"))
    assert changed and any("sine" in line for line in changed.lines())
    assert "1 kernel" in next(iter(dx.why(module).lines()))
    assert dx.check(module, "ops<=2") and not dx.check(module, "ops<2") and "EXCEEDED" in str(dx.check(module, "ops<2"))
    eye = np.eye(4, dtype=np.float32)
    np.testing.assert_allclose(dx.run(module, eye, y=eye)[0], np.exp(eye), rtol=1e-6)


@pytest.mark.parametrize("call", [
    lambda m: dx.check(m, "nosuch<=1"), lambda m: dx.check(m, []), lambda m: dx.why(m, "x"), lambda m: dx.why(m, "x", "nosuch"),
    lambda m: dx.info(3), lambda m: dx.diff(m, "x"), lambda m: dx.run(m), lambda m: m.find("users>many"),
])  # fmt: skip
def test_slips_are_reported(call: Any) -> None:
    with pytest.raises(dx.DeepxGraphError):
        call(programs.straight())


def test_results_are_brief_at_the_prompt_and_print_as_their_reports(tmp_path: Path) -> None:
    """For every class that a public function gives."""
    m, n = (dx.trace(f, "f32[4,4]", "f32[4,4]") for f in (lambda x, y: dx.xp.exp(x @ y) - 1, lambda x, y: dx.xp.sin(x @ y)))
    inputs = {"x": np.eye(4, dtype=np.float32), "y": np.ones((4, 4), np.float32)}
    compiled = dx.compile(m, engine="numpy", optimize=False, profile=True)
    compiled(**inputs)
    first, last = m.entry.nodes[2], m.entry.results[0]
    shown = [
        dx.info(m), dx.diff(m, n), dx.diff(m, n, as_written=True), dx.why(m), dx.why(m, first, last, pipeline=""),
        dx.check(m, ["ops<=1", "ops<=99"]), dx.equivalent(m, n, inputs), dx.explain_nan(m, inputs), dx.explain_error(m, inputs),
        dx.bisect(m, samples=1), dx.memory(), compiled, compiled.profile, dx.draw(m, format="svg"), dx.check_grad(m, samples=1),
        m, m.entry, first, compiled.inputs[0], dx.why(m, made="#3"), dx.distribute(n, {"data": 2}, engine="numpy"),
        dx.pipeline(dx.trace(lambda x, y: dx.xp.sum(dx.xp.exp(x @ y)), "f32[4,4]", "f32[4,4]"), 2, ["x"], microbatches=2),
    ]  # fmt: skip
    if has_native():
        shown.append(dx.build(m, tmp_path / "model.o"))
    assert {kind for kind in results() if not any(isinstance(v, kind) for v in shown)} <= {Executable, JitFunction, BuiltProgram}
    for value in shown:
        assert len(repr(value)) < 130 and "\n" not in repr(value), type(value)
        if isinstance(value, TextReport):
            assert str(value) == "\n".join(value.lines())
