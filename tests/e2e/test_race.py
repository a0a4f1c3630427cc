# SPDX-License-Identifier: Apache-2.0
"""Eight processes, one grant: exactly what was granted is answered, and nobody starves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pandas as pd

from pinq.policy.policy import Policy
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note

PROCESSES, EACH, LEFT = (8, 225, 200) if ASSURANCE else (8, 40, 100)

# Imports once and forks: each child opens for itself, and says so. At the first word each asks `EACH` times without a pause, at the
# second until the budget is gone; after each it says how many answers it got. A word to everybody is a line for each.
ASKERS = f"""
import os, sys, pinq
from pinq.provider.opening import open_ledger
import pinq.engine

def say(what):
    os.write(1, f"{{what}}\\n".encode())

def heard():
    os.read(0, 1)

def ask(handle, most):
    answers = 0
    try:
        while answers < most:
            handle.noisy_count(epsilon=0.01)
            answers += 1
    except pinq.BudgetExceeded as refusal:
        assert refusal.remaining < refusal.asked
    return answers

for _ in range({PROCESSES}):
    if os.fork() == 0:
        handle = pinq.open(sys.argv[1], analyst="ana")
        say("open")
        for most in ({EACH}, 10**9):
            heard()
            say(ask(handle, most))
        os._exit(0)
sys.exit(any(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range({PROCESSES})))
"""


def published(folder: Path, epsilon: float) -> Path:
    """A policy file over a small Parquet table, with a grant."""
    pd.DataFrame({"sex": ["f", "m"] * 50}).to_parquet(folder / "data.parquet")
    policy = Policy(
        dataset="race",
        source="data.parquet",
        cap=100,
        max_rows=1000,
        columns={"sex": {"type": "categorical", "values": ["f", "m"]}},
    )
    file = folder / "race.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    ledger = open_ledger(load_policy(file))
    ledger.grant("ana", Epsilon.of(epsilon))
    ledger.close()
    return file


@contextmanager
def askers(file: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Eight processes that have opened: what speaks to them, and what they say."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ASKERS, str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert [process.stdout.readline() for _ in range(PROCESSES)] == [b"open\n"] * PROCESSES
        yield process.stdin, process.stdout
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
        process.communicate()


def test_eight_processes_share_one_grant_and_no_writer_starves(tmp_path: Path) -> None:
    """With room for everybody, eight writers that charge without a pause all get theirs; of the answers that are left exactly as many are given."""
    file = published(tmp_path, (PROCESSES * EACH + LEFT) / 100)
    with askers(file) as (words, answers):
        for expected in (PROCESSES * EACH, LEFT):
            words.write(b"." * PROCESSES)
            words.flush()
            counts = [int(answers.readline()) for _ in range(PROCESSES)]
            assert sum(counts) == expected
            assert expected == LEFT or counts == [EACH] * PROCESSES
    ledger = open_ledger(load_policy(file))
    assert ledger.verify() > 2 * (PROCESSES * EACH + LEFT)
    kinds = [event.kind for event in ledger.log.events()]
    charges = PROCESSES * EACH + LEFT
    assert (kinds.count("charge"), kinds.count("answer"), kinds.count("refusal")) == (charges, charges, PROCESSES)
    note(f"answers for which {PROCESSES} processes raced (SQLite)", charges, "as many as were granted")
    assert ledger.grants()["ana"].spent == ledger.grants()["ana"].limit
    ledger.close()
