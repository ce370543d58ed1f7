"""What a notebook shows of an object: text, and a picture once a floor that can draw has said how.

The floors that draw lie above this one; `show_with` lets them in. Without them an object is shown as its `repr`.
"""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[object], dict[str, str]]

_shows: list[Show] = []


def show_with(show: Show) -> None:
    """Shows objects by `show` from now on: the parts of what a notebook can show, by their MIME types."""
    _shows[:] = [show]


class InNotebook:
    """An object that IPython and Jupyter show by its `_repr_mimebundle_`."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The parts by MIME type; which of them are wanted is the notebook's to choose."""
        return _shows[0](self) if _shows else {"text/plain": repr(self)}
