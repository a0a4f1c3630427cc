# SPDX-License-Identifier: Apache-2.0
"""Work is priced by public facts, before it is charged."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import (
    AnyCross,
    AnyCut,
    AnyGrouping,
    Cross,
    Cuts,
    Gradient,
    Groups,
    InfoGain,
    Logistic,
    Points,
    QueryError,
    Shards,
    Softmax,
    Values,
)
from pinq.curator.candidates.selection import Selection
from pinq.curator.deadline import Deadline, Stopped
from pinq.curator.mechanisms import AT_ONCE, laplace
from pinq.curator.monitor import Curator
from pinq.curator.prepared import MAX_SHARDINGS, PreparedQuery
from pinq.curator.price import COIN, NAMED, SCORING, SHARD, UNIT, checking_work, drawing_work, units
from pinq.engine import open_engine
from pinq.engine.codes import RowBlock
from pinq.engine.counting import Counts, count_request
from pinq.engine.rows import Rows
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Request, WireParts
from pinq.language.specs import Axis, Candidate, Spec, bind, bipartitions
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.opening import declare
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

COLUMNS: dict[str, Any] = {
    "letter": {"type": "categorical", "values": [f"v{i}" for i in range(16)]},
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}


def _curator(frame: pd.DataFrame, max_work: int) -> Curator:
    policy = Policy.model_validate({"dataset": "d", "cap": 100, "max_rows": 1000, "columns": COLUMNS})
    engine, _ = open_engine(policy, data=frame, salt=b"")
    ledger = Ledger("sqlite://", policy.dataset)
    declare(policy, ledger, may_raise=True)
    ledger.grant("ana", Epsilon.of("100"))
    return Curator(policy.schema_, ledger, engine, max_work=max_work)


def _frame(rows: int) -> pd.DataFrame:
    every = range(rows)
    return pd.DataFrame(
        {
            "letter": [f"v{i % 16}" for i in every],
            "sex": [("Female", "Male")[i % 2] for i in every],
            "age": [i % 100 for i in every],
            "income": [("<=50K", ">50K")[i % 3 == 0] for i in every],
        }
    )


def _choice(*candidates: Candidate, verb: str = "a") -> Request:
    return Request(
        id=verb, verb="exp_mech", epsilon="0.000000001", score=InfoGain("income"), candidates=(tuple(candidates),)
    )


@pytest.mark.parametrize("rows", [0, 900])
def test_what_is_refused_for_its_work_names_price_and_limit_and_follows_no_row(rows: int) -> None:
    """The same text whatever the rows are, and nothing is spent."""
    curator = _curator(_frame(rows), 2_000)
    with pytest.raises(QueryError) as refused, curator.refusing("ana", "exp_mech"):
        curator.ask("ana", _choice(*(AnyGrouping("letter", seed=seed) for seed in range(200))))
    assert "this would take 3," in str(refused.value)
    assert "allows 2,000 for one request" in str(refused.value)
    assert refused.value.charged == Fraction(0)
    assert curator.ledger.accounts()["ana"].spent.nano == 0
    curator.ask("ana", _choice(AnyGrouping("letter")))


def test_previews_refuse_what_a_question_would_be_refused_for() -> None:
    """A preview counts nothing, but says beforehand that asking would be too much work, or even reading what is asked."""
    curator = _curator(_frame(10), 100)
    curator.preview("ana", _choice(AnyGrouping("sex")))
    for count in (200, 20_000):
        with pytest.raises(QueryError, match="units of work"):
            curator.preview("ana", _choice(*(AnyGrouping("letter", seed=seed) for seed in range(count))))


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ([AnyGrouping("sex")], [AnyGrouping("letter")]),
        ([AnyCut("age")], [AnyCut("age"), Values("sex")]),
        ([AnyCross((Values("sex"),), 1)], [AnyCross((Values("sex"), Values("letter")), 1)]),
    ],
)
def test_more_members_never_cost_less(less: list[Candidate], more: list[Candidate]) -> None:
    """A price grows with what it is for."""
    curator = _curator(_frame(10), 10**9)
    prices = [curator._validate(_choice(*candidates), Deadline()).prepared.scored for candidates in (less, more)]
    assert prices[0] <= prices[1]


def test_sums_of_derivatives_cost_what_they_look_up_and_add() -> None:
    """More specs of the points, more specs to sum by, more classes: a higher price, and one that is refused."""
    curator = _curator(_frame(10), 500)

    def price(points: Points, *by: Spec, target: str = "sex") -> int:
        codes = curator.schema.categorical(target).codes
        request = Request(id="d", verb="noisy_sum", epsilon="1", column=Softmax(target, (points,) * codes), by=by)
        return curator._validate(request, Deadline()).counting

    few, many = (
        Points((Values("sex"),), ((1, 2),)),
        Points(tuple(Cuts("age", (age,)) for age in range(1, 99)), ((1, 2),) * 98),
    )
    assert price(few, Values("sex")) < price(many, Values("sex")) < price(many, *[Values("sex")] * 90)
    assert price(many, Values("sex")) < price(many, Values("sex"), target="letter")
    loss = Softmax("letter", (many,) * 16)
    dear = Request(id="d", verb="noisy_sum", epsilon="1", column=loss, by=(Values("sex"),) * 4000)
    with pytest.raises(QueryError, match="units of work"):
        curator.ask("ana", dear)


def _reading_shards(named_in: str, specs: list[Shards], curator: Curator) -> PreparedQuery:
    """What a request prepares that names shards in one of the ways there are."""
    points = Points(tuple(specs), ((1, 1),) * len(specs)) if named_in == "points" else Points()
    request = Request(
        id="s",
        verb="noisy_sum",
        epsilon="1",
        column=Softmax("sex", (points,) * 2),
        by=tuple(specs) if named_in == "by" else None,
    )
    if named_in == "parts":
        letters = PartSet([Block(Part())]).split(bind(Values("letter"), curator.schema))
        parts = PartSet([Block(letters.at(number), bind(spec, curator.schema)) for number, spec in enumerate(specs)])
        request = Request(id="s", verb="noisy_count", epsilon="1", parts=WireParts.of(parts))
    return curator._validate(_choice(*specs) if named_in == "candidates" else request, Deadline()).prepared


@pytest.mark.parametrize("named_in", ["parts", "candidates", "by", "points"])
def test_each_key_of_shards_costs_a_hash_of_each_row(named_in: str) -> None:
    """Keys and counts are priced by declared rows wherever they are named, and the same one once."""
    curator, rows = _curator(_frame(10), 10**9), 10**6

    def price(*keys: int) -> int:
        return _reading_shards(named_in, [Shards(2, key) for key in keys], curator).work(rows, Fraction(1))

    hashed, coins = SHARD * rows // UNIT, COIN * rows // UNIT
    assert price(*range(5)) - price(*[0] * 5) >= 4 * hashed
    assert hashed + coins <= price(0) < 2 * hashed + coins  # the coins too, whoever had them made before


@pytest.mark.parametrize("named_in", ["candidates", "by", "points"])
def test_a_request_reads_so_many_keys_of_shards_at_most(named_in: str) -> None:
    """One more is refused before anything is hashed or charged."""
    curator = _curator(_frame(10), 10**9)
    specs = [Shards(2, key) for key in range(MAX_SHARDINGS)]
    _reading_shards(named_in, specs, curator)
    with pytest.raises(QueryError, match="shards of 65 keys and counts; at most 64"):
        _reading_shards(named_in, [*specs, Shards(2, MAX_SHARDINGS)], curator)


def test_what_points_look_at_has_a_price_wherever_they_stand() -> None:
    """The specs of a loss's points are read when a request is checked, and looked up for every row that is counted."""
    curator = _curator(_frame(10), 10**6)
    crosses = tuple(Cross((Cuts("age", (age,)), Values("letter"))) for age in range(1, 99))
    few, many = Points(crosses[:1], ((0,) * 32,)), Points(crosses, ((0,) * 32,) * len(crosses))

    def prices(points: Points) -> tuple[int, ...]:
        loss = Logistic("sex", ("Male",), points)
        candidates = ((Values("letter"),),)
        asked = Request(id="d", verb="noisy_sum", epsilon="1", column=loss)
        chosen = Request(id="d", verb="exp_mech", epsilon="1", score=Gradient(loss), candidates=candidates)
        work = [curator._validate(request, Deadline()) for request in (asked, chosen)]
        rows = 10**6
        return *(own.checking for own in work), *(
            own.prepared.work(rows, own.per_row) - own.prepared.work(0, own.per_row) for own in work
        )

    for low, high in zip(prices(few), prices(many), strict=True):
        assert high > 5 * low
    assert prices(many)[2] >= 8 * (196 + 98 + 2)  # nanoseconds for a row: axes, terms and entries


