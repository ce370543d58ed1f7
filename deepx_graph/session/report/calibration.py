"""The constants that predict kernels: those in use beside the shipped ones, measured anew, forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.model import SHIPPED, Constants


@dataclass(frozen=True)
class Calibration:
    """Constants beside the shipped ones; `path` is where they are kept, None where they are not."""

    constants: Constants
    path: Path | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"machine": cost_file.machine(), "path": None if self.path is None else str(self.path), "note": self.note,
                "constants": self.constants.to_json(), "shipped": SHIPPED.to_json()}  # fmt: skip

    def lines(self) -> Iterator[str]:
        """A table."""
        yield f"{'constant':<20} {'here':>14} {'shipped':>14}"
        now = self.constants.to_json()
        for name, shipped in SHIPPED.to_json().items():
            yield f"{name:<20} {now[name]:>14,.6g} {shipped:>14,.6g}"


def calibration_in_use() -> Calibration:
    """What this process goes by."""
    known = cost_file.known()
    return Calibration(known.constants, known.path, known.note)


def calibrate(path: str | None = None, tell: Callable[[str], object] = lambda what: None) -> Calibration:
    """Measures and stores, in `path` or where later processes look. Raises UsageError when it cannot be written."""
    from deepx_graph.runtime.cost.calibrate import calibrated

    target = Path(path) if path is not None else cost_file.location()
    measured = calibrated(tell)
    return Calibration(measured, cost_file.store(measured, target))


def forget_calibration() -> Path | None:
    """Forgets what was measured; the file that was removed."""
    return cost_file.reset()
