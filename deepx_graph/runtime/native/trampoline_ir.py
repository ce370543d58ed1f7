"""The IR of `enter`, which runs what a frame of words describes; `entry` makes the frames.

All memory that it reads beside the arguments belongs to the frame. It is written for any machine of 64 bits with CPython
and numpy 2.
"""

from __future__ import annotations

from deepx_graph.runtime.native.threads import WORKERS

TYPE, DATA, RANK, DIMS, DTYPE, FLAGS = 8, 16, 24, 32, 56, 64
"""Byte offsets in an array object."""

KIND = 24
"""Where a dtype object has its kind, letter, byte order, flags and number: eight bytes that tell plain dtypes apart."""

ITEMS = 24
"""Where a tuple has its items."""

NUMBER = 16
"""Where a number of numpy's has its value."""

FRAME = ("busy", "params", "param_count", "results", "result_count", "given", "given_count", "made", "made_count", "steps",
         "step_count", "objects", "long", "counter", "share", "pool", "workers", "array_type", "new_array", "none")
"""The words of a frame: the address of the word that says whether it runs; tables and how many rows they have; a row for the
arguments, or 0 where none may be a number; whether the work is long; a chunk counter; `share`, the pool and how many workers it
should have; the type of arrays, numpy's function that makes them, and None."""

PARAM = ("kind", "flags", "rank", "dims", "bytes", "alone", "number", "box")
"""The words of a parameter: what KIND and FLAGS must be, rank and dimensions, bytes; whether it is written over. Of one of rank 0
also the type of numpy's numbers that may stand for it, or 0, and the array that such a number is put into."""

RESULT = ("over", "maker", "dtype", "rank", "dims")
"""The words of a result: the number of the argument that it is written over, or -1; a callable that makes it, or 0; otherwise its
dtype, rank and dimensions."""

STEP = ("function", "table", "scratches", "threads", "state")
"""The words of a step. With 0 threads `function(table, scratch)`, else `function(table, counter, scratch)` in so many threads.
`state` is 0, or the address of two words: the step begins with 0 in the first, and is run again as long as there is not; where
the second is not 0 then, it has failed."""


def _word(row: str, words: tuple[str, ...], name: str, type: str = "i64") -> str:
    """Loads a word of the row at pointer `%row` as `%row.name`."""
    return f"""  %{row}.{name}.at = getelementptr i64, ptr %{row}, i64 {words.index(name)}
  %{row}.{name} = load {type}, ptr %{row}.{name}.at
"""


def _field(object: str, name: str, offset: int, type: str) -> str:
    """Loads the field of an object as `%object.name`."""
    return f"""  %{object}.{name}.at = getelementptr i8, ptr %{object}, i64 {offset}
  %{object}.{name} = load {type}, ptr %{object}.{name}.at
"""


def _row(table: str, words: tuple[str, ...], index: str, name: str) -> str:
    """The address of a row of a table, as `%name`."""
    return f"""  %{name}.start = mul i64 %{index}, {len(words)}
  %{name} = getelementptr i64, ptr %{table}, i64 %{name}.start
"""


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

