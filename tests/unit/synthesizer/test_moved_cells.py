# SPDX-License-Identifier: Apache-2.0
"""Cells of numbers move to where rows are: at most as many as before, at the same cost, by answers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from miners.growth.candidates import Grid, attribute_cells
from miners.synthesizer.fine_numbers import PIECES, FineNumbers, pieces
from miners.synthesizer.purchase import WIDTHS
from pinq.language.specs import Cuts, bind
from pinq.public.schema import Numeric

ROWS = 6_000
SCHEMA = pinq.Schema(
    columns={
        "pay": pinq.Numeric(lower=0, upper=2_000_000),
        "debt": pinq.Numeric(lower=0, upper=500_000, integer=True, nullable=True),
        "since": {"type": "date", "lower": "1950-01-01", "upper": "2049-12-31"},
        "age": pinq.Numeric(lower=0, upper=120, integer=True, cuts=[30, 50]),
        "same": pinq.Numeric(lower=0, upper=1_000, integer=True),
        "few": pinq.Numeric(lower=0, upper=9, integer=True),
        "kind": pinq.Categorical(values=("a", "b")),
    },
    max_rows=ROWS,
)
NUMBERS = ["pay", "debt", "since", "same"]


def rows() -> pd.DataFrame:
    draw = np.random.default_rng(3)
    size = draw.normal(size=ROWS)
    debt = np.round(np.exp(8.5 + 0.8 * size + 0.3 * draw.normal(size=ROWS)), -3).clip(0, 500_000)
    days = pd.to_timedelta((400 * (size + draw.normal(size=ROWS))).astype(int), unit="D")
    return pd.DataFrame(
        {
            "pay": np.exp(10.3 + 0.5 * size).clip(0, 2_000_000),
            "debt": pd.Series(debt).mask(draw.random(ROWS) < 0.1),
            "since": (pd.Timestamp("2015-01-01") + days).date,
            "age": draw.integers(18, 90, ROWS),
            "same": np.full(ROWS, 500),
            "few": draw.integers(0, 4, ROWS),
            "kind": draw.choice(["a", "b"], ROWS),
        }
    )


def cells_before() -> dict[str, Cuts]:
    specs = attribute_cells(SCHEMA, None, NUMBERS, None, Grid(WIDTHS))
    return {spec.column: spec for spec in specs if isinstance(spec, Cuts)}


def fitted(epsilon: float = 6, **parameters: Any) -> tuple[Synthesizer, pd.DataFrame]:
    """A fit, which pays its plan to the nano-epsilon, and its rows."""
    synthesizer = Synthesizer(epsilon=epsilon, random_state=0, **parameters)
    with pinq.simulate(SCHEMA, data=rows(), epsilon=epsilon) as handle:
        synthesizer.fit(handle)
        assert handle.budget.spent == synthesizer.cost_ == synthesizer.plan(SCHEMA).total == epsilon
    return synthesizer, synthesizer.sample(ROWS, random_state=0)


def by_deciles(frame: pd.DataFrame) -> list[pd.Series]:
    """The cells of two columns, by exact deciles of the rows; missing values are a cell."""
    private = rows()
    cut = {name: np.unique(private[name].quantile(np.linspace(0.1, 0.9, 9))) for name in ("pay", "debt")}
    cells = {name: np.where(frame[name].isna(), 99, np.searchsorted(cut[name], frame[name])) for name in cut}
    joint = pd.Series(cells["pay"] * 100 + cells["debt"])
    return [each.value_counts(normalize=True) for each in (joint, pd.Series(cells["debt"]))]


def distances(made: pd.DataFrame) -> list[float]:
    return [
        float(real.sub(own, fill_value=0).abs().sum() / 2)
        for real, own in zip(by_deciles(rows()), by_deciles(made), strict=True)
    ]


def test_relations_within_a_cell_of_equal_width_are_kept() -> None:
    """Nearly all pay lies in one cell in 12, and debts are round; the caller's own cells stay."""
    kept = {name: spec.points for name, spec in cells_before().items()}
    moved, made = fitted()
    stayed, as_before = fitted(cuts=kept)
    assert [spec for spec in stayed.model_.specs if spec.column in kept] == [*cells_before().values()]
    sizes = zip(moved.model_.model.sizes, stayed.model_.model.sizes, strict=True)
    assert all(now <= before for now, before in sizes)
    (joint, debts), (joint_before, debts_before) = distances(made), distances(as_before)
    assert joint < 0.5 * joint_before
    assert debts < 0.8 * debts_before
    for spec in moved.model_.specs:
        assert (spec != cells_before().get(spec.column, spec)) == (spec.column in NUMBERS)
    assert [line.parts for line in moved.plan(SCHEMA).lines] == [line.parts for line in stayed.plan(SCHEMA).lines]


