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

from collections.abc import Awaitable, Callable
from fractions import Fraction

import numpy as np

from miners.secure.mpc.mpyc_runtime import MPyC
from miners.secure.mpc.noise import Below, own_noise
from miners.secure.mpc.rounds import Opened, Rounds

__all__ = ["Arithmetic", "Shares"]

Shares = np.ndarray
"""One party's shares, objects that are Python integers; any shape."""


class Arithmetic:
    """Computes with secret integers of at most ``bits`` bits among the parties of a runtime.

    Args:
        runtime: This party's side, MPyC's.
        bits: Every compared number lies between -2^(bits-1) and 2^(bits-1); see ``bounds``.
        rounds: Asks the questions that have noise; by default those of a simulation.
        plays: How many parties this process is: 1, or all of them in a simulation.

    Attributes:
        opened: All that was opened so far, in order.
        modulus: The prime p.
        parties: The number of parties.
    """

    def __init__(self, runtime: MPyC, bits: int, rounds: Rounds | None = None, plays: int = 1) -> None:
        self.rounds, self.plays = rounds or Rounds(), plays
        self.opened = self.rounds.opened
        self._mpyc, self._kind = runtime, runtime.SecInt(bits)
        self._field = self._kind.field
        self.modulus = int(self._field.modulus)
        self.parties = len(runtime.parties) + plays - 1

    def _secure(self, shares: Shares) -> MPyC:
        """Wraps shares as MPyC's array of secure integers."""
        return self._kind.array(self._field.array(shares))

    async def _shares(self, secure: MPyC) -> Shares:
        shares: Shares = (await self._mpyc.gather(secure)).value
        return shares

    async def share(self, values: np.ndarray | None, owner: int, shape: tuple[int, ...]) -> Shares:
        """Shares an array that party ``owner`` has; the others pass None.

        Everybody knows its shape.
        """
        own = np.zeros(shape, dtype=object) if values is None else np.asarray(values).astype(object)
        if own.shape != shape:
            raise ValueError(f"shape {own.shape} instead of {shape}")
        return await self._shares(self._mpyc.input(self._secure(own), senders=owner)) if own.size else own

    async def sum_of_inputs(self, values: np.ndarray) -> Shares:
        """Shares the sum of what each party passes, arrays of one shape.

        What a party adds stays its own.
        """
        own: Shares = values.astype(object)
        if not own.size:
            return own
        given = [await self._shares(one) for one in self._mpyc.input(self._secure(own))]
        return np.sum(given, axis=0) % self.modulus

    async def product(self, function: Callable[..., np.ndarray], *secrets: Shares) -> Shares:
        """Shares ``function(*secrets)``, an expression of degree two in the secrets. One round.

        Degree two: sums and public multiples of products of two secrets.
        """
        # Shares are points on polynomials of degree t, and a product of two of them is a point on
        # one of degree 2t, which the m > 2t parties together still determine. Resharing brings it
        # back to degree t, so that it may be multiplied again. Example: t = 1, secrets 2 and 3 on 2
        # + x and 3 + 2x: the parties at 1, 2 and 3 multiply 3 * 5, 4 * 7 and 5 * 9, points of 6 +
        # 7x + 2x^2, which is 6 at 0.
        result: Shares = function(*secrets)
        if result.size:
            result = (await self._mpyc._reshare(self._field.array(result.reshape(-1)))).value.reshape(result.shape)
        return result

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Shares 1 where a secret is below 0, else 0.

        The secrets have at most ``bits`` bits, sign included; shorter is cheaper.
        """
        # Numbers below 0 are those above p / 2: modulo 101, 3 - 7 is 97.
        if not secrets.size:
            return secrets
        return await self._shares(self._mpyc.np_sgn(self._secure(secrets), l=bits, LT=True))

    async def is_zero(self, secrets: Shares, what: str) -> np.ndarray:
        """Opens whether each secret is 0, and nothing more about it."""
        if not secrets.size:
            return np.zeros(secrets.shape, dtype=bool)
        zero = np.asarray(await self._mpyc.np_is_zero_public(self._secure(secrets)), dtype=bool)
        self.opened.append(Opened(what, tuple(int(bit) for bit in zero.ravel())))
        return zero

    async def open(self, secrets: Shares, what: str, receiver: int | None = None) -> np.ndarray:
        """Opens secrets to all parties, or to one; who receives nothing gets zeros."""
        opened = await self._mpyc.output(self._field.array(secrets), receiver) if secrets.size else None
        if opened is None:
            return np.zeros(secrets.shape, dtype=object)
        numbers: np.ndarray = opened.signed_()
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
