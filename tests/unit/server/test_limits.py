# SPDX-License-Identifier: Apache-2.0
"""Queues, rates and wrong tokens, on a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from pinq.curator.price import MAX_WORK
from pinq.errors import TooManyRequests
from pinq.server.limits import MANY, AuthThrottle, Settings, TokenQueues


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_tokens_pace() -> None:
    """As many at once as a second allows, then one for each fraction of a second; another token is not concerned."""
    clock = Clock()
    queues = TokenQueues(Settings(rate=5), clock)

    async def ask(token: str) -> bool:
        try:
            async with queues.enter(token):
                return True
        except TooManyRequests as slow:
            assert 0 < slow.retry_after <= 0.2
            return False

    async def run() -> None:
        assert [await ask("a") for _ in range(7)] == [True] * 5 + [False] * 2
        assert await ask("b")
        clock.now += 0.21
        assert [await ask("a") for _ in range(2)] == [True, False]
        clock.now += 60
        assert [await ask("a") for _ in range(6)] == [True] * 5 + [False]

    asyncio.run(run())


def test_a_lane_holds_so_many() -> None:
    """Only ``running`` requests of a token run at a time, ``waiting`` wait, the next is refused; another token's queue is free."""
    queues = TokenQueues(Settings(running=2, waiting=3), Clock())
    running = most = 0

    async def run() -> None:
        go = asyncio.Event()

        async def ask(token: str) -> str:
            nonlocal running, most
            try:
                async with queues.enter(token):
                    running += 1
                    most = max(most, running)
                    await go.wait()
                    running -= 1
                    return "done"
            except TooManyRequests:
                return "refused"

        slow = [asyncio.create_task(ask("slow")) for _ in range(7)]
        await asyncio.sleep(0)
        other = asyncio.create_task(ask("other"))
        await asyncio.sleep(0.01)
        assert running == 3
        go.set()
        assert sorted(await asyncio.gather(*slow)) == ["done"] * 5 + ["refused"] * 2
        assert await other == "done"
        assert most == 3

    asyncio.run(run())


def test_alone_in_a_queue() -> None:
    """Where requests run alone, each waits for the end of the one that came before it; another token's queue is free."""
    queues = TokenQueues(Settings(running=4, waiting=3), Clock())
    seen: list[str] = []

    async def ask(token: str, number: int) -> None:
        async with queues.enter(token, alone=True):
            seen.append(f"{token}{number} in")
            await asyncio.sleep(0.001)
            seen.append(f"{token}{number} out")

    async def run() -> None:
        await asyncio.gather(*(ask("a", number) for number in range(7)), ask("b", 0))

    asyncio.run(run())
    assert [line for line in seen if line[0] == "a"] == [
        f"a{number} {end}" for number in range(7) for end in ("in", "out")
    ]
    assert seen[1] == "b0 in"


def test_idle_lanes_are_forgotten() -> None:
    """Tokens that nobody uses any more take no memory."""
    clock = Clock()
    queues = TokenQueues(Settings(), clock)

    async def run() -> None:
        for number in range(3 * MANY):
            clock.now += 0.001
            async with queues.enter(str(number)):
                pass

    asyncio.run(run())
    assert len(queues._queues) <= MANY


def test_guesses_are_counted_by_address_and_minute() -> None:
    """Past the limit an address is refused until the minute ends; a token that was given out passes; all together have a limit too."""
    clock = Clock()
    guesses = AuthThrottle(Settings(guesses=3, guesses_in_all=5), clock, {"given out"}.__contains__)
    guesses.right("known", "people")
    assert (guesses.opens("known"), guesses.opens("unknown")) == ("people", "")
    for number in range(3):
        guesses.check("here", str(number))
        guesses.wrong("here", str(number))
    with pytest.raises(TooManyRequests) as slow:
        guesses.check("here", "unknown")
    assert 0 < slow.value.retry_after <= 60
    guesses.check("here", "known")
    guesses.check("here", "given out")
    guesses.check("there", "unknown")
    guesses.wrong("here", "unknown")
    guesses.check("here", "known")
    guesses.wrong("there", "unknown")
    with pytest.raises(TooManyRequests):
        guesses.check("elsewhere", "unknown")
    clock.now += 60
    guesses.check("here", "unknown")
    for number in range(MANY + 5):
        guesses.right(str(number), "people")
    assert len(guesses._right) == MANY


def test_a_known_token_at_a_wrong_door_is_no_guess() -> None:
    """Misspelt dataset names, or a grant that ended, must not close the door to newcomers."""
    guesses = AuthThrottle(Settings(guesses=3, guesses_in_all=3), Clock(), {"given out"}.__contains__)
    guesses.right("known", "people")
    for _ in range(10):
        guesses.wrong("here", "known")
        guesses.wrong("here", "given out")
    guesses.check("here", "newcomer")
    guesses.check("there", "newcomer")


def test_a_minute_begins_with_its_first_wrong_token() -> None:
    """So that every guesser waits a whole one, whenever he comes."""
    clock = Clock()
    guesses = AuthThrottle(Settings(guesses=1), clock, {"given out"}.__contains__)
    clock.now += 59
    guesses.check("here", "a")
    guesses.wrong("here", "a")
    clock.now += 59
    with pytest.raises(TooManyRequests) as slow:
        guesses.check("here", "b")
    assert slow.value.retry_after == 1
    clock.now += 1
    guesses.check("here", "b")


def test_no_request_at_the_default_limit_of_work_meets_the_default_deadline() -> None:
    """A unit of work stands for about a millisecond of one core, and a loaded machine takes longer."""
    assert Settings().work_seconds >= 2 * MAX_WORK / 1000
