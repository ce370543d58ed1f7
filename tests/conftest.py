"""What all tests share: the widths of vectors that tests of machine code run with; the count of the tests that were left to
`make conformance`, said also when workers collect them, and the table of what held, when none were."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from deepx_graph.ir import fingerprint
from deepx_graph.passes.observer import STANDING
from deepx_graph.runtime.native import vectors
from tests.support import widths
from tests.support.cli_runner import run, sea  # noqa: F401  fixtures are found here
from tests.support.conformance_table import table

os.environ["DEEPX_GRAPH_COSTS"] = ""  # predictions and cuts by the shipped constants, whatever this machine has measured
fingerprint.add("the tests")  # what is compiled is made here and now, and not taken from the disk

_left_out = 0


@pytest.fixture
def vector_bits(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """The width of vectors that a test of machine code runs with; None for the widest."""
    with vectors(request.param):
        yield request.param


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the library writes among temporary files, such as reproducers of errors, goes where pytest cleans up; so does what
    processes write that a test starts."""
    folder = str(tmp_path_factory.mktemp("t", numbered=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(autouse=True)
def _validated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Random programs and those of corpora go through passes of which every rewrite is checked by values."""
    if request.node.get_closest_marker("validated") is None:
        yield
        return
    from deepx_graph.validation.rewrites import ValidateRewrites

    STANDING.append(ValidateRewrites)
    yield
    STANDING.remove(ValidateRewrites)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    widths.parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    widths.leave_most(items)


def pytest_deselected(items: list[pytest.Item]) -> None:
    global _left_out
    _left_out += sum(item.get_closest_marker("conformance") is not None for item in items)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # this is a worker of pytest-xdist
        output["left_out"] = _left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    global _left_out  # every worker collects all tests, so their counts are the same
    _left_out = max(_left_out, getattr(node, "workeroutput", {}).get("left_out", 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _left_out:
        terminalreporter.write_line(f"{_left_out} tests of the long suites are left out: `make conformance` runs them")
        return
    for line in table(terminalreporter.stats):
        terminalreporter.write_line(line)
