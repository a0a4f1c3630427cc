# SPDX-License-Identifier: Apache-2.0
"""Predicted shares beside what happened: bins, what is off, and the picture."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from miners import DiffPC45, Scorecard
from miners.fitted.model_card import Reliability
from pinq.errors import QueryError
from pinq.provider.local import simulate
from pinq.public.schema import Schema
from tests.support.processes.secure_parties import COLUMNS, patients


@pytest.fixture(scope="module")
def miners() -> Any:
    """A tree and a card, at an epsilon that leaves little noise."""
    schema = Schema(columns=COLUMNS, max_rows=3000)
    with simulate(schema, data=patients(3000, 1), epsilon=1000) as handle:
        return [kind(epsilon=50).fit(handle, "ill") for kind in (DiffPC45, Scorecard)]


def test_rows_are_binned_by_their_shares() -> None:
    """The last bin holds a share of 1; empty bins say nothing."""
    reliability = Reliability.of(
        np.array([0.1, 0.3, 1.0, 0.9]), np.array([False, True, True, True]), bins=2, label="yes"
    )
    assert reliability.rows.tolist() == [2, 2]
    assert reliability.predicted == pytest.approx([0.2, 0.95])
    assert reliability.happened == pytest.approx([0.5, 1])
    assert reliability.off == pytest.approx((2 * 0.3 + 2 * 0.05) / 4)
    assert repr(reliability) == "Reliability of 'yes': 4 rows, off by 0.175 in the mean"
    assert np.isnan(Reliability.of(np.array([0.1]), np.array([True]), bins=2, label="yes").happened[1])


def test_shares_of_a_good_model_are_reliable(miners: Any) -> None:
    """Of a tree and of a card, on fresh rows."""
    for miner in miners:
        reliability = miner.reliability(patients(4000, 2))
        assert reliability.off < 0.1
        assert reliability.label == "yes"
        other = miner.reliability(patients(4000, 2), label="no", bins=5)
        assert other.rows.sum() == 4000
        assert other.happened[other.rows > 0].min() < reliability.happened[reliability.rows > 0].max()


def test_rows_without_a_known_class_do_not_count(miners: Any) -> None:
    """Nor can there be none at all."""
    rows = patients(10, 3)
    truth = ["yes"] * 6 + [None] * 3 + ["perhaps"]
    assert miners[0].reliability(rows, truth).rows.sum() == 6
    with pytest.raises(QueryError, match="no row"):
        miners[0].reliability(rows.iloc[:0])
    with pytest.raises(QueryError, match="is 'maybe'; it must be one of 'no', 'yes'"):
        miners[0].reliability(rows, label="maybe")
    with pytest.raises(QueryError, match="3 values for 10 rows"):
        miners[0].reliability(rows, ["yes"] * 3)


def test_the_picture_says_how_far_shares_are_off(miners: Any) -> None:
    """On axes of its own, or on given ones."""
    ax = miners[0].reliability(patients(500, 4)).plot()
    assert "500 rows, off by 0." in ax.get_title()
    assert ax.get_xlabel() == "predicted share of yes"
    assert miners[1].reliability(pd.concat([patients(50, 5)])).plot(ax) is ax
    plt.close("all")
