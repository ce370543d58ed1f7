"""The operators of ATen in terms of ours, by kind. An operator is stated once, for all of its overloads unless these differ.

Semantics: torch documentation; aten/src/ATen/native/native_functions.yaml and torch/_refs of torch 2.13.
"""

from __future__ import annotations

from deepx_graph.text.torch.context import Rule
from deepx_graph.text.torch.rules.control import CONTROL
from deepx_graph.text.torch.rules.create import CREATE
from deepx_graph.text.torch.rules.elementwise import ELEMENTWISE
from deepx_graph.text.torch.rules.factor import FACTOR
from deepx_graph.text.torch.rules.index import INDEX
from deepx_graph.text.torch.rules.linear import LINEAR
from deepx_graph.text.torch.rules.networks.activation import ACTIVATION
from deepx_graph.text.torch.rules.networks.attention import ATTENTION
from deepx_graph.text.torch.rules.networks.backward import BACKWARD
from deepx_graph.text.torch.rules.networks.image import IMAGE
from deepx_graph.text.torch.rules.networks.loss import LOSS
from deepx_graph.text.torch.rules.networks.norm import NORM
from deepx_graph.text.torch.rules.networks.recurrent import RECURRENT
from deepx_graph.text.torch.rules.networks.window import WINDOW
from deepx_graph.text.torch.rules.padding import PADDING
from deepx_graph.text.torch.rules.parts import PARTS
from deepx_graph.text.torch.rules.reduce import REDUCE
from deepx_graph.text.torch.rules.sizes import SIZES
from deepx_graph.text.torch.rules.special import SPECIAL
from deepx_graph.text.torch.rules.views import VIEWS

_ATEN = (ACTIVATION, ATTENTION, BACKWARD, CREATE, ELEMENTWISE, FACTOR, IMAGE, INDEX, LINEAR, LOSS, NORM, PADDING, PARTS, RECURRENT,
         REDUCE, SPECIAL, VIEWS, WINDOW)  # fmt: skip

RULES: dict[str, Rule] = {
    **{f"aten.{name}": rule for table in _ATEN for name, rule in table.items()}, **SIZES, **CONTROL,
}
"""The rules by operator, all overloads or one."""
