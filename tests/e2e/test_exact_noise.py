# SPDX-License-Identifier: Apache-2.0
"""Faults found in other systems: sums that lose digits, rows that change more than an answer, noise that repeats."""

from __future__ import annotations

import ast
import copy
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
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
    Cuts,
    Gini,
    LedgerError,
    Shards,
    Values,
)
from pinq.curator.mechanisms import choose, laplace
from pinq.engine import Moments, Sparse, TableRequest
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Request
from pinq.language.specs import bind
from pinq.policy.policy import Policy
from tests.support.requests.handles import engine_of, engine_over, ledger_of

WHOLE = PartSet([Block(Part())])

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
    ledger.log.database._process = engine._process = os.getpid() + 1
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
    assert set(json.loads(answer.text)) == {"id", "verb", "epsilon", "values", "chosen", "scale", "grid"}
    model = DiffPID3(epsilon=1, max_depth=2).fit(handle, "income").to_json()
    for text in (
        answer.text,
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
