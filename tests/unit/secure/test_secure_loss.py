# SPDX-License-Identifier: Apache-2.0
"""A session says its epsilon, its delta and its comparisons beforehand, and never compares more; exact results are called experimental."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from pinq.public.epsilon import Epsilon
from pinq_secure import SecureID3
from pinq_secure.id3.task import Holding, hold
from pinq_secure.mpc.arithmetic import ALONE, SECURITY, Arithmetic, run_to_end
from pinq_secure.session.loss import EXACT, Loss
from pinq_secure.session.party import grow
from pinq_secure.session.session import Session
from tests.support.processes.secure_parties import patients, session_of

NOISY: dict[str, Any] = {"noise": "discrete-laplace", "epsilon": "2", "depth": 2}


def compared(session: Session, rows: int, seed: int = 0) -> int:
    """Runs a session and counts its comparisons where they are made."""
    holdings = [hold(session.task, patients(rows, seed + party)) for party in range(3)]
    task = replace(session.task, rows=(session.task.max_rows,))
    arithmetic = Arithmetic(ALONE, session.bits, plays=3)
    run_to_end(grow(arithmetic, task, session.rule(), Holding.joined(holdings), session.protocol))
    return arithmetic.compared


@pytest.mark.parametrize("stop_share", ["0", "0.05", "0.34", "1"])
@pytest.mark.parametrize("protocol", ["sid3p", "sid3", "sid3t", "sid3s"])
def test_exact_sessions_compare_no_more_than_they_say(protocol: str, stop_share: str) -> None:
    """Few rows and many, so trees end early and are full; without a limit of size the bound is nearly reached, of SID3S exactly."""
    counts = []
    for rows in (2, 60):
        session = session_of(protocol, [rows] * 3, stop_share=stop_share)
        counts.append((compared(session, rows), Loss.of(session).comparisons))
        assert counts[-1][0] <= counts[-1][1]
    most, bound = counts[-1]
    if protocol == "sid3s" or stop_share == "1":
        assert most == bound
    elif stop_share == "0":
        assert most > 0.4 * bound


@pytest.mark.parametrize("protocol", ["sid3p", "sid3"])
def test_noisy_sessions_compare_no_more_than_they_say(protocol: str) -> None:
    """Also where noise alone decides, so that nodes without rows split; with many rows the bound is nearly reached."""
    for depth in range(4):
        for epsilon in ("0.05", "100"):
            session = session_of(protocol, [60] * 3, noise="discrete-laplace", epsilon=epsilon, depth=depth)
            for seed in range(3):
                assert compared(session, 60, seed) <= Loss.of(session).comparisons
    full = session_of(protocol, [400] * 3, **{**NOISY, "epsilon": "1000", "stop_share": "0"})
    assert compared(full, 400) > 0.7 * Loss.of(full).comparisons


def test_delta_is_that_of_all_comparisons() -> None:
    """Two figures, rounded up, and never above 1."""
    for fields in (NOISY, {**NOISY, "depth": 3}):
        loss = Loss.of(session_of("sid3p", [50] * 3, **fields))
        assert loss.epsilon == 2
        assert loss.delta is not None
        assert Fraction(loss.comparisons, 2**SECURITY) <= Fraction(loss.delta) < Fraction(loss.comparisons * 11, 2**43)
    columns = {f"c{number}": {"type": "categorical", "values": list("abcdefgh")} for number in range(15)}
    columns["ill"] = {"type": "categorical", "values": ["no", "yes"]}
    endless = Loss.of(session_of("sid3p", [50] * 3, **{**NOISY, "depth": 15}, columns=columns))
    assert endless.comparisons > 2**SECURITY
    assert endless.delta == 1


@pytest.mark.parametrize("protocol", ["topdown", "scorecard"])
def test_sums_compare_nothing(protocol: str) -> None:
    """What is left is a share of noise that would not fit."""
    fields = {name: value for name, value in NOISY.items() if name != "depth"}
    loss = Loss.of(session_of(protocol, [50] * 3, **fields))
    assert loss.comparisons == 0
    assert loss.delta is not None
    assert 2.0**-100 < loss.delta < 2.0**-70
    assert "no comparisons of secret numbers" in str(loss)


@pytest.mark.parametrize("epsilon", [None, "0.5"])
def test_a_plan_says_it(epsilon: str | None) -> None:
    """Epsilon, delta and comparisons, or that an exact tree is experimental."""
    session = session_of("sid3p", [50] * 3)
    plan = SecureID3(epsilon=epsilon, depth=epsilon and 2).plan(session.schema_, "ill", rows=50)  # type: ignore[arg-type]
    assert str(plan.loss) in repr(plan)
    assert f"at most {plan.loss.comparisons:,} comparisons" in repr(plan)
    assert plan.epsilon == (None if epsilon is None else Epsilon.of(epsilon).exact)
    assert (EXACT in repr(plan)) == (epsilon is None)
    assert epsilon is None or math.isclose(plan.loss.delta or 0, plan.loss.comparisons * 2.0**-SECURITY, rel_tol=0.1)
