"""Operations on tensors of texts: compared, joined, looked up, matched, and numbers in words. Only the reference engine runs them.

Texts are Python's `str`, in arrays of objects. What would make more than `MAX_CHARACTERS` of them is refused while it runs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, RunError
from deepx_graph.ir import Attr, Op, Result
from deepx_graph.ir.constraint import BOOLS, INTEGERS, Constraint, one_of, tensor_of
from deepx_graph.ir.evaluation import nothing
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import EVERY, dtype_attr, joint_type, one, pair, truth
from deepx_graph.types import BOOL, F32, I64, STRING, DType, as_tensor

MAX_CHARACTERS = 1 << 28
"""Characters that one operation may make."""

MAX_DIGITS = 40
"""Characters of a text that is an integer."""

TEXTS = tensor_of("text")


def texts(values: Any, shape: Sequence[int]) -> Array:
    """Texts as an array of that shape."""
    made = np.empty(len(values), np.object_)
    made[:] = values
    return made.reshape(tuple(shape))


def each(function: Callable[[str], Any], x: Array, dtype: Any) -> Array:
    """What a function makes of each text."""
    made = np.empty(x.size, dtype)
    made[:] = [function(t) for t in x.reshape(-1).tolist()]
    return made.reshape(x.shape)


def _concat(xs: Sequence[Array]) -> Array:
    x, y = np.broadcast_arrays(*xs)
    left, right = x.reshape(-1).tolist(), y.reshape(-1).tolist()
    count = sum(map(len, left)) + sum(map(len, right))
    if count > MAX_CHARACTERS:
        raise LimitError(f"texts of {count} characters; at most {MAX_CHARACTERS} are made at once")
    return texts([a + b for a, b in zip(left, right, strict=True)], x.shape)


_WORDS = np.array([["ab", "", "naïve"], ["x y", "1.5", "b"]], np.object_)
_OTHERS = np.array([["ab", "c", ""], ["x", "1.5", "B"]], np.object_)


string_equal: Op = Op(
    "string_equal", "Whether two texts are the same.", operands=pair(TEXTS), elementwise=True, infer=truth, commutative=True,
    eval=lambda xs: np.asarray(np.equal(*xs), np.bool_), results=(Result(type=BOOLS),), source="ONNX Equal",
    samples=lambda rng: [((_WORDS, _OTHERS), {})],
)  # fmt: skip

string_concat: Op = Op(
    "string_concat", "Two texts, one after the other.", operands=pair(TEXTS), elementwise=True, infer=joint_type, eval=_concat,
    source="ONNX StringConcat", samples=lambda rng: [((_WORDS, _OTHERS), {})],
)  # fmt: skip


# --- looked up, matched, changed ------------------------------------------------------------------------------------


def _index(xs: Sequence[Array], table: Any) -> Array:
    places = {t: k for k, t in reversed(list(enumerate(table.array.tolist())))}
    return each(lambda t: places.get(t, -1), xs[0], np.int64)


def _table(*words: str) -> Any:
    from deepx_graph.literal import Literal

    return Literal(texts(words, (len(words),)))


_LIST = Constraint("a list of texts", lambda v: v.dtype is STRING and v.array.ndim == 1)

string_index: Op = Op(
    "string_index", "Where each text first stands in a table, -1 where it does not.", operands=one(TEXTS),
    attrs=(Attr("table", "literal", check=_LIST),), infer=lambda types, table: as_tensor(types[0], 0).with_dtype(I64), eval=_index,
    scratch=nothing, results=(Result(type=INTEGERS),), source="ONNX LabelEncoder",
    samples=lambda rng: [((_WORDS,), {"table": t}) for t in (_table("b", "ab", "b"), _table())],
)  # fmt: skip


def _matches(xs: Sequence[Array], pattern: str) -> Array:
    try:
        re2: Any = import_module("re2")
    except ImportError:
        raise RunError(Diagnostic("regular expressions need google-re2", hint="install deepx-graph[text]")) from None
    try:
        compiled = re2.compile(pattern)
    except re2.error as e:
        raise RunError(f"the pattern '{pattern:.60}' is no regular expression: {e}") from None
    return each(lambda t: compiled.fullmatch(t) is not None, xs[0], np.bool_)


string_match: Op = Op(
    "string_match", "Whether a regular expression of RE2 matches the whole of a text; RE2 takes no more than linear time.",
    operands=one(TEXTS), attrs=(Attr("pattern", "str"),), infer=lambda types, pattern: as_tensor(types[0], 0).with_dtype(BOOL),
    eval=_matches, scratch=nothing, foldable=False, total=False, results=(Result(type=BOOLS),), source="ONNX RegexFullMatch",
    samples=lambda rng: [((_WORDS,), {"pattern": p}) for p in ("[a-z]+", "")],
)  # fmt: skip

CASES = ("NONE", "LOWER", "UPPER")


def in_case(text: str, case: str) -> str:
    """The text in lower or upper case, or as it is."""
    return text.lower() if case == "LOWER" else text.upper() if case == "UPPER" else text


def _normalize(xs: Sequence[Array], case: str, stopwords: Any, case_sensitive: bool) -> Array:
    stops = {w if case_sensitive else in_case(w, case) for w in stopwords.array.tolist()}

    def kept(text: str) -> str:
        return " ".join(w for w in text.split(" ") if w not in stops) if stops else text

    def one(text: str) -> str:
        text = _without_accents(text)
        return in_case(kept(text), case) if case_sensitive else kept(in_case(text, case))

    return each(one, xs[0], np.object_)


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


string_normalize: Op = Op(
    "string_normalize", "Texts without accents and without some words, in lower or upper case.", operands=one(TEXTS),
    attrs=(Attr("case", "str", "NONE", check=one_of(*CASES)), Attr("stopwords", "literal", check=_LIST),
           Attr("case_sensitive", "bool", True, "whether words are left out before their case is changed")),
    infer=lambda types, *attrs: types[0], eval=_normalize, scratch=nothing, source="ONNX StringNormalizer",
    samples=lambda rng: [((_WORDS,), {"case": c, "stopwords": w, "case_sensitive": s})
                         for c, w, s in (("UPPER", _table("x"), True), ("LOWER", _table("Y"), False), ("NONE", _table(), True))],
)  # fmt: skip

# --- numbers in words -----------------------------------------------------------------------------------------------


def _number(text: str, dtype: DType) -> Any:
    try:
        if dtype.kind == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()]
        if dtype.is_integer:
            return np.array(int(text if len(text) <= MAX_DIGITS else ""), dtype.np)
        return np.array(complex(text) if dtype.kind == "complex" else float(text)).astype(dtype.np)
    except (ValueError, KeyError, OverflowError):
        raise RunError(f"the text {text!r:.60} is no {dtype}") from None


string_to_number: Op = Op(
    "string_to_number", "The number that a text is in words, such as -1.5e3, NaN or -INF.", operands=one(TEXTS),
    attrs=(dtype_attr(*EVERY),), infer=lambda types, dtype: as_tensor(types[0], 0).with_dtype(dtype),
    eval=lambda xs, dtype: each(lambda t: _number(t, dtype), xs[0], dtype.np), scratch=nothing, foldable=False, total=False,
    source="ONNX Cast",
    samples=lambda rng: [((np.array(["1", "0", " 1 "], np.object_),), {"dtype": d}) for d in (F32, BOOL, I64)],
)  # fmt: skip


number_to_string: Op = Op(
    "number_to_string", "A number in words: the shortest that mean the same number.", operands=one(tensor_of(*EVERY)),
    infer=lambda types: as_tensor(types[0], 0).with_dtype(STRING),
    eval=lambda xs: texts([str(v) for v in xs[0].reshape(-1)], xs[0].shape), scratch=nothing, results=(Result(type=TEXTS),),
    source="ONNX Cast",
)  # fmt: skip

