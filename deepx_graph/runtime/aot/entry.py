"""The entry of a program for C: a machine function that makes in the caller's workspace what `dispatch` reads.

`NAME_run(in, out, workspace)` copies the image of a call's memory (`native/call_image.py`), which is data of the object as
constants are, into the workspace, adds the address of that to the words that are offsets in it, and calls `dispatch`.
Nothing is kept between calls: with different workspaces several may run at once.
"""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.literal import Array
from deepx_graph.runtime.memory.pages import ALIGNMENT
from deepx_graph.runtime.memory.sharing import SCALAR
from deepx_graph.runtime.native.call_image import CallImage, rounded
from deepx_graph.runtime.native.dispatch import DATA, HEAD
from deepx_graph.runtime.native.llvm.builder import IRBuilder, leave_if

OK, BAD_WORKSPACE, BAD_POINTER = range(3)
"""What the entry returns."""

UNLIMITED = 1 << 62
"""Jumps back in one call: it returns only when it is done."""

_DECLARATIONS = """declare void @dispatch(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def workspace_bytes(image: CallImage, objects: int) -> int:
    """What the caller gives: the memory of a call, and what stands for so many array objects."""
    return rounded(image.nbytes) + 8 * objects


def entry_text(image: CallImage, params: int, results: int, name: str, symbol: Callable[[int], str]) -> str:
    """The IR of `name`, which takes and gives so many arrays. `symbol` is the name of a machine function, by its address."""
    t, data = IRBuilder(1), _Data(symbol)
    _check(t, params, results)
    words = {c.at: _address(data.constant(c.array)) for c in image.constants}
    words |= {at: _address(data.function(address)) for at, address in image.functions}
    whole, inner = data.words(image.words, words), data.words(image.inner, {})
    t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr %workspace, ptr {whole}, i64 {image.words.nbytes}, i1 false)")
    start = t.let("ptrtoint ptr %workspace to i64")

    def relocate(k: str) -> None:
        at = t.word(inner, k)
        slot = t.let(f"getelementptr i64, ptr %workspace, i64 {at}")
        t.line(f"store i64 {t.let(f'add i64 {start}, {t.word(slot)}')}, ptr {slot}")

    t.rows("0", str(len(image.inner)), relocate)
    objects = t.behind("%workspace", rounded(image.nbytes))
    for array, first, count in (("%in", 0, params), ("%out", params, results)):
        def one(k: str, array: str = array, first: int = first) -> None:
            offset = t.let(f"mul i64 {t.let(f'add i64 {k}, {first}')}, 8")
            cell = t.behind(objects, offset)
            t.line(f"store ptr {t.word(array, k, 'ptr')}, ptr {cell}")
            t.line(f"store ptr {t.behind(cell, -DATA)}, ptr {t.behind(t.behind('%workspace', HEAD), offset)}")

        t.rows("0", str(count), one)
    t.line("call void @dispatch(ptr %workspace)")
    entry = t.function(f"i32 @{name}(ptr %in, ptr %out, ptr %workspace) nounwind", f"ret i32 {OK}")
    return "\n".join([*data.lines, _DECLARATIONS, entry, ""])


def _check(t: IRBuilder, params: int, results: int) -> None:
    """Returns at once where the workspace or an array is none, or where the workspace or a result is not aligned."""
    address = t.let("ptrtoint ptr %workspace to i64")
    odd = t.let(f"icmp ne i64 {t.let(f'and i64 {address}, {ALIGNMENT - 1}')}, 0")
    is_none = t.let("icmp eq ptr %workspace, null")
    leave_if(t, t.let(f"or i1 {odd}, {is_none}"), lambda: t.line(f"ret i32 {BAD_WORKSPACE}"))
    for array, count, unit in (("%in", params, 1), ("%out", results, SCALAR)):
        def check(k: str, array: str = array, unit: int = unit) -> None:
            at = t.word(array, k)
            is_none, rest = t.let(f"icmp eq i64 {at}, 0"), t.let(f"and i64 {at}, {unit - 1}")
            leave_if(t, t.let(f"or i1 {is_none}, {t.let(f'icmp ne i64 {rest}, 0')}"), lambda: t.line(f"ret i32 {BAD_POINTER}"))

        t.rows("0", str(count), check)


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

    def constant(self, array: Array) -> str:
        """The name of the elements of an array."""
        data = array.tobytes()
        return self._named(f'[{len(data)} x i8] c"{"".join(map(_HEX.__getitem__, data))}"')

    def words(self, array: Array, addresses: dict[int, str]) -> str:
        """The name of words, of which some are addresses."""
        words = array.tolist()
        for at, address in addresses.items():
            words[at] = address
        return self._named(f"[{len(words)} x i64] [{', '.join(f'i64 {w}' for w in words)}]")

    def _named(self, text: str) -> str:
        return self._names.setdefault(text, f"@data{len(self._names)}")


def _address(name: str, offset: int = 0) -> str:
    """A word that is the address of so many bytes behind a symbol."""
    return f"ptrtoint (ptr getelementptr (i8, ptr {name}, i64 {offset}) to i64)"


_HEX = [f"\\{byte:02X}" for byte in range(256)]
"""Bytes as LLVM reads them between quotes."""
