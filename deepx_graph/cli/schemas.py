"""JSON Schemas (draft 2020-12) of the reports of `--json`, and their page, made of what their fields are said to be.

A report says its schema in the field `schema`; the number at its end grows when a field is taken away or changes its meaning, not
when one is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deepx_graph.cli.report_fields import REPORTS
from deepx_graph.cli.report_records import RECORDS, Fields
from deepx_graph.errors import Diagnostic, UsageError, printable, suggest

VERSION = 1
"""Of all schemas together."""


def report(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The report with the name of its schema in front."""
    return {"schema": f"deepx-graph/{name}/{VERSION}", **values}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a report. Raises UsageError, with the nearest name, for one that there is not."""
    if name not in REPORTS:
        raise UsageError(Diagnostic(f"no report '{printable(name)}'", expected=", ".join(REPORTS), hint=suggest(name, REPORTS)))
    found = REPORTS[name]
    needed: dict[str, Fields] = {}
    _collect(found.fields, needed)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"deepx-graph {found.command} --json",
        "description": found.summary,
        **_record({"schema": (f"={report(name, {})['schema']}", "this schema"), **found.fields}),
        "$defs": {record: _record(fields) for record, fields in needed.items()},
    }  # fmt: skip


def _collect(fields: Fields, into: dict[str, Fields]) -> None:
    """The records that the fields name, and those that these name."""
    for type_, _ in fields.values():
        record = type_.split("|")[0].strip("[]{}")
        if record in RECORDS and record not in into:
            into[record] = RECORDS[record]
            _collect(RECORDS[record], into)


def _record(fields: Fields) -> dict[str, Any]:
    return {
        "type": "object", "additionalProperties": False, "required": [name for name in fields if not name.endswith("?")],
        "properties": {name.rstrip("?"): _type(type_) | {"description": words} for name, (type_, words) in fields.items()},
    }  # fmt: skip


_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_ATOMS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"}, "int": {"type": "integer"}, "float": _NUMBER, "bool": {"type": "boolean"}, "null": {"type": "null"},
    "any": {},
}  # fmt: skip


def _type(text: str) -> dict[str, Any]:
    """The schema of a type in the notation of `report_records.py`."""
    if text.startswith("="):
        return {"const": text[1:]}
    if text.endswith("|null"):
        return {"anyOf": [_type(text.removesuffix("|null")), _ATOMS["null"]]}
    if text[0] == "[":
        return {"type": "array", "items": _type(text[1:-1])}
    if text[0] == "{":
        return {"type": "object", "additionalProperties": _type(text[1:-1])}
    return dict(_ATOMS[text]) if text in _ATOMS else {"$ref": f"#/$defs/{text}"}


def markdown() -> str:
    """The page of all reports and records."""
    return "\n".join(_page()) + "\n"


NOTES = """# Reports as JSON

Written by `deepx-graph schema --markdown`; `deepx-graph schema NAME` prints the JSON Schema (draft 2020-12) of a report.

Every report has the field `schema`. The number at its end grows when a field is taken away or changes its meaning; fields may be
added without. Types: `[T]` is a list, `{T}` a mapping from names, `T|null` may be null; a field with `?` may be missing. Numbers
that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`. Sizes are in bytes.
"""


def _page() -> Iterator[str]:
    yield NOTES
    for name, found in REPORTS.items():
        version = report(name, {})["schema"]
        yield from (f"## {name}", "", f"`deepx-graph {found.command} --json`: {found.summary}. `schema` is `{version}`.", "")
        yield from _table(found.fields)
    yield from ("## Records", "")
    for record, fields in RECORDS.items():
        yield from (f"### {record}", "")
        yield from _table(fields)


def _table(fields: Fields) -> Iterator[str]:
    yield from ("| field | type | |", "|---|---|---|")
    for name, (type_, words) in fields.items():
        shown = type_.replace("|", "\\|")
        yield f"| `{name}` | `{shown}` | {words} |"
    yield ""
