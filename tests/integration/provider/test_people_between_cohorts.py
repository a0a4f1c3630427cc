# SPDX-License-Identifier: Apache-2.0
"""People whose month changes, or who have none, and months that close, are opened again and close again."""

from __future__ import annotations

from pathlib import Path

import pytest

import pinq
from pinq.errors import PolicyError
from pinq.ledger.events import here
from pinq.provider.grants import grant
from pinq.provider.versions import correct

PEOPLE = {"1": "2026-01-05", "2": "2026-02-05", "3": "2026-03-05", "4": "2026-04-05", "5": ""}


def months(folder: Path, people: dict[str, str], closed: int) -> Path:
    """A policy of one table whose cohorts are months; who has none is in a part of its own."""
    lines = [f"{person},{day},{'fm'[int(person) % 2]}" for person, day in people.items()]
    (folder / "people.csv").write_text("\n".join(["person,admitted,sex", *lines]).ljust(500, "\n"))
    (folder / "people.yaml").write_text(
        f"dataset: people\nsource: people.csv\nledger: people.ledger\ncap: 9\nmax_rows: 100\n"
        "privacy_unit: {column: person, max_rows: 1}\n"
        f"cohorts: {{column: admitted, by: month, closed: 2026-0{closed}}}\ncolumns:\n"
        "  admitted: {type: date, lower: 2026-01-01, upper: 2026-06-30, nullable: true}\n"
        "  sex: {type: categorical, values: [f, m]}\n"
    )
    return folder / "people.yaml"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"1": "2026-04-05"}, "2026-01"),  # out of a closed month into an open one
        ({"4": "2026-02-06"}, "2026-02"),  # the other way
        ({"5": "2026-02-06"}, "2026-02"),  # who had none is in a closed month
        ({"2": ""}, "2026-02"),
        ({"1": "2026-02-05"}, "2026-01"),  # between two closed ones: the first that differs
        ({"4": "2026-05-05"}, ""),  # between two open ones
        ({"5": "2026-04-06"}, ""),
        ({"4": ""}, ""),
        ({"6": ""}, ""),
    ],
)
def test_a_person_who_moves_into_or_out_of_a_closed_month_stops_all(
    changed: dict[str, str], told: str, tmp_path: Path
) -> None:
    """By an opening, before anything is asked; who moves between open months, or has none, stops nothing."""
    grant(months(tmp_path, PEOPLE, 2), "ana", 9)
    with pinq.open(tmp_path / "people.yaml", analyst="ana") as handle:
        handle.cohort("2026-01").noisy_count(epsilon=1)
    policy = months(tmp_path, PEOPLE | changed, 2)
    if told:
        with pytest.raises(PolicyError, match=f"closed cohort {told}"):
            pinq.open(policy, analyst="ana")
    else:
        with pinq.open(policy, analyst="ana") as handle:
            handle.cohort("2026-02").noisy_count(epsilon=1)
            assert handle.budget.spent == 1


def test_a_correction_of_two_months_needs_two_acts_and_who_moved_lost_both(tmp_path: Path) -> None:
    grant(months(tmp_path, PEOPLE, 2), "ana", 9)
    with pinq.open(tmp_path / "people.yaml", analyst="ana") as handle:
        handle.cohort("2026-01").noisy_count(epsilon=1)
    policy = months(tmp_path, PEOPLE | {"1": "2026-02-05"}, 2)
    correct(policy, "2026-01", here("a wrong month"))
    with pytest.raises(PolicyError, match="closed cohort 2026-02"):
        pinq.open(policy, analyst="ana")
    correct(policy, "2026-02", here("a wrong month"))
    with pinq.open(policy, analyst="ana") as handle:
        handle.cohort("2026-02").noisy_count(epsilon=1)
        assert handle.budget.spent == 1  # the maximum over those who stayed; the person who was moved lost 2


def test_people_without_a_month_are_in_no_cohort(tmp_path: Path) -> None:
    """What is asked of their part is asked of the table: it adds up over versions, and with what cohorts cost."""
    grant(months(tmp_path, PEOPLE, 2), "ana", 9)
    for version, spent in ((0, 2), (1, 3)):
        with pinq.open(months(tmp_path, PEOPLE | {f"1{version}": "2026-03-01"}, 2), analyst="ana") as handle:
            assert handle.cohorts == ("2026-01", "2026-02")
            if version == 0:
                handle.cohort("2026-01").noisy_count(epsilon=1)
            handle.partition(pinq.Calendar("admitted", "month"))[[-1]].noisy_count(epsilon=1)
            assert handle.budget.spent == spent
            assert handle.cohort("2026-02").budget.spent == spent - 1


def test_a_month_that_was_asked_while_it_was_open_costs_both_when_it_closes(tmp_path: Path) -> None:
    """Opened again, corrected and closed again it is not what it was: an act says so."""
    grant(months(tmp_path, PEOPLE, 1), "ana", 9)
    march = pinq.Calendar("admitted", "month")
    with pinq.open(tmp_path / "people.yaml", analyst="ana") as handle:
        handle.partition(march)[[2]].noisy_count(epsilon=1)
    with pinq.open(months(tmp_path, PEOPLE | {"3": "2026-03-09"}, 3), analyst="ana") as handle:
        handle.cohort("2026-03").noisy_count(epsilon=1)
        assert handle.budget.spent == handle.cohort("2026-03").budget.spent == 2
        assert handle.cohort("2026-01").budget.spent == 1
    moved = PEOPLE | {"3": "2026-03-09", "6": "2026-03-10"}
    with pinq.open(months(tmp_path, moved, 2), analyst="ana") as handle:
        handle.partition(march)[[2]].noisy_count(epsilon=1)
        assert handle.budget.spent == 3
    with pytest.raises(PolicyError, match="closed cohort 2026-03"):
        pinq.open(months(tmp_path, moved, 3), analyst="ana")
    correct(tmp_path / "people.yaml", "2026-03", here("a late letter"))
    with pinq.open(tmp_path / "people.yaml", analyst="ana") as handle:
        handle.cohort("2026-03").noisy_count(epsilon=1)
        assert handle.budget.spent == handle.cohort("2026-03").budget.spent == 4
