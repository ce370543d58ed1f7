"""What notebooks show: a module or function as a picture and its facts as text, a profile as bars and its table.

A picture is small and quick: large programs are folded, and what cannot be drawn is shown as text alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.errors import DeepxGraphError, printable
from deepx_graph.ir import Function, Module
from deepx_graph.runtime.profile import KernelProfile, Profile
from deepx_graph.session.report.info import function_info, module_info
from deepx_graph.viz.draw import draw
from deepx_graph.viz.picture.bars import Bar, bars

BOXES = 120
SECONDS = 8.0
KERNELS = 25
"""Of a profile."""


def bundle(value: object) -> dict[str, str]:
    """The parts by MIME type: text for all, SVG where it can be drawn."""
    if isinstance(value, Module):
        return _drawn(value, str(module_info(value)))
    if isinstance(value, Function):
        return _drawn(Module((value,), value.name), str(function_info(value)))
    if isinstance(value, Profile):
        rows = value.rows()
        return {"text/plain": str(value)} | ({"image/svg+xml": _profile(rows)} if rows else {})
    return {"text/plain": repr(value)}


def _drawn(module: Module, text: str) -> dict[str, str]:
    shown = {"text/plain": "\n".join(map(printable, text.split("\n")))}
    try:
        picture = draw(module, format="svg", max_nodes=BOXES, timeout=SECONDS, title="")
    except DeepxGraphError as e:
        return shown | {"text/plain": f"{shown['text/plain']}\nno picture: {e}"}
    return shown | {"image/svg+xml": picture.data.decode("utf-8").partition("?>")[2].lstrip()}


def _profile(rows: Sequence[KernelProfile]) -> str:
    found = [Bar(f"{r.kernel}: {r.type}", r.seconds, f"{r.seconds * 1e3:.3f} ms, {r.share:.1%}, {r.gb_per_s:.1f} GB/s")
             for r in rows[:KERNELS]]  # fmt: skip
    rest = sum(r.seconds for r in rows[KERNELS:])
    more = [Bar(f"{len(rows) - KERNELS} more kernels", rest, f"{rest * 1e3:.3f} ms")] if len(rows) > KERNELS else []
    return bars([*found, *more]).decode("utf-8")
