# SPDX-License-Identifier: Apache-2.0
"""An officer's way over five files as offices have them: few clicks, short steps, and nothing private in any schema."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy

import duckdb
import pytest

from pinq.provider.check import check
from pinq.provider.policy_file import load_policy
from tests.support.house.assurance import thorough
from tests.support.house.checkout import ROOT
from tests.support.processes.browser import Browser, browsing
from tests.support.processes.workbenches import bench, needs_browser

pytestmark = needs_browser

TALL, CLICKS = 2000, 25  # pixels of a step, and clicks from a file to a policy that is ready
CONFIRM = "([...document.querySelectorAll('button')].find((one) => /^Confirm/.test(one.innerText)) || {}).innerText"
STEP = "document.querySelector('nav [aria-current]').innerText"


def german(folder: Path, drawn: random.Random) -> str:
    """Semicolons, decimal commas, days first, bytes of Windows; a person number, notes, streets."""
    rows = ["Fallnr;Patient;Aufnahme;Station;Gewicht;Straße;Bemerkung"]
    for case in range(1500):
        person = drawn.randrange(500)
        day, weight = f"{drawn.randint(1, 28):02}.{drawn.randint(1, 12):02}.2024", f"{drawn.gauss(78, 14):.1f}"
        street, note = f"Gäßchen {person}", f"Rückruf {case}" if case % 3 else "o.B."
        ward = drawn.choice(["Innere", "Chirurgie", "Gynäkologie"])
        rows.append(f"{10**5 + case};P{person:05};{day};{ward};{weight.replace('.', ',')};{street};{note}")
    (folder / "faelle.csv").write_bytes("\r\n".join(rows).encode("cp1252"))
    return "faelle.csv"


def wide(folder: Path, drawn: random.Random) -> str:
    """120 columns: 40 laboratory values, 40 items, flags, empty ones, a person number, a postcode."""
    names = ["Patienten-ID", "PLZ", "Notiz", *(f"lab_{one:02}" for one in range(40))]
    names += [*(f"item_{one:02}" for one in range(40)), *(f"flag_{one:02}" for one in range(20))]
    names += [f"leer_{one:02}" for one in range(17)]
    rows = [",".join(names)]
    for row in range(400):
        labs = ["" if drawn.random() < 0.1 else f"{drawn.gauss(5, 2):.2f}" for _ in range(40)]
        items = [str(drawn.randrange(5)) for _ in range(40)]
        flags = [drawn.choice(["ja", "nein", ""]) for _ in range(20)]
        rows.append(
            ",".join(
                [f"{10**7 + row * 7919}", f"{1067 + row * 101}", f"Anruf {row}", *labs, *items, *flags, *[""] * 17]
            )
        )
    (folder / "wide.csv").write_text("\n".join(rows), encoding="utf-8-sig")
    return "wide.csv"


def visits(drawn: random.Random) -> list[tuple[object, ...]]:
    return [
        (n, 10**6 + drawn.randrange(300), f"2024-{drawn.randint(1, 12):02}-{drawn.randint(1, 28):02}",
         drawn.choice("ABC"), round(drawn.gammavariate(2, 500), 2), f"anna{n}@example.org")
        for n in range(2000)
    ]  # fmt: skip


MADE = "CREATE TABLE visits (visit_id INTEGER, patient_id INTEGER, day TEXT, ward TEXT, cost DOUBLE, mail TEXT)"


def in_duckdb(folder: Path, drawn: random.Random) -> str:
    with duckdb.connect(str(folder / "clinic.duckdb")) as base:
        base.execute(MADE)
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", visits(drawn)[:600])
    return "clinic.duckdb::visits"


def in_sqlite(folder: Path, drawn: random.Random) -> str:
    with sqlite3.connect(folder / "clinic.sqlite") as base:
        base.execute(MADE)
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", visits(drawn))
    return "clinic.sqlite::visits"


def workbook(folder: Path, _: random.Random) -> str:
    copy(ROOT / "tests" / "offices" / "hospital.xlsx", folder / "hospital.xlsx")
    return "hospital.xlsx"


SECRETS = ("P0", "Gäß", "Rückruf", "Anruf", "100", "@", "1067")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("offices")) as found:
        found.resize(1100, 800)
        found.prefer("light")
        yield found


@thorough
@pytest.mark.parametrize("made", [german, wide, in_duckdb, in_sqlite, workbook])
def test_from_a_file_to_a_policy_that_is_ready(
    made: Callable[[Path, random.Random], str], tmp_path: Path, browser: Browser
) -> None:
    folder = tmp_path / "office"
    folder.mkdir()
    table = made(folder, random.Random(11))
    with bench(tmp_path, folder) as running:
        browser.counted()
        browser.open(running.link)
        browser.fill("Table", table)
        browser.press("Enter")
        browser.push("Look at it")
        browser.wait("/Which one is right|Whose presence must not show/.test(document.body.innerText)")
        if "Which one is right" in browser.text:
            browser.push("Fälle 2024")
        browser.sees("Whose presence must not show?", "Confirm who is hidden")
        if "names the person:" in browser.text:
            browser.fill("Rows of one person that count at most", "50")
        elif not browser.js("!!document.querySelector('.q-radio[aria-checked=true]')"):
            browser.push("Each row is another person")
            browser.sees("one row is one person")  # the reason that fits the choice
        browser.fill("Why", "the rules of the registry")
        browser.push("Confirm who is hidden")
        browser.wait("!document.body.innerText.includes('Confirm who is hidden')")
        browser.fill("Where this is publicly known from", "the size of the registry")
        browser.push("Confirm the number of rows")
        browser.sees("Each picture: all rows")
        browser.push("the code book")
        while text := browser.js(CONFIRM):
            assert browser.js("document.documentElement.scrollHeight") <= TALL
            title = json.dumps(browser.js(STEP))
            browser.push(text)
            browser.wait(f"{STEP} !== {title} && !document.querySelector('.q-btn--loading')")
        browser.sees("Nothing waits for review")
        assert browser.counted()[0] <= CLICKS
    (file,) = folder.glob("*.yaml")
    policy = load_policy(file)
    assert check(file).ready
    texts = [str(value) for column in policy.schema_.categorical_columns.values() for value in column.values]
    assert not [text for text in texts for secret in SECRETS if text.startswith(secret) or "@" in text]
