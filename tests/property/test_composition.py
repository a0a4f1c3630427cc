# SPDX-License-Identifier: Apache-2.0
"""Spending: any interleaving of requests over nested partitions costs what the recursion says, and never passes the grant."""

from __future__ import annotations

import math
import random as public_random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pinq.errors import BudgetExceeded, QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import WireParts
from pinq.language.specs import Cross, Cuts, Groups, Shards, Values, bind
from pinq.ledger.composition import Costs, Demand
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import SNAPSHOT_EVENTS
from pinq.public.epsilon import NANO, Epsilon
from pinq.public.schema import Schema
from tests.support.oracles.tabulation import cost, disjoint

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "s": {"type": "categorical", "values": ["f", "m"]},
        "j": {"type": "categorical", "values": ["a", "b", "c"], "nullable": True},
        "x": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
    },
)
SPECS: list[Any] = [
    Values("s"),
    Values("j"),
    Cuts("x", (5,)),
    Cuts("x", (2, 7)),
    Groups("j", (("a",), ("b", None))),
    Shards(3),
    Shards(3, 1),
    Cross((Values("s"), Cuts("x", (5,)))),
]
PARTITIONS = [bind(spec, SCHEMA) for spec in SPECS]
WHOLE = PartSet([Block(Part())])


@st.composite
def collections(draw: Any) -> PartSet:
    """A frontier as analysts make them: split, keep some, split each by its own or all by one, join again."""
    parts, put_aside = WHOLE, []
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()) or len(parts) > 6:
            parts = parts.split(draw(st.sampled_from(PARTITIONS)))
        else:
            parts = parts.split_each([draw(st.sampled_from(PARTITIONS)) for _ in range(len(parts))])
        chosen = draw(st.lists(st.integers(0, len(parts) - 1), unique=True, min_size=1, max_size=6))
        if draw(st.booleans()):
            rest = sorted(set(range(len(parts))) - set(chosen))
            if rest and draw(st.booleans()):
                put_aside.append(parts.take(np.array(rest[:3])))
            parts = parts.take(np.array(chosen))
        if len(parts) > 30:
            break
    return PartSet.union([parts, *put_aside]) if put_aside else parts


REQUESTS = st.lists(st.tuples(collections(), st.integers(1, 50)), min_size=1, max_size=8)


@given(REQUESTS)
@settings(max_examples=200)
def test_spent_is_the_recursion(requests: list[tuple[PartSet, int]]) -> None:
    """After each request the incremental state equals the recursion over everything asked so far, and the price was the difference."""
    costs = Costs()
    for number, (parts, epsilon) in enumerate(requests, start=1):
        demand = Demand.of(parts)
        before, price = costs.spent, costs.price(demand, Epsilon(epsilon))
        assert costs.charge(demand, Epsilon(epsilon)) == price == costs.spent - before
        assert costs.spent == Epsilon(cost(requests[:number]))
        assert price <= Epsilon(epsilon), "disjoint parts cost no more than one of them"


