"""No command is forgotten: each has a group and examples in help, completes what it takes, says what its options are."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from deepx_graph.cli.completion import FREE, VALUES, is_file, metavar_of
from deepx_graph.cli.main import COMMANDS, make_parser
from deepx_graph.cli.report_fields import REPORTS
from tests.support.paths import ROOT

PARSER = make_parser()


def arguments(name: str) -> Iterator[argparse.Action]:
    return (a for a in PARSER.commands[name]._actions if not isinstance(a, argparse._HelpAction))


@pytest.mark.parametrize("name", COMMANDS)
def test_it_stands_in_a_group_with_examples_that_it_takes(name: str) -> None:
    command = COMMANDS[name]
    assert command.group, "the heading in the list of commands"
    assert command.examples, "command lines that help shows"
    for example in command.examples:
        words = shlex.split(example.split(" >")[0])
        assert words[0] == name
        assert PARSER.parse_args(words).command == name


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_that_it_takes_can_be_completed(name: str) -> None:
    """A metavar says what an argument takes: it is completed, a file, or something that only the user knows."""
    for action in arguments(name):
        if action.nargs != 0 and action.choices is None:
            metavar = metavar_of(action)
            assert metavar in VALUES or metavar in FREE or is_file(metavar), f"cli/completion.py does not know {metavar}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    assert all(a.help for a in arguments(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_documentation(name: str) -> None:
    """In one of its spellings, as a word; for which command, the guide says in sentences."""
    pages = [p for p in (ROOT / "docs").glob("*.md") if p.name not in ("ops.md", "json.md")]
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", "\n".join(p.read_text() for p in pages)))
    options = [a.option_strings for a in arguments(name) if a.option_strings and a.help != argparse.SUPPRESS]
    assert [spelt for spelt in options if not words.intersection(o.partition("=")[0] for o in spelt)] == []


def test_every_command_is_in_the_guide_and_reports_have_schemas() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"deepx-graph {name}" not in text and f"- `{name}" not in text] == []
    reporting = {name for name in COMMANDS if any("--json" in a.option_strings for a in arguments(name))}
    assert reporting == {found.command.split()[0].rstrip(",") for name, found in REPORTS.items() if name != "error"}
