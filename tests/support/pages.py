"""What an HTML page of ours holds."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any


def data_of(page: bytes) -> Any:
    """The data that a page shows."""
    (text,) = re.findall(r'<script type="text/plain" id="data">(.*?)</script>', page.decode(), re.DOTALL)
    return json.loads(gzip.decompress(base64.b64decode(text)))


def nodes_of(graph: Any) -> list[dict[str, Any]]:
    """What a page knows of each node of a graph."""
    found: list[dict[str, Any]] = [{} for _ in range(graph["size"])]
    for name, (values, places) in graph["columns"].items():
        for node, k in zip(found, places, strict=True):
            if k >= 0:
                node[name] = values[k]
    return found
