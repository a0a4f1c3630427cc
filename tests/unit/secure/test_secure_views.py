# SPDX-License-Identifier: Apache-2.0
"""Views of a coalition: its messages have one law for all inputs of one output; and the known answers of every protocol.

A view is the randomness of the coalition with the messages that it receives. Here its randomness is the same in thousands of
runs, at a small security parameter, so that messages which depend on the others' secrets differ in law: by chi-square
of each number, and of random combinations of all numbers modulo the prime. All randomness is seeded but the parties'
keys; the level makes a right protocol fail once in a million runs of this file.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pinq.public.noise import SYSTEM
from pinq_secure.mpc import arithmetic as protocols
from pinq_secure.mpc.arithmetic import Arithmetic, Link, Shares
from pinq_secure.mpc.noise import own_noise, stream
from tests.support.processes.secure_parties import Wires

RUNS, BITS, LEVEL = 1200, 8, 1e-6
COMBINATIONS = 40
Protocol = Callable[[Arithmetic, np.ndarray], Awaitable[np.ndarray]]
PARTY: ContextVar[int] = ContextVar("party", default=-1)


def same(what: object, size: int, width: int) -> bytes:
    """Bytes of numbers that are equal in all runs: those of one element after the other lie apart by ``RUNS``."""
    elements = -(-size // (width * RUNS))
    drawn = [hashlib.shake_128(f"{what} {element}".encode()).digest(width) * RUNS for element in range(elements)]
    return b"".join(drawn)[:size]


class Party(Arithmetic):
    """A party; common randomness that the coalition knows is equal in all runs."""

    coalition: tuple[int, ...] = (0,)

    def __init__(self, link: Link, bits: int) -> None:
        super().__init__(link, bits)
        self.raised: list[np.ndarray] = []  # the values of all opened polynomials at 0

    async def opened(self, shares: Shares, degree: int | None = None, receiver: int | None = None) -> np.ndarray:
        values = await super().opened(shares, degree, receiver)
        self.raised.append(values.reshape(-1))
        return values

    async def _draw(self, size: int) -> dict[tuple[int, ...], bytes]:
        width = next(one for one in (self._long, 2 * self.threshold * self._long, 2) if size % (one * RUNS) == 0)
        drawn = await super()._draw(size)
        known = {one for one in drawn if set(one) & set(self.coalition)}
        return drawn | {one: same((one, self._drawn), size, width) for one in known}


async def share(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    """Inputs of a sum."""
    return await a.open(await a.sum_of_inputs(own[0]), "sum")


async def multiply(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    """Two inputs of party 1 and party 2."""
    first, second = [await a.share(own[0] if a.party == owner else None, owner, (RUNS,)) for owner in (1, 2)]
    return await a.open(await a.product(np.multiply, first, second), "product")


async def compare(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    return await a.open(await a.is_negative(await a.sum_of_inputs(own[0]), BITS), "sign")


async def is_zero(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    return await a.is_zero(await a.sum_of_inputs(own[0]), "zero")


async def largest(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    elements = np.stack([await a.sum_of_inputs(one) for one in own], axis=1)
    units, _ = await a.first_largest(elements, BITS)
    return await a.open(units, "unit")


async def noisy(a: Arithmetic, own: np.ndarray) -> np.ndarray:
    """A sum of inputs with shares of noise; the coalition's share is the same in all runs."""
    noise = own_noise((RUNS,), Fraction(1), 2, stream(f"noise {a.party}".encode()))
    noise = noise if a.party else np.zeros(RUNS, dtype=object)
    return await a.open(await a.sum_of_inputs(own[0] + noise), "noisy sum")


PAIRS: dict[str, tuple[Protocol, list[list[int]], list[list[int]]]] = {
    # What each party passes, twice; the coalition's is the same, and so is the output.
    "sharing": (share, [[1], [2], [30]], [[1], [30], [2]]),
    "multiplication": (multiply, [[0], [2], [12]], [[0], [4], [6]]),
    "comparison": (compare, [[1], [-3], [-60]], [[1], [-2], [0]]),
    "zero test": (is_zero, [[1], [5], [-3]], [[1], [40], [9]]),
    "argmax": (largest, [[0, 1, 0], [3, 9, 4], [0, 9, 1]], [[0, 1, 0], [6, 1, 0], [0, 8, 7]]),
    "noise": (noisy, [[4], [0], [9]], [[4], [9], [0]]),
}


