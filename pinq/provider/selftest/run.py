# SPDX-License-Identifier: Apache-2.0
"""``selftest``: asks every claim, holds every law, fits every miner, and reports."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pinq import __version__
from pinq.errors import PinqError, QueryError
from pinq.ledger.store import NoLedger
from pinq.provider.check import check
from pinq.provider.local import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.selftest.claims import CLAIMS, Claim
from pinq.provider.selftest.doors import Door, in_process, through_a_server
from pinq.provider.selftest.measure import Guess, Time, measure_canary, measure_claim, measure_laws
from pinq.provider.selftest.report import Canary, Check, Finding, Law, Report
from pinq.public.checks import is_number
from pinq.public.plugins import plugin
from pinq.public.policy import Policy

__all__ = ["Progress", "selftest"]

DRAWS = 45_000  # from each table; enough to see noise 15 % too small
FEWEST = 2_000


@dataclass(frozen=True)
class Progress:
    """How far the test is: ``done`` of ``total`` steps, ``what`` is next."""

    done: int
    total: int
    what: str


Result = Finding | Law | Canary | Check


def selftest(
    policy: str | os.PathLike[str] | None = None,
    *,
    minutes: float = 10.0,
    server: bool = False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Measures what the installed system really loses, on made-up tables.

    Args:
        policy: A policy to check beside it: its source, and its ledger's chain. Not asked anything.
        minutes: About how long it may take. With less there are fewer draws, and less is seen.
        server: Ask through ``pinq serve``, which is started for it, instead of in this process.
        progress: Called before each step.

    Returns:
        What was seen. ``holds`` is False where a claim was refuted.

    Raises:
        QueryError: ``minutes`` is no such number, or no miners are registered.
        Unavailable: The server did not start.
    """
    if not is_number(minutes, 0.05, 24 * 60):
        raise QueryError(f"is {minutes!r}", parameter="minutes", allowed="a number from 0.05 to 1440")
    began, at = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    left_out: list[str] = []
    results: list[Result] = [] if policy is None else _checked(load_policy(policy), left_out)
    steps = list(_steps(server))
    for done, step in enumerate(steps):
        progress(Progress(done, len(steps), step.name))
        left = began + 60 * minutes - time.monotonic()
        if left <= 0:
            left_out.append(step.name)
            continue
        pace = min(1.0, left / sum(later.seconds for later in steps[done:]))
        limit = Time(max(FEWEST, round(DRAWS * pace)), time.monotonic() + 2 * pace * step.seconds)
        with tempfile.TemporaryDirectory(prefix="pinq-selftest-") as folder:
            results += step.run(Path(folder), limit)
    progress(Progress(len(steps), len(steps), ""))
    return Report(
        __version__,
        at,
        time.monotonic() - began,
        "through a server" if server else "in this process",
        tuple(result for result in results if isinstance(result, Finding)),
        tuple(result for result in results if isinstance(result, Law)),
        tuple(result for result in results if isinstance(result, Canary)),
        tuple(result for result in results if isinstance(result, Check)),
        tuple(left_out),
    )


@dataclass(frozen=True)
class _Step:
    """Something that is measured.

    Attributes:
        name: For people.
        seconds: About how long all draws take.
        run: Measures it, in a folder of its own.
    """

    name: str
    seconds: float
    run: Callable[[Path, Time], list[Result]]


def _steps(server: bool) -> Iterator[_Step]:
    door = through_a_server if server else in_process
    yield _Step("laws", 15, partial(_laws, door))
    for name, fit in plugin("pinq.selftest", "miners", "A self-test fits miners.").items():
        yield _Step(name, 2, partial(_canary, name, fit))
    for claim in CLAIMS:
        yield _Step(claim.name, claim.seconds, partial(_claim, claim, door))


def _laws(door: Door, folder: Path, limit: Time) -> list[Result]:
    return list(measure_laws(folder, door, limit))


def _claim(claim: Claim, door: Door, folder: Path, limit: Time) -> list[Result]:
    return list(measure_claim(claim, folder, door, limit))


def _canary(name: str, fit: Guess, folder: Path, limit: Time) -> list[Result]:
    return [measure_canary(name, fit, folder)]


def _checked(policy: Policy, left_out: list[str]) -> list[Result]:
    """Compares a provider's policy with its source, and replays its ledger where there is one."""
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
