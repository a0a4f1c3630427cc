# SPDX-License-Identifier: Apache-2.0
"""Exact integer noise and noisy selection.

Nothing here can be seeded: a seed that someone can learn is noise that someone can subtract. Each draw reads the
operating system's random bits (``pinq/public/noise.py``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from pinq.errors import InternalError
from pinq.public.noise import SYSTEM, Bits, DiscreteLaplace, exponential

MOST_BITS = 10**4  # of a uniform number; in practice fewer decide
AT_ONCE = 2**14  # draws, which take a few milliseconds
BLOCK = 128  # weights that are first read by their sum


def laplace(
    exact: np.ndarray,
    sensitivity: int,
    epsilon: Fraction,
    check: Callable[[], None] = lambda: None,
    source: Bits = SYSTEM,
) -> np.ndarray:
    """Adds independent discrete Laplace noise to integers.

    Args:
        exact: Integers below 2^62 in size, any shape.
        sensitivity: L1 sensitivity of the whole array, in its units. 0 for an array that no row can
            change.
        epsilon: Privacy loss of the release for one row; greater than 0.
        check: A function that is called between steps; an error that it raises ends the work.
        source: The source of bits: the operating system, or fixed bits with known answers.

    Returns:
        ``exact + k``, with P[k] = (1 - a) / (1 + a) * a**|k|, a = exp(-epsilon / sensitivity);
        int64, same shape.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP. Why: neighbours' arrays differ by at most ``sensitivity``
        in L1, so any outcome's likelihoods differ by at most a**(-sensitivity) = exp(epsilon). The scale is rounded up,
        so floats can only add noise. An answer that is clamped to 64 bits is computed from one that is not. Exact:
        sampled in integers and fractions (``noise.py``). Held by: tests/privacy/test_mechanisms.py,
        tests/privacy/test_noise_by_digits.py.

    References:
        Ghosh, Roughgarden & Sundararajan 2009.
    """
    values = np.asarray(exact, dtype=np.int64)
    if sensitivity == 0 or values.size == 0:
        return values.copy()
    noisy, law = values.flatten(), _laplace(scale_of(sensitivity, epsilon))
    for start in range(0, noisy.size, AT_ONCE):
        check()
        drawn = slice(start, start + AT_ONCE)
        noisy[drawn] = law.added(noisy[drawn], source)
    return noisy.reshape(values.shape)


def choose(scores: np.ndarray, span: int, epsilon: Fraction) -> int:
    """Chooses one candidate as ``choose_each`` does; ``scores`` has the shape (candidates,)."""
    return int(choose_each(np.asarray(scores, dtype=np.int64), [len(scores)], span, epsilon)[0])


def choose_each(
    scores: np.ndarray, lengths: Sequence[int], span: int, epsilon: Fraction, source: Bits = SYSTEM
) -> np.ndarray:
    """Chooses a candidate from each of several lists by permute-and-flip.

    Args:
        scores: Integers below 2^62 in size, list after list; higher is better.
        lengths: Candidates of each list, at least 1.
        span: Largest change of the difference of two scores of a list when one row comes or goes.
        epsilon: Privacy loss of each choice for one row.
        source: As in ``laplace``.

    Returns:
        The position of each choice in its list, shape (lists,).

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP, for each list. Why: permute-and-flip is noisy max with
        exponential noise of rate eta = epsilon / span and ignores a common shift, so let every score fall by 0 .. span;
        with the other noises fixed the bar for the winner moves by at most span, and P[noise > t + span] =
        exp(-epsilon) P[noise > t] (privacy.md 3.1). Never worse than the exponential mechanism in expectation. Exact: a
        candidate that is k behind the best is accepted with probability exp(-eta k), that of a geometric number being k
        or more (``noise.py``). The first accepted candidate in a random order is any of the accepted ones with equal
        probability. The scale is rounded up. Held by: tests/privacy/test_mechanisms.py,
        tests/privacy/test_noise_by_digits.py.

    References:
        McKenna & Sheldon 2020, "Permute-and-Flip"; Ding et al. 2021 (equivalence).
    """
    return _flip(_laplace(scale_of(span, epsilon)), scores, np.asarray(lengths), source)


def _flip(law: DiscreteLaplace, scores: np.ndarray, lengths: np.ndarray, source: Bits) -> np.ndarray:
    # Lists of 7 4 and 9 9 5 are 0 3 and 0 0 4 behind. Numbers 2 1 and 0 8 3 accept the first of one and
    # the first two of the other: positions 0, 2 and 3, which begin at 0 and 1 for the two lists.
    starts = np.cumsum(lengths) - lengths
    behind = np.maximum.reduceat(scores, starts).repeat(lengths) - scores
    accepted = np.flatnonzero(law.geometric(len(scores), source) >= behind)
    ends = [*np.searchsorted(accepted, starts), len(accepted)]
    drawn = [first + source.below(int(end - first)) for first, end in itertools.pairwise(ends)]
    return accepted[drawn] - starts


@dataclass(frozen=True)
class Weighted:
    """Candidates in runs of equal score.

    Attributes:
        scores: The score of each run, integers, shape (runs,).
        members: The number of candidates of each run, integers, shape (runs,); 0 is allowed.
        mass: The prior mass of one candidate of each run is 1 / mass; integers, shape (runs,).
    """

    scores: np.ndarray
    members: np.ndarray
    mass: np.ndarray


def choose_weighted(
    candidates: Weighted,
    span: int,
    epsilon: Fraction,
    all_weights: Callable[[], Weighted] | None = None,
    source: Bits = SYSTEM,
) -> tuple[int, int]:
    """Chooses one of many weighted candidates by the exponential mechanism, exactly.

    Args:
        candidates: At least one member in all.
        span: As in ``choose``.
        epsilon: As in ``choose``.
        all_weights: A function that returns all runs, if some of these stand for several runs (together far less than
            2^-39 of the total weight); else None.
        source: As in ``laplace``.

    Returns:
        The run (one of ``all_weights`` if whole numbers decided), and a uniform member of it.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP.
        Why: P[r] is proportional to mu(r) exp(eta q(r)), eta = epsilon / span, with a public mu; if
        changes of q span at most ``span``, the log-ratio is at most eta * span (range lemma,
        privacy.md 2.4). The gathering of candidates into runs depends on rows; the law does not.
        Exact: a uniform real is drawn bit by bit until rigorous bounds on the cumulative weights
        show on which side of each it lies. The bounds are doubles with a proven error; where these
        cannot decide, whole numbers of growing precision (privacy.md 3.2).
        Held by: tests/privacy/test_mechanisms.py.

    References:
        McSherry & Talwar 2007; privacy.md 2.7 (cuts interval by interval).
    """
    eta = epsilon / span
    best = int(candidates.scores.max(where=candidates.members > 0, initial=-(2**63)))
    bits, drawn = 64, source.word()
    run = _by_doubles(candidates, best, eta, drawn)
    while run is None:
        candidates = candidates if all_weights is None else all_weights()
        run = _by_integers(candidates, best, eta, drawn, bits)
        bits, drawn = bits + 64, drawn << 64 | source.word()
        if bits > MOST_BITS:
            raise InternalError("a weighted choice could not be decided; please report this")
    return run, source.below(int(candidates.members[run]))


def _weights(candidates: Weighted, best: int, eta: Fraction) -> np.ndarray:
    """The runs' weights, shape (runs,)."""
    weights = np.empty(len(candidates.scores))
    np.subtract(best, candidates.scores, out=weights, casting="unsafe")
    weights *= -float(eta)
    # A run without members may score above the best; its weight is zero whatever its exponent. Numbers below 2^-1022,
    # which a double holds with fewer digits, take a processor up to 80 times as long.
    np.exp(np.clip(weights, -600.0, 0.0, out=weights), out=weights)
    weights *= candidates.members
    weights /= candidates.mass
    return weights


