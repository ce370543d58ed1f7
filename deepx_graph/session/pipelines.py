"""Editing pipelines: one as a list of texts, how a half-written pass may go on, what a pass and its options are."""

from __future__ import annotations

import dataclasses
import re

from deepx_graph.passes import REGISTRY
from deepx_graph.passes.pipeline import PIPELINES, describe_options, format_pass, option_types, parse_pipeline
from deepx_graph.rewrite.base import Pass


def items(pipeline: str) -> list[str]:
    """The passes of a pipeline, each as its canonical text. Raises UsageError for a pipeline that is none."""
    return [format_pass(p) for p in parse_pipeline(pipeline)]


def name_of(pipeline: str) -> str:
    """The name of a named pipeline that stands for the same passes, else the text itself."""
    passes = items(pipeline)
    return next((name for name, text in PIPELINES.items() if items(text) == passes), pipeline)


def pass_named(text: str) -> type[Pass] | None:
    """The pass that a text such as `fuse{max-ops=64}` begins with, None where it is none."""
    name = re.split(r"[{\s]", text.strip(), maxsplit=1)[0]
    return REGISTRY.get(name)


def complete_passes(text: str) -> list[str]:
    """The whole texts that a half-written list of passes may become: a name, an option of the pass, a value of the option."""
    start = max(text.rfind(c) for c in ",{ =") + 1
    begun, opened = text[start:], text.rfind("{") > text.rfind("}")
    if not opened:
        names = [*REGISTRY, *PIPELINES]
        return [text[:start] + n for n in names if n.startswith(begun)]
    pass_ = pass_named(re.split(r",(?![^{]*})", text[: text.rfind("{")])[-1])
    if pass_ is None:
        return []
    if text[start - 1 : start] == "=":
        option = re.split(r"[{ ,]", text[: start - 1])[-1]
        values = ["true", "false"] if option_types(pass_).get(option) is bool else []
        return [text[:start] + v for v in values if v.startswith(begun)]
    return [text[:start] + n + "=" for n in option_types(pass_) if n.startswith(begun)]


def explain_pass(text: str) -> list[str]:
    """Lines that say what a pass does and what its options are."""
    pass_ = pass_named(text)
    if pass_ is None:
        return []
    lines = [f"{pass_.name}: {pass_.summary()}", f"options: {describe_options(pass_)}"]
    more = (pass_.__doc__ or "").strip().split("\n")[1:]
    fields = {f.name for f in dataclasses.fields(pass_)}
    return lines + [line.strip() for line in more if line.strip()] if fields else lines
