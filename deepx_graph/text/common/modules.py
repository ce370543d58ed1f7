"""Where torch says that an operation is from: the modules around it, and the lines of the user's program.

`torch.export` writes both beside its nodes, and the exporter to ONNX writes them on as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from deepx_graph.errors import Place

_FRAME = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)')
_COUNTED = re.compile(r"[^.]+(?:\.\d+(?![^.]))*")
_QUOTED = re.compile(r"'([^']*)'")


def module_levels(paths: Iterable[str]) -> tuple[str, ...]:
    """The modules around an operation, outermost first, each by the attributes that lead to it from the one around it.

    `paths` are those from the model, as `h`, `h.0`, `h.0.attn`. A number follows the name that it counts: `h.0`. What is kept in a
    list or a dictionary of modules, which itself does nothing, is in it all the same: `layers.0.norm` is `norm` in `layers.0`.
    """
    levels: list[str] = []
    outer = ""
    for path in paths:
        if not path or path == outer:
            continue
        inner = path.removeprefix(outer + ".") if outer else path
        if inner.replace(".", "").isdigit() and levels:
            last = levels[-1].rpartition(".")[2]
            levels.append(f"{levels[-1] if last.isdigit() else last}.{inner}")
        else:
            levels += _COUNTED.findall(inner.replace("/", "_"))
        outer = path
    return tuple(levels)


def place_of(stack_trace: str, modules: Sequence[str], operator: str, kind: str = "") -> Place | None:
    """The line of the user's program that an operation is from, labelled with the modules around it: `net/layers.0/linear`.

    `kind` is the operator's sort (`Conv`), by which pictures call what one operator was read as.
    """
    frames = [Place(f, int(n), function=name.strip()) for f, n, name in _FRAME.findall(stack_trace)[-32:]]
    own = [f for f in frames if "/torch/nn/" not in f.file.replace("\\", "/")] or frames
    label = "/".join((*modules, operator))
    if not own:
        return Place(label=label if "/" in label else "", kind=kind) if "/" in label or kind else None
    place = None
    for frame in own:  # the innermost is the last one
        last = frame is own[-1]
        place = Place(frame.file, frame.line, function=frame.function, caller=place, label=label if last else "",
                      kind=kind if last else "")  # fmt: skip
    return place


def place_in_model(name: str, operator: str, metadata: Mapping[str, str]) -> Place:
    """Of a node of an ONNX model: what torch's exporter wrote of it, else its name, which may be a path itself.

    The exporter's list of scopes begins with the model and ends with the operation.
    """
    scopes = _QUOTED.findall(metadata.get("pkg.torch.onnx.name_scopes", ""))
    modules = module_levels(scopes[1:-1])
    found = place_of(metadata.get("pkg.torch.onnx.stack_trace", ""), modules, name or scopes[-1], operator) if modules else None
    return found or Place(label=name, kind=operator)
