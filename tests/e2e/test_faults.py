# SPDX-License-Identifier: Apache-2.0
"""Faults found in other systems: losses that are none, two budgets for one table, answers before their charge, races."""

from __future__ import annotations

import logging
import math
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pinq
from miners import DiffPID3
from pinq import (
    BudgetExceeded,
    EngineError,
    Gini,
    LedgerError,
    PolicyError,
    QueryError,
    Values,
)
from pinq.language.queries import Request
from pinq.policy.policy import Policy
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import ZERO, Epsilon
from tests.support.processes.forked_processes import run_pinq
from tests.support.requests.fault_checks import kinds, spend, unspent
from tests.support.requests.handles import engine_of, ledger_of

NOT_LOSSES = [
    math.nan,
    math.inf,
    -math.inf,
    0,
    -0.1,
    -1,
    "nan",
    "inf",
    "-1",
    Decimal("NaN"),
    np.float64("nan"),
    None,
    True,
    1e300,
    10**7,
]
ENGINE_ERROR = (
    "The data could not be read for this request, or not in the time that it had. Its cost stays charged, because "
    "a failure may depend on the rows. "
    "The provider finds the details in the log of its own process."
)


# Losses that are none


@pytest.mark.parametrize("epsilon", NOT_LOSSES, ids=repr)
def test_what_is_not_a_loss_is_refused_by_every_verb(epsilon: Any, granted: Callable[..., Any]) -> None:
    """NaN, infinite, zero, negative, absurd: refused before anything is charged, by each verb and by the preview."""
    handle = granted()
    asked: tuple[Callable[[], object], ...] = (
        lambda: handle.noisy_count(epsilon=epsilon),
        lambda: handle.noisy_sum("age", epsilon=epsilon),
        lambda: handle.noisy_avg("age", epsilon=epsilon),
        lambda: handle.exp_mech([Values("sex")], score=Gini("income"), epsilon=epsilon),
        lambda: handle.partition(Values("sex")).noisy_count(epsilon=epsilon),
        lambda: handle.preview("noisy_count", epsilon=epsilon),
    )
    for ask in asked:
        with pytest.raises(
            QueryError,
            match=r"^`epsilon` is .*; it must be a finite number greater than 0 and at most 1000000\. Nothing was spent\.$",
        ):
            ask()
    unspent(handle)


@pytest.mark.parametrize("epsilon", ["nan", "inf", "-1", "0", "1e400", "", "0x1", "1e-500x"])
def test_a_forged_request_is_checked_by_the_curator(epsilon: str, granted: Callable[..., Any]) -> None:
    """The check stands behind the wall too, whatever the analyst's side let through."""
    handle = granted()
    with pytest.raises(QueryError, match="must be a finite number greater than 0"):
        handle._session.ask(Request(id="forged", verb="noisy_count", epsilon=epsilon))
    unspent(handle)


