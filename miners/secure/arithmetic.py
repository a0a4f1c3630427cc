# SPDX-License-Identifier: Apache-2.0
"""Computing with secrets: numpy arrays of this party's shares, and the few steps that need the other parties.

An array of *shares* holds one number modulo p for each secret: this party's point on a random
polynomial through it (Shamir). Sums and public multiples of secrets are sums and multiples of
shares, so they are plain numpy here. Everything else is one of four steps: ``product`` (any
expression of degree two, one round whatever its size), ``is_negative``, ``share`` and ``open``.

Privacy:
    Parties: m >= 3, of which fewer than m/2 pool what they see and follow the protocol
    (semi-honest). Claim: they learn what ``open`` and ``is_zero`` were asked for, and nothing else.
    Why: any t < m/2 shares of a secret are uniformly random; ``product`` sends each party fresh
    shares of a share (Gennaro, Rabin & Rabin 1998); ``is_negative`` opens the number plus a random
    mask that is 2^security times as large (Damgaard et al. 2006), so its law is within 2^-security
    of one that does not depend on the secret; ``is_zero`` opens the number times a random one, on a
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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miners.secure.segments import rounds

__all__ = ["Arithmetic", "Opened", "Shares"]

Shares = np.ndarray
"""One party's shares, objects that are Python integers; any shape."""


@dataclass(frozen=True)
class Opened:
    """A value that all parties learned, and what it is."""

    what: str
    values: tuple[int, ...]


