# SPDX-License-Identifier: Apache-2.0
"""Occupied codes that are looked at some at a time are what they are all at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from pinq.curator.candidates import scorer
from pinq.curator.candidates.scorer import Frame
from pinq.curator.prepared import Counted
from pinq.engine.tables import Sparse
from pinq.language.parts import Block, Part, PartSet
from pinq.language.scores import Gini, InfoGain, MaxClass, Score
from pinq.language.specs import AnyCut, AnyGrouping, Axis
from pinq.policy.policy import Policy

CODES, CLASSES, PARTS = 3001, 3, 4


def pieces_frame() -> Frame:
    """Of a score by the classes of a column."""
    classes = {"type": "categorical", "values": list(range(CLASSES))}
    return Frame(Policy(dataset="d", cap=1, max_rows=100, columns={"y": classes}).schema_, Gini("y"))


@pytest.mark.parametrize("step", [1, 2, 7, 2**14])
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [0, 0, 2]])  # a list may name a family twice
@pytest.mark.parametrize("dense", [False, True])
def test_pieces_of_a_column_are_its_table(
    step: int, rows: list[int], dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "CELLS_AT_ONCE", step)
    monkeypatch.setattr(scorer, "NUMBERS_AT_ONCE", step)
    frame, parts = pieces_frame(), PartSet([Block(Part()) for _ in range(3)])
    for seed in range(20):
        random = np.random.default_rng(seed)
        table = random.integers(0, 3, (3, 20, CLASSES)) * random.integers(0, 2, (3, 20, CLASSES))
        places = np.flatnonzero(table)
        counted = Counted(parts, [table if dense else Sparse(places, table.ravel()[places])])
        again = np.zeros_like(table[rows])
        for part, codes, counts in frame.pieces(frame.listed(counted.tables[0], 20, np.array(rows)), 20):
            assert (np.diff(20 * part + codes) > 0).all()
            assert not again[part, codes].any()
            again[part, codes] = counts.T
        assert np.array_equal(again, table[rows])


def test_codes_are_looked_up_along_their_own_axis() -> None:
    """Cuts of a column side by side, and groups of its values side by side."""
    cuts = [Axis("a", 3, (), (3, 5)), Axis("a", 3, (), (1, 9))]
    groups = [Axis("a", 2, (), lookup=np.arange(10) % 2), Axis("a", 2, (), lookup=np.arange(10) % 3 - 1)]
    which, codes = np.repeat([1, 0], 10), np.tile(np.arange(10), 2)
    for axes in (cuts, groups):
        found = scorer.side_by_side(axes, 10)(which, codes)
        assert found.tolist() == [*axes[1].parts_of(np.arange(10)), *axes[0].parts_of(np.arange(10))]


def cuts_of(classes: int, score: Score, nullable: bool) -> tuple[scorer.AnyCutScorer, Counted, np.ndarray]:
    """The cuts of a fine grid of which four parts occupy a few codes, the third one none; their dense table."""
    numeric = {"type": "numeric", "lower": 0, "upper": CODES - 1 - nullable, "integer": True, "nullable": nullable}
    columns = {"a": numeric, "y": {"type": "categorical", "values": list(range(classes))}}
    schema = Policy(dataset="d", cap=1, max_rows=10**4, columns=columns).schema_
    random, most = np.random.default_rng(classes), 50 if classes == 3 else 2**26
    part = random.choice([0, 1, 3], 2000)
    # The first part has rows at the last code: without a value, where there are such rows.
    code = np.where(random.random(2000) < 0.01 * (part == 0), CODES - 1, 1500 * random.integers(0, 2, 2000))
    code += random.integers(0, 300, 2000) * (code < CODES - 1)
    table = np.zeros((PARTS, CODES, classes), dtype=np.int64)
    np.add.at(table, (part, code, random.integers(0, classes, 2000)), random.integers(1, most, 2000))
    counted = Counted(PartSet([Block(Part()) for _ in range(PARTS)]), [sparse(table)])
    return scorer.AnyCutScorer(AnyCut("a"), Frame(schema, score)), counted, table


def sparse(table: np.ndarray) -> Sparse:
    """The occupied cells of a table."""
    places = np.flatnonzero(table)
    return Sparse(places, table.ravel()[places])


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("classes", [3, 7])
@pytest.mark.parametrize("score", [Gini("y"), InfoGain("y"), MaxClass("y")], ids=lambda score: score.kind)
def test_cuts_of_a_fine_grid_score_as_their_tables_in_pieces_of_any_size(
    score: Any, classes: int, nullable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few classes or many, and of some parts in another order, or twice."""
    cuts, counted, table = cuts_of(classes, score, nullable)
    cells = CODES - nullable
    for step in (2**15, 37, 5):
        monkeypatch.setattr(scorer, "CELLS_AT_ONCE", step)
        for rows in ([0, 1, 2, 3], [3, 0, 2], [0, 0, 2]):
            for row, runs in zip(rows, cuts.runs(counted, np.array(rows)), strict=True):
                below = table[row, :cells].cumsum(axis=0)
                sides = [below[:-1], below[-1] - below[:-1], *[table[row, cells:].repeat(cells - 1, 0)] * nullable]
                assert runs.size == cells - 1 == runs.members.sum()
                assert np.array_equal(
                    runs.scores.repeat(runs.members), score.of(np.stack(sides, axis=1), cuts.frame.schema)
                )
                some = np.flatnonzero(runs.members)
                assert runs.first[some].tolist() == [1, *(1 + runs.members[some].cumsum()[:-1])]


