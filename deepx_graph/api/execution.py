"""Programs compiled and run: at once, ahead of time, on several devices."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from deepx_graph.api.arguments import names
from deepx_graph.api.transforms import optimised
from deepx_graph.interop.public import public
from deepx_graph.ir import Module

if TYPE_CHECKING:
    from deepx_graph.interop.jax import JitFunction
    from deepx_graph.runtime.aot.executable import Executable
    from deepx_graph.runtime.aot.program import BuiltProgram
    from deepx_graph.runtime.compile import Compiled
    from deepx_graph.runtime.memory.pool import MemoryUse
    from deepx_graph.session.cluster.pipelined import Pipelined
    from deepx_graph.session.cluster.sharded import OverMesh


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
    from deepx_graph.rewrite.specialise import is_fixed
    from deepx_graph.runtime.compile import compile as runtime_compile
    from deepx_graph.session import programs
    from deepx_graph.session.diagnose.reproducer import inputs_of, leave, reproducible

    if engine == "auto":
        _tell_of_native()
    module = module if entry is None else module.with_entry(entry)
    pipeline = "default" if optimize and is_fixed(module) else ""
    if optimize and not pipeline:  # once, and not for each type that it is called with
        module = optimised(module, "default")
    options = ["-p", pipeline, "--engine", engine, "--seed", str(seed), *([] if threads is None else ["--threads", str(threads)])]
    with reproducible(module, lambda path: ["run", path, "--random-inputs", *options]):
        compiled = runtime_compile(module, engine=engine, threads=threads, seed=seed, data_root=data_root, max_bytes=max_bytes,
                                   infeed=infeed, out=out, profile=profile, replicas=replicas, partitions=partitions,
                                   prepare=(lambda m: optimised(m, pipeline)) if pipeline else None,
                                   prepared=programs.described(pipeline),
                                   vector_bits=vector_bits, deterministic=deterministic)
    if compiled.grid.count == 1:
        compiled.when_failing = lambda error, arrays, named: leave(
            error, module, lambda path: ["run", path, "--inputs", inputs_of(path), *options],
            {**dict(zip([p.name for p in compiled.inputs], arrays, strict=False)), **named})
    return compiled


@functools.cache
def _tell_of_native() -> None:
    """Once in a process: what the best engine lacks."""
    from deepx_graph.runtime.engines import WITHOUT_NATIVE, has_native

    if not has_native():
        warnings.warn(WITHOUT_NATIVE, stacklevel=4)


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
    static = (*(names(static_argnames) or ()), *names_at(function, places))
    return JitFunction(function, lambda module: compile(module, engine=engine, threads=threads), static)


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
