# SPDX-License-Identifier: Apache-2.0
"""Cohorts and tables over many versions: the ledger against every life that a person can have, and against exact laws.

A life is a home cohort, and a row in each version of each table. Two ways try to break the bound: every life is met with every charge,
counted by hand; and stories are lived with one person and without, where the log-ratio of the two transcripts follows exactly from the
numbers and scales that reach the sampler.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pinq
from pinq.errors import PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cross, Partition, Values, bind
from pinq.ledger.composition import ROOT, Costs, Demand
from pinq.ledger.events import here
from pinq.provider.grants import grant
from pinq.provider.versions import correct
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.laws.exact_releases import Call, scripted
from tests.support.oracles.tabulation import cost

WARDS, CODES = ("n", "s", "w"), ("c0", "c1", "c2")
SCHEMA = Schema(
    max_rows=100,
    columns={
        "sex": {"type": "categorical", "values": ["f", "m"]},
        "ward": {"type": "categorical", "values": list(WARDS)},
    },
)
PARTITIONS = [bind(spec, SCHEMA) for spec in (Values("sex"), Values("ward"), Cross((Values("sex"), Values("ward"))))]
CELLS = [(sex, ward) for sex in range(2) for ward in range(3)]
TABLES, VERSIONS, PEOPLE = 3, 24, 100


# Every life of a person, by hand


def inside(cell: tuple[int, int], steps: list[tuple[Partition, int]]) -> bool:
    """Whether a row with these codes lies in a part."""
    code: dict[str | None, int] = dict(zip(("sex", "ward"), cell, strict=True))
    return all(
        axis.parts_of(np.array([code[axis.column]]))[0] == position
        for partition, index in steps
        for axis, position in partition.positions(index)
    )


def asked(draw: random.Random) -> PartSet:
    """Some parts, up to two splits deep."""
    parts = PartSet([Block(Part())])
    for _ in range(draw.randint(0, 2)):
        parts = parts.split(draw.choice(PARTITIONS))
        parts = parts.take(np.array(sorted(draw.sample(range(len(parts)), draw.randint(1, min(3, len(parts)))))))
    return parts


@pytest.mark.parametrize("seed", range(6))
def test_no_life_among_tables_versions_and_cohorts_meets_more_than_is_spent(seed: int) -> None:
    """A hundred people, three tables, their versions and their cohorts': nobody meets more, and what is spent is the rule's."""
    draw = random.Random(seed)
    places, number = dict[int, str](), 1
    for table in map(str, range(TABLES)):
        for _ in range(VERSIONS // TABLES):
            number += 1
            cohort = f" {draw.choice(['by', 'by', 'since'])} {draw.choice(CODES)}"
            places[number] = table + draw.choice(["", cohort])
    costs, met = Costs(), {(version, cell): 0 for version in (1, *places) for cell in CELLS}
    requests: dict[int, list[tuple[PartSet, int]]] = {version: [] for version in (1, *places)}
    for _ in range(60):
        parts, version, epsilon = asked(draw), draw.choice([1, *places]), draw.randint(1, 9)
        price = costs.price(Demand.of(parts), Epsilon(epsilon), version, places)
        assert costs.charge(Demand.of(parts), Epsilon(epsilon), version, places) == price
        requests[version].append((parts, epsilon))
        for cell in CELLS:
            met[version, cell] += epsilon * sum(inside(cell, part.steps()) for part in parts)
    families = sorted({" ".join(place.split(" ")[:2]) for place in places.values() if " " in place})
    for home in [{family: draw.choice(CODES) for family in families} for _ in range(PEOPLE)]:
        own = [version for version in met_of(places) if at_home(places.get(version, ""), home)]
        assert sum(max(met[version, cell] for cell in CELLS) for version in own) <= costs.spent.nano
        assert sum(met[version, draw.choice(CELLS)] for version in own) <= costs.spent.nano
    for place in set(places.values()):
        assert costs.of_cohort(place, places) <= costs.spent
    below = {family: Counter[str]() for family in families}
    for version, asked_of in requests.items():
        family, _, cohort = places.get(version, "").rpartition(" ")
        below.setdefault(family, Counter())[cohort] += cost(asked_of)
    assert costs.spent.nano == sum(below.pop("").values()) + sum(max(each.values()) for each in below.values())


def met_of(places: dict[int, str]) -> list[int]:
    return [1, *places]


def at_home(place: str, home: dict[str, str]) -> bool:
    """Whether a person of these cohorts has rows in a place."""
    family, _, cohort = place.rpartition(" ")
    return " " not in place or home[family] == cohort


def test_the_maximum_is_over_cohorts_and_the_sum_over_all_else() -> None:
    """Written out: 5 for a table; of one partition the larger of 3 + 4 and 6; of another 2."""
    whole = Demand.of(PartSet([Block(Part())]))
    places = {2: "visits", 3: " by c0", 4: " by c0", 5: " by c1", 6: " since c0"}
    costs = Costs()
    for version, epsilon in ((2, 5), (3, 3), (5, 6), (4, 4), (6, 2)):
        costs.charge(whole, Epsilon(epsilon), version, places)
    assert costs.spent == Epsilon(5 + 7 + 2)
    assert [costs.of_cohort(place, places) for place in (" by c0", " by c1")] == [Epsilon(14), Epsilon(13)]


@pytest.mark.parametrize("seed", range(2))
def test_a_request_is_a_cohorts_only_where_all_its_parts_lie_in_it(seed: int) -> None:
    """The one first step that all its parts share, and the whole table where there is none."""
    draw = random.Random(seed)
    shared = set[bool]()
    for _ in range(200):
        parts = asked(draw)
        keys = {Part(Part(), *part.steps()[0]).key if part.steps() else ROOT for part in parts}
        shared.add(len(keys) == 1)
        assert Demand.of(parts).top == (keys.pop() if len(keys) == 1 else ROOT)
    assert shared == {True, False}


# Stories with a person and without


@dataclass(frozen=True)
class Life:
    """What came of a story: the calls of the sampler, what the analyst was told, and what was spent."""

    calls: list[Call]
    told: list[object]
    spent: Fraction


def lived(folder: Path, seed: int, home: int, *, victim: bool) -> Life:
    """Six days of two tables; cohorts of patients close one after another, and a closed one may be corrected."""
    draw, told, rows = random.Random(seed), list[object](), [list[tuple[Any, ...]]() for _ in CODES]
    closed = own = -1
    with scripted() as samplers:
        for day in range(6):
            corrected = draw.randrange(closed + 1) if closed >= 0 and draw.random() < 0.3 else None
            for cohort, before in enumerate(rows):
                if cohort > closed or cohort == corrected:  # the row before comes again, and one more than there was
                    rows[cohort] = [
                        (10 * cohort + person, CODES[cohort], draw.choice(WARDS)) for person in range(len(before) + 1)
                    ]
            ward = draw.choice(WARDS)
            own = ward if home > closed or home == corrected or own == -1 else own  # type: ignore[assignment]
            closed = min(closed + draw.randint(0, 1), 1)
            patients = [*(row for each in rows for row in each), *([(99, CODES[home], own)] if victim else [])]
            visits = [
                *((row[0], draw.choice(WARDS)) for row in rows[0]),
                *([(99, draw.choice(WARDS))] if victim else []),
            ]
            draw.random()
            policy = written(folder, patients, visits, closed)
            if day == 0:
                grant(policy, "ana", 100)
            if corrected is not None:
                with pytest.raises(PolicyError, match=f"closed cohort {CODES[corrected]}"):
                    pinq.open(policy, analyst="ana", table="patients")
                correct(policy.at("patients"), CODES[corrected], here("entered wrongly"))
            draw.seed(f"{seed} {day}")
            for _ in range(4):
                told += _ask(policy, draw)
        with pinq.open(policy, analyst="ana", table="visits") as handle:
            return Life(list(samplers.calls), told, handle.budget.spent)


def _ask(policy: pinq.Policy, draw: random.Random) -> list[object]:
    """One question: to a closed cohort, a part of it, an open one, all or two of them, or another table."""
    table, kind = draw.choice([("patients", kind) for kind in range(6)] + [("visits", 4)])
    code, ward, epsilon = draw.randrange(3), draw.randrange(3), Fraction(draw.randint(1, 2), 4)
    with pinq.open(policy, analyst="ana", table=table) as handle:
        by_cohort = handle if table == "visits" else handle.partition(pinq.Values("cohort"))
        parts: Any = handle.partition(pinq.Values("ward"))[[ward]] if kind == 4 else by_cohort
        if kind in (0, 1) and CODES[code] in handle.cohorts:
            parts = handle.cohort(CODES[code])
        elif kind in (0, 1, 2):
            parts = by_cohort[CODES[code]]
        elif kind == 5:
            parts = by_cohort[[code, (code + 1) % 3]]
        if kind == 1:
            parts = parts.partition(pinq.Values("ward"))[[ward]]
        price = parts.preview("noisy_count", epsilon=epsilon).cost
        parts.noisy_count(epsilon=epsilon)
        return [price, handle.budget, handle.cohorts]


def written(folder: Path, patients: list[Any], visits: list[Any], closed: int) -> pinq.Policy:
    """Writes both tables and their policy."""
    ward = {"ward": {"type": "categorical", "values": list(WARDS)}}
    tables: dict[str, Any] = {
        "patients": {
            "source": "patients.csv",
            "max_rows": 100,
            "columns": ward | {"cohort": {"type": "categorical", "values": list(CODES)}},
        },
        "visits": {"source": "visits.csv", "max_rows": 100, "columns": ward},
    }
    if closed >= 0:
        tables["patients"]["cohorts"] = {"column": "cohort", "closed": CODES[closed]}
    unit = {"column": "person", "max_rows": 1}
    declared = {"dataset": "clinic", "ledger": "clinic.ledger", "cap": 1000, "privacy_unit": unit, "tables": tables}
    for name, head, lines in (("patients", "person,cohort,ward", patients), ("visits", "person,ward", visits)):
        (folder / f"{name}.csv").write_text(
            "\n".join([head, *(",".join(map(str, line)) for line in lines)]).ljust(2000, "\n")
        )
    (folder / "clinic.yaml").write_text(json.dumps(declared))
    return pinq.load_policy(folder / "clinic.yaml")


@pytest.mark.parametrize("seed", range(4))
def test_no_story_of_tables_and_cohorts_loses_more_than_was_spent(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever closes, is corrected and is asked; and no price tells whether the person is in it."""
    monkeypatch.setattr("pinq.ledger.ledger.secrets.token_hex", lambda size: "5d" * size)
    lives = list[Life]()
    for victim in (True, False):
        (tmp_path / str(victim)).mkdir()
        lives.append(lived(tmp_path / str(victim), seed, seed % 3, victim=victim))
    one, other = lives
    assert one.told == other.told
    assert loss_of(one, other) <= one.spent


