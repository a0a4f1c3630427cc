# SPDX-License-Identifier: Apache-2.0
"""``OwnersMiner`` runs a fit on several owners: queries, costs of each owner, participants."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast, get_args

from miners.budget.plan import (
    Plan,
    loss_text,
    public_handle,
    remember_fit,
    require_budget,
    require_given,
    silenced,
    warn_before_fit,
)
from miners.estimator import FitPlan, Miner, public_schema, required_schema
from miners.federated.federation import Ability, CountSource, Dropped, Federation, OwnerFailed, spent_text
from pinq.analyst.queryable import PrivateQueryable, reusing
from pinq.errors import PinqError, QueryError, unspent
from pinq.language.queries import Act
from pinq.public.checks import Shown, many, require_bool, whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

DISJOINT = "the owners' people are disjoint: the fit costs the total at each owner, in its own policy's terms."

StrategyName = Literal["turns", "noisy_counts", "secure"]
STRATEGIES = get_args(StrategyName)
# The ability of a source that a strategy needs beside counts.
NEEDS: dict[str, Ability | None] = {
    "turns": "choices",
    "local_rnm": "choices",
    "single": "choices",
    "noisy_counts": None,
    "secure": "sums",
}
UNABLE: dict[Ability, str] = {
    "choices": (
        "strategy {strategy!r} asks owners to choose, and parties that add up their counts do nothing else; "
        "use 'secure'."
    ),
    "sums": (
        "strategy {strategy!r} needs parties that add up their counts under secret sharing, and handles "
        "answer each for itself, "
        "with noise of its own. Between machines use `pinq secure join` with `protocol: topdown`, or `scorecard` for a "
        "scorecard, to try it "
        "pinq_secure.SecureFederation.simulated; 'turns' is for handles."
    ),
}


@dataclass(frozen=True)
class Participants(Shown):
    """The facts about a model's origin for its reader: participants, costs, failures.

    Attributes:
        strategy: The strategy of the fit.
        spent: The charges of each owner's ledger during the fit, other queries under the same grant
            included; None if the owner did not report them.
        dropped: The dropped owners, each with the number of rounds before and the reason.
        rounds: The number of times that the coordinator waited for answers.
        requests: The number of requests to each owner.
        model: The kind of model, such as ``"Tree"``.
    """

    strategy: str
    spent: Mapping[str, Fraction | None]
    dropped: tuple[Dropped, ...]
    rounds: int
    requests: Mapping[str, int]
    model: str = "Tree"

    def __repr__(self) -> str:
        owners, rounds = many(len(self.spent), "owner"), many(self.rounds, "round")
        lines = [f"{self.model} of {owners}, strategy {self.strategy!r}, {rounds}"]
        for name, spent in self.spent.items():
            charged = "does not say what it charged" if spent is None else f"spent {loss_text(spent)}"
            lines.append(f"  {name}: {charged}, {many(self.requests[name], 'request')}")
        return "\n".join([*lines, *(f"  {dropped}" for dropped in self.dropped)])

    def to_dict(self) -> dict[str, object]:
        return {
            "strategy": self.strategy,
            "spent": {name: None if spent is None else loss_text(spent) for name, spent in self.spent.items()},
            "dropped": [[dropped.owner, dropped.after, dropped.reason] for dropped in self.dropped],
            "rounds": self.rounds,
            "requests": dict(self.requests),
        }

    @classmethod
    def from_dict(cls, stored: Any, *, model: str, of: str) -> Participants:
        """Reads a result of ``to_dict``; raises ``QueryError`` for another object."""
        try:
            spent = {str(name): None if text is None else Fraction(text) for name, text in stored["spent"].items()}
            dropped = tuple(Dropped(str(owner), int(after), str(reason)) for owner, after, reason in stored["dropped"])
            requests = {name: int(stored["requests"][name]) for name in spent}
            return cls(str(stored["strategy"]), spent, dropped, int(stored["rounds"]), requests, model)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise QueryError(f"{of} is not what `to_json` writes.") from None


@contextmanager
def _billed(source: CountSource, act: str) -> Iterator[Callable[[str, str], Participants]]:
    """Notes the charges of each owner inside a ``with`` block, also in an error of the block.

    Yields a function that makes the card. Owners log the queries under the act's name.
    """
    before, rounds, requests = source.spent(), source.rounds, dict(source.requests)

    def spent() -> dict[str, Fraction | None]:
        return {
            name: None if now is None or then is None else now - then
            for (name, now), then in zip(source.spent().items(), before.values(), strict=True)
        }

    def card(strategy: str, model: str) -> Participants:
        sent = {name: count - requests[name] for name, count in source.requests.items()}
        return Participants(strategy, spent(), tuple(source.dropped), source.rounds - rounds, sent, model)

    source.act = Act.begun(act)
    try:
        yield card
    except OwnerFailed:  # its text has the charges
        raise
    except PinqError as error:
        error.charged = None  # of one owner's request; the note is about all
        error.add_note(f"Spent by the whole fit until then: {spent_text(spent())}.")
        raise
    finally:
        source.act = None


def resumes(resume: bool, reuse: bool, *, keeps: bool) -> bool:
    """Whether a fit uses stored answers; raises ``QueryError`` if it should and cannot."""
    for name, value in (("resume", resume), ("reuse", reuse)):
        require_bool(name, value)
        if value and not keeps:
            raise QueryError(
                f"`{name}` goes with owners that keep their answers; parties of a secure session keep none."
            )
    return resume or reuse


class OwnersFit(FitPlan[CountSource]):
    """A fit on several owners, each of which pays its total; ``among`` adapts it to a number of owners."""

    @abstractmethod
    def among(self, owners: int, *, resume: bool = False) -> Self:
        """The fit for a number of owners."""


class OwnersMiner(Miner):
    """A miner that learns from several owners, each behind its own layer and ledger.

    Its fit is an ``OwnersFit``; a subclass names the attribute that has the participants.
    """

    epsilon: EpsilonLike
    strategy: Any
    resume: bool
    _noted_as: ClassVar[str]  # without its underscore
    _made: ClassVar[str]

    def fit(self, handle: CountSource | PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Learns from the rows of all data owners.

        Args:
            handle: The owners' handles as a ``Federation``; the parties of a secure computation as
                a ``pinq_secure.SecureFederation``; or one handle.
            target: The column to predict.
            reuse: Whether to use the stored answers of an identical earlier fit, at no cost; for several data
                owners the same as ``resume=True``.

        Raises:
            QueryError: A parameter or the target is wrong.
            OwnerFailed: An owner failed, or has less than ``epsilon`` left, and the federation
                does not continue without it; reports the costs at each owner.
        """
        with unspent():
            resume = resumes(self.resume, reuse, keeps=self.strategy != "secure")
            source = self._source(handle, reuse)
            fit = cast("OwnersFit", self._checked(source.schema, target)).among(len(source.owners), resume=resume)
            require_given(self)
            total, needed = fit.total, NEEDS[self.strategy]
            if needed is not None and needed not in source.abilities:
                raise QueryError(UNABLE[needed].format(strategy=self.strategy))
            if not resume:  # part of an interrupted fit is paid
                source.each_handle(fit.require)
                name = f"{type(self).__name__}.fit"
                source.each(partial(require_budget, needed=total, name=name, act=f"miners.{name} of {target}"))
                warn_before_fit(self, handle, total, fit.warnings(None))
        with _billed(source, f"miners.{type(self).__name__}.fit of {target}") as bill, silenced(fit.warnings(None)):
            model = fit.learn(source)
        card = bill(self.strategy, self._made)
        setattr(self, f"{self._noted_as}_", card)
        remember_fit(self, handle)
        # An owner that does not report its charge counts as the total.
        silent = [total.exact for name, spent in card.spent.items() if spent is None and card.requests[name]]
        costs = [spent for spent in card.spent.values() if spent is not None]
        return self._fitted(model, max([*costs, *silent], default=Fraction(0)))

    def _source(self, handle: CountSource | PrivateQueryable, reuse: bool) -> CountSource:
        """The source for ``fit``: one handle becomes a federation of one; raises ``QueryError`` for others.

        With ``reuse`` the first query to one handle shows whether the fit was paid before.
        """
        if isinstance(handle, CountSource):
            return handle
        if isinstance(handle, (Mapping, list, tuple)):
            raise QueryError(
                f"`fit` learns from one handle or a Federation, not from a {type(handle).__name__}; wrap several "
                "handles: Federation([...])."
            )
        public_schema(handle)
        require = partial(require_budget, handle, Epsilon.of(self.epsilon), name=f"{type(self).__name__}.fit")
        return Federation({"owner 1": reusing(handle, require) if reuse else handle})

    def plan(self, schema: Schema, target: str, *, owners: int = 1, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` to each data owner, and their costs there; free.

        Args:
            schema: The public schema, ``federation.schema``.
            target: The column to predict.
            owners: The number of data owners.
            rows: The number of rows of all owners, if it is known; it serves the warning only.
        """
        count = whole_number("owners", owners, 1, 10**6)
        fit = cast("OwnersFit", self._checked(required_schema(schema), target)).among(count)
        fit.rehearse(public_handle(schema))
        return fit.plan(rows)

    @property
    def _took_part(self) -> Participants:
        return getattr(self, f"{self._noted_as}_")

    def _in_a_line(self) -> str:
        return f"{super()._in_a_line()}. {self._took_part!r}"

    def _plan_of(self, fitted: Any) -> Plan:
        return fitted.plan(self.schema_, self._model.target, owners=len(self._took_part.spent))

    def _stored(self) -> dict[str, object]:
        return super()._stored() | {self._noted_as: self._took_part.to_dict()}

    def _restored(self, stored: Mapping[str, Any], cost: Fraction) -> Self:
        fitted, name = super()._restored(stored, cost), self._noted_as
        of = f"`{name}` of a stored {type(self).__name__}"
        setattr(fitted, f"{name}_", Participants.from_dict(stored.get(name), model=self._made, of=of))
        return fitted
