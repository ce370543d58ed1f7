"""The IR of `enter`, which runs what a frame of words describes; `entry` makes the frames.

All memory that it reads beside the arguments belongs to the frame. It is written for any machine of 64 bits with CPython
and numpy 2.
"""

from __future__ import annotations

from deepx_graph.runtime.native.dispatch import DATA, FAILED, HEAD, RESUME
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, leave_if
from deepx_graph.runtime.native.threads import WORKERS

TYPE, RANK, DIMS, DTYPE, FLAGS = 8, 24, 32, 56, 64
"""Byte offsets in an array object."""

KIND = 24
"""Where a dtype object has its kind, letter, byte order, flags and number: eight bytes that tell plain dtypes apart."""

ITEMS = 24
"""Where a tuple has its items."""

NUMBER = 16
"""Where a number of numpy's has its value."""

FRAME = ("busy", "params", "param_count", "results", "result_count", "given", "given_count", "dispatch", "words", "long", "pool",
         "workers", "array_type", "new_array", "none")
"""The words of a frame: the address of the word that says whether it runs; tables and how many rows they have (`given`: the numbers
of the arguments whose objects have the first slots, before those of results); `dispatch` and the words of the call; whether the
work is long; the pool and how many workers it should have; the type of arrays, numpy's function that makes them, and None."""

PARAM = ("kind", "flags", "rank", "dims", "bytes", "alone", "number", "box")
"""The words of a parameter: what KIND and FLAGS must be, rank and dimensions, bytes; whether it is written over. Of one of rank 0
also the type of numpy's numbers that may stand for it, or 0, and the array that such a number is put into."""

RESULT = ("over", "maker", "dtype", "rank", "dims")
"""The words of a result: the number of the argument that it is written over, or -1; a callable that makes it, or 0; otherwise its
dtype, rank and dimensions."""

_INTEGERS = {"param_count", "result_count", "given_count", "long", "workers", "kind", "flags", "rank", "bytes", "alone", "over"}
"""The words that are no addresses."""

_DECLARATIONS = """
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

class _Words:
    """The words of a row, loaded where they are asked for."""

    def __init__(self, t: IRBuilder, at: str, names: tuple[str, ...], row: str = "0") -> None:
        self._t, self._names = t, names
        self.at = t.behind(at, t.let(f"mul i64 {row}, {8 * len(names)}"))

    def __getattr__(self, name: str) -> str:
        return self._t.word(self.at, self._names.index(name), "i64" if name in _INTEGERS else "ptr")

    def address(self, name: str) -> str:
        """Where a word is."""
        return self._t.behind(self.at, 8 * self._names.index(name))


def _field(t: IRBuilder, object: str, offset: int, type: str = "ptr") -> str:
    """What an object has at an offset."""
    return t.let(f"load {type}, ptr {t.behind(object, offset)}")


def _is_number(t: IRBuilder, object: str, param: _Words) -> str:
    """Whether an argument is one of numpy's numbers, and may be."""
    return t.let(f"icmp eq ptr {_field(t, object, TYPE)}, {param.number}")


def _fits() -> str:
    """`fits(array, param, type)`: whether an argument is as a parameter says."""
    t = IRBuilder(1)
    param = _Words(t, "%param", PARAM)
    is_array = t.let(f"icmp eq ptr {_field(t, '%array', TYPE)}, %type")
    leave_if(t, t.let(f"xor i1 {is_array}, true"), lambda: t.line(f"ret i1 {_is_number(t, '%array', param)}"))
    flags, rank = param.flags, param.rank
    has, ranks = (t.let(f"zext i32 {_field(t, '%array', offset, 'i32')} to i64") for offset in (FLAGS, RANK))
    kind = _field(t, _field(t, "%array", DTYPE), KIND, "i64")
    for seen, wanted in ((kind, param.kind), (t.let(f"and i64 {has}, {flags}"), flags), (ranks, rank)):
        leave_if(t, t.let(f"icmp ne i64 {seen}, {wanted}"), lambda: t.line("ret i1 false"))
    is_dims, dims = _field(t, "%array", DIMS), param.dims
    t.rows("0", rank, lambda k: leave_if(t, t.let(f"icmp ne i64 {t.word(is_dims, k)}, {t.word(dims, k)}"),
                                         lambda: t.line("ret i1 false")))
    return t.function("i1 @fits(ptr %array, ptr %param, ptr %type) nounwind", "ret i1 true")


