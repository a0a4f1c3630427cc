# SPDX-License-Identifier: Apache-2.0
"""``Arithmetic`` computes with secrets, on this party's shares of them.

Sums and public multiples of secrets are sums and multiples of shares, so they are plain numpy here.
Everything else is one of the steps of ``Sharing``, or ``is_negative`` and ``is_zero``.

Privacy:
    Parties: m >= 3, of which fewer than m/2 pool what they see and follow the protocol
    (semi-honest).
    Claim: they learn what ``open`` and ``is_zero`` were asked for, and nothing else.
    Why: shares and products are argued in ``shares``. Common randomness is pseudorandom
    (SHAKE128), by keys of 128 bits, one for each set of parties that could be all the honest ones:
    whoever pools what they see lacks at least one, and so do not know what it makes. ``is_negative``
    opens the number plus a random mask that is 2^``SECURITY`` times as large, so its law is within
    2^-``SECURITY`` of one that does not depend on the secret; the squares of random numbers, which
    tell nothing of the roots' signs; and whether a product is 0, which the random sign decides.
    ``is_zero`` opens the number times a random one (a number that is not 0 seems so with
    probability 1/p). What is opened of degree 2t is a product of two polynomials: shares of 0 on a
    random one of that degree are added, so that only its value at 0 is seen.
    Held by: tests/unit/secure/test_secure_trees.py, which sees every opened value and every
    opening; tests/integration/test_secure_runtime.py.

References:
    Cramer, Damgaard & Ishai 2005 (common randomness); Damgaard, Fitzi, Kiltz, Nielsen & Toft 2006
    (random bits, zero test); Toft 2007, and Schoenmakers' MPyC (comparison).
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable
from fractions import Fraction
from itertools import combinations

import numpy as np

from miners.secure.mpc.noise import Below, own_noise
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.mpc.shares import Link, Shares as Shares, Sharing, threshold_of, weights
from pinq.errors import SessionError
from pinq.public.plugins import optional

SECURITY = 40  # bits: what a comparison opens is this close, 2^-40, to independent of the secret
KEY = 16  # bytes of a key of common randomness


def field_bits(bits: int, parties: int) -> int:
    """Returns the size of the prime field in which numbers of so many bits are compared.

    A mask is the sum of a number of ``SECURITY`` bits for each set of parties that could be honest.
    """
    return bits + SECURITY + math.comb(parties, threshold_of(parties)).bit_length() + 2


class Arithmetic(Sharing):
    """Computes with secret integers of at most ``bits`` bits among the parties of a link.

    Args:
        link: To the other parties.
        bits: Every compared number lies between -2^(bits-1) and 2^(bits-1); see ``bounds``.
        rounds: Asks the questions that have noise; by default those of a simulation.
        plays: How many parties this process is: 1, or all of them in a simulation.

    Attributes:
        rounds: The same; ``rounds.opened`` is all that was opened so far, in order.
        parties: The number of parties.
    """

    def __init__(self, link: Link, bits: int, rounds: Rounds | None = None, plays: int = 1) -> None:
        super().__init__(link, field_bits(bits, link.parties))
        self.rounds, self.plays = rounds or Rounds(), plays
        self.parties = link.parties + plays - 1
        # A key of each set of parties, and this party's share of 1 on the polynomial that is 0 at all
        # others: of three parties the set of the first and the third is on 1 - x / 2.
        self._sets = {
            one: weights((-1, *(other for other in self._everybody if other not in one)), link.party, self.modulus)[0]
            for one in combinations(self._everybody, link.parties - self.threshold)
            if link.party in one
        }
        self._keys: dict[tuple[int, ...], bytes] = {}
        self._drawn = 0
        self._power = optional("gmpy2", "secure", "secure computation needs gmpy2").powmod_base_list

    async def open(self, secrets: Shares, what: str, receiver: int | None = None) -> np.ndarray:
        """Opens secrets to all parties, or to one; who receives nothing gets zeros."""
        numbers = self.signed(await self.opened(secrets, receiver=receiver))
        return self._noted(numbers, what) if receiver in (None, self.party) else numbers

    def _noted(self, numbers: np.ndarray, what: str) -> np.ndarray:
        """Notes what was opened."""
        if numbers.size:
            self.rounds.opened.append(Opened(what, tuple(int(number) for number in numbers.ravel())))
        return numbers

    async def is_zero(self, secrets: Shares, what: str) -> np.ndarray:
        """Opens whether each secret is 0, and nothing more about it."""
        return self._noted(await self._is_zero(secrets), what)

    async def _is_zero(self, secrets: Shares) -> np.ndarray:
        masked = secrets.reshape(-1) * await self._common(secrets.size, self._long) + await self._zeros(secrets.size)
        opened = await self.opened(masked % self.modulus, 2 * self.threshold)
        return (opened == 0).reshape(secrets.shape)

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Shares 1 where a secret is below 0, else 0.

        The secrets have at most ``bits`` bits, sign included; shorter is cheaper.
        """
        if not secrets.size:
            return secrets
        prime, whole, size = self.modulus, 1 << bits, secrets.size
        half = pow(2, -1, prime)
        signs = await self._signs((bits + 1) * size)
        ours, sign = (signs[size:].reshape(bits, size) + 1) * half % prime, signs[:size]
        values = np.array([1 << place for place in range(bits)], dtype=object)
        low = values @ ours
        # A secret -3 of 4 bits and a low mask of 9, 1001, below a high one: 16 - 3 + 9 = 22 and a
        # multiple of 16 are opened, of which 6 = 0110 is left. 6 is below 9, and -3 modulo 16 is 6 -
        # 9 + 16 = 13, more than the secret itself by 16: it is negative.
        high = await self._common(size, SECURITY // 8)
        masked = (secrets.reshape(-1) + whole + low + high * whole) % prime
        seen = await self.opened(masked, self.threshold) % whole
        theirs = np.array([[number >> place & 1 for number in seen.tolist()] for place in range(bits)], dtype=object)
        # The first bit from above that differs is our 1 and their 0 where the mask is larger. With a
        # random sign +1 some term is 0 where it is not, with -1 where it is: whether there is one
        # tells nothing. At a bit above, 3 for each difference keeps a term from 0.
        differ = (ours + theirs - 2 * theirs * ours)[::-1]
        above = np.cumsum(np.concatenate([np.zeros((1, size), dtype=object), differ]), axis=0)
        lead = np.concatenate([(ours - theirs)[::-1], np.full((1, size), -1, dtype=object)])
        terms = (sign + lead + 3 * above) % prime
        while len(terms) > 1:
            paired = len(terms) // 2
            both = await self.product(np.multiply, terms[:paired], terms[paired : 2 * paired])
            terms = np.concatenate([both, terms[2 * paired :]])
        none = 1 - 2 * (await self._is_zero(terms[0])).astype(object)
        larger = (none * sign + 1) * half  # 1 where our mask is larger than what is left
        negative = (seen - low + whole * larger - secrets.reshape(-1)) * pow(whole, -1, prime)
        return (negative % prime).reshape(secrets.shape)

    async def _signs(self, size: int) -> Shares:
        """Shares random numbers that are 1 or -1, unknown to all."""
        # A root of an opened square, divided by the one that is itself a square: r / (r^2)^(1/2).
        roots = await self._common(size, self._long)
        squares = await self.opened((roots * roots + await self._zeros(size)) % self.modulus, 2 * self.threshold)
        if not squares.all():  # once in 2^40 times or more: 0 has no sign
            return await self._signs(size)
        inverses = self._power(squares.tolist(), (self.modulus - 3) // 4, self.modulus)
        return roots * np.array([int(inverse) for inverse in inverses], dtype=object) % self.modulus

    async def _common(self, size: int, width: int) -> Shares:
        """Shares random numbers, each of so many bytes, that nobody knows: each set of parties adds one of its own."""
        drawn = await self._draw(size * width)
        terms = [self._read(content, width) * self._sets[one] for one, content in drawn.items()]
        numbers: Shares = np.sum(terms, axis=0) % self.modulus
        return numbers

    async def _zeros(self, size: int) -> Shares:
        """Makes points of random polynomials of degree 2t that are 0 at 0."""
        degrees = range(1, self.threshold + 1)
        powers = np.array([(self.party + 1) ** degree for degree in degrees], dtype=object)
        drawn = await self._draw(size * self.threshold * self._long)
        points: Shares = np.zeros(size, dtype=object)
        for one, content in drawn.items():
            points = points + self._read(content, self._long).reshape(size, self.threshold) @ powers * self._sets[one]
        return points % self.modulus

    async def _draw(self, size: int) -> dict[tuple[int, ...], bytes]:
        """Draws new random bytes of each set of parties that this one is in."""
        if not self._keys:
            await self._share_keys()
        self._drawn += 1
        place = self._drawn.to_bytes(8, "big")
        return {one: hashlib.shake_128(key + place).digest(size) for one, key in self._keys.items()}

    async def _share_keys(self) -> None:
        """Makes the keys of all sets: the first party of a set draws its key and sends it to the others."""
        party = self.party
        own = {one: secrets.token_bytes(KEY) for one in self._sets if one[0] == party}
        others = [other for other in self._everybody if other != party]
        sent = {other: b"".join(key for one, key in own.items() if other in one) for other in others}
        received = dict(await self._link.exchange("keys", sent, others))
        for one in self._sets:
            if one[0] != party:
                own[one], received[one[0]] = received[one[0]][:KEY], received[one[0]][KEY:]
        if any(len(key) != KEY for key in own.values()) or any(received.values()):
            raise SessionError("a party sent keys that are none. Do all parties run the same version?")
        self._keys = {one: own[one] for one in self._sets}

    async def release(
        self,
        what: str,
        price: Fraction,
        losses: tuple[Fraction, tuple[int, ...], int],
        work: Callable[[Shares], Awaitable[np.ndarray]],
    ) -> np.ndarray:
        """Opens the answer of one question with noise.

        Args:
            what: The opened values.
            price: Its cost, in the session's terms.
            losses: The loss of each number's noise, the numbers' shape, and how many parties may
                pool what they drew.
            work: Opens the answer, from shares of the noise; not called where it is known already.
        """
        epsilon, shape, colluding = losses

        async def opened(noise: np.ndarray, _: Below) -> np.ndarray:
            return await work(await self.sum_of_inputs(noise))

        def draw(below: Below) -> np.ndarray:
            return own_noise(shape, epsilon, self.parties - colluding, below, self.plays)

        return await self.rounds.ask(what, price, draw, opened)

    async def sums_of_fractions(self, over: Shares, under: Shares, sizes: np.ndarray) -> tuple[Shares, Shares]:
        """Adds up each list of fractions; lists lie end to end.

        Two neighbours n1/d1 and n2/d2 become (n1 d2 + n2 d1) / (d1 d2), a product each above and
        below, until each list is one fraction. Example: 1/2, 1/3, 1/4 in two rounds: 5/6, 1/4;
        26/24.

        Args:
            over: Numerators, shape (elements,).
            under: Denominators, shape (elements,).
            sizes: Length of each list, at least 1.

        Returns:
            Numerator and denominator of each list's sum, shape (lists,).
        """
        over, under = over.copy(), under.copy()
        while sizes.max(initial=1) > 1:
            # Lists of 3 and 2 elements at positions 0 1 2 | 3 4: 0 meets 1 and 3 meets 4, and 2 is alone.
            within = np.arange(len(over)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            first = np.flatnonzero((within % 2 == 0) & (within + 1 < np.repeat(sizes, sizes)))
            stays = np.delete(np.arange(len(over)), first + 1)
            added = await self.product(_added, over[first], over[first + 1], under[first], under[first + 1])
            over[first], under[first] = added
            over, under, sizes = over[stays], under[stays], (sizes + 1) // 2
        return over, under

    async def first_largest(self, elements: Shares, bits: int) -> tuple[Shares, Shares]:
        """Finds in each list the first largest element: where it is, and what it is.

        A knock-out tournament of neighbours. Each meeting leaves a secret bit, 1 where the second
        won; when the largest is known, its mark of 1 is handed back through them.

        Example: 3, 7, 5. Round 1: 3 waits, and 7 meets 5, bit 0. Round 2: 3 meets 7, bit 1. So the
        marks are (0, 1) for 3 and the winner of {7, 5}; the second splits by bit 0 into (1, 0). The
        unit vector is 0, 1, 0.

        Args:
            elements: Numbers, shape (lists, elements); or fractions of positive denominators, shape
                (lists, elements, 2).
            bits: Bits of a difference of two numbers, or of two fractions' cross products.

        Returns:
            Unit vectors, shape (lists, elements), and the largest elements, shape (lists,) or
            (lists, 2).
        """
        lists, length = elements.shape[:2]
        if length == 1:
            return np.ones((lists, 1), dtype=object), elements[:, 0]
        waits = length % 2
        first, second = elements[:, waits::2], elements[:, waits + 1 :: 2]
        lead = first - second if elements.ndim == 2 else await self.product(_cross, first, second)
        # A tie is no negative difference, so the first of equals stays.
        second_won = await self.is_negative(lead % self.modulus, bits)
        winners = await self.product(_winners, first, second, second_won)
        units, largest = await self.first_largest(np.concatenate([elements[:, :waits], winners], axis=1), bits)
        marks = units[:, waits:]
        # The mark of the last meeting is 1, so there the second's is the bit itself.
        of_second = second_won if length == 2 else await self.product(lambda u, c: u * c, marks, second_won)
        met = np.stack([(marks - of_second) % self.modulus, of_second], axis=2).reshape(lists, -1)
        return np.concatenate([units[:, :waits], met], axis=1), largest


def _added(n1: Shares, n2: Shares, d1: Shares, d2: Shares) -> Shares:
    """Returns the sums of pairs of fractions: the numerators, then the denominators."""
    return np.stack([n1 * d2 + n2 * d1, d1 * d2])


def _cross(first: Shares, second: Shares) -> Shares:
    """Returns n1 d2 - n2 d1 of pairs of fractions."""
    cross: Shares = first[..., 0] * second[..., 1] - second[..., 0] * first[..., 1]
    return cross


def _winners(first: Shares, second: Shares, second_won: Shares) -> Shares:
    """Returns the winner of each pair, first + bit (second - first)."""
    # 3 meets 7, bit 1: 3 + 1 * (7 - 3) = 7. 7 meets 5, bit 0: 7 + 0 * (5 - 7) = 7.
    bits = second_won.reshape(second_won.shape + (1,) * (first.ndim - 2))
    return bits * (second - first) + first
