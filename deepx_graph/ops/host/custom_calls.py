"""`custom_call`: a function of the host, by name. With effects it takes the state first and gives it last.

What a text says beyond its target is kept as it stands, for printing; running needs the target to be registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, InferError, RunError, UsageError, an, is_interrupt, suggest
from deepx_graph.ir import Attr, Op, Operand, Result, one_of
from deepx_graph.ir.constraint import STATE_VALUE, TUPLE_VALUE
from deepx_graph.ops.factors.stated import STATED
from deepx_graph.ops.helpers import loops_in
from deepx_graph.ops.host import lapack
from deepx_graph.types import F64, I32, STATE, TensorType, TupleType, Type, leaves, tensor, type_of_array

UNCHANGED = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint", "MoveToHost",
    "MoveToDevice", "xla.sdy.FuncResultSharding",
})  # fmt: skip
"""Targets that say where a value is to be and leave it as it is."""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Registered:
    """What is known of a target: its function, whether it acts on the outside world, whether it wants the configuration."""

    function: Call
    side_effect: bool = False
    config: bool = False


_KNOWN: dict[str, Registered] = {}


def register_custom_call(target: str, function: Call | None, *, side_effect: bool = False, config: bool = False) -> None:
    """Registers what custom calls of `target` do: `function(*arrays)` returns an array, or a tuple of arrays for several results.

    Arrays come in the shapes and dtypes of the operands; the results must have exactly those that the program states. Calls with
    `side_effect` are all made, in the order of the program; this is looked up when a program is read. With `config` the function
    also gets `config=`, the text of the call's backend_config. None unregisters a target. Raises UsageError for a name that is no
    text and a function that cannot be called.

    >>> dx.register_custom_call("triple", lambda x: 3 * x)
    >>> text = '''HloModule m
    ... ENTRY e { x = f32[2] parameter(0)
    ...   ROOT y = f32[2] custom-call(x), custom_call_target="triple" }'''
    >>> dx.run(dx.loads(text), np.float32([1, 2]))
    (array([3., 6.], dtype=float32),)
    """
    if not isinstance(target, str) or not target:
        raise UsageError(f"{target!r} is not the name of a custom call")
    if function is None:
        _KNOWN.pop(target, None)
    elif not callable(function):
        raise UsageError(f"what is registered for the custom call '{target}' is {an(type(function).__name__)}, and no function")
    else:
        _KNOWN[target] = Registered(function, side_effect, config)


def find(target: str) -> Registered | None:
    """What is registered for a target."""
    return _KNOWN.get(target)


def acts(target: str) -> bool:
    """Whether a target is known to act on the outside world."""
    return target in _KNOWN and _KNOWN[target].side_effect


def complaint(target: str) -> str | None:
    """What keeps a call of the target from running."""
    if target in _KNOWN or lapack.known(target):
        return None
    nearest = suggest(target, _KNOWN)
    return f"nothing is registered for the custom call '{target}'" + (f"; {nearest}" if nearest else "")


_INPUTS = Operand("inputs", variadic=True)
_ATTRS = (
    Attr("target", "str"),
    Attr("types", "type", summary="the tuple of the results' types", check=TUPLE_VALUE),
    Attr("backend_config", "str", "", "what the target is told"),
    Attr("api_version", "int", 0, "1 original, 2 status returning, 3 unified, 4 typed; 0 where the text does not say"),
    Attr("text", "str", "", "the call as its text has it"),
    Attr("language", "str", "", "of that text", check=one_of("", "hlo", "stablehlo")),
)


def _run(arrays: Sequence[Any], target: str, types: TupleType, backend_config: str) -> tuple[Any, ...]:
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    made = _made(given, target, types, backend_config)
    results = _leaves(made) if isinstance(made, (tuple, list)) else [] if made is None else [made]
    wanted = leaves(types)
    if len(results) != len(wanted):
        raise RunError(f"custom call '{target}' gave {len(results)} results and the program needs {len(wanted)}")
    found = [_checked(target, k, value, type) for k, (value, type) in enumerate(zip(results, wanted, strict=True))]
    rest = iter(found)
    return tuple(_packed(t, rest) for t in types.items)


def _made(given: Sequence[Any], target: str, types: TupleType, backend_config: str) -> Any:
    known = find(target)
    if known is not None:
        return _called(known, given, target, backend_config)
    if lapack.known(target):
        return tuple(lapack.run(target, given, backend_config, leaves(types)))
    raise RunError(complaint(target) or target)


def _called(known: Registered, given: Sequence[Any], target: str, backend_config: str) -> Any:
    """What a registered function gives; whatever it raises, as a RunError."""
    try:
        return known.function(*given, config=backend_config) if known.config else known.function(*given)
    except (DeepxGraphError, MemoryError):
        raise
    except Exception as e:  # it is not ours, and its kind is what the user of the program should see
        if is_interrupt(e):
            raise
        raise RunError(f"custom call '{target}' failed: {type(e).__name__}{f': {e}' if str(e) else ''}") from e


def _leaves(made: Any) -> list[Any]:
    return [leaf for m in made for leaf in _leaves(m)] if isinstance(made, (tuple, list)) else [made]


def _packed(type: Type, rest: Any) -> Any:
    return tuple(_packed(t, rest) for t in type.items) if isinstance(type, TupleType) else next(rest)


def _checked(target: str, k: int, value: Any, type: Type) -> Any:
    array = np.asarray(value)
    try:
        found = type_of_array(array)
    except KeyError:
        raise RunError(f"custom call '{target}': result {k} is of {array.dtype}, and the program needs {type}") from None
    if found != type:
        raise RunError(f"custom call '{target}': result {k} is {an(found)}, and the program needs {type}")
    return np.array(array)


def _pure_type(types: Sequence[Type], target: str, results: TupleType, *rest: Any) -> Type:
    if not all(isinstance(t, TensorType) for t in leaves(results)):
        raise InferError(f"custom call '{target}' gives {results}", expected="tensors")
    return results.items[0] if len(results.items) == 1 else results


def _pure(xs: Sequence[Any], target: str, types: TupleType, backend_config: str, *rest: Any) -> Any:
    results = _run(xs, target, types, backend_config)
    return results[0] if len(results) == 1 else results


def _factored(rng: np.random.Generator) -> Any:
    """A sample of what needs no registration."""
    types = TupleType((tensor(F64, (3, 4)), tensor(I32, (3,)), tensor(I32, ())))
    return (rng.standard_normal((3, 4)),), {"target": "lapack_dgetrf_ffi", "types": types}


custom_call: Op = Op(
    "custom_call", "What a registered function of the host gives for the operands.", operands=(_INPUTS,), attrs=_ATTRS,
    results=(Result("results", variadic=True),), infer=_pure_type, eval=_pure, loops=loops_in("lapack", "custom_call_loops"),
    foldable=False, total=False, ready=lambda world, target, *_: complaint(target), source="StableHLO custom_call",
    samples=lambda rng: [_factored(rng)], sharding=STATED,
)  # fmt: skip
custom_effect: Op = Op(
    "custom_effect", "A custom call that acts on the outside world, in the order of the state.",
    operands=(Operand("state", "what happened before", type=STATE_VALUE), _INPUTS), attrs=_ATTRS,
    results=(Result("results", variadic=True), Result("state", "what has happened then", type=STATE_VALUE)),
    infer=lambda types, target, results, *rest: TupleType((*results.items, STATE)),
    eval=lambda xs, target, types, backend_config, *rest: (*_run(xs[1:], target, types, backend_config), xs[0]),
    foldable=False, total=False,
    ready=lambda world, target, *_: complaint(target), source="StableHLO custom_call with has_side_effect",
)  # fmt: skip
