# SPDX-License-Identifier: Apache-2.0
"""What every score promises. A new one is tested by its entry of ``SCORES``."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from pinq.curator.candidates.selection import Selection
from pinq.curator.prepared import Counted
from pinq.engine.codes import RowBlock
from pinq.engine.counting import count, count_request
from pinq.errors import NotAllowed, QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Request
from pinq.language.scores import ClassCount, EnoughRows, Gini, Misfit, require_score
from pinq.language.specs import AnyCross, AnyCut, AnyGrouping, Cuts, Values, bind
from pinq.ledger.events import Terms
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.laws.sensitivities import search_sensitivity
from tests.support.requests.catalogue import SCORES, scores_on
from tests.support.requests.handles import ledger_of, simulated

WHOLE = PartSet([Block(Part())])
SHAPES = [(2, 2), (3, 2), (2, 3)]
every_score = pytest.mark.parametrize("kind", SCORES.values(), ids=SCORES)
# ``EnoughRows`` is a test of many parts at once; its loss is searched in tests/privacy/test_stopping.py.
every_quality = pytest.mark.parametrize(
    "kind", [kind for kind in SCORES.values() if hasattr(kind, "sensitivity")], ids=lambda kind: kind.__name__
)


def schema_of(classes: int = 3) -> Schema:
    return Schema(
        max_rows=8,
        columns={
            "y": Categorical(values=tuple(f"c{number}" for number in range(classes))),
            "z": Categorical(values=tuple(f"c{number}" for number in range(classes))),
            "x": Numeric(lower=0, upper=classes - 1, integer=True),
            "w": Numeric(lower=0, upper=classes - 1, integer=True),
        },
    )


def scores_of(kind: type[Any], schema: Schema, cells: int = 2) -> list[Any]:
    return scores_on(kind, schema, spec=Cuts("x", tuple(range(1, cells))))


def request_with(score: Any) -> Request:
    """A question by a score; those that choose among a column's own values, or test parts, take no candidates."""
    lists = () if isinstance(score, (ClassCount, EnoughRows)) else ((Values("y"),),)
    return Request(id="1", verb="exp_mech", epsilon="0.1", score=score, candidates=lists)


def test_all_scores_are_here() -> None:
    """The list is found by introspection; each has a name of its own on the wire."""
    assert len(SCORES) >= 9
    assert len({kind.kind for kind in SCORES.values()}) == len(SCORES)


@every_quality
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_small_table_moves_a_score_further_than_it_declares(kind: type[Any], shape: tuple[int, int]) -> None:
    """Over all tables of at most 8 rows: change <= sensitivity, span <= declared span, and the direction is as declared."""
    cells, classes = shape
    schema = schema_of(max(shape) if kind is Misfit else classes)
    for score in scores_of(kind, schema, cells):
        moved = search_sensitivity(score, schema, cells=cells, classes=classes)
        assert moved.tables > 50
        assert moved.change <= score.sensitivity(schema)
        assert moved.span <= score.span(schema)
        assert moved.monotone == score.monotone


@every_quality
def test_a_span_follows_from_sensitivity_and_direction(kind: type[Any]) -> None:
    """Whole numbers of the score's own unit; twice the sensitivity where candidates may move in both directions."""
    schema = schema_of()
    for score in scores_of(kind, schema):
        sensitivity, span = score.sensitivity(schema), score.span(schema)
        assert isinstance(sensitivity, int)
        assert sensitivity >= 1
        assert span == sensitivity * (1 if score.monotone else 2)


@pytest.mark.parametrize("kind", [kind for kind in SCORES.values() if hasattr(kind, "of")], ids=lambda kind: kind.kind)
def test_scores_are_integers_table_by_table(kind: type[Any]) -> None:
    """Many tables are scored as each alone, in whole numbers; a table without rows scores 0, unless rows are expected."""
    schema = schema_of()
    depth = {"classes": 3, "rows": 1, "moments": 3}
    for score in scores_of(kind, schema):
        vectors = score.vectors(schema)
        width = depth[score.measure] if vectors is None else vectors.width
        counts = np.random.default_rng(0).integers(0, 3, (5, 4, 2, width))
        batch = np.asarray(score.of(counts, schema))
        assert batch.shape == (5, 4)
        assert all(int(number) == number for number in batch.ravel())
        assert batch[2, 3] == score.of(counts[2, 3], schema)
        assert hasattr(score, "expected") or score.of(np.zeros_like(counts[0, 0]), schema) == 0


