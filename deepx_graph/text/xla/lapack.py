"""Custom calls to LAPACK and BLAS, as JAX lowers linear algebra for CPU: those that say what one of our operations says, and those
of earlier releases (up to 0.4.31), whose options were operands and whose results had workspaces among them.

Source of the earlier form: jaxlib/lapack.py of those releases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.host.lapack import options, routine_of
from deepx_graph.types import I32, TensorType, TupleType, Type, as_tensor

_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def lapack_operations(b: Builder, target: str, config: str, inputs: Sequence[Node], types: Sequence[Type]) -> list[Node] | None:
    """The results of the call; None for another target. A factor that there is none of is NaN, and `info` is 0 nevertheless."""
    earlier = _EARLIER.fullmatch(target)
    if earlier is not None and earlier["routine"] in _FORMS:
        return _of_earlier_form(b, _FORMS[earlier["routine"]], earlier["kind"], earlier["routine"], inputs, types)
    routine, given = routine_of(target), options(config)
    if routine == "potrf" and len(inputs) == 1:
        factor = b(ops.cholesky, inputs[0], lower=given.get("uplo") == "L")
        return [factor, b.splat(0, TensorType(I32, as_tensor(inputs[0].type).shape[:-2]))]
    if routine == "trsm" and 2 <= len(inputs) <= 3 and given.get("trans_x") in _TRANSPOSES:
        matrix, rhs, *scale = inputs  # JAX 0.5 gives what the right side is multiplied by
        rhs = b(ops.multiply, rhs, *scale) if scale and not _is_one(scale[0]) else rhs
        return [b(ops.triangular_solve, matrix, rhs, left_side=given.get("side") == "L", lower=given.get("uplo") == "L",
                  unit_diagonal=given.get("diag") == "U", transpose_a=_TRANSPOSES[given["trans_x"]])]
    return None


def _is_one(node: Node) -> bool:
    return node.op is CONSTANT and bool((value_of(node).array == 1).all())


# --- the earlier form -----------------------------------------------------------------------------------------------

_EARLIER = re.compile(r"(?:lapack|blas)_(?P<kind>[sdcz])(?P<routine>[a-z]+)")

Letters = Mapping[str, str]


@dataclass(frozen=True)
class _EarlierForm:
    """How many operands are options, what they say, and where the results of now stand among those of then."""

    options: int
    told: Callable[[Sequence[int]], Letters]
    results: tuple[int, ...]
    complex_results: tuple[int, ...] = ()


def _job(given: Sequence[int]) -> Letters:
    """Which singular vectors there are: all, as many as values, or none."""
    return {"mode": ("A" if given[0] else "S") if given[1] else "N"}


_NONE: Letters = {}
_FORMS: dict[str, _EarlierForm] = {
    "potrf": _EarlierForm(3, lambda given: {"uplo": "UL"[given[0] & 1]}, (0, 1)),
    "getrf": _EarlierForm(3, lambda given: _NONE, (0, 1, 2)),
    "geqrf": _EarlierForm(4, lambda given: _NONE, (0, 1)),
    "orgqr": _EarlierForm(5, lambda given: _NONE, (0,)),
    "ungqr": _EarlierForm(5, lambda given: _NONE, (0,)),
    "gesdd": _EarlierForm(6, _job, (0, 1, 2, 3, 4)),
    "syevd": _EarlierForm(3, lambda given: {"mode": "V", "uplo": "UL"[given[0] & 1]}, (0, 1, 2)),
    "heevd": _EarlierForm(3, lambda given: {"mode": "V", "uplo": "UL"[given[0] & 1]}, (0, 1, 2)),
    "geev": _EarlierForm(4, lambda given: _NONE, (3, 4, 5, 6, 7), (2, 3, 4, 5)),
    "trsm": _EarlierForm(8, lambda given: {"side": "RL"[given[0] & 1], "uplo": "UL"[given[1] & 1], "diag": "NU"[given[3] & 1],
                                           "trans_x": "NTC"[given[2] % 3]}, (0,)),
}  # fmt: skip


def _of_earlier_form(b: Builder, form: _EarlierForm, kind: str, routine: str, inputs: Sequence[Node],
                     types: Sequence[Type]) -> list[Node] | None:
    """The results by the call of now, workspaces as zeros; None where the options are not known, or there are other results."""
    first, matrices = inputs[: form.options], inputs[form.options :]
    places = form.complex_results if kind in "cz" and form.complex_results else form.results
    tensors = [t for t in types if isinstance(t, TensorType) and t.is_static]
    if not matrices or any(x.op is not CONSTANT for x in first) or max(places) >= len(tensors) or len(tensors) != len(types):
        return None
    letters = form.told([int(value_of(x).array.real.flat[0]) for x in first])
    config = "{" + ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in sorted(letters.items())) + "}"
    target, wanted = f"lapack_{kind}{routine}_ffi", tuple(tensors[k] for k in places)
    found = lapack_operations(b, target, config, matrices, wanted)
    if found is None:
        call = b(ops.custom_call, *matrices, target=target, types=TupleType(wanted), backend_config=config)
        found = [call] if len(wanted) == 1 else list(b.items(call))
    made = dict(zip(places, found, strict=False))
    return [made[k] if k in made else b.splat(0, t) for k, t in enumerate(tensors)]
