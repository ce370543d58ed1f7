"""The documentation as a site, for Sphinx: `make docs`. Nothing is fetched, when it is built or when it is read.

Pages are the Markdown files of the checkout, where they are, so that links work here and there. The front page is README.md; what
docs/README.md lists is the table of contents.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

project = "deepx_graph"
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
                    "bench/README.md", "docs/*.md", "docs/*.rst", "examples/*.ipynb", "examples/*/README.md"]
exclude_patterns = [".*", "build", "deepx_graph", "dist", "out", "passes", "tests", "tui", "viz"]
extensions = ["myst_nb", "sphinx.ext.autodoc"]

nb_execution_mode = "off"  # a notebook is shown as it is stored; a test runs it

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
highlight_language = "none"
default_role = "code"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "deepx_graph"
html_extra_path = ["site"]
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = False
html_copy_source = html_show_sourcelink = False


def contents() -> str:
    """The table of contents: a tree for each list of docs/README.md, below the words that lead to it."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    trees = ["```{toctree}\n:hidden:\n\ndocs/README\n```\n"]
    for caption, listed in re.findall(r"^(\w[^\n]*):\n\n((?:- .*\n(?:  .*\n)*)+)", text, re.MULTILINE):
        linked = (page for page in re.findall(r"\]\(([^)]+)\)", listed) if not page.endswith(".py"))
        pages = (posixpath.normpath(posixpath.join("docs", page)) for page in linked)
        names = "\n".join(posixpath.splitext(page)[0] for page in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n")
    return "\n".join(trees)


def add_contents(app: Any, page: str, source: list[str]) -> None:
    """Gives the front page the table of contents, which is of no use where the file is read as it is."""
    if page == root_doc:
        source[0] += "\n" + contents()


def setup(app: Any) -> None:
    app.connect("source-read", add_contents)
