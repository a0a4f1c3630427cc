# SPDX-License-Identifier: Apache-2.0
"""``Rounds`` runs a session's queries one after the other: draw, meet, pay, open, keep.

A round is one query with noise. Every party stores its opened values under the run's name and the round's number. A run
that broke off begins again with stored rounds, for which nothing is drawn, paid or sent.

Privacy:
    Claim: a round is opened once, however often a run breaks off. Why: its noise follows from a key that a party draws
    before the first round and keeps until the last, and from that party's rows. A round that broke off after some party
    saw its values is opened again with the same values, so nobody sees a second noise for one charge. A charge names
    its query, so another query, which would have the same noise, is not opened instead. Assumes: rows stay the same
    between two attempts; a provider does not continue with others. Noise is drawn before the others learn of the round,
    at a multiple of ``TICK`` after the round before. So times of messages reveal only the number of ticks of all draws
    together. Held by: tests/unit/secure/test_secure_rounds.py, tests/e2e/test_secure_resume.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, StrictInt, ValidationError

from pinq.errors import SessionError
from pinq.public.epsilon import NANO
from pinq.public.noise import SYSTEM, Bits
from pinq_secure.mpc.noise import stream

TICK = 0.02  # seconds: one number's noise takes a tenth of this at epsilon .0015
FIRST = "noise by digits"  # changes with the draws of a key, so that a session with other draws does not go on
MOST = 2**62  # no opened value is as large


@dataclass(frozen=True)
class Opened:
    """Values that all parties learned, and their meaning."""

    what: str
    values: tuple[int, ...]


class _KeptRound(BaseModel):
    """The record of a round, from this party or from one that was a round ahead."""

    place: str
    opened: list[Annotated[StrictInt, Field(ge=-MOST, le=MOST)]]


class Company:
    """The other parties and this party's ledger, as a round needs them; the base class has none.

    Attributes:
        tick: Seconds; others learn of a round at a multiple of these after the round before.
    """

    tick = 1e-9

    async def meet(self, number: int, place: str) -> None:
        """Waits for all others at a round; raises ``SessionError`` if one is at another place."""

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges the round at this place, once, for this number of values."""

    def keep(self, number: int, opened: str) -> None:
        """Stores the opened values of a round, once."""


class Rounds:
    """The rounds of one run at one party.

    Args:
        company: The other parties; by default none, as in one process.
        kept: The opened values of the rounds of earlier attempts.
        key: The key of this party's noise; None to draw one.
    """

    def __init__(self, company: Company | None = None, earlier: Sequence[str] = (), key: bytes | None = None) -> None:
        self.opened: list[Opened] = []
        self._company, self._kept = company or Company(), earlier
        self._key = SYSTEM.take(32) if key is None else key
        self._number, self._loss, self._place = 0, Fraction(0), FIRST
        self._ended = time.monotonic()

    async def ask(
        self,
        label: str,
        epsilon: Fraction,
        size: int,
        draw: Callable[[Bits], np.ndarray],
        work: Callable[[np.ndarray, Bits], Awaitable[np.ndarray]],
        *,
        query: bytes = b"",
    ) -> np.ndarray:
        """Opens the answer of one query.

        Args:
            label: The opened values.
            epsilon: The cost of the query, in the session's terms.
            size: The number of opened values.
            draw: A function that draws this party's noise from a source of bits.
            work: A function that opens the answer, from the noise and the source, and notes it in ``opened``.
            query: Further facts that must be equal at all parties.
        """
        number = self._number
        # Prices are rounded up together: three thirds of a nano cost one.
        nano = math.ceil((self._loss + epsilon) * NANO) - math.ceil(self._loss * NANO)
        place = _digest(f"{self._place} {number} {label} {nano}".encode() + query)
        if number < len(self._kept):
            values = self._read(number, place, size)
            self.opened.append(Opened(label, tuple(values)))
            answer = np.array(values, dtype=object)
            self._company.pay(number, place, nano, len(values))
        else:
            source = stream(_digest(self._key + number.to_bytes(8, "big")).encode())
            noise = await asyncio.to_thread(draw, source)
            await asyncio.sleep((self._ended - time.monotonic()) % self._company.tick)
            await self.meet(place)
            self._company.pay(number, place, nano, noise.size)
            answer = await work(noise, source)
            values = [int(value) for value in answer.ravel()]
        text = json.dumps({"place": place, "opened": values})
        self._company.keep(number, text)
        self._number, self._loss, self._place = number + 1, self._loss + epsilon, _digest(text.encode())
        self._ended = time.monotonic()
        return answer

    async def meet(self, place: str = "") -> None:
        """Waits for all others at this place; by default the place that follows from the opened values."""
        await self._company.meet(self._number, place or _digest(repr(self.opened).encode()))

    def _read(self, number: int, place: str, size: int) -> list[int]:
        """Reads a stored round, perhaps from another party."""
        try:
            record = _KeptRound.model_validate_json(self._kept[number])
        except ValidationError:
            record = _KeptRound(place=place, opened=[])
        if record.place == place and len(record.opened) != size:
            raise SessionError(
                f"what a party kept of round {number + 1} is no answer of its question. Nothing of this round left "
                "this party. Give the session another name to begin anew."
            )
        if record.place != place:
            raise SessionError(
                f"round {number + 1} was another question when it was opened: this party runs another version, or on "
                "another kind of machine. Go on with the version that began, or give the session another name."
            )
        return record.opened


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
