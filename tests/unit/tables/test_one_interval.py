# SPDX-License-Identifier: Apache-2.0
"""One meaning of ±, half of a 95 % interval: in plans, in answers and in pictures; a picture shows what noise leaves."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import miners
import pinq
from miners.tables import crosstab, summary
from pinq import Categorical, Numeric, Schema

SCHEMA = Schema(
    columns={
        "ward": Categorical(values=tuple("ABCD")),
        "kind": Categorical(values=tuple("xyz")),
        "age": Numeric(lower=0, upper=100, integer=True),
    },
    max_rows=9000,
)


@pytest.fixture
def handle() -> pinq.PrivateQueryable:
    """One cell of 6,000 rows, another of 100; the rest are empty."""
    rows = 6100
    frame = pd.DataFrame({"ward": "A", "kind": "x", "age": np.arange(rows) % 101})
    frame.loc[rows - 100 :, ["ward", "kind"]] = ["B", "y"]
    return pinq.simulate(SCHEMA, data=frame, epsilon=100)


@pytest.mark.parametrize("epsilon", ["0.02", "0.1", "0.5"])
def test_a_plan_and_its_answer_have_one_half_width(handle: pinq.PrivateQueryable, epsilon: str) -> None:
    """As the preview of the same counts says it."""
    (line,) = crosstab.plan(handle, "ward", "kind", epsilon=epsilon).lines
    frame = crosstab(handle, "ward", "kind", epsilon=epsilon).frame
    half = float((frame["high"] - frame["value"]).iloc[0])
    previewed = re.search(r"±(\d+)", repr(handle.preview("noisy_count", epsilon=epsilon)))
    assert previewed is not None
    assert line.within == float(previewed[1]) == half
    assert f"±{half:.0f}"[:2] == line.cells()[-1][:2]


def test_a_choices_bound_is_that_of_its_score(handle: pinq.PrivateQueryable) -> None:
    """The noise of a score stays below the bound in 95 % of draws of its law, exponential of that scale."""
    line = miners.DiffPC45(epsilon=1, max_depth=1).plan(handle.schema, "kind").lines[0]
    assert line.verb == "exp_mech"
    assert line.within == pytest.approx((line.noise or 0) * np.log(20))


def test_a_cross_table_is_shown_wide_and_pale_where_noise_decides(handle: pinq.PrivateQueryable) -> None:
    """Cells that noise does not tell from half of the others are pale; the interval is written once."""
    table = crosstab(handle, "ward", "kind", epsilon=0.05)
    text = repr(table)
    assert re.search(r"each number about ±\d+", text)
    assert len(text.splitlines()) == 3 + 4
    ax = table.plot()
    alpha = np.asarray(ax.images[0].get_alpha())
    assert alpha[0, 0] == 1
    assert (alpha < 1).sum() >= 9
    assert "±" in ax.get_xlabel()


def test_boxes_say_what_their_lines_are(handle: pinq.PrivateQueryable) -> None:
    """Which quantiles, and what the thin lines and the dot mean."""
    panels = summary(handle, ["age"], epsilon=5).plot().figure.axes
    assert any("dot: mean\nbelow each line its interval" in ax.get_xlabel() for ax in panels)