def test_losses_are_checked_without_assertions(tmp_path: Path) -> None:
    """The same under ``python -O``, which removes assert statements."""
    program = """
import math, pathlib, sys
import pandas as pd, pinq
from pinq.public.epsilon import Epsilon
from pinq.provider.opening import open_ledger
assert False, "assertions are on"
policy = pinq.Policy(dataset="o", cap=10, max_rows=10, columns={"s": {"type": "categorical", "values": ["f"]}}, folder=pathlib.Path(sys.argv[1]))
open_ledger(policy).grant("ana", Epsilon.of(1))
handle = pinq.open(policy, analyst="ana", data=pd.DataFrame({"s": ["f"]}))
refused = 0
for epsilon in (math.nan, math.inf, -math.inf, -1, 0, "nan", "inf"):
    try:
        handle.noisy_count(epsilon=epsilon)
    except pinq.QueryError:
        refused += 1
try:
    handle.noisy_count(epsilon=2)
except pinq.BudgetExceeded:
    refused += 1
print(refused, handle.budget)
"""
    done = subprocess.run(
        [sys.executable, "-O", "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "8 Budget(epsilon=1, spent=0, remaining=1)\n", done.stderr


def test_three_charges_of_a_tenth_fit_three_tenths(granted: Callable[..., Any]) -> None:
    """0.1 + 0.1 + 0.1 is 0.3 here; the fourth is refused."""
    handle = granted(0.3)
    for _ in range(3):
        handle.noisy_count(epsilon=0.1)
    assert handle.budget.remaining == 0
    with pytest.raises(BudgetExceeded):
        handle.noisy_count(epsilon="1e-9")


def test_another_spelling_of_the_file_is_the_same_budget(published: Callable[..., Path], tmp_path: Path) -> None:
    """Dots, links to the file and links to its folder, absolute and relative paths: all lead to one ledger."""
    open_ledger(load_policy(published())).grant("ana", Epsilon.of(1))
    (tmp_path / "link.parquet").symlink_to(tmp_path / "data" / "adult.parquet")
    (tmp_path / "folder").symlink_to(tmp_path / "data")
    spellings = [
        "./data/../data/adult.parquet",
        "link.parquet",
        "folder/adult.parquet",
        str(tmp_path / "data" / "adult.parquet"),
        "data//adult.parquet",
    ]
    for number, spelling in enumerate(spellings, start=1):
        handle = spend(published(f"spelling{number}.yaml", spelling), "0.1")
        assert handle.budget.spent == Fraction(number, 10)
    assert spend(published("elsewhere/policy.yaml", "../data/adult.parquet"), "0.1").budget.spent == Fraction(6, 10)


def test_a_second_policy_gets_no_second_budget(published: Callable[..., Path]) -> None:
    """Another policy over the same file finds the ledger, its grants and what was spent; its own name for the dataset is refused."""
    open_ledger(load_policy(published())).grant("ana", Epsilon.of(1))
    spend(published(), "0.75")
    handle = pinq.open(published("two.yaml", cap=5), analyst="ana")
    assert handle.budget.spent == Fraction(3, 4)
    with pytest.raises(LedgerError, match=r"belongs to the dataset 'adult', not to 'other'\. One table has one ledger"):
        pinq.open(published("three.yaml", dataset="other"), analyst="ana")


@pytest.mark.parametrize("pattern_first", [False, True])
def test_a_pattern_that_matches_the_file_is_the_same_budget(
    pattern_first: bool, published: Callable[..., Path]
) -> None:
    """Whichever came first, the file or a pattern over it, the other finds its ledger."""
    sources = (
        ["data/*.parquet", "data/adult.parquet", "data/ad*.parquet"]
        if pattern_first
        else ["data/adult.parquet", "data/*.parquet", "data/a?ult.parquet"]
    )
    open_ledger(load_policy(published("first.yaml", sources[0]))).grant("ana", Epsilon.of(1))
    for number, source in enumerate(sources, start=1):
        assert spend(published(f"{number}.yaml", source), "0.1").budget.spent == Fraction(number, 10)


def test_a_hard_link_is_refused(published: Callable[..., Path], tmp_path: Path) -> None:
    """Through each of its names a file would look like another source."""
    open_ledger(load_policy(published())).grant("ana", Epsilon.of(1))
    os.link(tmp_path / "data" / "adult.parquet", tmp_path / "again.parquet")
    with pytest.raises(PolicyError, match="has several hard links"):
        pinq.open(published("two.yaml", "again.parquet"), analyst="ana")


@pytest.mark.parametrize("first", [None, "a.ledger"], ids=["default", "elsewhere"])
def test_a_second_ledger_is_refused(first: str | None, published: Callable[..., Path]) -> None:
    """A policy that names another ledger for a guarded file is told so; it would be a second budget for the same people."""
    file = published(ledger=first)
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    spend(file, "0.75")
    with pytest.raises(
        PolicyError,
        match=r"is already guarded by the ledger .* A second ledger would be a second budget for the same people",
    ):
        pinq.open(published("two.yaml", ledger="b.ledger"), analyst="ana")
    assert pinq.open(published("three.yaml"), analyst="ana").budget.spent == Fraction(3, 4)


# Charge first


def test_the_charge_is_in_the_log_before_the_data_are_read(
    granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the engine is asked, another process could already read the charge in the ledger; no answer is there yet."""
    handle = granted()
    engine, ledger = engine_of(handle), ledger_of(handle)
    right, looks = engine.tabulate, []

    def spy(*args: Any) -> Any:
        with sqlite3.connect(ledger.url.removeprefix("sqlite:///")) as other:
            looks.append([kind for (kind,) in other.execute("SELECT kind FROM events ORDER BY seq")][4:])
        other.close()
        return right(*args)

    monkeypatch.setattr(engine, "tabulate", spy)
    handle.noisy_count(epsilon=0.1)
    handle.partition(Values("sex")).noisy_sum("age", epsilon=0.1)
    assert looks == [["charge"], ["charge", "answer", "charge"]]
    with pytest.raises(BudgetExceeded):
        handle.noisy_count(epsilon=1)
    with pytest.raises(QueryError):
        handle.noisy_sum("nobody", epsilon=0.1)
    assert len(looks) == 2, "a refused request met the data"


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("row 17 has the value 4"),
        MemoryError(),
        OverflowError("BIGINT"),
        TimeoutError(),
        ZeroDivisionError(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_engine_failure_says_the_same_whatever_happened(
    failure: Exception, granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One text; the charge stands; the cause is in the provider's log only; the same request id gets its answer later without a new charge."""
    handle = granted()
    engine, ledger = engine_of(handle), ledger_of(handle)
    request = Request(id="again", verb="noisy_count", epsilon="0.25")

    def fail(*_: Any) -> Any:
        raise failure

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR, "pinq"):
        broken.setattr(engine, "tabulate", fail)
        with pytest.raises(EngineError) as told:
            handle._session.ask(request)
    assert str(told.value) == ENGINE_ERROR
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__
    assert type(failure).__name__ in caplog.text
    assert handle.budget.spent == Fraction(1, 4)
    answer = handle._session.ask(request)
    assert handle._session.ask(request) == answer
    assert handle.budget.spent == Fraction(1, 4)
    ledger.verify()
    assert kinds(ledger)[4:] == ["charge", "answer"]


def test_a_failure_in_the_noise_is_an_engine_failure_too(
    unrehearsed: None, granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes after the charge gives the one text."""
    handle = granted()

    def fail(*_: Any) -> Any:
        raise ValueError("the true count is 40")

    monkeypatch.setattr("pinq.curator.prepared.laplace", fail)
    with pytest.raises(EngineError, match="^" + re.escape(ENGINE_ERROR) + "$"):
        handle.noisy_count(epsilon=0.1)
    assert handle.budget.spent == Fraction(1, 10)


def test_a_request_id_belongs_to_one_question(granted: Callable[..., Any]) -> None:
    """Asking something else under a used id is an error, not a free answer."""
    handle = granted()
    handle._session.ask(Request(id="r", verb="noisy_count", epsilon="0.1"))
    with pytest.raises(QueryError, match="the request id 'r' was used for another question"):
        handle._session.ask(Request(id="r", verb="noisy_sum", epsilon="0.1", column="age"))
    assert handle.budget.spent == Fraction(1, 10)


# Many at once


def test_fits_in_many_threads_share_one_budget(granted: Callable[..., Any]) -> None:
    """Six trees at 0.4 on a grant of 1, at the same time: no more is spent than granted, and at most two finish."""
    handle = granted(1)
    fitted, refused = [], []
    barrier = threading.Barrier(6)

    def fit() -> None:
        barrier.wait()
        try:
            fitted.append(DiffPID3(epsilon=0.4, max_depth=2).fit(handle, "income"))
        except BudgetExceeded as refusal:
            refused.append(refusal)

    threads = [threading.Thread(target=fit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fitted) + len(refused) == 6
    assert len(fitted) <= 2
    assert handle.budget.spent <= 1
    ledger_of(handle).verify()


def test_threads_and_handles_of_one_grant(granted: Callable[..., Any]) -> None:
    """Twelve threads over three handles ask 0.05 of a grant of 1 until it is gone: exactly twenty answers."""
    handles = [granted(1) for _ in range(3)]
    answers: list[int] = []

    def ask(handle: Any) -> None:
        try:
            while True:
                answers.append(handle.noisy_count(epsilon=0.05))
        except BudgetExceeded:
            return

    threads = [threading.Thread(target=ask, args=(handles[number % 3],)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    ledger = ledger_of(handles[0])
    ledger.verify()
    assert kinds(ledger).count("charge") == kinds(ledger).count("answer") == 20


def test_one_request_id_from_many_threads_has_one_answer(granted: Callable[..., Any], tiny_policy: Policy) -> None:
    """Retries that overtake each other are charged once and see one answer, where both handles have the same rows."""
    policy = tiny_policy.model_copy(update={"rows_version": "one"})
    handles = [granted(1, policy=policy) for _ in range(2)]
    seen = []
    threads = [
        threading.Thread(
            target=lambda h=handles[n % 2]: seen.append(
                h._session.ask(Request(id="same", verb="noisy_count", epsilon="0.01")).values
            )
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1
    assert handles[0].budget.spent == Fraction(1, 100)


def test_fits_in_many_processes_share_one_budget(published: Callable[..., Path]) -> None:
    """Four processes fit a tree at 0.4 each on a grant of 1: all together stay within it."""
    file = published()
    ledger = open_ledger(load_policy(file))
    ledger.grant("ana", Epsilon.of(1))
    program = """
import os, sys, pinq, pinq.engine, pinq.provider.local
from miners import DiffPID3
for _ in range(4):
    if os.fork() == 0:
        try:
            DiffPID3(epsilon=0.4, max_depth=2).fit(pinq.open(sys.argv[1], analyst="ana"), "income")
            os.write(1, b"fitted\\n")
        except pinq.BudgetExceeded:
            os.write(1, b"refused\\n")
        os._exit(0)
for _ in range(4):
    os.wait()
"""
    done = run_pinq([str(file)], program=program)
    assert done.returncode == 0, done.stderr
    ended = done.stdout.splitlines()
    assert len(ended) == 4
    assert set(ended) <= {"fitted", "refused"}
    assert ended.count("fitted") <= 2
    ledger.verify()
    assert ZERO < ledger.grants()["ana"].spent <= Epsilon.of(1)
