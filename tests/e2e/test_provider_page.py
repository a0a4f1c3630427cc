# SPDX-License-Identifier: Apache-2.0
"""The provider's page in a real browser, over TLS: its way through a grant, by mouse and by keyboard; on a phone; for a screen reader; in the dark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinq
from pinq.ledger.events import Terms
from pinq.provider import grants as provider
from pinq.provider.report.audit import audit
from pinq.provider.report.html import page as html_page
from pinq.server.page.login import write_password_file
from tests.browser import CHROMIUM, Browser, browsing
from tests.checkout import ROOT
from tests.servers import Certificate, Server, publish, serving, token_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="NO CHROMIUM, so the provider's page was not tried in a browser: apt-get install chromium",
    ),
]

PASSWORD = "correct horse battery"
LONG = "An analyst with " + "a very long name " * 6 + "x" * 10
PAGES = [
    "/",
    "/datasets/people",
    "/datasets/people/analyst?name=ana",
    "/datasets/people/grant",
    "/datasets/people/extend?analyst=ana",
    "/datasets/people/terms?analyst=ana",
    "/datasets/people/token?analyst=ana",
    "/datasets/people/revoke?analyst=ana",
    "/datasets/people/none",
]

ACCESSIBLE = """(() => {
  const wrong = [];
  const say = (what, one) => wrong.push(what + ': ' + (one ? one.outerHTML.slice(0, 120) : ''));
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (one) => one.getClientRects().length > 0 && getComputedStyle(one).visibility !== 'hidden';
  if (!document.documentElement.lang) say('no language');
  if (!document.title) say('no title');
  for (const landmark of ['header', 'main', 'footer']) if (all('body > ' + landmark).length !== 1) say('landmark ' + landmark);
  if (all('h1').length !== 1) say('h1');
  let level = 0;
  for (const one of all('h1, h2, h3, h4')) { const now = +one.tagName[1]; if (now > level + 1) say('heading skips a level', one); level = now; }
  const ids = all('[id]').map((one) => one.id);
  if (new Set(ids).size !== ids.length) say('an id stands twice ' + ids.filter((id, i) => ids.indexOf(id) !== i));
  for (const one of all('[aria-labelledby], [aria-describedby], label[for]'))
    for (const name of ['aria-labelledby', 'aria-describedby', 'for'])
      for (const id of (one.getAttribute(name) || '').split(' ').filter(Boolean)) if (!document.getElementById(id)) say(name + ' leads nowhere', one);
  for (const one of all('input:not([type=hidden]), textarea, select')) if (seen(one) && !(one.labels.length && one.labels[0].innerText.trim())) say('no label', one);
  for (const one of all('fieldset')) if (!one.querySelector('legend')) say('no legend', one);
  for (const one of all('a, button')) if (seen(one) && !one.innerText.trim()) say('no text', one);
  for (const one of all('nav, [role=group]')) if (!one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby')) say('no name', one);
  for (const one of all('img')) if (!one.hasAttribute('alt')) say('no alt', one);
  for (const one of all('svg')) if (one.getAttribute('aria-hidden') !== 'true' && !(one.getAttribute('role') === 'img' && one.querySelector('title'))) say('a picture without words', one);
  for (const one of all('.bar')) if (!/\\d/.test(one.parentElement.innerText)) say('a bar without its number', one);
  for (const one of all('table')) {
    if (!one.caption || !one.caption.textContent.trim()) say('no caption', one);
    for (const head of one.querySelectorAll('th')) if (!head.scope) say('no scope', head);
  }
  for (const one of all('a, button, input:not([type=hidden]), summary, textarea')) {
    const box = one.getBoundingClientRect();
    if (seen(one) && !one.classList.contains('skip') && (box.height < 16 || (one.matches('button, .button, summary') && box.height < 40))) say('hard to hit ' + box.height, one);
  }
  const numbers = (color) => { const found = color.match(/[\\d.]+/g).map(Number); return found.length === 3 ? [...found, 1] : found; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const under = (one) => { for (; one; one = one.parentElement) { const found = numbers(getComputedStyle(one).backgroundColor); if (found[3] === 1) return found; } return null; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !seen(one) || one.closest('.unseen, title, desc')) continue;
    const style = getComputedStyle(one), ink = numbers(one.closest('svg') ? style.fill : style.color), paper = under(one.closest('svg') ? one.closest('svg') : one);
    if (!paper) { say('no background', one); continue; }
    const [high, low] = [light(ink), light(paper)].sort((x, y) => y - x), ratio = (high + 0.05) / (low + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && +style.fontWeight >= 700);
    texts += 1;
    if (ratio < (large ? 3 : 4.5)) say('contrast ' + ratio.toFixed(2), one);
  }
  if (texts < 5) say('nothing to read');
  return wrong;
})()"""
"""What is wrong with the page for people who see little, or nothing, or cannot use a mouse (after WCAG 2.2, level AA)."""

FOCUS = """(() => { const one = document.activeElement, style = getComputedStyle(one);
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2; const box = one.getBoundingClientRect();
  return [one.tagName, ring, box.bottom > 0 && box.top < innerHeight && box.width > 0]; })()"""


OVERFLOWING = """(() => {
  const boxes = [...document.querySelectorAll('.wide')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText.slice(0, 60));
  const labels = [...document.querySelectorAll('svg .name')].filter((one) => one.getClientRects().length && one.getBoundingClientRect().right > one.closest('svg').getBoundingClientRect().right + 0.5);
  return [...boxes, ...labels.map((one) => one.textContent)];
})()"""
"""Tables that scroll sideways in their box, and labels of pictures that are cut off."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    """Two datasets, used and refused, behind TLS and with the page."""
    policy = publish(place / "policies", "people", cap=10)
    publish(place / "policies", "others")
    token_of(policy, "ana", 2)
    provider.grant(policy, LONG, 1, "2999-01-31", Terms(queries_per_minute=2, columns=("sex",)))
    for analyst in ("ana", LONG):
        with pinq.open(policy, analyst=analyst) as h:
            h.noisy_count(epsilon="0.25" if analyst == "ana" else "0.123456789")
            for refused in (3, 4):
                with pytest.raises(pinq.PinqError):
                    h.noisy_count(epsilon=refused)
    token_of(policy, "zoe", 1)
    provider.revoke(policy, "zoe")
    write_password_file(place / "password", PASSWORD)
    with serving(
        place / "policies",
        folder=place,
        certificate=Certificate.make(place),
        options=("--provider-page", str(place / "password")),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def browser(place: Path) -> Iterator[Browser]:
    with browsing(place) as found:
        yield found


@pytest.fixture
def page(browser: Browser, server: Server) -> Browser:
    """A window of a desk, signed in."""
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.open(f"{server.root}/provider")
    if "Sign in" in browser.text:
        browser.type("#password", PASSWORD)
        browser.click("button.main")
    assert "Datasets" in browser.text
    browser.console.clear()
    return browser


def test_grant_use_and_revoke(page: Browser, server: Server) -> None:
    """Log in, grant, see the token once; the analyst asks with it, the page shows it; revoke after a confirmation, and the token is worth nothing."""
    page.click("a[href$='/datasets/people']")
    page.click("a[href$='/people/grant']")
    page.type("#analyst", "bea")
    page.type("#epsilon", "0,5")
    page.click("form.card-form button.main")
    page.wait_for_focus("[role=alert]")
    assert "must be a finite number greater than 0" in page.text
    assert page.js("document.querySelector('#analyst').value") == "bea"
    page.type("#epsilon", "0.5")
    page.click("form.card-form button.main")
    assert "Grant epsilon 0.5 to bea?" in page.text
    page.click("button[value=do]")
    token = page.js("document.querySelector('#token').value")
    page.wait_for_focus("#token")
    with pinq.connect(server.url(), token=token, **server.words()) as h:
        h.noisy_count(epsilon="0.125")
        page.open(page.js("location.href"))
        assert token not in page.js("document.documentElement.outerHTML")
        assert "0.125 of 0.5 spent, 0.375 remains" in page.text
        assert "noisy_count on the whole table" in page.text
        page.click("a[href*='/people/revoke']")
        assert "Revoke the grant of bea?" in page.text
        page.click(".buttons a.button")  # cancel
        h.noisy_count(epsilon="0.125")
        page.click("a[href*='/people/revoke']")
        page.click("button[value=do]")
        assert "The grant of bea was revoked." in page.text
        with pytest.raises(pinq.NotAuthorised):
            h.noisy_count(epsilon="0.125")
    assert [line for line in page.console if "422" not in line] == []


def test_by_keyboard_alone(page: Browser, server: Server) -> None:
    """From the first key to the last, each stop can be seen: skip link, dataset, grant, confirm, sign out."""

    def tab_to(text: str) -> None:
        for _ in range(80):
            page.press("Tab")
            tag, ring, visible = page.js(FOCUS)
            assert ring, (page.focused, tag)
            assert visible, page.focused
            if page.focused.startswith(text):
                return
        raise AssertionError(f"no way to {text}")

    page.open(f"{server.root}/provider/")
    page.press("Tab")
    assert page.focused == "Skip to the content"
    page.press("Enter")
    page.wait_for_focus("#main")
    tab_to("people")
    page.press("Enter", leads=True)
    tab_to("Grant a new analyst")
    page.press("Enter", leads=True)
    tab_to("Analyst")
    page.insert("kay")
    tab_to("Budget")
    page.insert("0.25")
    tab_to("Limit what may be asked")
    page.press("Enter")
    tab_to("counts")
    page.press(" ")
    tab_to("Continue")
    page.press("Enter", leads=True)
    assert "verbs noisy_sum, noisy_avg, exp_mech" in page.text
    tab_to("Grant")
    page.press("Enter", leads=True)
    assert "kay was granted epsilon 0.25." in page.text
    page.press("Tab", shift=True)
    page.open(f"{server.root}/provider/")
    tab_to("Sign out")
    page.press("Enter", leads=True)
    page.wait_for_focus("#password")
    page.insert(PASSWORD)
    page.press("Enter", leads=True)
    assert "Datasets" in page.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 700, 360])
def test_for_everyone(page: Browser, server: Server, scheme: str, width: int) -> None:
    """Landmarks, names, labels, captions, headings, contrast, sizes: nothing is missing on any page; nothing is wider than the window."""
    page.prefer(scheme)
    page.resize(width, 740, phone=width < 500)
    for path in [*PAGES, f"/datasets/people/analyst?name={LONG}".replace(" ", "%20")]:
        page.open(f"{server.root}/provider{path}")
        page.js("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.js(ACCESSIBLE) == [], path
        assert page.js("document.documentElement.scrollWidth") <= width, path
        assert page.js(OVERFLOWING) == [], path
        roles = [one["role"] for one in page.tree()]
        assert {"banner", "main", "contentinfo", "heading"} <= set(roles), path
        if path == "/datasets/people":
            assert roles.count("table") >= 4 if width > 1000 else roles.count("table") >= 3


def test_long_numbers_are_short_and_whole_when_pointed_at(page: Browser, server: Server) -> None:
    """Three figures where there is little room."""
    page.open(f"{server.root}/provider/datasets/people/analyst?name={LONG}".replace(" ", "%20"))
    assert "0.123… of 1 spent, 0.876… remains" in page.text
    assert page.js("[...document.querySelectorAll('.budget [title]')].map((one) => one.title)") == [
        "0.123456789",
        "0.876543211",
    ]


@pytest.mark.parametrize(
    ("width", "medium"),
    [
        (320, "screen"),
        (360, "screen"),
        (700, "screen"),
        (1010, "screen"),
        (1100, "screen"),
        (1400, "screen"),
        (718, "print"),
    ],
)
def test_the_audit_shows_all_its_columns(
    browser: Browser, server: Server, place: Path, width: int, medium: str
) -> None:
    """On a phone, a tablet, a desk and A4 paper (718 pixels between the margins): nothing is cut off, nothing must be scrolled to."""
    for analyst in ("", "ana"):
        (place / "audit.html").write_text(
            html_page(audit(place / "policies" / "people.yaml", analyst or None)), encoding="utf-8"
        )
        browser.resize(width, 900, phone=width < 500)
        browser.open((place / "audit.html").as_uri())
        browser.on(medium)
        try:
            assert browser.js("document.documentElement.scrollWidth") <= width
            assert browser.js(OVERFLOWING) == []
        finally:
            browser.on("screen")


def test_signing_in_for_everyone(page: Browser, server: Server) -> None:
    """The same of the form that asks for the password, before and after a wrong one."""
    page.open(f"{server.root}/provider/")
    page.click("header form button")
    assert page.js(ACCESSIBLE) == []
    page.type("#password", "not the password")
    page.click("button.main")
    assert "That is not the password." in page.text
    assert page.js(ACCESSIBLE) == []
    assert page.js("document.querySelector('#password').getAttribute('aria-invalid')") == "true"


def test_the_check_itself_sees_what_is_wrong(page: Browser) -> None:
    """Each fault that the check is for, put into a good page, is found."""
    faults = {
        "contrast": "document.querySelector('h1').style.color = '#ccc'",
        "no label": "document.querySelector('main').append(document.createElement('input'))",
        "no caption": "document.querySelector('table').deleteCaption()",
        "landmark main": "document.querySelector('main').replaceWith(document.createElement('div'))",
        "no scope": "document.querySelector('thead th').removeAttribute('scope')",
        "no alt": "document.querySelector('img').removeAttribute('alt')",
        "a bar without its number": "document.querySelector('.figures').remove()",
        "hard to hit": "document.querySelector('button').style.cssText = 'min-height: 0; padding: 0'",
    }
    for name, fault in faults.items():
        page.open(page.js("location.href"))
        page.js(f"void ({fault})")
        assert any(one.startswith(name) for one in page.js(ACCESSIBLE)), name


def test_the_browser_starts_in_a_fresh_process(tmp_path: Path) -> None:
    """Where its pipes would get the numbers 3 and 4, which the browser has for itself."""
    code = f"from pathlib import Path; from tests.browser import browsing\nwith browsing(Path({str(tmp_path)!r})) as found: print(found.js('1 + 1'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "2\n", done.stderr
