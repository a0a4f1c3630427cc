# SPDX-License-Identifier: Apache-2.0
"""Three attacks on single people by a fitted model: ``python -m benchmarks.accuracy.disclosure``.

The tests are those of the Article 29 Working Party (opinion 05/2014): singling out, linkage, inference. Each miner of
``miners.canaries`` is fitted to its worst known table: a value identifies each of 1,000 people, and the attacker knows
the value and class of every other row. Each proportion of right guesses is compared with the largest that epsilon
allows. Writes benchmarks/results/disclosure.md.
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.origin import commit_of
from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from miners.canaries import FITS

PEOPLE, FITS_EACH = 1_000, 10
SCHEMA = pinq.Schema(
    columns={
        "person": pinq.Categorical(values=tuple(range(PEOPLE))),
        "illness": pinq.Categorical(values=("no", "yes")),
    },
    max_rows=2 * PEOPLE,
)
HEAD = """\
# What one fitted model gives away of single people

1,000 people, each identified by a value of their own; the attacker knows every other row. Of each attack: the share
of right guesses in {fits} fits, and in brackets the most that epsilon allows anybody to expect. A coin is right in
50 %. Epsilon 20 is no protection, and shows that the attacks work. The first share is of {named} guesses and may be off
by some {error:.0%} by chance, so it may also pass its bound by that; the others by a hundredth. Again:
`python -m benchmarks.accuracy.disclosure` ({commit}).

- **Singling out**: of all people the attacker names the ten of whom the model most looks as if exactly one row with
  the illness were in the table; such a row is there with probability 50 %.
- **Linkage**: the attacker has a list of all people, and says of each whether their row is in the table; about half
  of them are.
- **Inference**: each person is known to be in the table; the attacker says whether they have the illness; about half
  of them do. Another value of a row is two steps of one row each, so that the bound has 2 epsilon.
"""
COLUMNS = ("miner", "epsilon", "singling out", "linkage", "inference")


def fitted(name: str, epsilon: Fraction, people: np.ndarray, ill: np.ndarray) -> np.ndarray:
    """The model's share of the illness for each value, shape (people,)."""
    table = pd.DataFrame({"person": people, "illness": np.where(ill, "yes", "no")})
    with pinq.simulate(SCHEMA, data=table, epsilon=epsilon) as handle:
        return FITS[name](handle, epsilon, "illness", "person", range(PEOPLE), "yes")


def right(shares: np.ndarray, truth: np.ndarray, surest: int, draw: np.random.Generator) -> float:
    """The share of right guesses among those that the model makes look surest."""
    order = np.argsort(shares + draw.uniform(0, 1e-9, PEOPLE))[::-1]
    if surest:
        return float(truth[order[:surest]].mean())
    return float(np.append(truth[order[: PEOPLE // 2]], ~truth[order[PEOPLE // 2 :]]).mean())


def attacked(name: str, epsilon: float, fits: int, draw: np.random.Generator) -> list[str]:
    """A line of the table: the three attacks on fits of a miner."""
    everybody, guesses = np.arange(PEOPLE), np.empty((fits, 3))
    for number in range(fits):
        inside = draw.random(PEOPLE) < 0.5
        rows = np.append(everybody, everybody[inside])  # a healthy row each, and an ill one by a coin
        shares = fitted(name, Fraction(epsilon), rows, np.arange(len(rows)) >= PEOPLE)
        ill = draw.random(PEOPLE) < 0.5
        told = fitted(name, Fraction(epsilon), everybody, ill)
        guesses[number] = right(shares, inside, 10, draw), right(shares, inside, 0, draw), right(told, ill, 0, draw)
    most = [1 / (1 + math.exp(-epsilon * steps)) for steps in (1, 1, 2)]
    shown = [f"{share:.1%} ({bound:.1%})" for share, bound in zip(guesses.mean(axis=0), most, strict=True)]
    return [name, f"{epsilon:g}", *shown]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=FITS_EACH, help="fits of each miner at each epsilon")
    fits, draw = parser.parse_args().fits, np.random.default_rng(20261129)
    lines = [attacked(name, epsilon, fits, draw) for name in FITS for epsilon in (0.5, 1, 2, 20)]
    text = (
        HEAD.format(fits=fits, named=10 * fits, error=1 / math.sqrt(10 * fits), commit=commit_of())
        + markdown(COLUMNS, lines)
        + "\n"
    )
    single("disclosure.md", whole=fits >= FITS_EACH).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
