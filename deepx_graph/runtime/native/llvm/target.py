"""The machine that kernels are compiled for: its vector width, its vector library, and compilation of IR to object code.

IR is compiled without LLVM's pass pipeline: it is explicitly vectorised already. A symbol that IR names is looked up before
anything is linked, because LLVM calls what it cannot find. Several modules may be compiled at once (`compilers.py`).
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import llvmlite
import llvmlite.binding

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.runtime.native import asked
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType, IRBuilder, VectorValue, concatenated, library_function, of_parts
from deepx_graph.runtime.native.llvm.compilers import CodeGeneration, Compilation, run_passes

llvm: Any = llvmlite.binding
"""It has no types."""

_EXTERNAL = re.compile(r"\ndeclare .*?@(?!llvm\.)([A-Za-z_]\w*)\(")
"""After a line's end rather than at a line's beginning: that is looked for in a ninth of the time."""


LEVELS = {128: "x86-64-v2", 256: "x86-64-v3", 512: "x86-64-v4"}
"""The processors that stand for all with vectors of so many bits: SSE 4.2; AVX2 and FMA; AVX-512."""


SLOW = frozenset((name, F4, 64) for name in ("sin", "cos", "erf", "erfc"))
"""Functions of glibc whose form for registers of so many bytes takes longer than two calls of the next narrower one (sin: 3.2
times)."""


@dataclass(frozen=True)
class Processor:
    """What code is generated for, in the words of LLVM; vectors have `vector_bits`."""

    triple: str
    cpu: str
    features: str
    vector_bits: int

    @staticmethod
    def here(vector_bits: int | None = None) -> Processor:
        """This machine's, with vectors of so many bits: its widest if None. Raises UsageError for wider ones than it has."""
        features = llvm.get_host_cpu_features()
        widest = 512 if features.get("avx512f") else 256 if features.get("avx2") else 128
        bits = widest if vector_bits is None else vector_bits
        if bits > widest:
            raise UsageError(Diagnostic(f"this machine has no vectors of {bits} bits", expected=f"at most {widest}"))
        whole = bits == widest
        return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name() if whole else LEVELS[bits],
                         features.flatten() if whole else "", bits)


class Target:
    """A machine that code is written and compiled for: this one, with vectors of so many bits (its widest if None), or a processor
    of which only object code is wanted. `register_bytes` is the width of its vector registers.

    Raises UsageError for vectors wider than this machine has, and for a processor that LLVM does not know.
    """

    def __init__(self, vector_bits: int | None = None, processor: Processor | None = None) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        with suppress(RuntimeError):
            llvm.load_library_permanently("")  # this process: Python's own functions
        found = Processor.here(vector_bits) if processor is None else processor
        self.triple, self.cpu, self.features = found.triple, found.cpu, _tuned(found)
        self.register_bytes = found.vector_bits // 8
        self._has_library = self._load_library()
        self._new_machine = partial(_machine, found, reloc="default", codemodel="jitdefault") if processor is None else partial(
            _foreign_machine, found)
        self._machine = self._new_machine()
        self._idle_machines: list[Any] = []
        """Others, which compilations had."""

    @property
    def key(self) -> str:
        """What object code depends on beside its IR."""
        version = ".".join(map(str, llvm.llvm_version_info))
        return "\n".join((llvmlite.__version__, version, self.triple, self.cpu, self.features))

    def _load_library(self) -> bool:
        """glibc's vector functions, of x86-64 only: elsewhere their conventions are not known here."""
        if platform.machine() not in ("x86_64", "AMD64") or not re.match("x86_64-.*linux-gnu", self.triple):
            return False
        try:
            llvm.load_library_permanently("libm.so.6")
            llvm.load_library_permanently("libmvec.so.1")
        except RuntimeError:
            return False
        return True

    def vector_functions(self, name: str, dtype: DType, arity: int) -> dict[str, int]:
        """The symbols of a vector function and how many lanes each takes, for registers of each width that the machine has, but
        where that is slow."""
        found = {}
        for letter, register in (("b", 16), ("d", 32), ("e", 64)):
            symbol = f"_ZGV{letter}N{register // dtype.itemsize}{'v' * arity}_{name}{'f' if dtype == F4 else ''}"
            if (name, dtype, register) in SLOW:
                continue
            if register <= self.register_bytes and self._has_library and llvm.address_of_symbol(symbol) is not None:
                found[symbol] = register // dtype.itemsize
        return found

    def complex_function(self, name: str) -> str | None:
        """The symbol of a function of complex numbers in double precision, which takes and gives their parts in registers."""
        return self.scalar_function(f"c{name}", F8) if self._has_library else None

    @staticmethod
    def call(t: IRBuilder, forms: Mapping[str, int], args: Sequence[VectorValue]) -> VectorValue:
        """A call of a vector function in the widest of its forms that takes no more than all lanes, as often as needed."""
        dtype = args[0].dtype
        symbol, lanes = max(forms.items(), key=lambda form: (form[1] <= t.lanes, form[1] if form[1] <= t.lanes else -form[1]))
        if lanes == t.lanes:
            return t.call(symbol, *args)
        count = max(len(a.more) for a in args) + 1
        columns = [a.parts * count if not a.more else a.parts for a in args]
        calls = [_split_call(t, symbol, [VectorValue(p, dtype) for p in parts], lanes) for parts in zip(*columns, strict=False)]
        return of_parts([c.text for c in calls], dtype)

    def scalar_function(self, name: str, dtype: DType) -> str | None:
        """The symbol of a function of the C library; None where there is none."""
        symbol = f"{name}f" if dtype == F4 else name
        return symbol if llvm.address_of_symbol(symbol) is not None else None

    def compile(self, ir: str, *, optimise: bool = False) -> bytes:
        """Object code; optimised by LLVM's passes where the IR is made of scalar loops. Raises RuntimeError for IR that LLVM
        refuses, or that names a function this process lacks."""
        compilation = self.compilation(ir, optimise=optimise)
        compilation.run()
        return compilation.code()

    def compilation(self, ir: str, *, optimise: bool = False) -> Compilation:
        """What `compile` does, still to be run. Raises RuntimeError as that does."""
        for symbol in externals(ir):
            if llvm.address_of_symbol(symbol) is None:
                raise RuntimeError(f"no function '{symbol}' in this process")
        machine = self._idle_machines.pop() if self._idle_machines else self._new_machine()
        generation = CodeGeneration(ir, self._passes if optimise else None, machine, self._idle_machines.append)
        self._checked(generation.module)
        return Compilation(generation)

    def parsed(self, ir: str, *, optimise: bool = False) -> Any:
        """The module of some IR, optimised as for `compile`. Raises RuntimeError for IR that LLVM refuses."""
        module = self._checked(llvm.parse_assembly(ir))
        if optimise:
            self._optimise(module)
        return module

    def _checked(self, module: Any) -> Any:
        """A module, now for this target. Raises RuntimeError where it is none that LLVM takes."""
        module.triple = self.triple
        module.verify()
        return module

    def emit(self, module: Any) -> bytes:
        """The object code of a module."""
        return bytes(self._machine.emit_object(module))

    def _passes(self, machine: Any) -> Any:
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = tuning.loop_interleaving = True
        return llvm.create_pass_builder(machine, tuning)

    def _optimise(self, module: Any) -> None:
        passes = self._passes(self._machine)
        run_passes(passes.getModulePassManager(), module, passes)

    def keep_only(self, module: Any, names: Iterable[str]) -> None:
        """Takes away from a module what some of its functions do not need, and hides the rest."""
        kept = set(names)
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name not in kept:
                value.linkage = "internal"
        manager = llvm.create_new_module_pass_manager()
        manager.add_global_dead_code_eliminate_pass()
        run_passes(manager, module, self._passes(self._machine))

    def session(self) -> Any:
        """A session that links object code, and frees what it took when it is closed or dropped."""
        return llvm.create_lljit_compiler(self._machine)

    def digest(self, ir: str) -> str:
        """A name for the object code of that IR on this machine."""
        return hashlib.sha256(f"{self.key}\n{ir}".encode()).hexdigest()


