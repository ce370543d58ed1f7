"""A headless Chromium, driven over its debugging pipe: loads a page, runs expressions in it, presses keys, takes screenshots.

Nothing of it is in the page under test: expressions run through the debugger, which the page's policy does not concern.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

HOW_TO_GET = "no chromium: apt install chromium (Debian), or any Chrome on the PATH; the pages were not tried in a browser"
"""Why a test is left out where there is no browser."""

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str | None:
    """The browser's program, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path, width: int = 1300, height: int = 850) -> None:
        self.messages: list[str] = []
        """What the page's console said: errors and violations of its policy."""
        self._numbers = itertools.count(1)
        read, to_browser = os.pipe()
        from_browser, write = os.pipe()
        command = [executable() or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--no-first-run", f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip

        def connect() -> None:  # the pipe's ends are descriptors 3 and 4 by agreement
            high = [os.dup(fd) for fd in (read, write)] if {read, write} & {3, 4} else [read, write]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL)  # fmt: skip
        os.close(read)
        os.close(write)
        self._out, self._in = os.fdopen(to_browser, "wb", 0), os.fdopen(from_browser, "rb")
        self._buffer = b""
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.media()

    _session: str | None = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._in.close()
        self._out.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != number:
            pass
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in.fileno(), 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(message["params"]["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            self.messages.append(message["params"]["entry"]["text"])
        return message

    def size(self, width: int, height: int) -> None:
        """The size of the window's inside."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path, fragment: str = "") -> None:
        """Loads a file, until its script has run and what it promised as `ready` is there."""
        self._call("Page.navigate", url="about:blank")  # only another fragment would not load it anew
        self._call("Page.navigate", url=path.as_uri() + fragment)
        while True:
            if self._next().get("method") == "Page.loadEventFired":
                break
        self.run("typeof ready === 'undefined' ? null : ready")

    def visit(self, url: str) -> None:
        """Goes to an address, and does not wait for what it shows."""
        self._call("Page.navigate", url=url)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page, awaited when it is a promise."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as from the keyboard."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str, number: int = 0, count: int = 1) -> None:
        """A mouse click in the middle of an element."""
        self.run("new Promise(requestAnimationFrame)")
        x, y = self.run(f"(() => {{ const r = document.querySelectorAll({json.dumps(selector)})[{number}].getBoundingClientRect();"
                        "return [r.x + r.width / 2, r.y + r.height / 2]; })()")  # fmt: skip
        self.click_at(x, y, count)

    def click_at(self, x: float, y: float, count: int = 1) -> None:
        """A mouse click at a place of the window."""
        for k in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=k)

    def media(self, theme: str = "light", motion: str = "reduce") -> None:
        """The theme that the system is said to have, and whether things are to be seen moving (by default not)."""
        features = {"prefers-color-scheme": theme, "prefers-reduced-motion": motion}
        self._call("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in features.items()])

    def processor_time(self) -> float:
        """Seconds that the page's main thread has computed since its first call, which begins the count."""
        self._call("Performance.enable", timeDomain="threadTicks")
        found = {m["name"]: m["value"] for m in self._call("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    def screenshot(self, path: Path) -> None:
        """The page as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def printed(self) -> int:
        """How many sheets of paper the page takes."""
        return len(re.findall(rb"/Type /Page\b", base64.b64decode(self._call("Page.printToPDF")["data"])))
