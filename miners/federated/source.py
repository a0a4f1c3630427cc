# SPDX-License-Identifier: Apache-2.0
"""``CountSource`` is whoever a federated miner asks for counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from miners.budget.plan import Priced, loss_text
from pinq.errors import QueryError
from pinq.public.checks import closest
from pinq.public.derivatives import Derivatives
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.parts import PartSet
from pinq.public.schema import Schema
from pinq.public.scores import Score
from pinq.public.specs import Cuts, Spec, Values

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = [
    "Ability",
    "CountSource",
    "Dropped",
    "FederatedParts",
    "HolderQuestion",
    "PartCollection",
    "Sums",
    "SumsNeeded",
    "Tally",
    "progress_of",
    "spent_text",
    "tallies",
    "unknown_holder",
]

Ability = Literal["choices", "sums"]
"""What a source does beside counting: holders choose by their own rows, or counts come as sums with one noise."""

Selection = slice | list[int] | np.ndarray
T = TypeVar("T")


@dataclass(frozen=True)
class Dropped:
    """A holder that was left behind.

    Attributes:
        holder: Its name.
        after: Rounds of questions that had been answered by then.
        reason: Its error.
    """

    holder: str
    after: int
    reason: str

    def __str__(self) -> str:
        return f"{self.holder} was dropped after {self.after} rounds: {self.reason}"


class Tally(NamedTuple):
    """Noisy numbers of one holder, or of several as one, and the variance of their noise."""

    counts: np.ndarray
    variance: float


class PartCollection(Protocol):
    """An ordered collection of disjoint parts of one holder's table: where questions are asked."""

    @property
    def part_set(self) -> PartSet:
        """Where the parts are in the tree of partitions."""

    def partition(self, *specs: object) -> PartCollection:
        """Cuts each part: all by the same specs, or, given one list, each by its own."""

    def __getitem__(self, chosen: Selection, /) -> PartCollection:
        """Selects some of the parts, by a mask, list or slice."""

    def __len__(self) -> int: ...

    @staticmethod
    def union(*collections: Any) -> PartCollection:
        """Joins collections of the same holder, in order."""


@runtime_checkable
class CountSource(Protocol):
    """One or several holders of disjoint people that answer questions for noisy counts.

    Attributes:
        abilities: What the source does beside counting.
        schema: The public columns of all holders; ``max_rows`` is what they may have together.
        dropped: Who was left behind.
        rounds: How often somebody waited for answers.
        requests: How many requests each holder was sent.
    """

    abilities: frozenset[Ability]
    schema: Schema
    dropped: list[Dropped]
    rounds: int
    requests: dict[str, int]

    @property
    def holders(self) -> list[str]:
        """The names of the holders that were not dropped, in order."""

    def require_holder(self, holder: str) -> None:
        """Raises ``QueryError`` where there is no holder of this name; dropped ones count."""

    def distance(self, holder: str) -> int:
        """Returns by how many rows two neighbouring tables of a holder may differ."""

    def parts(self) -> FederatedParts:
        """Returns the whole of each table, as a collection of one part."""

    def ask(self, questions: Sequence[HolderQuestion]) -> list[dict[str, Any]]:
        """Asks several questions in one round; returns for each the answers by holder.

        Raises:
            QueryError: The source cannot answer one of them; nothing was spent.
        """

    def tally(self, questions: Sequence[HolderQuestion]) -> list[dict[str, Tally]]:
        """Asks questions for numbers; returns the answers with the variance of their noise."""

    def living(self, tallies: Mapping[str, Tally]) -> list[Tally]:
        """Selects the tallies of whoever was not dropped."""

    def variance(self, holder: str, epsilon: Loss) -> float:
        """Returns the variance of the noise in one count of a holder."""

    def sum_variance(self, holder: str, loss: Derivatives, epsilon: Loss) -> float:
        """Returns the variance of the noise in one sum of derivatives, in natural units."""

    def spent(self) -> dict[str, Fraction | None]:
        """Returns what each holder has charged so far; None where the holder does not say."""

    def each(self, act: Callable[[Priced], T]) -> dict[str, T]:
        """Does the same with each holder's budget, all at once."""

    def each_handle(self, act: Callable[[PrivateQueryable], object]) -> object:
        """Does the same with each holder's handle, all at once; parties that add up have none."""


@dataclass(frozen=True)
class Sums:
    """What a question for sums adds up.

    Attributes:
        loss: Whose derivatives.
        by: In each cell of which spec.
    """

    loss: Derivatives
    by: Spec


@dataclass(frozen=True)
class SumsNeeded:
    """What a fit asks of parties that add up, by public facts: whoever runs it prepares for that.

    Attributes:
        cells: For each attribute, cells that tell apart whatever is asked of its rows.
        count: The smallest loss of a count.
        sums: The smallest loss of sums of derivatives; None where none are asked.
        width: Entries of a row's vector there.
    """

    cells: tuple[Values | Cuts, ...]
    count: Epsilon
    sums: Epsilon | None = None
    width: int = 0


