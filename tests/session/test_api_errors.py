"""Only errors of this package leave its public functions, whatever they are given."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import api, ops
from deepx_graph.errors import DeepxGraphError
from tests.support.paths import ROOT

MODULE = dx.loads("anf 1\n(entry @main)\n(define public (@main (%x : f32[2,n])) -> ((%y : f32[2,n]))\n"
                  "  (let (%y : f32[2,n] (sine %x))\n  (values %y)))\n", "anf")  # fmt: skip
TEXT = "HloModule m\nENTRY e { ROOT x = f32[] constant(1) }"
ODD: tuple[Any, ...] = (None, 3, -1, 1.5, "", "nosuch", b"\xff\xfe", "a\0b", ["x"], {"x": 1}, object(), 1 << 70)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]] = {
    "compile": (dx.compile, (MODULE,), ("module", "engine", "threads", "entry", "seed", "data_root", "max_bytes", "infeed",
                                        "replicas", "partitions")),
    "custom_vjp": (dx.custom_vjp, (MODULE, "main", "main"), ()),
    "distribute": (dx.distribute, (MODULE,), ("module", "mesh", "plan", "on", "engine", "threads")),
    "draw": (dx.draw, (MODULE,), ("path", "format")),
    "dumps": (dx.dumps, (MODULE,), ("format", "dialect")),
    "grad": (dx.grad, (MODULE,), ("wrt", "loop", "budget")),
    "hvp": (dx.hvp, (MODULE,), ("wrt",)),
    "jvp": (dx.jvp, (MODULE,), ("wrt",)),
    "load": (dx.load, ("x.hlo",), ("source", "format", "weights", "max_nodes", "max_file_bytes", "data_root")),
    "load_compiled": (dx.load_compiled, ("x.hlo",), ("path",)),
    "loads": (dx.loads, (TEXT,), ("text", "format", "weights", "max_nodes",
                                                                                "max_file_bytes", "data_root")),
    "memory": (dx.memory, (), ("free",)),
    "optimize": (dx.optimize, (MODULE,), ("pipeline",)),
}  # fmt: skip
ELSEWHERE = {"bisect": "tests/validation", "equivalent": "tests/session/test_equivalence.py", "explain_error": "tests/numerics",
             "explain_nan": "tests/numerics", "check_grad": "tests/session/test_gradcheck.py",
             "build": "writes files, as `deepx-graph build` does", "pipeline": "tests/session/test_pipelined.py",
             "register_custom_call": "takes a function, and registers it",
             "from_jax": "tests/interop", "jit": "tests/interop", "to_jax": "tests/interop", "trace": "tests/array_api",
             **dict.fromkeys(("check", "diff", "info", "run", "why"), "tests/session/test_public_names.py"),
             **{name: "tests/interop/test_plugins.py" for name in api.__all__ if name.startswith("register_c")}}


def test_every_public_function_is_here() -> None:
    assert set(api.__all__) == {*CALLS, *ELSEWHERE}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_are_reported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.hlo").write_text(TEXT)
    function, given, options = CALLS[name]
    for option in options:
        for odd in ODD:
            instead = option in ("path", "source", "text", "module") and name != "draw"
            try:
                function(odd) if instead else function(*given, **{option: odd})
            except DeepxGraphError:
                continue
            except Exception as e:
                raise AssertionError(f"{name}({option}={odd!r}): {type(e).__name__}: {e}") from e



# --- every parameter of every public function

SMALL = dx.trace(lambda x: x * x + 1, "f32[2]")
NEEDED: dict[str, Any] = {
    "module": SMALL, "a": SMALL, "b": SMALL, "program": SMALL, "source": TEXT.encode(), "text": TEXT, "path": "out",
    "budget": "ops<=9", "function": lambda *args, **kwargs: dx.xp.asarray(1.0), "inputs": {"x": np.float32([1, 2])},
    "vjp_name": "main", "samples": 1, "count": 1, "make": lambda threads: None, "read": lambda source, options: SMALL,
    "stages": 1, "batch": ["x"], "write": lambda module: "",
    "show": lambda module, node: [], "target": "nothing", "op": ops.add, "rule": 0, "pass_": 0,
}  # fmt: skip
"""What stands for a parameter without a default, or one of how often, while another one is odd."""


def odd_values(folder: Path) -> list[Any]:
    """What fits no parameter by its type, or is a file with nothing in it, a folder, or no file at all."""
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    with open(folder / "empty") as closed:
        pass
    return [None, 123, -1, 1.5, float("nan"), [], ["x"], {"x": 1}, b"", b"\xff", object(), SMALL, (SMALL,), np.zeros(3), closed,
            int, *map(str, (folder / "empty", folder / "folder", folder / "nosuch")), ""]  # fmt: skip


@pytest.mark.parametrize("name", [n for n in dx.__all__ if inspect.isfunction(getattr(dx, n))])
def test_no_argument_leads_to_an_error_of_python(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a function that registers: what would be registered is left out."""
    monkeypatch.chdir(tmp_path)
    function, registers = getattr(dx, name), name.startswith("register_")
    taken = inspect.signature(function).parameters.values()
    wanted = {p.name for p in taken if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    wanted |= {p.name for p in taken} & {"samples", "count"}
    needed = {n: "main" if n == "name" else NEEDED[n] for n in wanted}
    for odd in odd_values(tmp_path):
        for p in taken:
            if p.kind is p.VAR_KEYWORD or (registers and (isinstance(odd, str) or callable(odd))):
                continue
            first = p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
            named = {k: v for k, v in needed.items() if k != p.name} | ({} if first else {p.name: odd})
            leading = [named.pop(q.name) for q in taken if q.name in named and q.kind is q.POSITIONAL_ONLY]
            if p.kind is p.VAR_POSITIONAL:
                leading += [named.pop(q.name) for q in taken if q.name in named and q.kind is q.POSITIONAL_OR_KEYWORD]
            with warnings.catch_warnings(action="ignore"):
                try:
                    function(*leading, *([odd] if first else []), **named)
                except DeepxGraphError:
                    continue
                except Exception as e:
                    raise AssertionError(f"{name}({p.name}={odd!r}): {type(e).__name__}: {e}") from e
    dx.register_custom_call("nothing", None)


def test_missing_and_unknown_arguments_are_slips() -> None:
    for call in (dx.load, lambda: dx.load("x", nosuch=1), lambda: dx.register_op(), lambda: dx.run()):
        with pytest.raises(dx.UsageError):
            call()


def test_odd_inputs_of_a_program_are_reported() -> None:
    compiled = dx.compile(MODULE, engine="numpy", optimize=False)
    for odd in (*ODD, np.zeros((3, 3)), np.array(["a"]), np.array([object()])):
        for arguments, named in (((odd,), {}), ((), {"x": odd}), ((odd, odd), {}), ((), {"nosuch": odd})):
            with pytest.raises(DeepxGraphError):
                compiled(*arguments, **named)


@pytest.mark.parametrize(("right", "wrong", "file"), [
    ("hlo", "stablehlo", "resnet18.hlo"), ("stablehlo", "hlo", "black_scholes.mlir"), ("deepx", "relay", "transformer_block.dx"),
])  # fmt: skip
def test_a_text_that_is_read_in_the_wrong_language_is_told_what_it_looks_like(right: str, wrong: str, file: str) -> None:
    text = (ROOT / "examples" / file).read_text()
    with pytest.raises(DeepxGraphError, match=f"this looks like {right}, and was read as {wrong}"):
        dx.loads(text, wrong)
