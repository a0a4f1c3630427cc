# SPDX-License-Identifier: Apache-2.0
"""Faults found in other systems, and each row of the table of failures: the error's text, what was spent, and that the ledger holds."""

from __future__ import annotations

import ast
import copy
import json
import logging
import math
import os
import pickle
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import DiffPID3
from pinq import (
    AnyCut,
    BudgetExceeded,
    ClassCount,
    Cuts,
    EngineError,
    Gini,
    Groups,
    LedgerError,
    NotAuthorised,
    Parts,
    PolicyError,
    QueryError,
    Shards,
    Values,
)
from pinq.curator.mechanisms import choose, laplace
from pinq.engine import Moments, Sparse, TableRequest
from pinq.ledger.ledger import Ledger
from pinq.ledger.requests import Refused
from pinq.ledger.terms import now
from pinq.provider.local import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.queries import Request
from pinq.public.specs import bind
from tests.handles import engine_of, engine_over, ledger_of

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
    "The data could not be read for this request, or not in the time that it had. What it cost stays charged, because "
    "a failure may depend on the rows. "
    "The provider finds the details in the log of its own process."
)
WHOLE = PartSet([Block(Part())])


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in ledger.events()]


def unspent(handle: Any, epsilon: Any = 1) -> None:
    """Nothing was spent, nothing was charged, and the ledger holds."""
    ledger = ledger_of(handle)
    ledger.verify()
    assert "charge" not in kinds(ledger)
    assert (handle.budget.spent, handle.budget.remaining) == (0, Fraction(str(epsilon)))


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
from pinq.provider.local import open_ledger
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


# One table, one budget


@pytest.fixture
def columns(tiny_policy: Policy) -> dict[str, Any]:
    """The declared columns, to change one of them."""
    return {
        name: column.model_dump(exclude_defaults=True) | {"type": column.type}
        for name, column in tiny_policy.columns.items()
    }


@pytest.fixture
def published(tmp_path: Path, frame: pd.DataFrame, columns: dict[str, Any]) -> Callable[..., Path]:
    """Writes a policy over ``data/adult.parquet``; each call another file, the same rows."""
    (tmp_path / "data").mkdir()
    frame.to_parquet(tmp_path / "data" / "adult.parquet")

    def publish(name: str = "one.yaml", source: str = "data/adult.parquet", **changes: Any) -> Path:
        policy = Policy(
            **{"dataset": "adult", "source": source, "cap": 10, "max_rows": 1000, "columns": columns} | changes
        )
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(policy.to_yaml(), encoding="utf-8")
        return file

    return publish


def spend(file: Path, epsilon: Any) -> Any:
    handle = pinq.open(file, analyst="ana")
    handle.noisy_count(epsilon=epsilon)
    return handle


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
            looks.append([kind for (kind,) in other.execute("SELECT kind FROM events ORDER BY seq")][3:])
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
    assert kinds(ledger)[3:] == ["charge", "answer"]


