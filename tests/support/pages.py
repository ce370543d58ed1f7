"""What an HTML page of ours holds."""

from __future__ import annotations

import json
import re
from typing import Any


def data_of(page: bytes) -> Any:
    """The data that a page shows."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.decode(), re.DOTALL)
    return json.loads(text)
