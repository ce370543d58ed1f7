"""Rewriting: patterns, rules and the engine that applies them; legalisation, and the languages that it has for targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepx_graph.rewrite.legalise import ConversionTarget



def _primitive() -> ConversionTarget:
    from deepx_graph.rewrite.primitive import PRIMITIVE

    return PRIMITIVE


TARGETS: dict[str, Callable[[], ConversionTarget]] = {"primitive": _primitive}
"""The targets of legalisation by name. Whoever has one enters it; it is made when it is first asked for."""
