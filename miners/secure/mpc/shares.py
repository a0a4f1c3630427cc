# SPDX-License-Identifier: Apache-2.0
"""``Sharing`` distributes numbers among parties as shares, and opens sums and products of them.

A number is the value at 0 of a random polynomial modulo a prime, and party i's share is the value
at i + 1 (Shamir). All that parties send each other are such points: every step is one ``exchange``,
which all parties make in the same order.

Privacy:
    Claim: any ``threshold`` parties learn what is opened, and nothing else of what others dealt.
    Why: so many shares of a number are uniform and independent (up to 2^-128, as a random number is
    a longer one modulo the prime). An opening shows a polynomial whose other coefficients are sums
    of uniform ones of every party, or one that is made random (``Arithmetic``).
    Not withstood: a party that deals numbers of its choice. A wrong share of an opened sum is
    noticed, for m parties send m points of a polynomial that threshold + 1 of them determine. From
    threshold + 3 parties on the one who sent it is named; of threshold + 2, three parties say, each
    party sees only that it was another one.
    Held by: tests/unit/secure/test_secure_sums.py.

References:
    Shamir 1979; Gennaro, Rabin & Rabin 1998 (products).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from typing import TypeVar

import numpy as np

from pinq.errors import SessionError

SPARE_BYTES = 16  # a random number is drawn so much longer than the prime
WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # for public numbers that nobody chose to deceive
Shares = np.ndarray
"""One party's shares, objects that are integers; any shape."""
T = TypeVar("T")


class Link:
    """One party's connection to the others; the base class is a simulation, in which one party plays all.

    Attributes:
        party: Its number.
        parties: Their number.
    """

    party = 0
    parties = 1

    async def exchange(self, what: str, own: Mapping[int, bytes], senders: Iterable[int]) -> Mapping[int, bytes]:
        """Sends to others, and waits for what others send in this step.

        Args:
            what: Which step it is; must be the same at all parties.
            own: The message to each receiver.
            senders: From whom a message comes.
        """
        return {}


ALONE = Link()


def threshold_of(parties: int) -> int:
    """Returns how many parties may pool what they see: fewer than half."""
    return (parties - 1) // 2


def run_to_end(main: Coroutine[object, None, T]) -> T:
    """Runs a coroutine in an event loop of its own, also from inside a running one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, main).result()


@cache
def prime_of(bits: int) -> int:
    """Returns the first prime of so many bits that is 3 modulo 4, so that roots are powers."""
    # Miller-Rabin; where (n - 1) / 2 is odd a witness has one power to look at.
    candidates = count(2 ** (bits - 1) + 3, 4)
    return next(n for n in candidates if all(pow(base, n // 2, n) in (1, n - 1) for base in WITNESSES if base < n))


@cache
def weights(places: tuple[int, ...], at: int, prime: int) -> tuple[int, ...]:
    """Returns by what values at some parties' places are multiplied to add up to that at another (-1: at 0)."""
    others = [[other for other in places if other != place] for place in places]
    return tuple(
        math.prod(at - other for other in rest) * pow(math.prod(place - other for other in rest), -1, prime) % prime
        for place, rest in zip(places, others, strict=True)
    )


