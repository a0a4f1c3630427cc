# SPDX-License-Identifier: Apache-2.0
"""The health tests of random bits: bad ones are seen, and nothing is charged for them; good ones pass.

Good bits come from a seeded generator, so that nothing here fails by chance.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import pinq
from pinq.errors import EngineError, Unavailable
from pinq.language.scores import Balance
from pinq.language.specs import AnyCut
from pinq.public.noise import FAILED, SAMPLE, SYSTEM, WATCHED, WINDOW, Bits, Watched, _Window
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.server.readiness import Readiness

Source = Callable[[int], bytes]
SCHEMA = Schema(
    columns={"age": Numeric(lower=0, upper=99, integer=True), "sex": Categorical(values=("F", "M"))}, max_rows=100
)


def good(seed: int = 1) -> Source:
    return random.Random(seed).randbytes


def stuck(size: int) -> bytes:
    return b"\xa5" * size


def turning(*words: bytes) -> Source:
    """Samples that come again and again, in turns."""
    turn = count()
    return lambda size: b"".join(words[next(turn) % len(words)] for _ in range(size // SAMPLE))


def biased(share: float) -> Source:
    """Each bit is 1 with this probability, on its own."""
    draw = np.random.default_rng(3)
    return lambda size: np.packbits(draw.random(8 * size) < share).tobytes()


def masked(size: int) -> bytes:
    """The lowest bit of each byte is 1."""
    return bytes(byte | 1 for byte in np.random.default_rng(4).bytes(size))


def after(good_bytes: int, bad: Source) -> Source:
    """Good bits that turn bad."""
    left, fine = [good_bytes], good()

    def draw(size: int) -> bytes:
        left[0] -= size
        return fine(size) if left[0] >= 0 else bad(size)

    return draw


def drawn_before_failing(source: Source, sizes: list[int]) -> int:
    """The bytes that a source gives until it fails; -1 where it does not."""
    watched, total = Watched(source), 0
    for size in sizes:
        try:
            total += len(watched.take(size))
        except Unavailable:
            assert watched.failed
            return total
    return -1


@pytest.mark.parametrize("size", [1, 8, SAMPLE, 160, WINDOW, 2**18])
@pytest.mark.parametrize("seed", range(3))
def test_good_bits_pass(seed: int, size: int) -> None:
    """In draws of all sizes, over a megabyte and more; what is drawn is what the source gave."""
    assert drawn_before_failing(good(seed), [size] * (2**14 if size <= 160 else 8)) == -1
    assert Watched(good(seed)).take(size) == good(seed)(size + -size % SAMPLE)[:size]


@pytest.mark.parametrize("size", [1, SAMPLE, 160, WINDOW, 2**18])
@pytest.mark.parametrize(
    ("source", "within"),
    [
        (stuck, SAMPLE),
        (turning(bytes(SAMPLE)), SAMPLE),
        (turning(b"0123456789abcdef", b"fedcba9876543210"), WINDOW),
        (turning(*[random.Random(number).randbytes(SAMPLE) for number in range(9)]), WINDOW),
        (biased(0.54), WINDOW),
        (biased(0.46), WINDOW),
        (masked, WINDOW),
    ],
    ids=["stuck", "zeros", "two in turns", "nine in turns", "54 % ones", "46 % ones", "a stuck bit"],
)
def test_bad_bits_fail(source: Source, within: int, size: int) -> None:
    """From the beginning, at the latest with the draw that ends a window; a stuck source gives one draw."""
    drawn = drawn_before_failing(source, [size] * (2 * WINDOW // min(size, SAMPLE) + 2))
    assert 0 <= drawn <= max(within, size)


@pytest.mark.parametrize("size", [SAMPLE, 160, 2**14])
@pytest.mark.parametrize("bad", [stuck, biased(0.6), masked], ids=["stuck", "60 % ones", "a stuck bit"])
def test_bits_that_turn_bad_fail(bad: Source, size: int) -> None:
    """After a megabyte of good ones; a stuck source at its second draw."""
    drawn = drawn_before_failing(after(2**20, bad), [size] * (2**20 // size + 2 * WINDOW // SAMPLE))
    assert 2**20 - size <= drawn <= 2**20 + size + (0 if bad is stuck else 2 * WINDOW)


def test_a_failure_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Good bits that come after it are not used; the provider's log has it once a failing window, the error nothing of it."""
    turns = iter([stuck(WINDOW)])
    fine = good()
    watched = Watched(lambda size: next(turns, None) or fine(size))
    with caplog.at_level(logging.CRITICAL):
        for _ in range(3):
            with pytest.raises(Unavailable, match="failed a test") as caught:
                watched.require()
    assert str(caught.value) == FAILED
    assert [record.name for record in caplog.records] == ["pinq.public.noise"]
    assert "a sample repeats the one before it" in caplog.text


