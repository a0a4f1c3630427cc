# SPDX-License-Identifier: Apache-2.0
"""Makes the known answers of the samplers: random bits, and the numbers that they must become.

An implementation of its own, in real numbers of 2,000 bits or more (mpmath) where the product has whole numbers and
tables: the digit that a uniform number U has is the whole part of log(1 - U Z) / log q. It shares no line and no method
with the product but the order in which bits are used, which is this:

- Words are 64 bits, little-endian. Geometric numbers: first a word of the lowest digit of each number, then of the next
  digit, and so on. A digit that its word leaves open takes further words at once.
- Noise: twice as many geometric numbers, the second half is taken from the first.
- A number below a limit: as many bytes as limit - 1 has, big-endian, shifted right to its bits; drawn again if too large.
- Choices: a geometric number for each candidate, then for each list a number below those accepted, in their order.
- Weighted choices: a word that chooses the run, then a number below the run's members.
- Shares: the geometric numbers of all that are open; for each a number below each 16 factors of its odds, until one fails.

Run ``python -m tests.assurance.known_draws`` with mpmath: it writes both files again, from the same bits.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, count
from math import prod
from pathlib import Path
from typing import Any

import mpmath as mp

ROOT = Path(__file__).parents[2]
DRAWS, SHARES = ROOT / "pinq/provider/selftest/known_draws.json", ROOT / "tests/contract/golden/shares.json"
SCALES = ["1/1000000", "1/20", "1/2", "1", "7/3", "10", "63", "64", "65", "1000", "4096", "1000000", "2**40+1"]
SCALES += ["2**50", "2**62", "10**20", "10**27/7"]
mp.mp.prec = 2000


class Tape:
    """Random bits from a seed, and all that were read."""

    def __init__(self, seed: object, *first: int) -> None:
        self._first, self._blocks = [word.to_bytes(8, "little") for word in first], self._made(repr(seed))
        self.read = b""

    def _made(self, seed: str) -> Iterator[int]:
        for number in count():
            yield from hashlib.sha256(f"{seed} {number}".encode()).digest()

    def take(self, size: int) -> bytes:
        taken = self._first.pop(0) if self._first else bytes(next(self._blocks) for _ in range(size))
        self.read += taken
        return taken

    def word(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def below(self, limit: int) -> int:
        bits = (limit - 1).bit_length()
        while (drawn := int.from_bytes(self.take(-(-bits // 8)), "big") >> -bits % 8) >= limit:
            pass
        return drawn


class Stream(Tape):
    """The bits of a session: blocks of SHAKE-256."""

    def _made(self, seed: str) -> Iterator[int]:
        for number in count():
            yield from hashlib.shake_256(seed.encode() + number.to_bytes(8, "big")).digest(8192)


def places_of(scale: Fraction) -> int:
    """The bounded digits in base 64."""
    return next(n for n in count() if 64**n >= scale)


def digit(word: int, step: Fraction, bounded: bool, tape: Tape) -> int:
    """The digit of a uniform number that begins with these 64 bits."""
    step_ = mp.mpf(step.numerator) / step.denominator
    all_ = -mp.expm1(-64 * step_) if bounded else mp.mpf(1)
    for bits in count(64, 64):
        low, high = (-mp.log1p(-all_ * number / mp.mpf(2) ** bits) / step_ for number in (word, word + 1))
        last = 63 if bounded else mp.inf
        if int(mp.floor(low)) == (least := min(mp.ceil(high) - 1, last)):
            return int(least)
        word = word << 64 | tape.word()
    raise AssertionError


def geometric(scale: Fraction, numbers: int, tape: Tape) -> list[int]:
    drawn = [0] * numbers
    for place in range(places_of(scale) + 1):
        words = [tape.word() for _ in drawn]
        digits = [digit(word, 64**place / scale, place < places_of(scale), tape) for word in words]
        drawn = [number + one * 64**place for number, one in zip(drawn, digits, strict=True)]
    return drawn


def scale_of(sensitivity: int, epsilon: str) -> Fraction:
    """The least double that is at least sensitivity / epsilon."""
    exact = Fraction(epsilon)
    up = mp.fdiv(sensitivity * exact.denominator, exact.numerator, prec=53, rounding="c")
    return Fraction(float(up))


def ends(scale: Fraction, place: int, digits: list[int]) -> Iterator[int]:
    """The words that the ends of some digits lie in."""
    step = mp.mpf(64**place) * scale.denominator / scale.numerator
    all_ = -mp.expm1(-64 * step) if place < places_of(scale) else mp.mpf(1)
    yield from (int(mp.floor(-mp.expm1(-(j + 1) * step) / all_ * 2**64)) for j in digits)


def numbers() -> Iterator[dict[str, Any]]:
    """Geometric numbers of all scales: of any bits, of bits beside the ends of digits, and of bits at these ends."""
    for text in SCALES:
        scale = Fraction(eval(text.split("/")[0]), eval((text + "/1").split("/")[1]))
        tape = Tape(text)
        yield {
            "scale": str(scale),
            "numbers": geometric(scale, 220 // (1 + places_of(scale)), tape),
            "bits": tape.read.hex(),
        }
        for place in range(places_of(scale) + 1):
            for end in ends(scale, place, [0, 4] if place < 3 else [1]):
                for word in {min(max(end + side, 0), 2**64 - 1) for side in (-1, 0, 1)}:
                    tape = Tape((text, place, end), *[0] * place, word)
                    yield {"scale": str(scale), "numbers": geometric(scale, 1, tape), "bits": tape.read.hex()}


def noisy() -> Iterator[dict[str, Any]]:
    """Noisy numbers of a loss."""
    for sensitivity, epsilon in ((1, "0.1"), (1, "1/3"), (3, "0.7"), (2**20, "0.05"), (2**62, "1/7"), (1, "10")):
        scale, tape = scale_of(sensitivity, epsilon), Tape((sensitivity, epsilon))
        exact = [0, 5, -17, 2**62 - 1, 1 - 2**62] * 6
        drawn = geometric(scale, 60, tape)
        noise = [one - other for one, other in zip(drawn[:30], drawn[30:], strict=True)]
        answers = [max(-(2**63) + 1, min(2**63 - 1, x + k)) for x, k in zip(exact, noise, strict=True)]
        asked = {"exact": exact, "sensitivity": sensitivity, "epsilon": epsilon}
        yield asked | {"answers": answers, "bits": tape.read.hex()}


def choices() -> Iterator[dict[str, Any]]:
    """Permute-and-flip in several lists at once."""
    for span, epsilon in ((1, "0.1"), (2, "1/3"), (1, "3"), (2**30, "1")):
        chance, tape = random.Random(f"{span} {epsilon}"), Tape((span, epsilon, "choices"))
        lists = [
            [chance.randrange(-9 * span, 9 * span) for _ in range(chance.choice([1, 2, 5, 30]))] for _ in range(25)
        ]
        drawn, chosen, accepted = iter(geometric(scale_of(span, epsilon), sum(map(len, lists)), tape)), [], []
        for own in lists:
            accepted.append([place for place, score in enumerate(own) if next(drawn) >= max(own) - score])
        chosen = [places[tape.below(len(places))] for places in accepted]
        asked = {
            "scores": [score for own in lists for score in own],
            "lengths": list(map(len, lists)),
            "span": span,
            "epsilon": epsilon,
        }
        yield asked | {"chosen": chosen, "bits": tape.read.hex()}


def weighted() -> Iterator[dict[str, Any]]:
    """The exponential mechanism over runs of candidates with prior masses."""
    for number in range(300):
        chance, tape = random.Random(number), Tape((number, "weighted"))
        runs = [[chance.randrange(-40, 40), chance.randrange(1, 1000), chance.choice([1, 7, 1000])] for _ in range(9)]
        span, epsilon = chance.choice([1, 2, 5]), chance.choice(["0.1", "1", "4/3"])
        eta, best = mp.mpf(Fraction(epsilon).numerator) / (Fraction(epsilon).denominator * span), max(runs)[0]
        up_to = list(accumulate(mp.mpf(n) / mass * mp.exp(eta * (score - best)) for score, n, mass in runs))
        at = tape.word() * up_to[-1] / mp.mpf(2) ** 64
        assert all(abs(at - end) > up_to[-1] / 10**9 for end in up_to[:-1])  # where one word decides
        run = sum(end <= at for end in up_to)
        asked = {"runs": runs, "span": span, "epsilon": epsilon}
        yield asked | {"chosen": [run, tape.below(runs[run][1])], "bits": tape.read.hex()}


def shares() -> Iterator[dict[str, Any]]:
    """Shares of a noise that several parties draw, from a session's stream of bits."""
    for epsilon, order, size in (("1", 1, 60), ("1/3", 2, 60), ("3/2", 3, 60), ("1/50", 2, 30), ("4/5", 7, 60)):
        seed, tape = f"shares of {epsilon} among {order}", Stream(f"shares of {epsilon} among {order}")
        tape._blocks = tape._made(seed)
        drawn, places = [0] * (2 * size), list(range(2 * size))
        while places:
            for place, one in zip(places, geometric(1 / Fraction(epsilon), len(places), tape), strict=True):
                drawn[place] = one
            places = [place for place in places if not kept(drawn[place], order, tape)]
        own = [one - other for one, other in zip(drawn[:size], drawn[size:], strict=True)]
        yield {"epsilon": epsilon, "order": order, "seed": seed, "shares": own}


def kept(number: int, order: int, tape: Tape) -> bool:
    for first in range(1, number + 1, 16):
        factors = range(first, min(first + 16, number + 1))
        if tape.below(prod(i * order for i in factors)) >= prod((i - 1) * order + 1 for i in factors):
            return False
    return True


def made() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The contents of both files."""
    makers = {"numbers": numbers, "noise": noisy, "choices": choices, "weighted": weighted}
    return {name: list(make()) for name, make in makers.items()}, list(shares())


if __name__ == "__main__":
    for file, content in zip((DRAWS, SHARES), made(), strict=True):
        file.write_text(json.dumps(content, separators=(",", ":")).replace("},", "},\n") + "\n")
        print(file, file.stat().st_size, "bytes")
