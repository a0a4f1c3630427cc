# SPDX-License-Identifier: Apache-2.0
"""A median among the cuts of a fine grid, where cuts far from the best stand together, is the one of all cuts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from pinq.curator import mechanisms
from pinq.curator.candidates import scorer, selection
from pinq.curator.candidates.scorer import Runs
from pinq.curator.candidates.selection import Selection
from pinq.curator.mechanisms import Weighted
from pinq.curator.prepared import Counted
from pinq.engine.tables import Sparse
from pinq.language.parts import Block, Part, PartSet
from pinq.language.scores import Balance
from pinq.language.specs import AnyCut
from pinq.policy.policy import Policy
from pinq.public.schema import Schema
from tests.support.laws.fixed_noise import COINS

CELLS, OCCUPIED = 9001, 700
PARTS = PartSet([Block(Part())])


def schema_of(*, nullable: bool) -> Schema:
    column: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": CELLS - 1, "integer": True, "nullable": nullable}
    return Policy(dataset="d", cap=1, max_rows=20_000, columns={"x": column}).schema_


def table_of(seed: int, *, nullable: bool) -> Sparse:
    """Rows at few codes, perhaps most of them at the first or the last one, beyond which there is no cut; missing ones."""
    random = np.random.default_rng(seed)
    places = np.sort(random.choice(CELLS, size=int(random.integers(1, OCCUPIED)), replace=False))
    places = np.union1d(places, [[0], [CELLS - 1], [0, CELLS - 1]][seed % 3])
    if nullable:
        places = np.append(places, CELLS)
    rows = (random.pareto(1.0, len(places)) * 3 + 1).astype(np.int64)
    rows[0] += [0, 10 * rows.sum()][seed // 3 % 2]
    rows[-1 - nullable] += [0, 10 * rows.sum()][seed // 6 % 2]
    return Sparse(places, rows)


def scored(chooser: Selection, table: Sparse, reach: float) -> Runs:
    ((own,),) = chooser._lists
    (runs,) = own.runs(Counted(PARTS, [table]), np.array([0]), [own], reach)
    return runs


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("share", [None, "1/100", "3/4"])
def test_what_stands_together_is_far_and_all_is_there(
    nullable: bool, share: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member of a run that stands for several is further behind than asked; all members keep their places."""
    monkeypatch.setattr(scorer, "STRETCH", 8)
    gathered = 0
    for seed in range(60):
        chooser = Selection(schema_of(nullable=nullable), PARTS, Balance(share), [[AnyCut("x")]], [0])
        table = table_of(seed, nullable=nullable)
        every, reach = scored(chooser, table, math.inf), float(seed % 7 * 50)
        near = scored(chooser, table, reach)
        assert (near.members.sum(), near.size) == (every.members.sum(), every.size)
        own, other = (one.scores.repeat(one.members) for one in (near, every))
        differ = np.flatnonzero(own != other)
        assert (other[differ] < other.max() - reach).all()
        assert (own[differ] < own.max() - reach).all()
        assert own.max() == other.max()
        gathered += len(near.scores) < len(every.scores)
        assert near.all_runs is not None
        again = near.all_runs()
        assert all(np.array_equal(one, two) for one, two in zip(again[:3], every[:3], strict=True))
    assert gathered > 30


@pytest.mark.parametrize("by_integers", [False, True])
def test_the_choice_is_that_among_all(by_integers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same coins, by doubles and, where these decide nothing, by whole numbers."""
    monkeypatch.setattr(scorer, "STRETCH", 8)
    if by_integers:
        monkeypatch.setattr(mechanisms, "_by_doubles", lambda *_: None)
    for seed in range(8 if by_integers else 200):
        nullable, epsilon = bool(seed % 2), Fraction(1, 1 + seed % 5)
        chooser = Selection(schema_of(nullable=nullable), PARTS, Balance(), [[AnyCut("x")]], [0])
        counted = partial(Counted, PARTS, [table_of(seed, nullable=nullable)])
        chosen = []
        for far in (selection.FAR, 10**12):
            monkeypatch.setattr(selection, "FAR", far)
            with COINS.apart(f"near {seed}"):
                chosen.append(chooser.choose(counted(), epsilon))
        monkeypatch.setattr(selection, "FAR", 100)
        assert chosen[0] == chosen[1]


def test_what_far_members_weigh_is_less_than_doubles_leave_open() -> None:
    """2^24 members at once, e^-100 of a best one of the least mass: no draw is decided by them."""
    weights = 2**24 * math.exp(-selection.FAR)
    assert weights * 2**24 < 2**-90
    far = Weighted(np.array([0, -(10**9)]), np.array([1, 10**6]), np.array([10**6 + 1, 10**6 + 1]))
    with COINS.apart("far"):
        assert mechanisms.choose_weighted(far, 1, Fraction(1))[0] == 0
