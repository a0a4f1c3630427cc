# SPDX-License-Identifier: Apache-2.0
"""What every loss promises whose derivatives can be summed. A new one is found by its entry of ``LOSSES``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from pinq.errors import NotAllowed, QueryError
from pinq.language.derivatives import AnyDerivatives, RowVectors
from pinq.language.points import Points
from pinq.language.queries import Request
from pinq.language.specs import AnyCut, Cuts, Values
from pinq.ledger.events import Terms
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.catalogue import DERIVATIVES, losses_on
from tests.support.requests.handles import engine_of, ledger_of, simulated

SCHEMA = Schema(
    max_rows=500,
    columns={
        "y": Categorical(values=("n", "p")),
        "a": Categorical(values=("u", "v", "w")),
        "x": Numeric(lower=0, upper=9, integer=True),
    },
)
POINTS = (Points((Values("a"),), ((-100, 0, 300),), base=64), Points((Cuts("x", (4,)),), ((5, -5),)))
LOSSES = [loss for kind in DERIVATIVES.values() for loss in losses_on(kind, SCHEMA, *POINTS)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{LOSSES.index(loss)}")
BY = (Values("a"), Cuts("x", (2, 5)))


@pytest.fixture
def handle() -> Any:
    with simulated(SCHEMA, rows=300, epsilon=10**6) as opened:
        yield opened


def test_all_losses_are_here() -> None:
    """Those of the union that requests take, each with a name of its own on the wire."""
    assert set(DERIVATIVES.values()) == set(get_args(AnyDerivatives))
    assert len({kind.kind for kind in DERIVATIVES.values()}) == len(DERIVATIVES)


@every_loss
def test_a_loss_is_what_it_says(loss: Any) -> None:
    """Equal where it says the same, unequal to all others; nobody can change it; its function of rows is of the promised shape."""
    same = dataclasses.replace(loss)
    assert same == loss
    assert same.identity == loss.identity
    assert hash(same) == hash(loss)
    assert LOSSES.count(loss) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.target = "another"
    vectors = loss.vectors(SCHEMA)
    assert isinstance(vectors, RowVectors)
    assert vectors.width == loss.width(SCHEMA)
    assert 1 <= vectors.gradient_bound <= vectors.bound < 2**24
    assert {axis.column for axis in vectors.inputs} == loss.columns()


@every_loss
def test_answers_are_the_sums_but_for_noise(loss: Any, handle: Any) -> None:
    """With nearly no noise the answer is the exact tables, in natural units: for the whole, its parts, and the cells of specs."""
    vectors = loss.vectors(SCHEMA)
    whole = handle.noisy_sum(loss, epsilon=9000)
    parts = handle.partition(Values("a")).noisy_sum(loss, epsilon=9000)
    cells = handle.noisy_sum(loss, by=BY, epsilon=9000)
    both = handle.partition(Values("y")).noisy_sum(loss, by=BY, epsilon=9000)
    shapes = [answer.shape[:-1] for answer in (whole, parts, cells, both)]
    assert shapes == [(), (3,), (6,), (2, 6)]
    slack = 60 * len(BY) * vectors.bound / loss.unit / 9000
    for total in (parts.sum(axis=0), cells[:3].sum(axis=0), cells[3:].sum(axis=0), both.sum(axis=0)[:3].sum(axis=0)):
        assert np.abs(total - whole).max() < slack
    assert np.abs(parts - cells[:3]).max() < slack
    exact = engine_of(handle).tabulate(handle._parts, measure=vectors)[0][0] / loss.unit
    assert np.abs(whole - exact).max() < slack
    assert loss.gradients(both).shape[:-1] == (2, 6)
    hessians = loss.hessians(both)
    assert hessians is None or hessians.shape == loss.gradients(both).shape


@every_loss
def test_specs_share_epsilon(loss: Any, handle: Any) -> None:
    """One charge of epsilon for any number of specs, whose noise grows with their number; a preview says so beforehand."""
    bound = loss.vectors(SCHEMA).bound / loss.unit
    for by in (BY[:1], BY, (*BY, Values("y"))):
        before = handle.budget.spent
        preview = handle.preview("noisy_sum", loss, by=by, epsilon="0.5")
        answer = handle.noisy_sum(loss, by=by, epsilon="0.5")
        assert handle.budget.spent - before == preview.cost == answer.epsilon
        assert answer.scale == preview.scale == pytest.approx(len(by) * bound / 0.5)
        low, high = answer.interval(0.95)
        assert low.shape == high.shape == answer.shape
        assert (low < answer).all()


@every_loss
def test_the_same_question_is_known_again(loss: Any, handle: Any) -> None:
    """With ``reuse`` the stored answer costs nothing; other specs, in another order too, are another question."""
    first = handle.noisy_sum(loss, by=BY, epsilon=1)
    spent = handle.budget.spent
    assert (handle.noisy_sum(loss, by=BY, epsilon=1, reuse=True) == first).all()
    assert handle.budget.spent == spent
    for other in (None, BY[:1], BY[::-1]):
        handle.noisy_sum(loss, by=other, epsilon=1, reuse=True)
        spent += 1
        assert handle.budget.spent == spent
    line = handle.history().iloc[0]
    assert line.asked == f"noisy_sum of {loss.kind} of {loss.target} by a, x on the whole table"
    assert line.answer == first.reshape(-1).tolist()


@every_loss
def test_a_loss_crosses_the_wire(loss: Any) -> None:
    """The same question and the same text again; two losses are two questions."""
    request = Request(id="1", verb="noisy_sum", epsilon="0.1", column=loss, by=BY)
    again = Request.received(request.to_json())
    assert again == request
    assert again.column == loss
    assert again.to_json() == request.to_json()
    others = [Request(id="1", verb="noisy_sum", epsilon="0.1", column=other, by=BY) for other in LOSSES]
    assert [other.identity("schema") for other in others].count(request.identity("schema")) == 1


@every_loss
def test_a_grant_is_asked_for_every_column_of_a_loss(loss: Any, handle: Any) -> None:
    """Target, points and specs: who may not ask for one of them gets nothing, and pays nothing."""
    for forbidden in {*loss.columns(), "a", "x"}:
        ledger_of(handle).set_terms("simulated", Terms(columns=tuple({"y", "a", "x"} - {forbidden})))
        with pytest.raises(NotAllowed, match=rf"\b{forbidden}\b"):
            handle.noisy_sum(loss, by=BY, epsilon="0.1")
        assert handle.budget.spent == 0


def test_what_cannot_be_summed_is_refused(handle: Any) -> None:
    """By its name, at no cost: an average of a loss, specs without a loss, no specs, a family."""
    loss = LOSSES[0]
    asked: tuple[Callable[[], object], ...] = (
        lambda: handle.noisy_avg(loss, epsilon=1),
        lambda: handle.noisy_sum("x", by=BY, epsilon=1),
        lambda: handle.noisy_sum(loss, by=[], epsilon=1),
        lambda: handle.noisy_sum(loss, by=["a"], epsilon=1),
        lambda: handle.noisy_sum(loss, by=[Values("a")] * 4097, epsilon=1),
        lambda: handle.noisy_sum(loss, by=[AnyCut("x")], epsilon=1),
        lambda: handle.noisy_sum(dataclasses.replace(loss, target="nobody"), epsilon=1),
        lambda: handle.noisy_sum(loss, by=[Values("nobody")], epsilon=1),
    )
    for ask in asked:
        with pytest.raises(QueryError, match="Nothing was spent"):
            ask()
    assert handle.budget.spent == 0
