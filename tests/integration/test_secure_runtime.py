# SPDX-License-Identifier: Apache-2.0
"""What parties see of each other's secrets in the steps of a computation, and what processes find and send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.papers.secure.processes import free_ports, run_processes
from pinq.errors import SessionError
from pinq_secure.id3.task import Holding, hold
from pinq_secure.mpc.arithmetic import Arithmetic, field_bits, prime_of
from pinq_secure.session.loss import estimate
from pinq_secure.session.party import Outcome, run_simulation
from tests.support.processes.secure_parties import Wires, patients, session_of

SLOPE = 123_456_789


def at(points: list[int], x: int, modulus: int) -> int:
    """The polynomial of degree 2 through (1, points[0]), (2, points[1]) and (3, points[2]), at x."""
    total = 0
    for place, value in enumerate(points, 1):
        over = under = 1
        for other in range(1, 4):
            if other != place:
                over, under = over * (x - other) % modulus, under * (place - other) % modulus
        total += value * over * pow(under, -1, modulus)
    return total % modulus


def opened_in(
    bits: int, step: Callable[[Arithmetic, np.ndarray], Awaitable[object]], secret: int
) -> tuple[list[list[int]], int]:
    """What each of three parties sends in the openings of a step on a secret whose shares lie on a(x) = secret + SLOPE x."""
    wires = Wires(3)

    async def side(party: int) -> int:
        arithmetic = Arithmetic(wires.of(party), bits)
        await step(arithmetic, np.array([(secret + SLOPE * (party + 1)) % arithmetic.modulus], dtype=object))
        return arithmetic.modulus

    async def all_sides() -> list[int]:
        return await asyncio.gather(*(side(party) for party in range(3)))

    modulus, *_ = asyncio.run(all_sides())
    width = (modulus.bit_length() + 7) // 8
    sent = [
        [
            int.from_bytes(message[i : i + width], "little")
            for what, message in wires.sent[party, (party + 1) % 3]
            if what.startswith("opening")
            for i in range(0, len(message), width)
        ]
        for party in range(3)
    ]
    return sent, modulus


@pytest.mark.parametrize(("bits", "secret"), [(20, 1), (20, 17), (100, 17), (100, 0)])
def test_a_zero_test_shows_nothing_but_zero(bits: int, secret: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shares of what is opened: 0 at 0 exactly where the secret is 0; the root of the secret's polynomial, which the bare product with a random number gives away, is none of it."""
    sent, modulus = opened_in(bits, lambda side, shares: side.is_zero(shares, "zero"), secret)
    ((*opened,),) = zip(*sent, strict=True)
    root = -secret * pow(SLOPE, -1, modulus) % modulus
    assert (at(opened, 0, modulus) == 0) == (secret == 0)
    assert secret == 0 or at(opened, root, modulus) != 0

    async def none(self: Arithmetic, size: int) -> np.ndarray:
        return np.zeros(size, dtype=object)

    monkeypatch.setattr(Arithmetic, "_zeros", none)
    bare, modulus = opened_in(bits, lambda side, shares: side.is_zero(shares, "zero"), secret)
    ((*product,),) = zip(*bare, strict=True)
    assert at(product, root, modulus) == 0  # this test would see it


@pytest.mark.parametrize(("parties", "bits"), [(3, 8), (3, 200), (4, 20), (5, 20)])
def test_parties_compare_what_none_of_them_sees(parties: int, bits: int) -> None:
    """Signs at the extremes, zeros, products and ties, among any number of parties, by shares that are really random; one number is opened to one party alone."""
    most = 2 ** (bits - 1) - 1
    numbers = np.array([0, 1, -1, most, -most, most - 1, 7, -7], dtype=object)
    table = np.array([[3, 7, 5], [1, 1, 1], [0, 2, 2]], dtype=object)
    wires = Wires(parties)

    async def side(party: int) -> list[list[object]]:
        arithmetic = Arithmetic(wires.of(party), bits)
        shares = await arithmetic.share(numbers if party == 1 else None, 1, numbers.shape)
        tables = await arithmetic.share(table if party == 0 else None, 0, table.shape)
        units, largest = await arithmetic.first_largest(tables, 8)
        negative = await arithmetic.open(await arithmetic.is_negative(shares, bits), "negative")
        opened = [await arithmetic.is_zero(shares, "zero"), negative, await arithmetic.open(units, "first")]
        alone = await arithmetic.open(shares, "alone", parties - 1)
        return [one.tolist() for one in (*opened, await arithmetic.open(largest, "largest"), alone)]

    async def all_sides() -> list[list[list[object]]]:
        return await asyncio.gather(*(side(party) for party in range(parties)))

    for party, (zero, negative, first, largest, alone) in enumerate(asyncio.run(all_sides())):
        assert zero == [number == 0 for number in numbers]
        assert negative == [int(number < 0) for number in numbers]
        assert first == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
        assert largest == [7, 1, 2]
        assert alone == (numbers.tolist() if party == parties - 1 else [0] * len(numbers))


