"""The engines by name. All give the same results; `numpy` is the reference and `auto` the one to use."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.runtime.engines.base import Engine


def _numpy(threads: int | None) -> Engine:
    from deepx_graph.runtime.engines.numpy_engine import NumpyEngine

    return NumpyEngine(threads)


def _numexpr(threads: int | None) -> Engine:
    from deepx_graph.runtime.engines.numexpr_engine import NumexprEngine

    return NumexprEngine(threads)


def _native(threads: int | None) -> Engine:
    require_native("the native engine", "auto or numexpr")
    from deepx_graph.runtime.engines.native_engine import NativeEngine

    return NativeEngine(threads)


def _auto(threads: int | None) -> Engine:
    return _native(threads) if has_native() else _numexpr(threads)


def has_native() -> bool:
    """Whether llvmlite, which the native engine needs, is installed."""
    return find_spec("llvmlite") is not None


WITHOUT_NATIVE = "programs run by numpy and numexpr; `pip install 'deepx-graph[native]'` for machine code, about ten times faster"
"""What is missing where `auto` has to do without."""


def require_native(what: str, instead: str = "") -> None:
    """Raises UsageError where llvmlite, which something needs, is not installed; `instead` is what does without."""
    if not has_native():
        use = f", or use {instead}" if instead else ""
        raise UsageError(Diagnostic(f"{what} needs llvmlite", hint=f"install deepx-graph[native]{use}"))


ENGINES: dict[str, Callable[[int | None], Engine]] = {"numpy": _numpy, "numexpr": _numexpr, "native": _native, "auto": _auto}
"""Name to maker; the modules are imported when their engine is first asked for."""


def get(name: str, threads: int | None = None) -> Engine:
    """The engine of that name with so many threads (None: as many as there are cores). Raises UsageError for an unknown one."""
    if name not in ENGINES:
        hint = suggest(name, ENGINES)
        raise UsageError(f"no engine '{name}'; there are {', '.join(ENGINES)}" + (f"; {hint}" if hint else ""))
    if threads is not None and threads < 1:
        raise UsageError(f"{threads} threads; at least 1 is needed")
    return ENGINES[name](threads)
