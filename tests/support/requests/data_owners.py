# SPDX-License-Identifier: Apache-2.0
"""A federation of owners with one task, also with an event in the middle, or with a record of its queries."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from miners import Federation
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

STRATEGIES: tuple[Any, ...] = ("turns", "noisy_counts", "local_rnm")
SCHEMA = Schema(
    columns={
        "x": Numeric(lower=0, upper=99, integer=True),
        "job": Categorical(values=("a", "b", "c")),
        "y": Categorical(values=("n", "p")),
    },
    max_rows=4000,
)


def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """Rows of class p if x is large; for job c, if x is small."""
    random = np.random.default_rng(seed)
    x, job = random.integers(0, 100, count), random.choice(list("abc"), count)
    return pd.DataFrame({"x": x, "job": job, "y": np.where((x >= 50) ^ (job == "c"), "p", "n")})


def federation(*sizes: int, epsilon: Any = 1, **named: Any) -> Federation:
    return Federation(
        [simulated(SCHEMA, data=rows(size, seed), epsilon=epsilon) for seed, size in enumerate(sizes)], **named
    )


class Interrupted(Federation):
    """A federation with an event before one round of queries."""

    def __init__(self, *args: Any, before: int, happens: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._left, self._happens = before, happens

    def ask(self, questions: Any) -> Any:
        if self._left == 0:
            self._happens(self)
        self._left -= 1
        return super().ask(questions)


class Noted(Federation):
    """A federation that records the owner and the loss of each choice."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.chosen: list[tuple[str, Fraction]] = []

    def ask(self, questions: Any) -> Any:
        self.chosen += [
            (name, loss.exact)
            for question in questions
            if question.verb == "exp_mech"
            for name, loss in question.epsilon.items()
        ]
        return super().ask(questions)
