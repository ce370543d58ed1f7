"""The documents: commands, options, functions and files that they name exist; the map of packages is that of the imports."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

import deepx_graph as dx
from deepx_graph.cli.main import COMMANDS, make_parser
from tests.support.paths import ROOT
from tests.support.sources import SOURCES, pages, source_files

PAGES = [p for p in pages() if p.name not in ("ops.md", "json.md")]
OPTION = re.compile(r"--?[a-z][a-z-]*")


@cache
def options() -> dict[str, set[str]]:
    """The options of each command."""
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {name: {o for action in parser._actions for o in action.option_strings} for name, parser in commands.choices.items()}


def code(text: str) -> Iterator[str]:
    """What stands in a text as code, line by line, the lines that a backslash joins as one."""
    joined = text.replace("\\\n", " ")
    for block in re.findall(r"^```[^\n]*\n(.*?)^```|^((?:    \S[^\n]*\n)+)", joined, re.MULTILINE | re.DOTALL):
        yield from (block[0] or block[1]).splitlines()
    yield from re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"^```.*?^```", "", joined, flags=re.MULTILINE | re.DOTALL))


def commands(text: str) -> Iterator[list[str]]:
    """The words behind `deepx-graph`, up to what a shell takes."""
    for line in code(text):
        for found in re.findall(r"(?:^|[\s$])(?:deepx-graph|dxg|-m deepx_graph) +([^|>#&]*)", line):
            yield re.sub(r"[\[\]'\"]", " ", found).split()


def unknown(words: list[str]) -> list[str]:
    """What a command line names that there is not."""
    name, *rest = words or ["COMMAND"]
    if name.isupper() or name.startswith("-"):
        return []
    if name not in COMMANDS:
        return [name]
    named = (found[0].rstrip("-") for word in rest if (found := OPTION.match(word)))
    return [f"{name} {option}" for option in named if option not in options()[name]]


def test_the_check_on_commands_finds_what_is_wrong() -> None:
    lines = list(commands("`deepx-graph opt x --emit sea | less --raw`\n```\n$ dxg opt x --emitt=sea\n$ deepx-graph opp x\n```\n"))
    assert [unknown(words) for words in lines] == [["opt --emitt"], ["opp"], []]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_functions_that_a_page_shows_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [u for words in commands(text) for u in unknown(words)] == []
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {t for line in code(text) for t in re.findall(r"^make ([a-z]+)", line)} <= targets
    assert [name for line in code(text) for name in re.findall(r"\bdx\.(\w+)", line) if not hasattr(dx, name)] == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name == "docs"], ids=lambda p: p.name)
def test_options_and_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = set().union(*options().values())
    lone = (found[0] for line in code(text) if (found := re.match(r"--[a-z][a-z-]*", line)))
    assert [o for o in lone if o.rstrip("-") not in known] == []
    for name in set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", text)):
        there = any((base / name).exists() for base in (ROOT, ROOT / SOURCES[0], ROOT / "tests"))
        assert there or ("/" not in name and any(p.name == name for p in source_files())), name


def test_variables_of_the_environment_are_read_somewhere() -> None:
    sources = "".join(p.read_text(encoding="utf-8") for p in [*source_files(), ROOT / "Makefile", *(ROOT / "tests").rglob("*.py"),
                                                             *(ROOT / "bench").rglob("*.py")])  # fmt: skip
    named = {name for page in PAGES for name in re.findall(r"DEEPX_GRAPH_[A-Z_]+", page.read_text(encoding="utf-8"))}
    assert {name for name in named if name not in sources} == set()


def titles(path: Path) -> list[str]:
    """The nodes and edges of a picture that Graphviz has drawn."""
    return sorted("".join(t.itertext()) for t in ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}title"))


def test_the_map_of_packages_is_that_of_the_imports(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "package_map.py", tmp_path / "packages.svg"], check=True, timeout=600)
    assert titles(ROOT / "docs" / "images" / "packages.svg") == titles(tmp_path / "packages.svg"), "make docs draws it again"


def site_pages() -> set[Path]:
    """The pages that the site is made of."""
    (patterns,) = re.findall(r"^include_patterns = (\[.*?\])", (ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), re.M | re.S)
    return {p for pattern in ast.literal_eval(patterns) for p in ROOT.glob(pattern)}


def links_between_pages(page: Path) -> set[Path]:
    """The pages that a page links to."""
    targets = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
    return {(page.parent / t).resolve() for t in targets if not t.startswith("http") and t.endswith((".md", ".rst", ".ipynb"))}


def test_the_site_has_every_page_that_one_of_its_pages_links_to() -> None:
    """`make docs` fails otherwise; and where a page stands in no table of contents."""
    site = site_pages()
    assert {str(t) for p in site if p.suffix == ".md" for t in links_between_pages(p)} <= {str(p) for p in site}
    listed = links_between_pages(ROOT / "docs" / "README.md") | {ROOT / "README.md", ROOT / "docs" / "README.md"}
    assert {str(p) for p in site - listed} == set()
