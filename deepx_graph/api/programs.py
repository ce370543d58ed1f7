"""Programs from files, texts, functions and other libraries, and as texts and functions again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.interop.public import public
from deepx_graph.ir import Module
from deepx_graph.text import ReadOptions

if TYPE_CHECKING:
    from deepx_graph.session.programs import Loaded


@public
def load(source: object, format: str | None = None, *, broadcast: bool = False, weights: str = "constants",
         max_nodes: int | None = None, max_file_bytes: int | None = None, data_root: str | Path | None = None,
         lengths: Mapping[str, int] | None = None) -> Module:
    """The program in a file, or in an object: the format is recognised by content unless it is given.

    `source` is a path, bytes, an open file, or an object of a library that the caller has imported: a traced, lowered, compiled or
    exported function of JAX, a module of MLIR, XLA or TVM, an `ExportedProgram` of torch, a `ModelProto` of ONNX or another
    protocol buffer. Names of scopes and places in the user's program are kept.

    `lengths` says how many items the inputs of an ONNX model have that are sequences, by name; -1 for an optional one without a
    value. `weights` says whether the weights in a MindIR, ONNX or torch.export file become `constants` or `inputs` of the entry.
    `max_nodes` and `max_file_bytes` bound what is read. `data_root` is the folder of the tensors that a deepx program loads, whose
    types are needed for reading. With `broadcast`, elementwise operands of different shapes are broadcast as numpy does, where the
    language is stricter.

    Tolerated irregularities of the text are issued as Python warnings. Raises ParseError, VerifyError and LimitError with file,
    line and column, UsageError when the file cannot be opened or the object has no program.

    >>> dx.load(b"HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }").entry
    <function e: (f32[2]) -> (f32[2])>
    """
    from deepx_graph.interop import live

    return _warned(live.load(source, format, _reading(broadcast, weights, max_nodes, max_file_bytes, data_root, lengths)))


@public
def loads(text: str | bytes | bytearray | memoryview, format: str | None = None, *, broadcast: bool = False,
          weights: str = "constants", max_nodes: int | None = None, max_file_bytes: int | None = None,
          data_root: str | Path | None = None, lengths: Mapping[str, int] | None = None) -> Module:
    """The program in a text, or in the bytes of a binary file; otherwise, in its options and in what it raises, as `load`.

    Raises ParseError, VerifyError and LimitError with line and column; UsageError for an unknown format.

    >>> dx.loads("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }").entry
    <function e: (f32[2]) -> (f32[2])>
    """
    from deepx_graph.session import programs

    return _warned(programs.loads(text, format, _reading(broadcast, weights, max_nodes, max_file_bytes, data_root, lengths)))


def _reading(broadcast: bool, weights: str, max_nodes: int | None, max_file_bytes: int | None,
             data_root: str | Path | None, lengths: Mapping[str, int] | None) -> ReadOptions:
    if weights not in ("constants", "inputs"):
        raise UsageError(Diagnostic(f"weights cannot become '{weights}'", expected="constants | inputs"))
    usual = ReadOptions()
    return ReadOptions(broadcast=broadcast, weights=weights, lengths=dict(lengths or {}),
                       data_root=None if data_root is None else Path(data_root),
                       max_nodes=usual.max_nodes if max_nodes is None else max_nodes,
                       max_file_bytes=usual.max_file_bytes if max_file_bytes is None else max_file_bytes)


def _warned(loaded: Loaded) -> Module:
    for diagnostic in loaded.warnings:
        warnings.warn(diagnostic.render(), stacklevel=4)
    return loaded.module


@overload
def dumps(module: Module, format: Literal["onnx", "mlirbc", "hlo-proto"], **options: Any) -> bytes: ...


@overload
def dumps(module: Module, format: str | None = None, **options: Any) -> str: ...


@public
def dumps(module: Module, format: str | None = None, **options: Any) -> str | bytes:
    """The module as text: `sea`, `hlo`, `stablehlo`, `relay`, `anf`, `cps`, or `deepx` with, of `options`, `dialect="seed"`,
    `"wire"` or `"function"`; by default in the format that it was read from. `onnx`, `mlirbc` and `hlo-proto` are
    bytes.

    Raises UsageError for an unknown format, VerifyError, naming the node, for what the format cannot express.

    >>> print(dx.dumps(dx.trace(lambda x: x * x, "f32[3]"), "hlo"))  # doctest: +ELLIPSIS
    HloModule main, entry_computation_layout=...
    """
    from deepx_graph.session import programs
    from deepx_graph.text import FORMATS

    if format in FORMATS and FORMATS[format].binary:
        return programs.encoded(module, format, **options)
    return programs.dumps(module, format, **options)


@public
def from_jax(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Module:
    """The program of a function of JAX for arguments of these shapes and dtypes: arrays, `jax.ShapeDtypeStruct`, trees of them.

    Every leaf of the arguments is an input, in the order of JAX. The function is traced and not run. Raises UsageError where JAX is
    not imported, what JAX raises for a function that it cannot trace, else as `load`.

    >>> dx.from_jax(lambda x: jax.numpy.sin(x) * 2, np.float32([1, 2, 3])).entry
    <function main: (f32[3]) -> (f32[3])>
    """
    from deepx_graph.interop import jax

    return jax.from_jax(function, args, kwargs)


@public
def trace(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Module:
    """The program that a function of arrays is, written with `dx.xp`, operators, or functions of numpy.

    It is run once, on arrays without values. Arrays among the arguments, texts such as `f32[2,3]`, and those in nested tuples,
    lists and dicts are inputs, named as the parameters, of the shape and dtype of the array or the text; other arguments are as
    they are. What is not given is the type that an annotation says, or the default. Results are the arrays in what the function
    gives, in order; dicts name them.

    Raises UsageError, with the line, where the function asks for the value of an array, and for an argument of which nothing is
    known; VerifyError where shapes do not fit.

    >>> dx.trace(lambda x, w: {"y": np.tanh(x @ w)}, "f32[2,3]", "f32[3,4]").entry
    <function main: (f32[2,3], f32[3,4]) -> (f32[2,4])>
    """
    from deepx_graph.array_api.trace import trace as traced

    return traced(function, args, kwargs)


@public
def to_jax(module: Module) -> Callable[..., tuple[Any, ...]]:
    """A function of JAX that computes what the module's entry does: arrays by position or name in, a tuple of arrays out.

    Arrays have the shapes and dtypes of the entry's parameters and results. XLA compiles it as part of what calls it; `jax.grad`
    gives it the module's own gradient program, of any order. Sizes that the module leaves open are those of each call. Raises
    UsageError where JAX is not imported and for inputs and results that are no tensors; when called, VerifyError, with the place,
    for what StableHLO cannot express.

    >>> f = dx.to_jax(dx.trace(lambda x: x * x, "f32[]"))
    >>> float(f(np.float32(3))[0]), float(jax.grad(lambda x: f(x)[0])(np.float32(3)))
    (9.0, 6.0)
    """
    from deepx_graph.interop import jax

    return jax.to_jax(module)
