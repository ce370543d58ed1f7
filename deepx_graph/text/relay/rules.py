"""Relay's operators in terms of ours: one table, gathered from the families; the only place where they are named for reading."""

from __future__ import annotations

from deepx_graph.text.relay.context import Rule
from deepx_graph.text.relay.rules_elementwise import ELEMENTWISE
from deepx_graph.text.relay.rules_image import IMAGE
from deepx_graph.text.relay.rules_nn import NN
from deepx_graph.text.relay.rules_reduce import REDUCE
from deepx_graph.text.relay.rules_select import SELECT
from deepx_graph.text.relay.rules_shape import SHAPE
from deepx_graph.text.relay.rules_window import WINDOW

RULES: dict[str, Rule] = {**ELEMENTWISE, **SHAPE, **SELECT, **REDUCE, **NN, **WINDOW, **IMAGE}
"""Every operator that is known, by name."""
