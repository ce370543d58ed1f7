"""`build`: a module as object code with a C entry, for programs that the native engine runs as one machine function.

Kernels are made as for a run, on one thread, but their IR is collected instead of compiled, so the processor may be another one.
Each becomes a module of LLVM with names of its own; all are linked into one of which only the entry can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable
from deepx_graph.files import write_file
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import alone
from deepx_graph.rewrite.specialise import specialise
from deepx_graph.runtime.aot.entry import UNLIMITED, entry_text, workspace_bytes
from deepx_graph.runtime.aot.program import BuiltProgram
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.inputs import input_ports, output_ports
from deepx_graph.runtime.native import dispatch
from deepx_graph.runtime.native.llvm.machine_code import Collection, collected
from deepx_graph.runtime.native.llvm.target import LEVELS, Processor, Target, externals
from deepx_graph.runtime.native.loop_program.kernel import build as build_loops
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.whole_program.encode import encoded
from deepx_graph.runtime.native.whole_program.plan import ProgramPlan
from deepx_graph.runtime.native.whole_program.planner import planned
from deepx_graph.types import is_static

llvm: Any = llvmlite.binding
"""It has no types."""

NATIVE = "native"
MOST_BYTES = 1 << 32
"""Of the values of a program, beside inputs, results and constants."""

CPUS = {level.rpartition("-")[2]: bits for bits, level in LEVELS.items()}
"""The widths of vectors of the levels of x86-64, by their short names."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def build(module: Module, path: str | Path, *, header: str | Path | None = None, shared: str | Path | None = None,
          **options: Any) -> BuiltProgram:
    """Builds the entry of a module and writes its object code, its header (beside it where no path is given), and a shared library
    if one is wanted. The options are those of `built`, and errors those of it and of `BuiltProgram.link_shared`."""
    program = built(module, **options)
    if shared is not None:
        program.link_shared(shared)
    write_file(path, program.code)
    write_file(Path(path).with_suffix(".h") if header is None else header, program.header.encode())
    return program


def processor_of(cpu: str, triple: str | None = None) -> Processor:
    """The processor of a name: this machine's for `native`, or a level of x86-64 (`x86-64-v3`, or `v3` for short). With a triple of
    another machine `native` is the least of that kind.

    Raises UsageError for another: LLVM does not say which it knows.
    """
    if triple is None and cpu == NATIVE:
        return Processor.here()
    triple = triple or llvm.get_process_triple()
    known = {"x86_64": CPUS, "aarch64": {}}.get(triple.partition("-")[0])
    if known is None:
        raise UsageError(Diagnostic(f"no code is made for '{printable(triple)}'", expected="x86_64-... | aarch64-..."))
    bits = min(LEVELS) if cpu == NATIVE else known.get(cpu.removeprefix("x86-64-"))
    if bits is None:
        raise UsageError(Diagnostic(f"no processor is called '{printable(cpu)}'", expected=" | ".join((NATIVE, *sorted(known)))))
    return Processor(triple, LEVELS[bits] if known else "generic", "", bits)


def built(module: Module, *, name: str = "model", cpu: str = NATIVE, triple: str | None = None, seed: int = 0,
          data_root: Path | None = None, prepare: Callable[[Module], Module] | None = None) -> BuiltProgram:
    """The entry of a module as the C function `NAME_run`; `prepare` maps the module once its seeds are fixed.

    Raises UsageError for a name that C has not or an unknown processor, RunError, with the place, for a program that is not one
    machine function.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise UsageError(Diagnostic(f"'{printable(name)}' is no name of C", expected="letters, digits and _"))
    processor = processor_of(cpu, triple)
    entry = fixed_entry(module, seed, data_root, prepare)
    target = Target(processor=processor)
    with collected(target) as collection:
        plan = _planned(entry)
        image = encoded(plan, len(entry.params), UNLIMITED)
        code = KernelCode(image.addresses, collection, target)
    params, results = len(entry.params), len(entry.results)
    texts = [entry_text(image, params, results, f"{name}_run", code.symbol), dispatch.text()]
    return BuiltProgram(name, code.emitted([f"{name}_run"], texts), input_ports(module.entry), output_ports(entry),
                        workspace_bytes(image, params + results), code.libraries, processor)


def fixed_entry(module: Module, seed: int, data_root: Path | None, prepare: Callable[[Module], Module] | None) -> Function:
    """The entry of a module, with its seeds fixed, as `prepare` maps it then. Raises RunError where a size is not known."""
    for port in input_ports(module.entry):
        if not is_static(port.type):
            message = f"input '{printable(port.name)}' has type {port.type}: its size must be known"
            raise RunError(Diagnostic(message, module.entry.span))
    module = specialise(module, module.entry.type.params, seed=seed, data_root=data_root)
    return (module if prepare is None else prepare(module)).entry


@contextmanager
def one_machine_function(function: Function) -> Iterator[None]:
    """Inside, what is `Declined` is a RunError, with the place: the function is not one machine function."""
    try:
        yield
    except Declined as e:
        span = function.span if e.node is None else e.node.span
        raise RunError(Diagnostic(
            f"'{printable(function.name)}' is not one machine function: {printable(str(e))}", span,
            notes=("what can be built is what the native engine runs as one machine function",))) from None


def _planned(function: Function, threads: int = 1) -> ProgramPlan:
    """What one machine function does for a function. Raises RunError, with the place, where it is not one."""
    from deepx_graph.runtime.engines.native_engine import NativeEngine

    engine = NativeEngine(threads)

    def made(node: Node) -> MachineKernel | None:
        """What the engine has, or else plain loops: there is no library here that does large products better."""
        try:
            return engine.made(node) or build_loops(alone(node), engine.threads)
        except Declined:
            return None

    with one_machine_function(function):
        return planned(engine.arranged(function), made, MOST_BYTES)


class KernelCode:
    """The code of collected functions, by their addresses, each with a name of its own."""

    def __init__(self, addresses: Iterable[int], collection: Collection, target: Target) -> None:
        self.target, self._collection = target, collection
        called = map(collection.__getitem__, addresses)
        self._numbers = {key: k for k, key in enumerate(dict.fromkeys((f.ir, f.optimise) for f in called))}

    def symbol(self, address: int) -> str:
        """The name of a function."""
        function = self._collection[address]
        return _renamed(self._numbers[function.ir, function.optimise], function.name)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that kernels call and do not define."""
        return tuple(sorted({n for ir, _ in self._numbers for n in externals(ir)}))

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of these: libm, and glibc's libmvec."""
        vector = any(n.startswith("_ZGV") for n in self.symbols)
        return ("mvec", "m") if vector else ("m",)

    def emitted(self, names: Iterable[str], texts: Iterable[str] = ()) -> bytes:
        """The object code of these and of what is in some texts, in which those names alone can be seen."""
        whole = self.target.parsed("")
        for module in (*map(self.target.parsed, texts), *(self._kernel(k, *key) for key, k in self._numbers.items())):
            whole.link_in(module)
        self.target.keep_only(whole, names)
        return self.target.emit(whole)

    def _kernel(self, number: int, ir: str, optimise: bool) -> Any:
        """The module of a kernel, in which every name is its own."""
        module = self.target.parsed(ir, optimise=optimise)
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration:
                value.name = _renamed(number, value.name)
        return module


def _renamed(number: int, name: str) -> str:
    return f"kernel{number}_{name}"