def test_moved_cells_hold_every_kind_of_number() -> None:
    """One value in all rows, missing values, dates and round numbers; tables have the intervals of their noise."""
    synthesizer, made = fitted()
    assert (made["same"] == 500).mean() > 0.95
    assert made["debt"].isna().mean() == pytest.approx(0.1, abs=0.02)
    assert made["since"].map(lambda day: day.year).between(2008, 2022).mean() > 0.98
    model, private = synthesizer.model_, rows()
    for name in NUMBERS:
        spec = model.specs[model.columns.index(name)]
        codes = SCHEMA.column(name).encode(private[name])
        exact = np.bincount(bind(spec, SCHEMA).axes[0].parts_of(codes), minlength=bind(spec, SCHEMA).size)
        table = model.table(name)
        frame = table.to_frame()
        assert ((frame["low"] <= exact) & (exact <= frame["high"])).mean() > 0.9
    again = Synthesizer.from_json(synthesizer.to_json())
    pd.testing.assert_frame_equal(again.sample(50, random_state=1), synthesizer.sample(50, random_state=1))


def test_an_identical_fit_reads_the_stored_answers() -> None:
    """Cells follow from answers alone: the same answers, the same cells and queries, nothing paid."""
    with pinq.simulate(SCHEMA, data=rows(), epsilon=6) as handle:
        first, second = (Synthesizer(epsilon=6, random_state=0).fit(handle, reuse=True) for _ in range(2))
        assert second.cost_ == 0
    assert first.model_.to_dict() == second.model_.to_dict()


def test_cells_stay_where_noise_or_the_log_decides() -> None:
    """Public facts decide: epsilon and max_rows, and columns with tables in the log."""
    low, _ = fitted(0.125)
    assert [spec for spec in low.model_.specs if spec.column in NUMBERS] == [*cells_before().values()]
    assert all(spec == cells_before().get(spec.column, spec) for spec in low.model_.specs)
    with pinq.simulate(SCHEMA, data=rows(), epsilon=8) as handle:
        handle.partition(cells_before()["pay"]).noisy_count(epsilon=1)
        model = Synthesizer(epsilon=6, random_state=0).fit(handle, history=True).model_
    assert model.specs[0] == cells_before()["pay"]
    assert model.specs[1] != cells_before()["debt"]


def test_round_numbers_are_pieces_and_make_no_more_of_them() -> None:
    """So the plan's number of pieces is the largest; without a difference in counts rows lie evenly over numbers."""
    draw = np.random.default_rng(0)
    for upper in (997, 5_000, 123_456, 10**7):
        column = Numeric(lower=-300, upper=upper, integer=True)
        firsts = np.unique(np.linspace(0, column.cells, 13).astype(int))
        for shares in (np.eye(12)[3], np.full(12, 1 / 12), draw.dirichlet(np.full(12, 0.3))):
            starts = pieces(firsts, shares, column)
            assert starts[0] == 0
            assert (np.diff(starts) > 0).all()
            assert len(starts) <= 2 * PIECES * 12
    column = Numeric(lower=0, upper=9_999, integer=True)
    starts = pieces(np.array([0, 10_000]), np.ones(1), column)
    assert {1_000, 1_001, 5_000, 5_001} <= {*starts.tolist()}
    codes = FineNumbers(starts, np.zeros(len(starts)), 1.0).drawn(
        np.array([0]), np.zeros(20_000, dtype=np.int64), 10_000, draw, (0, 10_000)
    )
    assert np.isin(codes, starts[np.diff(starts, append=10_000) == 1]).mean() < 0.01
