# SPDX-License-Identifier: Apache-2.0
"""``Sharing`` deals numbers out among parties as shares; ``Arithmetic`` also compares them.

A number is the value at 0 of a random polynomial modulo a prime, and party i's share is the value at i + 1 (Shamir).
Sums and public multiples of secrets are sums and multiples of shares, so they are plain numpy here. All messages of
parties are points of polynomials: every step is one ``exchange``, which all parties make in the same order.

Privacy:
    Parties: m >= 3, of which fewer than m/2 pool their views and follow the protocol (semi-honest). Claim: they learn
    the results of ``sums``, ``open`` and ``is_zero``, and nothing else. Why: any ``threshold`` shares of a number are
    uniform and independent (up to 2^-128, as a random number is a longer one modulo the prime), and ``product`` deals
    each point out again. An opening shows a polynomial whose other coefficients are sums of uniform ones of every
    party; of degree 2t, where it is a product of two, shares of 0 on a random one of that degree are added, so that
    only its value at 0 is seen. Common randomness is pseudorandom (SHAKE128), by keys of 128 bits, one for each set of
    parties that could be all the honest ones: any parties that may pool their views lack at least one. ``is_negative``
    opens the number plus a random mask that is 2^``SECURITY`` times as large, so its law is within 2^-``SECURITY`` of
    one that does not depend on the secret; the squares of random numbers, which tell nothing of the roots' signs; and
    whether a product is 0, which the random sign decides. ``is_zero`` opens the number times a random one (a number
    that is not 0 seems so with probability 1/p). Not covered: a party that deals numbers of its choice. A wrong share
    of an opened sum is detected, because m parties send m points of a polynomial that threshold + 1 of them determine.
    With at least threshold + 3 parties, its sender is named; with threshold + 2, for example three parties, each party
    sees only that it was another one. Held by: tests/unit/secure/test_secure_trees.py, which sees every opened value
    and every opening; tests/unit/secure/test_secure_sums.py; tests/integration/test_secure_runtime.py.

Everything is computed modulo a prime p. ``Arithmetic`` takes p of ``bits`` + security + 2 bits and the
sets' room, where every compared number is proved to lie strictly between -2^(bits-1) and 2^(bits-1).
All lengths follow from public facts (``gini_bits`` and its like): n is the largest number of rows that
all parties together may have, v_k the number of values of attribute k, c the number of classes.
Held by: tests/unit/secure/test_secure_bounds.py, at the extremes.

References:
    Shamir 1979; Gennaro, Rabin & Rabin 1998 (products); Cramer, Damgaard & Ishai 2005 (common
    randomness); Damgaard, Fitzi, Kiltz, Nielsen & Toft 2006 (random bits, zero test); Toft 2007, and
    Schoenmakers' MPyC (comparison).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cache
from itertools import combinations, count
from typing import TypeVar

import numpy as np

from pinq.errors import QueryError, SessionError
from pinq.public.noise import SYSTEM, Bits
from pinq.public.plugins import optional
from pinq_secure.mpc.noise import own_noise
from pinq_secure.mpc.rounds import Opened, Rounds

SECURITY = 40  # bits: the opened values of a comparison are within 2^-40 of independence of the secret
KEY = 16  # bytes of a key of common randomness
MAX_BITS = 2048
Shares = np.ndarray
"""One party's shares, objects that are integers; any shape."""
T = TypeVar("T")


class Link:
    """One party's connection to the others; the base class is a simulation, in which one party plays all."""

    party = 0
    parties = 1

    async def exchange(self, step: str, messages: Mapping[int, bytes], senders: Iterable[int]) -> Mapping[int, bytes]:
        """Sends a message to each other party, and waits for the messages of others in this step.

        Args:
            step: The name of the step, equal at all parties.
            messages: The message to each receiver.
            senders: The parties that send a message.
        """
        return {}


ALONE = Link()