def test_a_failure_in_the_noise_is_an_engine_failure_too(
    granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes after the charge gives the one text."""
    handle = granted()

    def fail(*_: Any) -> Any:
        raise ValueError("the true count is 40")

    monkeypatch.setattr("pinq.curator.verbs.count.laplace", fail)
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


def test_one_request_id_from_many_threads_has_one_answer(granted: Callable[..., Any]) -> None:
    """Retries that overtake each other are charged once and see one answer."""
    handles = [granted(1) for _ in range(2)]
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
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    ended = done.stdout.splitlines()
    assert len(ended) == 4
    assert set(ended) <= {"fitted", "refused"}
    assert ended.count("fitted") <= 2
    ledger.verify()
    assert ZERO < ledger.grants()["ana"].spent <= Epsilon.of(1)


# Exact sums


def test_sums_are_exact_beyond_the_digits_of_a_double() -> None:
    """Sums and sums of squares of codes up to 2^24 pass 2^53 and keep their last digit, whatever the order of the rows."""
    policy = Policy(
        dataset="sums",
        cap=1,
        max_rows=10**6,
        columns={"x": {"type": "numeric", "lower": 0, "upper": 2**24 - 1, "integer": True}},
    )
    values = 2**24 - 1 - np.arange(5000) ** 2 % 1009
    want = [5000, int(values.sum()), sum(int(value) ** 2 for value in values)]
    assert want[2] > 2**53
    assert float(want[2]) != want[2], "a double could hold it"
    for order in (values, values[::-1]):
        engine = engine_over(policy, data=pd.DataFrame({"x": order}), salt=b"")
        assert engine.tabulate(WHOLE, (TableRequest(),), Moments("x", squares=True))[0][0].tolist() == want
        engine.close()


def test_the_engine_holds_and_adds_integers_only(granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column that the engine keeps is an unsigned integer, and no table of any verb has a floating-point number in it."""
    handle = granted(100)
    engine = engine_of(handle)
    columns = [codes for block in engine._codes.blocks for codes in block.columns.values()]
    assert {codes.dtype.kind for codes in columns} == {"u"}
    found: list[Any] = []
    right = engine.tabulate

    def noted(*asked: Any) -> Any:
        tables = right(*asked)
        found.extend(tables)
        return tables

    monkeypatch.setattr(engine, "tabulate", noted)
    parts = handle.partition(Values("job"), Cuts("age", (30,)))
    parts.noisy_sum("age", epsilon=1)
    parts.noisy_avg("age", epsilon=1)
    parts.noisy_count(epsilon=1)
    handle.partition(Shards(3)).exp_mech([AnyCut("age"), Values("sex")], score=Gini("income"), epsilon=1)
    handle.exp_mech([Values("sex"), AnyCut("age")], score=pinq.MaxClass("income"), epsilon=1)
    arrays = [table for table in found if isinstance(table, np.ndarray)]
    arrays += [array for table in found if isinstance(table, Sparse) for array in (table.places, table.values)]
    assert len(found) == 7
    assert {array.dtype for array in arrays} == {np.dtype(np.int64)}


# What the rows cannot change


def test_odd_values_follow_fixed_rules() -> None:
    """NaN and failed casts are missing, infinities clamp, undeclared categories are left out: row by row, never an error."""
    columns: dict[str, dict[str, Any]] = {
        "x": {"type": "numeric", "lower": 0, "upper": 10, "integer": True},
        "s": {"type": "categorical", "values": ["f", "m"]},
    }
    policy = Policy(dataset="odd", cap=1, max_rows=100, columns=columns)
    nullable = Policy(
        dataset="odd",
        cap=1,
        max_rows=100,
        columns={name: column | {"nullable": True} for name, column in columns.items()},
    )
    frame = pd.DataFrame(
        {
            "x": ["3", "nan", "inf", "-inf", "three", None, "1e999", "4.7"],
            "s": ["f", "f", "m", "m", "f", "f", "F", None],
        }
    )
    for one, rows, total in ((policy, 3, 3 + 10 + 0), (nullable, 7, 3 + 10 + 0 + 4)):
        engine = engine_over(one, data=frame, salt=b"")
        assert engine.rows() == rows
        assert engine.tabulate(WHOLE, (TableRequest(),), Moments("x"))[0][0].tolist()[1] == total
        engine.close()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308, None], ids=repr)
def test_an_odd_row_moves_an_answer_no_further_than_any_row(odd: Any) -> None:
    """The exact tables behind all answers move by one row at most when a row with NaN or an infinity comes."""
    policy = Policy(
        dataset="odd",
        cap=1,
        max_rows=100,
        columns={"x": {"type": "numeric", "lower": -5, "upper": 5}, "s": {"type": "categorical", "values": ["f"]}},
    )
    found = []
    for values in ([1.0, 2.0], [1.0, 2.0, odd]):
        engine = engine_over(policy, data=pd.DataFrame({"x": values, "s": "f"}), salt=b"")
        found.append(engine.tabulate(WHOLE, (TableRequest(),), Moments("x"))[0][0])
        engine.close()
    rows, total = (found[1] - found[0]).tolist()
    assert rows in (0, 1)
    assert 0 <= total <= 4095


