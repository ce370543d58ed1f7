"""Only errors of this package leave its public functions, whatever they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import api
from deepx_graph.errors import DeepxGraphError

MODULE = dx.loads("anf 1\n(entry @main)\n(define public (@main (%x : f32[2,n])) -> ((%y : f32[2,n]))\n"
                  "  (let (%y : f32[2,n] (sine %x))\n  (values %y)))\n", "anf")  # fmt: skip
ODD: tuple[Any, ...] = (None, 3, -1, 1.5, "", "nosuch", b"\xff\xfe", "a\0b", ["x"], {"x": 1}, object(), 1 << 70)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]] = {
    "compile": (dx.compile, (MODULE,), ("module", "engine", "threads", "entry", "seed", "data_root", "max_bytes", "infeed",
                                        "replicas", "partitions")),
    "custom_vjp": (dx.custom_vjp, (MODULE, "main", "main"), ()),
    "draw": (dx.draw, (MODULE,), ("path", "format")),
    "dumps": (dx.dumps, (MODULE,), ("format", "dialect")),
    "grad": (dx.grad, (MODULE,), ("wrt", "loop", "budget")),
    "hvp": (dx.hvp, (MODULE,), ("wrt",)),
    "jvp": (dx.jvp, (MODULE,), ("wrt",)),
    "load": (dx.load, ("x.hlo",), ("source", "format", "weights", "max_nodes", "max_file_bytes", "data_root")),
    "load_compiled": (dx.load_compiled, ("x.hlo",), ("path",)),
    "loads": (dx.loads, ("HloModule m\nENTRY e { ROOT x = f32[] constant(1) }",), ("text", "format", "weights", "max_nodes",
                                                                                "max_file_bytes", "data_root")),
    "memory": (dx.memory, (), ("free",)),
    "optimize": (dx.optimize, (MODULE,), ("pipeline",)),
}  # fmt: skip
ELSEWHERE = {"bisect": "tests/validation", "equivalent": "tests/session/test_equivalence.py", "explain_error": "tests/numerics",
             "explain_nan": "tests/numerics", "build": "writes files, as `deepx-graph build` does",
             "register_custom_call": "takes a function, and registers it",
             "from_jax": "tests/interop", "jit": "tests/interop", "to_jax": "tests/interop", "trace": "tests/array_api",
             **dict.fromkeys(("check", "diff", "info", "run", "why"), "tests/session/test_public_names.py"),
             **{name: "tests/interop/test_plugins.py" for name in api.__all__ if name.startswith("register_c")}}


def test_every_public_function_is_here() -> None:
    assert set(api.__all__) == {*CALLS, *ELSEWHERE}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_are_reported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.hlo").write_text("HloModule m\nENTRY e { ROOT x = f32[] constant(1) }")
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



def test_odd_inputs_of_a_program_are_reported() -> None:
    compiled = dx.compile(MODULE, engine="numpy", optimize=False)
    for odd in (*ODD, np.zeros((3, 3)), np.array(["a"]), np.array([object()])):
        for arguments, named in (((odd,), {}), ((), {"x": odd}), ((odd, odd), {}), ((), {"nosuch": odd})):
            with pytest.raises(DeepxGraphError):
                compiled(*arguments, **named)
