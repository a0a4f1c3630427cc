# SPDX-License-Identifier: Apache-2.0
"""``Bits`` makes uniform numbers of random bytes; ``SYSTEM`` uses tested bytes of the operating system.

All noise, choices and shares use them, or bytes that follow from a key that ``SYSTEM`` made. A forked process does not
repeat its parent.

``Watched`` runs the health tests of NIST SP 800-90B, section 4.4, on all bytes that it gives. Once one has failed, this
process draws nothing and charges nothing. A sample is 16 bytes; good ones have 128 bits of entropy.

- Repetition count: a sample equals the one before it. Of good bits, with a chance of 2^-128.
- Adaptive proportion: the first sample of a window appears in it again; or the ones among its n bits are more than
  ``DEVIATION`` sqrt(n) from n / 2. A window ends with the draw that reaches 8 kB (2^16 bits), of which 48 % ones fail.
  The first happens with a chance of 2^-128 for each sample. The second has a chance of 2 exp(-2 ``DEVIATION``^2) <
  2^-98 (Hoeffding), and below 2^-89 for all 512 lengths together that a window may have before its last draw.

A process that draws 2^54 bytes (five years at 100 MB a second) has 2^50 samples and 2^41 windows.
It has a false alarm with a chance below 2 * 2^50 * 2^-128 + 2^41 * 2^-89 < 2^-47.

Privacy:
    Claim: rows change the chance that a test of good bits fails by less than 2^-47, as all false alarms above. Why:
    the bits do not depend on rows. Their number depends on public numbers and, little, on rows: a choice among
    equal candidates draws until a number is below theirs, and at most one draw of 2^39 takes more bits. So rows can
    only move where a window of good bits ends. Before each charge a new sample is tested, and a whole window before
    the first one of a thread, so bits that are already bad cost no analyst any epsilon. A draw that begins with the
    last sample of the draw before it is not used, so stuck bits are never used. Other tests look at whole windows.
    A test that fails in a draw after the charge ends in ``EngineError``. Not detected: good bits that somebody else
    knows. Held by: tests/unit/test_bits.py.

References:
    Turan, Barker, Kelsey, McKay, Baish & Boyle 2018 (NIST SP 800-90B); Hoeffding 1963.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable

import numpy as np

from pinq.errors import Unavailable

SAMPLE = 16  # bytes
WINDOW = 2**13  # bytes
DEVIATION = 5.9
FAILED = "The random bits of this machine failed a test. No noise can be drawn, so nothing is answered or charged."

_log = logging.getLogger("pinq.public.bits")


class Bits:
    """Uniform numbers.

    Args:
        take: A function that gives this many new random bytes.
    """

    def __init__(self, take: Callable[[int], bytes]) -> None:
        self.take = take

    def words(self, numbers: int) -> np.ndarray:
        return np.frombuffer(self.take(8 * numbers), dtype="<u8")

    def word(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def below(self, limit: int) -> int:
        """Draws a number below ``limit``, which is at least 1."""
        bits = (limit - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.take((bits + 7) // 8), "big") >> (-bits % 8)
            if drawn < limit:
                return drawn


class _Window(threading.local):
    """The draws of a thread since the last tested window."""

    def __init__(self) -> None:
        self.draws: list[bytes] = []
        self.size, self.last = 0, b""


class Watched:
    """A source of random bytes under test.

    Attributes:
        failed: Whether a test failed, ever.
    """

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source, self._window, self.failed = source, _Window(), False

    def require(self) -> None:
        """Tests a new sample, or a window if the thread has drawn nothing; raises ``Unavailable`` if a test failed."""
        self.take(SAMPLE if self._window.last else WINDOW)

    def take(self, size: int) -> bytes:
        """Draws bytes; raises ``Unavailable`` if a test failed."""
        if not size:
            return b""
        drawn, window = self._source(size + -size % SAMPLE), self._window
        window.draws.append(drawn)
        window.size += len(drawn)
        fault = "a sample repeats the one before it" if drawn[:SAMPLE] == window.last else ""
        window.last = drawn[-SAMPLE:]
        if window.size >= WINDOW:
            fault = fault or fault_of(b"".join(window.draws))
            window.draws, window.size = [], 0
        if fault:
            self.failed = True
            _log.critical("The operating system's random bits failed a test: %s. No more are used.", fault)
        if self.failed:
            raise Unavailable(FAILED)
        return drawn[:size]


def fault_of(content: bytes) -> str:
    """The test that a window of whole samples fails; empty for none."""
    words = np.frombuffer(content, dtype=np.uint64)
    same = words[2:] == words[:-2]
    if (same[::2] & same[1::2]).any():
        return "a sample repeats the one before it"
    if ((words[2::2] == words[0]) & (words[3::2] == words[1])).any():
        return "a sample appears twice in a window"
    bits, ones = 64 * len(words), int(np.bitwise_count(words).sum(dtype=np.int64))
    return f"{ones} of {bits} bits are 1" if (ones - bits / 2) ** 2 > DEVIATION**2 * bits else ""


WATCHED = Watched(secrets.token_bytes)
SYSTEM = Bits(WATCHED.take)
