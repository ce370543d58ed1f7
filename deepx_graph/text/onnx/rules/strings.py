"""Operators on tensors of texts, and those that look labels and n-grams up in tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.tensor.strings import CASES, texts
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import F32, I64, STRING


def _concat(c: NodeContext) -> Node:
    return c.each(ops.string_concat, c.node(), c.node(1))


def _match(c: NodeContext) -> Node:
    return c(ops.string_match, c.node(), pattern=c.text("pattern"))


def table_of(words: Any) -> Literal:
    """A list of texts as a constant."""
    return Literal(texts(list(words), (len(words),)))


def _normalizer(c: NodeContext) -> Node:
    """Texts that become empty are left out, so it must be known which they are; one empty text where all do."""
    if c.rank() not in (1, 2):
        raise InferError(f"the operand is {c.type()}", operand=0, expected="a vector, or a matrix of one row")
    case = c.one_of("case_change_action", "NONE", *CASES)
    made = c(ops.string_normalize, c.node(), case=case, stopwords=table_of(c.texts("stopwords", ())),
             case_sensitive=c.flag("is_case_sensitive"))
    if c.rank() == 2 and c.dims()[0] != 1:
        return made
    rest = [t for t in c.known(made).reshape(-1).tolist() if t] or [""]
    return c.b.literal(Literal(texts(rest, (1, len(rest)) if c.rank() == 2 else (len(rest),))))


def _split(c: NodeContext) -> list[Node]:
    """The parts of each text along a new last axis, filled up with empty texts; and how many there are."""
    x, most = c.value(0), c.number("maxsplit", -1)
    between = c.text("delimiter", "") or None
    parts = [t.split(between, most) for t in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    if len(parts) * width > c.limit:
        raise InferError(f"{len(parts)} texts of {width} parts")
    flat = [t for p in parts for t in (*p, *("",) * (width - len(p)))]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    return [c.b.literal(Literal(texts(flat, (*x.shape, width)))), c.b.literal(Literal(counts))]


# --- labels ---------------------------------------------------------------------------------------------------------

_DEFAULTS: dict[str, Any] = {"strings": "_Unused", "int64s": -1, "floats": -0.0}


def _side(c: NodeContext, side: str) -> Array:
    """The keys or values of a table, by whichever attribute has them."""
    if c.given(f"{side}_tensor"):
        return c.literal(f"{side}_tensor").bounded().reshape(-1)
    if c.given(f"{side}_strings"):
        return table_of(c.texts(f"{side}_strings")).array
    if c.given(f"{side}_int64s"):
        return np.asarray(c.ints(f"{side}_int64s"), np.int64)
    return np.asarray(c.reals(f"{side}_floats"), np.float32)


def _default(c: NodeContext, values: Array) -> Array:
    """What is given for a label that the table lacks."""
    if c.given("default_tensor"):
        return c.literal("default_tensor").bounded().reshape(1).astype(values.dtype)
    kind = {"O": "strings", "i": "int64s"}.get(values.dtype.kind, "floats")
    get = {"strings": c.text, "int64s": c.number, "floats": c.real}[kind]
    return np.array([get(f"default_{kind[:-1]}", _DEFAULTS[kind])], values.dtype)  # type: ignore[operator]


def _label_encoder(c: NodeContext) -> Node:
    keys, values = _side(c, "keys"), _side(c, "values")
    if keys.size != values.size:
        raise InferError(f"{keys.size} keys and {values.size} values", expected="one value for each key")
    where = _place(c, c.node(), keys)
    table = c.b.literal(Literal(np.concatenate([values, _default(c, values)])))
    missing = c(ops.compare, where, c.like(0, where), direction="LT")
    return c(ops.torch_index_select, table, c(ops.select, missing, c.like(len(keys), where), where), dim=0)


def _one_hot(c: NodeContext) -> Node:
    """A new last axis with a 1 at the place of each category; all zeros for what is none."""
    x = c.node()
    strings = c.dtype_of(x) is STRING
    keys = table_of(c.texts("cats_strings")).array if strings else np.asarray(c.ints("cats_int64s"), np.int64)
    if not c.flag("zeros", True):
        raise Unsupported("what is none of the categories is an error")
    where = c.add_axes(_place(c, x if strings else c.cast(x, I64), keys), (len(c.dims_of(x)),))
    return c.cast(c.each(ops.compare, where, c.constant(np.arange(keys.size), I64), direction="EQ"), F32)


def _place(c: NodeContext, x: Node, keys: Array) -> Node:
    """Where each label stands among the keys, -1 where it does not."""
    if c.dtype_of(x) is STRING:
        return c(ops.string_index, x, table=Literal(keys))
    if keys.size > MAX_KEYS:
        raise InferError(f"{keys.size} keys", expected=f"at most {MAX_KEYS}")
    found = c.full(-1, c.type_of(x).with_dtype(I64))
    for k in reversed(range(keys.size)):
        hit = c(ops.compare, x, c.like(keys[k], x), direction="EQ")
        if keys[k] != keys[k]:
            hit = c(ops.compare, x, x, direction="NE")
        found = c(ops.select, hit, c.full(k, c.type_of(found)), found)
    return found


MAX_KEYS = 4096
"""Numbers in a table that are compared with one after the other."""


# --- n-grams --------------------------------------------------------------------------------------------------------

MAX_COMPARISONS = 1 << 16


def _n_grams(c: NodeContext) -> Node:
    """How often each n-gram of a pool stands in a row, its items up to so many places apart."""
    x = c.add_axes(c.node(), (0,)) if c.rank() == 1 else c.node()
    words = c.texts("pool_strings", ())
    if words:
        places = {w: k for k, w in reversed(list(enumerate(words)))}
        x = c(ops.string_index, x, table=table_of(words))
    pool = tuple(places[w] for w in words) if words else c.ints("pool_int64s")
    starts, columns = c.ints("ngram_counts"), c.ints("ngram_indexes")
    least, most, skips = c.number("min_gram_length"), c.number("max_gram_length"), c.number("max_skip_count")
    mode = c.one_of("mode", "TF", "TF", "IDF", "TFIDF")
    rows, length = c.shape_of(x)
    if len(pool) * (skips + 1) > MAX_COMPARISONS or any(not 0 <= k < len(columns) for k in columns):
        raise InferError(f"{len(pool)} items of n-grams", expected="columns for all of them")
    weights = c.reals("weights", (1.0,) * len(columns))
    found: list[Node | None] = [None] * len(columns)
    number = 0
    for n, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        for at in range(start, end, n):
            if least <= n <= most:
                count = _occurrences(c, x, pool[at : at + n], rows, length, skips if n > 1 else 0)
                if mode == "IDF":
                    count = c.cast(c(ops.compare, count, c.like(0, count), direction="GT"), F32)
                if mode != "TF":
                    count = c(ops.multiply, count, c.like(weights[number], count))
                found[columns[number]] = count
            number += 1
    blank = c.full(0, c.type_of(x).with_dtype(F32).with_dims((rows,)))
    made = c(ops.concatenate, *(c.add_axes(f if f is not None else blank, (1,)) for f in found), dimension=1)
    return c.shaped(made, (len(columns),)) if c.rank() == 1 else made


def _occurrences(c: NodeContext, x: Node, gram: tuple[int, ...], rows: int, length: int, skips: int) -> Node:
    total = c.full(0, c.type_of(x).with_dtype(F32).with_dims((rows,)))
    for step in range(1, skips + 2):
        span = (len(gram) - 1) * step
        if span >= length:
            break
        hit = None
        for j, item in enumerate(gram):
            part = part_of(c, x, 1, j * step, length - span + j * step)
            same = c(ops.compare, part, c.like(item, part), direction="EQ")
            hit = same if hit is None else c(ops.and_, hit, same)
        assert hit is not None
        total = c(ops.add, total, ops.reduction(c.b, ops.add, c.cast(hit, F32), (1,)))
    return total


STRINGS: Rules = {
    "StringConcat": _concat, "RegexFullMatch": _match, "StringNormalizer": _normalizer, "StringSplit": _split,
    "TfIdfVectorizer": _n_grams,
}  # fmt: skip

LABELS: Rules = {"LabelEncoder": _label_encoder, "OneHotEncoder": _one_hot}
