# SPDX-License-Identifier: Apache-2.0
"""``HoldersBill`` reads off what a fit costs each holder; ``Card`` says how a joint model was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from miners.budget.payment import require_budget
from miners.budget.plan import loss_text
from miners.federated.asking import one_handle
from miners.federated.federation import CountSource, Dropped, Federation, HolderFailed, spent_text
from miners.trees.strategy import many
from pinq.analyst.reuse import reusing
from pinq.errors import PinqError, QueryError
from pinq.public.epsilon import Epsilon, Loss

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["DISJOINT", "Card", "HoldersBill", "cost_of", "resumes", "source_of"]


@dataclass(frozen=True)
class Card:
    """What a reader of the model should know of how it was made.

    Attributes:
        strategy: How splits were found.
        spent: What each holder's own ledger has charged while the fit went on, for something else
            under the same grant too; None where it did not say.
        dropped: Who was left behind, after how many rounds, and why. The counts of the tree are
            those of the others.
        rounds: How often the coordinator waited for answers.
        requests: How many requests each holder was sent.
        model: What was made.
    """

    strategy: str
    spent: Mapping[str, Fraction | None]
    dropped: tuple[Dropped, ...]
    rounds: int
    requests: Mapping[str, int]
    model: str = "Tree"

    def __repr__(self) -> str:
        holders, rounds = many(len(self.spent), "holder"), many(self.rounds, "round")
        lines = [f"{self.model} of {holders}, strategy {self.strategy!r}, {rounds}"]
        for name, spent in self.spent.items():
            charged = "does not say what it charged" if spent is None else f"spent {loss_text(spent)}"
            lines.append(f"  {name}: {charged}, {many(self.requests[name], 'request')}")
        return "\n".join([*lines, *(f"  {dropped}" for dropped in self.dropped)])

    def to_dict(self) -> dict[str, object]:
        """Returns the card as JSON has it."""
        return {
            "strategy": self.strategy,
            "spent": {name: None if spent is None else loss_text(spent) for name, spent in self.spent.items()},
            "dropped": [[dropped.holder, dropped.after, dropped.reason] for dropped in self.dropped],
            "rounds": self.rounds,
            "requests": dict(self.requests),
        }

    @classmethod
    def from_dict(cls, stored: Any, *, model: str = "Tree", of: str = "`card` of a stored DPTopDown") -> Card:
        """Reads what ``to_dict`` made. ``QueryError`` where it is something else.

        Args:
            stored: As JSON has it.
            model: What was made.
            of: Of what it is, for the error.
        """
        try:
            spent = {str(name): None if text is None else Fraction(text) for name, text in stored["spent"].items()}
            dropped = tuple(
                Dropped(str(holder), int(after), str(reason)) for holder, after, reason in stored["dropped"]
            )
            requests = {name: int(stored["requests"][name]) for name in spent}
            return cls(str(stored["strategy"]), spent, dropped, int(stored["rounds"]), requests, model)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise QueryError(f"{of} is not what `to_json` writes.") from None


DISJOINT = "holders hold disjoint people: each is asked for the total, in its own policy's terms, and no more."


class HoldersBill:
    """Watches what each holder charges inside a ``with`` block.

    An error of the block that says nothing of it itself gets a note of what was spent until then.
    """

    def __init__(self, source: CountSource) -> None:
        self._source = source

    def __enter__(self) -> Self:
        self._before, self._rounds = self._source.spent(), self._source.rounds
        self._requests = dict(self._source.requests)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, PinqError) and not isinstance(error, HolderFailed):  # which says it itself
            error.charged = None  # of one holder's request; the note is about all
            error.add_note(f"Spent by the whole fit until then: {spent_text(self.spent())}.")

    def spent(self) -> dict[str, Fraction | None]:
        """Returns what each holder has charged; None where it does not say."""
        return {
            name: None if now is None or then is None else now - then
            for (name, now), then in zip(self._source.spent().items(), self._before.values(), strict=True)
        }

    def card(self, strategy: str, model: str = "Tree") -> Card:
        """Returns who took part in what, and what it cost there."""
        asked = {name: sent - self._requests[name] for name, sent in self._source.requests.items()}
        rounds = self._source.rounds - self._rounds
        return Card(strategy, self.spent(), tuple(self._source.dropped), rounds, asked, model)


def cost_of(card: Card, total: Fraction) -> Fraction:
    """Returns the largest of what holders charged.

    Who was asked and does not say counts as the total.
    """
    return max((_cost(spent, card.requests[name], total) for name, spent in card.spent.items()), default=Fraction(0))


class Priced(Protocol):
    """A miner that says what its fit costs."""

    epsilon: Loss


def source_of(handle: CountSource | PrivateQueryable, miner: Priced, *, reuse: bool) -> CountSource:
    """Returns what ``fit`` asks: several holders as they are, one handle as a federation of one.

    With ``reuse`` the first question to one handle says whether the fit was paid for before.
    ``QueryError`` where it is neither.
    """
    if isinstance(handle, CountSource):
        return handle
    single = one_handle(handle)
    require = partial(require_budget, single, Epsilon.of(miner.epsilon), miner=miner)
    return Federation({"holder 1": reusing(single, require) if reuse else single})


def resumes(resume: bool, reuse: bool, *, keeps: bool) -> bool:
    """Returns whether answers that were paid for will do. ``QueryError`` where they cannot.

    Args:
        resume: The miner's own parameter.
        reuse: That of its ``fit``.
        keeps: Whether whoever is asked keeps answers.
    """
    for name, value in (("resume", resume), ("reuse", reuse)):
        if not isinstance(value, bool):
            raise QueryError(f"is {value!r}", parameter=name, allowed="True or False")
        if value and not keeps:
            raise QueryError(
                f"`{name}` goes with holders that keep their answers; parties of a secure session keep none."
            )
    return resume or reuse


def _cost(spent: Fraction | None, requests: int, total: Fraction) -> Fraction:
    """Returns what a holder charged; the total where it was asked and does not say."""
    if spent is None:
        return total if requests else Fraction(0)
    return spent