def test_a_new_thread_begins_with_a_window() -> None:
    """So that a source which is biased from the start costs nobody anything."""
    for source in (stuck, biased(0.54)):
        with pytest.raises(Unavailable):
            Watched(source).require()
    sizes: list[int] = []
    fine = good()
    watched = Watched(lambda size: sizes.append(size) or fine(size))  # type: ignore[func-returns-value]
    watched.require()
    watched.require()
    assert sizes == [WINDOW, SAMPLE]


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Source], None]:
    """Makes a source the operating system's."""

    def put(source: Source) -> None:
        monkeypatch.setattr(WATCHED, "_source", source)
        monkeypatch.setattr(WATCHED, "_window", _Window())
        monkeypatch.setattr(WATCHED, "failed", False)
        for name in ("words", "word", "below"):
            monkeypatch.setattr(SYSTEM, name, getattr(Bits(WATCHED.take), name))

    return put


VERBS: list[Callable[[pinq.PrivateQueryable], object]] = [
    lambda handle: handle.noisy_count(epsilon=0.1),
    lambda handle: handle.noisy_sum("age", epsilon=0.1),
    lambda handle: handle.exp_mech(score=pinq.ClassCount("sex"), epsilon=0.1),
    lambda handle: handle.exp_mech([AnyCut("age")], score=Balance(), epsilon=0.1),
]


@pytest.mark.parametrize("source", [stuck, biased(0.54), masked], ids=["stuck", "biased", "a stuck bit"])
@pytest.mark.parametrize("rows", [0, 50])
@pytest.mark.parametrize("ask", VERBS)
def test_a_request_is_refused_before_its_charge(
    source: Source, rows: int, ask: Callable[[pinq.PrivateQueryable], object], bits: Callable[[Source], None]
) -> None:
    """By one error, whatever the rows, the verb and the bits, again and again; a look at the budget needs no bits."""
    handle = pinq.simulate(SCHEMA, rows=rows, epsilon=5)
    bits(source)
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            ask(handle)
        assert str(caught.value) == FAILED
    assert handle.budget.spent == 0
    bits(good())
    ask(handle)
    assert handle.budget.spent == pytest.approx(0.1)


def test_bits_that_fail_in_a_draw_are_not_released(bits: Callable[[Source], None]) -> None:
    """The charge stands, as after any failure behind it; the next request is refused before its own."""
    handle = pinq.simulate(SCHEMA, rows=50, epsilon=5)
    handle.noisy_count(epsilon=0.1)  # rehearsed
    # The test before the charge takes a window; the noise of a count two samples or more.
    bits(after(WINDOW, stuck))
    handle_of_good = handle.budget.spent
    with pytest.raises(EngineError):
        handle.partition(pinq.Values("sex")).noisy_count(epsilon=0.2)
    assert handle.budget.spent > handle_of_good
    spent = handle.budget.spent
    with pytest.raises(Unavailable):
        handle.noisy_count(epsilon=0.1)
    assert handle.budget.spent == spent


def test_readiness_says_so(bits: Callable[[Source], None]) -> None:
    """While good bits come there is no problem; with bad ones the server is not ready, also where nobody asks it."""
    nothing = SimpleNamespace(served={}, failed=())
    log = SimpleNamespace(failing=False, lost=0, write=lambda *_, **__: None)
    readiness = Readiness(nothing, SimpleNamespace(problem="", ends=0), log)  # type: ignore[arg-type]
    bits(good())
    assert readiness._now().problems == ()
    bits(stuck)
    assert readiness._now().problems == (FAILED,)
    readiness.close()
