"""Event simulation: when tasks run, what is exposed, and circles."""

from __future__ import annotations

import time

import pytest

from deepx_graph.errors import UsageError
from deepx_graph.planning.events import COMPUTE, NETWORK, SimTask, run_events


def task(name: str, seconds: float, *after: int, device: int = 0, what: str = COMPUTE) -> SimTask:
    return SimTask(name, ((device, what),), seconds, after)


def test_exchanges_overlap_with_what_does_not_need_them() -> None:
    step = run_events([task("a", 1), task("send", 3, 0, what=NETWORK), task("b", 2, 0), task("c", 1, 1)])
    assert step.when == ((0, 1), (1, 4), (1, 3), (4, 5))
    assert (step.seconds, step.busy(0, COMPUTE), step.exposed(0), step.bubble(0)) == (5, 4, 1, 0)


def test_a_stream_keeps_its_order() -> None:
    """A task whose operands are there waits for those listed before it, as queues of devices do."""
    assert run_events([task("a", 1, device=1), task("b", 1, 0), task("c", 1)]).when[2] == (2, 3)


def test_a_task_on_two_streams_holds_both() -> None:
    both = SimTask("send", ((0, NETWORK), (1, NETWORK)), 2.0, (0,))
    step = run_events([task("a", 1), both, task("other", 1, what=NETWORK, device=1)])
    assert step.when[2] == (3, 4) and step.bubble(1) == pytest.approx(1 / 4)


def test_a_circle_is_named() -> None:
    with pytest.raises(UsageError, match="wait for one another") as e:
        run_events([task("a", 1, 1), task("b", 1, device=1)][:1] + [task("b", 1, 0)])
    assert e.value.diagnostics[0].notes == ("a", "b")


def test_a_hundred_thousand_events() -> None:
    start = time.process_time()
    step = run_events([task(str(k), 1e-6, *([k - 1] if k else []), device=k % 8) for k in range(100_000)])
    assert step.seconds == pytest.approx(0.1) and time.process_time() - start < 10