@pytest.mark.parametrize("parties", [3, 5])
def test_small_numbers_all_compare_and_multiply_rightly(parties: int) -> None:
    """Plain integers decide: every sign and zero test of 5 bits, and every product of two such numbers, by real shares at threshold 1 and 2."""
    numbers = np.arange(-16, 16).astype(object)
    first, second = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    wires = Wires(parties)

    async def side(party: int) -> list[list[object]]:
        arithmetic = Arithmetic(wires.of(party), 5)
        shares = await arithmetic.share(numbers if party == 0 else None, 0, numbers.shape)
        factors = [
            await arithmetic.share(factor if party == 1 else None, 1, factor.shape) for factor in (first, second)
        ]
        negative = await arithmetic.open(await arithmetic.is_negative(shares, 5), "negative")
        products = await arithmetic.open(await arithmetic.product(np.multiply, *factors), "product")
        return [one.tolist() for one in (negative, await arithmetic.is_zero(shares, "zero"), products)]

    async def all_sides() -> list[list[list[object]]]:
        return await asyncio.gather(*(side(party) for party in range(parties)))

    for negative, zero, products in asyncio.run(all_sides()):
        assert negative == [int(number < 0) for number in numbers]
        assert zero == [number == 0 for number in numbers]
        assert products == (first * second).tolist()


@pytest.mark.parametrize("parties", [3, 5])
def test_what_is_opened_has_nothing_to_do_with_the_secret(parties: int) -> None:
    """Comparisons and zero tests of two secrets: what each party sends in each opening, and what is opened, have one law modulo 16; the secrets themselves do not."""
    size, seen = 1000, []
    for secret in (-5, 6):
        opened: list[np.ndarray] = []
        wires = Wires(parties)

        async def side(
            party: int, wires: Wires = wires, secret: int = secret, opened: list[np.ndarray] = opened
        ) -> None:
            arithmetic = Arithmetic(wires.of(party), 4)
            shares = await arithmetic.share(np.full(size, secret, dtype=object) if party == 1 else None, 1, (size,))
            real = arithmetic.opened

            async def noted(*arguments: Any) -> np.ndarray:
                numbers = await real(*arguments)
                opened.extend([numbers] if party == 0 else [])
                return numbers

            arithmetic.opened = noted  # type: ignore[method-assign, assignment]
            await arithmetic.is_negative(shares, 4)
            await arithmetic._is_zero(shares)

        async def all_sides(run: Callable[[int], Awaitable[None]] = side) -> None:
            await asyncio.gather(*(run(party) for party in range(parties)))

        asyncio.run(all_sides())
        width = (prime_of(field_bits(4, parties)).bit_length() + 7) // 8
        sent = [
            np.array([message[i] for i in range(0, len(message), width)])
            for party in range(parties)
            for what, message in wires.sent[party, (party + 1) % parties]
            if what.startswith("opening")
        ]
        products = [(numbers == 0).astype(int) for numbers in (opened[2], opened[3])]
        assert not products[1].any()  # no secret is 0
        seen.append([*(values % 16 for values in sent), opened[1] % 16, products[0]])
    for ours, theirs in zip(*seen, strict=True):
        counts = np.array([np.bincount(values.astype(int), minlength=16) for values in (ours, theirs)])
        assert stats.chi2_contingency(counts[:, counts.any(axis=0)]).pvalue > 1e-8  # of some 20 laws


def test_keys_that_are_none_end_the_session() -> None:
    """Whatever a party sends in place of its keys of common randomness, the error is one of the session."""
    for sent in (b"", bytes(15), bytes(17), bytes(64)):
        wires = Wires(3)
        wires.sent[0, 2], wires.sent[1, 2] = [("keys", bytes(16))], [("keys", sent)]
        with pytest.raises(SessionError, match="a party sent keys that are none"):
            asyncio.run(Arithmetic(wires.of(2), 8)._share_keys())


def test_processes_find_what_a_simulation_finds() -> None:
    """SID3T among three processes with shares that are really random, a lookup by one of them; from inside a running event loop, as in a notebook."""
    session = session_of("sid3t", [30] * 3, lookups=(0, 4, 0), ports=free_ports(3))
    holdings = [hold(session.task, patients(30, number)) for number in range(3)]
    asked = [None, holdings[0].each[:-1, :4].T, None]

    async def notebook() -> list[Outcome]:
        return run_simulation(session, holdings, asked)

    expected = asyncio.run(notebook())
    found = [outcome for outcome, _ in run_processes(session, holdings, asked, timeout=120)]
    assert [one.looked_up.tolist() for one in found] == [one.looked_up.tolist() for one in expected]
    assert [one.depths for one in found] == [one.depths for one in expected]
    assert [{value.what for value in one.opened} for one in found] == [{"stop"}, {"stop", "looked up"}, {"stop"}]


def test_what_sid3p_sends_does_not_grow_with_rows() -> None:
    """Byte for byte the same for 1 and 100 times the rows, in processes that really send (`make reproduce-secure` measures more)."""
    small = [patients(40, number) for number in range(3)]
    session = session_of("sid3p", [4000] * 3, ports=free_ports(3))
    sent = []
    for times in (1, 100):
        holdings = [hold(session.task, frame) for frame in small]
        grown = [Holding(one.codes, one.counts * times) for one in holdings]
        ended = run_processes(session, grown, timeout=120)
        sent.append([traffic.bytes_sent for _, traffic in ended])
        assert all(outcome.tree == ended[0][0].tree for outcome, _ in ended)
    assert sent[0] == sent[1]
    tree, said = ended[0][0].tree, re.search(r"splits takes at most about (\d+) kB", estimate(session))
    assert tree
    assert said
    expected = 1000 * int(said[1]) * sum(node.split is not None for node in tree.nodes)
    assert 0.2 < sent[0][0] / expected < 1  # below the root fewer attributes are left to compare
