"""What the namespace says of itself."""

from __future__ import annotations

from typing import Any

from deepx_graph.array_api.creation import check_device
from deepx_graph.array_api.dtypes import STANDARD, is_kind
from deepx_graph.types import DType


class NamespaceInfo:
    """Answers of `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """What arrays with values can do. Of traced arrays no shape depends on values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of numbers of Python."""
        check_device(device)
        names = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {kind: STANDARD[name] for kind, name in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of the standard by name, all or those of a kind."""
        check_device(device)
        return {name: d for name, d in STANDARD.items() if kind is None or is_kind(d, kind)}

    def devices(self) -> list[str]:
        """The only device."""
        return ["cpu"]


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807
    """What the namespace can do."""
    return NamespaceInfo()
