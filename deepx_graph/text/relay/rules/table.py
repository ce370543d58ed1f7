"""Relay's operators in terms of ours: one table, gathered from the families; the only place where they are named for reading."""

from __future__ import annotations

from deepx_graph.text.relay.reader.context import Operator
from deepx_graph.text.relay.rules.elementwise import ELEMENTWISE
from deepx_graph.text.relay.rules.image import IMAGE
from deepx_graph.text.relay.rules.nn import NN
from deepx_graph.text.relay.rules.reduce import REDUCE
from deepx_graph.text.relay.rules.select import SELECT
from deepx_graph.text.relay.rules.shape import SHAPE
from deepx_graph.text.relay.rules.window import WINDOW

RULES: dict[str, Operator] = {**ELEMENTWISE, **SHAPE, **SELECT, **REDUCE, **NN, **WINDOW, **IMAGE}
"""Every operator that is known, by name."""
