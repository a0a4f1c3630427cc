# SPDX-License-Identifier: Apache-2.0
"""The analyst's way through the workbench in a real browser: a price, an answer, a model, the end of the budget."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pinq
from tests.support.processes.browser import Browser, browsing
from tests.support.processes.forked_processes import run_pinq
from tests.support.processes.servers import Server, publish, serving, token_of
from tests.support.processes.workbenches import Bench, bench, look_at, needs_browser

pytestmark = needs_browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("analyst")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    policy = publish(place / "policies", "people")
    token = place / "token"
    token.touch(0o600)
    token.write_text(token_of(policy, "ana", 2))
    with serving(place / "policies", folder=place) as running:
        yield running


@pytest.fixture(scope="module")
def browser(place: Path) -> Iterator[Browser]:
    with browsing(place) as found:
        found.resize(1100, 800)
        found.prefer("light")
        yield found


@pytest.fixture(scope="module")
def running(place: Path, server: Server, browser: Browser) -> Iterator[Bench]:
    with bench(place, server.url(), "--token-file", place / "token", "--insecure-http") as found:
        browser.open(found.link)
        yield found


def test_a_table_a_model_and_the_end_of_the_budget(
    place: Path, server: Server, running: Bench, browser: Browser
) -> None:
    heard = len(browser.console)  # by other tests
    browser.open(running.root + "/")
    browser.sees("Columns of people", "0 of epsilon 2 spent", "whole numbers 0 to 99")
    wrong = look_at(browser, "analyst-columns")
    browser.push("Tables")
    browser.sees("Choose a column", "Answers will stand here")
    browser.choose("Column", "sex")
    browser.choose("By (optional)", "income")
    browser.fill("Epsilon", "0.5")
    browser.sees("rows by sex and income", "±", "4 parts")  # its price and its error, before asking
    with browser.tab():
        browser.open(running.root + "/tables")  # another tab has what was typed here
        browser.sees("rows by sex and income")
        browser.push("Ask")
        browser.sees("intervals of 95%", "0.5 of epsilon 2 spent")
    browser.sees("intervals of 95%", "0.5 of epsilon 2 spent")  # and this one what was answered there
    assert browser.js("[...document.images].every((one) => one.complete && one.naturalWidth > 50)")
    wrong += look_at(browser, "analyst-table")
    browser.open(running.root + "/tables")  # nor is it lost by a reload
    browser.sees("intervals of 95%")
    browser.push("Ask")  # again: the stored answer, free
    browser.wait("document.querySelectorAll('img.picture').length === 2")
    browser.sees("0.5 of epsilon 2 spent")

    browser.choose("Only rows where (optional)", "job")
    browser.sees("Choose which job.")
    browser.choose("job is", "nurse")
    browser.sees("rows by sex and income")
    browser.choose("Only rows where (optional)", "age")
    browser.fill("age is at least", "30")
    browser.fill("Epsilon", "0.25")
    browser.push("Ask")
    browser.sees("0.75 of epsilon 2 spent")
    browser.fill("Epsilon", "5")
    browser.push("Ask")
    browser.sees("1.25 remains", "Nothing was spent")
    browser.sees("0.75 of epsilon 2 spent")

    browser.push("Models")
    browser.choose("Target", "income")
    browser.fill("Epsilon", "1")
    browser.sees("DiffPC45 for `income`", "in all")
    browser.push("Ask")
    browser.sees("Decision tree of income", "Keep model.json", "1.75 of epsilon 2 spent")
    wrong += look_at(browser, "analyst-model")
    browser.fill("Epsilon", "0.002")
    browser.push("Ask")
    doubts = "[...document.querySelectorAll('[role=status]')].map((one) => one.innerText).join()"
    browser.wait(f"{doubts}.includes('no split, so every row')")  # beside the answer too
    browser.push("Add to the plan")
    browser.sees("It is in the plan, with 1 in all.")
    browser.push("Tables")
    browser.sees("rows by sex and income")  # the page before has a field of this name too
    browser.fill("Epsilon", "0.05")
    browser.push("Add to the plan")
    browser.sees("It is in the plan, with 2 in all.")
    browser.push("Plan")
    browser.sees("In all epsilon 0.052 of 0.248 that remain; 0.196 would be left.", "at half of it")
    wrong += look_at(browser, "analyst-plan")
    browser.push("Ask all of it")
    browser.sees("1.802 of epsilon 2 spent")  # the model was paid for before
    browser.push("History")
    browser.sees("miners.DiffPC45", "Keep history.csv", "Keep answers.csv", "Keep answers.ipynb")
    wrong += look_at(browser, "analyst-history")
    assert not wrong, "\n".join(wrong)
    assert (place / "token").read_text() not in running.said
    assert not [text for text in browser.console[heard:] if "Content Security Policy" in text]
    the_lines_that_are_shown_do_the_same(place, server, running, browser)


def the_lines_that_are_shown_do_the_same(place: Path, server: Server, running: Bench, browser: Browser) -> None:
    """They make the table that the page would make; of the test before, for forms keep what was typed."""
    browser.open(running.root + "/tables")
    browser.choose("Column", "age")
    browser.choose("By (optional)", "sex")
    browser.push("The same in Python")
    browser.wait("['age', 'sex'].every((name) => document.querySelector('pre.line')?.innerText.includes(name))")
    lines = browser.js("document.querySelector('pre.line').innerText")
    with pinq.connect(server.url(), token=place / "token", **server.words()) as h:
        made: dict[str, object] = {"h": h}
        exec(re.sub(r"epsilon='[0-9.]+'", "epsilon='0.01'", lines), made)
        assert len(made["table"]) == 10  # type: ignore[arg-type]


def test_groups_are_compared_and_survival_is_drawn(place: Path, server: Server, browser: Browser) -> None:
    """Forms say what is missing; answers have the test's p-value, and the picture that papers print."""
    token = place / "studies"
    token.touch(0o600)
    token.write_text(token_of(place / "policies" / "people.yaml", "bea", 5))
    with bench(place, server.url(), "--token-file", token, "--insecure-http") as studies:
        browser.open(studies.link)
        browser.sees("Columns of people")
        browser.push("Tables")
        browser.choose("Kind", "Compare groups")
        browser.choose("Column", "age")
        browser.sees("Choose the groups to compare, in By.")
        browser.choose("By (optional)", "sex")
        browser.fill("Epsilon", "1")
        browser.sees("age by sex")  # its price
        browser.push("Ask")
        browser.sees("difference of means", "Welch's t: statistic", "1 of epsilon 5 spent")
        wrong = look_at(browser, "analyst-groups")
        browser.choose("Kind", "Survival")
        browser.sees("Choose the column of the event")
        browser.choose("Event", "income")
        browser.sees("one of <=50K, >50K")  # which of them is the event is not clear by itself
        browser.choose("The event is", ">50K")
        browser.fill("Epsilon", "2")
        browser.sees("rows by age and income and sex")
        browser.push("Ask")
        browser.sees("survival by age and sex", "log-rank: statistic", "3 of epsilon 5 spent")
        browser.wait("document.querySelectorAll('img.picture').length === 2")
        assert browser.js("[...document.images].every((one) => one.complete && one.naturalWidth > 50)")
        picture = browser.js("document.querySelector('img.picture').src")
        assert "at risk (noisy)" in base64.b64decode(picture.partition(",")[2]).decode()
        wrong += look_at(browser, "analyst-survival")
        browser.push("The same in Python")
        browser.wait("document.querySelector('pre.line')?.innerText.includes('from miners.statistics import survival')")
        assert not wrong, "\n".join(wrong)