def _all_fit() -> str:
    """`all_fit(frame, args, count)`: whether all arguments are as the frame says, and those that are written over are apart from
    the others."""
    t = IRBuilder(1)
    frame = _Words(t, "%frame", FRAME)
    params, type = frame.params, frame.array_type

    def no() -> None:
        t.line("ret i1 false")

    def param_of(k: str) -> _Words:
        return _Words(t, params, PARAM, k)

    def fits(k: str) -> None:
        found = t.let(f"call i1 @fits(ptr {t.word('%args', k, 'ptr')}, ptr {param_of(k).address('kind')}, ptr {type})")
        leave_if(t, t.let(f"xor i1 {found}, true"), no)

    def span(k: str) -> tuple[str, str]:
        start = _field(t, t.word("%args", k, "ptr"), DATA, "i64")
        return start, t.let(f"add i64 {start}, {param_of(k).bytes}")

    def alone(k: str) -> None:
        mine = span(k)

        def apart(other: str) -> None:
            low, high = span(other)
            before, behind = t.let(f"icmp ule i64 {mine[1]}, {low}"), t.let(f"icmp ule i64 {high}, {mine[0]}")
            leave_if(t, t.let(f"xor i1 {t.let(f'or i1 {before}, {behind}')}, true"), no)

        def look(other: str) -> None:
            skipped = t.let(f"icmp eq i64 {other}, {k}"), _is_number(t, t.word("%args", other, "ptr"), param_of(other))
            branch(t, t.let(f"or i1 {skipped[0]}, {skipped[1]}"), None, lambda: apart(other))

        t.rows("0", "%count", look)

    leave_if(t, t.let(f"icmp ne i64 %count, {frame.param_count}"), no)
    t.rows("0", "%count", fits)
    t.rows("0", "%count", lambda k: branch(t, t.let(f"icmp ne i64 {param_of(k).alone}, 0"), lambda: alone(k)))
    return t.function("i1 @all_fit(ptr %frame, ptr %args, i64 %count) nounwind", "ret i1 true")


def _made() -> str:
    """`made(frame, args, result)`: a new reference to the array for a result; null where there is no memory."""
    t = IRBuilder(1)
    frame, result = _Words(t, "%frame", FRAME), _Words(t, "%result", RESULT)
    over, maker = result.over, result.maker

    def given() -> None:
        array = t.word("%args", over, "ptr")
        t.line(f"call void @Py_IncRef(ptr {array})")
        t.line(f"ret ptr {array}")

    leave_if(t, t.let(f"icmp sge i64 {over}, 0"), given)
    leave_if(t, t.let(f"icmp ne ptr {maker}, null"),
             lambda: t.line(f"ret ptr {t.let(f'call ptr @PyObject_CallNoArgs(ptr {maker})')}"))
    dtype, rank = result.dtype, t.let(f"trunc i64 {result.rank} to i32")
    t.line(f"call void @Py_IncRef(ptr {dtype})")
    array = t.let(f"call ptr {frame.new_array}(ptr {frame.array_type}, ptr {dtype}, i32 {rank}, ptr {result.dims}, ptr null,"
                  " ptr null, i32 0, ptr null)")
    return t.function("ptr @made(ptr %frame, ptr %args, ptr %result) nounwind", f"ret ptr {array}")


def _all_made() -> str:
    """`all_made(frame, args)`: a tuple of the arrays for the results; null where there is no memory."""
    t = IRBuilder(1)
    frame = _Words(t, "%frame", FRAME)
    count, results = frame.result_count, frame.results
    whole = t.let(f"call ptr @PyTuple_New(i64 {count})")
    leave_if(t, t.let(f"icmp eq ptr {whole}, null"), lambda: t.line("ret ptr null"))

    def failed() -> None:
        t.line(f"call void @Py_DecRef(ptr {whole})")
        t.line("ret ptr null")

    def one(k: str) -> None:
        array = t.let(f"call ptr @made(ptr %frame, ptr %args, ptr {_Words(t, results, RESULT, k).address('over')})")
        leave_if(t, t.let(f"icmp eq ptr {array}, null"), failed)
        t.let(f"call i32 @PyTuple_SetItem(ptr {whole}, i64 {k}, ptr {array})")

    t.rows("0", count, one)
    return t.function("ptr @all_made(ptr %frame, ptr %args) nounwind", f"ret ptr {whole}")


