# SPDX-License-Identifier: Apache-2.0
"""Eight processes, one grant: exactly what was granted is answered, and nobody starves."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pandas as pd

from pinq.provider.local import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from pinq.public.policy import Policy

PROCESSES = 8

# Opens, says so, waits until all have opened, and asks until the budget is gone.
ASKER = """
import sys, pinq
handle = pinq.open(sys.argv[1], analyst="ana")
print("open", flush=True)
sys.stdin.readline()
answers = 0
try:
    while True:
        handle.noisy_count(epsilon=0.01)
        answers += 1
except pinq.BudgetExceeded as refusal:
    assert refusal.remaining < refusal.asked
print(answers, flush=True)
"""


def published(folder: Path, epsilon: float) -> Path:
    """A policy file over a small Parquet table, with a grant."""
    pd.DataFrame({"sex": ["f", "m"] * 50}).to_parquet(folder / "data.parquet")
    policy = Policy(
        dataset="race",
        source="data.parquet",
        cap=10,
        max_rows=1000,
        columns={"sex": {"type": "categorical", "values": ["f", "m"]}},
    )
    file = folder / "race.yaml"
    file.write_text(policy.to_yaml(), encoding="utf-8")
    ledger = open_ledger(load_policy(file))
    ledger.grant("ana", Epsilon.of(epsilon))
    ledger.close()
    return file


def test_eight_processes_get_exactly_one_hundred_answers(tmp_path: Path) -> None:
    """A grant of 1 has room for 100 answers at 0.01, whoever asks; each process gets some, and the log shows 100 charges."""
    file = published(tmp_path, 1.0)
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ASKER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        for asker in askers:
            assert asker.stdout is not None
            assert asker.stdout.readline() == "open\n"
        for asker in askers:
            assert asker.stdin is not None
            asker.stdin.write("go\n")
            asker.stdin.flush()
        answers = [int(asker.communicate(timeout=120)[0]) for asker in askers]
    finally:
        for asker in askers:
            asker.kill()
            asker.communicate()
    assert [asker.returncode for asker in askers] == [0] * PROCESSES
    assert sum(answers) == 100
    ledger = open_ledger(load_policy(file))
    assert ledger.verify() > 200
    kinds = [event.kind for event in ledger.events()]
    assert (kinds.count("charge"), kinds.count("answer"), kinds.count("refusal")) == (100, 100, PROCESSES)
    assert ledger.grants()["ana"].spent == ledger.grants()["ana"].limit
    ledger.close()


def test_no_writer_starves(tmp_path: Path) -> None:
    """With room for everybody, eight writers that charge without a pause all get done: each charges its 40, none gives up waiting."""
    file = published(tmp_path, 5.0)
    askers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                ASKER.replace("while True", "while answers < 40").replace(
                    "except", "    raise SystemExit(print(answers, flush=True))\nexcept"
                ),
                str(file),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        for asker in askers:
            assert asker.stdout is not None
            assert asker.stdout.readline() == "open\n"
        answers = [int(asker.communicate("go\n", timeout=120)[0]) for asker in askers]
    finally:
        for asker in askers:
            asker.kill()
            asker.communicate()
    assert answers == [40] * PROCESSES
    ledger = open_ledger(load_policy(file))
    assert ledger.grants()["ana"].spent == Epsilon.of(Fraction(40 * PROCESSES, 100))
    ledger.verify()
    ledger.close()
