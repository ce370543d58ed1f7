"""Functions of JAX as programs, compiled programs in their place, and programs as functions of JAX.

JAX is the one that the caller has imported. A function is lowered by JAX itself; the way back is an exported function of JAX whose
module is a portable artifact of ours, so that XLA compiles it as its own, and whose derivative is our gradient program.

Source: https://docs.jax.dev/en/latest/aot.html (staged functions), https://docs.jax.dev/en/latest/export/export.html.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, counted
from deepx_graph.interop.live import load
from deepx_graph.ir import Module
from deepx_graph.rewrite.specialise import specialise
from deepx_graph.runtime.compile import Compiled
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports, whole_types
from deepx_graph.session.programs import encoded, gradient
from deepx_graph.text import ReadOptions
from deepx_graph.types import TensorType, is_state

ARTIFACT = "mlirbc"
"""The format that exported functions hold."""
MAIN = "main"
"""The name of their entry."""


def imported() -> Any:
    """JAX, as the caller imported it. Raises UsageError where nobody did."""
    if "jax" not in sys.modules:
        raise UsageError(Diagnostic("JAX is not imported in this process", hint="import jax first"))
    return sys.modules["jax"]


def lowered(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any) -> Any:
    """The function for these arguments, lowered by JAX for processors; every leaf of the arguments is an input, used or not."""
    jax = imported()
    if not callable(function):
        raise UsageError(Diagnostic(f"no function is in an object of type {type(function).__name__}", expected="a function of JAX"))
    staged = jax.jit(function, keep_unused=True, **options).trace(*args, **kwargs)
    return staged.lower(lowering_platforms=("cpu",))


def from_jax(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Module:
    """The program of a function of JAX for arguments of these shapes and dtypes (arrays, or `jax.ShapeDtypeStruct`)."""
    return load(lowered(function, args, kwargs), None, ReadOptions()).module


class JitFunction:
    """A function of JAX that runs as a compiled program of ours: the same pytrees in and out, with numpy arrays for leaves.

    It is compiled once for each combination of trees, shapes, dtypes and static arguments. Within transformations of JAX (`jit`,
    `grad`, `vmap`) it is the function itself.
    """

    def __init__(self, function: Callable[..., Any], compile: Callable[[Module], Compiled], static: Sequence[str]) -> None:
        self._function, self._compile = function, compile
        self._static = frozenset(static)
        self._programs: dict[Any, tuple[Compiled, Any]] = {}
        self._parameters = _parameters(function, self._static)
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<jit of {getattr(self._function, '__name__', 'a function')}: {len(self._programs)} compiled>"

    @property
    def programs(self) -> tuple[Compiled, ...]:
        """What was compiled so far, one for each combination, in order."""
        return tuple(compiled for compiled, _ in self._programs.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the function. Raises as JAX does while it is traced, RunError and VerifyError where it cannot run."""
        jax = imported()
        dynamic, static = self._split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(dynamic)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._function(*args, **kwargs)
        key = (tree, static, tuple(map(_signature, leaves)))
        if key not in self._programs:
            staged = lowered(self._function, args, kwargs, static_argnames=tuple(self._static) or None)
            self._programs[key] = self._compile(load(staged, None, ReadOptions()).module), staged.out_info
        compiled, out = self._programs[key]
        found = iter(compiled(*(_bits(jax, leaf) for leaf in leaves)))
        return jax.tree_util.tree_map(lambda info: _as_declared(jax, info, next(found)), out)

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[tuple[str, Any], ...]]:
        """The arguments that are traced, as a tree, and those that are not, by name."""
        if not self._static:
            return (args, kwargs), ()
        named = dict(zip(self._parameters, args, strict=False))
        static = tuple(sorted((n, v) for n, v in (named | kwargs).items() if n in self._static))
        kept = tuple(a for n, a in zip([*self._parameters, *([""] * len(args))], args, strict=False) if n not in self._static)
        return (kept, {n: v for n, v in kwargs.items() if n not in self._static}), static


def _parameters(function: Callable[..., Any], static: frozenset[str]) -> tuple[str, ...]:
    """The names of positional parameters. Raises UsageError for a static one that there is not."""
    if not static:
        return ()
    parameters = inspect.signature(function).parameters
    for name in static:
        if name not in parameters:
            known = ", ".join(parameters) or "no parameters"
            raise UsageError(Diagnostic(f"the function has no parameter '{name}'", expected=known))
    return tuple(n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def names_at(function: Callable[..., Any], places: Sequence[int]) -> tuple[str, ...]:
    """The names of positional parameters by their numbers, from the end where negative. Raises UsageError where there is none."""
    if not places:
        return ()
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for k in places:
        if not -len(names) <= k < len(names):
            raise UsageError(Diagnostic(f"the function has no parameter number {k}", expected=f"a number below {len(names)}"))
    return tuple(names[k] for k in places)


def _signature(leaf: Any) -> Any:
    """What a program is compiled for: shape and dtype of an array; the type alone of a Python number, whose dtype is weak."""
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) if dtype is None else (tuple(leaf.shape), dtype)


def _bits(jax: Any, leaf: Any) -> Any:
    """An argument as an array; a key of random numbers as its words."""
    if hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return leaf