def test_points_look_at_so_many_axes_and_no_more() -> None:
    """Distinct ones: each takes time and memory for every row."""
    schema = _curator(_frame(10), 10**6).schema
    crosses = [Cross((Cuts("age", (age,)), Groups("letter", ((f"v{i}",),)))) for i in range(3) for age in range(1, 99)]
    Logistic("sex", ("Male",), Points(tuple(crosses[:256]), ((0, 0),) * 256)).check(schema)
    with pytest.raises(QueryError, match="look at 514 axes"):
        Logistic("sex", ("Male",), Points(tuple(crosses[:257]), ((0, 0),) * 257)).check(schema)


@pytest.mark.parametrize(
    ("verb", "column", "numbers"),
    [
        ("noisy_count", None, 1),
        ("noisy_sum", "age", 1),
        ("noisy_avg", "age", 2),
        ("noisy_sum", Softmax("letter", (Points(),) * 16), 16),
    ],
)
def test_every_number_that_gets_noise_is_paid_for(verb: Any, column: Any, numbers: int) -> None:
    """Whatever the parts take beside them."""
    curator = _curator(_frame(10), 10**6)
    parts = WireParts(specs=(Values("age"),), asked=((0, 0),), shape=(100,))
    request = Request(id="n", verb=verb, epsilon="0.001", column=column, parts=parts)
    query = curator._validate(request, Deadline()).prepared
    assert query.draws == 2 * numbers
    for scale in (1, 10**3, 2**90):
        assert query.work(0, Fraction(1, scale)) >= units(drawing_work(100 * 2 * numbers, Fraction(scale)))