def _by_doubles(candidates: Weighted, best: int, eta: Fraction, drawn: int) -> int | None:
    """The run into which the uniform number in [drawn, drawn + 1) / 2^64 falls; None if doubles cannot decide.

    Each weight's relative error is below (4 + |exponent|) * 2^-52. Exponents below -600 count as -600: both weights are
    zero to within 2^-860. A cumulative sum of K terms adds K * 2^-53 of the total. All errors together are below
    ``slack`` of the total, with a factor 4 to spare.
    """
    weights = _weights(candidates, best, eta)
    # Weights 3 1 4 1 5, two in a block: blocks end at 4, 9 and 14. What is 6 of 14 falls to the second
    # block, whose runs end at 4 + 4 and 4 + 4 + 1, so to its first one.
    blocks = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).cumsum()
    slack, total = 2.0**-39 + len(weights) * 2.0**-50, blocks[-1]
    uniform = drawn / 2.0**64
    first = BLOCK * int(blocks.searchsorted(uniform * total, side="right"))
    ends = np.append(blocks[first // BLOCK - 1] if first else 0.0, weights[first : first + BLOCK]).cumsum()
    place = int(ends.searchsorted(uniform * total, side="right"))
    run = first + place - 1
    if place == len(ends) or candidates.members[run] == 0:
        return None
    below = ends[place - 1] / total if run else -1.0
    above = ends[place] / total if run < len(weights) - 1 else 2.0
    # The run's share of [0, 1] is from `below` to `above`. Example: weights 3, 1, 4 give 0 to .375, .375 to .5 and .5
    # to 1. A uniform number of .4 is in the second share, with .025 to spare on its left; one of .375 + 1e-13 is closer
    # to a boundary than the sums are exact, so whole numbers decide. The first share has no boundary on its left and
    # the last none on its right; -1 and 2 stand there, far from every uniform number.
    return run if below + slack < uniform and uniform + slack < above else None


def _by_integers(candidates: Weighted, best: int, eta: Fraction, drawn: int, bits: int) -> int | None:
    """The run into which the uniform number in [drawn, drawn + 1) / 2^bits falls; None if more bits are needed."""
    low, high = _enclosed(candidates, best, eta, 2 * bits)
    total_low, total_high, sum_low, sum_high = sum(low), sum(high), 0, 0
    last = max(run for run, at_most in enumerate(high) if at_most)
    for run, (at_least, at_most) in enumerate(zip(low, high, strict=True)):
        # The run's share of [0, 1) begins at sum_high / total_low or before. It ends at sum_low / total_high
        # or after, and the last share at 1.
        has_begun = sum_high * 2**bits <= drawn * total_low
        sum_low, sum_high = sum_low + at_least, sum_high + at_most
        ends_behind = run == last or (drawn + 1) * total_high <= sum_low * 2**bits
        if at_most and has_begun and ends_behind:
            return run
    return None


def _enclosed(candidates: Weighted, best: int, eta: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Bounds on 2^bits times the weight of each run, from below and from above; 0 for a run without members."""
    scores, one = candidates.scores.tolist(), (2**bits, 2**bits)
    powers = {score: exponential(eta * (best - score), bits) if score < best else one for score in set(scores)}
    rows = list(zip(scores, candidates.members.tolist(), candidates.mass.tolist(), strict=True))
    low = [powers[score][0] * members // mass for score, members, mass in rows]
    return low, [-(-powers[score][1] * members // mass) for score, members, mass in rows]


@lru_cache(maxsize=1024)
def scale_of(sensitivity: int, epsilon: Fraction) -> float:
    """The ratio sensitivity / epsilon as a float, rounded up."""
    # The nearest float to 1/3 is below it: the next one is taken.
    exact = Fraction(sensitivity) / epsilon
    scale = float(exact)
    return scale if Fraction(scale) >= exact else math.nextafter(scale, math.inf)


@lru_cache(maxsize=1024)
def _laplace(scale: float) -> DiscreteLaplace:
    return DiscreteLaplace(Fraction(scale))
