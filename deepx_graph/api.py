"""The public functions of the library, as `import deepx_graph as dx` offers them. Thin: the work is done on the floors below.

Arguments are held to their annotations, and only errors of this package leave. Engines and pictures are imported by the functions
that need them: who loads a program and looks at it needs neither.
"""

from __future__ import annotations

import copyreg
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, overload

from deepx_graph.errors import Diagnostic, UsageError, printable, suggest
from deepx_graph.interop import load_plugins
from deepx_graph.interop.public import public
from deepx_graph.ir import Builder as Builder
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.provided import provide
from deepx_graph.ops.host.custom_calls import register_custom_call
from deepx_graph.text import ReadOptions

if TYPE_CHECKING:
    from deepx_graph.interop.jax import JitFunction
    from deepx_graph.numerics.nonfinite import NonfiniteReport
    from deepx_graph.numerics.rounding import RoundingReport
    from deepx_graph.passes.fusion.reason import Reason
    from deepx_graph.runtime.aot.executable import Executable
    from deepx_graph.runtime.aot.program import BuiltProgram
    from deepx_graph.runtime.compile import Compiled
    from deepx_graph.runtime.memory.pool import MemoryUse
    from deepx_graph.session.cluster.pipelined import Pipelined
    from deepx_graph.session.cluster.sharded import OverMesh
    from deepx_graph.session.diagnose.bisection import Bisection
    from deepx_graph.session.equivalence import Equivalence
    from deepx_graph.session.gradcheck import GradCheck
    from deepx_graph.session.programs import Loaded, Watch
    from deepx_graph.session.report.diff import Difference
    from deepx_graph.session.report.figures import Judgement
    from deepx_graph.session.report.fusion import FusionReport
    from deepx_graph.session.report.info import ModuleInfo
    from deepx_graph.session.report.meaning import Meaning
    from deepx_graph.session.report.provenance import Provenance
    from deepx_graph.viz.draw import Drawing

def _bundle(value: object) -> dict[str, str]:
    from deepx_graph.session.show.picture import bundle

    return bundle(value)


def _find(where: Module | Function, query: str) -> list[Node]:
    from deepx_graph.session.query.language import parse_query

    return parse_query(query).nodes(where)


def _text(module: Module) -> str:
    from deepx_graph.session import programs

    return programs.dumps(module)


def _operate(name: str, *operands: Any) -> Node:
    """An operator on nodes and numbers, by the function of `dx.xp`."""
    from deepx_graph import array_api
    from deepx_graph.array_api.array import Array

    made: Array = getattr(array_api, name)(*(Array(o) if isinstance(o, Node) else o for o in operands))
    return made.node


provide(show=_bundle, find=_find, text=_text, operate=_operate)
load_plugins()


def _pickled(module: Module) -> tuple[Any, ...]:
    """A module pickles as text that reads back exactly, and what waits for inputs beside it."""
    from deepx_graph.session import pickling

    return pickling.reduced(module)


copyreg.pickle(Module, _pickled)


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


@public
def jit(function: Callable[..., Any], *, static_argnames: str | Sequence[str] = (), static_argnums: int | Sequence[int] = (),
        engine: str = "auto", threads: int | None = None) -> JitFunction:
    """The function of JAX, run as a compiled program of this library: the same trees in and out, numpy arrays for leaves.

    It is optimised and compiled when it is first called with arguments of some shapes and dtypes, and kept for those. Parameters in
    `static_argnames`, or by number in `static_argnums`, are Python values that the program is made for. `engine` and `threads` are
    as in `compile`. Inside transformations of JAX it is the function itself.

    Raises UsageError where JAX is not imported and for an unknown engine; when called, what `from_jax` and `compile` raise.

    >>> float(dx.jit(lambda x: {"y": x * 2})(np.float32(4))["y"])
    8.0
    """
    from deepx_graph.interop.jax import JitFunction, names_at

    places = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    static = (*(_names(static_argnames) or ()), *names_at(function, places))
    return JitFunction(function, lambda module: compile(module, engine=engine, threads=threads), static)


