# SPDX-License-Identifier: Apache-2.0
"""``Selection`` has the tables that lists of candidates need, and makes the noisy choice.

Every listed candidate has prior mass one; a family has mass one too, spread evenly over its members (privacy.md 2.7).
Lists of plain candidates, one ``AnyCross``, and one family of at most 4,096 groupings or 256 cuts are chosen from by
permute-and-flip; mixed lists and larger families by the exponential mechanism over runs of equal score. Public facts
decide between the two. With ``textbook`` it is always the exponential mechanism.
"""

from __future__ import annotations

import itertools
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from pinq.curator.candidates.scorer import (
    NUMBERS_AT_ONCE,
    AnyCrossScorer,
    AnyCutScorer,
    AnyGroupingScorer,
    Frame,
    Runs,
    Scorer,
    SplitScorer,
)
from pinq.curator.mechanisms import Weighted, choose_each, choose_weighted
from pinq.curator.prepared import MAX_MEMBERS, Counted
from pinq.errors import QueryError
from pinq.language.parts import PartSet
from pinq.language.scores import Score
from pinq.language.specs import AnyCross, AnyCut, AnyGrouping, Candidate, Spec
from pinq.public.schema import Schema

# Members with weights of e^-100 of the best one's or less are left to exact numbers: 2^24 of them, behind a best one
# of mass 2^-24, weigh less than 2^-96 of it, far less than the error of doubles.
FAR = 100

AnyScorer = Scorer[Any]
"""The scorer of some kind of candidate."""

Listed = Sequence[AnyScorer]
"""The candidates that a part chooses from."""

SCORERS: dict[type, type[AnyScorer]] = {AnyCut: AnyCutScorer, AnyGrouping: AnyGroupingScorer, AnyCross: AnyCrossScorer}
"""The scorer of each family; any other candidate is a plain split."""


class Selection:
    """A checked list of candidates for each part, with the tables to count and the choice from them.

    Raises:
        QueryError: An unknown candidate, or one for which the score is not defined.
    """

    def __init__(
        self,
        schema: Schema,
        parts: PartSet,
        score: Score,
        lists: Sequence[Sequence[Candidate]],
        which: Sequence[int],
        *,
        textbook: bool = False,
        each: bool = False,
    ) -> None:
        self.schema, self.score, self.textbook, self.each = schema, score, textbook, each
        self.lists = [tuple(candidates) for candidates in lists]
        self.which = list(which) * parts.size if len(which) == 1 else list(which)
        if not self.lists or not all(self.lists):
            raise QueryError("is empty; name at least one spec or family for each part.", parameter="candidates")
        # An unused list would still count where epsilon is divided by the choices of the longest
        # list.
        if len(self.which) != parts.size or set(self.which) != set(range(len(self.lists))):
            raise QueryError("the request's lists of candidates do not fit its parts.")
        # Lists (a, b) and (b, c) make three scorers: one for each distinct candidate.
        distinct = {candidate.identity: candidate for candidates in self.lists for candidate in candidates}
        self.frame = Frame(schema, score, distinct.values(), max(map(len, self.lists)))
        scorers = {
            identity: SCORERS.get(type(candidate), SplitScorer)(candidate, self.frame)
            for identity, candidate in distinct.items()
        }
        self._lists = [[scorers[candidate.identity] for candidate in candidates] for candidates in self.lists]
        # A family alone may have more: the cuts of the finest grid.
        members = max((sum(one.members for one in offer) for offer in self._lists if len(offer) > 1), default=0)
        if members > MAX_MEMBERS and not self.each:
            raise QueryError(
                f"the candidates of a part have {members:,} members together; at most {MAX_MEMBERS:,} are possible. "
                "Name fewer families, or ask of each by itself (each=True)."
            )

    @property
    def cells(self) -> int:
        """The approximate number of cells for scoring and choosing, for all parts."""
        uses = Counter(self.which)
        # The parts that choose a candidate are disjoint; one that is listed twice is scored twice.
        parts: Counter[tuple[AnyScorer, int]] = Counter()
        for number, offer in enumerate(self._lists):
            # In (a, a) for 10 parts and (a, b) for 5, the first a counts 15 parts and the second a 10.
            for scorer, times in Counter(offer).items():
                for again in range(times):
                    parts[scorer, again] += uses[number]
        return sum(scorer.part_cells * count + scorer.cells(count) for (scorer, _), count in parts.items())

    @property
    def flips(self) -> int:
        """The largest number of candidates of a part for permute-and-flip."""
        return max(sum(one.members for one in offer if one.members <= one.most_flipped) for offer in self._lists)

    @property
    def scratch(self) -> int:
        """Cells of the largest array that choosing makes for each part."""
        return max(scorer.scratch for offer in self._lists for scorer in offer)

    @cached_property
    def span(self) -> int:
        """The divisor of the mechanism's exponent.

        It is the width of changes, or in the textbook form twice the sensitivity, which is never less.
        """
        return 2 * self.score.sensitivity(self.schema) if self.textbook else self.score.span(self.schema)

    @property
    def options(self) -> int:
        """The largest number of candidates of a part, each member of an ``AnyCross`` being one."""
        return max(sum(scorer.options for scorer in offer) for offer in self._lists)

    @cached_property
    def choices(self) -> int:
        """The number of choices that divide each part's epsilon: the length of the longest list."""
        return max(map(len, self.lists)) if self.each else 1

    def choose(self, counted: Counted, epsilon: Fraction) -> list[Spec | None]:
        """Chooses a spec for each counted part; None for an empty list.

        With ``each`` a part has ``choices`` choices, one after the other.

        Privacy:
            Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
            Why: the parts are disjoint, each part's choice is epsilon-DP by its mechanism, and
            scores follow pinq/language/scores.py. With ``each`` a part gets at most k = ``choices``
            choices of epsilon / k (sequential composition); k follows from the request.
        """
        lists = [self._lists[which] for which in self.which[counted.start : counted.start + len(counted.parts)]]
        # One choice from the first candidates of all lists, one from the second ones, and so on. A list of 2 beside
        # one of 5 gives two choices, and None three times.
        slots = [slice(place, place + 1) for place in range(self.choices)] if self.each else [slice(None)]
        picks = [self._pick(counted, [offer[slot] for offer in lists], epsilon / self.choices) for slot in slots]
        return [pick[row] for row in range(len(lists)) for pick in picks]

    def _pick(self, counted: Counted, lists: Sequence[Listed], epsilon: Fraction) -> list[Spec | None]:
        """One choice for each of the counted parts from its list; None for an empty list."""
        # Parts 0 and 2 choose from (a, b) and part 1 from (b, c): a is scored for the rows 0 and 2,
        # b for all three, c for row 1.
        reach = float(FAR * self.span / epsilon)
        users = defaultdict[Hashable, list[tuple[int, AnyScorer]]](list)
        for row, offer in enumerate(lists):
            for place, scorer in enumerate(offer):
                users[scorer.group_of(place)].append((row, scorer))
        runs = {
            group: iter(
                group_users[0][1].runs(
                    counted,
                    np.array([row for row, _ in group_users]),
                    [scorer for _, scorer in group_users],
                    reach,
                )
            )
            for group, group_users in users.items()
        }
        chosen = dict[int, Spec]()
        even, numbers = dict[int, Sequence[Runs]](), 0
        for row, offer in enumerate(lists):
            scored = []
            for place, scorer in enumerate(offer):
                counted.deadline.check()
                scored.append(next(runs[scorer.group_of(place)]))
            counted.deadline.check()
            offered = [candidate for candidate in scored if candidate.size]
            is_single = len(offer) == 1 and scored[0].size <= offer[0].most_flipped
            if offered and (is_single or not any(scorer.is_family for scorer in offer)):
                even[row], numbers = offered, numbers + sum(candidate.size for candidate in offered)
            elif offered:
                best = choose_weighted(_joined(offered), self.span, epsilon, partial(_in_full, offered))
                (chosen[row],) = _named(offered, [best])
            if even and (numbers > NUMBERS_AT_ONCE or row == len(lists) - 1):
                chosen.update(zip(even, self._flipped(list(even.values()), epsilon), strict=True))
                even, numbers = {}, 0
        return [chosen.get(row) for row in range(len(lists))]

    def _flipped(self, offers: Sequence[Sequence[Runs]], epsilon: Fraction) -> list[Spec]:
        """Chooses for each of some parts among the members of its candidates, all equally likely."""
        # Members have consecutive numbers: first those of the first candidate, run by run, then those of the second.
        runs = [candidate for offered in offers for candidate in offered]
        members = np.concatenate([candidate.members for candidate in runs])
        scores = np.concatenate([candidate.scores for candidate in runs]).repeat(members)
        lengths = [sum(candidate.size for candidate in offered) for offered in offers]
        winners = choose_evenly(scores, lengths, self.span, epsilon, textbook=self.textbook)
        # Of runs of 2, 3 and 4 members, number 6 lies in the third, as its number 1.
        ends, winners = members.cumsum(), winners + np.cumsum(lengths) - lengths
        winning = ends.searchsorted(winners, side="right")
        return _named(runs, zip(winning.tolist(), (winners - (ends - members)[winning]).tolist(), strict=True))


