"""The table of deepx ops: every name, in all its spellings, with the roles of its operands and the function that lowers it.

This is the only place that connects deepx's names with our operations. Underscores do not count (`add_scalar` = `addscalar`).
"""

from __future__ import annotations

from typing import Any

from deepx_graph.ops import (
    add,
    cosine,
    divide,
    exponential,
    floor_mod,
    log,
    maximum,
    minimum,
    multiply,
    not_,
    power,
    rng_normal,
    rng_uniform,
    sine,
    sqrt,
    subtract,
    tan,
)
from deepx_graph.text.deepx.reader import declarations, values
from deepx_graph.text.deepx.reader.line import DeepxRule


def _rule(names: str, roles: str, make: values.Make | None = None, **fields: Any) -> DeepxRule:
    return DeepxRule(tuple(names.split()), tuple(roles.split()), make, **fields)


_BINARY = {
    "add": add, "sub": subtract, "mul": multiply, "div": divide, "mod": floor_mod, "pow": power, "max": maximum, "min": minimum,
}  # fmt: skip
_UNARY = {"sqrt": sqrt, "exp": exponential, "log": log, "sin": sine, "cos": cosine, "tan": tan, "invert": not_}
_REVERSED = {"rsubscalar": subtract, "rdivscalar": divide, "rpowscalar": power}
_REDUCTIONS = {"sum": add, "prod": multiply, "reducemax": maximum, "reducemin": minimum}

TABLE: tuple[DeepxRule, ...] = (
    *(_rule(name, "E E", values.elementwise(op)) for name, op in _BINARY.items()),
    *(_rule(f"{name}scalar", "T S", values.elementwise(op)) for name, op in _BINARY.items()),
    *(_rule(name, "S T", values.elementwise(op)) for name, op in _REVERSED.items()),
    *(_rule(name, "T", values.elementwise(op)) for name, op in _UNARY.items()),
    *(_rule(name, "T V? B?", values.reducing(op)) for name, op in _REDUCTIONS.items()),
    _rule("equal", "E E S?", values.nearly("LE"), typed="inputs"),
    _rule("notequal", "E E S?", values.nearly("GT"), typed="inputs"),
    _rule("equalscalar", "T S S?", values.nearly("LE"), typed="inputs"),
    _rule("notequalscalar", "T S S?", values.nearly("GT"), typed="inputs"),
    _rule("less", "E E", values.comparison("LT"), typed="inputs"),
    _rule("greater", "E E", values.comparison("GT"), typed="inputs"),
    _rule("lessscalar", "T S", values.comparison("LT"), typed="inputs"),
    _rule("greaterscalar", "T S", values.comparison("GT"), typed="inputs"),
    _rule("switch", "L I", values.switch),
    _rule("todtype cast", "T", values.to_dtype, typed="none"),
    _rule("constant", "S", values.constant, fills=True),
    _rule("arange", "S S", values.arange, fills=True),
    _rule("uniform", "S S S?", values.random(rng_uniform), fills=True),
    _rule("normal", "S S S?", values.random(rng_normal), fills=True),
    _rule("dropout", "S S?", values.dropout, fills=True),
    _rule("matmul", "T T", values.product),
    _rule("reshape", "T V", values.to_shape, reshapes=True),
    _rule("transpose", "T V", values.permute),
    _rule("concat", "L A", values.join),
    _rule("broadcastTo broadcastto broadcast expand", "T V", values.expand),
    _rule("indexselect", "T I A", values.take),
    _rule("repeat", "T V", values.repeat),
    _rule("copytensor", "T", values.copy),
    _rule("newtensor", "V D?", act=declarations.new_tensor, creates=declarations.created_outputs),
    _rule("clonetensor", "T", act=declarations.clone_tensor, creates=declarations.created_outputs),
    _rule("deltensor argdel", "", act=declarations.delete, typed="none", needs_arrow=False),
    _rule("renametensor", "X", act=declarations.rename_tensor, typed="none", creates=declarations.created_by_rename),
    _rule("argset vecset", "", act=declarations.set_argument, typed="none"),
    _rule("print", "P X?", act=declarations.print_tensor, has_effect=True, needs_arrow=False),
    _rule("save", "T X", act=declarations.save_tensor, has_effect=True, needs_arrow=False),
    _rule("load", "X", act=declarations.load_tensor, has_effect=True, needs_arrow=False, creates=declarations.created_by_load),
    _rule("loadtensordata", "X", act=declarations.load_data, has_effect=True),
)

_BY_NAME: dict[str, DeepxRule] = {name: rule for rule in TABLE for name in rule.names}


def rule_named(name: str) -> DeepxRule | None:
    """The rule of a deepx op, in any spelling; None when there is no such op."""
    return _BY_NAME.get(name) or _BY_NAME.get(name.replace("_", ""))


def known_names() -> tuple[str, ...]:
    """Every deepx op that can be read, for hints and for recognising the language."""
    return tuple(_BY_NAME)