def threshold_of(parties: int) -> int:
    """The number of parties that may pool their views: fewer than half."""
    return (parties - 1) // 2


def run_to_end(main: Coroutine[object, None, T]) -> T:
    """Runs a coroutine in a new event loop, also from inside a running one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, main).result()


@cache
def prime_of(bits: int) -> int:
    """The first prime of so many bits that is 3 modulo 4, so that roots are powers."""
    # Miller-Rabin; where (n - 1) / 2 is odd a witness has one power to look at.
    candidates = count(2 ** (bits - 1) + 3, 4)
    # These bases are enough for public numbers that nobody chose to deceive.
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    return next(n for n in candidates if all(pow(base, n // 2, n) in (1, n - 1) for base in bases if base < n))


@cache
def weights(places: tuple[int, ...], at: int, prime: int) -> tuple[int, ...]:
    """The weights with which values at some parties' places add up to the value at another (-1: at 0)."""
    others = [[other for other in places if other != place] for place in places]
    return tuple(
        math.prod(at - other for other in rest) * pow(math.prod(place - other for other in rest), -1, prime) % prime
        for place, rest in zip(places, others, strict=True)
    )


class Sharing:
    """One party's side; a secret number lies between -2^(bits-2) and 2^(bits-2).

    Attributes:
        threshold: The number of parties that may pool their views.
    """

    def __init__(self, link: Link, bits: int) -> None:
        self.modulus, self._width = prime_of(bits), (bits + 7) // 8
        self._long = self._width + 16  # random bytes that make a number
        self._link, self.party, self._everybody = link, link.party, range(link.parties)
        self.threshold = threshold_of(link.parties)

    async def share(self, values: np.ndarray | None, owner: int, shape: tuple[int, ...]) -> Shares:
        """Shares an array of party ``owner``; the others pass None, and everybody knows its shape."""
        if values is not None and values.shape != shape:
            raise ValueError(f"shape {values.shape} instead of {shape}")
        flat = None if values is None else values.reshape(-1)
        return (await self._dealt("rows", flat, [owner], math.prod(shape)))[owner].reshape(shape)

    async def sum_of_inputs(self, values: np.ndarray) -> Shares:
        """Shares the sum of all parties' arrays, of one shape; the summands stay secret."""
        dealt = await self._dealt("numbers", values.reshape(-1), self._everybody, values.size)
        return (np.sum(list(dealt.values()), axis=0) % self.modulus).reshape(values.shape)

    async def sums(self, values: np.ndarray) -> np.ndarray:
        """Opens the sums of all parties' arrays, of one shape."""
        return self.signed(await self.opened(await self.sum_of_inputs(values)))

    def signed(self, numbers: np.ndarray) -> np.ndarray:
        """Reads numbers above half the prime as negative ones."""
        return np.where(numbers > self.modulus // 2, numbers - self.modulus, numbers)

    async def product(self, function: Callable[..., np.ndarray], *secrets: Shares) -> Shares:
        """Shares ``function(*secrets)``, an expression of degree two in the secrets, in one round.

        Degree two: sums and public multiples of products of two secrets.
        """
        # Shares are points on polynomials of degree t, and a product of two of them is a point on
        # one of degree 2t, which 2t + 1 parties together determine. Each deals its point again, on
        # a polynomial of degree t, and their weighted sum may be multiplied again. Example: t = 1, secrets
        # 2 and 3 on 2 + x and 3 + 2x: the parties at 1, 2 and 3 multiply 3 * 5, 4 * 7 and 5 * 9, points of
        # 6 + 7x + 2x^2, which is 6 at 0.
        points = function(*secrets) % self.modulus
        dealers = self._everybody[: 2 * self.threshold + 1]
        dealt = await self._dealt("product", points.reshape(-1), dealers, points.size)
        return self._through(dealt, -1).reshape(points.shape)

    async def _dealt(
        self, step: str, values: np.ndarray | None, dealers: Sequence[int], size: int
    ) -> dict[int, np.ndarray]:
        """Deals numbers to all; returns this party's shares of each dealer's."""
        if self.party not in dealers or values is None:
            return await self._exchange(step, {}, dealers, size)
        # A number 5 on 5 + 3x: the parties at 1, 2 and 3 get 8, 11 and 14.
        drawn = self._read(SYSTEM.take(self.threshold * size * self._long), self._long)
        messages = {number: values.astype(object) % self.modulus for number in self._everybody}
        for power, coefficients in enumerate(drawn.reshape(self.threshold, size), 1):
            for number in messages:
                messages[number] = (messages[number] + coefficients * (number + 1) ** power) % self.modulus
        return {self.party: messages.pop(self.party)} | await self._exchange(step, messages, dealers, size)

    async def opened(self, shares: Shares, degree: int | None = None, receiver: int | None = None) -> np.ndarray:
        """Opens numbers from 0 to below the prime to all parties, or to one; the others get zeros.

        Args:
            shares: Points of polynomials whose values at 0 are the numbers.
            degree: Their degree; by default that of dealt numbers, where all parties send points, and a wrong one is
                detected.
            receiver: The only party that receives them.
        """
        party, parties = self.party, len(self._everybody)
        senders = parties - 1 if degree is None else degree
        receivers = [(party + step) % parties for step in range(1, senders + 1)]
        messages = {number: shares.reshape(-1) for number in receivers if receiver in (None, number)}
        if receiver not in (None, party):
            await self._exchange("opening", messages, (), shares.size)
            return np.zeros(shares.shape, dtype=object)
        others = [(party - step) % parties for step in range(1, senders + 1)]
        points = {party: shares.reshape(-1)} | await self._exchange("opening", messages, others, shares.size)
        if degree is None:
            self._require_fitting(points)
            points = dict(sorted(points.items())[: self.threshold + 1])
        return self._through(points, -1).reshape(shares.shape)

    async def _exchange(
        self, step: str, messages: Mapping[int, np.ndarray], senders: Iterable[int], size: int
    ) -> dict[int, np.ndarray]:
        """Sends numbers to other parties; returns ``size`` numbers of each sender."""
        if not size:
            return {number: np.zeros(0, dtype=object) for number in senders}
        width = self._width
        sent = {
            number: b"".join([value.to_bytes(width, "little") for value in values.tolist()])
            for number, values in messages.items()
        }
        received = {}
        others = [number for number in senders if number != self.party]
        for number, content in (await self._link.exchange(f"{step} {size}", sent, others)).items():
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
        """Raises ``SessionError`` with the name of the sender of a wrong share."""
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
        """Whether all points lie on polynomials of the threshold's degree."""
        first = dict(sorted(points.items())[: self.threshold + 1])
        return all(bool((self._through(first, number) == values).all()) for number, values in points.items())

    def _through(self, points: Mapping[int, np.ndarray], place: int) -> np.ndarray:
        """The value at a party's place (-1 for 0) of the polynomials through all points."""
        factors = weights(tuple(points), place, self.modulus)
        terms = [values * factor for values, factor in zip(points.values(), factors, strict=True)]
        return np.sum(terms, axis=0) % self.modulus


def field_bits(bits: int, parties: int) -> int:
    """The size of the prime field in which numbers of so many bits are compared.

    A mask is the sum of a number of ``SECURITY`` bits for each set of parties that could be honest.
    """
    return bits + SECURITY + math.comb(parties, threshold_of(parties)).bit_length() + 2


class Arithmetic(Sharing):
    """Computes with secret integers of at most ``bits`` bits among the parties of a link.

    Args:
        link: The link to the other parties.
        bits: Every compared number lies between -2^(bits-1) and 2^(bits-1); see ``gini_bits``.
        rounds: The rounds of queries with noise; by default those of a simulation.
        plays: The number of parties that this process plays: 1, or all of them in one process.

    Attributes:
        compared: The number of secrets that were compared with 0.
    """

    def __init__(self, link: Link, bits: int, rounds: Rounds | None = None, plays: int = 1) -> None:
        super().__init__(link, field_bits(bits, link.parties))
        self.rounds, self.plays = rounds or Rounds(), plays
        self.parties, self.compared = link.parties + plays - 1, 0
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

    async def open(self, secrets: Shares, label: str, receiver: int | None = None) -> np.ndarray:
        """Opens secrets to all parties, or to one; the others get zeros."""
        numbers = self.signed(await self.opened(secrets, receiver=receiver))
        return self._noted(numbers, label) if receiver in (None, self.party) else numbers

    def _noted(self, numbers: np.ndarray, label: str) -> np.ndarray:
        if numbers.size:
            self.rounds.opened.append(Opened(label, tuple(int(number) for number in numbers.ravel())))
        return numbers

    async def is_zero(self, secrets: Shares, label: str) -> np.ndarray:
        """Opens whether each secret is 0, and nothing else."""
        return self._noted(await self._is_zero(secrets), label)

    async def _is_zero(self, secrets: Shares) -> np.ndarray:
        masked = secrets.reshape(-1) * await self._common(secrets.size, self._long) + await self._zeros(secrets.size)
        return ((await self.opened(masked % self.modulus, 2 * self.threshold)) == 0).reshape(secrets.shape)

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Shares 1 for each secret below 0, else 0.

        The secrets have at most ``bits`` bits, sign included; fewer bits cost less.
        """
        self.compared += secrets.size
        prime, whole, size = self.modulus, 1 << bits, secrets.size
        half = pow(2, -1, prime)
        signs = await self._signs((bits + 1) * size)
        ours, sign = (signs[size:].reshape(bits, size) + 1) * half % prime, signs[:size]
        values = np.array([1 << bit for bit in range(bits)], dtype=object)
        low = values @ ours
        # A secret -3 of 4 bits and a low mask of 9, 1001, below a high one: 16 - 3 + 9 = 22 and a
        # multiple of 16 are opened, whose rest modulo 16 is 6 = 0110. 6 is below 9, and -3 modulo 16 is 6 -
        # 9 + 16 = 13, more than the secret itself by 16: it is negative.
        high = await self._common(size, SECURITY // 8)
        masked = (secrets.reshape(-1) + whole + low + high * whole) % prime
        masked_value = await self.opened(masked, self.threshold) % whole
        public_bits = np.array(
            [[number >> bit & 1 for number in masked_value.tolist()] for bit in range(bits)], dtype=object
        )
        # The mask is larger if it has 1 and the other number 0 at the highest bit that differs. With the random sign +1
        # some term is 0 if the mask is not larger, with -1 if it is. So a term that is 0 reveals nothing. For higher
        # bits, 3 for each difference keeps the term from being 0.
        differ = (ours + public_bits - 2 * public_bits * ours)[::-1]
        above = np.cumsum(np.concatenate([np.zeros((1, size), dtype=object), differ]), axis=0)
        lead = np.concatenate([(ours - public_bits)[::-1], np.full((1, size), -1, dtype=object)])
        terms = (sign + lead + 3 * above) % prime
        while len(terms) > 1:
            paired = len(terms) // 2
            both = await self.product(np.multiply, terms[:paired], terms[paired : 2 * paired])
            terms = np.concatenate([both, terms[2 * paired :]])
        none = 1 - 2 * (await self._is_zero(terms[0])).astype(object)
        larger = (none * sign + 1) * half  # 1 where our mask is larger than the rest
        negative = (masked_value - low + whole * larger - secrets.reshape(-1)) * pow(whole, -1, prime)
        return (negative % prime).reshape(secrets.shape)

    async def _signs(self, size: int) -> Shares:
        """Shares random numbers 1 or -1, unknown to all."""
        # A root of an opened square, divided by the one that is itself a square: r / (r^2)^(1/2).
        roots = await self._common(size, self._long)
        squares = await self.opened((roots * roots + await self._zeros(size)) % self.modulus, 2 * self.threshold)
        if not squares.all():  # once in 2^40 times or more: 0 has no sign
            return await self._signs(size)
        inverses = self._power(squares.tolist(), (self.modulus - 3) // 4, self.modulus)
        return roots * np.array([int(inverse) for inverse in inverses], dtype=object) % self.modulus

    async def _common(self, size: int, width: int) -> Shares:
        """Shares random numbers of ``width`` bytes that nobody knows: each set of parties adds one."""
        drawn = await self._draw(size * width)
        terms = [self._read(content, width) * self._sets[one] for one, content in drawn.items()]
        return np.sum(terms, axis=0) % self.modulus

    async def _zeros(self, size: int) -> Shares:
        """Points of random polynomials of degree 2t that are 0 at 0."""
        powers = np.array([(self.party + 1) ** degree for degree in range(1, self.threshold + 1)], dtype=object)
        drawn = await self._draw(size * self.threshold * self._long)
        points: Shares = np.zeros(size, dtype=object)
        for one, content in drawn.items():
            points = points + self._read(content, self._long).reshape(size, self.threshold) @ powers * self._sets[one]
        return points % self.modulus

    async def _draw(self, size: int) -> dict[tuple[int, ...], bytes]:
        """Draws new random bytes for each set of parties that contains this one."""
        if not self._keys:
            await self._share_keys()
        self._drawn += 1
        place = self._drawn.to_bytes(8, "big")
        return {one: hashlib.shake_128(key + place).digest(size) for one, key in self._keys.items()}

    async def _share_keys(self) -> None:
        """Makes the keys of all sets: the first party of a set draws its key and sends it to the others."""
        party = self.party
        drawn = {one: SYSTEM.take(KEY) for one in self._sets if one[0] == party}
        others = [other for other in self._everybody if other != party]
        sent = {other: b"".join(key for one, key in drawn.items() if other in one) for other in others}
        received = dict(await self._link.exchange("keys", sent, others))
        for one in self._sets:
            if one[0] != party:
                drawn[one], received[one[0]] = received[one[0]][:KEY], received[one[0]][KEY:]
        if any(len(key) != KEY for key in drawn.values()) or any(received.values()):
            raise SessionError("a party sent keys that are none. Do all parties run the same version?")
        self._keys = {one: drawn[one] for one in self._sets}

    async def release(
        self,
        label: str,
        price: Fraction,
        work: Callable[[Shares], Awaitable[np.ndarray]],
        *,
        epsilon: Fraction,
        shape: tuple[int, ...],
        colluding: int,
    ) -> np.ndarray:
        """Opens the answer of one query with noise, a value for each entry of the first axis of its numbers.

        Args:
            label: The name of the opened values.
            price: Its cost, in the session's terms.
            work: A function that opens the answer, from shares of the noise; not called for a known answer.
            epsilon: The loss of each number's noise.
            shape: The numbers' shape.
            colluding: The number of parties that may pool their noise.
        """

        async def opened(noise: np.ndarray, _: Bits) -> np.ndarray:
            return await work(await self.sum_of_inputs(noise))

        def draw(source: Bits) -> np.ndarray:
            return own_noise(shape, epsilon, self.parties - colluding, source, self.plays)

        return await self.rounds.ask(label, price, shape[0], draw, opened)

    async def sums_of_fractions(self, over: Shares, under: Shares, sizes: np.ndarray) -> tuple[Shares, Shares]:
        """Adds up each of several concatenated lists of fractions.

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
            over[first], under[first] = await self.product(
                lambda n1, n2, d1, d2: np.stack([n1 * d2 + n2 * d1, d1 * d2]),
                *(over[first], over[first + 1], under[first], under[first + 1]),
            )
            over, under, sizes = over[stays], under[stays], (sizes + 1) // 2
        return over, under

    async def first_largest(self, elements: Shares, bits: int) -> tuple[Shares, Shares]:
        """The position and the value of the first largest element of each list.

        It is a knock-out tournament of neighbours. Each meeting leaves a secret bit, 1 if the second element won; the
        bits then lead the mark 1 back from the largest element to its position.

        Example: 3, 7, 5. Round 1: 3 waits, and 7 meets 5, bit 0. Round 2: 3 meets 7, bit 1. The marks are (0, 1) for 3
        and the winner of {7, 5}, whose mark splits by bit 0 into (1, 0): 0, 1, 0.

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
        if elements.ndim == 2:
            lead = first - second
        else:  # n1 d2 - n2 d1
            lead = await self.product(lambda x, y: x[..., 0] * y[..., 1] - y[..., 0] * x[..., 1], first, second)
        # A tie is no negative difference, so the first of equals stays.
        second_won = await self.is_negative(lead % self.modulus, bits)
        winners = await self.product(_winners, first, second, second_won)
        units, largest = await self.first_largest(np.concatenate([elements[:, :waits], winners], axis=1), bits)
        marks = units[:, waits:]
        # The mark of the last meeting is 1, so there the second's is the bit itself.
        of_second = second_won if length == 2 else await self.product(lambda u, c: u * c, marks, second_won)
        pairs = np.stack([(marks - of_second) % self.modulus, of_second], axis=2).reshape(lists, -1)
        return np.concatenate([units[:, :waits], pairs], axis=1), largest


def _winners(first: Shares, second: Shares, second_won: Shares) -> Shares:
    """The winner of each pair, first + bit (second - first)."""
    return second_won.reshape(second_won.shape + (1,) * (first.ndim - 2)) * (second - first) + first


def signed_bits(largest: int) -> int:
    """The smallest b with ``largest`` < 2^(b-1).

    Numbers from -largest to largest are compared exactly at this length.
    """
    return largest.bit_length() + 1


def gini_bits(sizes: Sequence[int], rows: int, alpha: int) -> int:
    """Bounds the bits of the difference that decides between two splits.

    A split into v cells of n_1 .. n_v rows has y_j = alpha n_j + 1, D = prod y_j and
    G = D sum_j s_j / y_j, s_j = sum_i x_ij^2.

    1. The y_j sum to at most alpha n + v, so by the inequality of means
       D <= ((alpha n + v) / v)^v.
    2. s_j <= n_j^2, so s_j / y_j <= n_j / alpha, and G <= D n / alpha.

    Two splits are compared by G D' - G' D; both terms are at least 0, so it is at most D D' n / alpha in size (or D,
    where n < alpha). Partial sums of fractions (of fewer cells) have the same bounds, because D only grows with more
    cells.

    Args:
        sizes: v_k of the attributes that are compared.
        rows: n.
        alpha: The weight of a row in y_j.
    """
    # Two attributes of two values, 10 rows, alpha 8: D <= (82 / 2)^2 = 1,681 each, so D D' n /
    # alpha <= 3,532,202, which takes 23 bits with a sign.
    products = sorted(((alpha * rows + size) ** size // size**size for size in sizes), reverse=True)
    pair = math.prod(products[:2])
    return signed_bits(max(pair, -(-pair * rows // alpha)))


def stop_bits(rows: int, share: Fraction) -> int:
    """Bounds the bits of ``numerator total - denominator size``, which is between -d n and d n.

    It decides whether a node has at most this share of all rows.
    """
    return signed_bits(share.denominator * rows)


def require_bits(bits: int) -> int:
    """The bits; raises ``QueryError`` if the field would be too large."""
    if bits > MAX_BITS:
        raise QueryError(
            f"numbers of {bits:,} bits would be compared; at most {MAX_BITS:,} are possible. "
            "Declare fewer values or coarser cuts for the widest attributes, "
            "leave them out, or use noise, whose scores stay small. Nothing left any party."
        )
    return bits
