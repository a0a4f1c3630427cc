# SPDX-License-Identifier: Apache-2.0
"""A limit that everybody can foresee refuses a fit before its first charge: no miner spends, and then fails for a public reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from miners.federated import topdown
from miners.growth import frontier
from miners.growth.candidates import random_split
from pinq import Categorical, Numeric, Schema
from pinq.curator.price import MAX_WORK
from pinq.errors import NotAllowed, QueryError
from pinq.language import queries
from pinq.language.queries import Answer, Request
from pinq.language.scores import EnoughRows
from pinq.ledger.events import Terms
from tests.support.house.assurance import ASSURANCE
from tests.support.requests.catalogue import MINERS, Form
from tests.support.requests.handles import ledger_of, simulated

pytestmark = pytest.mark.filterwarnings("ignore::miners.FitWarning")

NODES = 128  # that a request may name; what is scarce decides, and 65,536 of them take minutes
TARGETS = {"classes": "y", "means": "z", "distances": "y", "components": "y", "rows": "y"}
BOUNDS: dict[str, tuple[Any, ...]] = {  # both ends, as the docstrings of the miners have them
    "n_estimators": (1, NODES // 2),  # of 1,000 as of 65,536 nodes
    "max_depth": (0, 60),
    "max_features": (1,),
    "bins": (2, 4096),
    "stopping": (0.001, 0.999),
    "rows": ("all",),
    "max_nodes": (1, NODES),
    "at_once": (1, NODES),
    "max_attributes": (1, 10_000),
    "steps": (0, 200),
    "k": (1, 60),
    "n_components": (1,),
    "certainty": (None,),
}


def schema(columns: int = 4, classes: int = 3, values: int = 5, points: int = 1001) -> Schema:
    """Half of the columns are numeric; ``y`` and ``z`` are targets."""
    numbers: dict[str, Any] = {
        f"n{number}": Numeric(lower=0, upper=points - 1, integer=True, nullable=points == 1)
        for number in range(columns // 2)
    }
    texts: dict[str, Any] = {f"c{number}": Categorical(values=tuple(range(values))) for number in range(columns // 2)}
    targets: dict[str, Any] = {
        "y": Categorical(values=tuple(range(classes))),
        "z": Numeric(lower=0, upper=1000, integer=True),
    }
    return Schema(columns={**numbers, **texts, **targets}, max_rows=10**6)


class Adversary:
    """What answers charged requests in place of the table: whatever makes most nodes, and largest ones."""

    def __init__(self, declared: Schema) -> None:
        self.schema, self.asked, self.random = declared, 0, np.random.default_rng(0)

    def answer(self, request: Request, *_: Any) -> tuple[Answer, str]:
        """The answer and its text, as ``Curator._answer`` has them."""
        self.asked += 1
        answer = self.answered(request)
        return answer, answer.text

    def answered(self, request: Request) -> Answer:
        """The answer to a request."""
        rows, own = self.schema.max_rows, dict[str, Any](id=request.id, verb=request.verb, epsilon=request.epsilon)
        if request.verb != "exp_mech":
            values = (rows,) * math.prod((*request.parts.shape, *request.query.shape(self.schema)))
            weights = tuple(map(float, values)) if request.verb == "noisy_avg" else None
            return Answer(**own, values=values, rows=weights, scale=1.0, grid=1.0)
        parts = [*request.parts.bind(self.schema)]
        score: Any = request.query.score  # type: ignore[attr-defined]
        if isinstance(score, EnoughRows):
            return Answer(**own, values=tuple(part.depth - score.above for part in parts))
        if not request.candidates:
            return Answer(**own, values=(0,) * len(parts))
        chosen = [self.chosen(request, number, part) for number, part in enumerate(parts)]
        specs = [*dict.fromkeys(spec for each in chosen for spec in each if spec is not None)]
        places = {None: -1} | {spec: place for place, spec in enumerate(specs)}
        return Answer(**own, values=tuple(places[spec] for each in chosen for spec in each), chosen=tuple(specs))

    def chosen(self, request: Request, number: int, part: Any) -> list[Any]:
        """The widest candidate of a part, or a member of each."""
        lists: Any = request.candidates
        offered = lists[request.which[number if len(request.which) > 1 else 0]]
        if not request.each:
            offered = (max(offered, key=lambda candidate: candidate.max_parts(self.schema)),)
        return [each.as_spec or random_split(self.schema, [*each.columns()], part, self.random) for each in offered]


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each miner with each parameter at its upper bound, and with all at the lower or upper ones."""
    for name, kind in MINERS.items():
        bounds = {param: ends for param, ends in BOUNDS.items() if param in kind().get_params()}
        single = [{param: ends[-1]} for param, ends in bounds.items()]
        ends = [{param: ends[end] for param, ends in bounds.items() if param != "rows"} for end in (0, -1)]
        yield from ((name, params) for params in (*single, *ends) if params)


