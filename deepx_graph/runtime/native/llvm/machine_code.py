"""Machine functions of IR: linked already, stored by an earlier process, or compiled while the caller goes on.

Code is linked once for each content, and unloaded when its last owner is gone. A JIT session gives back all that links took only
when it is closed: so a session takes some links, then another is opened; a full one is closed with the last of its code.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding

from deepx_graph.forking import Lock
from deepx_graph.runtime.native.llvm import store
from deepx_graph.runtime.native.llvm.compilers import Compilation
from deepx_graph.runtime.native.llvm.target import Target, running_machine, written_for

llvm: Any = llvmlite.binding

LINKS = 16
"""How many links a session takes."""


NARROW = "__truncdfhf2"
"""What LLVM calls to narrow f64 to f16, which it does not only where IR says so: it takes the sign of a copysign from before
narrowing. The library of the C compiler has it since GCC 12, and a process may not have that."""

_NARROWING = f"""define half @{NARROW}(double %x) {{
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %size = call double @llvm.fabs.f64(double %x)
  %reached = call double @llvm.fabs.f64(double %back)
  %beyond = fcmp ogt double %reached, %size
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %near to i32
  %less = sub i32 %bits, 1
  %inside = select i1 %beyond, i32 %less, i32 %bits
  %odd = or i32 %inside, 1
  %chosen = select i1 %inexact, i32 %odd, i32 %bits
  %sticky = bitcast i32 %chosen to float
  %y = fptrunc float %sticky to half
  ret half %y
}}
declare double @llvm.fabs.f64(double)
"""
"""By way of f32, rounded to odd, which loses nothing that rounding to f16 looks at. Source: Boldo and Melquiond, Emulation of a FMA
and correctly rounded sums: proved algorithms using rounding to odd, 2008."""


@cache
def narrowing() -> bytes:
    """The object code of `NARROW`."""
    return running_machine().compile(_NARROWING)


class LinkedCode:
    """Object code and its functions. `session` stays open as long as it has code."""

    def __init__(self, digest: str, object_code: bytes, session: Any, tracker: Any, names: Sequence[str]) -> None:
        self.digest, self.object_code, self.session, self.tracker = digest, object_code, session, tracker
        self.addresses = {name: int(tracker[name]) for name in names}
        self.owners = 0


class Linker:
    """The code of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._codes: dict[str, LinkedCode] = {}
        self._at: dict[int, tuple[LinkedCode, str]] = {}
        """The code that has the function at an address, and its name."""
        self._left: deque[LinkedCode] = deque()
        """Codes that an owner has left. Whoever links next sees to them: an owner may go anywhere, this lock being held."""
        self._session: Any = None
        self._links = 0

    def __len__(self) -> int:
        """How many codes are linked."""
        with self._lock:
            self._sweep()
            return len(self._codes)

    def known(self, digest: str, owner: object = None) -> dict[str, int] | None:
        """The addresses of functions in code that is linked, now also `owner`'s; None for code that is not."""
        with self._lock:
            self._sweep()
            code = self._codes.get(digest)
            return None if code is None else self._owned(code, owner)

    def link(self, digest: str, object_code: bytes, names: Sequence[str], owner: object = None) -> dict[str, int]:
        """The addresses of functions in object code. Raises RuntimeError where it is none, or lacks one of them."""
        with self._lock:
            self._sweep()
            if digest not in self._codes:
                code = self._codes[digest] = self._linked(digest, object_code, names)
                self._at |= {address: (code, name) for name, address in code.addresses.items()}
            return self._owned(self._codes[digest], owner)

    def at(self, address: int) -> tuple[LinkedCode, str] | None:
        """The code that has a function at an address, and the name of that; None for another address."""
        with self._lock:
            return self._at.get(address)

    def _linked(self, digest: str, object_code: bytes, names: Sequence[str]) -> LinkedCode:
        if self._session is None or self._links % LINKS == 0:
            self._session = running_machine().session()
        self._links += 1
        builder = llvm.JITLibraryBuilder().add_object_img(object_code)
        if NARROW.encode() in object_code:
            builder.add_object_img(narrowing())
        builder.add_current_process()
        for name in names:
            builder.export_symbol(name)
        return LinkedCode(digest, object_code, self._session, builder.link(self._session, f"kernel{self._links}"), names)

    def _owned(self, code: LinkedCode, owner: object) -> dict[str, int]:
        code.owners += 1
        if owner is not None:
            weakref.finalize(owner, self._left.append, code).atexit = False
        return code.addresses

    def _sweep(self) -> None:
        """Unloads what nobody owns any more."""
        while self._left:
            code = self._left.popleft()
            code.owners -= 1
            if not code.owners:
                del self._codes[code.digest]
                for address in code.addresses.values():
                    del self._at[address]
                code.tracker.close()


