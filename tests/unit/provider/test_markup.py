# SPDX-License-Identifier: Apache-2.0
"""Text becomes HTML in one place, and is escaped there once."""

from pinq.provider.report.markup import element, escaped, joined

HOSTILE = "<script>'\"&\x1b\u202e"
SAFE = "&lt;script&gt;&#x27;&quot;&amp;\\x1b\\u202e"


def test_a_text_is_escaped_once_wherever_it_stands() -> None:
    """In an element, in an attribute, among pieces; HTML goes through as it is."""
    inner = element("b", HOSTILE)
    assert inner == f"<b>{SAFE}</b>"
    assert element("p", inner, HOSTILE) == f"<p><b>{SAFE}</b>{SAFE}</p>"
    assert element("p", title=HOSTILE) == f"<p title='{SAFE}'></p>"
    assert joined([HOSTILE, inner], HOSTILE) == SAFE + SAFE + inner
    assert escaped(escaped(HOSTILE)) == SAFE


def test_attributes_are_named_as_html_does() -> None:
    """None leaves one out; shapes of a picture have no end."""
    assert (
        element("line", class_="grid", aria_hidden="true", x1=3, id=None)
        == "<line class='grid' aria-hidden='true' x1='3'/>"
    )
