# SPDX-License-Identifier: Apache-2.0
"""The price of each verb beside the processor time that it takes, for 1, 2^10 and 2^16 parts.

    python -m benchmarks.speed.prices

Every question is asked in each of its forms: votes with and without the textbook's factor, every score
of the catalogue and every loss. A price is right if it is at least the time, in milliseconds, and at most
twice as much, but for three units: one for reading the request, one for counting, one for the tables of a
new scale of noise. Nothing here fails on a clock: a price that is wrong is marked. Times are of the whole
request: its text is read, it is checked, charged to a ledger in memory, counted anew, released and written.
Writes ``benchmarks/results/prices.md``; of some lines alone (``--only``), nothing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd

from benchmarks.harness.origin import commit_of
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.timing import SpeedTable
from pinq import (
    AbsoluteError,
    AnyCut,
    AnyGrouping,
    Balance,
    ClassCount,
    EnoughRows,
    Gini,
    Gradient,
    InfoGain,
    Logistic,
    MaxClass,
    Misfit,
    MutualInformation,
    Points,
    Products,
    Residuals,
    Softmax,
    SquaredError,
    Values,
)
from pinq.curator.deadline import Deadline
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.language.queries import Request, WireParts
from pinq.language.scores import SCORES
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.opening import declare
from pinq.public.epsilon import Epsilon

ROWS = 30_000
SIZES = {1: None, 2**10: "key10", 2**16: "key16"}  # the column by whose values the table is split
EPSILONS = ("0.1", "0.000000001")
SLOW = 0.5  # seconds; what takes as long is asked once more, and else five times
FREE = 3  # units; see above
FORMS: dict[str, dict[str, Any]] = {
    "noisy_count": {"verb": "noisy_count"},
    "noisy_sum": {"verb": "noisy_sum", "column": "x"},
    "noisy_avg": {"verb": "noisy_avg", "column": "x"},
    "Logistic": {"verb": "noisy_sum", "column": Logistic("y", ("b",), Points((Values("c"),), ((1,) * 16,)))},
    "Softmax": {"verb": "noisy_sum", "column": Softmax("y", (Points(),) * 2)},
    "Residuals": {"verb": "noisy_sum", "column": Residuals("x", Points(), 1.5)},
    "Products": {"verb": "noisy_sum", "column": Products(("x", "z"))},
    "ClassCount, 2 values": {"score": ClassCount("y")},
    "ClassCount, 16 values": {"score": ClassCount("c")},
    "ClassCount, textbook": {"score": ClassCount("y"), "textbook": True},
    "EnoughRows": {"score": EnoughRows(100)},
    "InfoGain, a split": {"score": InfoGain("y"), "candidates": ((Values("c"),),)},
    "InfoGain, cuts": {"score": InfoGain("y"), "candidates": ((AnyCut("z"),),)},
    "Gini, cuts": {"score": Gini("y"), "candidates": ((AnyCut("z"),),)},
    "Gini, groupings": {"score": Gini("y"), "candidates": ((AnyGrouping("d"),),)},
    "Gini, cuts and a split": {"score": Gini("y"), "candidates": ((AnyCut("z"), Values("c")),)},
    "Gini, one of each": {"score": Gini("y"), "candidates": ((Values("d"), Values("c")),), "each": True},
    "MaxClass, a split": {"score": MaxClass("y"), "candidates": ((Values("c"),),)},
    "Balance, cuts": {"score": Balance(), "candidates": ((AnyCut("z"),),)},
    "SquaredError, cuts": {"score": SquaredError("x"), "candidates": ((AnyCut("z"),),)},
    "AbsoluteError, a split": {"score": AbsoluteError("z"), "candidates": ((Values("d"),),)},
    "MutualInformation, a split": {"score": MutualInformation("y"), "candidates": ((Values("c"),),)},
    "Gradient, cuts": {"score": Gradient(Logistic("y", ("b",), Points())), "candidates": ((AnyCut("z"),),)},
    "Misfit, a split": {"score": Misfit((Values("c"),), ((3,) * 16,)), "candidates": ((Values("c"),),)},
}


def curator() -> Curator:
    """Opens a made-up table of as many rows as its policy declares."""
    random = np.random.default_rng(0)
    numbers = {"key10": 2**10, "key16": 2**16, "x": 1000, "z": 100}
    letters = {"y": "ab", "c": "abcdefghijklmnop", "d": "abcdef"}
    columns = {name: {"type": "numeric", "lower": 0, "upper": n - 1, "integer": True} for name, n in numbers.items()}
    columns |= {name: {"type": "categorical", "values": list(own)} for name, own in letters.items()}
    rows = {name: random.integers(0, n, ROWS) for name, n in numbers.items()}
    rows |= {name: random.choice(list(own), ROWS) for name, own in letters.items()}
    policy = Policy.model_validate({"dataset": "d", "cap": 10**6, "max_rows": ROWS, "columns": columns})
    engine, _ = open_engine(policy, data=pd.DataFrame(rows), salt=b"")
    ledger = Ledger("sqlite://", policy.dataset)
    declare(policy, ledger, may_raise=True)
    ledger.grant("ana", Epsilon.of(10**5))
    return Curator(policy.schema_, ledger, engine, max_work=10**9)


def texts(form: str, size: int, epsilon: str) -> Iterator[str]:
    """Yields one question again and again, each with an id of its own."""
    column = SIZES[size]
    parts = WireParts() if column is None else WireParts(specs=(Values(column),), asked=((0, 0),), shape=(size,))
    for number in itertools.count():
        named = f"{form.replace(' ', '_')}-{size}-{epsilon}-{number}"  # an id has no blanks
        asked: dict[str, Any] = {"verb": "exp_mech", "id": named, "epsilon": epsilon, "parts": parts}
        yield Request(**asked | FORMS[form]).to_json()


def measured(served: Curator, form: str, size: int, epsilon: str) -> tuple[int, float]:
    """Returns the price of a question in units and the least milliseconds of processor time of some askings."""
    asked, least = texts(form, size, epsilon), float("inf")
    work = served._validate(Request.received(next(asked)), Deadline())
    for number in range(6):
        text = next(asked)
        cast(Any, served._engine).forget()  # what was counted for an earlier question: a price is of one that is new
        began = time.process_time()
        served.ask("ana", Request.received(text)).to_json()
        least = min(least, time.process_time() - began)
        if number and least > SLOW:
            break
    return work.checking + work.counting, 1000 * least


def main() -> None:
    """Prints and writes the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.prices", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="FORM", help=f"some lines: {', '.join(FORMS)}")
    only = parser.parse_args().only or list(FORMS)
    assert {type(form["score"]) for form in FORMS.values() if "score" in form} == {*SCORES.values()}
    served = curator()
    table = SpeedTable(
        "question", "parts", "epsilon", "units", "ms", "units / ms", "", widths=(28, 7, 12, 8, 8, 10, 12)
    )
    wrong = 0
    for form, size, epsilon in itertools.product(only, SIZES, EPSILONS):
        price, taken = measured(served, form, size, epsilon)
        share = price / taken
        verdict = "too low" if share < 1 else "too high" if price - FREE > 2 * taken else ""
        wrong += bool(verdict)
        table.add(form, f"{size:,}", f"{float(epsilon):g}", f"{price:,}", f"{taken:,.1f}", f"{share:.2f}", verdict)
    if only == list(FORMS):
        head = (
            "# Prices in work beside the time they stand for\n\n"
            f"A unit of work stands for a millisecond of one core. A table of {ROWS:,} rows; ledger in memory; the "
            f"least of six askings (of slow ones two). Commit `{commit_of()}`, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}. Of "
            f"{len(FORMS) * len(SIZES) * len(EPSILONS)} prices {wrong} are below the time, or more than twice as high "
            "and three units more. Again: `python -m benchmarks.speed.prices`."
        )
        table.write(RESULTS / "prices.md", head)


if __name__ == "__main__":
    main()