@public
def optimize(module: Module, pipeline: str | Sequence[Any] = "default", *, verify: bool | str = True,
             fast_math: bool = False) -> Module:
    """The module after a pipeline of passes: a name such as `default`, a text such as `cse,fuse{max-ops=64}`, or passes as objects.

    It is verified after every pass unless `verify` is false; with `verify="values"` every rewrite is checked by values, too, and a
    PassError names the first that changes what is computed. `fast_math` allows rewrites that change floating-point results
    slightly. Raises UsageError for an unknown pass or option, PassError when a pass fails, which leaves a file that
    `deepx-graph replay` takes and names it in a note.

    >>> dx.optimize(dx.trace(lambda x: (x + 0) * 1, "i32[3]")).entry.nodes
    (<param x: i32[3]>,)
    """
    from deepx_graph.session import programs

    return _optimised(module, pipeline, programs.Watch(bool(verify), verify == "values", fast_math=fast_math))


def _optimised(module: Module, pipeline: str | Sequence[Any], watch: Watch | None = None) -> Module:
    """The module after a pipeline; an internal error leaves a file that `deepx-graph replay` takes."""
    from deepx_graph.passes.pipeline import format_pipeline
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import reproducible

    def command(path: str) -> list[str]:
        passes: Any = pipeline
        text = passes if isinstance(passes, str) else format_pipeline(passes)
        return ["opt", path, "-p", text, *(["--fast-math"] if watch and watch.fast_math else [])]

    with reproducible(module, command):
        return programs.optimise(module, pipeline, watch).module


@public
def bisect(program: object, *args: Any, pipeline: str | None = None, inputs: Mapping[str, Any] | None = None, samples: int = 20,
           seed: int = 0, max_bytes: int | None = None, **kwargs: Any) -> Bisection:
    """Which pass of a compiler changed what a program computes, and at which operation; `.lines()` of the result reports it.

    `program` is a function made by `jax.jit`, with arguments for it: jaxlib compiles it in a child process (the Python that the
    environment variable DEEPX_GRAPH_JAX_PYTHON names, else this one). Or a module: then the passes of `pipeline` (`default`) are
    searched. Or the path of one module's dumps, or a list of files, the stages in order.

    Stages are run on the arguments, on `inputs` (arrays by name, of the shapes and dtypes of the parameters), or on `samples` sets
    drawn from `seed`, at the edges of types and sizes too; none may take more memory than `max_bytes`. The result has `.found`,
    `.kind` (such as `"wrong element"` or `"code generation"`), `.wrong` (the stage), `.departure` (the operations before and
    after), `.reproducer()` (the least module, and its inputs). Raises UsageError for a program that is none of these, RunError
    where XLA refuses it.

    >>> dx.bisect(dx.trace(lambda x: x * 2 + 1, "f32[4]"), samples=2).found
    False
    """
    from deepx_graph.session.diagnose import bisection

    drawn = bisection.Inputs(None if inputs is None else dict(inputs), samples, _natural("seed", seed))
    return bisection.bisect(program, args, kwargs, drawn, pipeline, max_bytes)


@public
def grad(module: Module, wrt: str | Sequence[str] | None = None, *, loop: str = "auto", budget: int | None = None) -> Module:
    """The gradient program: the entry's inputs, then one cotangent per floating or complex output, to the gradient of each floating
    or complex input (or those named in `wrt`), in order. Cotangents have the shapes and dtypes of their outputs, gradients those of
    their inputs.

    `loop` says how the backward part of a loop gets the values that it needs: `keep` stores those of every iteration; `recompute`
    stores only the loop's variables; `sqrt` recomputes in runs, with memory that grows with the square root of the number of
    iterations; `auto` is the first of them that stores at most `budget` bytes (1 GiB). Raises UsageError for an unknown input,
    VerifyError, with the place, for an operation without a gradient.

    >>> g = dx.grad(dx.trace(lambda x: x * x, "f32[2]"))
    >>> dx.run(g, np.float32([1, 2]), np.float32([1, 1]))
    (array([2., 4.], dtype=float32),)
    """
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import reproducible

    chosen = _names(wrt)
    options = ["--loop", loop, *([] if chosen is None else ["--wrt", ",".join(chosen)]),
               *([] if budget is None else ["--loop-budget", str(budget)])]
    with reproducible(module, lambda path: ["grad", path, *options]):
        return programs.gradient(module, chosen, loop, budget)


def _natural(name: str, value: int) -> int:
    if value < 0:
        raise UsageError(Diagnostic(f"{name} cannot be {value}", expected="a whole number that is not negative"))
    return value


def _names(wrt: str | Sequence[str] | None) -> Sequence[str] | None:
    return [wrt] if isinstance(wrt, str) else wrt