class Sharing:
    """One party's side.

    Args:
        link: To the others.
        bits: The size of the field; a secret number lies between -2^(bits-2) and 2^(bits-2).

    Attributes:
        modulus: The prime.
        party: This party's number.
        threshold: How many parties may pool what they see.
    """

    def __init__(self, link: Link, bits: int) -> None:
        self.modulus, self._width = prime_of(bits), (bits + 7) // 8
        self._long = self._width + SPARE_BYTES  # random bytes that make a number
        self._link, self.party, self._everybody = link, link.party, range(link.parties)
        self.threshold = threshold_of(link.parties)

    async def share(self, values: np.ndarray | None, owner: int, shape: tuple[int, ...]) -> Shares:
        """Shares an array that party ``owner`` has; the others pass None.

        Everybody knows its shape.
        """
        if values is not None and values.shape != shape:
            raise ValueError(f"shape {values.shape} instead of {shape}")
        flat = None if values is None else values.reshape(-1)
        return (await self._dealt("rows", flat, [owner], math.prod(shape)))[owner].reshape(shape)

    async def sum_of_inputs(self, values: np.ndarray) -> Shares:
        """Shares the sum of what each party passes, arrays of one shape.

        What a party adds stays its own.
        """
        dealt = await self._dealt("numbers", values.reshape(-1), self._everybody, values.size)
        return (np.sum(list(dealt.values()), axis=0) % self.modulus).reshape(values.shape)

    async def sums(self, values: np.ndarray) -> np.ndarray:
        """Opens the sums of what all parties pass, arrays of one shape."""
        return self.signed(await self.opened(await self.sum_of_inputs(values)))

    def signed(self, numbers: np.ndarray) -> np.ndarray:
        """Takes numbers above half the prime as negative ones."""
        return np.where(numbers > self.modulus // 2, numbers - self.modulus, numbers)

    async def product(self, function: Callable[..., np.ndarray], *secrets: Shares) -> Shares:
        """Shares ``function(*secrets)``, an expression of degree two in the secrets. One round.

        Degree two: sums and public multiples of products of two secrets.
        """
        # Shares are points on polynomials of degree t, and a product of two of them is a point on
        # one of degree 2t, which 2t + 1 parties together determine. Each deals its point out again,
        # on a polynomial of degree t, and what these add up to may be multiplied again. Example: t =
        # 1, secrets 2 and 3 on 2 + x and 3 + 2x: the parties at 1, 2 and 3 multiply 3 * 5, 4 * 7 and
        # 5 * 9, points of 6 + 7x + 2x^2, which is 6 at 0.
        points = function(*secrets) % self.modulus
        dealers = self._everybody[: 2 * self.threshold + 1]
        dealt = await self._dealt("product", points.reshape(-1), dealers, points.size)
        return self._through(dealt, -1).reshape(points.shape)

    async def _dealt(
        self, what: str, values: np.ndarray | None, dealers: Sequence[int], size: int
    ) -> dict[int, np.ndarray]:
        """Deals numbers out to all; returns this party's shares of each dealer's."""
        if self.party not in dealers or values is None:
            return await self._exchange(what, {}, dealers, size)
        # A number 5 on 5 + 3x: the parties at 1, 2 and 3 get 8, 11 and 14.
        drawn = self._read(os.urandom(self.threshold * size * self._long), self._long)
        own = {number: values.astype(object) % self.modulus for number in self._everybody}
        for power, coefficients in enumerate(drawn.reshape(self.threshold, size), 1):
            for number in own:
                own[number] = (own[number] + coefficients * (number + 1) ** power) % self.modulus
        return {self.party: own.pop(self.party)} | await self._exchange(what, own, dealers, size)

    async def opened(self, shares: Shares, degree: int | None = None, receiver: int | None = None) -> np.ndarray:
        """Opens numbers from 0 to below the prime to all parties, or to one; who receives nothing gets zeros.

        Args:
            shares: Points of polynomials that are the numbers at 0.
            degree: The degree of these; where it is not given they are those of dealt numbers, all parties
                send theirs, and one that does not fit is noticed.
            receiver: Who alone gets them.
        """
        party, parties = self.party, len(self._everybody)
        senders = parties - 1 if degree is None else degree
        receivers = [(party + step) % parties for step in range(1, senders + 1)]
        own = {number: shares.reshape(-1) for number in receivers if receiver in (None, number)}
        if receiver not in (None, party):
            await self._exchange("opening", own, (), shares.size)
            return np.zeros(shares.shape, dtype=object)
        others = [(party - step) % parties for step in range(1, senders + 1)]
        points = {party: shares.reshape(-1)} | await self._exchange("opening", own, others, shares.size)
        if degree is None:
            self._require_fitting(points)
            points = dict(sorted(points.items())[: self.threshold + 1])
        return self._through(points, -1).reshape(shares.shape)

    async def _exchange(
        self, what: str, own: Mapping[int, np.ndarray], senders: Iterable[int], size: int
    ) -> dict[int, np.ndarray]:
        """Sends numbers to other parties; returns so many of each sender."""
        if not size:
            return {number: np.zeros(0, dtype=object) for number in senders}
        width = self._width
        sent = {
            number: b"".join([value.to_bytes(width, "little") for value in values.tolist()])
            for number, values in own.items()
        }
        received = {}
        others = [number for number in senders if number != self.party]
        for number, content in (await self._link.exchange(f"{what} {size}", sent, others)).items():
            if len(content) != size * width:
                raise SessionError(f"party {number} sent {len(content)} bytes in place of {size * width}.")
            received[number] = self._read(content, width)
        return received

    def _read(self, content: bytes, width: int) -> np.ndarray:
        """Reads numbers of so many bytes, modulo the prime."""
        read, prime = int.from_bytes, self.modulus
        numbers = [read(content[i : i + width], "little") % prime for i in range(0, len(content), width)]
        return np.array(numbers, dtype=object)

    def _require_fitting(self, points: Mapping[int, np.ndarray]) -> None:
        """Raises ``SessionError`` that names who sent a wrong share."""
        if self._fits(points):
            return
        others = sorted(points.keys() - {self.party})
        suspects = [
            number
            for number in others
            if self._fits({other: values for other, values in points.items() if other != number})
        ]
        named = " or ".join(f"party {number}" for number in suspects or others)
        raise SessionError(f"the shares of a sum do not fit each other: {named} sent a wrong one.")

    def _fits(self, points: Mapping[int, np.ndarray]) -> bool:
        """Returns whether all points lie on polynomials of the threshold's degree."""
        first = dict(sorted(points.items())[: self.threshold + 1])
        return all(bool((self._through(first, number) == values).all()) for number, values in points.items())

    def _through(self, points: Mapping[int, np.ndarray], place: int) -> np.ndarray:
        """Returns the value at a party's place (-1 for 0) of the polynomials through all points."""
        factors = weights(tuple(points), place, self.modulus)
        terms = [values * factor for values, factor in zip(points.values(), factors, strict=True)]
        return np.sum(terms, axis=0) % self.modulus