def test_cuts_of_many_classes_take_memory_for_some_codes_at_a_time() -> None:
    """Not a number for each code and class: of 5,000 codes and 200 classes that alone would be 8 MB."""
    codes, classes = 5000, 200
    columns = {
        "a": {"type": "numeric", "lower": 0, "upper": codes, "integer": True},
        "y": {"type": "categorical", "values": list(range(classes))},
    }
    schema = Policy(dataset="d", cap=1, max_rows=10**4, columns=columns).schema_
    cuts = scorer.AnyCutScorer(AnyCut("a"), Frame(schema, Gini("y")))
    places = np.arange(codes) * classes + np.arange(codes) % classes
    table = Sparse(places, np.ones(codes, dtype=np.int64))
    counted = Counted(PartSet([Block(Part())]), [table])
    tracemalloc.start()
    (runs,) = cuts.runs(counted, np.arange(1))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runs.scores) == codes
    assert most < 5 * 10**6


@pytest.mark.parametrize("values", [2, 4, 9, 20])
def test_groupings_of_values_that_hold_nothing_score_as_their_tables(values: int) -> None:
    """From parts with all values occupied down to one without a row, each in its own place."""
    columns = {name: {"type": "categorical", "values": list(range(size))} for name, size in (("a", values), ("y", 5))}
    schema = Policy(dataset="d", cap=1, max_rows=10**4, columns=columns).schema_
    random = np.random.default_rng(values)
    table = random.integers(1, 9, (12, values, 5)) * (
        random.random((12, values, 1)) < np.linspace(1, 0, 12)[:, None, None]
    )
    groupings = scorer.AnyGroupingScorer(AnyGrouping("a"), Frame(schema, Gini("y")))
    counted = Counted(PartSet([Block(Part()) for _ in range(12)]), [table])
    rows = random.permutation(12)
    octets = AnyGrouping("a").octets(values)
    first = np.unpackbits(octets, axis=1, count=values, bitorder="little").astype(np.int64)
    for row, runs in zip(rows, groupings.runs(counted, rows), strict=True):
        sides = np.stack([first @ table[row], (1 - first) @ table[row]], axis=1)
        assert np.array_equal(runs.scores, Gini("y").of(sides, schema))