EVIL = """<script>
const done = [], at = (what) => (event) => done.push(what + ' ' + (event.type || event));
window.tried = (async () => {
  for (const path of ['/', '/tables', '/open'])
    for (const method of ['GET', 'POST'])
      await fetch(ROOT + path, {method, mode: 'no-cors', credentials: 'include'}).then(at('fetch'), at('no fetch'));
  await fetch(ROOT + '/', {credentials: 'include'}).then(at('READ'), at('not read'));
  for (const path of ['/_nicegui_ws/socket.io/?EIO=4&transport=websocket', '/'])
    await new Promise((go) => { const socket = new WebSocket(ROOT.replace('http', 'ws') + path);
      socket.onopen = (event) => { at('SOCKET')(event); go(); }; socket.onerror = (event) => { at('no socket')(event); go(); }; });
  await new Promise((go) => { const frame = document.createElement('iframe'); frame.src = ROOT + '/'; frame.onload = go;
    document.body.append(frame); });
  let inside = ''; try { inside = document.querySelector('iframe').contentDocument.body.innerText } catch { }
  done.push('frame ' + inside);
  return done; })();
</script>"""


def test_a_page_of_another_site_does_nothing(running: Bench, browser: Browser) -> None:
    """The browser that has the cookie, on a page of another port of this machine, which cookies do not tell apart."""

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<body>" + EVIL.replace("ROOT", json.dumps(running.root)).encode())

        def log_message(self, *_: object) -> None:
            pass

    browser.open(running.root + "/")
    browser.sees("Columns of people")
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{evil.server_port}/")
        done = browser.js("window.tried")
        evil.shutdown()
    assert [one.partition(" ")[0] for one in done].count("READ") == 0
    assert not [one for one in done if one.startswith("SOCKET")]
    assert len([one for one in done if one.startswith("no socket")]) == 2
    assert done[-1] == "frame "
    browser.open(running.root + "/")  # its own page still works
    browser.sees("Columns of people", "of epsilon 2 spent")


def test_a_wrong_token_and_a_closed_link(place: Path, server: Server, running: Bench, browser: Browser) -> None:
    wrong = place / "wrong"
    wrong.touch(0o600)
    wrong.write_text("pinq_" + "x" * 43)
    done = run_pinq(["workbench", server.url(), "--token-file", str(wrong), "--insecure-http"])
    assert done.returncode == 1
    assert "No valid grant" in done.stderr
    (place / "other").mkdir(exist_ok=True)
    with browsing(place / "other") as other:
        other.open(running.link)
        other.sees("this browser has not opened it", "pinq workbench")
        assert running.link.rpartition("=")[2] not in other.text


@pytest.mark.skipif(
    not os.environ.get("PINQ_ASSURANCE"), reason="make assurance waits a minute for the client to give up"
)
def test_a_server_that_is_gone_is_said_in_place(server: Server, running: Bench, browser: Browser) -> None:
    browser.open(running.root + "/tables")
    browser.sees("of epsilon 2 spent")
    server.stop()
    browser.choose("Column", "sex")
    browser.push("Ask")
    browser.sees("127.0.0.1")
    assert browser.js("document.querySelectorAll('[role=alert]').length > 0")