def test_absent_keys_are_answered_with_noise(granted: Callable[..., Any], tmp_path: Path) -> None:
    """Every declared value is in the answer, and its noise does not tell that nobody has it."""
    policy = Policy(
        dataset="absent",
        cap=1000,
        max_rows=1000,
        columns={"s": {"type": "categorical", "values": [f"v{i}" for i in range(1000)]}},
        folder=tmp_path,
    )
    answer = (
        granted(10, policy=policy, data=pd.DataFrame({"s": ["v1"]})).partition(Values("s")).noisy_count(epsilon=0.1)
    )
    assert answer.shape == (1000,)
    assert (answer != 0).sum() > 800
    assert (answer < 0).sum() > 300


def test_shards_do_not_go_by_position(granted: Callable[..., Any], frame: pd.DataFrame, tiny_policy: Policy) -> None:
    """A row that is put before all others moves none of them: at most one shard changes, by one."""
    more = pd.concat([frame.iloc[[7]], frame])
    counts = []
    for data in (frame, more):
        engine = engine_over(tiny_policy, data=data, salt=b"steady")
        handle_parts = WHOLE.split(bind(Shards(8), tiny_policy.schema_))
        counts.append(engine.tabulate(handle_parts)[0])
        engine.close()
    assert sorted((counts[1] - counts[0]).reshape(-1).tolist()) == [0] * 7 + [1]
    handle = granted(1000)
    steady = [handle.shards(8).noisy_count(epsilon=50) for _ in range(3)]
    assert (steady[0] == steady[1]).all()
    assert (steady[1] == steady[2]).all()


# Noise that repeats


