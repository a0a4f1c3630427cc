# SPDX-License-Identifier: Apache-2.0
"""Measures one claim, one law, one miner: draws, and what follows from them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import PinqError
from pinq.provider.grants import grant
from pinq.provider.local import open as open_here
from pinq.provider.local import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.selftest.claims import EPSILON, TEN, Claim
from pinq.provider.selftest.doors import Door
from pinq.provider.selftest.laws import chi_square, flip_law, interval_of, noise_law
from pinq.provider.selftest.report import Canary, Check, Finding, Law
from pinq.provider.selftest.worlds import ANALYST, LIMIT, Pair, Row, World, publish
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.epsilon import Epsilon
from pinq.public.policy import Policy
from pinq.public.schema import Categorical, Column, Value
from pinq.public.scores import MaxClass
from pinq.public.specs import Spec, Values

Guess = Callable[[PrivateQueryable, Fraction, str, str, Sequence[Value], Value], np.ndarray]
"""``miners.canaries.Fit``."""

__all__ = ["ERROR", "Guess", "Time", "measure_canary", "measure_claim", "measure_laws"]

ERROR = 1e-6  # how likely a right system is refuted by one claim
LESS_NOISE = Fraction(85, 100)
CANARIES = 1_000
FIT_EPSILON = Fraction(2)
# By MaxClass column a scores 4 of these five rows, b and c 3.
SCORED = (("u", "u", "p"), ("u", "v", "p"), ("v", "u", "n"), ("v", "v", "n"), ("u", "v", "n"))


@dataclass(frozen=True)
class Time:
    """How many draws are wanted from a table, and until when they may be taken (``monotonic``)."""

    draws: int
    end: float


def measure_claim(claim: Claim, folder: Path, door: Door, limit: Time) -> tuple[Finding, Check]:
    """Bounds a question's loss from below, at its epsilon and with noise that is 15 % too small.

    To ask at epsilon / .85 is to have noise 15 % too small: so the power is seen, not computed.
    """
    worlds = publish(claim.pair, folder, limit.draws)
    with door(worlds) as handles:
        spent = [handle.budget.spent for handle in handles]
        pairs = [
            [_Series(claim, world, handle, epsilon) for handle, world in zip(handles, worlds, strict=True)]
            for epsilon in (EPSILON, EPSILON / LESS_NOISE)
        ]
        runs = _in_turns([series for pair in pairs for series in pair], limit)
        # Both sides of a test need as many draws; a request that went wrong may give one side more.
        bounds = [
            epsilon_lower_bound(_first, before.outcomes, after.outcomes, runs=runs, error=ERROR)
            for before, after in pairs
        ]
        wrong = [
            _overcharge(handle.budget.spent - earlier, asked)
            for handle, earlier, asked in zip(handles, spent, zip(*pairs, strict=True), strict=True)
        ]
    finding = Finding(claim.name, _neighbours(claim.pair), float(EPSILON), runs, *bounds)
    return finding, _verified(worlds[0], claim.name, [each for each in wrong if each])


class _Series:
    """One table that is asked at one epsilon, again and again.

    Attributes:
        outcomes: One for each copy and request; what is refused or fails is an outcome too.
        failed: Whether a request did, whose charge may stand or not.
        charge: Of the requests that were answered.
    """

    def __init__(self, claim: Claim, world: World, handle: PrivateQueryable, epsilon: Fraction) -> None:
        self._claim, self._world, self._epsilon = claim, world, epsilon
        self._parts = handle.partition(world.partition)
        self.outcomes: list[Hashable] = []
        self.failed, self.charge = False, Fraction(0)

    def ask(self) -> None:
        """Asks all copies once more."""
        try:
            self.outcomes += self._claim.ask(self._parts, self._epsilon)
            self.charge += Epsilon.of(self._epsilon).exact
        except PinqError as error:
            self.outcomes += [type(error).__name__] * self._world.cells
            self.failed = True


def _in_turns(series: Sequence[_Series], limit: Time) -> int:
    """Asks all series until there are draws enough or the time is over; how many each has then.

    In turns, for a bound is as sharp as the shortest series is long: one after another, the last
    one would have what time the others left.
    """
    while True:
        for each in series:
            each.ask()
        drawn = min(len(each.outcomes) for each in series)
        if drawn >= limit.draws or time.monotonic() >= limit.end:
            return drawn


def _overcharge(charged: Fraction, asked: Sequence[_Series]) -> Fraction:
    """Charged beyond what was asked, negative where less; 0 where a request failed."""
    return Fraction(0) if any(each.failed for each in asked) else charged - sum(each.charge for each in asked)


def _first(drawn: list[Hashable], runs: int) -> list[Hashable]:
    return drawn[:runs]


def _neighbours(pair: Pair) -> str:
    rows = "a row" if pair.unit_rows is None else f"a person of {pair.unit_rows} rows"
    return f"{rows} {'comes' if pair.adjacency == 'add-remove' else 'is replaced'}"


def _verified(world: World, name: str, wrong: Sequence[Fraction]) -> Check:
    """Replays the ledger of a world; its total must be what was asked."""
    if wrong:
        return Check(f"ledger of {name}", False, f"charged {float(wrong[0]):g} more than was asked")
    with closing(read_ledger(load_policy(world.policy))) as ledger:
        try:
            events = ledger.verify()
        except PinqError as error:
            return Check(f"ledger of {name}", False, str(error))
    return Check(f"ledger of {name}", True, f"{events:,} events, chain and total verified")


def measure_laws(folder: Path, door: Door, limit: Time) -> list[Law]:
    """Holds noise of counts and choices of a column against their exact laws."""
    scored = tuple(Row(a=a, b=b, y=y) for a, b, y in SCORED)
    worlds = publish(Pair(TEN, scored), folder, limit.draws)
    with door(worlds) as (plain, mixed):
        counts: list[int] = []
        parts = plain.partition(worlds[0].partition)
        while len(counts) < limit.draws:
            counts += parts.noisy_count(epsilon=EPSILON).tolist()
        edges = np.arange(-6, 7)
        noise = np.array(counts) - len(TEN)
        chance = chi_square(interval_of(noise, edges), noise_law(1 / float(EPSILON), edges))
        laws = [Law("noise of a count: discrete Laplace", len(counts), chance)]
        # Scores 4, 3 and 3 of the five rows above: the law of the choice is known exactly.
        columns: list[Spec] = [Values("a"), Values("b"), Values("c")]
        chosen: list[int] = []
        parts = mixed.partition(worlds[1].partition)
        while len(chosen) < limit.draws:
            specs = parts.exp_mech(columns, score=MaxClass("y"), epsilon=EPSILON)
            chosen += [columns.index(spec) for spec in specs if spec is not None]
        law = flip_law([4, 3, 3], float(EPSILON))
        laws.append(Law("choice of a column: permute-and-flip", len(chosen), chi_square(np.array(chosen), law)))
    return laws


def measure_canary(name: str, fit: Guess, folder: Path) -> Canary:
    """Guesses from one fitted model which of many rows were in its table.

    Each of 1,000 values has a row of class p, and by a coin of its own a row of class n, its canary.
    The half of the values that the model gives the larger share of n are guessed to have it. With a
    loss of at most epsilon as many are right as of coins with probability e^eps / (1 + e^eps), or
    fewer (Steinke, Nasr & Jagielski 2023, Theorem 5.2, for delta = 0): the bound is the least loss
    with which so many are not too unlikely. Also of the quarter with the clearest shares.
    """
    results = []
    for number, epsilon in enumerate((FIT_EPSILON, 10 * FIT_EPSILON)):
        inside, shares = _fitted(fit, epsilon, folder / f"{name}-{number}")
        # A hair of randomness puts equal shares in an order that says nothing.
        order = np.argsort(shares + np.random.default_rng().uniform(0, 1e-9, CANARIES))
        eighth = CANARIES // 8
        sure = np.concatenate([order[:eighth], order[-eighth:]])
        for taken in (order, sure):
            guessed = np.arange(len(taken)) >= len(taken) // 2
            right = int((guessed == inside[taken]).sum())
            results.append((number, right, len(taken), _least_loss(right, len(taken))))
    best = max((result for result in results if result[0] == 0), key=lambda result: result[3])
    weaker = max(result[3] for result in results if result[0] == 1)
    return Canary(name, float(FIT_EPSILON), best[2], best[1], best[3], weaker)


def _fitted(fit: Guess, epsilon: Fraction, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Fits once; which canaries were in the table, and the model's share for each, (canaries,)."""
    folder.mkdir()
    inside = np.random.default_rng().integers(2, size=CANARIES).astype(bool)
    here = np.flatnonzero(inside)
    columns: dict[str, Column] = {
        "value": Categorical(values=tuple(range(CANARIES))),
        "y": Categorical(values=("n", "p")),
    }
    # Of values 0, 1 and 2 where 0 and 2 have a canary: rows 0 p, 1 p, 2 p, 0 n, 2 n.
    table = {"value": np.append(np.arange(CANARIES), here), "y": ["p"] * CANARIES + ["n"] * len(here)}
    pq.write_table(pa.table(table), folder / "canaries.parquet")
    policy = Policy(
        dataset="canaries",
        source="canaries.parquet",
        cap=Decimal(LIMIT),
        max_rows=2 * CANARIES,
        columns=columns,
    )
    file = folder / "canaries.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    grant(file, ANALYST, LIMIT)
    with open_here(file, analyst=ANALYST) as handle:
        return inside, fit(handle, epsilon, "y", "value", range(CANARIES), "n")


def _least_loss(right: int, guesses: int) -> float:
    """Returns the largest loss that so many right guesses refute, at half of ``ERROR``."""
    from scipy.stats import beta

    # All of 250 guesses right: the probability of a right one is above .94 but for 5e-7, so the
    # loss is above ln(.94 / .06) = 2.8.
    share = float(beta.ppf(ERROR / 2, right, guesses - right + 1)) if right else 0.0
    return max(0.0, math.log(share / (1 - share))) if 0 < share < 1 else 0.0
