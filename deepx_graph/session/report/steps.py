"""The time line of a simulated step as a page: a row for each stream of each device, a bar for each task, in plain SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from deepx_graph.errors import counted
from deepx_graph.planning.events import COMPUTE, NETWORK, DeviceStream, SimulatedStep

MOST_BARS = 5000
"""So many tasks are drawn, the longest."""

WIDTH, ROW, LABEL = 1200, 22, 110
"""Pixels."""

_STYLE = """\
:root { color-scheme: light dark; font: 13px system-ui, sans-serif }
body { margin: 24px }
svg { max-width: 100%; height: auto }
text { fill: currentColor; font-size: 11px }
.compute { fill: #4477aa } .network { fill: #cc6677 } rect:hover { opacity: .7 }
.line { stroke: currentColor; opacity: .2 }
td { padding: 1px 12px 1px 0 } td:first-child { text-align: right }"""


def time_line(step: SimulatedStep, title: str, lines: list[str]) -> str:
    """The page. `lines` are the report's, below the picture."""
    streams: list[DeviceStream] = sorted({s for t in step.tasks for s in t.streams})
    rows = {stream: k for k, stream in enumerate(streams)}
    height = ROW * (len(rows) + 2)
    left = len(step.tasks) - MOST_BARS
    note = f"<p>{counted(left, 'shorter task')} not drawn.</p>" if left > 0 else ""
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
            f'</head>\n<body><h1>{escape(title)}</h1>\n<svg viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="time line of a step">\n{"".join(_labels(rows))}{"".join(_axis(step.seconds, len(rows)))}'
            f'{"".join(_bars(step, rows))}</svg>{note}\n<pre>{escape(chr(10).join(lines))}</pre></body></html>\n')


def _labels(rows: dict[DeviceStream, int]) -> Iterator[str]:
    for (device, what), row in rows.items():
        yield f'<text x="0" y="{ROW * row + 15}">{device} {escape(what)}</text>\n'


def _axis(seconds: float, rows: int) -> Iterator[str]:
    """Ten lines, each with its time."""
    unit, factor = next(((u, f) for u, f in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * f >= 10), ("us", 1e6))
    for k in range(11):
        x = LABEL + (WIDTH - LABEL - 40) * k / 10
        yield f'<line class="line" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{ROW * rows}"/>'
        yield f'<text x="{x:.1f}" y="{ROW * (rows + 1)}" text-anchor="middle">{seconds * k / 10 * factor:.4g} {unit}</text>\n'


def _bars(step: SimulatedStep, rows: dict[DeviceStream, int]) -> Iterator[str]:
    scale = (WIDTH - LABEL - 40) / (step.seconds or 1.0)
    placed = sorted(zip(step.tasks, step.when, strict=True), key=lambda item: item[1][0] - item[1][1])[:MOST_BARS]
    for task, (start, end) in placed:
        for stream in task.streams:
            kind = stream[1] if stream[1] in (COMPUTE, NETWORK) else COMPUTE
            said = f"{task.name}: {task.detail}, {task.seconds * 1e6:,.1f} us from {start * 1e6:,.1f} us"
            yield (f'<rect class="{kind}" x="{LABEL + start * scale:.2f}" y="{ROW * rows[stream] + 3}" '
                   f'width="{max(0.3, (end - start) * scale):.2f}" height="{ROW - 6}"><title>{escape(said)}</title></rect>\n')
