# SPDX-License-Identifier: Apache-2.0
"""Sums of all parties' numbers under secret sharing: right at the extremes, and wrong shares noticed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pinq.errors import SessionError
from pinq_secure.mpc.arithmetic import Sharing, prime_of
from tests.support.processes.secure_parties import Wires


class Liar(Wires):
    """Where the third party sends a wrong share of the sum."""

    def send(self, sender: int, receiver: int, what: str, message: bytes) -> None:
        wrong = sender == 2 and what.startswith("opening")
        super().send(sender, receiver, what, bytes([message[0] ^ 1]) + message[1:] if wrong else message)


def added(numbers: list[list[int]], bits: int, wires: Wires) -> list[np.ndarray | BaseException]:
    """What each party's side of one addition ends with."""

    async def all_parties() -> list[np.ndarray | BaseException]:
        sides = [
            Sharing(wires.of(party), bits + 1).sums(np.array(own, dtype=object)) for party, own in enumerate(numbers)
        ]
        return await asyncio.gather(*sides, return_exceptions=True)

    return asyncio.run(all_parties())


@pytest.mark.parametrize(("parties", "bits"), [(3, 20), (4, 60), (5, 61), (7, 100), (16, 500)])
def test_all_get_the_sum(parties: int, bits: int) -> None:
    """The largest and the smallest sums that the bits allow, among any number of parties."""
    most = 2 ** (bits - 1) - 1
    numbers = [[number, -number, 0, 7] for number in range(parties - 1)]
    others = [sum(column) for column in zip(*numbers, strict=True)]
    numbers.append([most - others[0], -most - others[1], 0, 0])
    for sums in added(numbers, bits, Wires(parties)):
        assert isinstance(sums, np.ndarray)
        assert sums.tolist() == [most, -most, 0, 7 * (parties - 1)]


@pytest.mark.parametrize("parties", [3, 4, 5, 6])
def test_a_wrong_share_is_noticed(parties: int) -> None:
    """By all others; from four parties on with nobody else under suspicion."""
    ends = added([[1, 2]] * parties, 30, Liar(parties))
    for party, end in enumerate(ends):
        if party != 2:
            assert isinstance(end, SessionError)
            assert "the shares of a sum do not fit each other" in str(end)
            assert "party 2" in str(end)
            assert ("or" in str(end).split()) == (parties == 3)


def test_shares_are_random() -> None:
    """What a party is sent of a number has nothing to do with it: the last bits of shares of 0 are spread evenly."""
    wires = Wires(3)
    added([[0] * 4000] * 3, 15, wires)
    dealt = np.frombuffer(wires.sent[0, 1][0][1], dtype="<u2")
    assert 1800 < (dealt % 2).sum() < 2200  # six standard deviations on either side
    assert prime_of(16) > dealt.max() > 30_000


@pytest.mark.parametrize("bits", [8, 9, 31, 32, 61, 64, 127, 300])
def test_a_field_is_a_prime_of_its_bits(bits: int) -> None:
    """And 3 modulo 4, so that a root is a power; no smaller one is passed over."""
    prime = prime_of(bits)
    assert (prime.bit_length(), prime % 4) == (bits, 3)
    assert all(pow(base, prime - 1, prime) == 1 for base in range(2, 50))
    if bits < 40:
        between = [
            n for n in range(2 ** (bits - 1) + 3, prime + 1, 4) if all(n % d for d in range(3, 1 << (bits + 1) // 2, 2))
        ]
        assert between == [prime]
