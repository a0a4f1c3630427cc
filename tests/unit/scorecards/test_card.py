# SPDX-License-Identifier: Apache-2.0
"""A card adds up points; it says so in text, HTML, pictures and JSON alike."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners.fitted.route import UndeclaredValueWarning
from miners.scorecards.card import Card, Estimate, Term
from pinq.errors import QueryError
from pinq.language.points import POINTS
from pinq.language.specs import Cross, Cuts, Values
from pinq.public.schema import Categorical, Numeric, Schema

SCHEMA = Schema(
    columns={
        "job": Categorical(values=("clerk", "<cook>"), nullable=True),
        "age": Numeric(lower=0, upper=90, integer=True),
        "buys": Categorical(values=("no", "yes")),
        "kind": Categorical(values=("a", "b", "c")),
        "wage": Numeric(lower=10, upper=50, step="0.5"),
    },
    max_rows=1000,
)
ROWS = pd.DataFrame({"job": ["clerk", "<cook>", None], "age": [20, 40, 90]})


def term(spec: Any, points: list[list[int]]) -> Term:
    return Term(spec, np.array(points), np.full(np.shape(points), 12.0), np.ones(len(points)))


JOB, AGE = Values("job"), Cuts("age", (30.0, 60.0))
BUYS = Card(SCHEMA, "buys", (-256,), (term(JOB, [[256], [-256], [0]]), term(AGE, [[0], [128], [512]])))
KIND = Card(SCHEMA, "kind", (0, 0, 128), (term(JOB, [[256, 0, -256], [0, 512, 0], [0, 0, 0]]),))
WAGE = Card(SCHEMA, "wage", (20 * POINTS,), (term(AGE, [[-512], [0], [10**6]]),))
PAIR = Card(SCHEMA, "buys", (0,), (term(Cross((JOB, AGE)), [[256 * cell] for cell in range(9)]), term(AGE, [[64]] * 3)))
CARDS = [BUYS, KIND, WAGE, PAIR]


def test_points_add_up_to_odds() -> None:
    """256 are one logit: start -1, then 1 + 0, -1 + 1/2, 0 + 2."""
    assert np.allclose(BUYS.scores(ROWS)[:, 0], [0.0, -1.5, 1.0])
    assert np.allclose(BUYS.predict_proba(ROWS)[:, 1], 1 / (1 + np.exp([0.0, 1.5, -1.0])))
    assert BUYS.predict(ROWS).tolist() == ["no", "no", "yes"]


def test_points_of_many_classes_are_compared() -> None:
    """Their softmax are the shares."""
    shares = KIND.predict_proba(ROWS)
    assert np.allclose(shares.sum(axis=1), 1)
    assert KIND.predict(ROWS).tolist() == ["a", "b", "c"]
    assert shares[0, 0] / shares[0, 1] == pytest.approx(np.e)


def test_points_of_a_mean_are_units_of_the_target() -> None:
    """In grid cells of 0.5 from the middle of the first, 10.25, and never out of bounds."""
    assert WAGE.predict(ROWS).tolist() == [10.25 + 18 * 0.5, 10.25 + 20 * 0.5, 49.75]


def test_a_pair_has_points_for_each_two_cells() -> None:
    """Clerks below 30 have cell 0, cooks from 30 to 59 cell 4, and missing jobs from 60 on cell 8; both attributes count."""
    assert PAIR.scores(ROWS)[:, 0].tolist() == [0.25, 4.25, 8.25]
    assert PAIR.columns == ["job", "age"]
    assert PAIR.importances == pytest.approx({"job": 0.5, "age": 0.5})
    assert PAIR.explain({"job": "<cook>", "age": 40})["value"].tolist() == ["", "<cook>, 30 to < 60", "30 to < 60"]
    assert "job and age\n  clerk, < 30" in PAIR.export_text()
    more = PAIR.plus(Cross((JOB, AGE)), Estimate(np.ones((9, 1)), np.ones((9, 1)), np.ones(9)))
    assert len(more.terms) == 2
    assert more.scores(ROWS)[:, 0].tolist() == [1.25, 5.25, 9.25]
    with pytest.warns(UndeclaredValueWarning, match="adds no points"):
        assert PAIR.scores(pd.DataFrame({"job": ["baker"], "age": [20]}))[0, 0] == 0.25


def test_a_value_that_nobody_declared_adds_nothing() -> None:
    """And is warned of."""
    rows = pd.DataFrame({"job": ["baker"], "age": [20]})
    with pytest.warns(UndeclaredValueWarning, match="adds no points"):
        assert BUYS.scores(rows)[0, 0] == -1


@pytest.mark.parametrize("rows", [np.zeros((2, 2)), [[1, 2]], {"job": ["nurse"]}])
def test_rows_without_named_columns_are_refused(rows: object) -> None:
    with pytest.raises(QueryError, match="a pandas or Arrow table with named columns is needed, not"):
        BUYS.predict(rows)


def test_more_points_for_the_same_cells_are_added() -> None:
    """And points for other cells stand beside them."""
    estimate = Estimate(np.array([[1.0], [0.0], [0.0]]), np.full((3, 1), 0.01), np.array([5.0, 0, 0]))
    more = BUYS.plus(JOB, estimate)
    assert more.terms[0].points.ravel().tolist() == [512, -256, 0]
    assert more.terms[0].deviations[0, 0] == pytest.approx(2.56)
    assert more.score_of(0).tables[0] == (512, -256, 0)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.target)
def test_a_card_is_whole_in_json(card: Card) -> None:
    """The same text again, and the same predictions."""
    text = json.dumps(card.to_dict(), allow_nan=False)
    again = Card.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert np.array_equal(again.predict(ROWS), card.predict(ROWS))


WRONG: dict[str, Any] = {
    "format": "pinq-tree",
    "version": 2,
    "target": "bys",
    "schema": {},
    "base": [1, 2],
    "terms": [{}],
}


@pytest.mark.parametrize("key", WRONG)
def test_something_else_is_refused(key: str) -> None:
    """Each part of it, wrong or missing."""
    stored = BUYS.to_dict()
    for wrong in ({**stored, key: WRONG[key]}, {name: value for name, value in stored.items() if name != key}):
        with pytest.raises(QueryError):
            Card.from_dict(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"points": [[1]]},
        {"deviations": [[float("inf")]] * 3},
        {"cells": None},
        {"cells": {"kind": "values", "column": "nobody"}},
        {"cells": []},
        {"cells": [{"kind": "values", "column": "job"}, None]},
        {"cells": [{"kind": "values", "column": "job"}] * 2},
        {"weights": [1]},
    ],
)
def test_terms_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    """A point for each cell, all of them finite."""
    stored = BUYS.to_dict()
    stored["terms"][0] |= change
    with pytest.raises(QueryError):
        Card.from_dict(stored)


def test_the_text_can_be_added_up_by_hand() -> None:
    """Start, points of each value, and what sums mean; 20 points double the odds."""
    lines = BUYS.export_text().splitlines()
    assert "every 20 points double the odds of `yes`" in lines[1]
    numbers = {line.split()[0]: line.split()[1] for line in lines[3:] if len(line.split()) > 1}
    assert numbers["start"] == "-29"  # 20 / ln 2 for each logit
    assert numbers["clerk"] == "+29"
    assert numbers["<cook>"] == "-29"
    assert any(line.split() == ["0", "50.0%"] for line in lines)
    assert "  a" in KIND.export_text()
    assert "at least 10 and at most 50" in WAGE.export_text()


def test_html_escapes_what_the_provider_wrote() -> None:
    """Names and values are text, not markup."""
    assert "&lt;cook&gt;" in BUYS._repr_html_()
    assert "<cook>" not in BUYS._repr_html_()
    assert KIND._repr_html_().count("<details") == 1


def test_a_row_is_explained_by_what_it_adds_up_to() -> None:
    """What each attribute adds, and the start: together the printed score."""
    lines = BUYS.explain({"job": "<cook>", "age": 40})
    assert lines.index.tolist() == ["start", "job", "age"]
    assert lines["value"].tolist() == ["", "<cook>", "30 to < 60"]
    assert lines["yes"].sum() == pytest.approx(-1.5 * 20 / np.log(2))
    assert WAGE.explain(ROWS[:1])["wage"].sum() == pytest.approx(10.25 + 18 * 0.5)
    with pytest.raises(QueryError, match="one is explained at a time"):
        BUYS.explain(ROWS)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.target)
def test_a_picture_has_a_panel_for_each_attribute(card: Card) -> None:
    """The one that says most first, with its name."""
    figure = card.plot().figure
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert [title for title in titles if title] == [term.name for term in card.ranked]


def test_a_card_without_points_has_a_picture() -> None:
    """Noise may hide all of them."""
    ax = Card(SCHEMA, "buys", (-256,), ()).plot()
    assert ax.figure.axes[0] is ax