def _bind(t: IRBuilder, frame: _Words, results: str) -> None:
    """Puts arguments and results into their slots; of a number the array that holds it."""
    params, given, count, first = frame.params, frame.given, frame.given_count, t.behind(frame.words, HEAD)

    def argument(k: str) -> None:
        which, slot = t.word(given, k), t.let(f"getelementptr ptr, ptr {first}, i64 {k}")
        object, param = t.word("%args", which, "ptr"), _Words(t, params, PARAM, which)
        t.line(f"store ptr {object}, ptr {slot}")

        def boxed() -> None:
            box = param.box
            t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {_field(t, box, DATA)}, ptr {t.behind(object, NUMBER)},"
                   f" i64 {param.bytes}, i1 false)")
            t.line(f"store ptr {box}, ptr {slot}")

        branch(t, _is_number(t, object, param), boxed)

    t.rows("0", count, argument)
    slots, nbytes = t.let(f"getelementptr ptr, ptr {first}, i64 {count}"), t.let(f"mul i64 {frame.result_count}, 8")
    t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {slots}, ptr {t.behind(results, ITEMS)}, i64 {nbytes}, i1 false)")


def _enter() -> str:
    """`enter(self, args, count)`: the function that Python calls; its `self` is the array of the words of a frame."""
    t = IRBuilder(1)
    frame = _Words(t, _field(t, "%self", DATA), FRAME)
    busy, words, none = frame.busy, frame.words, frame.none

    def give(result: str) -> None:
        t.line(f"store atomic i64 0, ptr {busy} seq_cst, align 8")
        t.line(f"ret ptr {result}")

    def careful() -> None:
        t.line(f"call void @Py_IncRef(ptr {none})")
        t.line(f"ret ptr {none}")

    def drop(result: str) -> None:
        t.line(f"call void @Py_DecRef(ptr {results})")
        give(result)

    def failed() -> None:
        t.line(f"call void @Py_IncRef(ptr {none})")
        drop(none)

    def run() -> None:
        t.line(f"call void {frame.dispatch}(ptr {words})")

    def run_released() -> None:
        state = t.let("call ptr @PyEval_SaveThread()")
        run()
        t.line(f"call void @PyEval_RestoreThread(ptr {state})")

    fit, workers = t.let(f"call i1 @all_fit(ptr {frame.at}, ptr %args, i64 %count)"), frame.workers
    leave_if(t, t.let(f"xor i1 {fit}, true"), careful)

    def are_there() -> None:
        there = t.let(f"load i64, ptr {t.behind(frame.pool, WORKERS)}")
        leave_if(t, t.let(f"icmp slt i64 {there}, {workers}"), careful)

    branch(t, t.let(f"icmp sgt i64 {workers}, 0"), are_there)
    tried = t.let(f"cmpxchg ptr {busy}, i64 0, i64 1 seq_cst seq_cst")
    mine = t.let(f"extractvalue {{ i64, i1 }} {tried}, 1")
    leave_if(t, t.let(f"xor i1 {mine}, true"), careful)
    results = t.let(f"call ptr @all_made(ptr {frame.at}, ptr %args)")
    leave_if(t, t.let(f"icmp eq ptr {results}, null"), lambda: give("null"))
    _bind(t, frame, results)
    is_long = t.let(f"icmp ne i64 {frame.long}, 0")
    t.line(f"store i64 0, ptr {t.behind(words, RESUME)}")
    t.line("br label %go")
    t.start("go")
    branch(t, is_long, run_released, run)

    def finish() -> None:
        leave_if(t, t.let(f"icmp ne i64 {t.word(t.behind(words, FAILED))}, 0"), failed)
        give(results)

    leave_if(t, t.let(f"icmp eq i64 {t.word(t.behind(words, RESUME))}, 0"), finish)
    raised = t.let("call i32 @PyErr_CheckSignals()")
    leave_if(t, t.let(f"icmp ne i32 {raised}, 0"), lambda: drop("null"))
    return t.function("ptr @enter(ptr %self, ptr %args, i64 %count) nounwind", "br label %go")


IR = "\n".join((_DECLARATIONS, _fits(), _all_fit(), _made(), _all_made(), _enter()))
