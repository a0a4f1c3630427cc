# SPDX-License-Identifier: Apache-2.0
"""Sums of all parties' numbers under secret sharing: right at the extremes, and wrong shares noticed."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest

from miners.secure.sums.shares import SharedSums
from pinq.errors import SessionError


class Wire:
    """A connection from one party to another; what is sent is known to both."""

    def __init__(self, sent: dict[tuple[int, int, int], asyncio.Future[bytes]], here: int, there: int) -> None:
        self._sent, self._here, self._there = sent, here, there

    def _place(self, sender: int, receiver: int, label: int) -> asyncio.Future[bytes]:
        return self._sent.setdefault((sender, receiver, label), asyncio.get_running_loop().create_future())

    def send(self, label: int, payload: bytes) -> None:
        self._place(self._here, self._there, label).set_result(payload)

    def receive(self, label: int) -> asyncio.Future[bytes]:
        return self._place(self._there, self._here, label)


class Liar(Wire):
    """Sends a wrong share of the sum."""

    def send(self, label: int, payload: bytes) -> None:
        super().send(label, payload if label == 0 else bytes([payload[0] ^ 1]) + payload[1:])


def added(numbers: list[list[int]], bits: int, liar: int | None = None) -> list[np.ndarray | BaseException]:
    """What each party's side of one addition ends with."""
    parties = range(len(numbers))

    async def all_parties() -> list[np.ndarray | BaseException]:
        sent: dict[tuple[int, int, int], asyncio.Future[bytes]] = {}
        sides = []
        for here in parties:
            kind = Liar if here == liar else Wire
            wires = {there: kind(sent, here, there) for there in parties if there != here}
            side = SharedSums(here, wires, (len(numbers) - 1) // 2, bits)
            sides.append(side.add(np.array(numbers[here], dtype=object)))
        return await asyncio.gather(*sides, return_exceptions=True)

    return asyncio.run(all_parties())


@pytest.mark.parametrize(("parties", "bits"), [(3, 20), (4, 60), (5, 61), (7, 100), (16, 500)])
def test_all_get_the_sum(parties: int, bits: int) -> None:
    """The largest and the smallest sums that the bits allow, among any number of parties."""
    most = 2 ** (bits - 1) - 1
    numbers = [[number, -number, 0, 7] for number in range(parties - 1)]
    others = [sum(column) for column in zip(*numbers, strict=True)]
    numbers.append([most - others[0], -most - others[1], 0, 0])
    for sums in added(numbers, bits):
        assert isinstance(sums, np.ndarray)
        assert sums.tolist() == [most, -most, 0, 7 * (parties - 1)]


@pytest.mark.parametrize("parties", [3, 4, 5, 6])
def test_a_wrong_share_is_noticed(parties: int) -> None:
    """By all others; from four parties on with nobody else under suspicion."""
    ends = added([[1, 2]] * parties, 30, liar=2)
    for party, end in enumerate(ends):
        if party != 2:
            assert isinstance(end, SessionError)
            assert "the shares of a sum do not fit each other" in str(end)
            assert "party 2" in str(end)
            assert ("or" in str(end).split()) == (parties == 3)


def test_shares_are_random() -> None:
    """What one party is sent of a number has nothing to do with it: the last bits of shares of 0 are spread evenly."""
    seen: Counter[int] = Counter()

    class Watching(Wire):
        def send(self, label: int, payload: bytes) -> None:
            seen.update([payload[0] % 2])

    side = SharedSums(0, {1: Watching({}, 0, 1), 2: Watching({}, 0, 2)}, 1, 20)

    async def send() -> None:
        task = asyncio.ensure_future(side.add(np.zeros(1, dtype=object)))
        await asyncio.sleep(0)
        task.cancel()

    for _ in range(400):
        asyncio.run(send())
    assert 300 < seen[0] < 500
