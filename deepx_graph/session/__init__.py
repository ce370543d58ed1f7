"""Everything a front end does, without a front end: load, optimise, differentiate, run, compare, report, draw."""

from deepx_graph.session.diff import Difference, diff
from deepx_graph.session.programs import (
    STDIN,
    Loaded,
    Optimised,
    Watch,
    dumps,
    forward,
    gradient,
    gradient_choices,
    load,
    loads,
    optimise,
    own_format,
    with_derivative,
)
from deepx_graph.session.query import Query, parse_query
from deepx_graph.session.report import ModuleInfo, critical_path, module_info, module_json
from deepx_graph.session.session import Session, Version

__all__ = [
    "STDIN", "Difference", "Loaded", "ModuleInfo", "Optimised", "Query", "Session", "Version", "Watch", "critical_path", "diff",
    "dumps", "forward", "gradient", "gradient_choices", "load", "loads", "module_info",
    "module_json", "optimise", "own_format", "parse_query",
    "with_derivative",
]  # fmt: skip
