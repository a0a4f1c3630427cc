# SPDX-License-Identifier: Apache-2.0
"""The provider's way through the workbench in a real browser: from a file that arrives to a grant, over a crash."""

from __future__ import annotations

import random
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
from tests.support.processes.workbenches import Bench, bench, look_at, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]


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
    """Confirms the number of rows, then all columns at once."""
    browser.push("Tick all")
    browser.fill("Where all of this is publicly known from", reason)
    browser.push("Confirm what is ticked")
    browser.sees("Nothing waits for review")


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
        browser.sees("values to review", "read off the rows", "numbers 0 to 20000")
        browser.sees('The file is read with delimiter ";", decimal ",", dates ["%d.%m.%Y"].')
        browser.sees("200 different values of Patientennummer", "Largest groups")  # it looks like a person's
        wrong += look_at(browser, "provider-review")
        browser.fill("Rows of one person that count at most", "3")
        browser.fill("Why", "a case is a stay, at most three a year")
        browser.fill("Alter upper", "120")
        browser.push("Confirm who is hidden")
        browser.sees("All rows of one Patientennummer, at most 3.")
    finally:
        running.kill()  # in the middle: what was confirmed is in the file
    browser.sees("Connection lost")

    with bench(place, folder) as again:
        browser.open(again.link)
        browser.push("cases.yaml")
        browser.sees("All rows of one Patientennummer, at most 3.")
        assert "Fallnummer" not in browser.text  # which names rows
        browser.push("Leave verstorben out")
        browser.wait("!document.body.innerText.includes('verstorben')")
        browser.push("Confirm Alter")
        browser.sees("A reason is needed")
        browser.fill("Alter upper", "120")
        browser.fill("Where Alter is publicly known from", "nobody was ever older")
        browser.open(again.root + "/policy/cases.yaml")  # a reload loses nothing
        browser.push("Confirm Alter")
        browser.sees("whole numbers 10 to 120")
        confirm_the_rest(browser, "admission form")
        browser.push("Check")
        browser.sees("600 rows, 600 encoded", "Ready")
        wrong += look_at(browser, "provider-check")

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
        browser.sees("62.2%", "A count of 10,000")
        browser.push("Grant")
        browser.sees("This token is shown only now")
        wrong += look_at(browser, "provider-grant")
        token = browser.js("document.querySelector('.token').innerText")
        assert not [text for text in browser.console if token in text]
        browser.choose("Whose", "ana")
        browser.fill("Epsilon more", "0.25")
        browser.fill("Because (of this change)", "a second question")
        browser.push("Extend")
        browser.sees("0.75")
        browser.push("Log")
        inside = "document.querySelector('iframe').contentDocument.body.innerText"
        browser.wait(f"{inside}.includes('contract 17') && {inside}.includes('a second question')")
    policy = folder / "cases.yaml"
    assert load_policy(policy).reviewed["columns.Alter.upper"] == "nobody was ever older"
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
        browser.sees("say which: --sheet NAME")
        browser.push("How the file is written: signs, dates, sheet")
        browser.fill("Sheet of a workbook (sheet)", "Fälle 2024")
        browser.push("Look at it")
        browser.sees("values to review", "Aufnahme", "Station", "skip 3")
        browser.fill("Why", "one row a person")
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
        browser.fill("Port", str(port))
        browser.push("Start")
        browser.sees("It runs:", f"--port {port}")
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
        browser.sees("It runs:")
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
        browser.sees("All rows of one Patientennummer, at most 3.")
        confirm_the_rest(browser, "admission form")
        browser.push("Check")
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
        browser.sees("It runs:")
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
