"""Shows the same files in deepx_graph, Netron and Model Explorer, and takes the pictures of docs/comparison.md.

    python docs/comparison.py resnet18.mlir gpt12_train.mlir --netron ENV/bin/netron --model-explorer ENV/bin/model-explorer

With `--side-by-side` it is one picture of each file, of what the tools open by themselves (ImageMagick's `montage` joins them).

Files are StableHLO with debug information, as `lowered.as_text(debug_info=True)` writes it, or ONNX, which Model Explorer reads
by an adapter. Needs chromium, and the two other tools (`pip install netron ai-edge-model-explorer model-explorer-onnx`) in an
environment of their own; both are served on this machine only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deepx_graph.cli.main import main as deepx_graph  # noqa: E402
from tests.support.browser import Browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = 1000, 760
WAIT = 45.0
"""Seconds that a tool has to show a picture, unless told otherwise."""

START = 120.0
"""Seconds that a server has to start."""

ACCEPT = "[...document.querySelectorAll('button')].find(b => /accept/i.test(b.textContent))?.click()"
TOOLS = ("deepx_graph", "deepx_graph-open", "netron", "model_explorer", "model_explorer-open")
EXPAND_ALL = 380, 76
"""Where Model Explorer has the button."""


@contextmanager
def served(port: int, *command: str) -> Iterator[None]:
    """A server, while it is needed. Raises OSError when it does not answer within `START` seconds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        begin = time.monotonic()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() - begin > START:
                    raise
                time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(20)


def ours(browser: Browser, file: Path, folder: Path, *, opened: bool = True) -> None:
    page = folder / f"{file.stem}.html"
    with chdir(file.parent):  # the page is called as the file is
        deepx_graph(["draw", file.name, "-o", str(page)])
    browser.open(page)
    browser.run("new Promise(r => setTimeout(r, 500))")
    picture(browser, folder, "deepx_graph")
    if opened:
        browser.run("panes[0].enter(panes[0].scene.boxes.find(b => openable(b) && b.family === 'block'))")
        browser.run("new Promise(r => setTimeout(r, 500))")
        picture(browser, folder, "deepx_graph-open")


def netron(browser: Browser, file: Path, folder: Path, program: str, wait: float) -> None:
    with served(9821, program, "--host", "127.0.0.1", "-p", "9821", str(file)):
        browser.visit("http://127.0.0.1:9821/")
        time.sleep(5)
        browser.run(ACCEPT)  # the consent that it asks for at first
        time.sleep(wait)
        picture(browser, folder, "netron")


def model_explorer(browser: Browser, file: Path, folder: Path, program: str, wait: float, *, opened: bool = True) -> None:
    with served(9831, program, "--no_open_in_browser", "--host", "127.0.0.1", "--port", "9831", "--skip_health_check",
                "--extensions", "model_explorer_onnx", str(file)):  # fmt: skip
        browser.visit("http://127.0.0.1:9831/?data=" + quote(json.dumps({"models": [{"url": str(file.resolve())}]})))
        time.sleep(wait)
        picture(browser, folder, "model_explorer")
        if opened:
            browser.click_at(*EXPAND_ALL)
            time.sleep(wait)
            picture(browser, folder, "model_explorer-open")


def picture(browser: Browser, folder: Path, tool: str) -> None:
    browser.screenshot(folder / f"{tool}.png")


def kept(folder: Path, model: str, *, side_by_side: bool) -> None:
    """Moves the pictures of a model to the documents, each by itself or all as one."""
    tools = [folder / f"{tool}.png" for tool in TOOLS if (folder / f"{tool}.png").exists()]
    if side_by_side:
        goal = IMAGES / f"comparison-all-{model}.png"
        subprocess.run(["montage", *tools, "-tile", "x1", "-geometry", "640x486+4+4", goal], check=True)
        # montage by itself would take the palette of old browsers
        subprocess.run(["convert", goal, "-colors", "128", f"png8:{goal}"], check=True)
    for file in tools:
        if side_by_side:
            file.unlink()
        else:
            shutil.move(file, IMAGES / f"comparison-{model}-{file.name}")
    print(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--netron", help="its program; without it only the other pictures")
    parser.add_argument("--model-explorer", help="its program")
    parser.add_argument("--side-by-side", action="store_true", help="one picture of each file")
    parser.add_argument("--wait", type=float, default=WAIT, metavar="S", help="seconds that a tool has to show a picture")
    args = parser.parse_args()
    opened = not args.side_by_side
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch) / "profile", *SIZE) as browser:
        browser.size(*SIZE)
        for file in args.files:
            ours(browser, file, Path(scratch), opened=opened)
            if args.netron:
                netron(browser, file, Path(scratch), args.netron, args.wait)
            if args.model_explorer:
                model_explorer(browser, file, Path(scratch), args.model_explorer, args.wait, opened=opened)
            name = f"{file.parent.name}-{file.stem}" if args.side_by_side else file.stem
            kept(Path(scratch), name, side_by_side=args.side_by_side)


if __name__ == "__main__":
    main()
