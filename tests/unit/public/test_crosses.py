# SPDX-License-Identifier: Apache-2.0
"""``AnyCross``: what it may hold, that its members are scored exactly, and that the best of them is chosen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import (
    AnyCross,
    Balance,
    Cross,
    Cuts,
    Gini,
    Groups,
    InfoGain,
    MaxClass,
    MutualInformation,
    QueryError,
    Shards,
    SquaredError,
    Values,
)
from pinq.curator.candidates.scorer import Crossing
from pinq.language.specs import bind
from pinq.public.schema import Schema
from tests.support.requests.handles import simulated

SIZES = {"a": 3, "b": 2, "c": 5, "d": 4}
SCHEMA = Schema(
    columns={
        **{
            name: {"type": "categorical", "values": [f"{name}{i}" for i in range(size)]} for name, size in SIZES.items()
        },
        "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
        "y": {"type": "categorical", "values": ["n", "p", "q"], "nullable": True},
    },
    max_rows=5000,
)
SPECS: tuple[Values | Cuts, ...] = (*(Values(name) for name in SIZES), Cuts("age", (30.0, 60.0)))
SURE = 10**5


def rows_of(rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({name: [f"{name}{i}" for i in random.integers(0, size, rows)] for name, size in SIZES.items()})
    frame["age"] = random.integers(0, 100, rows)
    lean = (frame["age"] >= 60).to_numpy() ^ (frame["a"] == "a1").to_numpy() ^ (frame["b"] == "b0").to_numpy()
    frame["y"] = np.where(
        random.random(rows) < 0.1, np.array(None), np.where(lean, "p", random.choice(["n", "q"], rows))
    )
    return frame


def codes_of(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    codes = [
        bind(spec, SCHEMA).axes[0].parts_of(SCHEMA.columns[spec.column].encode(frame[spec.column])) for spec in SPECS
    ]
    return np.array(codes), SCHEMA.columns["y"].encode(frame["y"])


@pytest.mark.parametrize(
    "score", [InfoGain("y"), MutualInformation("y"), Gini("y"), MaxClass("y")], ids=lambda score: score.kind
)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("dense", [1, 10, 2**22])
def test_every_member_is_scored_by_its_own_table(
    score: Any, size: int, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all cells or the occupied ones alone: the score is that of each member's own table."""
    monkeypatch.setattr("pinq.curator.candidates.scorer.DENSE_CELLS", dense)
    codes, target = codes_of(rows_of(250))
    sizes = [bind(spec, SCHEMA).size for spec in SPECS]
    expected = []
    for member in itertools.combinations(range(len(SPECS)), size):
        table = np.zeros((*(sizes[i] for i in member), 4), dtype=np.int64)
        np.add.at(table, (*(codes[i] for i in member), target), 1)
        expected.append(int(score.of(table.reshape(-1, 4), SCHEMA)))
    once = np.ones(len(target), dtype=np.int64)
    assert scores_of(codes, target, once, sizes, size, score) == expected
    distinct, counts = np.unique(np.vstack([codes, target]), axis=1, return_counts=True)
    assert scores_of(distinct[:-1], distinct[-1], counts, sizes, size, score) == expected
    tripled = scores_of(codes, target, 3 * once, sizes, size, MaxClass("y"))
    assert tripled == [3 * own for own in scores_of(codes, target, once, sizes, size, MaxClass("y"))]


def scores_of(
    codes: np.ndarray, target: np.ndarray, counts: np.ndarray, sizes: list[int], size: int, score: Any
) -> list[int]:
    """The scores of all members of so many specs, of four classes."""
    crossing = Crossing(codes, target, counts, tuple(sizes), 4)
    scores: list[int] = crossing.member_scores(size, lambda table: score.of(table, SCHEMA), lambda: None).tolist()
    return scores


def test_no_rows_score_nothing() -> None:
    nothing = np.zeros((5, 0), dtype=np.int64)
    assert scores_of(nothing, nothing[0], nothing[0], [2] * 5, 2, InfoGain("y")) == [0] * 10


