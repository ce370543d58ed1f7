"""The entry of a program for C: a machine function that makes in the caller's workspace what the plan's own function reads.

`NAME_run(in, out, workspace)` copies the image of a call's memory (`native/whole_program/image.py`), which is data of the object as
constants are, into the workspace, adds the address of that to the words that are offsets in it, and calls the plan's function.
Nothing is kept between calls: with different workspaces several may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.literal import Array
from deepx_graph.runtime.kernels.memory import ALIGNMENT
from deepx_graph.runtime.native.llvm.builder import IRBuilder, leave_if
from deepx_graph.runtime.native.machine_kernel import DATA, rounded
from deepx_graph.runtime.native.whole_program.emit import CELL, SHARE
from deepx_graph.runtime.native.whole_program.image import ProgramImage

OK, BAD_WORKSPACE, BAD_POINTER = range(3)
"""What the entry returns."""

UNLIMITED = 1 << 62
"""Jumps back in one call: it returns only when it is done."""

_HELPERS = """declare void @iterate(ptr, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @share(ptr %pool, i64 %threads, ptr %function, ptr %table, ptr %counter, ptr %scratches) {
  %scratch = load ptr, ptr %scratches
  call void %function(ptr %table, ptr %counter, ptr %scratch)
  ret void
}
"""
"""The plan's own function, and what does alone the work that several threads would share."""


def workspace_bytes(image: ProgramImage, objects: int) -> int:
    """What the caller gives: the memory of a call, what stands for so many array objects, and the table of these."""
    return rounded(image.nbytes) + (CELL + 8) * objects + 8


def entry_text(image: ProgramImage, params: int, results: int, name: str, symbol: Callable[[int], str]) -> str:
    """The IR of `name`, which takes and gives so many arrays. `symbol` is the name of a machine function, by its address."""
    t, data = IRBuilder(1), _Data(symbol)
    _check(t, params, results)
    words = {c.at: data.constant(c.array, c.relocations) for c in image.constants} | {SHARE // 8: "@share"}
    words |= {at: data.function(address) for at, address in image.functions}
    whole, inner = data.words(image.words, words), data.words(image.inner, {})
    t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr %workspace, ptr {whole}, i64 {image.words.nbytes}, i1 false)")
    start = t.let("ptrtoint ptr %workspace to i64")

    def relocate(k: str) -> None:
        at = t.word(inner, k)
        slot = t.let(f"getelementptr i64, ptr %workspace, i64 {at}")
        t.line(f"store i64 {t.let(f'add i64 {start}, {t.word(slot)}')}, ptr {slot}")

    t.rows("0", str(len(image.inner)), relocate)
    objects = t.behind("%workspace", rounded(image.nbytes))
    table = t.behind(objects, CELL * (params + results))
    for array, first, count in (("%in", 0, params), ("%out", params, results)):
        def one(k: str, array: str = array, first: int = first) -> None:
            number = t.let(f"add i64 {k}, {first}")
            object = t.behind(objects, t.let(f"mul i64 {number}, {CELL}"))
            t.line(f"store ptr {t.word(array, k, 'ptr')}, ptr {t.behind(object, DATA)}")
            t.line(f"store ptr {object}, ptr {t.behind(table, t.let(f'mul i64 {number}, 8'))}")

        t.rows("0", str(count), one)
    t.line(f"store ptr %workspace, ptr {t.behind(table, 8 * (params + results))}")
    t.line(f"call void @iterate(ptr {table}, ptr null)")
    entry = t.function(f"i32 @{name}(ptr %in, ptr %out, ptr %workspace) nounwind", f"ret i32 {OK}")
    return "\n".join([*data.lines, _HELPERS, entry, ""])


def _check(t: IRBuilder, params: int, results: int) -> None:
    """Returns at once where the workspace is none, or not aligned, or an array is none."""
    address = t.let("ptrtoint ptr %workspace to i64")
    odd = t.let(f"icmp ne i64 {t.let(f'and i64 {address}, {ALIGNMENT - 1}')}, 0")
    is_none = t.let("icmp eq ptr %workspace, null")
    leave_if(t, t.let(f"or i1 {odd}, {is_none}"), lambda: t.line(f"ret i32 {BAD_WORKSPACE}"))
    for array, count in (("%in", params), ("%out", results)):
        t.rows("0", str(count), lambda k, array=array: leave_if(  # type: ignore[misc]
            t, t.let(f"icmp eq ptr {t.word(array, k, 'ptr')}, null"), lambda: t.line(f"ret i32 {BAD_POINTER}")))


class _Data:
    """The constants of the object, each once."""

    def __init__(self, symbol: Callable[[int], str]) -> None:
        self._symbol = symbol
        self._names: dict[str, str] = {}
        self._declared: dict[str, None] = {}

    @property
    def lines(self) -> list[str]:
        """Their definitions, and the declarations of the functions to which they point."""
        return [*self._declared, *(f"{name} = internal constant {text}, align {ALIGNMENT}" for text, name in self._names.items())]

    def function(self, address: int) -> str:
        """The name of a machine function."""
        symbol = f"@{self._symbol(address)}"
        self._declared[f"declare void {symbol}()"] = None  # only its address is taken
        return symbol

    def constant(self, array: Array, relocations: Sequence[int]) -> str:
        """The name of the elements of an array, of which some words are addresses of machine functions."""
        if relocations:
            return self.words(array, {at: self.function(int(array[at])) for at in relocations})
        data = array.tobytes()
        return self._named(f'[{len(data)} x i8] c"{"".join(map(_HEX.__getitem__, data))}"')

    def words(self, array: Array, symbols: dict[int, str]) -> str:
        """The name of words, of which some are the addresses of those symbols."""
        words = array.tolist()
        for at, name in symbols.items():
            words[at] = f"ptrtoint (ptr {name} to i64)"
        return self._named(f"[{len(words)} x i64] [{', '.join(f'i64 {w}' for w in words)}]")

    def _named(self, text: str) -> str:
        return self._names.setdefault(text, f"@data{len(self._names)}")


_HEX = [f"\\{byte:02X}" for byte in range(256)]
"""Bytes as LLVM reads them between quotes."""
