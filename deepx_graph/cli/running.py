"""The command that runs a program: inputs from files, outputs to an archive or the terminal, a profile on request."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from deepx_graph.cli.meshes import add_pipeline, mesh_asked, pipeline_asked
from deepx_graph.cli.options import Arguments, count, named_values, read_program, seconds, watch
from deepx_graph.cli.output import check_suffix, emit, emit_json, emit_report, say
from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError, printable, suggest
from deepx_graph.progress import stage

if TYPE_CHECKING:
    from deepx_graph.ir import Module
    from deepx_graph.ir.collective import Grid
    from deepx_graph.literal import Array
    from deepx_graph.numerics.nonfinite import NonfiniteReport
    from deepx_graph.numerics.rounding import RoundingReport
    from deepx_graph.runtime.compile import Compiled
    from deepx_graph.runtime.inputs import Port
    from deepx_graph.session.over_mesh import MeshOptions, OverDevices
    from deepx_graph.session.programs import Loaded
    from deepx_graph.text.common.options import Recorded

T = TypeVar("T")


def named_inputs(wanted: Mapping[str, T], devices: int) -> dict[str, T]:
    """All names under which inputs may be given: their own, and that of each device."""
    each = {f"{name}@{d}": fact for name, fact in wanted.items() for d in range(devices)} if devices > 1 else {}
    return {**wanted, **each}


def gathered(found: dict[str, Any], wanted: Sequence[str], devices: int) -> dict[str, Any]:
    """The inputs by their own names: a list where one is given for each device. Raises UsageError where one is missing."""
    if devices == 1:
        return found
    inputs: dict[str, Any] = {}
    for name in wanted:
        each = [found.get(f"{name}@{d}", found.get(name)) for d in range(devices)]
        missing = [d for d, value in enumerate(each) if value is None]
        if 0 < len(missing) < devices:
            raise UsageError(Diagnostic(f"input '{name}' is not given for device {missing[0]}", expected=f"{name}@{missing[0]}, or "
                                        f"{name} for all devices that have none of their own"))
        if not missing:
            inputs[name] = found[name] if all(value is found.get(name) for value in each) else each
    return inputs


def spread(results: Sequence[Any], names: Sequence[str], devices: int) -> dict[str, Array]:
    """The outputs by name, those of several devices as `NAME@0`, `NAME@1`, ..."""
    if devices == 1:
        return dict(zip(names, results, strict=True))
    return {f"{name}@{d}": results[d][k] for k, name in enumerate(names) for d in range(devices)}


def read_infeed(path: str | None, devices: int, max_bytes: int | None) -> Any:
    """The arrays of an archive in their order; on several devices those named `NAME@1` for device 1. Raises UsageError."""
    from deepx_graph.session.inputs import read_npz
    from deepx_graph.text.common.cursor import whole

    if path is None:
        return None
    arrays, _ = read_npz(path, None, max_bytes)
    if devices == 1:
        return list(arrays.values())
    feeds: list[list[Array]] = [[] for _ in range(devices)]
    for name, array in arrays.items():
        device = whole(name.rpartition("@")[2])
        if device is None or device >= devices:
            raise UsageError(Diagnostic(f"'{name}' in {path} names no device", expected=f"NAME@0 to NAME@{devices - 1}"))
        feeds[device].append(array)
    return feeds


def outfeed_arrays(outfeed: Sequence[Any], devices: int) -> dict[str, Array]:
    """What a program put out: `0.0` and `0.1` are the arrays of the first time, `1.0` follows; `0.0@1` is on device 1."""
    each = [outfeed] if devices == 1 else outfeed
    return {
        f"{k}.{leaf}" + (f"@{d}" if devices > 1 else ""): array
        for d, items in enumerate(each) for k, item in enumerate(items) for leaf, array in enumerate(item)
    }  # fmt: skip


WARM_RUNS = 5
"""Runs that a profile is taken of, after one that warms up."""

SNAPSHOT = ".pb"
"""How files end that a run is recorded in."""

SHOWN = 64
"""Elements of an output up to which the JSON report has its values."""


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.npz",
                        help="write the outputs, by name, instead of printing them; FILE.pb: a snapshot of program, inputs and "
                             "outputs, as XLA writes them; - is standard output")
    parser.add_argument("--profile", action="store_true", help="say what every kernel took")
    parser.add_argument("--trace", metavar="FILE.json", help="write the calls of kernels for Perfetto or chrome://tracing")
    parser.add_argument("--node-data", metavar="FILE.json", help="write the times of kernels as node data of Model Explorer")
    parser.add_argument("--repeat", type=count, default=1, metavar="N", help="run so many times, for the profile")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end with an error when it takes longer")
    parser.add_argument("--print-schedule", action="store_true", help="print the schedule before running")
    parser.add_argument("--print-plan", action="store_true", help="print the memory plan before running")
    parser.add_argument("--digest", action="store_true", help="print a SHA-256 of each output instead of its elements")
    parser.add_argument("--explain-nan", action="store_true", help="say which operations make the NaN and infinities of outputs")
    parser.add_argument("--explain-error", action="store_true", help="say which operations lose digits, beside double precision")
    add_pipeline(parser)
    parser.add_argument("--what-if", metavar="FLOAT", help="with --explain-error: what storing one value as bf16, f16, ... does")


def run_run(args: Arguments) -> int:
    from deepx_graph.session.cluster.launch import MPI

    # processes of MPI have a deadline each, once all of them are there
    with _ending_together(args), deadline(None if args.on == MPI else args.timeout):
        return _run(args)


@contextlib.contextmanager
def deadline(limit: float | None) -> Iterator[None]:
    """Raises RunError, in whatever the block is doing then, when it has not ended after so many seconds."""

    def late(*_: object) -> None:
        raise RunError(Diagnostic(f"not done within {limit:g} s", hint="--timeout allows more; --profile says what takes long"))

    if not limit:
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tell_of_native(engine: str) -> None:
    """Says what is missing where a person reads it and the best engine was asked for."""
    from deepx_graph.runtime.engines import WITHOUT_NATIVE, has_native

    if engine == "auto" and not has_native() and sys.stderr.isatty():
        say(f"note: {WITHOUT_NATIVE}")


def _run(args: Arguments) -> int:
    from deepx_graph.runtime.compile import compile
    from deepx_graph.session import programs
    from deepx_graph.session.cluster.launch import LOCKSTEP
    from deepx_graph.session.inputs import unique_names
    from deepx_graph.session.replay import recorded_inputs

    for path, known in ((args.output, (".npz", SNAPSHOT)), (args.outfeed, (".npz",))):
        if path:
            check_suffix(path, known)
    for path in filter(None, (args.trace, args.node_data)):
        check_suffix(path, (".json",))
    _tell_of_native(args.engine)
    watching = watch(args)
    program = read_program(args)
    grid = _grid(args, program.module)
    devices = grid.count
    if args.explain_nan or args.explain_error or args.what_if:
        return _explain(args, program, devices)
    options = {"engine": args.engine, "threads": args.threads, "seed": args.seed, "data_root": args.data_root,
               "max_bytes": args.max_bytes, "profile": args.profile, "deterministic": args.deterministic,
               "out": sys.stderr if args.json or args.output == "-" else None,  # data on standard output stays one piece
               "prepare": lambda module: programs.optimise(module, args.pass_pipeline, watching).module}
    if args.stages or args.plan is not None or args.mesh is not None or (devices > 1 and args.on != LOCKSTEP):
        return _run_over_devices(args, program.module, options)
    for given, option in ((args.on != LOCKSTEP, f"--on {args.on}"), (args.checkpoint, "--checkpoint")):
        if given:
            hint = "--plan FILE, --plan stated, --mesh AXIS=N, --stages N; --partitions N of a program of one device"
            raise UsageError(Diagnostic(f"{option} needs to know how the program is split", hint=hint))
    f = compile(program.module, replicas=grid.replicas, partitions=grid.partitions,
                infeed=read_infeed(args.infeed, devices, args.max_bytes),
                prepared=programs.described(args.pass_pipeline, watching), **options)
    replayed = program.recorded if not (args.input or args.inputs or args.random_inputs) else None
    names = [p.name for p in f.inputs]
    inputs = _inputs(args, f.inputs, devices) if replayed is None else recorded_inputs(replayed, names, devices)
    if devices > 1:
        from deepx_graph.session.cluster.spmd import cut_as_stated

        inputs = cut_as_stated(f.module, grid, inputs)
    if args.print_schedule:
        say(str(f.schedule))
    if args.print_plan:
        say(str(f.plan))
    stage("compile and run")
    outputs = f(**inputs)
    again = _repeats(args, f)
    for k in range(again):
        stage("run", k, again)
        outputs = f(**inputs)
    named = spread(outputs, unique_names([p.name for p in f.outputs]), f.grid.count)
    if args.output and args.output.endswith(SNAPSHOT):
        _write_snapshot(args.output, program, f, inputs, outputs)
    elif args.output:
        _write(args.output, named)
    if args.outfeed:
        _write(args.outfeed, outfeed_arrays(f.outfeed, f.grid.count))
    _write_profile(args, f, inputs)
    _report(args, [p for p in f.outputs for _ in range(f.grid.count)], named, f)
    if replayed is None:
        return 0
    return _beside(args, program, replayed, grid, inputs, list(named), outputs if f.grid.count == 1 else outputs[0])


def _grid(args: Arguments, module: Module) -> Grid:
    """The devices that are asked for, or that an HLO text says its program is for. Raises UsageError for none, or too many."""
    from deepx_graph.runtime.devices import grid_of, stated_grid

    if args.replicas is None and args.partitions is None:
        return stated_grid(module)
    return grid_of(1 if args.replicas is None else args.replicas, 1 if args.partitions is None else args.partitions)


def _explain(args: Arguments, program: Loaded, devices: int) -> int:
    """Where numbers go wrong in a run of the program as it was read, on the reference engine, whatever the pipeline is."""
    from deepx_graph.numerics.nonfinite import explain_nonfinite
    from deepx_graph.numerics.rounding import explain_rounding
    from deepx_graph.runtime.inputs import input_ports
    from deepx_graph.types import dtype_named, dtype_names

    if devices > 1 or args.infeed:
        raise UsageError("--explain-nan and --explain-error look at one device without infeed")
    if args.what_if and args.what_if not in dtype_names():
        raise UsageError(Diagnostic(f"'{args.what_if}' is no element type", hint=suggest(args.what_if, dtype_names())))
    inputs = _inputs(args, input_ports(program.module.entry), 1)
    options: dict[str, Any] = {"seed": args.seed, "max_bytes": args.max_bytes, "data_root": args.data_root, "out": sys.stderr}
    stage("run and look for what is not finite" if args.explain_nan else "run in double precision")
    found: dict[str, NonfiniteReport | RoundingReport] = {}
    if args.explain_nan:
        found["nonfinite"] = explain_nonfinite(program.module, inputs, **options)
    if args.explain_error or args.what_if:
        format = dtype_named(args.what_if) if args.what_if else None
        found["rounding"] = explain_rounding(program.module, inputs, format=format, **options)
    if args.json:
        emit_report("explain", {name: report.to_json() for name, report in found.items()})
    else:
        emit("".join(f"{line}\n" for report in found.values() for line in report.lines()), None)
    return 0


def _run_over_devices(args: Arguments, module: Module, options: dict[str, Any]) -> int:
    """Runs it on the devices of a mesh, a pipeline, or as it stands; of several processes the one of the first device reports."""
    from deepx_graph.session.cluster.launch import MPI, is_rank, start_ranks
    from deepx_graph.session.over_mesh import MeshOptions

    # a call of MPI that blocks sees no deadline
    patience = min(filter(None, (args.patience, args.timeout if args.on == MPI else None)), default=None)
    where = MeshOptions(args.on, args.deterministic, patience, args.checkpoint, args.checkpoint_every)
    is_split = args.plan is not None or args.mesh is not None
    asked = _piped if args.stages else _split if is_split else _each
    grid, program = asked(args, module, where)
    if args.on == MPI and not is_rank():
        return start_ranks(grid.count, sys.argv[1:], restart=where.saving is not None)
    del options["deterministic"]
    transport = where.transport(grid)
    with deadline(args.timeout if transport else None):
        return _run_whole(args, program(transport, **options), reports=transport is None or transport.device == 0)


def _split(args: Arguments, module: Module, where: MeshOptions) -> tuple[Grid, Callable[..., OverDevices]]:
    """The devices of a mesh, and what makes the program over them."""
    inlined, asked = mesh_asked(args, module)
    return asked.grid, partial(where.program, inlined, asked)


def _piped(args: Arguments, module: Module, where: MeshOptions) -> tuple[Grid, Callable[..., OverDevices]]:
    """The same for a pipeline."""
    inlined, asked = pipeline_asked(args, module)
    return asked.grid, partial(where.pipeline, inlined, asked)


def _each(args: Arguments, module: Module, where: MeshOptions) -> tuple[Grid, Callable[..., OverDevices]]:
    """The same for a program of one device as it stands."""
    return _grid(args, module), partial(where.each, module)


@contextlib.contextmanager
def _ending_together(args: Arguments) -> Iterator[None]:
    """An error in a process of MPI ends all of them, as the others would wait for this one; the first says one that all have."""
    from deepx_graph.session.cluster.launch import MPI, is_rank, told

    try:
        yield
    except DeepxGraphError as e:
        if args.on != MPI or not is_rank() or find_spec("mpi4py") is None:
            raise
        from deepx_graph.runtime.transport.mpi import communicator, ended_alike

        says = ended_alike(str(e))
        if says is None:
            say(str(e))
            communicator().Abort(e.exit_code)
        code = told(e.exit_code)
        if not says:
            raise SystemExit(code) from None
        raise


def _run_whole(args: Arguments, f: OverDevices, *, reports: bool = True) -> int:
    """Runs a program over several devices with the inputs given, and says what came of it."""
    from deepx_graph.session.inputs import unique_names

    devices = f.interfaces
    inputs = _inputs(args, f.inputs, devices)
    stage("compile and run")
    for _ in range(args.repeat):
        outputs = f.values(**inputs)
    if reports:
        named = spread(outputs, unique_names([p.name for p in f.outputs]), devices)
        if args.output:
            _write(args.output, named)
        _report(args, [p for p in f.outputs for _ in range(devices)], named, f.compiled)
    return 0


def _beside(args: Arguments, program: Loaded, recorded: Recorded, grid: Grid, inputs: dict[str, Any], names: list[str],
            outputs: Sequence[Any]) -> int:
    """Says how the results stand beside those that were recorded; exit code 1 where they differ by more than rounding."""
    from deepx_graph.numerics.noise import slacks
    from deepx_graph.session.replay import compare

    def bound() -> Sequence[Array | None]:
        return slacks(program.module, inputs, seed=args.seed, max_bytes=args.max_bytes, replicas=grid.replicas,
                      partitions=grid.partitions)[: len(outputs)]

    found = compare(recorded, names[: len(outputs)], outputs, bound)
    if not found:
        say("note: run on the recorded values; the file has no result to compare with")
    for c in found:
        say(printable(str(c)))
    return 0 if all(c.agrees for c in found) else 1


def _repeats(args: Arguments, f: Compiled) -> int:
    """How often it runs after the first time: for a profile at least once, unless running twice would do something twice."""
    asked: int = args.repeat - 1
    return max(asked, WARM_RUNS) if args.profile and _may_repeat(args, f) else asked


def _may_repeat(args: Arguments, f: Compiled) -> bool:
    """Whether running twice does nothing twice."""
    from deepx_graph.types import is_state

    return not args.infeed and not any(is_state(p.type) for p in f.module.entry.params)


def _write(path: str, arrays: dict[str, Any]) -> None:
    """Arrays as an archive in a file, or on standard output for `-`."""
    from deepx_graph.session.inputs import pack_npz, write_npz

    if path != "-":
        write_npz(path, arrays)
        return
    stream = io.BytesIO()
    pack_npz(stream, arrays)
    emit(stream.getvalue(), path)


def _write_snapshot(path: str, program: Loaded, f: Compiled, inputs: dict[str, Any], outputs: Sequence[Any]) -> None:
    """The program as it was read, with what it was run on and what came out."""
    from deepx_graph.session.replay import snapshot

    if f.grid.count > 1:
        raise UsageError("a snapshot is of a run on one device")
    emit(snapshot(program.module, [inputs[p.name] for p in f.inputs], outputs), path)


def _inputs(args: Arguments, ports: Sequence[Port], devices: int) -> dict[str, Any]:
    """The inputs that files, wishes and random numbers give. Raises RunError where one is missing."""
    from deepx_graph.session.inputs import cast, check_names, generated, is_wish, random_inputs, read_inputs
    from deepx_graph.types import TensorType

    given = named_values(args.input, "NAME=FILE.npy, or a type such as NAME=f32[8,128]")
    wishes = {name: what for name, what in given.items() if is_wish(what)}
    files = {name: what for name, what in given.items() if name not in wishes}
    wanted = {p.name: p.type.dtype if isinstance(p.type, TensorType) else None for p in ports}
    names = named_inputs(wanted, devices)
    check_names(wishes, names)
    found, unread = read_inputs(files, args.inputs, names, args.max_bytes)
    if args.cast:
        found = {name: cast(name, array, names[name]) for name, array in found.items()}
    found |= generated(named_inputs({p.name: p for p in ports}, devices), wishes, args.seed,
                       args.max_bytes)
    found = gathered(found, list(wanted), devices)
    if unread:
        say(f"note: not inputs of this program: {printable(', '.join(unread))}")
    if args.random_inputs:
        found |= random_inputs(ports, args.seed, found, args.max_bytes)
    missing = [p for p in ports if p.name not in found]
    if missing:
        raise _missing(missing)
    return found


def _missing(ports: Sequence[Port]) -> RunError:
    """One problem for each input that nothing was given for, and at last what to do."""
    *rest, last = (Diagnostic(f"input '{printable(p.name)}' is missing", expected=f"{p.name}: {p.type}") for p in ports)
    hint = "give files with --inputs FILE.npz or --input NAME=FILE.npy, or generated numbers with --random-inputs"
    return RunError(*rest, replace(last, hint=hint))


def digest(array: Array) -> str:
    """SHA-256, in hexadecimal, of dtype, shape and the bytes in row-major order: equal for arrays that are the same to the bit."""
    from deepx_graph.literal import content

    head = f"{array.dtype.name}{list(array.shape)}\n".encode()
    return hashlib.sha256(head + content(array)).hexdigest()


def _row(name: str, type: str, array: Any, digested: bool) -> dict[str, Any]:
    values = {"values": array.tolist()} if array.size <= SHOWN and array.dtype.kind in "biufO" else {}
    return {"name": name, "type": type, **values, **({"digest": digest(array)} if digested else {})}


def _write_profile(args: Arguments, f: Compiled, inputs: Mapping[str, Any]) -> None:
    """The files of times that were asked for, of runs kernel by kernel, which engines else put together."""
    from deepx_graph.session.instrumented import watch_run
    from deepx_graph.session.profile_files import node_data, trace_events

    if not (args.trace or args.node_data):
        return
    if f.grid.count > 1 or not _may_repeat(args, f):
        raise UsageError("--trace and --node-data run a program again, on one device and without effects")
    profile = watch_run(f.module, inputs, engine=args.engine, seed=args.seed, keep=False, max_bytes=args.max_bytes,
                        runs=max(args.repeat, WARM_RUNS) + 1).profile
    if args.trace:
        emit_json(trace_events(profile), args.trace)
    if args.node_data:
        emit_json(node_data(profile, f.module.entry_name), args.node_data)


def _report(args: Arguments, ports: Sequence[Port], named: dict[str, Any], f: Compiled | None) -> None:
    """Prints the outputs; and what is known of the program that has run, where it is one."""
    import numpy as np

    from deepx_graph.runtime.memory.assignment import in_words

    if args.json:
        rows = [_row(name, str(p.type), a, args.digest) for p, (name, a) in zip(ports, named.items(), strict=True)]
        emit_report("run", {"outputs": rows, "peak_bytes": f.plan.peak_bytes if f else None,
                            "value_bytes": f.plan.value_bytes if f else None,
                            "profile": f.profile.to_json() if f and f.profile else None})
        return
    if args.digest:
        for port, (name, array) in zip(ports, named.items(), strict=True):
            emit(f"{digest(array)}  {printable(name)}: {port.type}\n", None)
    elif not args.output:
        for port, (name, array) in zip(ports, named.items(), strict=True):
            text = np.array2string(array, threshold=40, edgeitems=3, precision=6, max_line_width=120)
            emit(f"{printable(name)}: {port.type}\n{text}\n", None)
    if f is not None and f.profile is not None:
        say(str(f.profile))
        say(f"planned memory: {in_words(f.plan.value_bytes, f.plan.peak_bytes)}")