@pytest.mark.parametrize("parts", [(), (Values("c"),)], ids=["whole", "parts"])
@pytest.mark.parametrize("rows", [0, 400])
def test_the_best_member_is_chosen(rows: int, parts: tuple[Values, ...]) -> None:
    """With hardly any noise the choice is the best Cross, on the whole table and in each part, also for a numeric target."""
    frame = rows_of(rows, seed=4)
    handle = simulated(SCHEMA, data=frame, epsilon=10**6)
    specs = tuple(spec for spec in SPECS if spec not in parts)
    for target in ("y", Cuts("age", (50.0,)), "y"):  # the second time from the listing that was kept
        own = tuple(spec for spec in specs if not (isinstance(target, Cuts) and spec.column == "age"))
        asked = handle.partition(*parts) if parts else handle
        chosen: Any = asked.exp_mech([AnyCross(own, 2)], score=MutualInformation(target), epsilon=SURE)
        alone = asked.exp_mech(
            [tuple(pair) for pair in itertools.combinations(own, 2)], score=MutualInformation(target), epsilon=SURE
        )
        if rows:
            assert chosen == alone
        assert all(isinstance(one, Cross) and len(one.specs) == 2 for one in (chosen if parts else [chosen]))
    assert handle.exp_mech([AnyCross(SPECS[:1], 1)], score=MaxClass("y"), epsilon=1) == SPECS[0]
    textbook = handle.exp_mech([AnyCross(SPECS, 2)], score=MutualInformation("y"), epsilon=SURE, textbook=True)
    assert textbook == handle.exp_mech([AnyCross(SPECS, 2)], score=MutualInformation("y"), epsilon=SURE) or not rows


def test_a_mixed_list_gives_a_family_mass_one() -> None:
    """Beside others it is a family like any other."""
    handle = simulated(SCHEMA, data=rows_of(300), epsilon=10**6)
    assert handle.exp_mech([AnyCross(SPECS, 3), Values("d")], score=InfoGain("y"), epsilon=SURE) == Cross(
        (Values("a"), Values("b"), SPECS[-1])
    )


def test_it_crosses_the_wall() -> None:
    """A request with a family of 1,140 members is small; the analyst's preview counts each member."""
    columns = {f"c{i}": {"type": "categorical", "values": ["x", "y"]} for i in range(41)}
    schema = Schema(columns=columns, max_rows=100)
    family = AnyCross(tuple(Values(f"c{i}") for i in range(20)), 3)
    assert len(family) == math.comb(20, 3)
    assert repr(family).startswith("AnyCross(specs=(Values(column='c0'), ")
    handle = simulated(schema, rows=200, epsilon=10)
    few = handle.preview("exp_mech", [AnyCross(family.specs[:3], 3)], score=MutualInformation("c40"), epsilon=1)
    many = handle.preview("exp_mech", [family], score=MutualInformation("c40"), epsilon=1)
    assert few.error != many.error
    chosen = handle.exp_mech([family], score=MutualInformation("c40"), epsilon=1)
    assert chosen in {family.member(i) for i in range(len(family))}


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: AnyCross((Values("a"), Values("a")), 1), "stands twice"),
        (lambda: AnyCross((Values("a"), Groups("b", (("b0",),))), 1), "takes Values and Cuts"),  # type: ignore[arg-type]
        (lambda: AnyCross((Values("a"), Shards(2)), 1), "takes Values and Cuts"),  # type: ignore[arg-type]
        (lambda: AnyCross((Values("a"),), 2), "from 1 to 1"),
        (lambda: AnyCross((Values("a"),), 0), "from 1 to 1"),
        (lambda: AnyCross((Values("a"),), True), "from 1 to 1"),
        (lambda: AnyCross(tuple(Values(f"x{i}") for i in range(60)), 5), "5,461,512 ways"),
    ],
)
def test_wrong_families(make: Any, match: str) -> None:
    with pytest.raises(QueryError, match=match):
        make()


@pytest.mark.parametrize(
    ("family", "score", "match"),
    [
        (AnyCross(SPECS, 2), Balance(), "balance is not one"),
        (AnyCross(SPECS, 2), SquaredError("age"), "squared_error is not one"),
        (AnyCross(SPECS, 2), MutualInformation("a"), "target `a` itself"),
        (AnyCross(SPECS, 2), MutualInformation(Cuts("age", (3.0,))), "target `age` itself"),
        (AnyCross((Values("nowhere"),), 1), MutualInformation("a"), "no column"),
        (AnyCross(SPECS, 2), MutualInformation(Cuts("age", (300.0,))), "out of bounds"),
        (AnyCross(SPECS, 2), MutualInformation(Cuts("a", (3.0,))), "categorical"),
    ],
)
def test_wrong_questions(family: AnyCross, score: Any, match: str) -> None:
    handle = simulated(SCHEMA, rows=10)
    with pytest.raises(QueryError, match=match):
        handle.exp_mech([family], score=score, epsilon=0.1)
    assert handle.budget.spent == 0


def test_members_that_cannot_be_numbered_are_refused() -> None:
    columns = {f"c{i}": {"type": "categorical", "values": list(range(4000))} for i in range(7)}
    handle = simulated(Schema(columns=columns, max_rows=100), rows=10)
    with pytest.raises(QueryError, match="can be numbered"):
        handle.exp_mech(
            [AnyCross(tuple(Values(f"c{i}") for i in range(6)), 6)], score=MutualInformation("c6"), epsilon=0.1
        )
    assert handle.exp_mech(
        [AnyCross(tuple(Values(f"c{i}") for i in range(6)), 3)], score=MutualInformation("c6"), epsilon=0.1
    )
