# SPDX-License-Identifier: Apache-2.0
"""Noise that is the same in each run, so that a passing test passes elsewhere too; `make explore` draws new noise.

The product's samplers take random bits from the operating system and cannot be seeded. In a test process, the bits come
from a generator that is seeded by the name of the test, or by the name of a fixture that several tests share, so that
their order does not matter. Samplers, scales and sensitivities stay those of the product.

Tests of the noise itself draw from the product's samplers, and so do all processes that a test starts. These tests state
how often they fail for a correct sampler: tests/support/laws/laws.py.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pinq.public.noise import Bits

OF_NOISE = ("tests/privacy/", "tests/contract/test_every_mechanism.py", "tests/integration/test_selftest.py")
"""Tests whose subject is the noise."""


class Coins:
    """The source of this process's random bits: generators of the current name, or the operating system."""

    def __init__(self) -> None:
        self._numbers: np.random.Generator | None = None
        self._words = random.Random()
        self._process = os.getpid()

    @property
    def seeded(self) -> bool:
        """Whether draws repeat. A process that was forked does not repeat its parent."""
        return self._numbers is not None and self._process == os.getpid()

    def seed(self, name: str | None) -> None:
        """Starts the draws of a name; None for the operating system's."""
        key = None if name is None or os.environ.get("PINQ_EXPLORE") else hashlib.blake2b(name.encode()).digest()
        self._numbers = None if key is None else np.random.default_rng(np.frombuffer(key, dtype=np.uint64))
        self._words = random.Random(key)
        self._process = os.getpid()
        _forget_rehearsals()

    @contextmanager
    def apart(self, name: str | None) -> Iterator[None]:
        """Draws under another name; afterwards the former name continues where it was."""
        before = self._numbers, self._words
        self.seed(name)
        try:
            yield
        finally:
            self._numbers, self._words = before
            _forget_rehearsals()

    def words(self, numbers: int) -> np.ndarray:
        if self._numbers is None or not self.seeded:
            return _of_the_product().words(numbers)
        return np.frombuffer(self._numbers.bytes(8 * numbers), dtype=np.uint64)

    def word(self) -> int:
        return self._words.getrandbits(64) if self.seeded else _of_the_product().word()

    def below(self, limit: int) -> int:
        return self._words.randrange(limit) if self.seeded else _of_the_product().below(limit)

    def token_hex(self, size: int) -> str:
        return self._words.randbytes(size).hex() if self.seeded else secrets.token_hex(size)


COINS = Coins()


def _of_the_product() -> Bits:
    bits = sys.modules["pinq.public.noise"]
    return bits.Bits(bits.WATCHED.take)


def _forget_rehearsals() -> None:
    """Forgets passed rehearsals, because a kind of request that passed is not rehearsed again and would hide faults."""
    if (rehearsal := sys.modules.get("pinq.curator.monitor")) is not None:
        rehearsal.passed_under.cache_clear()


def take_over() -> None:
    """Replaces the sources of random bits in all imported modules."""
    # The salt of a ledger decides the shard of each person.
    if (ledger := sys.modules.get("pinq.ledger.ledger")) is not None:
        vars(ledger)["secrets"] = SimpleNamespace(token_hex=COINS.token_hex)
    if (bits := sys.modules.get("pinq.public.noise")) is not None:
        vars(bits.SYSTEM).update(words=COINS.words, word=COINS.word, below=COINS.below)


def seed_of(name: str) -> str | None:
    """The name that seeds a test, or a fixture of a file; None for the noise of the system."""
    return None if name.startswith(OF_NOISE) else name