@public
def custom_vjp(module: Module, name: str, vjp_name: str) -> Module:
    """The module in which the function `name` names the function `vjp_name` as its derivative.

    The derivative takes the arguments of the function and one cotangent for each floating or complex result, and gives one for each
    floating or complex argument; `grad` checks that. Raises UsageError when there is no function of that name.

    >>> m = dx.trace(lambda x: x * x, "f32[3]")
    >>> twice = dx.Function("twice", *(lambda f: (f.params, f.results))(dx.grad(m).entry))
    >>> dx.custom_vjp(dx.Module((*m.functions, twice)), "main", "twice")["main"].vjp
    'twice'
    """
    from deepx_graph.session import programs

    return programs.with_derivative(module, name, vjp_name)


@public
def jvp(module: Module, wrt: str | Sequence[str] | None = None) -> Module:
    """The program of tangents: the entry's inputs, then one tangent per floating or complex input (or those named in `wrt`), to the
    tangent of each floating or complex output, in order. A tangent has the shape and dtype of its input or output.

    Raises UsageError for an unknown input, VerifyError, with the place, for an operation without a derivative.

    >>> t = dx.jvp(dx.trace(lambda x: x * x, "f32[2]"))
    >>> dx.run(t, np.float32([1, 2]), np.float32([1, 0]))
    (array([2., 0.], dtype=float32),)
    """
    from deepx_graph.passes.autodiff import jvp

    return jvp.jvp(module, _names(wrt))


@public
def hvp(module: Module, wrt: str | Sequence[str] | None = None) -> Module:
    """The program of Hessian-vector products: the inputs of the gradient program, then one tangent per input (or those named in
    `wrt`) as in `jvp`, to the tangents of the gradients, each of the shape and dtype of its input.

    Raises UsageError for an unknown input, VerifyError, with the place, for an operation without a second derivative.

    >>> h = dx.hvp(dx.trace(lambda x: x * x * x, "f32[]"))
    >>> dx.run(h, np.float32(2), np.float32(1), np.float32(1))
    (array(12., dtype=float32),)
    """
    from deepx_graph.passes.autodiff import jvp

    return jvp.hvp(module, _names(wrt))


@public
def compile(module: Module, *, optimize: bool = True, engine: str = "auto", threads: int | None = None, entry: str | None = None,
            seed: int = 0,
            data_root: str | Path | None = None, max_bytes: int | None = None, infeed: Any = None, out: TextIO | None = None,
            profile: bool = False, replicas: int = 1, partitions: int = 1, vector_bits: int | None = None,
            deterministic: bool = False) -> Compiled:
    """A callable: numpy arrays in, a tuple of numpy arrays out; `.inputs` and `.outputs` have names and types (shape and dtype).

    Arrays come by position or name, and have exactly the shapes and dtypes of the inputs, where sizes are known; a Python number
    does for one of rank 0. The program is optimised by the pipeline `default` first; with `optimize=False` it is run as it stands,
    which is right for the result of `optimize`. `engine` is `numpy`, `numexpr`, `native` or `auto`, `entry` another function to
    run, `max_bytes` the memory that a run may take (half of the machine's). `seed` is for random numbers that the program leaves
    unseeded, `out` where it prints, `data_root` the only folder whose files it may read and write. `profile` measures every kernel;
    the result is in `.profile`.

    `infeed` is an iterable of arrays, or of tuples of arrays, for infeed operations; what the last call put out is in `.outfeed`.
    With several `replicas` or `partitions` the program runs on that many simulated devices, which meet in its collectives: an
    input is one array for all devices or a list of one for each (replica by replica), and the result is a tuple of one tuple for
    each device; `infeed` is then a list of one iterable for each. `vector_bits` (128, 256, 512) holds machine code to vectors
    narrower than the machine's. `deterministic` gives the same bits for any number of threads. Without llvmlite, `auto` says once,
    as a Python warning, what is missing.

    Raises UsageError for an unknown engine or entry, RunError for what the engine does not run; when called, RunError for inputs
    that are missing or do not fit, LimitError for more memory than `max_bytes`.

    >>> f = dx.compile(dx.trace(lambda x: x * x, "f32[3]"), engine="numpy")
    >>> f(np.float32([1, 2, 3])), [(p.name, str(p.type)) for p in f.inputs]
    ((array([1., 4., 9.], dtype=float32),), [('x', 'f32[3]')])
    """
    from deepx_graph.runtime.compile import compile as runtime_compile
    from deepx_graph.runtime.specialise import is_fixed
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import inputs_of, leave, reproducible

    if engine == "auto":
        _tell_of_native()
    module = module if entry is None else module.with_entry(entry)
    pipeline = "default" if optimize and is_fixed(module) else ""
    if optimize and not pipeline:  # once, and not for each type that it is called with
        module = _optimised(module, "default")
    options = ["-p", pipeline, "--engine", engine, "--seed", str(seed), *([] if threads is None else ["--threads", str(threads)])]
    with reproducible(module, lambda path: ["run", path, "--random-inputs", *options]):
        compiled = runtime_compile(module, engine=engine, threads=threads, seed=seed, data_root=data_root, max_bytes=max_bytes,
                                   infeed=infeed, out=out, profile=profile, replicas=replicas, partitions=partitions,
                                   prepare=(lambda m: _optimised(m, pipeline)) if pipeline else None,
                                   prepared=programs.described(pipeline),
                                   vector_bits=vector_bits, deterministic=deterministic)
    if compiled.grid.count == 1:
        compiled.when_failing = lambda error, arrays, named: leave(
            error, module, lambda path: ["run", path, "--inputs", inputs_of(path), *options],
            {**dict(zip([p.name for p in compiled.inputs], arrays, strict=False)), **named})
    return compiled