def test_noise_is_fresh_after_a_fork() -> None:
    """A process that drew noise and forked shares none of it with its child: neither counts nor choices repeat."""
    program = """
import os
from fractions import Fraction
import numpy as np
from pinq.curator.mechanisms import Weighted, choose, choose_weighted, laplace

def draw():
    noise = laplace(np.zeros(40, dtype=np.int64), 1000, Fraction(1)).tolist()
    picked = [choose(np.zeros(64, dtype=np.int64), 1, Fraction(1)) for _ in range(20)]
    ones = np.ones(64, dtype=np.int64)
    return noise, picked, [choose_weighted(Weighted(0 * ones, ones, ones), 1, Fraction(1))[0] for _ in range(20)]

draw()
ends = []
for _ in range(3):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, repr(draw()).encode())
        os._exit(0)
    os.wait()
    ends.append(reading)
print([eval(os.read(end, 65536)) for end in ends] + [draw()])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    draws = [tuple(map(tuple, one)) for one in ast.literal_eval(done.stdout)]
    for kind in range(3):
        assert len({one[kind] for one in draws}) == 4


def test_a_handle_does_not_survive_a_fork(granted: Callable[..., Any]) -> None:
    """A connection that two processes share would corrupt both; the child is told to open its own."""
    handle = granted()
    ledger, engine = ledger_of(handle), engine_of(handle)
    ledger._store._process = engine._process = os.getpid() + 1
    with pytest.raises(LedgerError, match="opened in another process; connections do not survive a fork"):
        handle.noisy_count(epsilon=0.1)
    with pytest.raises(pinq.InternalError, match="does not survive a fork"):
        engine.tabulate(WHOLE)


def test_seeds_do_not_steer_noise(granted: Callable[..., Any]) -> None:
    """Seeding Python's and numpy's generators repeats no answer: neither of a mechanism nor of a handle."""
    handle = granted(100)
    drawn = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        drawn.append(
            (
                laplace(np.zeros(30, dtype=np.int64), 100, Fraction(1)).tolist(),
                [choose(np.zeros(50, dtype=np.int64), 1, Fraction(1)) for _ in range(30)],
                handle.partition(Cuts("age", tuple(range(1, 60)))).noisy_count(epsilon=0.1).tolist(),
                [
                    handle.exp_mech([AnyCut("age"), Values("sex")], score=Gini("income"), epsilon=0.01)
                    for _ in range(20)
                ],
            )
        )
    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_what_crosses_the_wall_carries_no_seed(granted: Callable[..., Any]) -> None:
    """Answers, history and a released model hold nothing from which noise could be drawn again."""
    handle = granted(10)
    answer = handle._session.ask(Request(id="x", verb="noisy_count", epsilon="0.1"))
    assert set(json.loads(answer.to_json())) == {"id", "verb", "epsilon", "values", "chosen", "scale", "grid"}
    model = DiffPID3(epsilon=1, max_depth=2).fit(handle, "income").to_json()
    for text in (
        answer.to_json(),
        model,
        handle.history().to_json(date_format="iso"),
        repr(handle),
        handle._repr_html_(),
    ):
        assert not re.search("seed|random_state|salt", text)
        assert ledger_of(handle).salt.hex() not in text


def test_handles_are_not_pickled(granted: Callable[..., Any]) -> None:
    """A pickle would carry the way to the data, or a budget, to another process: handles and collections refuse, deep copies too."""
    handle = granted()
    for one in (handle, handle.parts(), handle.partition(Values("sex"))):
        for carry in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                carry(one)


# The table of failures


def test_not_enough_budget(granted: Callable[..., Any]) -> None:
    """Asked and remaining are in the text and in the attributes; nothing was spent; the refusal is in the log with its question."""
    handle = granted(0.5)
    handle.noisy_count(epsilon=0.2)
    with pytest.raises(BudgetExceeded) as refused:
        handle.noisy_avg("age", epsilon=0.4)
    assert str(refused.value) == (
        "This would cost epsilon 0.4; 0.3 of 0.5 remains for 'ana'. Ask for less, or ask the data provider to extend the grant. Nothing was spent."
    )
    assert (refused.value.asked, refused.value.remaining, refused.value.scope, refused.value.code) == (
        Fraction(2, 5),
        Fraction(3, 10),
        "analyst",
        "budget",
    )
    assert handle.budget.spent == Fraction(1, 5)
    ledger = ledger_of(handle)
    ledger.verify()
    last = list(ledger.events())[-1]
    refusal = last.record
    assert isinstance(refusal, Refused)
    assert (refusal.reason, refusal.asked, refusal.remaining) == ("budget", Epsilon.of("0.4"), Epsilon.of("0.3"))
    assert refusal.question.about == "noisy_avg of age on the whole table"
    handle.noisy_count(epsilon=0.3)


def test_a_vectorised_query_is_all_or_nothing(granted: Callable[..., Any]) -> None:
    """Where one part of many has too little left, none is answered and none is charged."""
    handle = granted(0.5)
    parts = handle.partition(Values("sex"))
    parts["Female"].noisy_count(epsilon=0.4)
    with pytest.raises(BudgetExceeded, match=r"This would cost epsilon 0\.2; 0\.1 of 0\.5 remains"):
        parts.noisy_count(epsilon=0.2)
    assert handle.budget.spent == Fraction(2, 5)
    parts["Male"].noisy_count(epsilon=0.5)
    assert handle.budget.spent == Fraction(1, 2)


def test_the_cap_over_all_analysts(granted: Callable[..., Any], tiny_policy: Policy) -> None:
    """Two analysts who together would pass the cap: the second is refused in the cap's name, and nothing was spent."""
    policy = tiny_policy.model_copy(update={"cap": Decimal("0.5")})
    granted(0.4, analyst="ana", policy=policy).noisy_count(epsilon=0.4)
    handle = granted(0.4, analyst="bob", policy=policy)
    assert handle.budget.remaining == Fraction(1, 10)
    with pytest.raises(
        BudgetExceeded,
        match=r"^This would cost epsilon 0\.3; 0\.1 of 0\.5 remains under the cap over all analysts, which counts the sum of what each analyst spent\. .* Nothing was spent\.$",
    ) as refused:
        handle.noisy_count(epsilon=0.3)
    assert refused.value.scope == "cap"
    assert handle.budget.spent == 0


