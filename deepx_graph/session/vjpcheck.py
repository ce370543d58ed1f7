"""Our gradient beside the derivative that a file of `jax.export` has stored: the same inputs and cotangents through both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, VerifyError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.noise import slacks
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.inputs import Port
from deepx_graph.session.agreement import Comparison, compared_all
from deepx_graph.session.inputs import random_array
from deepx_graph.text.common.options import Exported
from deepx_graph.types import TensorType, as_tensor, is_state

UNKNOWN_SIZE = 3
"""What a size is taken to be that the file leaves open."""


def check_against_vjp(module: Module, exported: Exported | None, wrt: Sequence[str] | None = None, *, seed: int = 0,
                      samples: int = 3) -> list[Comparison]:
    """Of each input with a gradient, the sample in which the two differ most for their tolerance.

    Raises UsageError for a file without a derivative, VerifyError where it does not belong to the program, and as `grad` does.
    """
    if exported is None or exported.vjp is None:
        raise UsageError(Diagnostic("the file has no derivative to compare with",
                                    hint="JAX stores it with jax.export.export(jax.jit(f))(...).serialize(vjp_order=1)"))
    stored = exported.vjp()
    if stored.exported is None:
        raise VerifyError("the derivative of the file is damaged")
    derived = grad(module, wrt)
    ours, theirs = compile(derived), compile(stored.module)
    drawn = [p for p in module.entry.params if not is_state(p.type)]
    places = _places(exported, stored.exported, module, len(drawn), [p.name for p in ours.inputs], theirs.inputs)
    leading = len(drawn) - len(exported.kept)
    numbers = {f"grad_{p.name}": number for p, number in zip(drawn[leading:], exported.kept, strict=True)}
    worst: dict[str, Comparison] = {}
    for sample in range(samples):
        stage("compare", sample, samples)
        rng = np.random.default_rng(seed + sample)
        values = {p.name: _value(p, rng) for p in ours.inputs}
        values |= {p.name: np.zeros_like(values[p.name]) for p in drawn[:leading]}  # which platform it is
        given = {p.name: values[name] if name else np.zeros(_shape(p), as_tensor(p.type).dtype.np)
                 for p, name in zip(theirs.inputs, places, strict=True)}
        got, want = ours(*(values[p.name] for p in ours.inputs)), theirs(*(given[p.name] for p in theirs.inputs))
        names = [port.name for port in ours.outputs]
        bound = partial(_slacks, ((derived, values, range(len(got))),
                                  (stored.module, given, [numbers[name] for name in names])))
        for c in compared_all(names, tuple(map(np.asarray, got)), [np.asarray(want[numbers[name]]) for name in names], bound):
            known = worst.get(c.name)
            if known is None or c.excess > known.excess:
                worst[c.name] = c
    return list(worst.values())


def _slacks(programs: Sequence[tuple[Module, Mapping[str, Any], Sequence[int]]]) -> list[Array | None]:
    """What rounding in both programs may make of the outputs: each has its module, inputs, and the numbers of the outputs."""
    found = [slacks(module, inputs) for module, inputs, _ in programs]
    chosen = zip(*([each[k] for k in p[2]] for each, p in zip(found, programs, strict=True)), strict=True)
    return [None if a is None or b is None else a + b for a, b in chosen]


def _places(exported: Exported, stored: Exported, module: Module, count: int, names: Sequence[str],
            ports: Sequence[Port]) -> list[str]:
    """For each input of the stored derivative the one of ours that it is; empty for one that is nothing of ours.

    The derivative takes the arguments, then the cotangents of the results, as far as it uses them.
    """
    first = count - len(exported.kept)
    ours = {number: names[first + k] for k, number in enumerate(exported.kept)}
    floating = [k for k, t in enumerate(module.entry.results) if isinstance(t.type, TensorType) and t.type.dtype.is_differentiable]
    ours |= {len(exported.inputs) + k: name for k, name in zip(floating, names[count:], strict=False)}
    extra = len(ports) - len(stored.kept)
    if first < 0 or extra < 0 or len(exported.outputs) + len(exported.inputs) != len(stored.inputs):
        raise VerifyError(Diagnostic(f"the stored derivative takes {counted(len(stored.inputs), 'value')}, and the program has "
                                     f"{counted(len(exported.inputs), 'argument')} and {counted(len(exported.outputs), 'result')}"))
    return [""] * extra + [ours.get(number, "") for number in stored.kept]


def _shape(port: Port) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else UNKNOWN_SIZE for d in as_tensor(port.type).dims or ())


def _value(port: Port, rng: np.random.Generator) -> Any:
    return random_array(as_tensor(port.type).with_dims(_shape(port)), rng)
