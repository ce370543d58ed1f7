"""The part of the JSON Schema of SARIF 2.1.0 that our logs use, with nothing else allowed.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, sections 3.13 to 3.30 and 3.49,
whose property names, types and required properties these are. Logs were held against the whole schema of the standard, too.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "integer", "minimum": 1}


def _record(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


MESSAGE = _record(("text",), text=TEXT)
REGION = _record(("startLine",), startLine=NUMBER, startColumn=NUMBER, endLine=NUMBER, endColumn=NUMBER)
PLACE = _record(("artifactLocation",), artifactLocation=_record(("uri",), uri={"type": "string", "format": "uri-reference",
                                                                               "pattern": r"^[^\s\\]+$"}), region=REGION)
RESULT = _record(("message",), ruleId=TEXT, level={"enum": ["none", "note", "warning", "error"]}, message=MESSAGE,
                 locations=_list(_record((), physicalLocation=PLACE)))
RULE = _record(("id",), id=TEXT, shortDescription=MESSAGE)
DRIVER = _record(("name",), name=TEXT, version=TEXT, rules=_list(RULE) | {"uniqueItems": True})
RUN = _record(("tool",), tool=_record(("driver",), driver=DRIVER), results=_list(RESULT),
              columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]})
LOG = _record(("version", "runs"), version={"const": "2.1.0"}, runs=_list(RUN), **{"$schema": {"type": "string", "format": "uri"}})
