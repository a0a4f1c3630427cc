# SPDX-License-Identifier: Apache-2.0
"""Docs, workbench and audit have one face: one mark, one colour of the head, one type."""

from __future__ import annotations

from pathlib import Path

from pinq.provider.report.html import MARK, STYLE, document
from pinq.provider.report.markup import Html
from tests.support.house.checkout import ROOT

HEAD, TYPE = "#0b5d66", "system-ui"


def _read(path: str) -> str:
    return Path(ROOT / path).read_text(encoding="utf-8")


def test_there_is_one_mark() -> None:
    """The site's own file is the one that the package draws."""
    assert _read("docs/pictures/mark.svg") == MARK
    assert MARK.partition(">\n")[2] in document("title", Html())
    assert HEAD in MARK


def test_heads_and_types_are_alike() -> None:
    """In the style of each."""
    for style in (STYLE, _read("docs/site.css"), _read("pinq_workbench/style.css")):
        assert HEAD in style
        assert TYPE in style
