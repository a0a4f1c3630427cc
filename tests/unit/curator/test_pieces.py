# SPDX-License-Identifier: Apache-2.0
"""Occupied codes that are looked at some at a time are what they are all at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pinq.curator.candidates import scorer
from pinq.curator.candidates.scorer import Frame
from pinq.curator.work import Counted
from pinq.engine.tables import Sparse
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.scores import Gini
from pinq.public.specs import AnyCut, Axis

CODES, CLASSES, PARTS = 3001, 3, 4


def pieces_frame() -> Frame:
    """Of a score by the classes of a column."""
    classes = {"type": "categorical", "values": list(range(CLASSES))}
    return Frame(Policy(dataset="d", cap=1, max_rows=100, columns={"y": classes}).schema_, Gini("y"))


@pytest.mark.parametrize("step", [1, 2, 7, 2**14])
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0]])
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
        for part, codes, counts in frame.pieces(counted, 0, 20, np.array(rows)):
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


def test_cuts_of_a_fine_grid_score_alike_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    numeric = {"type": "numeric", "lower": 0, "upper": CODES - 2, "integer": True, "nullable": True}
    classes = {"type": "categorical", "values": list(range(CLASSES))}
    schema = Policy(dataset="d", cap=1, max_rows=10**4, columns={"a": numeric, "y": classes}).schema_
    frame = Frame(schema, Gini("y"))
    cuts = scorer.AnyCutScorer(AnyCut("a"), frame)
    random = np.random.default_rng(1)
    # The third part is empty; the first has rows at the last code, which are missing.
    part = random.choice([0, 1, 3], 2000)
    cell = (part * schema.columns["a"].codes + random.integers(0, 2, 2000) * 3000 // 2) * CLASSES
    cell += random.integers(0, CLASSES, 2000) + CLASSES * random.integers(0, 300, 2000)
    cell[:9] = schema.columns["a"].codes * CLASSES - 1
    table = Sparse(*np.unique(cell, return_counts=True))
    counted = Counted(PartSet([Block(Part()) for _ in range(PARTS)]), [table])
    whole = cuts.runs(counted, np.arange(PARTS))
    monkeypatch.setattr(scorer, "CELLS_AT_ONCE", 5)
    pieces = cuts.runs(counted, np.arange(PARTS))
    for mine, other in zip(whole, pieces, strict=True):
        assert mine.size == CODES - 2
        assert len(mine.scores) == len(mine.members)
        assert np.array_equal(mine.scores, other.scores)
        assert np.array_equal(mine.members, other.members)
        assert mine.spec(0, 0) == other.spec(0, 0)


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
    assert len(runs.scores) == codes + 1
    assert most < 5 * 10**6