@every_score
def test_a_score_without_its_column_is_refused(kind: type[Any]) -> None:
    """The class itself, and a column that nobody declared."""
    schema = schema_of()
    if any(field.default is dataclasses.MISSING for field in dataclasses.fields(kind)):
        with pytest.raises(QueryError, match=kind.__name__):
            require_score(kind, schema)
    if "target" in [field.name for field in dataclasses.fields(kind)]:
        with pytest.raises(QueryError, match="nobody"):
            require_score(kind("nobody"), schema)


@every_score
def test_a_score_is_what_it_says(kind: type[Any]) -> None:
    """Equal where it says the same, unequal to all others; nobody can change it."""
    schema = schema_of()
    everything = [score for other in SCORES.values() for score in scores_of(other, schema)]
    for score in scores_of(kind, schema):
        same = dataclasses.replace(score)
        assert same == score
        assert hash(same) == hash(score)
        assert repr(same) == repr(score)
        assert everything.count(score) == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            score.kind = "another"


@every_score
def test_a_score_crosses_the_wire(kind: Any) -> None:
    """The same score and the same text again; two scores are two questions."""
    texts, named = [], vars(kind)["kind"]
    for score in scores_of(kind, schema_of()):
        text = request_with(score).to_json()
        again = Request.received(text)
        assert again.score == score
        assert type(again.score) is kind
        assert again.to_json() == text
        assert json.loads(text)["score"]["kind"] == named
        texts.append(text)
    assert len(set(texts)) == len(texts)


@every_quality
def test_a_score_names_its_column_to_the_grant(kind: type[Any]) -> None:
    """Who may not ask for the target may not choose by it either."""
    schema = schema_of()
    for score in scores_of(kind, schema):
        if not score.columns() or hasattr(score, "expected"):
            continue
        (target,) = score.targets() if hasattr(score, "targets") else score.columns()
        spared = next(name for name in ("z", "w") if name != target)
        with simulated(schema, rows=8, epsilon=1) as handle:
            ledger_of(handle).set_terms("simulated", Terms(columns=(spared,)))
            with pytest.raises(NotAllowed, match=rf"\b{target}\b"):
                handle.exp_mech([] if kind.kind == "class_count" else [Values(spared)], score=score, epsilon="0.1")
            assert handle.budget.spent == 0


WITH_CLASSES = [kind for kind in SCORES.values() if getattr(kind, "measure", None) == "classes"]


@pytest.mark.parametrize("kind", WITH_CLASSES, ids=lambda kind: kind.__name__)
def test_every_way_to_a_score_gives_the_number_of_its_own_table(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a plain split, a cut or grouping of a family, and a crossing, with empty cells or without: one number."""
    monkeypatch.setattr("pinq.curator.candidates.scorer.DENSE_CELLS", 1)  # empty cells are left out
    schema, random = schema_of(), np.random.default_rng(5)
    codes: dict[Any, np.ndarray] = {
        name: random.integers(0, column.codes, 9).astype(np.uint8) for name, column in schema.columns.items()
    }
    for score in scores_of(kind, schema):
        (classes,) = bind(score.classes(schema), schema).axes
        free = [name for name in schema.columns if name not in score.columns()]
        cross = AnyCross(tuple(Values(name) for name in free), 2)
        families = [AnyGrouping(name) if name in schema.categorical_columns else AnyCut(name) for name in free]
        for candidate in (cross, *families, *(cross.member(number) for number in range(len(cross)))):
            selection = Selection(schema, WHOLE, score, [[candidate]], (0,))
            request = count_request(WHOLE, selection.frame.tables, schema=schema)
            counted = Counted(WHOLE, count(RowBlock(codes, 9), request).tables())
            (scorer,) = selection._lists[0]
            (runs,) = scorer.runs(counted, np.array([0]), [scorer])
            for run, found in enumerate(runs.scores.tolist()):
                if not runs.members[run]:
                    continue
                axes = bind(runs.name(int(runs.first[run])), schema).axes
                table = np.zeros((*(axis.size for axis in axes), classes.size), dtype=np.int64)
                np.add.at(table, tuple(axis.parts_of(codes[axis.source]) for axis in (*axes, classes)), 1)
                assert found == int(score.of(table.reshape(-1, classes.size), schema))


def test_a_score_that_counts_empty_cells_goes_with_no_crossing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would get another number where a table leaves them out."""
    right = Gini.of
    monkeypatch.setattr(Gini, "of", lambda self, table, schema: right(self, table, schema) - table.shape[-2])
    with pytest.raises(QueryError, match="gini counts empty cells"):
        Selection(schema_of(), WHOLE, Gini("y"), [[AnyCross((Values("z"), Values("x")), 2)]], (0,))