def _as_declared(jax: Any, info: Any, value: Any) -> Any:
    """A result as JAX declares it."""
    if jax.dtypes.issubdtype(info.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(jax.numpy.empty((), info.dtype)))
    return value


def to_jax(module: Module) -> Callable[..., tuple[Any, ...]]:
    """A function of JAX that computes what the module's entry does, from arrays by position or by name to a tuple of arrays.

    XLA compiles it as part of what calls it. Sizes that the module leaves open are those of each call. Its reverse derivative is
    the gradient program, of any order. Under `vmap` it is called once for each item of the batch, in a loop.

    Raises UsageError where JAX is not imported, or where an input or result is no tensor; when called, VerifyError, with the place,
    for what StableHLO cannot express or what has no gradient.
    """
    jax = imported()
    ports = input_ports(module.entry)
    _check_tensors(module, (*ports, *output_ports(module.entry)))

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def once(*arrays: Any) -> tuple[Any, ...]:
        return tuple(exported(jax, module, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]).call(*arrays))

    call = jax.custom_vjp(once)

    def forward(*arrays: Any) -> tuple[Any, Any]:
        return call(*arrays), arrays

    def backward(arrays: tuple[Any, ...], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        given = [c for c in cotangents if c.dtype != jax.dtypes.float0]
        found = iter(to_jax(gradient(module))(*arrays, *given))
        return tuple(next(found) if jax.numpy.issubdtype(a.dtype, jax.numpy.inexact) else None for a in arrays)

    once.def_vmap(partial(_one_by_one, jax, once))
    call.defvjp(forward, backward)

    def function(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = call(*(jax.numpy.asarray(a) for a in _by_position(ports, args, kwargs)))
        return found

    function.__name__ = module.entry.name
    function.__doc__ = f"{module.entry!r} as a function of JAX."
    return function


def _one_by_one(jax: Any, once: Callable[..., Any], size: int, batched: Sequence[bool], *arrays: Any) -> tuple[Any, Sequence[bool]]:
    """The results for a batch, and that they are batches: a rule of `jax.custom_batching.custom_vmap`."""

    def item(several: Sequence[Any]) -> Any:
        given = iter(several)
        return once(*(next(given) if many else array for array, many in zip(arrays, batched, strict=True)))

    found = jax.lax.map(item, [array for array, many in zip(arrays, batched, strict=True) if many])
    return found, (True,) * len(found)


def _check_tensors(module: Module, ports: Sequence[Port]) -> None:
    """Raises UsageError for what is no array of JAX."""
    for port in ports:
        if not isinstance(port.type, TensorType):
            raise UsageError(Diagnostic(f"'{port.name}' is of type {port.type}", module.entry.span, expected="tensors in and out"))
    wide = next((p for p in ports if isinstance(p.type, TensorType) and p.type.dtype.name in ("f64", "i64", "u64", "c128")), None)
    if wide is not None and not imported().config.jax_enable_x64:
        raise UsageError(Diagnostic(f"'{wide.name}' is of type {wide.type}, and JAX is set to types of 32 bits", module.entry.span,
                                    hint="jax.config.update('jax_enable_x64', True)"))
    if any(is_state(t) for t in module.entry.type.params):
        raise UsageError(Diagnostic(f"'{module.entry.name}' has effects, such as printing", module.entry.span,
                                    expected="a program of values alone"))


def _by_position(ports: Sequence[Port], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in the order of the inputs. Raises UsageError for what is missing or not known."""
    given = dict(zip((p.name for p in ports), args, strict=False)) | dict(kwargs)
    names = [p.name for p in ports]
    if len(args) > len(ports) or set(given) != set(names):
        raise UsageError(Diagnostic(f"{counted(len(args) + len(kwargs), 'input is', 'inputs are')} given",
                                    expected=", ".join(f"{p.name}: {p.type}" for p in ports)))
    return [given[n] for n in names]


def exported(jax: Any, module: Module, types: Sequence[Any]) -> Any:
    """The module as an exported function of JAX for inputs of these shapes and dtypes, here of the platform that JAX runs on.

    JAX fills in its own part, by exporting a function of the same types; the module in it is ours.
    """
    arrays = [np.broadcast_to(np.zeros((), t.dtype), t.shape) for t in types]
    module = specialise(module, whole_types(module.entry, bind(input_ports(module.entry), arrays, {})))
    results = [(p.type.shape, p.type.dtype.np) for p in output_ports(module.entry) if isinstance(p.type, TensorType)]
    export = importlib.import_module("jax.export")

    def shell(*inputs: Any) -> tuple[Any, ...]:
        return tuple(jax.numpy.zeros(shape, dtype) for shape, dtype in results)

    template = export.export(jax.jit(shell, keep_unused=True))(*types)
    return replace(template, fun_name=module.entry.name, mlir_module_serialized=encoded(_as_main(module), ARTIFACT))


def _as_main(module: Module) -> Module:
    """The module whose entry is called `main`, as exported functions have it. Raises UsageError where another function is."""
    entry = module.entry
    if entry.name == MAIN:
        return module
    if MAIN in module:
        raise UsageError(Diagnostic(f"'{MAIN}' is not the entry", module[MAIN].span, expected="no other function of that name"))
    return replace(module.with_functions(f.with_(name=MAIN) if f is entry else f for f in module.functions), entry_name=MAIN)