_FITS = f"""
define i1 @fits(ptr %array, ptr %param, ptr %type) nounwind {{
{_field("array", "type", TYPE, "ptr")}  %right.type = icmp eq ptr %array.type, %type
  br i1 %right.type, label %an_array, label %else
else:
{_word("param", PARAM, "number", "ptr")}  %is.number = icmp eq ptr %array.type, %param.number
  ret i1 %is.number
an_array:
{_field("array", "dtype", DTYPE, "ptr")}{_field("array.dtype", "kind", KIND, "i64")}{_word("param", PARAM, "kind")}\
  %right.kind = icmp eq i64 %array.dtype.kind, %param.kind
{_field("array", "flags", FLAGS, "i32")}{_word("param", PARAM, "flags")}  %flags = trunc i64 %param.flags to i32
  %those.flags = and i32 %array.flags, %flags
  %right.flags = icmp eq i32 %those.flags, %flags
{_field("array", "rank", RANK, "i32")}{_word("param", PARAM, "rank")}  %rank = trunc i64 %param.rank to i32
  %right.rank = icmp eq i32 %array.rank, %rank
  %right.both = and i1 %right.kind, %right.flags
  %right.all = and i1 %right.both, %right.rank
  br i1 %right.all, label %of_rank, label %no
of_rank:
{_field("array", "dims", DIMS, "ptr")}{_word("param", PARAM, "dims", "ptr")}  br label %next
next:
  %k = phi i64 [ 0, %of_rank ], [ %k1, %same ]
  %more = icmp slt i64 %k, %param.rank
  br i1 %more, label %one, label %yes
one:
  %dim.at = getelementptr i64, ptr %array.dims, i64 %k
  %dim = load i64, ptr %dim.at
  %wanted.at = getelementptr i64, ptr %param.dims, i64 %k
  %wanted = load i64, ptr %wanted.at
  %right.dim = icmp eq i64 %dim, %wanted
  %k1 = add i64 %k, 1
  br i1 %right.dim, label %same, label %no
same:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_APART = f"""
define i1 @apart(ptr %args, ptr %params, i64 %count, i64 %mine) nounwind {{
  %array.at = getelementptr ptr, ptr %args, i64 %mine
  %array = load ptr, ptr %array.at
{_field("array", "data", DATA, "i64")}{_row("params", PARAM, "mine", "param")}{_word("param", PARAM, "bytes")}\
  %end = add i64 %array.data, %param.bytes
  br label %next
next:
  %k = phi i64 [ 0, %0 ], [ %k1, %go_on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %yes
one:
  %k1 = add i64 %k, 1
  %itself = icmp eq i64 %k, %mine
  br i1 %itself, label %go_on, label %look
look:
  %other.at = getelementptr ptr, ptr %args, i64 %k
  %other = load ptr, ptr %other.at
{_row("params", PARAM, "k", "also")}{_word("also", PARAM, "number", "ptr")}{_field("other", "type", TYPE, "ptr")}\
  %is.number = icmp eq ptr %other.type, %also.number
  br i1 %is.number, label %go_on, label %compare
compare:
{_field("other", "data", DATA, "i64")}{_word("also", PARAM, "bytes")}\
  %other.end = add i64 %other.data, %also.bytes
  %before = icmp ule i64 %end, %other.data
  %behind = icmp ule i64 %other.end, %array.data
  %clear = or i1 %before, %behind
  br i1 %clear, label %go_on, label %no
go_on:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_ALL_FIT = f"""
define i1 @all_fit(ptr %frame, ptr %args, i64 %count) nounwind {{
{_word("frame", FRAME, "param_count")}{_word("frame", FRAME, "params", "ptr")}{_word("frame", FRAME, "array_type", "ptr")}\
  %right.count = icmp eq i64 %count, %frame.param_count
  br i1 %right.count, label %each, label %no
each:
  %k = phi i64 [ 0, %0 ], [ %k1, %fit ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %again
one:
  %k1 = add i64 %k, 1
  %arg.at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %arg.at
{_row("frame.params", PARAM, "k", "param")}  %fits = call i1 @fits(ptr %arg, ptr %param, ptr %frame.array_type)
  br i1 %fits, label %fit, label %no
fit:
  br label %each
again:
  %j = phi i64 [ 0, %each ], [ %j1, %clear ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %look, label %yes
look:
  %j1 = add i64 %j, 1
{_row("frame.params", PARAM, "j", "also")}{_word("also", PARAM, "alone")}  %shared = icmp eq i64 %also.alone, 0
  br i1 %shared, label %clear, label %compare
compare:
  %apart = call i1 @apart(ptr %args, ptr %frame.params, i64 %count, i64 %j)
  br i1 %apart, label %clear, label %no
clear:
  br label %again
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_MADE = f"""
define ptr @made(ptr %frame, ptr %args, ptr %result) nounwind {{
{_word("result", RESULT, "over")}  %is.over = icmp sge i64 %result.over, 0
  br i1 %is.over, label %over, label %fresh
over:
  %arg.at = getelementptr ptr, ptr %args, i64 %result.over
  %arg = load ptr, ptr %arg.at
  call void @Py_IncRef(ptr %arg)
  ret ptr %arg
fresh:
{_word("result", RESULT, "maker", "ptr")}  %is.large = icmp ne ptr %result.maker, null
  br i1 %is.large, label %large, label %small
large:
  %pooled = call ptr @PyObject_CallNoArgs(ptr %result.maker)
  ret ptr %pooled
small:
{_word("result", RESULT, "dtype", "ptr")}{_word("result", RESULT, "rank")}{_word("result", RESULT, "dims", "ptr")}\
{_word("frame", FRAME, "array_type", "ptr")}{_word("frame", FRAME, "new_array", "ptr")}\
  %rank = trunc i64 %result.rank to i32
  call void @Py_IncRef(ptr %result.dtype)
  %array = call ptr %frame.new_array(ptr %frame.array_type, ptr %result.dtype, i32 %rank, ptr %result.dims, ptr null, ptr null, \
i32 0, ptr null)
  ret ptr %array
}}

define ptr @all_made(ptr %frame, ptr %args) nounwind {{
{_word("frame", FRAME, "results", "ptr")}{_word("frame", FRAME, "result_count")}\
  %tuple = call ptr @PyTuple_New(i64 %frame.result_count)
  %is.tuple = icmp ne ptr %tuple, null
  br i1 %is.tuple, label %next, label %none
next:
  %k = phi i64 [ 0, %0 ], [ %k1, %put ]
  %more = icmp slt i64 %k, %frame.result_count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
{_row("frame.results", RESULT, "k", "result")}  %array = call ptr @made(ptr %frame, ptr %args, ptr %result)
  %is.array = icmp ne ptr %array, null
  br i1 %is.array, label %put, label %failed
put:
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %k, ptr %array)
  br label %next
done:
  ret ptr %tuple
failed:
  call void @Py_DecRef(ptr %tuple)
  ret ptr null
none:
  ret ptr null
}}
"""

_OBJECTS = f"""
define ptr @objects(ptr %frame, ptr %args) nounwind {{
{_word("frame", FRAME, "objects", "ptr")}{_word("frame", FRAME, "params", "ptr")}{_word("frame", FRAME, "param_count")}\
  %as.they.are = icmp eq ptr %frame.objects, null
  br i1 %as.they.are, label %same, label %next
same:
  ret ptr %args
next:
  %k = phi i64 [ 0, %0 ], [ %k1, %put ]
  %more = icmp slt i64 %k, %frame.param_count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  %arg.at = getelementptr ptr, ptr %args, i64 %k
  %arg = load ptr, ptr %arg.at
{_row("frame.params", PARAM, "k", "param")}{_word("param", PARAM, "number", "ptr")}{_field("arg", "type", TYPE, "ptr")}\
  %is.number = icmp eq ptr %arg.type, %param.number
  br i1 %is.number, label %number, label %put
number:
{_word("param", PARAM, "box", "ptr")}{_word("param", PARAM, "bytes")}{_field("param.box", "data", DATA, "ptr")}\
  %value = getelementptr i8, ptr %arg, i64 {NUMBER}
  call void @llvm.memcpy.p0.p0.i64(ptr %param.box.data, ptr %value, i64 %param.bytes, i1 false)
  br label %put
put:
  %object = phi ptr [ %arg, %one ], [ %param.box, %number ]
  %object.at = getelementptr ptr, ptr %frame.objects, i64 %k
  store ptr %object, ptr %object.at
  br label %next
done:
  ret ptr %frame.objects
}}
"""

_BOUND = """
define void @bound(ptr %objects, ptr %pairs, i64 %count) nounwind {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  %twice = mul i64 %k, 2
  %pair = getelementptr i64, ptr %pairs, i64 %twice
  %which = load i64, ptr %pair
  %object.at = getelementptr ptr, ptr %objects, i64 %which
  %object = load ptr, ptr %object.at
  %slot.at = getelementptr i64, ptr %pair, i64 1
  %slot = load ptr, ptr %slot.at
  store ptr %object, ptr %slot
  br label %next
done:
  ret void
}
"""

_RUN = f"""
define i64 @run(ptr %frame, i64 %first, i1 %again) nounwind {{
{_word("frame", FRAME, "steps", "ptr")}{_word("frame", FRAME, "step_count")}{_word("frame", FRAME, "share", "ptr")}\
{_word("frame", FRAME, "pool", "ptr")}  %counter = getelementptr i64, ptr %frame, i64 {FRAME.index("counter")}
  br label %next
next:
  %k = phi i64 [ %first, %0 ], [ %k1, %done ]
  %goes.on = phi i1 [ %again, %0 ], [ false, %done ]
  %more = icmp slt i64 %k, %frame.step_count
  br i1 %more, label %one, label %out
one:
  %k1 = add i64 %k, 1
{_row("frame.steps", STEP, "k", "step")}{_word("step", STEP, "function", "ptr")}{_word("step", STEP, "table", "ptr")}\
{_word("step", STEP, "scratches", "ptr")}{_word("step", STEP, "threads")}{_word("step", STEP, "state", "ptr")}\
  %scratch = load ptr, ptr %step.scratches
  %has.state = icmp ne ptr %step.state, null
  %starts = xor i1 %goes.on, true
  %is.new = and i1 %has.state, %starts
  br i1 %is.new, label %new, label %ready
new:
  store i64 0, ptr %step.state
  br label %ready
ready:
  %plain = icmp eq i64 %step.threads, 0
  br i1 %plain, label %whole, label %chunks
whole:
  call void %step.function(ptr %step.table, ptr %scratch)
  br i1 %has.state, label %ask, label %done
ask:
  %state = load i64, ptr %step.state
  %is.done = icmp eq i64 %state, 0
  br i1 %is.done, label %look, label %stopped
stopped:
  ret i64 %k
look:
  %failure.at = getelementptr i64, ptr %step.state, i64 1
  %failure = load i64, ptr %failure.at
  %has.failed = icmp ne i64 %failure, 0
  br i1 %has.failed, label %failed, label %done
failed:
  ret i64 -1
chunks:
  store i64 0, ptr %counter
  %several = icmp sgt i64 %step.threads, 1
  br i1 %several, label %shared, label %alone
alone:
  call void %step.function(ptr %step.table, ptr %counter, ptr %scratch)
  br label %done
shared:
  call void %frame.share(ptr %frame.pool, i64 %step.threads, ptr %step.function, ptr %step.table, ptr %counter, ptr %step.scratches)
  br label %done
done:
  br label %next
out:
  ret i64 %frame.step_count
}}
"""

_ENTER = f"""
define ptr @enter(ptr %self, ptr %args, i64 %count) nounwind {{
{_field("self", "data", DATA, "ptr")}  %frame = getelementptr i8, ptr %self.data, i64 0
{_word("frame", FRAME, "pool", "ptr")}{_word("frame", FRAME, "workers")}\
  %fit = call i1 @all_fit(ptr %frame, ptr %args, i64 %count)
  br i1 %fit, label %arguments, label %careful
arguments:
  %needs.workers = icmp sgt i64 %frame.workers, 0
  br i1 %needs.workers, label %look, label %hired
look:
{_field("frame.pool", "there", WORKERS, "i64")}  %are.there = icmp sge i64 %frame.pool.there, %frame.workers
  br i1 %are.there, label %hired, label %careful
hired:
{_word("frame", FRAME, "busy", "ptr")}  %tried = cmpxchg ptr %frame.busy, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %mine, label %begin, label %careful
begin:
  %results = call ptr @all_made(ptr %frame, ptr %args)
  %has.memory = icmp ne ptr %results, null
  br i1 %has.memory, label %bind, label %end
bind:
{_word("frame", FRAME, "given", "ptr")}{_word("frame", FRAME, "given_count")}{_word("frame", FRAME, "made", "ptr")}\
{_word("frame", FRAME, "made_count")}{_word("frame", FRAME, "long")}{_word("frame", FRAME, "step_count")}\
  %objects = call ptr @objects(ptr %frame, ptr %args)
  call void @bound(ptr %objects, ptr %frame.given, i64 %frame.given_count)
  %items = getelementptr i8, ptr %results, i64 {ITEMS}
  call void @bound(ptr %items, ptr %frame.made, i64 %frame.made_count)
  %is.long = icmp ne i64 %frame.long, 0
  br label %go
go:
  %first = phi i64 [ 0, %bind ], [ %at, %look_around ]
  %again = phi i1 [ false, %bind ], [ true, %look_around ]
  br i1 %is.long, label %released, label %held
released:
  %state = call ptr @PyEval_SaveThread()
  %at.released = call i64 @run(ptr %frame, i64 %first, i1 %again)
  call void @PyEval_RestoreThread(ptr %state)
  br label %ran
held:
  %at.held = call i64 @run(ptr %frame, i64 %first, i1 %again)
  br label %ran
ran:
  %at = phi i64 [ %at.released, %released ], [ %at.held, %held ]
  %has.failed = icmp slt i64 %at, 0
  br i1 %has.failed, label %failed, label %did
did:
  %stopped = icmp slt i64 %at, %frame.step_count
  br i1 %stopped, label %look_around, label %end
failed:
  call void @Py_DecRef(ptr %results)
  store atomic i64 0, ptr %frame.busy seq_cst, align 8
  br label %careful
look_around:
  %raised = call i32 @PyErr_CheckSignals()
  %goes.on = icmp eq i32 %raised, 0
  br i1 %goes.on, label %go, label %interrupted
interrupted:
  call void @Py_DecRef(ptr %results)
  store atomic i64 0, ptr %frame.busy seq_cst, align 8
  ret ptr null
end:
  store atomic i64 0, ptr %frame.busy seq_cst, align 8
  ret ptr %results
careful:
{_word("frame", FRAME, "none", "ptr")}  call void @Py_IncRef(ptr %frame.none)
  ret ptr %frame.none
}}
"""

IR = "\n".join((_DECLARATIONS, _FITS, _APART, _ALL_FIT, _MADE, _OBJECTS, _BOUND, _RUN, _ENTER))
