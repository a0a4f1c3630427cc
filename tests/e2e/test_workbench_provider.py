# SPDX-License-Identifier: Apache-2.0
"""The provider's way through the workbench in a real browser: from a file that arrives to a grant, over a crash."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import pytest

import pinq
from pinq.provider.grants import show
from pinq.provider.policy_file import load_policy
from pinq_workbench.serving import Serving
from tests.support.house.assurance import thorough
from tests.support.house.checkout import ROOT
from tests.support.processes.browser import Browser, browsing
from tests.support.processes.forked_processes import run_pinq
from tests.support.processes.ports import free_port
from tests.support.processes.servers import token_of
from tests.support.processes.workbenches import Bench, bench, faults_for_some, look_at, needs_browser

pytestmark = needs_browser


HOSTILE = "<img src=x onerror=window.hacked=1>"


def write_cases(file: Path, persons: int = 200) -> None:
    """A German export: semicolons, decimal commas, days first, a person number, three cases a person."""
    drawn, lines = random.Random(7), ["Fallnummer;Patientennummer;Aufnahme;Alter;Geschlecht;Kosten;verstorben"]
    for person in range(persons):
        age, sex = drawn.randint(18, 95), drawn.choice("mw")
        for case in range(3):
            day, cost = f"{drawn.randint(1, 28):02d}.{drawn.randint(1, 12):02d}.2023", f"{drawn.randint(500, 20000)},50"
            dead = "ja" if drawn.random() < age / 300 else "nein"
            lines.append(f"{3 * person + case};P{person:05d};{day};{age};{sex};{cost};{dead}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def confirm_the_rest(browser: Browser, reason: str) -> None:
    """Confirms the number of rows, then each step of columns, with one reason for all of them."""
    browser.fill("Where this is publicly known from", reason)
    browser.push("Confirm the number of rows")
    browser.sees("Each picture: all rows")
    browser.fill("Where this is publicly known from", reason)
    while text := browser.js(CONFIRM):
        title = json.dumps(browser.js(STEP))
        browser.push(text)
        browser.wait(f"{STEP} !== {title} && !document.querySelector('.q-btn--loading')")
    browser.sees("Nothing waits for review")


CONFIRM = (
    "([...document.querySelectorAll('button')].find((one) => one.innerText.startsWith('Confirm')) || {}).innerText"
)
SLIDE = """{const slider = document.querySelector('input[aria-label="To, to slide"]');
  slider.value = 60; slider.dispatchEvent(new Event('input')); slider.offsetHeight > 5}"""
STEP = "document.querySelector('nav [aria-current]').innerText"


def in_codes(browser: Browser) -> list[str]:
    """What a page says in the words of a policy file or of the command line."""
    said = re.findall(r"--\w+|`|columns\.|max_rows|privacy_unit|\bpinq \w+|\.yaml", browser.text)
    return [f"{one!r} is no word for people" for one in said]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("provider")


@pytest.fixture(scope="module")
def browser(place: Path) -> Iterator[Browser]:
    with browsing(place) as found:
        found.resize(1100, 800)
        found.prefer("light")
        yield found


def test_from_a_file_to_a_grant(place: Path, browser: Browser) -> None:
    folder = place / "cases"
    folder.mkdir()
    write_cases(folder / "cases.csv")
    wrong: list[str] = []
    running = Bench(place, folder)
    try:
        browser.open(running.link)
        browser.sees("Nothing here yet")
        browser.press("Tab")
        assert browser.focused == "Skip to main content"
        wrong += look_at(browser, "provider-start")
        browser.choose("Table", "cases.csv")
        browser.push("Look at it")
        browser.sees("Whose presence must not show?", "Patientennummer names the person: 200 persons")
        browser.sees("200 different values of Patientennummer", "Largest groups")
        wrong += [*look_at(browser, "provider-persons"), *in_codes(browser)]
        browser.fill("Rows of one person that count at most", "3")
        browser.push("Confirm who is hidden")
        browser.sees("A reason is needed")
        browser.push("the rules of the registry")
        browser.push("Confirm who is hidden")
        browser.sees("All rows of one Patientennummer, 3.")
    finally:
        running.kill()  # in the middle: what was confirmed is in the file
    browser.sees("Connection lost")

    with bench(place, folder) as again:
        browser.open(again.link)
        browser.push("cases")
        browser.sees("All rows of one Patientennummer, 3.")
        browser.fill("Where this is publicly known from", "admission form")
        browser.push("Confirm the number of rows")
        browser.sees("Each picture: all rows")  # of the next step, which comes by itself
        browser.push("Numbers")
        browser.sees("10 to 100")
        assert browser.js("document.querySelectorAll('svg.shape').length") == 2
        browser.push_named("Look at Alter")
        browser.sees("Examples of Alter", "larger ones count as this one")
        wrong += faults_for_some(browser)
        assert browser.js(SLIDE)
        browser.wait("document.querySelectorAll('.q-dialog svg .out').length > 2")  # bars beyond the bound are red
        browser.fill("To", "120")
        browser.push("Done")
        browser.sees("10 to 120")
        wrong += [*look_at(browser, "provider-review"), *in_codes(browser)]
        browser.push_named("Leave Kosten out")
        browser.wait("!document.body.innerText.includes('Kosten')")
        browser.push("Undo the last step")
        browser.sees("Kosten")
        browser.push("Lists of values")
        browser.push_named("Leave verstorben out")
        browser.wait("!document.body.innerText.includes('verstorben')")
        browser.push("Numbers")
        browser.push("Confirm these 2")
        browser.sees("A reason is needed")
        browser.open(again.root + "/policy/cases.yaml")  # a reload loses nothing
        browser.sees("10 to 120")
        browser.push("a law or a standard")
        browser.push("Confirm these 2")
        browser.sees("Numbers ✓")
        for _ in range(2):
            title = browser.js(STEP)
            browser.push(browser.js(CONFIRM))
            browser.wait(f"{STEP} !== {json.dumps(title)}")
        browser.push("Check now")
        browser.sees("600 rows, 600 encoded", "Ready")
        assert "Fallnummer: it seems to name rows" in browser.js("document.body.textContent")
        wrong += [*look_at(browser, "provider-check"), *in_codes(browser)]

        browser.push("Grants")
        browser.sees("Nobody was granted anything yet")
        browser.fill("Cap", "2")
        browser.push("Change the cap")
        browser.sees("A reason is needed")
        browser.fill("Because (of the cap)", "decision 12")
        browser.push("Change the cap")
        browser.sees("The policy says 2.")
        browser.fill("Analyst", "ana")
        browser.fill("Epsilon", "0.5")
        browser.fill("Because", "contract 17")
        browser.sees("62.2 %", "A count of 10,000")
        browser.push("Grant")
        browser.sees("This token is shown only now")
        browser.sees("Address: https://", ":8443/cases", "pinq.connect('https://")
        wrong += look_at(browser, "provider-grant")
        token = browser.js("document.querySelector('.token').innerText")
        assert not [text for text in browser.console if token in text]
        browser.choose("Whose", "ana")
        browser.fill("Epsilon to add", "0.25")
        browser.fill("Because (of this change)", "a second question")
        browser.push("Extend")
        browser.sees("0.75")
        browser.push("Log")
        inside = "document.querySelector('iframe').contentDocument.body.innerText"
        browser.wait(f"{inside}.includes('contract 17') && {inside}.includes('a second question')")
    policy = folder / "cases.yaml"
    assert load_policy(policy).reviewed["columns.Alter.upper"] == "a law or a standard"
    assert load_policy(policy).schema_.numeric_columns["Alter"].upper == 120
    assert [(one.analyst, str(one.limit)) for one in show(policy).accounts] == [("ana", "0.75")]
    assert token not in again.said
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def workbook(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server is gone afterwards."""
    folder = tmp_path / "workbook"
    folder.mkdir()
    yield folder
    Serving(folder).stop()


