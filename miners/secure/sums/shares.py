# SPDX-License-Identifier: Apache-2.0
"""``SharedSums`` opens sums of all parties' numbers, and nothing of what one of them added.

Two messages between any two parties: each party sends the others shares of its numbers (Shamir), and
then the sum of the shares that it got. No comparison and no common randomness is needed.

Privacy:
    Claim: any ``threshold`` parties learn the sums, and nothing else of what the others added.
    Why: so many shares of a number are uniform and independent; the opened shares lie on one
    polynomial, whose other coefficients are sums of uniform ones of every party.
    Not withstood: a party that adds numbers of its choice. A wrong share of a sum is noticed, for m
    parties send m points of a polynomial that threshold + 1 of them determine. From threshold + 3
    parties on the one who sent it is named; of threshold + 2, three parties say, each party sees
    only that it was another one.
    Held by: tests/unit/secure/test_secure_sums.py.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence

import numpy as np

from miners.secure.mpc.mpyc_runtime import Codec, Connection
from pinq.errors import SessionError

__all__ = ["SharedSums"]

PRIMES = (19, 31, 61, 89, 127, 521, 2203)  # 2^k - 1 is prime


class SharedSums:
    """One party's side.

    Args:
        party: Its number.
        connections: The connection to each other party.
        threshold: How many parties may pool what they see.
        bits: Every sum lies between -2^(bits-1) and 2^(bits-1).
    """

    def __init__(self, party: int, connections: Mapping[int, Connection], threshold: int, bits: int) -> None:
        self._party, self._connections, self._threshold = party, connections, threshold
        exponent = next(exponent for exponent in PRIMES if exponent > bits)
        self._modulus, self._codec, self._label = 2**exponent - 1, Codec((exponent + 7) // 8), 0

    async def add(self, numbers: np.ndarray) -> np.ndarray:
        """Opens the sums of what all parties pass, arrays of one length."""
        modulus = self._modulus
        # A number 5 on 5 + 3x: the parties at 1, 2 and 3 get 8, 11 and 14.
        coefficients = [
            np.array([secrets.randbelow(modulus) for _ in range(len(numbers))], dtype=object)
            for _ in range(self._threshold)
        ]
        polynomial = [*coefficients, numbers.astype(object)]
        shares = {number: self._at(polynomial, number) for number in (*self._connections, self._party)}
        received = await self._exchange({number: shares[number] for number in self._connections}, len(numbers))
        own = sum(received.values(), shares[self._party]) % modulus
        points = await self._exchange(dict.fromkeys(self._connections, own), len(numbers))
        points[self._party] = own
        sums = self._constant(points)
        return np.where(sums > modulus // 2, sums - modulus, sums)

    def _at(self, polynomial: Sequence[np.ndarray], party: int) -> np.ndarray:
        """Returns a polynomial's values at a party's place, highest coefficient first."""
        value: np.ndarray = np.zeros(len(polynomial[-1]), dtype=object)
        for coefficient in polynomial:
            value = (value * (party + 1) + coefficient) % self._modulus
        return value

    async def _exchange(self, own: Mapping[int, np.ndarray], length: int) -> dict[int, np.ndarray]:
        """Sends numbers to each other party; returns those that each sent."""
        label, self._label = self._label, self._label + 1
        for number, values in own.items():
            self._connections[number].send(label, self._codec.dumps(values))
        received = {}
        for number in own:
            waiting = self._connections[number].receive(label)
            content = await waiting if isinstance(waiting, asyncio.Future) else waiting
            if len(content) != length * self._codec.width:
                raise SessionError(
                    f"party {number} sent {len(content)} bytes in place of {length * self._codec.width}."
                )
            received[number] = self._codec.loads(content) % self._modulus
        return received

    def _constant(self, points: Mapping[int, np.ndarray]) -> np.ndarray:
        """Returns the value at 0 of the polynomials through all points.

        ``SessionError`` that names who sent a wrong share.
        """
        if self._fits(points):
            return self._through(points, -1)
        suspects = [
            number
            for number in sorted(self._connections)
            if self._fits({other: values for other, values in points.items() if other != number})
        ]
        named = " or ".join(f"party {number}" for number in suspects or sorted(self._connections))
        raise SessionError(f"the shares of a sum do not fit each other: {named} sent a wrong one.")

    def _fits(self, points: Mapping[int, np.ndarray]) -> bool:
        """Returns whether all points lie on polynomials of the threshold's degree."""
        first = dict(sorted(points.items())[: self._threshold + 1])
        return all(bool((self._through(first, number) == values).all()) for number, values in points.items())

    def _through(self, points: Mapping[int, np.ndarray], party: int) -> np.ndarray:
        """Returns the value at a party's place (-1 for 0) of the polynomials through the first points."""
        chosen = sorted(points.items())[: self._threshold + 1]
        total: np.ndarray = np.zeros(len(chosen[0][1]), dtype=object)
        for number, values in chosen:
            over = under = 1
            for other, _ in chosen:
                if other != number:
                    over, under = over * (party - other) % self._modulus, under * (number - other) % self._modulus
            total = (total + values * (over * pow(under, -1, self._modulus))) % self._modulus
        return total