@public
def distribute(module: Module, mesh: Mapping[str, int] | None = None, *, plan: str | None = None, on: str = "lockstep",
               engine: str = "auto", threads: int | None = None, seed: int = 0, deterministic: bool = False,
               patience: float | None = None, checkpoint: str | os.PathLike[str] | None = None,
               checkpoint_every: int | None = None) -> OverMesh:
    """A callable that runs a program on the devices of a mesh: whole numpy arrays in, a tuple of whole numpy arrays out.

    `plan` is the text of a plan, which says how values lie. Without one the shardings count that the program states, of any
    shapes and dtypes; where it states none over `mesh`, such as `{"data": 4, "model": 2}`, the plan of least predicted time is
    chosen. `on` is where the devices run: `lockstep`, in this process; `mpi`, each in a process that mpiexec has started, of which
    the first gets the results; `dask:ADDRESS`, each on a worker. `engine`, `threads` and `seed` are as in `compile`. `.plan` is
    the plan. `deterministic` gives the same bits for any number of threads, and over MPI those of lock step; a device waits for
    others for `patience` seconds (600).

    With a folder `checkpoint` the training loop of the program runs `checkpoint_every` (100) iterations at a time, and the loop's
    variables are saved between; the next call over the same folder goes on from there, on this mesh or another one.

    Raises UsageError where nothing says how values lie, for a place that there is not, and for a program without a loop to save,
    ParseError for a plan that does not fit; when called, as `compile`, and UsageError for a checkpoint of another program, of other
    inputs or another seed.

    >>> f = dx.distribute(dx.trace(lambda x: dx.xp.sum(x * x), "f32[8]"), {"data": 4}, engine="numpy")
    >>> f(np.ones(8, np.float32)), f.mesh.count
    ((array(8., dtype=float32),), 4)
    """
    from deepx_graph.session.over_mesh import MeshOptions, over_mesh

    if engine == "auto":
        _tell_of_native()
    where = MeshOptions(on, deterministic, patience, checkpoint, checkpoint_every)
    return over_mesh(module, mesh, plan, where, engine=engine, threads=threads, seed=seed)


