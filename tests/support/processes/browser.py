# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests: Chromium without a window, controlled over a pipe by its protocol (CDP)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KEYS = {"Delete": (46, ""), "Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "Escape": (27, "")}
SECONDS = 60.0
READY = "(window.did_handshake ?? true)"  # earlier, a page may send two steps of a user in the wrong order


class Browser:
    """One browser with one page."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self.console: list[str] = []
        self.clicks, self.values = 0, 0  # of the user since `counted`
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    @contextmanager
    def tab(self) -> Iterator[None]:
        """Another tab of the same browser, in front while it lasts."""
        behind, self._session = self._session, None
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            for domain in ("Page", "Runtime", "Log"):
                self._send(f"{domain}.enable")
            yield
        finally:
            self._send("Target.closeTarget", targetId=target)
            self._session = behind

    # What a user does

    def open(self, url: str) -> None:
        """Goes to an address."""
        self._leave(lambda: self._send("Page.navigate", url=url))

    def click(self, selector: str) -> None:
        """Clicks the element of a selector, and waits for the next page."""
        self._leave(lambda: self.js(f"document.querySelector({json.dumps(selector)}).click()"))

    def type(self, selector: str, text: str) -> None:
        """Puts a text into a field."""
        self.js(
            f"{{const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select && field.select()}}"
        )
        self.insert(text)

    def insert(self, text: str) -> None:
        """Types where the focus is."""
        self._send("Input.insertText", text=text)

    def fill(self, label: str, text: str) -> None:
        """Replaces the text of the field with a label, as soon as the field is ready."""
        self.wait(
            f"{READY} && ((one) => one && (one.focus(), one.select && one.select(), document.activeElement === one))({_labelled(label)})"
        )
        self.insert(text) if text else self.press("Delete")
        self.values += 1

    def push(self, text: str) -> None:
        """Presses a button or follows a link by its text, once it can be pressed."""
        one = f"[...document.querySelectorAll('button, a, summary, .q-item, .q-radio')].find((one) => one.innerText.trim().split('\\n')[0] === {json.dumps(text)} && !one.disabled)"
        self.wait(f"{READY} && !!({one})")
        self.js(f"{one}.click()")
        self.clicks += 1

    def push_named(self, name: str) -> None:
        """Presses a button by the name that a screen reader says."""
        one = f"document.querySelector('button[aria-label={json.dumps(name)}]')"
        self.wait(f"{READY} && !!({one})")
        self.js(f"{one}.click()")
        self.clicks += 1

    def choose(self, label: str, option: str) -> None:
        """Chooses an option of a list."""
        self.wait(f"{READY} && !!{_labelled(label)} && !document.querySelector('.q-menu')")
        self._point_at(_labelled(label))
        one = f"[...document.querySelectorAll('.q-menu [role=option]')].find((one) => one.innerText.trim() === {json.dumps(option)})"
        self.wait(f"!!({one})")
        self._point_at(one)
        self.clicks += 2

    def counted(self) -> tuple[int, int]:
        """The numbers of clicks and of typed values since the last call."""
        made, self.clicks, self.values = (self.clicks, self.values), 0, 0
        return made

    def _point_at(self, one: str) -> None:
        """Clicks the mouse in the middle of an element."""
        place = (
            f"(({{x, y, width, height}}) => ({{x: x + width / 2, y: y + height / 2}}))(({one}).getBoundingClientRect())"
        )
        self.js(f"{one}.scrollIntoView({{block: 'center'}})")
        at = self.js(place)
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def sees(self, *texts: str) -> None:
        """Waits until texts can be read."""
        for text in texts:
            try:
                self.wait(f"document.body.innerText.includes({json.dumps(text)})")
            except AssertionError:
                raise AssertionError(f"{text!r} is not to be read in:\n{self.text}") from None

    def press(self, key: str, *, shift: bool = False, leads: bool = False) -> None:
        """Presses a key; with ``leads``, waits for the next page."""
        code, text = KEYS[key]
        about = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }

        def stroke() -> None:
            self._send("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
            self._send("Input.dispatchKeyEvent", type="keyUp", **about)

        self._leave(stroke) if leads else stroke()

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Sets the window's size."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def prefer(self, scheme: str) -> None:
        """Sets the colour scheme, ``light`` or ``dark``, without animations."""
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        self._send(
            "Emulation.setEmulatedMedia", features=[{"name": name, "value": features[name]} for name in features]
        )

    def on(self, medium: str) -> None:
        """Sets the medium: ``screen``, or ``print`` for paper."""
        self._send("Emulation.setEmulatedMedia", media=medium)

    # What a user sees

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        done = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, expression: str) -> None:
        """Waits until an expression is true in the page; for example, a focus changes only with the next frame."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                if self.js(expression):
                    return
            except AssertionError:
                pass  # between two pages
            time.sleep(0.01)
        raise AssertionError(f"never true: {expression}")

    def wait_for_focus(self, selector: str) -> None:
        """Waits until the element of a selector has the focus."""
        self.wait(f"document.activeElement.matches({json.dumps(selector)})")

    @property
    def text(self) -> str:
        """The visible text."""
        return str(self.js("document.body.innerText"))

    @property
    def focused(self) -> str:
        """The name or text of the element with the focus."""
        return str(
            self.js(
                "(e => e.labels && e.labels[0] ? e.labels[0].innerText : (e.getAttribute('aria-label') || e.innerText || e.tagName))(document.activeElement)"
            )
        ).strip()

    def tree(self) -> list[dict[str, Any]]:
        """The role and name of each element that a screen reader reads."""
        nodes = self._send("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": one["role"]["value"],
                "name": one.get("name", {}).get("value", ""),
                "node": one.get("backendDOMNodeId"),
            }
            for one in nodes
            if not one.get("ignored")
        ]

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        shot = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    # The protocol

    def _leave(self, act: Callable[[], object]) -> None:
        self.js("window.left = true")
        act()
        self.wait("document.readyState === 'complete' && !window.left")

    def _send(self, method: str, **words: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return dict(found["result"])
            if found.get("method") == "Log.entryAdded":
                self.console.append(found["params"]["entry"]["text"])
            elif found.get("method") == "Runtime.consoleAPICalled":
                self.console.append(str(found["params"]["args"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._back, 2**16)
            assert piece, "the browser is gone"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))


def _labelled(label: str) -> str:
    """The field of a label, as an expression."""
    return f"[...document.querySelectorAll('input, textarea')].find((one) => one.getAttribute('aria-label') === {json.dumps(label)})"


def _pipe() -> tuple[int, int]:
    """A pipe with descriptors above 9: the browser needs 3 and 4, and shells need not support larger ones in redirections."""
    ends = os.pipe()
    high = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 10), fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, 10)
    for end in ends:
        os.close(end)
    return high


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile; it trusts certificates of tests."""
    assert CHROMIUM is not None
    in_read, in_write = _pipe()
    out_read, out_write = _pipe()
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--ignore-certificate-errors",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
    ]
    # The browser reads descriptor 3 and writes descriptor 4.
    shell = ["bash", "-c", f'exec "$0" "$@" 3<&{in_read} 4>&{out_write} {in_read}<&- {out_write}>&-', *command]
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    process = subprocess.Popen(
        shell,
        pass_fds=(in_read, out_write),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(in_read)
    os.close(out_write)
    try:
        yield Browser(process, in_write, out_read)
    finally:
        os.close(in_write)
        os.close(out_read)
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