@given(REQUESTS, st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_order_does_not_matter(requests: list[tuple[PartSet, int]], random: public_random.Random) -> None:
    """The same set of requests costs the same in every order, and whatever the order of a request's parts."""
    shuffled = []
    for parts, epsilon in random.sample(requests, len(requests)):
        order = list(range(len(parts)))
        random.shuffle(order)
        shuffled.append((parts.take(np.array(order)), epsilon))
    spent = []
    for asked in (requests, shuffled):
        costs = Costs()
        for parts, epsilon in asked:
            costs.charge(Demand.of(parts), Epsilon(epsilon))
        spent.append(costs.spent)
    assert spent[0] == spent[1]


@given(REQUESTS, st.integers(1, 120), st.integers(1, 120))
@settings(max_examples=120)
def test_the_ledger_never_passes_grant_or_cap(requests: list[tuple[PartSet, int]], limit: int, cap: int) -> None:
    """Two analysts interleaved: each stays within the grant, both together within the cap, refused requests cost
    nothing, and a request is refused only if it would not fit. The union, which is what all answers cost, never passes the cap.
    """
    ledger = Ledger("sqlite://", "d")
    ledger.declare("x", Epsilon(cap), {})
    answered: dict[str, list[tuple[PartSet, int]]] = {"a": [], "b": []}
    for name in answered:
        ledger.grant(name, Epsilon(limit))
    for number, (parts, epsilon) in enumerate(requests):
        name = "ab"[number % 2]
        mine = cost([*answered[name], (parts, epsilon)])
        everyone = mine + cost(answered["ba"[number % 2]])
        try:
            ledger.charge(name, f"r{number}", Demand.of(parts), Epsilon(epsilon))
            answered[name].append((parts, epsilon))
            assert mine <= limit
            assert everyone <= cap
        except BudgetExceeded as refusal:
            assert mine > limit if refusal.scope == "analyst" else everyone > cap
            assert refusal.asked > refusal.remaining
        assert ledger.grants()[name].spent == Epsilon(cost(answered[name])) <= Epsilon(limit)
        union, total = cost([*answered["a"], *answered["b"]]), cost(answered["a"]) + cost(answered["b"])
        assert ledger.together().spent == Epsilon(total) <= Epsilon(cap)
        assert union <= total
    ledger.verify()
    ledger.close()


def test_reopening_gives_the_same_numbers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A second process's view of the file, and a replay from scratch, agree with the one that charged, for any requests."""

    @given(REQUESTS)
    @settings(max_examples=15)
    def check(requests: list[tuple[PartSet, int]]) -> None:
        file = tmp_path_factory.mktemp("reopen") / "l.ledger"
        first = Ledger(file, "d")
        first.declare("x", Epsilon.of(1), {})
        first.grant("a", Epsilon.of(1))
        other = Ledger(file, "d")
        for number, (parts, epsilon) in enumerate(requests):
            (first, other)[number % 2].charge("a", f"r{number}", Demand.of(parts), Epsilon(epsilon))
        views = [first, other, Ledger(file, "d")]
        views[0].verify()
        assert (
            {view.grants()["a"].spent for view in views}
            == {view.together().spent for view in views}
            == {Epsilon(cost(requests))}
        )
        assert first.grants()["a"].costs.part == views[2].grants()["a"].costs.part
        for view in views:
            view.close()

    check()


@given(collections())
def test_a_demand_survives_the_log(parts: PartSet) -> None:
    """What the log keeps of a request is what was charged."""
    demand = Demand.of(parts)
    assert Demand.load(demand.dump()) == demand


@given(collections())
def test_parts_survive_the_wire(parts: PartSet) -> None:
    """A request's parts, bound again on the other side, are the same parts in the same order and shape, at the same price."""
    wire = WireParts.model_validate_json(WireParts.of(parts).model_dump_json())
    back = wire.bind(SCHEMA)
    assert [part.key for part in back] == [part.key for part in parts]
    assert back.shape == parts.shape
    assert Demand.of(back) == Demand.of(parts)


@given(st.lists(collections(), min_size=1, max_size=4))
@settings(max_examples=200)
def test_only_disjoint_parts_can_be_joined(sets: list[PartSet]) -> None:
    """``union`` accepts a collection exactly when every two of its parts part ways at one partition."""
    joined = PartSet([block for parts in sets for block in parts.blocks])
    if disjoint(joined):
        PartSet.union(sets)
    else:
        with pytest.raises(QueryError, match="not disjoint"):
            PartSet.union(sets)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, len(PARTITIONS) - 1), st.integers(0, 3), st.booleans()), max_size=5
    )
)
@settings(max_examples=300)
def test_forged_collections_are_checked_too(steps: list[tuple[int, int, int, bool]]) -> None:
    """Any tree of parts and blocks on the wire, however odd, passes exactly when its parts are disjoint."""
    nodes, asked = list[tuple[int, int, int]](), list[tuple[int, int]]()
    for parent, spec, index, whole in steps:
        parent, index = min(parent, len(nodes)), min(index, PARTITIONS[spec].size - 1)
        nodes.append((parent, spec, index))
        asked.append((len(nodes), (spec + 1) % len(PARTITIONS) if whole else -1))
    size = sum(1 if spec < 0 else PARTITIONS[spec].size for _, spec in asked)
    wire = WireParts(specs=tuple(SPECS), nodes=tuple(nodes), asked=tuple(asked), shape=(size,))
    made = [Part()]
    for parent, spec, index in nodes:
        made.append(Part(made[parent], PARTITIONS[spec], index))
    parts = PartSet([Block(made[node], None if spec < 0 else PARTITIONS[spec]) for node, spec in asked])
    if disjoint(parts):
        assert [part.key for part in wire.bind(SCHEMA)] == [part.key for part in parts]
    else:
        with pytest.raises(QueryError, match="not disjoint"):
            wire.bind(SCHEMA)


# Rounding


