"""Shows the same files in deepx_graph, Netron and Model Explorer, and takes the pictures of docs/comparison.md.

    python docs/comparison.py resnet18.mlir gpt12_train.mlir --netron ENV/bin/netron --model-explorer ENV/bin/model-explorer

Files are StableHLO with debug information, as `lowered.as_text(debug_info=True)` writes it. Needs chromium, and the two other tools
(`pip install netron ai-edge-model-explorer`) in an environment of their own; both are served on this machine only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deepx_graph.cli.main import main as deepx_graph  # noqa: E402
from tests.support.browser import Browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = 1000, 760
WAIT = 45.0
"""Seconds that a tool has to show a picture."""

ACCEPT = "[...document.querySelectorAll('button')].find(b => /accept/i.test(b.textContent))?.click()"
EXPAND_ALL = 380, 76
"""Where Model Explorer has the button."""


@contextmanager
def served(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(12)
        yield
    finally:
        process.terminate()
        process.wait(20)


def picture(browser: Browser, model: str, tool: str) -> None:
    browser.screenshot(IMAGES / f"comparison-{model}-{tool}.png")
    print(f"comparison-{model}-{tool}.png")


def ours(browser: Browser, file: Path, folder: Path) -> None:
    page = folder / f"{file.stem}.html"
    deepx_graph(["draw", str(file), "-o", str(page)])
    browser.open(page)
    browser.run("new Promise(r => setTimeout(r, 500))")
    picture(browser, file.stem, "deepx_graph")
    browser.run("panes[0].enter(panes[0].scene.boxes.find(b => openable(b) && b.family === 'block'))")
    browser.run("new Promise(r => setTimeout(r, 500))")
    picture(browser, file.stem, "deepx_graph-open")


def netron(browser: Browser, file: Path, program: str) -> None:
    with served(program, "--host", "127.0.0.1", "-p", "9821", str(file)):
        browser.visit("http://127.0.0.1:9821/")
        time.sleep(5)
        browser.run(ACCEPT)  # the consent that it asks for at first
        time.sleep(WAIT)
        picture(browser, file.stem, "netron")


def model_explorer(browser: Browser, file: Path, program: str) -> None:
    with served(program, "--no_open_in_browser", "--host", "127.0.0.1", "--port", "9831", "--skip_health_check", str(file)):
        browser.visit("http://127.0.0.1:9831/?data=" + quote(json.dumps({"models": [{"url": str(file.resolve())}]})))
        time.sleep(WAIT)
        picture(browser, file.stem, "model_explorer")
        browser.click_at(*EXPAND_ALL)
        time.sleep(WAIT)
        picture(browser, file.stem, "model_explorer-open")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--netron", help="its program; without it only the other pictures")
    parser.add_argument("--model-explorer", help="its program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch) / "profile", *SIZE) as browser:
        browser.size(*SIZE)
        for file in args.files:
            ours(browser, file, Path(scratch))
            if args.netron:
                netron(browser, file, args.netron)
            if args.model_explorer:
                model_explorer(browser, file, args.model_explorer)


if __name__ == "__main__":
    main()
