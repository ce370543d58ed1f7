"""The targets of legalisation by name. Whoever has one enters it; it is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepx_graph.rewrite.legalise import ConversionTarget

TARGETS: dict[str, Callable[[], ConversionTarget]] = {}