def loss_of(one: Life, other: Life) -> Fraction:
    """The largest log-ratio of two transcripts, exactly."""
    assert [(len(c.numbers), c.scale) for c in one.calls] == [(len(c.numbers), c.scale) for c in other.calls]
    pairs = zip(one.calls, other.calls, strict=True)
    return sum(
        (abs(a - b) / call.scale for call, beside in pairs for a, b in zip(call.numbers, beside.numbers, strict=True)),
        Fraction(0),
    )


def asked_of_cohorts(folder: Path, home: int, *, victim: bool) -> tuple[Life, dict[str, Fraction]]:
    """Two months close, one is corrected, and all kinds of questions are asked; returns what each cohort's budget says, too."""
    quarter, ward = Fraction(1, 4), pinq.Values("ward")

    def policy(closed: int, corrected: int = 0) -> pinq.Policy:
        people = [(10 * cohort + one, code, WARDS[one]) for cohort, code in enumerate(CODES) for one in range(2)]
        people += [(7, CODES[0], "n")] * corrected + ([(99, CODES[home], "s")] if victim else [])
        return written(folder, people, [(0, "n"), *([(99, "s")] if victim else [])], closed)

    def ask(opened: pinq.Policy, table: str, cohort: str, epsilon: Fraction) -> None:
        with pinq.open(opened, analyst="ana", table=table) as handle:
            (handle.cohort(cohort) if cohort else handle).partition(ward).noisy_count(epsilon=epsilon)

    with scripted() as samplers:
        grant(policy(0), "ana", 100)
        ask(policy(0), "patients", "c0", quarter)
        for cohort, times in (("c0", 1), ("c1", 4)):
            ask(policy(1), "patients", cohort, times * quarter)
        ask(policy(1), "visits", "", quarter)
        with pytest.raises(PolicyError, match="closed cohort c0"):
            pinq.open(policy(1, corrected=1), analyst="ana", table="patients")
        correct(policy(1, corrected=1).at("patients"), "c0", here("a late letter"))
        ask(policy(1, corrected=1), "patients", "c0", 4 * quarter)
        ask(policy(1, corrected=1), "patients", "", quarter)
        with pinq.open(policy(1, corrected=1), analyst="ana", table="patients") as handle:
            own = {name: handle.cohort(name).budget.spent for name in handle.cohorts}
            return Life(list(samplers.calls), [], handle.budget.spent), own


def test_each_cohort_loses_exactly_what_its_own_budget_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all together the maximum over them: 1/2 + 1 below the corrected one, 1 below the other, and 1/2 beside them."""
    monkeypatch.setattr("pinq.ledger.ledger.secrets.token_hex", lambda size: "5d" * size)
    found = list[Fraction]()
    for home in (0, 1, 2):
        (tmp_path / f"{home}").mkdir()
        (tmp_path / f"{home} without").mkdir()
        (one, own), (other, beside) = (
            asked_of_cohorts(tmp_path / name, home, victim=victim)
            for name, victim in ((f"{home}", True), (f"{home} without", False))
        )
        assert (one.spent, own) == (other.spent, beside)
        found.append(loss_of(one, other))
        if home < 2:
            assert found[home] == own[CODES[home]]
    assert found == [Fraction(2), Fraction(3, 2), Fraction(1, 2)]
    assert max(found) == one.spent
