# SPDX-License-Identifier: Apache-2.0
"""Known answers: random bits, and the numbers that the samplers must compute from them.

Another implementation made ``known_draws.json``. It computes with logarithms of 2,000 bits (mpmath) instead of whole
numbers and tables (tests/assurance/known_draws.py, with the order of the bits). If a sampler gives another answer, the
processor, Python, numpy or this package has a fault. Scales are from 10^-6 to 10^27. Some bits lie at the ends of
digits, where more bits are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np

from pinq.curator.mechanisms import Weighted, choose_each, choose_weighted, laplace
from pinq.public.noise import Bits, DiscreteLaplace

KnownCase = Mapping[str, Any]
"""A line of the file: the query, the bits, and the answer under the name in ``KINDS``."""


def numbers(case: KnownCase, source: Bits) -> Sequence[int]:
    """Geometric numbers of a scale."""
    return DiscreteLaplace(Fraction(case["scale"])).geometric(len(case["numbers"]), source).tolist()


def answers(case: KnownCase, source: Bits) -> Sequence[int]:
    """Numbers with the noise of a loss."""
    return laplace(np.array(case["exact"]), case["sensitivity"], Fraction(case["epsilon"]), source=source).tolist()


def choices(case: KnownCase, source: Bits) -> Sequence[int]:
    """Choices from lists by permute-and-flip."""
    scores, epsilon = np.array(case["scores"]), Fraction(case["epsilon"])
    return choose_each(scores, case["lengths"], case["span"], epsilon, source).tolist()


def weighted(case: KnownCase, source: Bits) -> Sequence[int]:
    """Choices among weighted runs by the exponential mechanism."""
    runs = Weighted(*np.array(case["runs"]).T)
    return list(choose_weighted(runs, case["span"], Fraction(case["epsilon"]), source=source))


KINDS: Mapping[str, tuple[Callable[[KnownCase, Bits], Sequence[int]], str]] = {
    "numbers": (numbers, "numbers"),
    "noise": (answers, "answers"),
    "choices": (choices, "chosen"),
    "weighted": (weighted, "chosen"),
}
"""For each kind of line, the function that answers it and the key of the known answer."""


def wrong_answers() -> tuple[int, list[str]]:
    """The number of known answers, and a text for each line with a wrong answer."""
    content, total, wrong = json.loads(files(__package__).joinpath("known_draws.json").read_text()), 0, list[str]()
    for kind, (compute, name) in KINDS.items():
        for number, case in enumerate(content[kind]):
            bits = BytesIO(bytes.fromhex(case["bits"]))
            total += len(case[name])
            if list(compute(case, Bits(bits.read))) != case[name] or bits.read():
                wrong.append(f"{kind} {number}")
    return total, wrong