def test_a_draw_costs_more_the_more_digits_it_has() -> None:
    """As many as its scale has in base 64, and twice as much each where numbers are Python's; none costs nothing."""
    assert drawing_work(0, Fraction(2**90)) == 0
    prices = [drawing_work(10**6, Fraction(2**bits)) for bits in (0, 6, 12, 48, 54, 90)]
    assert prices == sorted(set(prices))
    assert prices[-1] > 30 * prices[0]


def test_noise_looks_at_the_turn_between_draws() -> None:
    """So many numbers at a time; each gets noise of its own."""
    looked: list[int] = []
    noisy = laplace(np.full((3, AT_ONCE), 10**15), 1, Fraction(1), lambda: looked.append(1))
    assert noisy.shape == (3, AT_ONCE)
    assert len(looked) == 3
    assert np.abs(noisy - 10**15).max() < 100
    assert len(np.unique(noisy)) > 10
    deadline = Deadline()
    deadline.stop()
    with pytest.raises(Stopped):
        laplace(np.zeros(3, dtype=np.int64), 1, Fraction(1), deadline.check)


@pytest.mark.parametrize("at_once", [1, 7, 2**22])
def test_what_is_summed_is_computed_for_some_rows_at_a_time(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are the same, each row is looked up once along each axis, and the turn is looked at in between."""
    monkeypatch.setattr("pinq.engine.counting.NUMBERS_AT_ONCE", at_once)
    schema = _curator(_frame(10), 1).schema
    points = Points((Values("sex"), Cuts("age", (30,))), ((-100, 50), (7, 90)))
    loss = Logistic("income", (">50K",), points).vectors(schema)
    request = count_request(PartSet([Block(Part())]), measure=loss, schema=schema)
    columns = {"sex": [0, 1] * 10, "age": [*range(20, 40)], "income": [1, 0, 0, 1] * 5}
    block = RowBlock({name: np.array(own, dtype=np.uint8) for name, own in columns.items()}, 20)
    looked, places = [], Rows.places

    def counted(rows: Rows, axis: Axis) -> np.ndarray:
        looked.append(len(rows.node))
        return places(rows, axis)

    monkeypatch.setattr(Rows, "places", counted)
    counts, checks = Counts(request), list[int]()
    counts.add(request.divide(Rows.of(block, request.places)), check=lambda: checks.append(1))
    assert sum(looked) == 3 * 20
    assert len(checks) == -(-20 // request.rows_at_once)
    assert request.rows_at_once <= max(1, at_once // 3)
    vectors = loss.of([places(Rows.of(block, request.places), axis) for axis in loss.inputs])
    assert np.array_equal(np.asarray(counts.tables()[0])[0], vectors.sum(axis=1))


def test_a_forged_shape_has_a_price_like_any_other() -> None:
    """A shape that no collection has is refused for being wrong, whatever number it makes."""
    curator = _curator(_frame(10), 10**6)
    for shape in ((10**400,), (-5,), (0,)):
        request = Request(id="s", verb="noisy_count", epsilon="0.1", parts=WireParts(shape=shape))
        with pytest.raises(QueryError, match="shape"):
            curator.ask("ana", request)


@pytest.mark.parametrize("count", [2, 9, 13, 14, 16, 17, 64, 65, 200])
def test_groupings_are_the_draws_that_they_always_were(count: int) -> None:
    """The arrays have the members that one draw after the other gives, in that order."""
    masks: dict[int, None] = dict.fromkeys(range(1, 2 ** (count - 1))) if count <= 13 else {}
    draw = 0
    while count > 13 and len(masks) < 4096:
        text = f"letter\x003\x00{draw}".encode()
        drawn = int.from_bytes(hashlib.shake_256(text).digest((count + 7) // 8), "big") % 2 ** (count - 1)
        masks |= {drawn: None} if drawn else {}
        draw += 1
    octets = [list(mask.to_bytes((count + 7) // 8, "little")) for mask in masks]
    assert bipartitions("letter", 3, count).tolist() == octets


def test_cuts_of_a_fine_grid_cost_by_rows_however_many_parts_share_them() -> None:
    """Disjoint parts have no more rows together than the table: a level of a tree costs about what its root does."""
    columns = {**COLUMNS, "age": {**COLUMNS["age"], "upper": 10**6}}
    schema = Schema.model_validate({"columns": columns, "max_rows": 1000})
    score = InfoGain("income")

    def price(parts: int, *candidates: Candidate) -> int:
        split = bind(Cuts("age", tuple(range(10, 10 * parts, 10))), schema)
        return Selection(schema, PartSet([Block(Part(), split)]), score, [candidates], [0]).cells

    root, level = price(2, AnyCut("age")), price(64, AnyCut("age"))
    assert root < level < 2 * root + 128 * SCORING
    assert price(64, AnyCut("age"), AnyCut("age")) == 2 * level  # scored twice


def test_what_a_spec_lists_is_priced_before_it_is_bound() -> None:
    """A cut of a hundred thousand points takes a second to check, a Cross or group of them as long: each point and value counts."""
    schema = Schema(max_rows=1000, columns={**COLUMNS, "age": {"type": "numeric", "lower": 0, "upper": 10**5}})
    points = tuple(range(1, 10**5))
    bare, listed = (Cuts("age", own) for own in ((50_000.0,), points))
    groups = Groups("letter", (tuple(f"v{i}" for i in range(16)),))

    def price(*candidates: Candidate) -> int:
        asked = Request(id="a", verb="exp_mech", epsilon="1", score=InfoGain("income"), candidates=(candidates,))
        return checking_work(asked, schema)

    for spec in (listed, Cross((listed, Values("sex"))), AnyCross((listed, Values("sex")), 1)):
        assert price(spec) - price(bare) >= NAMED * len(points) // UNIT
    assert price(*[groups] * 100) - price(*[Values("letter")] * 100) == NAMED * 16 * 100 // UNIT
