# SPDX-License-Identifier: Apache-2.0
"""``selftest``: tests every claim, fits every miner, and reports.

The tables have dummy rows, so a report may be shown to anybody.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np
import pyarrow as pa

from pinq import __version__
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError, QueryError
from pinq.ledger.database import NoLedger
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.local import open as open_here
from pinq.provider.opening import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.html import document, table
from pinq.provider.report.markup import Html, element, joined
from pinq.provider.selftest.claims import (
    ANALYST,
    EPSILON,
    EVERY_KIND,
    Claim,
    OpenHandles,
    PublishedTable,
    claims_of,
    in_process,
    publish,
    publish_table,
    through_a_server,
)
from pinq.provider.selftest.known import wrong_answers
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.checks import is_number
from pinq.public.epsilon import Epsilon
from pinq.public.plugins import plugin
from pinq.public.schema import Categorical, Column, Value

CANNOT = (
    "A lower bound refutes a claim or fails to; it never proves one. The proofs are in docs/privacy.md.",
    "Only these neighbouring tables were tried. They are the worst that are known for each query.",
    "A fault that shows with a probability below about one in ten thousand draws is not seen.",
    "Canaries bound the loss of one fit against one guesser; they are weak for grouped and averaged models.",
    "Nothing here measures times, memory or what the machine's other users may see; docs/threat-model.md has them.",
)
EVALUATED = (
    ("Privacy parameter: is the loss as claimed?", "lower bounds of every verb and score, laws of the noise"),
    ("Privacy unit: rows, persons, both senses of neighbour", "claims on a replaced row and on a person's rows"),
    ("Correct implementation: sensitivity, noise, selection, floating point", "lower bounds and chi-square laws"),
    ("Composition: do the charges add up?", "each ledger's total against what was asked, its chain verified"),
    ("Errors and refusals as a channel", "they count as outcomes of a question"),
    ("Data mining on top", "canaries in one fit of each miner"),
    ("Trust model, access, side channels, data at rest", "not by this test: see the threat model"),
)


class _Bounded:
    epsilon: float
    bound: float
    weaker: float | None

    @property
    def holds(self) -> bool:
        return self.bound <= self.epsilon

    @property
    def sharp(self) -> bool:
        """Whether the bound refutes noise that is too small."""
        return self.weaker is not None and self.weaker > self.epsilon


@dataclass(frozen=True)
class Finding(_Bounded):
    """The measured lower bound of a query's loss.

    Attributes:
        neighbours: The sense in which the two tables are neighbours.
        draws: The number of draws from each table.
        bound: The lower bound of the loss, wrong with a chance of one in a million.
        weaker: The bound with noise that is 15 % too small; None if it was not measured.
    """

    name: str
    neighbours: str
    epsilon: float
    draws: int
    bound: float
    weaker: float | None = None


@dataclass(frozen=True)
class Law:
    """A test of draws against their exact law.

    Attributes:
        chance: The probability of draws at least as far from the law, by chi-square.
    """

    name: str
    draws: int
    chance: float

    @property
    def holds(self) -> bool:
        """Whether the law is not refuted, at one in a million."""
        return self.chance > 1e-6


@dataclass(frozen=True)
class Canary(_Bounded):
    """The number of correct guesses, from one fitted model, whether single rows were in its table.

    Attributes:
        epsilon: The cost of the fit.
        guesses, right: The numbers of guesses, and of correct guesses.
        bound: The lower bound of the loss, wrong with a chance of one in a million.
        weaker: The bound of a fit at ten times epsilon, which has a tenth of the noise.
    """

    name: str
    epsilon: float
    guesses: int
    right: int
    bound: float
    weaker: float


@dataclass(frozen=True)
class Check:
    """A yes-or-no result, of a ledger or a policy."""

    name: str
    holds: bool
    detail: str = ""


Result = Finding | Law | Canary | Check


@dataclass(frozen=True)
class Report:
    """The results of the whole self-test.

    Attributes:
        at: The time at which it began, UTC.
        through: The way of the queries: ``in this process`` or ``through a server``.
        left_out: The omitted steps, for lack of time or of a ledger.
    """

    version: str
    at: str
    seconds: float
    through: str
    findings: tuple[Finding, ...] = ()
    laws: tuple[Law, ...] = ()
    canaries: tuple[Canary, ...] = ()
    checks: tuple[Check, ...] = ()
    left_out: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        results: list[Result] = [*self.findings, *self.laws, *self.canaries, *self.checks]
        return all(result.holds for result in results)

    @property
    def power(self) -> str:
        """The number of faults that the test would have found, as a sentence."""
        questions, miners = (
            f"{sum(each.sharp for each in tried)} of {len(tried)}" for tried in (self.findings, self.canaries)
        )
        return f"Noise 15 % too small would have been seen in {questions} questions, a tenth of it in {miners} miners."

    def __repr__(self) -> str:
        verdict = "nothing refuted" if self.holds else "REFUTED"
        return f"Report({verdict}: {len(self.findings)} claims, {len(self.laws)} laws, {len(self.canaries)} miners)"

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"holds": self.holds, "power": self.power, "cannot_show": CANNOT}, indent=1)

    def tables(self) -> list[tuple[str, Sequence[str], list[list[str]]]]:
        """Titles, heads and rows of texts, for a terminal and for a page."""
        claims = [
            [each.name, each.neighbours, f"{each.epsilon:g}", f"{each.draws:,}", f"{each.bound:.3f}", *_seen(each)]
            for each in self.findings
        ]
        laws = [[each.name, f"{each.draws:,}", f"{each.chance:.3g}", _verdict(each.holds)] for each in self.laws]
        canaries = [
            [each.name, f"{each.epsilon:g}", f"{each.right:,} of {each.guesses:,}", f"{each.bound:.3f}", *_seen(each)]
            for each in self.canaries
        ]
        checks = [[each.name, each.detail, _verdict(each.holds)] for each in self.checks]
        return [
            (
                "Loss of each question, from below",
                ("question", "neighbours", "claimed >", "draws >", "at least >", "15 % less noise >", "verdict"),
                claims,
            ),
            ("ExactAnswers laws", ("of", "draws >", "chance >", "verdict"), laws),
            (
                "Rows guessed from one fitted model",
                ("miner", "claimed >", "right >", "at least >", "a tenth of the noise >", "verdict"),
                canaries,
            ),
            ("Ledgers and policy", ("what", "detail", "verdict"), checks),
        ]

    def to_html(self) -> str:
        title = "Self-test of pinq"
        head = f"pinq {self.version}, {self.at} UTC, {self.through}, {self.seconds / 60:.1f} minutes"
        verdict = "Nothing was refuted." if self.holds else "A claim was refuted: do not release answers."
        pieces = [
            element("h1", title),
            element("p", head),
            element("p", element("b", verdict), " ", self.power),
            *(table(*shown, "") for shown in self.tables() if shown[2]),
            *([element("p", "Not done: ", "; ".join(self.left_out), ".")] if self.left_out else []),
            table(
                "What is evaluated",
                ("question ~", "here ~"),
                EVALUATED,
                "",
                "By the questions that NIST SP 800-226 asks of a guarantee of differential privacy.",
            ),
            element("h2", "What this cannot show"),
            element("ul", *(element("li", text) for text in CANNOT)),
        ]
        return document(title, joined(pieces, Html("\n")))


def _seen(result: Finding | Canary) -> list[str]:
    weaker = "" if result.weaker is None else f"{result.weaker:.3f}, {'seen' if result.sharp else 'not seen'}"
    return [weaker, _verdict(result.holds)]


def _verdict(holds: bool) -> str:
    return "holds" if holds else "REFUTED"


def chi_square(drawn: np.ndarray, law: np.ndarray) -> float:
    """The probability, by chi-square, of draws at least as far from a law; 0 for impossible draws.

    Args:
        drawn: Outcomes 0, 1, ..., shape (draws,).
        law: Their probabilities, shape (outcomes,); rare outcomes (expected less than ten times) count as one.
    """
    from scipy import stats

    counts, wanted = np.bincount(drawn, minlength=len(law)).astype(float), law * len(drawn)
    if len(counts) > len(law) or counts[law == 0].sum() > 0:
        return 0.0
    rare = wanted < 10
    if rare.any():
        # Expected numbers 30, 6, 2 and 2: the last three become one outcome, expected 10 times.
        counts, wanted = np.append(counts[~rare], counts[rare].sum()), np.append(wanted[~rare], wanted[rare].sum())
        if wanted[-1] < 1e-9:
            counts, wanted = counts[:-1], wanted[:-1]
    if len(counts) == 1:
        return 1.0
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)


ExactAnswers = tuple[np.ndarray, np.ndarray]
"""The numbers of each copy without noise, before and after; shape (copies, numbers) each."""

Guess = Callable[[PrivateQueryable, Fraction, str, str, Sequence[Value], Value], np.ndarray]
"""``miners.canaries.Fit``."""

ERROR = 1e-6  # the probability that one claim refutes a correct system
LESS_NOISE = Fraction(85, 100)
CANARIES = 1_000
SURE = Fraction(10**4)  # an epsilon at which numbers have almost no noise
FIT_EPSILON = Fraction(2)


@dataclass(frozen=True)
class DrawLimit:
    """The number of draws from a table, and the deadline for them (``monotonic``)."""

    draws: int
    end: float


def measure_claim(claim: Claim, open_handles: OpenHandles, folder: Path, limit: DrawLimit) -> list[Result]:
    """Bounds a query's loss from below, at its epsilon and with noise that is 15 % too small.

    A query at epsilon / 0.85 has such noise. The draws from the first table are compared with their law, if it is
    known, and the ledger's total with the requested cost.
    """
    worlds = publish(claim.pair, claim.schema, folder, limit.draws)
    with open_handles(worlds) as handles:
        exact = _exact(claim, worlds, handles) if claim.noisy else None
        spent = [handle.budget.spent for handle in handles]
        pairs = [
            [_Series(claim, world, handle, epsilon, exact) for handle, world in zip(handles, worlds, strict=True)]
            for epsilon in (EPSILON, EPSILON / LESS_NOISE)
        ]
        runs = _in_turns([series for pair in pairs for series in pair], limit)
        # Both sides of a test need equally many draws; a failed request may give one side more.
        bounds = [
            epsilon_lower_bound(
                lambda drawn, number: drawn[:number], before.outcomes, after.outcomes, runs=runs, error=ERROR
            )
            for before, after in pairs
        ]
        wrong = [
            Fraction(0)
            if any(each.failed for each in both)
            else handle.budget.spent - earlier - sum(each.charge for each in both)
            for handle, earlier, both in zip(handles, spent, zip(*pairs, strict=True), strict=True)
        ]
    results: list[Result] = [Finding(claim.name, claim.pair.neighbours, float(EPSILON), runs, *bounds)]
    results.append(_verified(worlds[0], claim.name, [each for each in wrong if each]))
    if claim.law is not None:
        drawn = pairs[0][0].outcomes
        results.append(Law(claim.name, len(drawn), _chance(drawn, claim.law)))
    return results


def _chance(outcomes: Sequence[Hashable], law: Mapping[Hashable, float]) -> float:
    """The probability of outcomes at least as far from a distribution; outcomes without a name count as one."""
    numbers = {outcome: number for number, outcome in enumerate(law)}
    drawn = np.array([numbers.get(outcome, len(law)) for outcome in outcomes])
    return chi_square(drawn, np.array([*law.values(), max(0.0, round(1 - sum(law.values()), 9))]))


class _Series:
    """Repeated queries of one table at one epsilon.

    Attributes:
        outcomes: An outcome for each copy and request; a refusal or a failure is an outcome too.
        failed: Whether a request failed, so that its charge is unknown.
        charge: The charge of the answered requests.
    """

    def __init__(
        self,
        claim: Claim,
        world: PublishedTable,
        handle: PrivateQueryable,
        epsilon: Fraction,
        exact: ExactAnswers | None,
    ) -> None:
        self._claim, self._world, self._epsilon, self._exact = claim, world, epsilon, exact
        self._parts = handle.partition(world.partition)
        self.outcomes: list[Hashable] = []
        self.failed, self.charge = False, Fraction(0)

    def ask(self) -> None:
        try:
            drawn = self._claim.ask(self._parts, self._epsilon)
            self.outcomes += drawn if self._exact is None else _likelihoods(np.asarray(drawn), *self._exact)
            self.charge += Epsilon.of(self._epsilon).exact
        except PinqError as error:
            self.outcomes += [type(error).__name__] * self._world.cells
            self.failed = True


def _in_turns(series: Sequence[_Series], limit: DrawLimit) -> int:
    """Queries all series in turns until there are enough draws or the time is over; returns the least number of draws.

    They take turns because the shortest series limits the bound.
    """
    while True:
        for each in series:
            each.ask()
        drawn = min(len(each.outcomes) for each in series)
        if drawn >= limit.draws or monotonic() >= limit.end:
            return drawn


def _exact(claim: Claim, worlds: Sequence[PublishedTable], handles: Sequence[PrivateQueryable]) -> ExactAnswers | None:
    """The numbers of each copy in both tables, with almost no noise; None if a query fails."""
    try:
        before, after = (
            np.asarray(claim.ask(handle.partition(world.partition), SURE))
            for world, handle in zip(worlds, handles, strict=True)
        )
    except PinqError:
        return None
    return before, after


def _likelihoods(drawn: np.ndarray, before: np.ndarray, after: np.ndarray) -> list[Hashable]:
    """An outcome for each copy: its number, or the log ratio of the likelihoods of its numbers on both tables.

    Noise is Laplace's, so no other event distinguishes the tables better. The ratio is in hundredths of the largest.
    """
    if drawn.shape[1] == 1:
        return list(np.round(drawn[:, 0], 3).tolist())
    nearer = (np.abs(drawn - before) - np.abs(drawn - after)).sum(axis=1)
    return list(np.rint(100 * nearer / np.maximum(np.abs(after - before).sum(axis=1), 1e-9)).tolist())


def _verified(world: PublishedTable, name: str, wrong: Sequence[Fraction]) -> Check:
    """Replays the ledger of a world; its total must equal the requested costs."""
    if wrong:
        return Check(f"ledger of {name}", False, f"charged {float(wrong[0]):g} more than was asked")
    with closing(read_ledger(load_policy(world.policy))) as ledger:
        try:
            events = ledger.verify()
        except PinqError as error:
            return Check(f"ledger of {name}", False, str(error))
    return Check(f"ledger of {name}", True, f"{events:,} events, chain and total verified")


def measure_canary(name: str, fit: Guess, folder: Path, _: DrawLimit | None = None) -> list[Result]:
    """Guesses from one fitted model which rows were in its table.

    Each of 1,000 values has a row of class p, and with probability 1/2 a row of class n, its canary. The guess is that
    the half of the values with the larger probability of n in the model have their canary. If the loss is at most
    epsilon, right guesses are at most as frequent as heads of coins with probability e^eps / (1 + e^eps) (Steinke, Nasr
    & Jagielski 2023, Theorem 5.2, for delta = 0). The bound is the least loss that makes so many right guesses likely
    enough. The quarter of the values with the clearest probabilities is tested too.
    """
    results = []
    for number, epsilon in enumerate((FIT_EPSILON, 10 * FIT_EPSILON)):
        inside, shares = _fitted(fit, epsilon, folder / f"{name}-{number}")
        # Tiny random numbers put equal shares in random order.
        order = np.argsort(shares + np.random.default_rng().uniform(0, 1e-9, CANARIES))
        eighth = CANARIES // 8
        sure = np.concatenate([order[:eighth], order[-eighth:]])
        for guesses in (order, sure):
            guessed = np.arange(len(guesses)) >= len(guesses) // 2
            right = int((guessed == inside[guesses]).sum())
            results.append((number, right, len(guesses), _least_loss(right, len(guesses))))
    best = max((result for result in results if result[0] == 0), key=lambda result: result[3])
    weaker = max(result[3] for result in results if result[0] == 1)
    return [Canary(name, float(FIT_EPSILON), best[2], best[1], best[3], weaker)]


def _fitted(fit: Guess, epsilon: Fraction, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Fits once; for each canary, whether it was in the table, and the model's probability of its class."""
    folder.mkdir()
    inside = np.random.default_rng().integers(2, size=CANARIES).astype(bool)
    with_canary = np.flatnonzero(inside)
    columns: dict[str, Column] = {
        "value": Categorical(values=tuple(range(CANARIES))),
        "y": Categorical(values=("n", "p")),
    }
    # Three values, of which 0 and 2 have a canary: rows 0 p, 1 p, 2 p, 0 n, 2 n.
    classes = ["p"] * CANARIES + ["n"] * len(with_canary)
    table = {"value": np.append(np.arange(CANARIES), with_canary), "y": classes}
    published = publish_table(folder, "canaries", columns, pa.table(table), max_rows=2 * CANARIES)
    with open_here(published.policy, analyst=ANALYST) as handle:
        return inside, fit(handle, epsilon, "y", "value", range(CANARIES), "n")


