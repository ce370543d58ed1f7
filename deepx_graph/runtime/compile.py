"""`compile`: a module as a Python callable on numpy arrays.

Everything that can be wrong with a call is found before anything runs: missing, extra, ill-shaped and ill-typed inputs, and a plan
that needs more memory than allowed. Results are fresh arrays that belong to the caller. It optimises nothing.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from deepx_graph.analysis.schedule import Schedule
from deepx_graph.blas import FREE, limited
from deepx_graph.cycles import rare_collection
from deepx_graph.errors import Diagnostic, InferError, LimitError, RunError, UsageError, suggest
from deepx_graph.forking import Lock
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.function import InNotebook
from deepx_graph.literal import Array, content
from deepx_graph.ops.data.adt import DataValue, RefValue
from deepx_graph.ops.host.host import Feed, Host
from deepx_graph.rewrite.specialise import InputValues, has_deferred, is_fixed, specialise
from deepx_graph.runtime import engines
from deepx_graph.runtime.devices import check_ready, feeds_of, for_each, grid_of, on_one_device, same_types, worlds
from deepx_graph.runtime.engines.base import Engine, EntryFn, canonicalized
from deepx_graph.runtime.inputs import FunctionValue, Port, arguments, bind, flatten, input_ports, output_ports, whole_types
from deepx_graph.runtime.interpreter import MAX_DEPTH, execute_all, execute_one
from deepx_graph.runtime.memory.assignment import BufferAssignment, largest
from deepx_graph.runtime.memory.pool import owned
from deepx_graph.runtime.native import vectors
from deepx_graph.runtime.profile import Profile
from deepx_graph.runtime.program import Unit, engine_plans
from deepx_graph.runtime.python_steps import PythonStep, python_steps
from deepx_graph.runtime.unit_code import NONE, UnitCode, unit_code
from deepx_graph.types import STRING, TensorType, Type, leaves

if TYPE_CHECKING:
    from distributed import Client

    from deepx_graph.runtime.aot.program_store import StoredProgram
    from deepx_graph.runtime.transport.base import Transport

ONE = Grid()
KEPT = 8
"""How many signatures of a module with unknown types stay compiled."""


def compile(module: Module, *, engine: str | Engine = "auto", threads: int | None = None, entry: str | None = None,
            seed: int = 0, data_root: str | Path | None = None, max_bytes: int | None = None, infeed: Any = None,
            out: TextIO | None = None, profile: bool = False, max_depth: int = MAX_DEPTH, replicas: int = 1, partitions: int = 1,
            prepare: Callable[[Module], Module] | None = None, prepared: str | None = None, vector_bits: int | None = None,
            transport: Transport | None = None, deterministic: bool = False) -> Compiled:
    """A callable that runs the entry of a module.

    `seed` fixes unseeded random numbers; `data_root` is the folder that load and save may touch; `max_bytes` bounds the memory
    of a run (half of the machine's when left out); `out` is where print goes; `prepare` maps the module once its types are known
    (passes see more then than before). Where `prepared` says what that does, in words that stand for it in every process, the
    compiled program is kept on disk, and found there by the next process (`aot/program_store.py`).

    `infeed` is an iterable of arrays, or of tuples of arrays, that infeed operations take one after the other, call after call.
    With several `replicas` or `partitions` the program runs on that many devices side by side; `infeed` is then a list of one
    iterable for each (see `Compiled`). `vector_bits` is how wide the vectors of machine code are: 128, 256 or 512, not more than
    the machine has; None for what DEEPX_GRAPH_VECTOR_BITS says, else its widest. With a `transport` this process is one of the
    devices of its grid: inputs and results are this device's. `deterministic` gives the same bits whatever the number of threads:
    machine code cuts sums by shapes alone anyway; BLAS, which does not, gets one thread. Raises UsageError for an unknown engine or
    entry,
    LimitError when the plan is over the bound, RunError or VerifyError when the program cannot run.
    """
    grid = grid_of(replicas, partitions) if transport is None else transport.grid
    module = module.with_entry(entry) if entry is not None else module
    with vectors(vector_bits):
        chosen = engines.get(engine, threads) if isinstance(engine, str) else engine
    limit = memory_limit() if max_bytes is None else max_bytes
    world = Host(None if data_root is None else Path(data_root), out, limit)
    return Compiled(module, chosen, world, seed=seed, max_bytes=limit, max_depth=max_depth, profile=profile, prepare=prepare,
                    prepared=prepared, grid=grid, feeds=feeds_of(infeed, grid), transport=transport, deterministic=deterministic)


WhenFailing = Callable[[Exception, Sequence[Any], dict[str, Any]], None]


def memory_limit() -> int:
    """Half of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _compiled_again(module: Module, options: dict[str, Any]) -> Compiled:
    """A pickled callable in this process."""
    return compile(module, **options)


@dataclass(frozen=True, eq=False)
class _Ready:
    """A module of static types, ready to run."""

    module: Module
    units: dict[str, Unit]
    holds_text: bool = False

    @property
    def unit(self) -> Unit:
        return self.units[self.module.entry_name]

    @cached_property
    def code(self) -> UnitCode | None:
        """The entry as a function of Python, or as one of machine code, where it can be."""
        return unit_code(self.unit)

    @property
    def runner(self) -> UnitCode | None:
        """What runs the entry without the interpreter, where that can be."""
        return None if self.holds_text else self.code

    @cached_property
    def may_call_blas(self) -> bool:
        """Whether something runs that is neither a kernel of the engine's own nor a view or an elementwise op."""
        return any(unit.may_call_blas for unit in self.units.values())


class Compiled(InNotebook):
    """A compiled module. `f(x, y)` or `f(name=array)`; gives a tuple of fresh arrays, one for each tuple leaf of the results.

    On several devices an input is one array for all of them or a list of one for each, and the result is a tuple of such tuples,
    one for each device, in the order replica 0 partition 0, replica 0 partition 1, ... What the last call put out is in `outfeed`:
    a list of tuples, or of such lists, one for each device.

    `inputs` and `outputs` have `.name` and `.type`; the state of effects is in neither. Calls from several threads are run one
    after the other, except that two of a program of nothing but machine code may run at once.
    """

    def __init__(self, module: Module, engine: Engine, world: Host, *, seed: int, max_bytes: int, max_depth: int,
                 profile: bool, prepare: Callable[[Module], Module] | None = None, prepared: str | None = None, grid: Grid = ONE,
                 feeds: list[Feed] | None = None, transport: Transport | None = None, deterministic: bool = False) -> None:
        self.module, self.engine, self._deterministic = module, engine, deterministic
        self._passes = prepare
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        self.outputs: tuple[Port, ...] = output_ports(module.entry)
        self.profile: Profile | None = Profile() if profile else None
        self._world, self._seed, self._max_bytes, self._max_depth = world, seed, max_bytes, max_depth
        self._lock, self._blas = Lock(), FREE
        self.grid, self._feeds, self._transport = grid, feeds, transport
        self.outfeed: list[Any] = []
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._by_value = has_deferred(module)
        self._asked: dict[tuple[Type, ...], frozenset[int]] = {}
        """The inputs whose values the program was specialised to, for their types."""
        self.when_failing: WhenFailing = lambda error, arrays, named: None
        """Is told of an exception that a call ends in, and of its arguments."""
        self._runner: UnitCode | StoredProgram | None = None
        """What runs the last signature's entry without the interpreter."""
        self._entries: dict[tuple[str, ...], EntryFn] = {}
        """That as one call, for the names of the inputs given away, where it is one. Made when first called."""
        self._steps: dict[tuple[str, ...], Callable[[Sequence[Any]], Any]] = {}
        """That by steps of Python, where it is not one call."""
        self._prepared = prepared
        if is_fixed(module):
            self._start()

    @rare_collection()
    def _start(self) -> None:
        """Takes the program that an earlier process has kept; makes it where there is none, and keeps it."""
        kept_as, bits = self._kept_as(), getattr(self.engine, "vector_bits", None)
        if kept_as is not None:
            from deepx_graph.runtime.aot import program_store

            found = program_store.load(kept_as, bits)
            if found is not None:
                self._runner, self.outputs = found, found.outputs
                return
        began = time.process_time()
        ready = self._prepare(self.module.entry.type.params)
        self.outputs = output_ports(ready.module.entry)
        if kept_as is not None and time.process_time() - began >= program_store.LEAST_SECONDS:
            program_store.save(kept_as, ready.unit, self.outputs)

    def _kept_as(self) -> str | None:
        """The key under which the program is kept, if it is."""
        is_alone = self.grid.count == 1 and self._feeds is None and self._transport is None and self._world.data_root is None
        if self._prepared is None or not is_alone or self.profile is not None or self.engine.name != "native":
            return None
        from deepx_graph.runtime.aot import program_store

        threads, bits = getattr(self.engine, "threads", None), getattr(self.engine, "vector_bits", None)
        return program_store.key(self.module, self._prepared, bits, (threads, self._seed, self._max_bytes, self._max_depth))

    def __repr__(self) -> str:
        return f"<compiled {self.module.entry!r} on {self.engine.name}>"

    @property
    def plan(self) -> BufferAssignment:
        """The memory plan of the entry, for the last signature. Raises RunError before the first call where types are unknown."""
        return self._latest().unit.plan

    @property
    def schedule(self) -> Schedule:
        """The schedule of the entry, for the last signature. Raises RunError before the first call where types are unknown."""
        return self.plan.code.schedule

    @property
    def lowered(self) -> Module:
        """The module as it runs, of static types and as the engine arranged it; for the last signature, and raises, as `plan`."""
        return self._latest().module

    @property
    def python_steps(self) -> tuple[PythonStep, ...]:
        """What Python does in a call, from the second on, beside one call of machine code, in order; nothing where all of the
        program is machine code. For the last signature, and raises, as `plan`. May compile kernels that were not called yet."""
        ready = self._latest()
        with self._lock:
            return python_steps(ready.module, ready.units, ready.code if self.grid.count == 1 else None)

    def __call__(self, *arrays: Any, donate: Sequence[str] = (), **named: Any) -> tuple[Any, ...]:
        """Runs it. Raises RunError, before anything runs, for missing, extra or ill-typed inputs.

        `donate` names inputs whose arrays the caller gives away: results may be put in their memory, and what they held is lost.
        """
        if not named:
            entry = self._entries.get(tuple(donate))
            if entry is not None:
                try:
                    found = entry(*arrays)
                except MemoryError:  # for its results, before it began: running kernel by kernel says for which
                    found = None
                if found is not None:
                    return found
        try:
            steps = None if named else self._steps.get(tuple(donate))
            found = None if steps is None else steps(arrays)
            return self._run_checked(arrays, tuple(donate), named) if found is None else found
        except Exception as e:
            self.when_failing(e, arrays, named)
            raise

    def map(self, batches: Iterable[Any], on: str | Client = "here", *, retries: int = 3,
            patience: float | None = None) -> Iterator[tuple[Array, ...]]:
        """The results for each batch, in order: a tuple or list of arrays, a dict of them by name, or one array.

        `on` is `here`, `dask:ADDRESS` of a scheduler, or a client of Dask. Workers of a cluster may come and go meanwhile; a batch
        that loses its worker is given to another one, at most `retries` times. Raises what running raises, RunError when a batch
        loses too many workers, or there has been none for `patience` seconds (600), or no scheduler; UsageError where there is no
        cluster, TypeError for programs that cannot be sent (`__reduce__`).
        """
        from deepx_graph.runtime.transport.batches import mapped

        return mapped(self, batches, on, retries, patience)

    def _run_checked(self, arrays: Sequence[Any], donate: tuple[str, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Runs it with arguments of which nothing is known."""
        given = self._positions(donate) if donate else NONE
        if named and self.grid.count == 1:
            arrays, named = tuple(bind(self.inputs, arrays, named)), {}
        if not named:
            with self._lock:
                found = None if self._by_value else self._run_directly(arrays, donate, given)
            if found is not None:
                return found
        here = [(arrays, named)] if self._transport else for_each(self.grid, arrays, named)
        bound = [bind(self.inputs, *each) for each in here]
        same_types([p.name for p in self.inputs], bound)
        with self._lock:
            found = None if self._ready else self._run_directly(bound[0], donate, given)
            if found is not None:  # it was kept, and nothing had to be made
                return found
            ready = self._prepare(tuple(whole_types(self.module.entry, bound[0])), bound[0] if self._by_value else None)
            found = self._run_directly(bound[0], donate, given)
            return self._interpret(ready, bound) if found is None else found

    def _run_directly(self, arrays: Sequence[Any], donate: tuple[str, ...], given: frozenset[int]) -> tuple[Any, ...] | None:
        """The results of a program that needs no interpreter, for arguments of its types. None for others, with nothing done."""
        runner = self._runner
        if runner is None or self.grid.count > 1 or not runner.takes(arrays):
            return None
        entry = runner.entry(given)
        if entry is not None:
            if not self._by_value:
                self._entries[donate] = entry
            try:
                found = entry(*arrays)
            except MemoryError:  # as above
                found = None
            if found is not None:
                return found
        elif runner.has_run and not self._by_value:
            self._steps[donate] = self._steps_of(runner, given)
        with self._blas:
            return runner(arrays, given)

    def _steps_of(self, runner: UnitCode | StoredProgram, given: frozenset[int]) -> Callable[[Sequence[Any]], Any]:
        """What gives the results of a program by steps of Python, for one thread at a time; None for arguments of other types."""
        lock, blas = self._lock, self._blas

        def run(arrays: Sequence[Any]) -> tuple[Any, ...] | None:
            if not runner.takes(arrays):
                return None
            with lock, blas:
                return runner(arrays, given)

        return run

    def _interpret(self, ready: _Ready, bound: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """The results for the arguments of each device."""
        name, devices = ready.module.entry_name, worlds(self._world, self.grid, self._feeds)
        if self._transport is not None:
            args = arguments(ready.module.entry, bound[0], devices[self._transport.device])
            with self._blas:
                mine = execute_one(ready.units, name, args, self._transport.run, max_depth=self._max_depth,
                                   max_bytes=self._max_bytes)
            return _fresh(mine, ready.unit.plan)
        calls = [(name, arguments(ready.module.entry, each, w)) for each, w in zip(bound, devices, strict=True)]
        with self._blas:
            found = execute_all(ready.units, calls, self.grid, max_depth=self._max_depth, max_bytes=self._max_bytes)
        results = tuple(_fresh(r, ready.unit.plan) for r in found)
        put_out = [w.wires.outfeed for w in devices]
        self.outfeed = put_out[0] if self.grid.count == 1 else put_out
        return results[0] if self.grid.count == 1 else results

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes it again: the module as it is, and how it was compiled. Nothing is optimised anew; machine code comes
        from the cache on disk. As with every pickle, load only what comes from where you trust.

        Raises TypeError for one with passes or feeds of its own, which stay in their process.
        """
        passes = self._passes if self._prepared is None else None
        if passes is not None or self._feeds is not None or self._transport is not None:
            raise TypeError("a compiled module with passes, feeds or a transport of its own cannot be pickled")
        threads, vector_bits = getattr(self.engine, "threads", None), getattr(self.engine, "vector_bits", None)
        options = {"engine": self.engine.name if self.engine.name in engines.ENGINES else self.engine, "threads": threads,
                   "seed": self._seed, "data_root": self._world.data_root, "max_bytes": self._max_bytes,
                   "max_depth": self._max_depth, "profile": self.profile is not None, "vector_bits": vector_bits,
                   "deterministic": self._deterministic,
                   "replicas": self.grid.replicas, "partitions": self.grid.partitions}
        module = self.module if self._passes is None else self._passes(self.module)
        return _compiled_again, (module, options)

    def save(self, path: str | Path) -> None:
        """Writes it as an executable, which `load_compiled` starts without optimising or compiling, on machines like this one.

        Raises UsageError for another engine than `native`, RunError, with the place, for what is not one machine function: programs
        with effects or library calls, and inputs of unknown sizes.
        """
        if self.engine.name != "native" or self.grid.count > 1:
            raise UsageError(Diagnostic("only a program of the native engine, on one device, can be saved",
                                        hint="compile it with engine='native'"))
        from deepx_graph.runtime.aot.executable import save

        save(self.module, path, threads=getattr(self.engine, "threads", 1), vector_bits=getattr(self.engine, "vector_bits", None),
             seed=self._seed, data_root=self._world.data_root, prepare=self._passes)

    def _positions(self, names: Sequence[str]) -> frozenset[int]:
        """The numbers of the inputs of those names. Raises RunError for one that there is not."""
        index = {p.name: k for k, p in enumerate(self.inputs)}
        for name in names:
            if name not in index:
                raise RunError(Diagnostic(f"the program has no input '{name}' to give away", hint=suggest(name, index)))
        return frozenset(index[n] for n in names)

    def _latest(self) -> _Ready:
        if not self._ready and self._runner is not None:  # it was kept: make what is asked for now
            self._prepare(self.module.entry.type.params)
        if not self._ready:
            raise RunError(f"the types of the inputs of '{self.module.entry_name}' are known only once it is called")
        return next(reversed(self._ready.values()))

    def _prepare(self, types: tuple[Type, ...], arrays: Sequence[Array] | None = None) -> _Ready:
        """The module specialised to input types, and to the values of `arrays` that it depends on, most recent last; checks the
        plan before anything is allocated.
        """
        key = self._key(types, arrays)
        ready = self._ready.pop(key, None)
        if ready is None:
            given = None if arrays is None else InputValues(arguments(self.module.entry, arrays, self._world))
            ready = self._build(types, given)
            self._asked[types] = self._asked.get(types, frozenset()) | (given.asked if given is not None else set())
            key = self._key(types, arrays)
        self._ready[key] = ready
        if self._runner is not ready.runner:
            self._runner, self._entries, self._steps = ready.runner, {}, {}
        threads = 1 if self._deterministic else getattr(self.engine, "threads", None)
        self._blas = limited(threads) if ready.may_call_blas else FREE
        if len(self._ready) > KEPT:
            del self._ready[next(iter(self._ready))]
        return ready

    def _key(self, types: tuple[Type, ...], arrays: Sequence[Array] | None) -> tuple[Any, ...]:
        """What the program was specialised to: types, and the values of inputs that it asked for."""
        asked = sorted(self._asked.get(types, ()))
        if arrays is None or not asked:
            return types, ()
        values = arguments(self.module.entry, arrays, self._world)
        return types, tuple((k, *(hashlib.blake2b(content(v)).digest() for v in flatten(values[k]))) for k in asked)

    @rare_collection()
    def _build(self, types: tuple[Type, ...], given: InputValues | None) -> _Ready:
        module = specialise(self.module, types, seed=self._seed, data_root=self._world.data_root, arguments=given)
        if self._passes is not None:
            module = _same_interface(module, self._passes(module))
        module = on_one_device(module) if self.grid.count == 1 else module
        text = holds_text(module)
        engine = engines.get("numpy", getattr(self.engine, "threads", None)) if text else self.engine
        if self.grid.count == 1:
            module = engine.with_calls(module, self._max_depth, self._max_bytes)
        module = canonicalized(module, engine, apart=self.profile is not None)
        try:
            plans = engine_plans(module, engine)
        except InferError as e:
            raise RunError(e.diagnostic(module.entry.span)) from None
        check_ready(module, plans, worlds(self._world, self.grid, self._feeds)[0])
        peak = plans[module.entry_name].peak_bytes * (1 if self._transport else self.grid.count)
        if peak > self._max_bytes:
            message = f"'{module.entry_name}' needs {peak} bytes at its peak, more than the limit of {self._max_bytes}"
            raise LimitError(Diagnostic(message, module.entry.span, hint=_over_limit(plans[module.entry_name])))
        return _Ready(module, {n: Unit(module[n], p, engine, self.profile) for n, p in plans.items()}, text)


def holds_text(module: Module) -> bool:
    """Whether some value is a tensor of texts, of which only the reference engine knows."""
    return any(isinstance(t, TensorType) and t.dtype is STRING for f in module.functions for n in f.nodes for t in leaves(n.type))


def _over_limit(plan: BufferAssignment) -> str:
    named = largest(plan)
    return f"{named}{'; ' if named else ''}raise --max-bytes if that much memory is available"


def _same_interface(before: Module, after: Module) -> Module:
    """The module that passes made. Raises UsageError where it takes or gives something else than before: another program."""
    was, now = before.entry, after.entry
    if now.type.params != was.type.params or len(now.results) != len(was.results):
        raise UsageError(Diagnostic(f"these passes change what '{was.name}' takes or gives: another program", was.span,
                                    hint="write the program they make with opt or grad, and run that"))
    return after


def _fresh(results: Sequence[Any], plan: BufferAssignment) -> tuple[Array, ...]:
    """The leaves of the results as arrays of the caller's own; data, references and functions as they are."""
    arrays: list[Any] = []
    for k, result in enumerate(results):
        for leaf in flatten(result):
            if isinstance(leaf, (DataValue, RefValue, FunctionValue)):
                arrays.append(leaf)
            elif not isinstance(leaf, Host):
                arrays.append(owned(leaf) if k in plan.copied else np.asarray(leaf))
    return tuple(arrays)