MALFORMED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown column": (
        lambda h: h.noisy_sum("agee", epsilon=0.1),
        r"^there is no column 'agee' \(did you mean 'age'\?\); the columns are sex, job, age, income\. Nothing was spent\.$",
    ),
    "column of the wrong kind": (
        lambda h: h.noisy_avg("sex", epsilon=0.1),
        "^`sex` is categorical; a numeric column is needed here",
    ),
    "unknown value": (
        lambda h: h.partition(Groups("sex", (("Femal",),))),
        r"^`sex` has no value 'Femal' \(did you mean 'Female'\?\); it has 'Female', 'Male'\.",
    ),
    "unknown part": (
        lambda h: h.partition(Values("sex"))["X"],
        "^there is no part 'X'; the parts are 'Female', 'Male'. Nothing was spent.$",
    ),
    "unknown score": (
        lambda h: h.exp_mech([Values("sex")], score="gain_ratio", epsilon=0.1),
        "^'gain_ratio' is not a score; use InfoGain, Gini",
    ),
    "score of a numeric target": (
        lambda h: h.exp_mech([Values("sex")], score=Gini("age"), epsilon=0.1),
        "^`age` is numeric; a categorical column is needed here",
    ),
    "target as a candidate": (
        lambda h: h.exp_mech([Values("income")], score=Gini("income"), epsilon=0.1),
        "splits by the target `income` itself",
    ),
    "no candidates": (lambda h: h.exp_mech([], score=Gini("income"), epsilon=0.1), "^`candidates` is empty"),
    "candidates for counts": (
        lambda h: h.exp_mech([Values("sex")], score=ClassCount("income"), epsilon=0.1),
        "takes no `candidates`",
    ),
    "balance of three": (
        lambda h: h.exp_mech([Cuts("age", (10, 20))], score=pinq.Balance(), epsilon=0.1),
        "^Balance compares two parts",
    ),
    "cut out of bounds": (
        lambda h: h.partition(Cuts("age", (100,))),
        "^the cut 100.0 of `age` is out of bounds; it must be above 0 and at most 99. Nothing was spent.$",
    ),
    "cut at the lower end": (lambda h: h.partition(Cuts("age", (0,))), "is out of bounds"),
    "cut that is no number": (lambda h: h.partition(Cuts("age", (math.nan,))), "^the cut nan is not finite"),
    "cuts that do not increase": (lambda h: h.partition(Cuts("age", (30, 30))), "^the cuts of `age` must increase"),
    "value in two groups": (
        lambda h: h.partition(Groups("job", (("clerk",), ("clerk", None)))),
        "^the value 'clerk' of `job` stands in two groups",
    ),
    "parts not disjoint": (
        lambda h: Parts.union(h.partition(Values("sex")), h.partition(Values("job"))),
        "^the parts are not disjoint at the whole table",
    ),
    "a part and its own part": (
        lambda h: Parts.union(h.parts(), h.partition(Values("job"))),
        "^the parts are not disjoint",
    ),
    "a part twice": (lambda h: h.partition(Values("sex"))[[0, 0]], "^the same part is chosen twice"),
    "a family as a partition": (
        lambda h: h.partition(AnyCut("age")),
        "is a family of candidates; let exp_mech choose a member first",
    ),
    "too many parts": (lambda h: h.partition(Values("age"), Shards(60_000)), "at most 1,048,576 are possible"),
    "no shards": (lambda h: h.shards(0), "must be a whole number from 1 to 65535"),
    "a table too large": (
        lambda h: h.exp_mech(
            [(Shards(60_000, key), Values("job")) for key in range(200)], score=Gini("income"), epsilon=0.1
        ),
        "each part needs tables of .* cells",
    ),
    "too many tables": (
        lambda h: h.shards(60_000).exp_mech(
            [(Shards(60_000, key), Values("job")) for key in range(20)], score=Gini("income"), epsilon=0.1
        ),
        "the request needs tables of .* cells",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_name_what_is_allowed(case: str, granted: Callable[..., Any]) -> None:
    """Each says what was wrong and what is allowed; nothing was spent."""
    ask, text = MALFORMED[case]
    handle = granted()
    with pytest.raises(QueryError, match=text) as refused:
        ask(handle)
    assert refused.value.code == "query"
    unspent(handle)


def test_no_grant_an_expired_and_a_revoked_one_sound_the_same(
    granted: Callable[..., Any], tiny_policy: Policy, frame: pd.DataFrame
) -> None:
    """The same words for each, also for a handle that was opened before; the refusal of a request is in the log, and nothing was spent."""
    ledger = open_ledger(tiny_policy)
    ledger.grant("late", Epsilon.of(1), expires=now() - timedelta(seconds=1))
    ledger.grant("gone", Epsilon.of(1))
    handle = granted(1, analyst="gone")
    ledger.revoke("gone")
    said = set()
    for analyst in ("late", "gone", "nobody"):
        with pytest.raises(NotAuthorised) as refused:
            pinq.open(tiny_policy, analyst=analyst, data=frame)
        said.add(str(refused.value))
    with pytest.raises(NotAuthorised) as refused:
        handle.noisy_count(epsilon=0.1)
    said.add(str(refused.value))
    assert said == {"No valid grant under this name for this dataset. Ask the data provider for one (pinq grant)."}
    last = list(ledger.events())[-1]
    assert (last.kind, last.analyst, last.record.to_body()["reason"]) == ("refusal", "gone", "not-authorised")
    ledger.verify()
    assert {grant.spent for grant in ledger.grants().values()} == {ZERO}
    with pytest.raises(NotAuthorised):
        handle.preview("noisy_count", epsilon=0.1)


def test_a_grant_that_expires_between_two_questions(
    granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is looked at when a request is charged, not when the handle was opened."""
    handle = granted()
    ledger_of(handle).extend("ana", expires=now() + timedelta(hours=1))
    handle.noisy_count(epsilon=0.1)
    late = now() + timedelta(hours=2)
    for module in ("ledger.terms", "ledger.log"):
        monkeypatch.setattr(f"pinq.{module}.now", lambda: late)
    with pytest.raises(NotAuthorised):
        handle.noisy_count(epsilon=0.1)


# A ledger that was tampered with


@pytest.fixture
def used(published: Callable[..., Path]) -> tuple[Path, Path]:
    """A policy and its ledger with a grant of 1 and two charges of 0.25; nobody has it open."""
    file = published()
    ledger = open_ledger(load_policy(file))
    ledger.grant("ana", Epsilon.of(1))
    handle = spend(file, "0.25")
    handle.noisy_count(epsilon="0.25")
    ledger_of(handle).close()
    ledger.close()
    return file, Path(ledger.url.removeprefix("sqlite:///"))


def alter(ledger: Path, *statements: str) -> None:
    with sqlite3.connect(ledger) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


EDITS = {
    "a smaller charge": "UPDATE events SET body = replace(body, '\"epsilon\":250000000', '\"epsilon\":1') WHERE kind = 'charge'",
    "a larger grant": "UPDATE events SET body = replace(body, '1000000000', '9000000000') WHERE kind = 'grant'",
    "another analyst": "UPDATE events SET analyst = 'bob' WHERE kind = 'charge'",
    "another time": "UPDATE events SET at = '2020-01-01T00:00:00+00:00' WHERE seq = 2",
    "another kind": "UPDATE events SET kind = 'refusal' WHERE kind = 'charge'",
    "a row taken out of the middle": "DELETE FROM events WHERE seq = 4",
    "the first row taken out": "DELETE FROM events WHERE seq = 1",
    "another hash": "UPDATE events SET hash = 'x' WHERE seq = 3",
    "rows renumbered": "UPDATE events SET seq = seq + 100 WHERE seq > 5",
    "another request id": "UPDATE events SET request = 'r' WHERE seq = 4",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_stays_closed(edit: str, used: tuple[Path, Path]) -> None:
    """The chain shows any edit of any event, and where; the dataset stays closed for analysts."""
    file, ledger = used
    alter(ledger, EDITS[edit])
    with pytest.raises(
        LedgerError,
        match=r"is damaged at event \d+: it was edited or cut\. The dataset stays closed; restore the ledger from a backup",
    ):
        pinq.open(file, analyst="ana")


@pytest.mark.parametrize("left", [0, 3, 5])
def test_a_cut_ledger_stays_closed(left: int, used: tuple[Path, Path]) -> None:
    """The last events are gone: the chain is whole, and the head beside the ledger remembers."""
    file, ledger = used
    alter(ledger, f"DELETE FROM events WHERE seq > {left}", f"DELETE FROM answers WHERE seq > {left}")
    with pytest.raises(
        LedgerError,
        match=r"was cut or rolled back: event \d+, which was committed, is not in it\. The dataset stays closed",
    ):
        pinq.open(file, analyst="ana")


def test_a_rolled_back_ledger_stays_closed(used: tuple[Path, Path], tmp_path: Path) -> None:
    """An older copy in the place of the ledger is noticed; so is a ledger that was deleted and begun anew."""
    file, ledger = used
    shutil.copy(ledger, tmp_path / "older")
    spend(file, "0.25")._session._curator.ledger.close()
    for name in ("-wal", "-shm"):
        ledger.with_name(ledger.name + name).unlink(missing_ok=True)
    newer = ledger.read_bytes()
    shutil.copy(tmp_path / "older", ledger)
    with pytest.raises(LedgerError, match="was cut or rolled back"):
        pinq.open(file, analyst="ana")
    ledger.unlink()
    with pytest.raises(LedgerError, match="There is no ledger"):
        pinq.open(file, analyst="ana")
    with pytest.raises(LedgerError, match="was cut or rolled back"):
        open_ledger(load_policy(file))
    for name in ("", "-wal", "-shm"):
        ledger.with_name(ledger.name + name).unlink(missing_ok=True)
    ledger.write_bytes(newer)
    assert pinq.open(file, analyst="ana").budget.spent == Fraction(3, 4)


def test_a_provider_can_decide_to_go_on(used: tuple[Path, Path]) -> None:
    """The error says what to delete to accept the loss; then the dataset opens with what the log still knows."""
    file, ledger = used
    alter(ledger, "DELETE FROM events WHERE seq > 5", "DELETE FROM answers WHERE seq > 5")
    with pytest.raises(LedgerError, match=rf"delete \S*{ledger.name}\.head and accept"):
        pinq.open(file, analyst="ana")
    ledger.with_name(ledger.name + ".head").unlink()
    assert pinq.open(file, analyst="ana").budget.spent == Fraction(1, 4)


def test_an_edited_answer_is_noticed(used: tuple[Path, Path]) -> None:
    """An answer that is not the one that was logged is not given again."""
    _, ledger = used
    alter(ledger, "UPDATE answers SET payload = replace(payload, '\"values\":[', '\"values\":[1')")
    again = Ledger(ledger)
    request = next(event.request for event in again.events() if event.kind == "charge")
    with pytest.raises(LedgerError, match=r"is damaged: the answer of event \d+ is not the one that was logged"):
        again.answer_of("ana", request)
    with pytest.raises(LedgerError, match=r"the answer of event \d+ is not the one that was logged"):
        again.verify()
    again.close()


@pytest.mark.parametrize("rubbish", [b"", b"not a database" * 100], ids=["empty", "rubbish"])
def test_a_ledger_that_is_none(rubbish: bytes, used: tuple[Path, Path]) -> None:
    """An emptied or overwritten file is refused at once, not after a long wait, and not as a fresh budget."""
    file, ledger = used
    ledger.write_bytes(rubbish)
    with pytest.raises(LedgerError):
        pinq.open(file, analyst="ana")


@pytest.mark.parametrize("head", ["", "5\n", "x y\n"], ids=["empty", "half", "rubbish"])
def test_a_head_that_was_half_written(head: str, used: tuple[Path, Path]) -> None:
    """A crash before the head's first line leaves it empty, and the dataset open; anything else in it closes the dataset."""
    file, ledger = used
    ledger.with_name(ledger.name + ".head").write_text(head)
    if head:
        with pytest.raises(LedgerError, match="was cut or rolled back"):
            pinq.open(file, analyst="ana")
    else:
        assert pinq.open(file, analyst="ana").budget.spent == Fraction(1, 2)


# A policy that was edited


def test_a_changed_policy_is_logged_and_raises_nothing(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """Schema, cap and bounds edited after the grant: each change is in the log, once, and what remains never grows."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    handle = pinq.open(file, analyst="ana")
    handle.partition(Values("sex")).noisy_count(epsilon="0.25")
    handle.noisy_sum("age", epsilon="0.25")
    remaining = handle.budget.remaining
    other_sexes = columns | {"sex": {"type": "categorical", "values": ["Female", "Male", "Other"]}}
    edits: list[dict[str, Any]] = [
        {"columns": other_sexes},
        {"columns": other_sexes, "max_rows": 500},
        {"columns": other_sexes, "max_rows": 500, "cap": "0.625"},
    ]
    for number, changes in enumerate(edits, start=2):
        again = pinq.open(published(**changes), analyst="ana")
        assert again.budget.remaining <= remaining
        remaining = again.budget.remaining
        assert kinds(ledger_of(again)).count("policy") == number
        pinq.open(published(**changes), analyst="ana")
        assert kinds(ledger_of(again)).count("policy") == number
    assert remaining == Fraction(1, 8)
    # The same question about the changed column is another partition: it adds, it does not hide behind the old one.
    again.partition(Values("sex")).noisy_count(epsilon="0.125")
    assert again.budget.spent == Fraction(5, 8)
    ledger_of(again).verify()


def test_shards_of_a_changed_schema_are_other_shards(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """Row coins follow the encoding: after a change of any column the old shards' charges do not cover the new ones."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    pinq.open(file, analyst="ana").shards(4)[0].noisy_count(epsilon="0.25")
    same = pinq.open(file, analyst="ana")
    same.shards(4)[1].noisy_count(epsilon="0.25")
    assert same.budget.spent == Fraction(1, 4)
    wider = columns | {"age": {"type": "numeric", "lower": 0, "upper": 120, "integer": True}}
    changed = pinq.open(published(columns=wider), analyst="ana")
    changed.shards(4)[1].noisy_count(epsilon="0.25")
    assert changed.budget.spent == Fraction(1, 2)


@pytest.mark.parametrize(
    "changes",
    [{"adjacency": "substitute"}, {"privacy_unit": {"column": "who", "max_rows": 3}}],
    ids=["adjacency", "unit"],
)
def test_an_epsilon_keeps_its_meaning(changes: dict[str, Any], published: Callable[..., Path]) -> None:
    """What was spent in one unit cannot be carried over to a stricter one: such an edit closes the dataset."""
    file = published()
    open_ledger(load_policy(file)).grant("ana", Epsilon.of(1))
    spend(file, "0.75")
    with pytest.raises(LedgerError, match="an epsilon of one is not an epsilon of the other"):
        open_ledger(load_policy(published(**changes)))
    assert pinq.open(published(), analyst="ana").budget.spent == Fraction(3, 4)


def test_an_unreviewed_policy_does_not_open(published: Callable[..., Path], columns: dict[str, Any]) -> None:
    """A bound that was read off the data would leak it."""
    unreviewed = columns | {"age": columns["age"] | {"unreviewed": ["upper"]}}
    with pytest.raises(PolicyError, match=r"that nobody reviewed: columns\.age\.upper\."):
        pinq.open(published(columns=unreviewed), analyst="ana")
