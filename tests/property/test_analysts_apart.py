# SPDX-License-Identifier: Apache-2.0
"""What an analyst is told of budgets follows from the own history and one number: what the others spent in all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.errors import BudgetExceeded
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Request, WireParts
from pinq.language.specs import Values, bind
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession
from pinq.public.epsilon import Epsilon

POLICY = Policy(
    dataset="d",
    cap=2,
    max_rows=100,
    columns={"a": {"type": "categorical", "values": ["x", "y", "z"]}, "b": {"type": "categorical", "values": [0, 1]}},
)
SCHEMA = POLICY.schema_
WHOLE = PartSet([Block(Part())], shape=(1,))
PLACES = [
    WHOLE,
    *(
        PartSet([Block(Part(Part(), bind(Values(name), SCHEMA), index))], shape=(1,))
        for name, index in (("a", 0), ("a", 1), ("b", 0), ("b", 1))
    ),
]
LOSSES = st.integers(1, 12).map(lambda eighths: eighths * Epsilon.of(1) // 8)
OTHERS = st.lists(st.tuples(st.sampled_from(PLACES), LOSSES), max_size=3)
TURNS = st.lists(
    st.tuples(OTHERS, st.sampled_from(["ask", "preview"]), st.sampled_from(PLACES), LOSSES), min_size=1, max_size=5
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    opened, _ = open_engine(POLICY, data=pd.DataFrame({"a": ["x", "y"] * 10, "b": [0, 1] * 10}), salt=b"s")
    yield opened
    opened.close()


class World:
    """A ledger that eve shares with bob, and what she was told so far."""

    def __init__(self, engine: Any) -> None:
        self.ledger = Ledger("sqlite://", "d")
        self.ledger.declare("x", Epsilon.of(POLICY.cap), {})
        self.ledger.grant("bob", Epsilon.of(100))
        self.ledger.grant("eve", Epsilon.of(100))
        self._eve = LocalSession("d", "eve", Curator(SCHEMA, self.ledger, engine))
        self.told: list[str] = []

    def bob(self, parts: PartSet, loss: Epsilon) -> Epsilon:
        """A question of bob's; by how much his spending grew, nothing where he was refused."""
        before = self.ledger.grants()["bob"].spent
        try:
            self.ledger.charge("bob", str(len(list(self.ledger.log.events()))), Demand.of(parts), loss)
        except BudgetExceeded:
            return Epsilon(0)
        return self.ledger.grants()["bob"].spent - before

    def eve(self, act: str, parts: PartSet, loss: Epsilon) -> None:
        """Her budget, her question or its preview, her budget again."""
        request = Request(id=str(len(self.told)), verb="noisy_count", epsilon=str(loss), parts=WireParts.of(parts))
        self.told.append(str(self._eve.budget()))
        try:
            answer = self._eve.preview(request) if act == "preview" else self._eve.ask(request).epsilon
            self.told.append(str(answer))
        except BudgetExceeded as refused:
            self.told.append(f"{refused} {refused.asked} {refused.remaining} {refused.scope}")
        self.told.append(str(self._eve.budget()))
        self.told.append(str([line.model_copy(update={"at": "", "answer": None}) for line in self._eve.history()]))


def told(engine: Any, turns: list[Any]) -> tuple[list[str], list[str]]:
    """What eve is told where bob asks what he likes, and where he asks the whole table, and nothing else, for the same totals."""
    real, plain = World(engine), World(engine)
    for others, *own in turns:
        grown = sum((real.bob(*question) for question in others), Epsilon(0))
        if grown:
            assert plain.bob(WHOLE, grown) == grown
        real.eve(*own)
        plain.eve(*own)
    for world in (real, plain):
        world.ledger.close()
    return real.told, plain.told


@given(turns=TURNS)
@settings(max_examples=60)
def test_only_the_sum_of_the_others_is_told(engine: Any, turns: list[Any]) -> None:
    """Whatever bob asks, of which parts and at which losses: budgets, previews, refusals and the history tell eve his total alone."""
    real, plain = told(engine, turns)
    assert real == plain