@thorough
def test_a_workbook_is_served_and_a_grant_ends(place: Path, workbook: Path, browser: Browser) -> None:
    folder, port = workbook, free_port()
    copy(ROOT / "tests" / "offices" / "hospital.xlsx", folder / "visits.xlsx")
    with bench(place, folder) as running:
        browser.open(running.link)
        browser.choose("Table", "visits.xlsx")
        browser.push("Look at it")
        browser.sees("Which one is right?")
        assert not in_codes(browser)
        browser.push("Fälle 2024")
        browser.sees("Whose presence must not show?")
        browser.push("Each row is another person")
        browser.push("one row is one person")
        browser.push("Confirm who is hidden")
        browser.wait("!document.body.innerText.includes('Confirm who is hidden')")
        confirm_the_rest(browser, "the sheet's form")
        browser.push("Grants")
        browser.fill("Analyst", HOSTILE)
        browser.fill("Epsilon", "1")
        browser.push("Grant")
        browser.sees("This token is shown only now")
        token = browser.js("document.querySelector('.token').innerText")
        browser.push("Serve")
        browser.sees("It does not run.")
        browser.fill("Port", "abc")
        browser.push("Start")
        browser.sees("it is 'abc'; it must be a whole number")
        assert "Usage" not in browser.text
        browser.fill("Port", str(port))
        browser.push("Start")
        browser.sees("It runs.", f"http://127.0.0.1:{port}/visits")
        wrong = look_at(browser, "provider-serve")
        url = f"http://127.0.0.1:{port}/visits"
        with pinq.connect(url, token=token, insecure_http=True) as h:
            h.noisy_count(epsilon=0.5)
        running.kill()

    with bench(place, folder) as again:  # the server that it started runs on, and is known
        browser.open(again.link)
        browser.sees("0.5 of 1 spent, 1 granted")
        browser.open(again.root + "/policy/visits.yaml/grants")
        browser.choose("Whose", HOSTILE)
        browser.push("Revoke")
        browser.push("Yes")
        browser.sees("revoked")
        assert browser.js("window.hacked === undefined && !document.querySelector('img')")
        with pytest.raises(pinq.NotAuthorised):
            pinq.connect(url, token=token, insecure_http=True)
        browser.push("Serve")
        browser.sees("It runs.")
        browser.push("Stop")
        browser.sees("It does not run.")
        with pytest.raises(pinq.Unavailable):
            pinq.connect(url, token=token, insecure_http=True, timeout=1)
    assert not wrong, "\n".join(wrong)


