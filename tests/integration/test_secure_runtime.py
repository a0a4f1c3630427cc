# SPDX-License-Identifier: Apache-2.0
"""MPyC made a library: what its steps let others see, and what its import leaves alone."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.secure.processes import free_ports, run_processes
from miners.secure.id3.task import Holding, hold
from miners.secure.mpc.arithmetic import Arithmetic
from miners.secure.mpc.mpyc_runtime import install, mpyc
from miners.secure.provider import estimate
from miners.secure.session.party import Outcome, run_simulation
from tests.parties import patients, session_of

PARTIES = ((0, 1), (0, 2), (1, 2))
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


def runtime_class() -> Any:
    """MPyC's own runtime, which ours stands on."""
    module: Any = mpyc()
    return module.Runtime


async def sent_by_all(secret: int, bits: int, step: Any) -> tuple[list[list[int]], int]:
    """What each of three parties sends in the openings of a step on a secret whose shares lie on a(x) = secret + SLOPE x."""
    sent: list[list[int]] = []
    for party in range(3):
        runtime = install(party, 3, bits=bits)
        runtime._prss_keys = {pair: bytes([sum(pair)]) * 16 for pair in PARTIES if party in pair}
        sent.append([])

        async def output(share: Any, *receivers: Any, mine: list[int] = sent[-1], **threshold: Any) -> Any:
            mine += share.value.tolist()
            return share

        runtime.output = output
        arithmetic = Arithmetic(runtime, bits)
        share = np.array([(secret + SLOPE * (party + 1)) % arithmetic.modulus], dtype=object)
        await step(runtime, arithmetic._secure(share))
    return sent, arithmetic.modulus


@pytest.mark.parametrize(("bits", "secret"), [(20, 1), (20, 17), (100, 17), (100, 0)])
def test_a_zero_test_shows_nothing_but_zero(bits: int, secret: int) -> None:
    """All shares of what is opened: 0 at 0 exactly where the secret is 0; the root of the secret's polynomial, which MPyC's own step gives away, is none of it."""
    mpyc()
    sent, modulus = asyncio.run(sent_by_all(secret, bits, lambda runtime, shares: runtime.np_is_zero_public(shares)))
    (opened,) = zip(*sent, strict=True)
    root = -secret * pow(SLOPE, -1, modulus) % modulus
    assert (at(list(opened), 0, modulus) == 0) == (secret == 0)
    assert secret == 0 or at(list(opened), root, modulus) != 0

    bare, _ = asyncio.run(
        sent_by_all(secret, bits, lambda runtime, shares: runtime_class().np_is_zero_public(runtime, shares))
    )
    product = list(list(zip(*bare, strict=True))[-1])
    assert at(product, root, modulus) == 0  # this test would see it


def test_the_first_import_leaves_a_running_loop_alone() -> None:
    """In a notebook an event loop runs already; it is neither closed nor replaced."""
    code = """
import asyncio
from miners.secure.mpc.mpyc_runtime import simulate

async def work(runtime):
    return len(runtime.parties)

async def notebook():
    loop = asyncio.get_running_loop()
    assert simulate(work, 8) == 1
    await asyncio.sleep(0)
    return asyncio.get_running_loop() is loop

print(asyncio.run(notebook()))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "True\n", ended.stderr


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
        assert len({outcome.branches for outcome, _ in ended}) == 1
    assert sent[0] == sent[1]
    branches, said = ended[0][0].branches or (), re.search(r"splits takes at most about (\d+) kB", estimate(session))
    assert said
    expected = 1000 * int(said[1]) * sum(branch.attribute is not None for branch in branches)
    assert 0.2 < sent[0][0] / expected < 1  # below the root fewer attributes are left to compare