@public
def pipeline(module: Module, stages: int, batch: Sequence[str], *, microbatches: int = 8, schedule: str = "1f1b", chunks: int = 1,
             mesh: Mapping[str, int] | None = None, plan: str | None = None, on: str = "lockstep", engine: str = "auto",
             threads: int | None = None, seed: int = 0, deterministic: bool = False, patience: float | None = None) -> Pipelined:
    """A callable that gives the results of a program and their gradients, by stages on so many devices and microbatches.

    It takes whole numpy arrays, of the shapes and dtypes of the program's inputs, and gives a list of results and a dictionary of
    gradients by the names of inputs, of the sum of all results. The inputs named in `batch`, which have no gradients, are cut along
    their first dimension into so many microbatches; results are sums over it, or linear in such. `schedule` is gpipe, 1f1b
    or interleaved, which has `chunks` stages on each device.

    With `mesh`, such as `{"data": 2, "model": 2}`, each of these devices is a mesh of its own, and how stages lie on it is chosen;
    `plan` is the text of a plan that says it for the whole program. The first axes of the mesh may carry copies of the pipeline,
    each with so many microbatches of its own. `.plan` says how it came out.

    `on` is `lockstep`, in this process, or `mpi`, each device in a process that mpiexec has started, of which the first gets all;
    the bits are the same with `deterministic`. Other options are as in `distribute`.

    Raises UsageError for a program that has no such stages, for a batch whose parts need one another, and for another schedule or
    place; when called, as `compile`, and RunError where a device does not come.

    >>> loss = dx.trace(lambda x, w, v: dx.xp.sum((x @ w) @ v), "f32[8,4]", "f32[4,6]", "f32[6,2]")
    >>> f = dx.pipeline(loss, 2, ["x"], microbatches=4, engine="numpy")
    >>> results, gradients = f(*(np.ones(p.type.shape, np.float32) for p in f.inputs))
    >>> results, sorted(gradients)
    ([array(384., dtype=float32)], ['v', 'w'])
    """
    from deepx_graph.planning.schedules import pipeline_schedule
    from deepx_graph.session import programs
    from deepx_graph.session.over_mesh import MeshOptions, asked_pipeline, mesh_of

    if engine == "auto":
        _tell_of_native()
    where, order = MeshOptions(on, deterministic, patience), pipeline_schedule(schedule, stages, microbatches, chunks)
    inlined, asked = asked_pipeline(module, list(batch), order, mesh_of(mesh), plan)
    return where.pipeline(inlined, asked, where.transport(asked.grid), engine=engine, threads=threads, seed=seed,
                          prepare=lambda m: programs.optimise(m).module)


@functools.cache
def _tell_of_native() -> None:
    """Once in a process: what the best engine lacks."""
    from deepx_graph.runtime.engines import WITHOUT_NATIVE, has_native

    if not has_native():
        warnings.warn(WITHOUT_NATIVE, stacklevel=4)


@public
def build(module: Module, path: str | os.PathLike[str], *, header: str | os.PathLike[str] | None = None,
          shared: str | os.PathLike[str] | None = None, optimize: bool = True, name: str = "model", cpu: str = "native",
          triple: str | None = None, entry: str | None = None, seed: int = 0, data_root: str | Path | None = None) -> BuiltProgram:
    """The module as object code for C, which needs neither Python nor this library: the file `path`, and a header beside it, or in
    `header`. The C function `NAME_run(in, out, workspace)` runs on one thread; the header has the sizes, types and shapes.

    The program is optimised by the pipeline `default` first, unless `optimize` is false. `cpu` is `native` (this machine), or a
    level of x86-64: `v2`, `v3`, `v4`; with `triple`, such as `aarch64-linux-gnu`, code for another machine. `shared` is a path for
    a shared library too, which `cc` links. `entry`, `seed` and `data_root` are as in `compile`.

    The result has `.workspace_bytes`, `.libraries`, `.inputs`, `.results`.

    Raises RunError, with the place, for what the native engine does not run as one machine function, or whose sizes are unknown;
    UsageError without llvmlite, for an unknown processor, for a name that C does not allow, and where there is no `cc`.

    >>> program = dx.build(dx.trace(lambda x: x * x, "f32[3]"), "square.o", name="square")
    >>> [str(p.type) for p in program.inputs], len(open("square.h").read()) > 0
    (['f32[3]'], True)
    """
    from deepx_graph.runtime.engines import require_native

    require_native("building ahead of time")
    from deepx_graph.runtime.aot import build as aot
    from deepx_graph.session import programs

    module = module if entry is None else module.with_entry(entry)
    module = programs.optimise(module).module if optimize else module
    more, library, root = (None if p is None else Path(p) for p in (header, shared, data_root))
    return aot.build(module, Path(path), header=more, shared=library, name=name, cpu=cpu, triple=triple, seed=seed, data_root=root)