@given(st.decimals(min_value=Decimal("1e-9"), max_value=10**6, places=15))
def test_rounding_never_charges_less(epsilon: Decimal) -> None:
    """A charge is at least what was asked, by less than one nano-epsilon; its text form reads back as the same charge."""
    loss = Epsilon.of(epsilon)
    assert Fraction(epsilon) <= loss.exact < Fraction(epsilon) + Fraction(1, NANO)
    assert Epsilon.of(str(loss)) == Epsilon.of(loss) == loss
    assert Epsilon.of(Fraction(epsilon)) == Epsilon.of(str(epsilon)) == loss
    assert (Epsilon.of(epsilon).nano, Epsilon(loss.nano).exact, str(Epsilon(loss.nano))) == (
        loss.nano,
        loss.exact,
        str(loss),
    )


@given(st.floats(min_value=1e-9, max_value=10**6))
def test_floats_are_read_as_they_are_written(epsilon: float) -> None:
    """A float means its shortest decimal form, rounded up: 0.1 is a tenth and not the binary number above it."""
    assert (
        Epsilon.of(epsilon).nano
        == Epsilon.of(np.float64(epsilon)).nano
        == Epsilon.of(repr(epsilon)).nano
        == math.ceil(Fraction(Decimal(repr(epsilon))) * NANO)
    )


@given(
    st.one_of(
        st.floats(max_value=0),
        st.floats(min_value=1.1e6),
        st.sampled_from(
            [
                math.nan,
                math.inf,
                -math.inf,
                True,
                None,
                "",
                "x",
                "nan",
                "inf",
                "-1",
                "1e999999999",
                b"1",
                [1],
                1j,
                Decimal("sNaN"),
                np.bool_(True),
                np.nan,
            ]
        ),
    )
)
def test_what_is_not_a_loss_is_refused(epsilon: object) -> None:
    """NaN, infinities, zero, negative numbers, truth values and things that are no numbers never become a charge."""
    with pytest.raises(
        QueryError, match=r"^`epsilon` is .*; it must be a finite number greater than 0 and at most 1000000\.$"
    ):
        Epsilon.of(epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize("file", [False, True], ids=["memory", "file"])
def test_ten_thousand_small_charges_fit_exactly(file: bool, tmp_path: Path) -> None:
    """10,000 charges of 0.0001 on a grant of 1 all succeed, and the next one is refused."""
    many = 1000 if file else 10_000
    ledger = Ledger(tmp_path / "l.ledger" if file else "sqlite://", "d")
    ledger.declare("x", Epsilon.of(10), {})
    ledger.grant("a", Epsilon.of(Fraction(many, 10_000)))
    demand, epsilon = Demand.of(WHOLE), Epsilon.of(0.0001)
    for number in range(many):
        assert ledger.charge("a", f"r{number}", demand, epsilon) == (None, None)
    assert ledger.grants()["a"].remaining == Epsilon(0)
    with pytest.raises(BudgetExceeded, match=rf"cost epsilon 0\.0001; 0 of {many * epsilon} remains"):
        ledger.charge("a", "one more", demand, epsilon)
    assert ledger.verify() == many + 4 + many // SNAPSHOT_EVENTS
    ledger.close()


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.integers(1, 50))
def test_losses_add_up_exactly(first: int, other: int, many: int) -> None:
    """Losses are compared, added and multiplied as whole numbers; equal shares never add up to more than the loss."""
    loss, more = Epsilon(first), Epsilon(other)
    assert (loss + more).exact == loss.exact + more.exact
    assert (loss - more).exact == loss.exact - more.exact
    assert (many * loss).exact == (loss * many).exact == many * loss.exact
    assert 0 <= (loss - loss // many * many).nano < many
    assert loss.per_row(many) * many == loss.exact == Fraction(str(loss))
    assert (loss < more, loss == more, bool(loss)) == (first < other, first == other, first != 0)
    with pytest.raises(TypeError):
        loss + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        loss * 0.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        loss < 1  # type: ignore[operator]  # noqa: B015


def test_three_tenths_are_three_tenths() -> None:
    """Three charges of 0.1 fit a grant of 0.3, which three binary floats would not."""
    ledger = Ledger("sqlite://", "d")
    ledger.declare("x", Epsilon.of(1), {})
    ledger.grant("a", Epsilon.of(0.3))
    for number in range(3):
        ledger.charge("a", f"r{number}", Demand.of(WHOLE), Epsilon.of(0.1))
    assert ledger.grants()["a"].remaining == Epsilon(0)
    ledger.close()