class MachineFunction(NamedTuple):
    """A function that some IR defines; `optimise` as in `functions`."""

    ir: str
    name: str
    optimise: bool


Collection = dict[int, MachineFunction]
"""Functions in the order in which they were asked for, numbered from 1."""

_noted: ContextVar[Collection | None] = ContextVar("noted", default=None)


@contextmanager
def collected(target: Target) -> Iterator[Collection]:
    """Inside, the code of kernels is written for a target and collected: it is neither compiled nor can it run. Kernels that are
    made inside must not be used outside."""
    collection: Collection = {}
    token = _noted.set(collection)
    try:
        with written_for(target):
            yield collection
    finally:
        _noted.reset(token)


def is_collecting() -> bool:
    """Whether the code of kernels is collected: it cannot run then."""
    return _noted.get() is not None


@cache
def linker() -> Linker:
    """The one of the process."""
    return Linker()


class PendingCode:
    """The functions of some IR. They are linked when the address of one is asked for, and are good as long as their owner is there,
    without one for ever."""

    def __init__(self, digest: str, names: Sequence[str], owner: object, compilation: Compilation | None = None,
                 addresses: dict[str, int] | None = None) -> None:
        self._digest, self._names, self._compilation, self._addresses = digest, names, compilation, addresses
        self._owner = None if owner is None else weakref.ref(owner)

    @property
    def addresses(self) -> dict[str, int]:
        """The address of each function. Raises RuntimeError where LLVM makes no code."""
        compilation = self._compilation
        if self._addresses is None:
            assert compilation is not None
            owner = None if self._owner is None else self._owner() or self
            found = linker().known(self._digest, owner)
            if found is None:
                code = compilation.code()
                store.save(self._digest, code)
                found = linker().link(self._digest, code, self._names, owner)
            self._addresses, self._compilation = found, None
        return self._addresses


@dataclass(frozen=True)
class FunctionReference:
    """A function of some code. Whoever asks for its address waits for the code."""

    code: PendingCode
    name: str

    @property
    def address(self) -> int:
        """Where it is. Raises as `PendingCode.addresses`."""
        return self.code.addresses[self.name]


_compiled: weakref.WeakValueDictionary[str, Compilation] = weakref.WeakValueDictionary()
"""What is being compiled, by digest."""


def functions(ir: str, names: Sequence[str], owner: object = None, *, optimise: bool = False) -> dict[str, FunctionReference]:
    """The functions that some IR defines; they are good as long as `owner` is there, without one for ever.

    `optimise` has LLVM's passes make vectors of scalar loops. While code is `collected`, that of an owner is only noted, and the
    addresses are the numbers of its functions there.

    Raises as `Target.compile` does.
    """
    code = _code(ir, names, owner, optimise)
    return {name: FunctionReference(code, name) for name in names}


def _code(ir: str, names: Sequence[str], owner: object, optimise: bool) -> PendingCode:
    noted = _noted.get()
    if noted is not None and owner is not None:
        numbers = range(len(noted) + 1, len(noted) + 1 + len(names))
        noted |= {number: MachineFunction(ir, name, optimise) for number, name in zip(numbers, names, strict=True)}
        return PendingCode("", names, owner, addresses=dict(zip(names, numbers, strict=True)))
    machine = running_machine()
    digest = machine.digest(f"{ir}\n; optimised" if optimise else ir)
    found = linker().known(digest, owner)
    if found is None and digest not in _compiled and (stored := store.load(digest)) is not None:
        with suppress(RuntimeError):  # no object code, or not of these functions
            found = linker().link(digest, stored, names, owner)
    if found is not None:
        return PendingCode(digest, names, owner, addresses=found)
    compilation = _compiled.get(digest)
    if compilation is None:
        compilation = _compiled[digest] = machine.compilation(ir, optimise=optimise)
        compilation.begin()
    return PendingCode(digest, names, owner, compilation)