def _split_call(t: IRBuilder, symbol: str, args: Sequence[VectorValue], lanes: int) -> VectorValue:
    dtype = args[0].dtype
    own, wide = t.vector(dtype), IRBuilder(lanes).vector(dtype)
    if t.lanes < lanes:
        order = [min(k, t.lanes - 1) for k in range(lanes)]
        result = _call(t, symbol, [t.shuffle(own, a.text, order) for a in args], wide)
        return VectorValue(t.shuffle(wide, result, range(t.lanes)), dtype)
    parts = []
    for start in range(0, t.lanes, lanes):
        pieces = [t.shuffle(own, a.text, range(start, start + lanes)) for a in args]
        parts.append(_call(t, symbol, pieces, wide))
    return concatenated(t, parts, lanes, dtype)


def _call(t: IRBuilder, symbol: str, args: Sequence[str], type: str) -> str:
    t.declare(library_function(symbol, type, len(args)))
    return t.let(f"call {type} @{symbol}({', '.join(f'{type} {a}' for a in args)})")


def externals(ir: str) -> list[str]:
    """The functions that some IR names and does not define, but for LLVM's own."""
    return _EXTERNAL.findall(f"\n{ir}")


def _tuned(processor: Processor) -> str:
    """The features, with what LLVM's vectorizer is to leave: gathers, which take AMD's processors (and Intel's, since their mending
    against leaks) longer than the loads that they stand for."""
    return ",".join(filter(None, (processor.features, "+prefer-no-gather" * processor.triple.startswith("x86_64"))))


def _machine(processor: Processor, **options: str) -> Any:
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(cpu=processor.cpu, features=_tuned(processor), opt=2, **options)


def _foreign_machine(processor: Processor) -> Any:
    """What emits code that may be linked anywhere. Raises UsageError for a processor that LLVM does not know."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return _machine(processor, reloc="pic", codemodel="default")
    except RuntimeError as e:
        raise UsageError(Diagnostic(f"LLVM generates no code for '{processor.triple}'", hint=str(e).strip())) from None


_written_for: ContextVar[Target | None] = ContextVar("written_for", default=None)


@contextmanager
def written_for(target: Target) -> Iterator[None]:
    """IR that is written inside is for that target."""
    token = _written_for.set(target)
    try:
        yield
    finally:
        _written_for.reset(token)


def this_machine() -> Target:
    """What IR is written for: this machine, with vectors of the width that is asked for, unless it is `written_for` another."""
    return _written_for.get() or running_machine()


def running_machine() -> Target:
    """The one target of the process for vectors of the width that is asked for."""
    return _target(asked())


@cache
def _target(vector_bits: int | None) -> Target:
    return Target(vector_bits)