def choose_evenly(
    scores: np.ndarray, lengths: Sequence[int], span: int, epsilon: Fraction, *, textbook: bool
) -> np.ndarray:
    """Chooses from each of several lists of equally likely candidates by permute-and-flip.

    In the textbook form it is the exponential mechanism.
    """
    if not textbook:
        return choose_each(scores, lengths, span, epsilon)
    ones = np.ones(max(lengths), dtype=np.int64)
    lists = (Weighted(one, ones[: len(one)], ones[: len(one)]) for one in np.split(scores, np.cumsum(lengths)[:-1]))
    return np.array([choose_weighted(one, span, epsilon)[0] for one in lists])


def _in_full(offered: list[Runs]) -> Weighted:
    """Replaces merged runs by all runs of each candidate."""
    offered[:] = [one if one.all_runs is None else one.all_runs() for one in offered]
    return _joined(offered)


def _joined(offered: Sequence[Runs]) -> Weighted:
    """The members of some candidates, each candidate of mass one."""
    # A plain split and a family of three cuts: the split has mass 1, each cut 1/3. So a family
    # weighs as much as one candidate, however fine its column's grid is.
    return Weighted(
        np.concatenate([one.scores for one in offered]),
        np.concatenate([one.members for one in offered]),
        np.repeat([one.size for one in offered], [len(one.scores) for one in offered]),
    )


def _named(candidates: Sequence[Runs], chosen: Iterable[tuple[int, int]]) -> list[Spec]:
    """The specs of chosen members, each by the number of its run among all runs and its number in the run."""
    starts = [0, *itertools.accumulate(len(candidate.scores) for candidate in candidates)]
    specs = []
    for run, member in chosen:
        number = bisect(starts, run) - 1
        specs.append(candidates[number].name(int(candidates[number].first[run - starts[number]]) + member))
    return specs