@dataclass(frozen=True)
class HolderQuestion:
    """One question that is not asked yet: a verb of the handles, and to whom it goes.

    Attributes:
        parts: Of what.
        verb: ``noisy_count``, ``noisy_sum`` or ``exp_mech``.
        epsilon: For each holder that is asked, its loss.
        named: Further arguments of the verb.
        sums: For ``noisy_sum``: what is added up.
    """

    parts: FederatedParts
    verb: str
    epsilon: Mapping[str, Epsilon]
    named: Mapping[str, object]
    sums: Sums | None = None

    def ask(self, holder: str, again: bool) -> Any:
        """Asks one holder's handle; ``again`` takes an answer that has been paid for."""
        named = {**self.named, "reuse": again or self.named.get("reuse", False)}
        if self.sums is not None:
            named |= {"column": self.sums.loss, "by": [self.sums.by]}
        return getattr(self.parts.of(holder), self.verb)(epsilon=self.epsilon[holder], **named)

    def variance(self, source: CountSource, holder: str) -> float:
        """Returns the variance of the noise in each number of a holder's answer."""
        epsilon = self.epsilon[holder]
        if self.sums is None:
            return source.variance(holder, epsilon)
        return source.sum_variance(holder, self.sums.loss, epsilon)


class FederatedParts:
    """The same ordered collection of disjoint parts at every holder of a source."""

    def __init__(self, source: CountSource, parts: Mapping[str, PartCollection]) -> None:
        self._source, self._parts = source, dict(parts)

    def of(self, holder: str) -> PartCollection:
        """Returns one holder's parts."""
        return self._parts[holder]

    def partition(self, *specs: object) -> FederatedParts:
        """Cuts each part at every holder; see ``Parts.partition``."""
        return self._each(lambda parts: parts.partition(*specs))

    def noisy_count(self, *, epsilon: Loss | Mapping[str, Loss], reuse: bool = False) -> dict[str, np.ndarray]:
        """Asks for noisy numbers of rows, by holder.

        Args:
            epsilon: Loss at each holder; or, by holder, losses of those that are to be asked.
            reuse: As in ``PrivateQueryable.noisy_count``.
        """
        return self._source.ask([self.question("noisy_count", epsilon=epsilon, reuse=reuse)])[0]

    def exp_mech(
        self, candidates: object, *, score: Score, epsilon: Loss | Mapping[str, Loss], reuse: bool = False
    ) -> dict[str, list[Any]]:
        """Lets each holder choose for each part, by its own rows.

        Arguments as in ``noisy_count`` and ``PrivateQueryable.exp_mech``.
        """
        question = self.question("exp_mech", epsilon=epsilon, candidates=candidates, score=score, reuse=reuse)
        return self._source.ask([question])[0]

    def question(self, verb: str, *, epsilon: Loss | Mapping[str, Loss], **named: object) -> HolderQuestion:
        """Makes a question for ``ask``."""
        losses = epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(self._source.holders, epsilon)
        for name in losses:
            self._source.require_holder(name)
        return HolderQuestion(self, verb, {name: Epsilon.of(loss) for name, loss in losses.items()}, named)

    def sum_question(
        self, loss: Derivatives, by: Spec, *, epsilon: Mapping[str, Epsilon], reuse: bool = False
    ) -> HolderQuestion:
        """Makes a question for the sums of a loss's derivatives in each cell of a spec."""
        return HolderQuestion(self, "noisy_sum", epsilon, {"reuse": reuse}, Sums(loss, by))

    @staticmethod
    def union(collections: Sequence[FederatedParts]) -> FederatedParts:
        """Joins all parts of several collections, in order."""
        if len(collections) == 1:
            return collections[0]
        first = collections[0]
        joined = {
            name: parts.union(*(collection._parts[name] for collection in collections))
            for name, parts in first._living().items()
        }
        return FederatedParts(first._source, joined)

    def __getitem__(self, chosen: Selection) -> FederatedParts:
        """Selects some of the parts, by a mask, list or slice."""
        return self._each(lambda parts: parts[chosen])

    def __len__(self) -> int:
        return len(next(iter(self._parts.values())))

    def __repr__(self) -> str:
        return f"FederatedParts({', '.join(self._parts)}: {next(iter(self._parts.values()))!r})"

    def _living(self) -> dict[str, PartCollection]:
        return {name: parts for name, parts in self._parts.items() if name in self._source.holders}

    def _each(self, act: Callable[[PartCollection], PartCollection]) -> FederatedParts:
        return FederatedParts(self._source, {name: act(parts) for name, parts in self._living().items()})


def tallies(source: CountSource, questions: Sequence[HolderQuestion]) -> list[dict[str, Tally]]:
    """Asks a source questions for numbers; returns the answers with the variance of their noise."""
    return [
        {
            name: Tally(np.asarray(counts, dtype=np.float64), question.variance(source, name))
            for name, counts in answer.items()
        }
        for question, answer in zip(questions, source.ask(questions), strict=True)
    ]


def progress_of(say: Callable[[str], object] | None) -> Callable[[str], object]:
    """Returns what is called with a line of text after each round.

    ``QueryError`` where it cannot be called.
    """
    if say is None:
        return lambda text: None
    if not callable(say):
        raise QueryError(
            f"is {say!r}", parameter="say", allowed="a function of one line of text, print for example, or None"
        )
    return say


def unknown_holder(holder: str, names: Sequence[str]) -> QueryError:
    """Makes the error of a name that no holder has."""
    return QueryError(
        f"there is no holder {holder!r}{closest(str(holder), names)}; the holders are {', '.join(names)}."
    )


def spent_text(spent: Mapping[str, Fraction | None]) -> str:
    """``north: 0.25; south: 0``."""
    return "; ".join(
        f"{name}: {'unknown, it does not answer' if amount is None else loss_text(amount)}"
        for name, amount in spent.items()
    )
