# SPDX-License-Identifier: Apache-2.0
"""The price of each verb beside the processor time that it takes, for 1, 2^10 and 2^16 parts.

    python -m benchmarks.speed.prices

Every question is asked in each of its forms: votes with and without the textbook's factor, every score
of the catalogue and every loss. A price is right if it is at least the time, in milliseconds, and at most
twice as much, but for three units: one for reading the request, one for counting, one for the tables of a
new scale of noise. Nothing here fails on a clock: a price that is wrong is marked. Times are of the whole
request: its text is read, it is checked, charged to a ledger in memory, counted anew, released and written.
On a machine that does other work a core is slower, by its caches: a loop of known work is timed before and
after each asking, and what it took beyond its least time is taken off the asking's, as a share.
Writes ``benchmarks/results/prices.md``; with ``--only``, anew are the times of these lines and the units of all.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
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
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.opening import declare
from pinq.public.epsilon import Epsilon

ROWS = 30_000
SIZES = {1: None, 2**10: "key10", 2**16: "key16"}  # the column by whose values the table is split
EPSILONS = ("0.1", "0.000000001")
TABLE = RESULTS / "prices.md"
ASKINGS, ENOUGH = 50, 0.7  # at most, and seconds after which no more are begun; two at least
LOOPS = 20
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


def loop() -> float:
    """Returns the seconds of a loop of Python and numpy, about half a millisecond of one core."""
    began = time.process_time()
    order = np.arange(2**14)[::-1] % 977
    order.argsort().cumsum().tolist()
    return time.process_time() - began


def units(served: Curator, form: str, size: int, epsilon: str) -> int:
    """Returns the price of a question."""
    work = served._validate(Request.received(next(texts(form, size, epsilon))), Deadline())
    return work.checking + work.counting


def measured(served: Curator, form: str, size: int, epsilon: str, quiet: float) -> float:
    """Returns the least milliseconds of some askings, on a core where the loop takes ``quiet`` seconds."""
    asked, least, spent = texts(form, size, epsilon), float("inf"), 0.0
    for number in range(ASKINGS):
        text = next(asked)
        cast(Any, served._engine).forget()  # what was counted for an earlier question: a price is of one that is new
        slow = [loop() for _ in range(LOOPS)]
        began = time.process_time()
        served.ask("ana", Request.received(text))
        taken = time.process_time() - began
        slow += [loop() for _ in range(LOOPS)]
        least, spent = min(least, taken * quiet / statistics.mean(slow)), spent + taken
        if number and spent > ENOUGH:
            break
    return 1000 * least


def published() -> dict[tuple[str, int, float], float]:
    """Returns the milliseconds of each question, number of parts and epsilon, as the table has them."""
    lines = [line.strip("|").split("|") for line in TABLE.read_text("utf-8").splitlines() if "|" in line]
    cells = ([cell.strip().replace(",", "") for cell in line[1:]] for line in lines[2:])
    named = zip((line[0].strip() for line in lines[2:]), cells, strict=True)
    return {(form, int(parts), float(epsilon)): float(taken) for form, (parts, epsilon, _, taken, *_) in named}


def is_right(price: int, taken: float) -> bool:
    """Whether a price is at least the milliseconds that were taken, and at most twice as many but for a few units."""
    return taken <= price <= 2 * taken + FREE


def main() -> None:
    """Prints and writes the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.prices", description=__doc__)
    parser.add_argument("--only", nargs="*", metavar="FORM", help=f"some lines: {', '.join(FORMS)}")
    only = parser.parse_args().only
    served, quiet = curator(), min(loop() for _ in range(1000))
    table = SpeedTable(
        "question", "parts", "epsilon", "units", "ms", "units / ms", "", widths=(28, 7, 12, 8, 8, 10, 12)
    )
    before, wrong = {} if only is None else published(), 0
    for form, size, epsilon in itertools.product(FORMS, SIZES, EPSILONS):
        anew = only is None or form in only
        taken = measured(served, form, size, epsilon, quiet) if anew else before[form, size, float(epsilon)]
        price = units(served, form, size, epsilon)
        verdict = "" if is_right(price, taken) else "too low" if price < taken else "too high"
        wrong += bool(verdict)
        cells = f"{price:,}", f"{taken:,.1f}", f"{price / taken:.2f}"
        table.add(form, f"{size:,}", f"{float(epsilon):g}", *cells, verdict)
    head = (
        "# Prices in work beside the time they stand for\n\n"
        f"A unit of work stands for a millisecond of one core. A table of {ROWS:,} rows; ledger in memory; the "
        f"least of up to {ASKINGS} askings, less the share by which a loop beside it was slower than at its best. "
        f"Commit `{commit_of()}`{' and earlier ones' if before else ''}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}. Of {len(FORMS) * len(SIZES) * len(EPSILONS)} prices {wrong} are below "
        "the time, or more than twice as high and three units more. Again: `python -m benchmarks.speed.prices`."
    )
    table.write(TABLE, head)


if __name__ == "__main__":
    main()
