# SPDX-License-Identifier: Apache-2.0
"""``Selection`` says which tables a list of candidates needs, and makes the noisy choice.

Every listed candidate has prior mass one; a family has mass one too, spread evenly over its members
(privacy.md 2.7). Lists of plain candidates, one ``AnyCross``, and one family of at most 4,096
groupings or 256 cuts are chosen from by permute-and-flip; mixed lists and larger families by the
exponential mechanism over runs of equal score. Which of the two, public facts decide; with
``textbook`` it is always the exponential mechanism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from pinq.curator.candidates.any_cross import AnyCrossScorer
from pinq.curator.candidates.any_cut import AnyCutScorer
from pinq.curator.candidates.any_grouping import AnyGroupingScorer
from pinq.curator.candidates.scorer import Frame, Runs, Scorer
from pinq.curator.candidates.split import SplitScorer
from pinq.curator.counted import Counted
from pinq.curator.mechanisms import Weighted, choose, choose_grouped, choose_weighted
from pinq.engine.cores import side_by_side
from pinq.errors import QueryError
from pinq.public.parts import PartSet
from pinq.public.schema import Schema
from pinq.public.scores import Score
from pinq.public.specs import MAX_PARTS, AnyCross, AnyCut, AnyGrouping, Candidate, Spec

__all__ = ["SCORERS", "Selection", "choose_evenly"]

AnyScorer = Scorer[Any]
"""The scorer of some kind of candidate."""

Listed = Sequence[AnyScorer]
"""The candidates that a part chooses from."""

HELD_RUNS = 2**19  # scored members that are in memory together, of 24 bytes each
RUNS_OBJECT = 16  # as many of them take the memory of a ``Runs`` itself
NO_RUN = np.zeros(0, dtype=np.int64)

SCORERS: dict[type, type[AnyScorer]] = {AnyCut: AnyCutScorer, AnyGrouping: AnyGroupingScorer, AnyCross: AnyCrossScorer}
"""How the members of each family are scored; any other candidate is a plain split."""


class Selection:
    """A checked list of candidates for each part.

    It knows what to tabulate, and how to choose from the tables.

    Args:
        schema: The public columns.
        parts: Who chooses.
        score: By what.
        lists: The distinct lists of candidates.
        which: Which list each part chooses from; a single entry is for all.
        textbook: Select by the exponential mechanism with its general factor 2.
        each: Choose a member of every candidate of a list.

    Raises:
        QueryError: An unknown candidate, or one that the score is not defined for.
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
        self.which = list(which) * len(parts) if len(which) == 1 else list(which)
        if not self.lists or not all(self.lists):
            raise QueryError("is empty; name at least one spec or family for each part.", parameter="candidates")
        # A list that no part chooses from would still count where the choices of the longest list
        # share epsilon.
        if len(self.which) != len(parts) or set(self.which) != set(range(len(self.lists))):
            raise QueryError("the request's lists of candidates do not fit its parts.")
        if len(parts) * self.choices > MAX_PARTS:
            choices = f"{len(parts) * self.choices:,} choices"
            raise QueryError(f"this makes {choices}; at most {MAX_PARTS:,} are possible.")
        # Lists (a, b) and (b, c) make three scorers: what several lists offer is scored by one.
        distinct = {candidate.identity: candidate for candidates in self.lists for candidate in candidates}
        specs = [candidate.as_spec for candidate in distinct.values()]
        self.frame = Frame(schema, score, [spec for spec in specs if spec is not None])
        scorers = {
            identity: SCORERS.get(type(candidate), SplitScorer)(candidate, self.frame)
            for identity, candidate in distinct.items()
        }
        self._listed = [[scorers[candidate.identity] for candidate in candidates] for candidates in self.lists]

    @property
    def work(self) -> int:
        """Nanoseconds, about, that scoring and choosing take for all parts."""
        uses = Counter(self.which)
        # The parts that choose a candidate are disjoint; one that is listed twice is scored twice.
        parts: Counter[tuple[AnyScorer, int]] = Counter()
        for number, listed in enumerate(self._listed):
            # In (a, a) for 10 parts and (a, b) for 5, the first a counts 15 parts and the second a 10.
            for scorer, times in Counter(listed).items():
                for again in range(times):
                    parts[scorer, again] += uses[number]
        return sum(scorer.work_of(count) for (scorer, _), count in parts.items())

    @property
    def spec_bytes(self) -> int:
        """How long the text of a chosen spec may be."""
        return max(scorer.spec_bytes for listed in self._listed for scorer in listed)

    @property
    def scratch_cells(self) -> int:
        """Cells that choosing makes for each part: the members of a family, two sides each."""
        widest = max(scorer.widest for listed in self._listed for scorer in listed)
        return widest * 2 * self.frame.width

    @cached_property
    def span(self) -> int:
        """What the mechanism's exponent divides by.

        The width of changes, or in the textbook form twice the sensitivity, which is never less.
        """
        return 2 * self.score.sensitivity(self.schema) if self.textbook else self.score.span(self.schema)

    @property
    def options(self) -> int:
        """The most candidates that a part has, each member of an ``AnyCross`` being one."""
        return max(sum(scorer.options for scorer in listed) for listed in self._listed)

    @cached_property
    def choices(self) -> int:
        """How many choices share each part's epsilon: the length of the longest list."""
        return max(map(len, self.lists)) if self.each else 1

    def choose(self, counted: Counted, epsilon: Fraction) -> list[Spec | None]:
        """Chooses a spec for each counted part, None where it has nothing to choose from.

        With ``each`` a part has ``choices`` choices, one after the other.

        Privacy:
            Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
            Why: the parts are disjoint, each part's choice is epsilon-DP by its mechanism, and
            scores follow pinq/public/scores.py. With ``each`` a part gets at most k = ``choices``
            choices of epsilon / k (sequential composition); k follows from the request.
        """
        which = self.which[counted.start : counted.start + len(counted.parts)]
        choose = self._choose_splits if self._has_splits_alone else self._choose_members

        def choices_from(start: int) -> list[Spec | None]:
            numbers = which[start : start + self._at_once]
            return choose(counted, {row: self._listed[number] for row, number in enumerate(numbers, start)}, epsilon)

        # Threads pay where a part has so many members that it chooses by itself: with few, they
        # would only take turns.
        starts = range(0, len(which), self._at_once)
        pieces = side_by_side(choices_from, starts) if self._at_once == 1 else map(choices_from, starts)
        return [spec for piece in pieces for spec in piece]

    @cached_property
    def _has_splits_alone(self) -> bool:
        return not self.each and not any(scorer.is_family for listed in self._listed for scorer in listed)

    @cached_property
    def _at_once(self) -> int:
        """How many parts choose together: the scores of all their candidates are in memory."""
        # Lists of 14 families of 4,096 members: 9 parts at a time.
        return max(1, HELD_RUNS // max(sum(map(_room, listed)) for listed in self._listed))

    def _choose_splits(self, counted: Counted, lists: Mapping[int, Listed], epsilon: Fraction) -> list[Spec | None]:
        """Chooses among plain candidates, each of which has one score for a part."""
        scores: dict[AnyScorer, dict[int, int]] = {}
        for scorer, rows in _users(lists).items():
            counted.turn.check()
            own = cast(SplitScorer, scorer).scores(counted, np.array(rows))
            scores[scorer] = dict(zip(rows, own.tolist(), strict=True))
        chosen: list[Spec | None] = []
        for row, listed in lists.items():
            counted.turn.check()
            offered = np.array([scores[scorer][row] for scorer in listed])
            winner = choose_evenly(offered, self.span, epsilon, textbook=self.textbook)
            chosen.append(cast(SplitScorer, listed[winner]).partition.spec)
        return chosen

    def _choose_members(self, counted: Counted, lists: Mapping[int, Listed], epsilon: Fraction) -> list[Spec | None]:
        """Chooses among candidates of which some are families.

        Those of several parts are scored together; those of a part by itself some at a time.
        """
        runs = _runs(counted, lists) if len(lists) > 1 else {}
        chosen: list[Spec | None] = []
        for row, listed in lists.items():

            def score(scorers: Listed, row: int = row) -> list[Runs]:
                own = runs or _runs(counted, {row: scorers})
                return [own[scorer][row] for scorer in scorers]

            if not self.each:
                chosen.append(self._choose_one(counted, listed, score, epsilon))
                continue
            for scorer in listed:
                chosen.append(self._choose_one(counted, [scorer], score, epsilon / self.choices))
            # With 2 candidates where another part has 5: two choices, and None three times.
            chosen += [None] * (self.choices - len(listed))
        return chosen

    def _choose_one(
        self, counted: Counted, listed: Listed, score: Callable[[Listed], list[Runs]], epsilon: Fraction
    ) -> Spec | None:
        """Chooses among the members of a part's candidates; None where it has none."""
        counted.turn.check()
        bundles, has_family = list(_bundles(listed)), any(scorer.is_family for scorer in listed)
        if has_family and len(bundles) > 1:
            return self._choose_bundled(bundles, lambda bundle: _offered(score(bundle)), epsilon)
        offered = _offered(score(listed))
        if not offered:
            return None
        alone = len(listed) == 1 and listed[0].flips(offered[0].size)
        if alone or not has_family:
            return self._flip(offered, epsilon)
        return _named(offered, *choose_weighted(_joined(offered), self.span, epsilon))

    def _choose_bundled(
        self, bundles: Sequence[Listed], offer: Callable[[Listed], list[Runs]], epsilon: Fraction
    ) -> Spec | None:
        """Chooses among members that are scored bundle by bundle, those of the chosen one again."""
        held: list[Runs] = []  # of the bundle that was scored last: in the end the chosen one

        def group(bundle: Listed) -> Weighted:
            held.clear()
            held.extend(offer(bundle))
            return _joined(held)

        chosen = choose_grouped([partial(group, bundle) for bundle in bundles], self.span, epsilon)
        return None if chosen is None else _named(held, *chosen[1])

    def _flip(self, offered: Sequence[Runs], epsilon: Fraction) -> Spec:
        """One of equally likely members.

        Members are numbered through: those of the first candidate's first run, of its second run,
        ..., of the second candidate. With runs of 2 and 3 members of the first and one of 4 of the
        second, number 6 is the second candidate's member 1.
        """
        scores = np.concatenate([np.repeat(own.scores, own.members) for own in offered])
        winner = choose_evenly(scores, self.span, epsilon, textbook=self.textbook)
        candidate, winner = _locate([own.size for own in offered], winner)
        run, member = _locate(offered[candidate].members, winner)
        return offered[candidate].spec(run, member)


def choose_evenly(scores: np.ndarray, span: int, epsilon: Fraction, *, textbook: bool) -> int:
    """Chooses among equally likely candidates by permute-and-flip.

    In the textbook's form it is the exponential mechanism.
    """
    if not textbook:
        return choose(scores, span, epsilon)
    single = np.ones(len(scores), dtype=np.int64)
    return choose_weighted(Weighted(np.asarray(scores).astype(np.int64), single, single), span, epsilon)[0]


def _room(scorer: AnyScorer) -> int:
    """How much memory the scores of a candidate's members may take for one part, in runs."""
    return RUNS_OBJECT + scorer.most_runs


def _bundles(listed: Listed) -> Iterator[Listed]:
    """Candidates, some at a time: at least one, and what else is held beside it."""
    # Of 20,000 families of 4,096 members, 127 at a time.
    ends = np.cumsum([_room(scorer) for scorer in listed])
    start, before = 0, 0
    while start < len(listed):
        end = max(start + 1, int(np.searchsorted(ends, before + HELD_RUNS, side="right")))
        yield listed[start:end]
        start, before = end, int(ends[end - 1])


def _users(lists: Mapping[int, Listed]) -> dict[AnyScorer, list[int]]:
    """The rows of the counted parts that may choose each candidate."""
    # Parts 0 and 2 choose from (a, b) and part 1 from (b, c): a is scored for the rows 0 and 2,
    # b for all three, c for row 1.
    users: dict[AnyScorer, list[int]] = {}
    for row, listed in lists.items():
        for scorer in listed:
            users.setdefault(scorer, []).append(row)
    return users


def _runs(counted: Counted, lists: Mapping[int, Listed]) -> dict[AnyScorer, dict[int, Runs]]:
    """Scores each candidate for each counted part that may choose it, by the part's row."""
    runs = {}
    for scorer, rows in _users(lists).items():
        counted.turn.check()
        runs[scorer] = dict(zip(rows, scorer.runs(counted, np.array(rows)), strict=True))
    return runs


def _offered(runs: Iterable[Runs]) -> list[Runs]:
    """The candidates that have a member."""
    return [own for own in runs if own.size]


def _joined(offered: Sequence[Runs]) -> Weighted:
    """The members of some candidates, each candidate of mass one."""
    # A plain split and a family of three cuts: the split has mass 1, each cut 1/3. So a family
    # weighs as much as one candidate, however fine its column's grid is.
    mass = [np.full(len(own.scores), own.size, dtype=np.int64) for own in offered]
    return Weighted(
        np.concatenate([NO_RUN, *(own.scores for own in offered)]),
        np.concatenate([NO_RUN, *(own.members for own in offered)]),
        np.concatenate([NO_RUN, *mass]),
    )


def _named(offered: Sequence[Runs], run: int, member: int) -> Spec:
    """The spec of a member of a run of ``_joined``."""
    candidate, run = _locate([len(own.scores) for own in offered], run)
    return offered[candidate].spec(run, member)


def _locate(lengths: np.ndarray | Sequence[int], number: int) -> tuple[int, int]:
    """Finds in which of several stretches, laid end to end, a number lies.

    Example: of stretches of lengths 2, 3 and 4, number 6 lies in the third, as its number 1.
    """
    ends = np.cumsum(lengths)
    stretch = int(np.searchsorted(ends, number, side="right"))
    return stretch, number - int(ends[stretch] - lengths[stretch])