@dataclass
class Arithmetic:
    """Secret integers of at most ``bits`` bits among the parties of a runtime.

    Args:
        runtime: MPyC's.
        bits: Every compared number lies between -2^(bits-1) and 2^(bits-1); see ``bounds``.
        plays: How many parties this process is: 1, or all of them in a simulation.

    Attributes:
        opened: All that was opened so far, in order.
    """

    runtime: Any
    bits: int
    plays: int = 1
    opened: list[Opened] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._array = self.runtime.SecInt(self.bits).array
        self._field = self._array.sectype.field

    @property
    def modulus(self) -> int:
        """The prime p."""
        return int(self._field.modulus)

    @property
    def parties(self) -> int:
        """How many there are."""
        return len(self.runtime.parties) + self.plays - 1

    async def share(self, values: np.ndarray | None, owner: int, shape: tuple[int, ...]) -> Shares:
        """Shares of an array that party ``owner`` has; the others pass None. Everybody knows its shape."""
        mine = np.zeros(shape, dtype=object) if values is None else np.asarray(values).astype(object)
        if mine.shape != shape:
            raise ValueError(f"shape {mine.shape} instead of {shape}")
        if not mine.size:
            return mine
        shared = self.runtime.input(self._secure(mine), senders=owner)
        return await self._shares_of(shared)

    async def sum_of_inputs(self, values: np.ndarray) -> Shares:
        """Shares of the sum of what each party passes; all pass arrays of one shape. What a party adds stays its own."""
        if not values.size:
            return np.zeros(values.shape, dtype=object)
        given = self.runtime.input(self._secure(values.astype(object)))
        return np.sum([await self._shares_of(one) for one in given], axis=0) % self.modulus

    async def agree(self, number: int, what: str) -> bool:
        """Whether all parties pass the same number, as far as the sum of all tells; opens the sum. Parties of which two differ all see it, but for a coincidence."""
        total = await self.open(await self.sum_of_inputs(np.array([number], dtype=object)), what)
        return int(total[0]) == len(self.runtime.parties) * number

    async def product(self, function: Callable[..., np.ndarray], *secrets: Shares) -> Shares:
        """Shares of ``function(*secrets)``, of degree two in the secrets: sums, public multiples and one multiplication on each way. One round."""
        result = function(*secrets)
        if not result.size:
            return result
        value: Shares = (await self.runtime._reshare(self._field.array(result.reshape(-1)))).value
        return value.reshape(result.shape)

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Shares of 1 where a secret is below 0, else of 0. The secrets have at most ``bits`` bits, sign included; shorter is cheaper."""
        if not secrets.size:
            return secrets
        return await self._shares_of(self.runtime.np_sgn(self._secure(secrets), l=bits, LT=True))

    async def is_zero(self, secrets: Shares, what: str) -> np.ndarray:
        """Opens whether each secret is 0, and nothing more about it."""
        if not secrets.size:
            return np.zeros(secrets.shape, dtype=bool)
        zero = np.asarray(await self.runtime.np_is_zero_public(self._secure(secrets)), dtype=bool)
        self.opened.append(Opened(what, tuple(int(bit) for bit in zero.ravel())))
        return zero

    async def open(self, secrets: Shares, what: str, receivers: int | None = None) -> np.ndarray:
        """Opens secrets to all parties, or to one; who receives nothing gets zeros."""
        if not secrets.size:
            return np.zeros(secrets.shape, dtype=object)
        value = await self.runtime.output(self._field.array(secrets), receivers)
        if value is None:
            return np.zeros(secrets.shape, dtype=object)
        signed: np.ndarray = value.signed_()
        self.opened.append(Opened(what, tuple(int(one) for one in signed.ravel())))
        return signed

    async def sums_of_fractions(self, over: Shares, under: Shares, sizes: np.ndarray) -> tuple[Shares, Shares]:
        """Numerators and denominators of the sum of each list of fractions; lists lie end to end."""
        for step in rounds(sizes):
            left, right, single, order = step.left, step.right, step.single, step.order
            pair = len(left)
            made = await self.product(
                lambda n, d, a=left, b=right: np.concatenate([n[a] * d[b] + n[b] * d[a], d[a] * d[b]]), over, under
            )
            over = np.concatenate([made[:pair], over[single]])[order]
            under = np.concatenate([made[pair:], under[single]])[order]
        return over, under

    async def first_largest(
        self, over: Shares, under: Shares | None, sizes: np.ndarray, bits: int
    ) -> tuple[Shares, Shares]:
        """Where each list has its first largest element, and the element.

        Args:
            over: Numbers, or numerators of fractions; lists lie end to end, shape (elements,).
            under: Denominators, all positive; None for numbers.
            sizes: Length of each list, at least 1.
            bits: Bits of a difference of two numbers, or of two fractions' cross products.

        Returns:
            Unit vectors end to end, shape (elements,), and the largest elements (numerators), shape
            (lists,).
        """
        steps, bests = rounds(sizes), []
        for step in steps:
            a, b = step.left, step.right
            if under is None:
                difference = over[a] - over[b]
                stack = over[None]
            else:
                difference = await self.product(lambda n, d, a=a, b=b: n[a] * d[b] - n[b] * d[a], over, under)
                stack = np.stack([over, under])
            second = await self.is_negative(difference % self.modulus, bits)
            kept = await self.product(lambda s, c, a=a, b=b: c * (s[:, b] - s[:, a]) + s[:, a], stack, second)
            stack = np.concatenate([kept, stack[:, step.single]], axis=1)[:, step.order]
            over, under = stack[0], None if under is None else stack[1]
            bests.append(second)
        where: Shares = np.ones(len(sizes), dtype=object)
        for step, second in zip(reversed(steps), reversed(bests), strict=True):
            before = np.empty_like(where)
            before[step.order] = where
            won, alone = before[: len(step.left)], before[len(step.left) :]
            right = second if step is steps[-1] else await self.product(lambda u, c: u * c, won, second)
            where = np.empty(2 * len(won) + len(alone), dtype=object)
            where[step.left], where[step.right], where[step.single] = (won - right) % self.modulus, right, alone
        return where, over

    def _secure(self, values: np.ndarray) -> Any:
        return self._array(self._field.array(values))

    async def _shares_of(self, secure: Any) -> Shares:
        value: Shares = (await self.runtime.gather(secure)).value
        return value