def _least_loss(right: int, guesses: int) -> float:
    """The largest loss that so many right guesses refute, at half of ``ERROR``."""
    from scipy.stats import beta

    # All of 250 guesses right: the probability of a right guess is above 0.94, wrong with 5e-7, so the loss is above
    # ln(0.94 / 0.06) = 2.8.
    share = float(beta.ppf(ERROR / 2, right, guesses - right + 1)) if right else 0.0
    return max(0.0, math.log(share / (1 - share))) if 0 < share < 1 else 0.0


DRAWS = 45_000  # from each table; enough to see noise 15 % too small
MIN_DRAWS = 2_000


@dataclass(frozen=True)
class Progress:
    """The progress of the test: ``done`` of ``total`` steps; ``name`` is the next."""

    done: int
    total: int
    name: str


def selftest(
    policy: str | os.PathLike[str] | None = None,
    *,
    minutes: float = 10.0,
    server: bool = False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Measures the real privacy loss of the installed system, on dummy tables.

    Args:
        policy: The policy whose schema is tested, on dummy rows; its source and its ledger are verified, without a
            query. None for columns of every kind.
        minutes: The approximate limit of time; with less, there are fewer draws and the test has less power.
        server: Whether queries go through ``pinq serve``, started for the test, instead of this process.
        progress: A function that is called before each step.

    Returns:
        The report; ``holds`` is False if a claim was refuted.

    Raises:
        QueryError: ``minutes`` is out of range, or no miners are registered.
        Unavailable: The server did not start.
    """
    if not is_number(minutes, 0.05, 24 * 60):
        raise QueryError(f"is {minutes!r}", parameter="minutes", allowed="a number from 0.05 to 1440")
    began, at = monotonic(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    left_out: list[str] = []
    loaded = None if policy is None else load_policy(policy)
    results: list[Result] = [_known(), *([] if loaded is None else _checked(loaded, left_out))]
    claims, untested = claims_of(EVERY_KIND if loaded is None else loaded.schema_)
    left_out += untested
    steps = _steps(server, claims)
    for done, (name, seconds, measure) in enumerate(steps):
        progress(Progress(done, len(steps), name))
        remaining = began + 60 * minutes - monotonic()
        if remaining <= 0:
            left_out.append(name)
            continue
        pace = min(1.0, remaining / sum(later for _, later, _ in steps[done:]))
        limit = DrawLimit(max(MIN_DRAWS, round(DRAWS * pace)), monotonic() + 2 * pace * seconds)
        with tempfile.TemporaryDirectory(prefix="pinq-selftest-") as folder:
            results += measure(Path(folder), limit)
    progress(Progress(len(steps), len(steps), ""))
    return Report(
        __version__,
        at,
        monotonic() - began,
        "through a server" if server else "in this process",
        tuple(result for result in results if isinstance(result, Finding)),
        tuple(result for result in results if isinstance(result, Law)),
        tuple(result for result in results if isinstance(result, Canary)),
        tuple(result for result in results if isinstance(result, Check)),
        tuple(left_out),
    )


Step = tuple[str, float, Callable[[Path, DrawLimit], list[Result]]]
"""The name of a measurement; the approximate seconds for all draws; a function that runs it in an empty folder."""


def _steps(server: bool, claims: Sequence[Claim]) -> list[Step]:
    open_handles = through_a_server if server else in_process
    measured = [(claim.name, claim.seconds, partial(measure_claim, claim, open_handles)) for claim in claims]
    fits = plugin("pinq.selftest", "miners", "A self-test fits miners.")
    # A short test has time for the first claims and the miners.
    return [
        *measured[:2],
        *((name, 2.0, partial(measure_canary, name, fit)) for name, fit in fits.items()),
        *measured[2:],
    ]


def _known() -> Check:
    total, wrong = wrong_answers()
    return Check("known answers of the samplers", not wrong, f"{total:,} numbers, wrong: {', '.join(wrong) or 'none'}")


def _checked(policy: Policy, left_out: list[str]) -> list[Result]:
    """Compares a policy with its source, and replays its ledger if there is one."""
    report, name = check(policy), f"ledger of {policy.dataset}"
    checks: list[Result] = [
        Check(f"policy {policy.dataset}", report.ready, "; ".join(report.problems) or "fits its source")
    ]
    try:
        with closing(read_ledger(policy)) as ledger:
            checks.append(Check(name, True, f"{ledger.verify():,} events, chain and answers verified"))
    except NoLedger:
        left_out.append(f"the {name}, for there is none")
    except PinqError as error:
        checks.append(Check(name, False, str(error)))
    return checks