def miner_of(name: str, params: dict[str, Any]) -> Any:
    """A miner that is quick where no parameter says otherwise."""
    known = MINERS[name]().get_params()
    quick = {param: value for param, value in (("steps", 2), ("max_nodes", NODES // 2)) if param in known}
    return MINERS[name](**{"epsilon": 10, **quick, **params})


def outcome(
    name: str, params: dict[str, Any], declared: Schema, work: int = MAX_WORK, room: int | None = None
) -> tuple[bool, str]:
    """Whether something was asked, and the refusal of the next request; empty if all were answered."""
    adversary = Adversary(declared)
    with simulated(declared, rows=20, epsilon=10**6) as handle:
        curator = cast(Any, handle)._session._curator
        curator.max_work, curator._answer = work, adversary.answer
        ledger_of(handle).set_terms("simulated", Terms(stored_bytes=room))
        try:
            miner_of(name, params).fit(handle, TARGETS[Form(name).learns])
        except (QueryError, NotAllowed) as refusal:
            return bool(adversary.asked or handle.budget.spent), str(refusal)
    return True, ""


@pytest.fixture(autouse=True)
def few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queries, frontier, topdown):
        monkeypatch.setattr(module, "MAX_NODES", NODES)


@pytest.mark.parametrize(("name", "params"), [*cases()], ids=str)
def test_no_parameter_makes_a_fit_spend_and_fail(name: str, params: dict[str, Any]) -> None:
    """Whatever is refused is refused before anything else is asked."""
    asked, refusal = outcome(name, params, schema())
    assert not (asked and refusal), f"something was charged, then: {refusal}"


SCHEMAS = [{"columns": 20}, {"classes": 30}, {"classes": 100}, {"values": 2000}, {"points": 1}]
if ASSURANCE:  # the bounds themselves: a minute on two cores, and the synthesizer
    SCHEMAS += [{"columns": 200}, {"columns": 200, "classes": 100}, {"columns": 2, "values": 65_000}]


@pytest.mark.parametrize("wide", SCHEMAS, ids=str)
@pytest.mark.parametrize("name", [*MINERS])
def test_no_schema_makes_a_fit_spend_and_fail(name: str, wide: dict[str, int]) -> None:
    """Many columns, classes or categories, neither; nor numbers of one value."""
    if name == "Synthesizer" and "columns" in wide:
        wide = wide | {"columns": min(wide["columns"], 20 if ASSURANCE else 8)}  # its hundred rounds take half a minute
    asked, refusal = outcome(name, {}, schema(**wide))
    assert not (asked and refusal), f"something was charged, then: {refusal}"
    try:
        miner_of(name, {}).plan(schema(**wide), TARGETS[Form(name).learns])
    except QueryError:
        assert refusal, "the plan is refused, and the fit is not"
    else:
        assert not refusal, f"the plan is not refused, and the fit is: {refusal}"


@pytest.mark.parametrize("work", [500, 5000])
@pytest.mark.parametrize("name", [*MINERS])
def test_no_limit_of_work_makes_a_fit_spend_and_fail(name: str, work: int) -> None:
    """A request that a provider's limit forbids is asked in pieces, or refused before the first charge."""
    asked, refusal = outcome(name, {}, schema(values=500), work)
    assert not (asked and refusal), f"something was charged, then: {refusal}"


@pytest.mark.parametrize("room", [20_000, 100_000, 400_000])
@pytest.mark.parametrize("name", [*MINERS])
def test_no_limit_of_stored_bytes_makes_a_fit_spend_and_fail(name: str, room: int) -> None:
    """A fit whose answers a ledger might not keep is refused before the first charge, or its trees stay small.

    The refusal's largest number of trees, steps or nodes fits.
    """
    asked, refusal = outcome(name, {}, schema(values=100), room=room)
    assert not (asked and refusal), f"something was charged, then: {refusal}"
    assert not refusal or ("bytes" in refusal and refusal.endswith("Nothing was spent.")), refusal
    if largest := re.search(r"largest `(\w+)` that fits is ([\d,]+)", refusal):
        params = {largest[1]: int(largest[2].replace(",", ""))}
        assert outcome(name, params, schema(values=100), room=room) == (True, "")
        params[largest[1]] += 1
        assert outcome(name, params, schema(values=100), room=room)[1]