@public
def load_compiled(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Executable:
    """The program that `Compiled.save` wrote to the file `path`: called as a compiled module is, with arrays of the shapes and
    dtypes that its `.inputs` name. Nothing is optimised or compiled.

    The file holds machine code, which runs with all rights of the process: load only what comes from where you trust. Raises
    UsageError without llvmlite, for a file that is damaged or no executable, and for one that another machine's processor is needed
    for; LimitError where what it needs beside inputs and results is more than `max_bytes` (half of the machine's memory).

    >>> dx.compile(dx.trace(lambda x: x * x, "f32[3]"), engine="native").save("square.bin")
    >>> dx.load_compiled("square.bin")(np.float32([1, 2, 3]))
    (array([1., 4., 9.], dtype=float32),)
    """
    from deepx_graph.runtime.compile import memory_limit
    from deepx_graph.runtime.engines import require_native

    require_native("running a saved executable")
    from deepx_graph.runtime.aot import executable

    return executable.load(Path(path), memory_limit() if max_bytes is None else max_bytes)


@public
def run(module: Module, /, *arrays: Any, engine: str = "auto", threads: int | None = None, seed: int = 0,
        **named: Any) -> tuple[Any, ...]:
    """The results of the program, a tuple of numpy arrays, for `arrays` by position and `named` ones, optimised and compiled for
    this one call. Arrays and options (`engine`, `threads`, `seed`) are as in `compile`; a result has the shape and dtype of its
    output.

    Raises RunError, before anything runs, for inputs that are missing or do not fit; else as `compile`.

    >>> dx.run(dx.trace(lambda x: x * x, "f32[3]"), np.float32([1, 2, 3]))
    (array([1., 4., 9.], dtype=float32),)
    """
    return compile(module, engine=engine, threads=threads, seed=seed)(*arrays, **named)


@public
def info(module: Module) -> ModuleInfo:
    """What a program takes, gives and is made of: `.functions`, each with inputs, outputs, operations and costs; `str` is the text.

    Sizes are in bytes, work in operations of arithmetic.

    Raises UsageError for what is no module.

    >>> dx.info(dx.trace(lambda x: x * x, "f32[3]")).flops
    3
    """
    from deepx_graph.session.report.info import module_info

    return module_info(module)


@public
def equivalent(a: Module, b: Module, inputs: Mapping[str, Any] | None = None, *, count: int = 8, seed: int = 0,
               max_bytes: int | None = None) -> Equivalence:
    """Whether two programs compute the same; false where they do not. `.kind` and `.evidence` say what that rests on.

    Equal canonical forms come first (`identical`). Then numbers: on `inputs` (arrays by name, of the shapes and dtypes of the
    parameters, within `max_bytes` of memory) and on `count` samples drawn from
    `seed`, at the edges of types too, in the programs' own precision and in double precision. Floats may differ by what rounding in
    every operation can make of an output, which is tried; no tolerance is chosen. `.witness` has inputs that show a difference,
    `.departure` the operation at which `b` departs from `a`. Raises UsageError where inputs or outputs do not correspond.

    >>> f, g, h = (dx.trace(f, "f32[4]") for f in (lambda x: x * 2, lambda x: x + x, lambda x: x * 2.001))
    >>> bool(dx.equivalent(f, g)), dx.equivalent(f, h).kind
    (True, 'different')
    """
    from deepx_graph.session.equivalence import equivalent as session_equivalent

    return session_equivalent(a, b, inputs, count=count, seed=seed, max_bytes=max_bytes)


@public
def explain_nan(module: Module, inputs: Mapping[str, Any], *, seed: int = 0, max_bytes: int | None = None) -> NonfiniteReport:
    """Runs the program, on `inputs`, and says which operations made the NaN and infinities of its outputs.

    `inputs` are arrays by name, of the shapes and dtypes of the parameters; `seed` and `max_bytes` are as in `compile`.

    `.origins` are these, in the order of the run, with element, operands, iteration and causes; `.harmless` counts those that
    reach no output; `.lines()` is the report. Raises what running raises.

    >>> f = dx.trace(lambda x: dx.xp.log(x) * 0, "f32[2]")
    >>> [o.node.op.name for o in dx.explain_nan(f, {"x": np.float32([1, 0])}).origins]
    ['multiply']
    """
    from deepx_graph.numerics.nonfinite import explain_nonfinite

    return explain_nonfinite(module, inputs, seed=seed, max_bytes=max_bytes)


@public
def explain_error(module: Module, inputs: Mapping[str, Any], *, store_as: str | None = None, seed: int = 0,
                  max_bytes: int | None = None) -> RoundingReport:
    """Runs the program, on `inputs`, beside itself in double precision, and says which operations lose digits.

    `inputs` are arrays by name, of the shapes and dtypes of the parameters; `seed` and `max_bytes` are as in `compile`.

    `.outputs` are names with relative errors, `.cancellations` the operations that make errors large, `.nodes` all operations with
    their own errors and what each adds to those of the outputs. `store_as` is an element type such as `bf16`: `.stored` of a node
    is then what storing that one value in it would do. Raises UsageError for a program that has nothing narrower than f64, and for
    an unknown element type.

    >>> f = dx.trace(lambda x: (x + 1000) - 1000, "f32[3]")
    >>> [n.node.op.name for n in dx.explain_error(f, {"x": np.float32([0.1, 0.2, 0.3])}).cancellations]
    ['subtract']
    """
    from deepx_graph.numerics.rounding import explain_rounding
    from deepx_graph.types import dtype_named, dtype_names

    if store_as is not None and store_as not in dtype_names():
        raise UsageError(Diagnostic(f"no element type '{printable(store_as)}'", expected="such as bf16 or f16",
                                    hint=suggest(store_as, dtype_names())))
    format = None if store_as is None else dtype_named(store_as)
    return explain_rounding(module, inputs, format=format, seed=seed, max_bytes=max_bytes)


@public
def diff(a: Module, b: Module, *, as_written: bool = False) -> Meaning | Difference:
    """What is different in the program `b` from the program `a`; false where nothing is.

    They are inlined, unfused and simplified first: `.verdict` says whether they are known to mean the same, `.difference` what is
    left. With `as_written` they are compared as they stand, and the result is the difference alone: `.changes`, `.same` (how many
    nodes correspond). `lines()` of either is the report.

    Raises UsageError for what is no module.

    >>> a, b = (dx.trace(lambda x: x * k, "f32[3]") for k in (2, 3))
    >>> bool(dx.diff(a, a)), len(dx.diff(a, b).difference.changes) > 0
    (False, True)
    """
    from deepx_graph.session.report import diff as as_they_stand
    from deepx_graph.session.report.meaning import compare_meaning

    return as_they_stand.diff(a, b) if as_written else compare_meaning(a, b)


@overload
def why(module: Module, a: None = None, b: None = None, *, pipeline: str = "clean", engine: str = "auto",
        threads: int | None = None) -> FusionReport: ...


@overload
def why(module: Module, a: str | Node, b: str | Node, *, pipeline: str = "clean", engine: str = "auto",
        threads: int | None = None) -> Reason: ...


@overload
def why(module: Module, *, made: str, pipeline: str = "clean") -> Provenance: ...


@public
def why(module: Module, a: str | Node | None = None, b: str | Node | None = None, *, made: str | None = None,
        pipeline: str = "clean", engine: str = "auto", threads: int | None = None) -> Reason | FusionReport | Provenance:
    """Why two nodes, `a` and `b`, are, or are not, in one kernel: `.fused`, `.kind`, `.message`. Without nodes, all kernels and
    refusals; `lines()` is the report.

    With `made`, a name or an address after the pipeline: which rewrites made that node, `.steps`, each with its sides.

    A node is one of the module, its name, or an address such as `#17`. `pipeline` are the passes before fusion, as long as they
    leave both nodes; `engine` and `threads` are those that run the kernels, as in `compile`. Raises UsageError for one node alone,
    and for one that there is not.

    >>> m = dx.trace(lambda x: dx.xp.sin(x * x), "f32[8]")
    >>> (product,), (sine,) = m.find("op:multiply"), m.find("op:sine")
    >>> dx.why(m, product, sine, pipeline="").fused
    True
    """
    from deepx_graph.session.report.fusion import fusion_report
    from deepx_graph.session.report.placing import Placing

    if made is not None:
        from deepx_graph.session.report.provenance import provenance

        return provenance(module, made, pipeline)
    passed = optimize(module, pipeline) if pipeline else module
    if a is None and b is None:
        return fusion_report(passed, engine, threads)
    if a is None or b is None:
        raise UsageError(Diagnostic("why takes two nodes, or none", hint="without nodes it reports on all kernels"))
    there = {n.name for f in passed.functions for n in f.nodes}
    stays = all(x in there or x.startswith("#") for x in (a, b) if isinstance(x, str)) and isinstance(a, str) and isinstance(b, str)
    return Placing(passed if stays else module, engine, threads).why(a, b)


@public
def check(module: Module, budget: str | Sequence[str], *, pipeline: str = "default") -> Judgement:
    """Whether a program stays within budgets after a pipeline: true when all hold; `.verdicts` has each with its value.

    A budget bounds a figure: `ops<=120`, `peak_bytes<=64M`, `ops.dot_general<=4`. Raises UsageError, with the nearest name, for
    an unknown figure, and for one that open sizes leave unknown.

    >>> m = dx.trace(lambda x: dx.xp.sin(x * x), "f32[8]")
    >>> bool(dx.check(m, budget="ops<=10")), bool(dx.check(m, budget=["ops<=10", "ops<1"]))
    (True, False)
    """
    from deepx_graph.session.report import figures

    budgets = [figures.parse_budget(text) for text in ([budget] if isinstance(budget, str) else budget)]
    if not budgets:
        raise UsageError(Diagnostic("nothing to check", expected="a budget, such as ops<=120"))
    on_mesh = None
    if any(b.figure in figures.MESH_FIGURES for b in budgets):
        from deepx_graph.session.plans import STATED, figures_on_mesh

        on_mesh = figures_on_mesh(module, STATED)
    return figures.Judgement(tuple(figures.judge(module, optimize(module, pipeline), budgets, on_mesh)))


@public
def check_grad(module: Module, wrt: str | Sequence[str] | None = None, *, seed: int = 0, samples: int = 3,
               data_root: str | Path | None = None) -> GradCheck:
    """The gradients of a program beside finite differences, along random directions; true where all agree, `str` is the table.

    `samples` sets of inputs, arrays of the shapes and dtypes of the parameters, are drawn from `seed`; floats are computed in
    double precision where that is possible. `wrt` is as in `grad`, `data_root` as in `compile`. `.inputs` has each input with its
    largest error.

    Raises UsageError for an unknown input and for open sizes, VerifyError, with the place, for an operation without a gradient.

    >>> bool(dx.check_grad(dx.trace(lambda x: dx.xp.sum(dx.xp.sin(x)), "f32[4]")))
    True
    """
    from deepx_graph.session.gradcheck import check_gradient

    root = None if data_root is None else Path(data_root)
    return check_gradient(module, _names(wrt), seed=_natural("seed", seed), samples=samples, data_root=root)


@public
def memory(*, free: bool = False) -> MemoryUse:
    """The memory that is kept for the arrays, of any shape and dtype, that programs give.

    Of the bytes kept, `in_use` are those of arrays in use, `free` are not; `limit` bounds both. With `free`, free memory is
    released first.

    Raises nothing.

    >>> dx.memory(free=True).free
    0
    """
    from deepx_graph.runtime.memory.pool import RESULTS

    if free:
        RESULTS.release()
    return RESULTS.use()


@public
def draw(module: Module, path: str | os.PathLike[str] | None = None, *, format: str | None = None, **options: Any) -> Drawing:
    """A picture of the module, written to `path` when given: DOT, SVG, PNG or HTML by `format`, or by the suffix of `path`.

    Of `options`, `function` draws one function, `around` (a name of the source, or an address such as `#17`) with `depth` only what
    lies near a node, `keep` only the nodes of these addresses. Above `max_nodes` boxes (by default 40) the picture is folded to so
    many; `collapse` draws a fused kernel as one box, `sideways` from left to right. `theme` is `light` or
    `dark`, for a page also `auto`; `title` and `legend` stand above the graph; `overlay` colours by `bytes`, `moved` or `flops`.

    Raises UsageError for an unknown format, theme, function or node, and for PNG without a layout engine; LayoutError when a PNG is
    not done within `timeout` seconds (20), where an SVG or a page falls back to a simple layout.

    >>> dx.draw(dx.trace(lambda x: x * x, "f32[3]"), format="dot").data[:7]
    b'digraph'
    """
    from deepx_graph.session.show.picture import picture

    return picture(module, path, format=format, **options)


__all__ = [
    "bisect", "build", "check", "check_grad", "compile", "custom_vjp", "diff", "distribute", "draw", "dumps", "equivalent",
    "explain_error", "explain_nan", "from_jax", "grad", "hvp", "info", "jit", "jvp",
    "load", "load_compiled", "loads", "memory", "optimize", "register_custom_call", "run", "to_jax", "trace", "why",
]  # fmt: skip
