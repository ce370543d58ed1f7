"""Everything a front end does, without a front end: load, optimise, differentiate, run, compare, report, draw.

Names are imported when they are first asked for: a front end that shows a program needs no passes and no engines yet.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepx_graph.session.programs import (
        STDIN,
        Loaded,
        Optimised,
        Watch,
        backward_lines,
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
    from deepx_graph.session.query.language import Query, parse_query
    from deepx_graph.session.report.diff import Difference
    from deepx_graph.session.report.info import ModuleInfo, critical_path, module_info, module_json
    from deepx_graph.session.session import Session, Version

__all__ = [
    "STDIN", "Difference", "Loaded", "ModuleInfo", "Optimised", "Query", "Session", "Version", "Watch", "backward_lines",
    "critical_path",
    "dumps", "forward", "gradient", "gradient_choices", "load", "loads", "module_info",
    "module_json", "optimise", "own_format", "parse_query",
    "with_derivative",
]  # fmt: skip

HOMES = {
    "Difference": "report.diff", "Query": "query.language", "parse_query": "query.language",
    "Session": "session", "Version": "session", "ModuleInfo": "report.info",
    "critical_path": "report.info", "module_info": "report.info", "module_json": "report.info",
}  # fmt: skip
"""The modules of names; all others are of `programs`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"{__name__}.{HOMES.get(name, 'programs')}"), name)
    return found
