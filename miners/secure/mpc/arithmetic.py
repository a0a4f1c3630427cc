# SPDX-License-Identifier: Apache-2.0
"""``Arithmetic`` computes with secrets, on this party's shares of them.

An array of *shares* holds one number modulo p for each secret: this party's point on a random
polynomial through it (Shamir). Sums and public multiples of secrets are sums and multiples of
shares, so they are plain numpy here. Everything else is one of four steps: ``product`` (any
expression of degree two, one round whatever its size), ``is_negative``, ``share`` and ``open``.

Privacy:
    Parties: m >= 3, of which fewer than m/2 pool what they see and follow the protocol
    (semi-honest).
    Claim: they learn what ``open`` and ``is_zero`` were asked for, and nothing else.
    Why: any t < m/2 shares of a secret are uniformly random. ``product`` sends each party fresh
    shares of a share (Gennaro, Rabin & Rabin 1998). ``is_negative`` opens the number plus a random
    mask that is 2^security times as large (Damgaard et al. 2006), so its law is within 2^-security
    of one that does not depend on the secret. ``is_zero`` opens the number times a random one, on a
    polynomial that is random but for its value at 0 (MPyC's own does not see to that, see
    ``mpyc_runtime``; a number that is not 0 seems so with probability 1/p). The rest is MPyC's.
    Common randomness is pseudorandom (SHAKE128), by keys of 128 bits, each unknown to as many
    parties as may pool what they see.
    Held by: tests/unit/secure/test_secure_trees.py, which sees every opened value and every
    opening; tests/integration/test_secure_runtime.py.

References:
    Schoenmakers, MPyC; Damgaard, Fitzi, Kiltz, Nielsen & Toft 2006 (comparison); Shamir 1979.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from miners.secure.mpc.noise import Below, own_noise
from miners.secure.mpc.rounds import Opened, Rounds
from miners.secure.mpc.runtime import Runtime, SecretIntegers, Shares

__all__ = ["Arithmetic", "Opened", "Shares", "meetings"]


@dataclass(frozen=True)
class Meeting:
    """One round over lists that lie end to end.

    Attributes:
        left: Positions of the first of each pair.
        right: Positions of the second; always the next position of the same list.
        single: Positions of last elements without a partner.
        order: Puts (results of the pairs, then the singles) back into the lists' order.
    """

    left: np.ndarray
    right: np.ndarray
    single: np.ndarray
    order: np.ndarray


def meetings(sizes: Sequence[int] | np.ndarray) -> list[Meeting]:
    """Plans the rounds after which each list has one element.

    Neighbours meet, so of equal elements the first stays first. Example: lists of 3 and 2 elements
    at positions 0 1 2 | 3 4. Round 1: 0 meets 1, 3 meets 4, and 2 is single; the results of the
    pairs, then the single, are put into the order 0, 2, 1: lists of 2 and 1. Round 2: 0 meets 1.
    """
    lengths, planned = np.asarray(sizes, dtype=np.int64), []
    while lengths.max(initial=1) > 1:
        # For 3 and 2 elements: `owner` is 0 0 0 1 1 and `within` 0 1 2 0 1, so 0 and 3 are left, 2
        # is single, and `order` sorts 0 3 2 by 0 2 1.
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(owner)) - starts[owner]
        even = within % 2 == 0
        last = within == lengths[owner] - 1
        left, single = np.flatnonzero(even & ~last), np.flatnonzero(even & last)
        order = np.argsort(np.concatenate([left, single]), kind="stable")
        planned.append(Meeting(left, left + 1, single, order))
        lengths = (lengths + 1) // 2
    return planned


class Arithmetic:
    """Computes with secret integers of at most ``bits`` bits among the parties of a runtime.

    Args:
        runtime: This party's side.
        bits: Every compared number lies between -2^(bits-1) and 2^(bits-1); see ``bounds``.
        rounds: Asks the questions that have noise; by default those of a simulation.
        plays: How many parties this process is: 1, or all of them in a simulation.

    Attributes:
        opened: All that was opened so far, in order.
    """

    def __init__(self, runtime: Runtime, bits: int, rounds: Rounds | None = None, plays: int = 1) -> None:
        self.runtime, self.rounds, self.plays = runtime, rounds or Rounds(), plays
        self.opened = self.rounds.opened
        self._integers: SecretIntegers = runtime.integers(bits)

    @property
    def modulus(self) -> int:
        """The prime p."""
        return self._integers.modulus

    @property
    def parties(self) -> int:
        """The number of parties."""
        return self.runtime.parties + self.plays - 1

    async def share(self, values: np.ndarray | None, owner: int, shape: tuple[int, ...]) -> Shares:
        """Shares an array that party ``owner`` has; the others pass None.

        Everybody knows its shape.
        """
        own = np.zeros(shape, dtype=object) if values is None else np.asarray(values).astype(object)
        if own.shape != shape:
            raise ValueError(f"shape {own.shape} instead of {shape}")
        return await self._integers.share(own, owner) if own.size else own

    async def sum_of_inputs(self, values: np.ndarray) -> Shares:
        """Shares the sum of what each party passes, arrays of one shape.

        What a party adds stays its own.
        """
        if not values.size:
            return np.zeros(values.shape, dtype=object)
        return np.sum(await self._integers.share_all(values.astype(object)), axis=0) % self.modulus

    async def product(self, function: Callable[..., np.ndarray], *secrets: Shares) -> Shares:
        """Shares ``function(*secrets)``, an expression of degree two in the secrets. One round.

        Degree two: sums and public multiples of products of two secrets.
        """
        # Shares are points on polynomials of degree t, and a product of two of them is a point on
        # one of degree 2t, which the m > 2t parties together still determine. Resharing brings it
        # back to degree t, so that it may be multiplied again. Example: t = 1, secrets 2 and 3 on 2
        # + x and 3 + 2x: the parties at 1, 2 and 3 multiply 3 * 5, 4 * 7 and 5 * 9, points of 6 +
        # 7x + 2x^2, which is 6 at 0.
        result = function(*secrets)
        if not result.size:
            return result
        return (await self._integers.reshare(result.reshape(-1))).reshape(result.shape)

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Shares 1 where a secret is below 0, else 0.

        The secrets have at most ``bits`` bits, sign included; shorter is cheaper.
        """
        # Numbers below 0 are those above p / 2: modulo 101, 3 - 7 is 97.
        return await self._integers.is_negative(secrets, bits) if secrets.size else secrets

    async def is_zero(self, secrets: Shares, what: str) -> np.ndarray:
        """Opens whether each secret is 0, and nothing more about it."""
        if not secrets.size:
            return np.zeros(secrets.shape, dtype=bool)
        zero = await self._integers.is_zero(secrets)
        self.opened.append(Opened(what, tuple(int(bit) for bit in zero.ravel())))
        return zero

    async def open(self, secrets: Shares, what: str, receiver: int | None = None) -> np.ndarray:
        """Opens secrets to all parties, or to one; who receives nothing gets zeros."""
        numbers = await self._integers.open(secrets, receiver) if secrets.size else None
        if numbers is None:
            return np.zeros(secrets.shape, dtype=object)
        self.opened.append(Opened(what, tuple(int(number) for number in numbers.ravel())))
        return numbers

    async def release(
        self,
        what: str,
        price: Fraction,
        losses: tuple[Fraction, tuple[int, ...], int],
        work: Callable[[Shares], Awaitable[np.ndarray]],
    ) -> np.ndarray:
        """Opens the answer of one question with noise.

        Args:
            what: What is opened.
            price: What it costs, in the session's terms.
            losses: The loss of each number's noise, the numbers' shape, and how many parties may
                pool what they drew.
            work: Opens the answer, from shares of the noise; not called where it is known already.
        """
        epsilon, shape, colluding = losses

        async def opened(noise: np.ndarray) -> np.ndarray:
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
        for step in meetings(sizes):
            pairs = len(step.left)
            added = await self.product(_added(step), over, under)
            over = np.concatenate([added[:pairs], over[step.single]])[step.order]
            under = np.concatenate([added[pairs:], under[step.single]])[step.order]
        return over, under

    async def first_largest(
        self, over: Shares, under: Shares | None, sizes: np.ndarray, bits: int
    ) -> tuple[Shares, Shares]:
        """Finds in each list the first largest element: where it is, and what it is.

        A knock-out tournament. On the way up, neighbours meet in rounds until each list has one
        winner; each meeting leaves a secret bit, 1 where the second won. On the way down, the
        champion's 1 is handed back: of each meeting's mark the second gets mark * bit, the first
        gets what remains.

        Example: the list 3, 7, 5. Round 1: 3 meets 7, bit 1; 5 has no partner. Round 2: 7 meets 5,
        bit 0; 7 is the largest. Down: the mark 1 splits by bit 0 into (1, 0), for the winner of {3,
        7} and for 5; the first of these splits by bit 1 into (0, 1). The unit vector is 0, 1, 0.

        Args:
            over: Numbers, or numerators of fractions; lists lie end to end, shape (elements,).
            under: Denominators, all positive; None for numbers.
            sizes: Length of each list, at least 1.
            bits: Bits of a difference of two numbers, or of two fractions' cross products.

        Returns:
            Unit vectors end to end, shape (elements,), and the largest elements (numerators), shape
            (lists,).
        """
        steps = meetings(sizes)
        second_won = []
        elements = over[None] if under is None else np.stack([over, under])  # (1 or 2, elements)
        for step in steps:
            # A tie is no negative difference, so the first of equals stays.
            lead = await self._leads(elements, step)
            second = await self.is_negative(lead % self.modulus, bits)
            winners = await self.product(_winners(step), elements, second)
            elements = np.concatenate([winners, elements[:, step.single]], axis=1)[:, step.order]
            second_won.append(second)
        return await self._marks(steps, second_won, len(sizes)), elements[0]

    async def _leads(self, elements: Shares, step: Meeting) -> Shares:
        """Subtracts the second from the first of each pair.

        Of fractions the cross products, n1 d2 - n2 d1.
        """
        first, second = step.left, step.right
        if len(elements) == 1:
            return elements[0, first] - elements[0, second]
        return await self.product(lambda n, d: n[first] * d[second] - n[second] * d[first], *elements)

    async def _marks(self, steps: list[Meeting], second_won: list[Shares], lists: int) -> Shares:
        """Hands each list's mark of 1 down through the rounds, last first, to its winner."""
        marks: Shares = np.ones(lists, dtype=object)
        for step, second in zip(reversed(steps), reversed(second_won), strict=True):
            # ``order`` put (winners of pairs, singles) into the lists' order; this takes it back.
            unordered = np.empty_like(marks)
            unordered[step.order] = marks
            pairs, singles = unordered[: len(step.left)], unordered[len(step.left) :]
            # All marks of the last round are 1, so there the second's mark is the bit itself.
            of_second = second if step is steps[-1] else await self.product(lambda u, c: u * c, pairs, second)
            marks = np.empty(2 * len(pairs) + len(singles), dtype=object)
            marks[step.left] = (pairs - of_second) % self.modulus
            marks[step.right] = of_second
            marks[step.single] = singles
        return marks


def _added(step: Meeting) -> Callable[[Shares, Shares], Shares]:
    """Returns the sum of each pair of fractions: all numerators, then all denominators."""

    def added(over: Shares, under: Shares) -> Shares:
        n1, n2, d1, d2 = over[step.left], over[step.right], under[step.left], under[step.right]
        return np.concatenate([n1 * d2 + n2 * d1, d1 * d2])

    return added


def _winners(step: Meeting) -> Callable[[Shares, Shares], Shares]:
    """Returns the winner of each pair, first + bit (second - first), in each row."""

    def winners(elements: Shares, second_won: Shares) -> Shares:
        first, second = elements[:, step.left], elements[:, step.right]
        # 3 meets 7, bit 1: 3 + 1 * (7 - 3) = 7. 7 meets 5, bit 0: 7 + 0 * (5 - 7) = 7.
        return second_won * (second - first) + first

    return winners