def views(protocol: Protocol, inputs: list[list[int]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The numbers that party 0 receives in all runs, shape (numbers, runs), and the outputs of all parties."""
    wires = Wires(3)
    parties = [Party(wires.of(number), BITS) for number in range(3)]

    async def run(party: Party) -> np.ndarray:
        PARTY.set(party.party)
        return await protocol(party, np.array(inputs[party.party], dtype=object)[:, None].repeat(RUNS, axis=1))

    async def all_runs() -> list[np.ndarray]:
        return await asyncio.gather(*map(run, parties))

    outputs = asyncio.run(all_runs())
    width, received = parties[0]._width, [by_run(protocol, values) for values in parties[0].raised]
    for sender in (1, 2):
        for what, message in wires.sent[sender, 0]:
            if what != "keys":
                numbers = [int.from_bytes(message[i : i + width], "little") for i in range(0, len(message), width)]
                received.append(by_run(protocol, np.array(numbers, dtype=object)))
    return np.concatenate(received), outputs


def by_run(protocol: Protocol, numbers: np.ndarray) -> np.ndarray:
    """One column for each run; units lie run after run."""
    return numbers.reshape(RUNS, 3).T if protocol is largest and len(numbers) == 3 * RUNS else numbers.reshape(-1, RUNS)


def differ(first: np.ndarray, second: np.ndarray, prime: int) -> bool:
    """Whether some number, or some combination of all, has two laws."""
    draw = random.Random(5)
    mixed = [np.array([draw.randrange(prime) for _ in first], dtype=object) for _ in range(COMBINATIONS)]
    tables = [np.concatenate([view, [factors @ view % prime for factors in mixed]]) for view in (first, second)]
    chances = []
    for one, other in zip(*tables, strict=True):
        both = np.concatenate([one, other]).astype(float)
        edges = np.unique(np.quantile(both, np.linspace(0, 1, 9)[1:-1]))
        counts = np.array([np.bincount(np.searchsorted(edges, x.astype(float)), minlength=8) for x in (one, other)])
        counts = counts[:, counts.sum(axis=0) > 0]
        if counts.shape[1] > 1:
            chances.append(float(stats.chi2_contingency(counts).pvalue))
    return min(chances, default=1.0) < LEVEL / (len(chances) + 1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of 16 bits; and what the coalition draws is equal in all runs."""
    monkeypatch.setattr(protocols, "SECURITY", 16)
    right, width = SYSTEM.take, (protocols.field_bits(BITS, 3) + 7) // 8 + 16
    turns = itertools.count()

    def take(size: int) -> bytes:
        is_fixed = PARTY.get() == 0 and size % (width * RUNS) == 0
        return same(("dealt", next(turns)), size, width) if is_fixed else right(size)

    monkeypatch.setattr(protocols, "SYSTEM", SimpleNamespace(take=take))


@pytest.mark.parametrize("name", PAIRS)
def test_a_view_tells_no_more_than_the_output(name: str) -> None:
    """Two inputs of the other parties with one output give the coalition one law of all that it receives."""
    protocol, one, other = PAIRS[name]
    (first, out), (second, same_out) = views(protocol, one), views(protocol, other)
    if protocol is not noisy:
        assert all((mine == out[0]).all() for mine in (*out, *same_out))
    assert not differ(first, second, protocols.prime_of(protocols.field_bits(BITS, 3)))


def plain(self: Arithmetic, content: bytes, width: int) -> np.ndarray:
    """Numbers that a party draws for its polynomials are 0: a share is the secret."""
    numbers = [int.from_bytes(content[i : i + width], "little") % self.modulus for i in range(0, len(content), width)]
    return np.array(numbers, dtype=object) * (width != self._long)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("sharing", "plain"),
        ("multiplication", "plain"),
        ("noise", "plain"),
        ("zero test", "mask"),
        ("comparison", "mask"),
    ],
)
def test_a_leak_is_seen(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are the secrets, and masks that the coalition knows all parts of, give views of two laws."""
    protocol, one, other = PAIRS[name]
    if fault == "plain":
        monkeypatch.setattr(Arithmetic, "_read", plain)
    else:
        monkeypatch.setattr(Party, "coalition", (0, 1))
    assert differ(views(protocol, one)[0], views(protocol, other)[0], protocols.prime_of(protocols.field_bits(BITS, 3)))


# Known answers: every input of a small domain, and the output in plain numbers


def answered(protocol: Callable[[Arithmetic], Awaitable[np.ndarray]], bits: int) -> np.ndarray:
    """The output of three parties."""
    wires = Wires(3)

    async def all_parties() -> list[np.ndarray]:
        return await asyncio.gather(*(protocol(Arithmetic(wires.of(number), bits)) for number in range(3)))

    outputs = asyncio.run(all_parties())
    assert all((outputs[0] == other).all() for other in outputs[1:])
    return outputs[0]


def mine(a: Arithmetic, numbers: np.ndarray) -> np.ndarray:
    """A party's part of numbers: party 0 has all and a bit more, party 1 has it less."""
    parts = {0: numbers + 17, 1: np.full_like(numbers, -17)}
    return parts.get(a.party, np.zeros_like(numbers))


def test_products_signs_and_zeros_of_all_small_numbers() -> None:
    """Each of -8 to 7 with each."""
    first, second = np.array(list(itertools.product(range(-8, 8), repeat=2)), dtype=object).T

    async def run(a: Arithmetic) -> np.ndarray:
        one, other = await a.sum_of_inputs(mine(a, first)), await a.sum_of_inputs(mine(a, second))
        product = await a.open(await a.product(np.multiply, one, other), "product")
        sign = await a.open(await a.is_negative((one - other) % a.modulus, 6), "sign")
        return np.stack([product, sign, (await a.is_zero((one - other) % a.modulus, "equal")).astype(object)])

    product, sign, zero = answered(run, 8)
    assert (product == first * second).all()
    assert (sign == (first < second)).all()
    assert (zero == (first == second)).all()


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_the_first_largest_of_all_small_lists(length: int) -> None:
    """Ties go to the first; the mark and the number are those of plain numbers."""
    lists = np.array(list(itertools.product(range(3), repeat=length)), dtype=object)

    async def run(a: Arithmetic) -> np.ndarray:
        units, most = await a.first_largest(await a.sum_of_inputs(mine(a, lists)), 6)
        return np.concatenate([await a.open(units, "unit"), (await a.open(most, "largest"))[:, None]], axis=1)

    found = answered(run, 8)
    where = lists.astype(int).argmax(axis=1)
    assert (found[:, :-1] == np.eye(length, dtype=int)[where]).all()
    assert (found[:, -1] == lists.max(axis=1)).all()


def test_sums_of_fractions() -> None:
    """1/2 + 1/3 + 1/4, and 3/7 alone, and 5/1 - 2/3."""
    over, under = np.array([1, 1, 1, 3, 5, -2], dtype=object), np.array([2, 3, 4, 7, 1, 3], dtype=object)

    async def run(a: Arithmetic) -> np.ndarray:
        shares = await a.sum_of_inputs(mine(a, over)), await a.sum_of_inputs(mine(a, under))
        sums = await a.sums_of_fractions(*shares, np.array([3, 1, 2]))
        return np.stack([await a.open(one, "sum") for one in sums])

    found = [Fraction(int(one), int(other)) for one, other in answered(run, 16).T]
    assert found == [Fraction(13, 12), Fraction(3, 7), Fraction(13, 3)]


def test_noise_is_the_sum_of_all_parties_shares() -> None:
    """And every party's own, from its stream, is in it once."""
    epsilon, streams = Fraction(1, 3), [f"party {number}".encode() for number in range(3)]

    async def run(a: Arithmetic) -> np.ndarray:
        own = own_noise((40,), epsilon, 3, stream(streams[a.party]))
        return await a.sums(own + 100 * (a.party == 0))

    drawn = sum(own_noise((40,), epsilon, 3, stream(one)) for one in streams)
    assert (answered(run, 16) == 100 + drawn).all()
