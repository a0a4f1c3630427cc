# SPDX-License-Identifier: Apache-2.0
"""All possible requests, from the catalogues, so that tests include each later spec, family, loss and score."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, cast, get_args

from pinq import (
    AnyCross,
    AnyCut,
    AnyGrouping,
    Calendar,
    Cross,
    Cuts,
    Groups,
    Logistic,
    Misfit,
    Points,
    Products,
    Ranges,
    Residuals,
    Shards,
    Softmax,
    Values,
)
from pinq.language import products, scores, specs
from pinq.language.queries import Request, WireParts
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.catalogue import scores_on

CATALOGUES = ({kind.kind: kind for kind in get_args(specs.Candidate)}, products.VECTORS, scores.SCORES)
SPECS = [
    Values("job"),
    Cuts("age", (50,)),
    Groups("job", (("clerk", None), ("nurse", "smith"))),
    Ranges("age", (((None, 30), None), ((40, 50), (60, None)))),
    Calendar("age", "year"),
    Shards(2),
    Cross((Values("sex"), Cuts("age", (50,)))),
]
FAMILIES = [
    AnyCut("age"),
    AnyGrouping("job"),
    AnyCross((Values("job"), Cuts("age", (50,)), Values("sex")), 1),
    AnyCross((Values("job"), Cuts("age", (50,))), 2),
]
POINTS = Points((Values("job"), Cuts("age", (50,))), ((1, 2, 3, 4), (-5, 5)))
DERIVATIVES = [
    Logistic("income", (">50K",), POINTS),
    Softmax("income", (Points(), POINTS), hessian=True),
    Residuals("age", Points((Values("sex"),), ((-9, 9),)), limit=20),
    Residuals("age", POINTS, limit=20, rows=False),
]
PRODUCTS = [Products(("age", "job")), Products(("age",), missing=True), Products(("job",), pairs="sums", limit=0.5)]
_TARGETS = Schema(
    max_rows=100,
    columns={"income": Categorical(values=("<=50K", ">50K")), "age": Numeric(lower=17, upper=90, integer=True)},
)
_EVERY = [
    score
    for kind in scores.SCORES.values()
    for score in scores_on(kind, _TARGETS, losses=DERIVATIVES, spec=Cuts("age", (50,)), within=(20, 60))
]
ALONE = [score for score in _EVERY if not isinstance(score, scores.Score)]
"""Scores that take no candidates."""
LISTED = [score for score in _EVERY if isinstance(score, Misfit)]
"""Scores that list their candidates."""
SCORES = [score for score in _EVERY if score not in (*ALONE, *LISTED)]


def kinds() -> set[type]:
    """Every class of specs, families, losses and scores."""
    return {kind for catalogue in CATALOGUES for kind in catalogue.values()}


def named(request: Request) -> set[str]:
    """The columns that a request's text names."""
    found: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.update(value.get("names", ()))
            found.update(value[key] for key in ("column", "target") if isinstance(value.get(key), str))
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            look(inner)

    look(json.loads(request.to_json()))
    return found


def requests() -> Iterator[Request]:
    """A request of each verb for each spec, family and score, alone and together; some of them are refused."""
    number = itertools.count()

    def made(verb: Any, **fields: Any) -> Request:
        return Request(id=f"asked-{next(number)}", verb=verb, epsilon="0.001", **fields)

    for spec in cast(list[Any], SPECS):
        below = WireParts(specs=(spec,), nodes=((0, 0, 0),), asked=((1, -1),))
        yield made("noisy_count", parts=below)
        yield made("noisy_sum", parts=below, column="age")
        yield made("noisy_avg", parts=below, column="age")
        yield made("noisy_avg", parts=below, column="age", within=(20, 60))
        for loss in (*DERIVATIVES, *PRODUCTS):
            yield made("noisy_sum", parts=below, column=loss)
            yield made("noisy_sum", column=loss, by=(spec, Values("sex")))
    for score in ALONE:
        yield made("exp_mech", score=score)
    for score in LISTED:
        yield made("exp_mech", score=score, candidates=(score.specs,))
    for candidate, score in itertools.product([*SPECS, *FAMILIES], SCORES):
        yield made("exp_mech", score=score, candidates=((candidate,),))
