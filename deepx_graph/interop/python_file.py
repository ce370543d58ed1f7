"""A program that a Python file of the user's makes: `FILE.py:NAME`, or `FILE.py:NAME(f32[2,3], f32[3])`.

The file is run, with all rights of the user: this happens only where a command was given such a name.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, is_interrupt, printable, suggest
from deepx_graph.interop.live import KINDS, load
from deepx_graph.ir import Module
from deepx_graph.runtime.inputs import Port
from deepx_graph.session.inputs import shaped
from deepx_graph.session.programs import Loaded
from deepx_graph.text import ReadOptions
from deepx_graph.types import F32, TensorType

_NAME = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(?:\((?P<types>.*)\))?", re.DOTALL)
_TYPE = re.compile(r"[^,\[\]]+(?:\[[^\]]*\])?")


class EntryName(NamedTuple):
    """A name in a Python file, and the types of its arguments where they are given."""

    file: str
    name: str
    types: str | None


def named(text: str) -> EntryName | None:
    """What `FILE.py:NAME(TYPES)` says; None for other texts."""
    found = _NAME.fullmatch(text)
    return EntryName(*found.group("file", "name", "types")) if found else None


def load_named(what: EntryName, options: ReadOptions) -> Loaded:
    """The program that a name in a Python file stands for.

    That is a module, an object that `live.load` takes, or a function: without parameters one that gives such a thing, else one to
    be traced, for arguments of the types given, of its defaults, or of its annotations as texts. Runs the file. Raises UsageError
    for a file that fails, for a name that there is not, and for an argument of unknown type; else as `live.load`.
    """
    module = run_file(what.file)
    value = getattr(module, what.name, None)
    if value is None:
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise UsageError(Diagnostic(f"{what.file} has no '{what.name}'", expected=", ".join(names[:20]) or None,
                                    hint=suggest(what.name, names)))
    if callable(value) and not _is_program(value):
        function, args = value, _arguments(what, value)
        value = _guarded(what.file, lambda: _traced(function, args) if args else function())
    return Loaded(value) if isinstance(value, Module) else load(value, None, options)


def _is_program(value: object) -> bool:
    return isinstance(value, Module) or any(all(hasattr(value, m) for m in kind.methods) for kind in KINDS)


def _traced(function: Callable[..., Any], args: Sequence[Any]) -> Module:
    """The program of the function: of JAX where the file uses JAX, else of arrays."""
    from deepx_graph.array_api.trace import trace
    from deepx_graph.interop import jax

    return jax.from_jax(function, args, {}) if "jax" in sys.modules else trace(function, args, {})


def run_file(file: str) -> ModuleType:
    """The module that a file makes; what stands beside the file can be imported in it, as when Python runs it.

    Raises UsageError, with the line, where it fails.
    """
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"cannot read '{printable(file)}': no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(Diagnostic(f"'{printable(file)}' is no file of Python", expected="FILE.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    _guarded(file, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _guarded(file: str, run: Callable[[], Any]) -> Any:
    """What the user's code gives. Raises UsageError, with the line of the file, where it fails."""
    try:
        return run()
    except (Exception, SystemExit) as e:
        if is_interrupt(e):
            raise
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if Path(f.filename).name == Path(file).name]
        place = f"{file}:{lines[-1]}" if lines else file
        raise UsageError(f"{place}: {type(e).__name__}: {e}") from e


def _arguments(what: EntryName, function: Callable[..., Any]) -> list[Any]:
    """Arguments of the types given, without memory of their size. Raises UsageError for one of which nothing is known."""
    if what.types is not None:
        return [_array(f"argument {k}", text) for k, text in enumerate(_TYPE.findall(what.types))]
    found: list[Any] = []
    for name, p in inspect.signature(function).parameters.items():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY):
            continue
        if p.default is not p.empty:
            found.append(p.default)
        elif isinstance(p.annotation, str) and "[" in p.annotation:
            found.append(_array(name, p.annotation.strip("'\"")))
        else:
            raise UsageError(Diagnostic(f"the type of '{name}' of '{what.name}' is not known",
                                        expected=f"{what.file}:{what.name}(f32[2,3], ...)",
                                        hint="or a default value, or an annotation such as x: 'f32[2,3]'"))
    return found


def _array(name: str, text: str) -> Any:
    type = shaped(Port(name, TensorType(F32, None)), text.strip())
    return np.broadcast_to(np.zeros((), type.dtype.np), type.shape)