@thorough
def test_strangers_need_few_clicks(place: Path, workbook: Path, browser: Browser) -> None:
    """The shortest way of each user over the same file; `docs/workbench.md` says how long they are."""
    folder, port = workbook, free_port()
    write_cases(folder / "cases.csv")
    with bench(place, folder) as running:
        browser.open(running.link)
        browser.counted()
        browser.choose("Table", "cases.csv")
        browser.push("Look at it")
        browser.fill("Rows of one person that count at most", "3")
        browser.fill("Why", "at most three stays a year")
        browser.push("Confirm who is hidden")
        browser.sees("All rows of one Patientennummer, 3.")
        confirm_the_rest(browser, "admission form")
        browser.push("Check now")
        browser.push("Grant")
        browser.fill("Analyst", "ana")
        browser.fill("Epsilon", "1")
        browser.fill("Because", "contract 17")
        browser.push("Grant")
        browser.sees("This token is shown only now")
        token = browser.js("document.querySelector('.token').innerText")
        browser.push("Copy the token")
        browser.push("Serve")
        ways = {"a provider": browser.counted()}
        browser.fill("Port", str(port))  # no machine for tests has the usual one for certain
        browser.push("Start")
        browser.sees("It runs.")
        assert browser.counted() == (1, 1)
        ways["a provider"] = ways["a provider"][0] + 1, ways["a provider"][1]

    kept = place / "stranger"
    kept.touch(0o600)
    kept.write_text(token)
    url = f"http://127.0.0.1:{port}/cases"
    with bench(place, url, "--token-file", kept, "--insecure-http") as running:
        browser.open(running.link)
        browser.counted()
        browser.push("Tables")
        browser.choose("Column", "Geschlecht")
        browser.choose("By (optional)", "verstorben")
        browser.push("Ask")
        browser.sees("intervals of 95%", "0.1 of epsilon 1 spent")
        ways["an analyst"] = browser.counted()
        browser.fill("Epsilon", "0.95")
        browser.push("Ask")
        browser.sees("Nothing was spent.")  # the refusal, which is in the log by now

    token_of(folder / "cases.yaml", "bob", 1)
    ledger = next(file for file in folder.iterdir() if file.name.endswith(".ledger"))
    with bench(place, ledger) as running:
        browser.counted()
        browser.open(running.link)
        browser.sees("The chain of", "events holds")
        inside = "document.querySelector('iframe').contentDocument.body.innerText"
        browser.wait(f"['Exhaustion', '0.95', 'under the analyst', 'bob'].every((one) => {inside}.includes(one))")
        ways["an auditor"] = browser.counted()
        wrong = look_at(browser, "auditor")
        browser.choose("Analyst (all)", "ana")
        browser.push("Show")
        browser.wait(f"{inside}.includes('Audit of cases for ana') && !{inside}.includes('bob')")
        browser.fill("From (a day or a time)", "tomorrow")
        browser.push("Show")
        browser.sees("From is 'tomorrow'")
    assert not wrong, "\n".join(wrong)
    assert "QueryError" not in running.said
    page = (ROOT / "docs" / "workbench.md").read_text("utf-8")
    for way, (clicks, values) in ways.items():
        assert f"| {way} | {clicks} | {values} |" in page, ways


def test_what_cannot_be_opened_says_so_at_the_command_line(place: Path) -> None:
    done = run_pinq(["workbench", str(place / "nothing.ledger")])
    assert done.returncode == 1
    assert "There is no" in done.stderr
