"""What the browser consists of, without a screen: the history of the selection, jobs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from textual.app import App

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError, UsageError
from deepx_graph.session.progress import Monitor
from deepx_graph.session.query.facts import PlacedValue
from deepx_graph.session.session import Session
from deepx_graph.tui.document import Jobs
from deepx_graph.tui.formatting import cost_piece, overlays
from deepx_graph.tui.selection import KEPT, History, Selected
from deepx_graph.types import F32, tensor


def nodes(count: int) -> list[Selected]:
    function = dx.Builder().function("f", [(f"x{k}", tensor(F32, ())) for k in range(count)], lambda *x: [x[0]])
    return [(function, n) for n in function.params]


def test_a_history_goes_back_and_forward_and_forgets_what_was_gone_back_from() -> None:
    a, b, c = nodes(3)
    history = History()
    assert history.step(-1) is None
    for selected in (a, b, b, None):
        history.add(selected)
    assert history.step(-1) == a and history.step(-1) is None and history.step(1) == b
    assert history.step(-1) == a
    history.add(c)
    assert history.step(1) is None and history.step(-1) == a
    history.clear()
    assert history.step(0) is None


def test_a_history_is_bounded() -> None:
    history, many = History(), nodes(KEPT + 50)
    for selected in many:
        history.add(selected)
    steps = 0
    while history.step(-1) is not None:
        steps += 1
    assert steps == KEPT


class Worker(App[None]):
    """An app that has a job and nothing else; what comes of it is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.log_of: list[Any] = []
        self.jobs = Jobs(self, lambda text, done, total: self.log_of.append((text, done, total)), self.failed)

    def failed(self, error: DeepxGraphError) -> None:
        self.log_of.append(error)


def log_of(*works: Any, cancel: bool = False) -> list[Any]:
    """What happens when these are started one after another, each with its result logged."""

    async def run() -> list[Any]:
        app = Worker()
        async with app.run_test() as pilot:
            for work in works:
                app.jobs.start(work.__name__, work, app.log_of.append)
            if cancel:
                assert app.jobs.cancel() and not app.jobs.cancel()
            await app.workers.wait_for_complete()
            await pilot.pause(0)
            assert not app.jobs.running
        return app.log_of

    return asyncio.run(run())


def add(monitor: Monitor) -> int:
    monitor.report("step", 1, 2)
    return 3


def test_a_job_reports_and_gives_its_result() -> None:
    assert log_of(add) == [("add", 0, 0), ("add: step", 1, 2), ("", 0, 0), 3]


def test_a_job_that_another_replaces_is_cancelled() -> None:
    replaced = threading.Event()

    def wait(monitor: Monitor) -> int:
        replaced.wait()
        monitor.check()
        return 1

    def then(monitor: Monitor) -> int:
        replaced.set()
        return 2

    assert log_of(wait, then) == [("wait", 0, 0), ("cancelled", 0, 0), ("then", 0, 0), ("", 0, 0), 2]


def test_a_cancelled_job_changes_nothing() -> None:
    assert log_of(add, cancel=True) == [("add", 0, 0), ("cancelled", 0, 0)]


def test_a_diagnostic_is_passed_on() -> None:
    error = UsageError("no")

    def fail(monitor: Monitor) -> int:
        raise error

    assert log_of(fail) == [("fail", 0, 0), ("", 0, 0), error]


def test_the_list_has_columns_for_what_is_laid_over_a_program() -> None:
    b = dx.Builder()
    f = b.function("f", [("x", tensor(F32, (4,))), ("y", tensor(F32, (4,)))], lambda x, y: [x + y])
    session = Session(dx.Module((f,)))
    assert not {"error", "sharding", "difference"} & set(overlays(session))
    total = f.results[0]
    session.errors, session.changes = {total: 0.25}, {total: "changed"}
    session.shardings = {total: PlacedValue('[{"a"}]', "from input: 0")}
    session.go(0)
    assert {"error", "sharding", "difference"} < set(overlays(session))
    facts = session.facts(f)
    assert [cost_piece(total, facts, o)[0] for o in ("error", "sharding", "difference")] == ["2e-01", '[{"a"}]', "changed"]
    assert cost_piece(f.params[0], facts, "difference") == ("", "hot")
