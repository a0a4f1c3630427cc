# SPDX-License-Identifier: Apache-2.0
"""Workbenches for tests: the command as a process, its link, and the faults of pages that axe finds."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.house.checkout import ROOT
from tests.support.processes.browser import CHROMIUM, Browser
from tests.support.processes.forked_processes import PinqProcess

PICTURES = ROOT / "docs" / "pictures" / "workbench"
MISSING = [
    reason
    for reason, there in {
        "NO CHROMIUM, so the workbench was not tried in a browser: apt-get install chromium": CHROMIUM is not None,
        "NO NICEGUI, so the workbench was not tried: pip install 'pinq-miners[workbench]'": find_spec("nicegui"),
    }.items()
    if not there
]
needs_browser = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))


class Bench:
    """A running ``pinq workbench``."""

    def __init__(self, folder: Path, *words: object) -> None:
        self._out = folder / f"bench-{time.monotonic_ns()}.txt"
        self._out.touch()
        self.process = PinqProcess(["workbench", *map(str, words)], output=self._out, errors=self._out)
        end = time.monotonic() + 60
        while not (found := re.search(r"Open (\S+)", self.said)):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.02)
        self.link = found[1]
        self.root = self.link.partition("/open")[0]

    @property
    def said(self) -> str:
        """Its output so far."""
        return self._out.read_text(encoding="utf-8")

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def bench(folder: Path, *words: object) -> Iterator[Bench]:
    """A workbench that is killed at the end."""
    running = Bench(folder, *words)
    try:
        yield running
    finally:
        running.kill()


TALLEST = 2400  # pixels of a picture that is kept

AXE = """axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then((found) =>
  found.violations.flatMap((one) => one.nodes.map((node) => one.id + ': ' + node.html.slice(0, 160) + ' ' +
    node.any.concat(node.all).map((check) => check.message).join('; ').slice(0, 160))))"""
OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def faults_for_some(browser: Browser) -> list[str]:
    """The faults of a page for people who see little or use no mouse: the part of WCAG 2.1 AA that axe-core checks."""
    browser.js(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8") + "; 1")
    return list(browser.js(AXE))


def look_at(browser: Browser, name: str) -> list[str]:
    """Returns what is wrong with a page, on a desk and a phone, light and dark.

    Where ``PINQ_PICTURES`` is set, as by ``make pictures``, it also takes the pictures of the docs.
    """
    wrong = []
    browser.js("window.scrollTo(0, 0)")  # else the sticky head is in the middle of a picture
    for place, width, height in (("desk", 1100, 800), ("phone", 390, 844)):
        browser.resize(width, height, phone=place == "phone")
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            dark = json.dumps(scheme == "dark")
            browser.wait(f"document.body.classList.contains('body--dark') === {dark}")
            if scheme == ("light" if place == "desk" else "dark") or os.environ.get("PINQ_ASSURANCE"):
                wrong += [f"{name} {place} {scheme}: {one}" for one in faults_for_some(browser)]
                if os.environ.get("PINQ_PICTURES"):
                    browser.picture(file := PICTURES / f"{name}-{place}-{scheme}.png")
                    _pack(file)
        wrong += [f"{name} {place}: wider than the screen"] if browser.js(OVERFLOWS) else []
    browser.resize(1100, 800)
    browser.prefer("light")
    return wrong


def _pack(file: Path) -> None:
    """Keeps a picture small: pages have few colours."""
    from PIL import Image

    with Image.open(BytesIO(file.read_bytes())) as picture:
        shown = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, TALLEST)))
        shown.quantize(48).save(file, optimize=True)
