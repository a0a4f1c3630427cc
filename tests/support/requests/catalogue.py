# SPDX-License-Identifier: Apache-2.0
"""Every miner in each of its forms, every score, loss and mechanism: found by introspection, for tests/contract.

A new class is found by its name in ``miners.__all__``, or in the catalogues ``SCORES`` and ``LOSSES`` of the product,
and a new parameter by its name in ``get_params``. Tables here have the facts that these lists lack, and a test fails
for a missing row.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin

from sklearn.base import is_regressor

import miners
from pinq.errors import QueryError
from pinq.language import derivatives, scores
from pinq.language.points import Points
from pinq.language.specs import Cuts, Spec, bind
from pinq.public.schema import Schema

# Parameters that switch a part of an algorithm on, with their values. Parameters of type `Literal` are found by
# introspection.
SWITCHES: dict[str, Any] = {"stopping": 0.4, "budget": "uniform"}
# Needs parties that are connected; see tests/unit/secure/test_secure_topdown.py.
ELSEWHERE = {("strategy", "secure")}
# Small enough for hundreds of fits.
SMALL: dict[str, Any] = {"max_depth": 2, "max_nodes": 7, "n_estimators": 3, "random_state": 1, "steps": 2}

MINERS: dict[str, type[Any]] = {
    name: kind
    for name, kind in ((name, getattr(miners, name)) for name in miners.__all__)
    if inspect.isclass(kind) and hasattr(kind, "plan") and hasattr(kind, "from_json")
}


@dataclass(frozen=True)
class Form:
    """A miner with one choice of algorithm.

    Attributes:
        name: The name of the miner.
        choices: The parameters by which the form differs from the default.
    """

    name: str
    choices: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.choices.items())])

    @property
    def kind(self) -> type[Any]:
        """The class."""
        return MINERS[self.name]

    @property
    def learns(self) -> str:
        """The kind of result: ``classes``, ``means``, ``distances``, ``components`` or ``rows``."""
        if hasattr(self.kind, "components_"):
            return "components"
        if not hasattr(self.kind, "predict"):
            return "distances" if hasattr(self.kind, "pairwise") else "rows"
        return "means" if is_regressor(self.kind()) else "classes"

    def built(self, **params: Any) -> Any:
        """A new, small miner of this form. ``attributes`` are the columns of a miner without a target."""
        known = self.kind().get_params()
        if "attributes" in params and "attributes" not in known:
            params["columns"] = params.pop("attributes")
        small = {name: value for name, value in SMALL.items() if name in known}
        return self.kind(**{"epsilon": 1.0, **small, **self.choices, **params})


def literals_of(kind: type[Any], param: str) -> tuple[Any, ...]:
    """The values of a parameter that is annotated by a ``Literal``; none for any other."""
    annotation = inspect.signature(kind).parameters[param].annotation
    for module in (sys.modules[parent.__module__] for parent in kind.__mro__):
        try:
            resolved = eval(annotation, vars(module)) if isinstance(annotation, str) else annotation
        except NameError:  # of another class's module
            continue
        return get_args(resolved) if get_origin(resolved) is Literal else ()
    raise AssertionError(f"no module of {kind.__name__} knows what {annotation} is")


def alternatives_of(kind: type[Any]) -> dict[str, list[Any]]:
    """For each parameter that chooses between algorithms: its values other than the default."""
    alternatives: dict[str, list[Any]] = {}
    for param, default in kind().get_params().items():
        values = [SWITCHES[param]] if param in SWITCHES else literals_of(kind, param)
        others = [value for value in values if value != default and (param, value) not in ELSEWHERE]
        alternatives |= {param: others} if others else {}
    return alternatives


def forms_of(name: str) -> list[Form]:
    """The default, each alternative alone, and the last ones of all parameters together."""
    alternatives = alternatives_of(MINERS[name])
    single = [Form(name, {param: value}) for param, values in alternatives.items() for value in values]
    last = {param: values[-1] for param, values in alternatives.items()}
    return [Form(name), *single, *([Form(name, last)] if len(last) > 1 else [])]


FORMS: list[Form] = [form for name in MINERS for form in forms_of(name)]

SCORES: dict[str, type[Any]] = {kind.__name__: kind for kind in scores.SCORES.values()}

DERIVATIVES: dict[str, type[Any]] = {kind.__name__: kind for kind in derivatives.LOSSES.values()}


def scores_on(
    kind: type[Any],
    schema: Schema,
    *,
    losses: Sequence[Any] = (),
    spec: Spec | None = None,
    within: tuple[Any, Any] | None = None,
) -> list[Any]:
    """Each form of a kind of score, on each target for which it is defined.

    Args:
        kind: One of ``SCORES``.
        schema: The schema, whose columns are the targets.
        losses: The losses of a score of gradients; by default every loss.
        spec: The candidate of a score that lists its own.
        within: A range of numeric targets, beside their bounds.
    """
    names = {field.name: field.default is MISSING for field in fields(kind)}
    if "target" in names:
        halves = [
            Cuts(name, (column.cut_before(1),)) for name, column in schema.numeric_columns.items() if column.cells > 1
        ]
        made = [kind(target) for target in (*schema.columns, *halves) if _is_right(kind(target), schema)]
        if "within" in names and within is not None:
            made += [kind(score.target, within) for score in made]
        assert made, f"no column is a target of {kind.__name__}"
        return made
    if "share" in names:
        return [kind(), kind(0.25), kind("2/3")]
    if "derivatives" in names:
        every = losses or [loss for each in DERIVATIVES.values() for loss in losses_on(each, schema)]
        return [kind(loss, 0.25) for loss in every]
    if "expected" in names:
        assert spec is not None
        table = tuple(range(3, 40 * bind(spec, schema).size, 40))
        return [kind((spec,), (table,)), kind((spec,), (table,), 5, (50,))]
    return [kind(**{name: 3 for name, needed in names.items() if needed})]


def _is_right(score: Any, schema: Schema) -> bool:
    with suppress(QueryError):
        return scores.require_score(score, schema) is score
    return False


def losses_on(kind: type[Any], schema: Schema, *points: Points) -> list[Any]:
    """Each form of a kind of loss, on each column for which it is defined, with these points in turn."""
    accepted = []
    for target in schema.columns:
        try:
            losses = _losses(kind, target, schema, points or (Points(base=128),))
            for loss in losses:
                loss.check(schema)
        except QueryError:
            continue
        accepted += losses
    assert accepted, f"no column is a target of {kind.__name__}"
    return accepted


def _losses(kind: type[Any], target: str, schema: Schema, points: tuple[Points, ...]) -> list[Any]:
    if kind is derivatives.Residuals:
        return [kind(target, points[0], 1.5, rows) for rows in (False, True)]
    labels = schema.categorical(target).labels
    if kind is derivatives.Logistic:
        return [kind(target, (labels[0],), points[0], limit) for limit in (1.0, 0.5)]
    several = tuple(points[number % len(points)] for number in range(len(labels)))
    return [kind(target, several, hessian, 2.0) for hessian in (False, True)]
