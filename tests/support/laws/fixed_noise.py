# SPDX-License-Identifier: Apache-2.0
"""Noise that is the same each time, so that what passed here passes elsewhere; `make explore` draws new noise.

The samplers of the product ask the operating system and cannot be seeded. In a process that tests, the random bits that
they ask for come from a generator that the name of a test seeds (or the name of a fixture that several tests share, so
that their order does not matter). Samplers, scales, sensitivities and all that is done with noise stay the product's.

Tests of the noise itself draw from the product's samplers, as do all processes that a test starts; they say how often a
right sampler fails them: tests/support/laws/laws.py.
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

import numpy as np

OF_NOISE = ("tests/privacy/", "tests/contract/test_every_mechanism.py", "tests/integration/test_selftest.py")
"""Tests whose subject is the noise."""
ASK_THE_SYSTEM = (
    "pinq.curator.mechanisms",
    "pinq.curator.noise",
    "pinq.ledger.ledger",
    "pinq_secure.sums",
)
"""Modules whose ``secrets`` decide numbers that tests compare: noise, choices, who is dealt into which shard, parties' noise."""


class Coins:
    """What this process draws from: generators of the current name, or the operating system."""

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
        """Draws under another name, after which the former goes on where it was."""
        before = self._numbers, self._words
        self.seed(name)
        try:
            yield
        finally:
            self._numbers, self._words = before
            _forget_rehearsals()

    def urandom(self, size: int) -> bytes:
        return self._numbers.bytes(size) if self._numbers is not None and self.seeded else os.urandom(size)

    def randbits(self, bits: int) -> int:
        return self._words.getrandbits(bits) if self.seeded else secrets.randbits(bits)

    def randbelow(self, limit: int) -> int:
        return self._words.randrange(limit) if self.seeded else secrets.randbelow(limit)

    def token_hex(self, size: int) -> str:
        return self._words.randbytes(size).hex() if self.seeded else secrets.token_hex(size)


COINS = Coins()


def _forget_rehearsals() -> None:
    """A kind of request that passed before draws nothing, and hides what a test breaks."""
    if (rehearsal := sys.modules.get("pinq.curator.monitor")) is not None:
        rehearsal.passed_under.cache_clear()


def take_over() -> None:
    """Puts the samplers in their places, as far as these are imported."""
    for name in ASK_THE_SYSTEM:
        if (module := sys.modules.get(name)) is not None and module.secrets is secrets:
            drawn = SimpleNamespace(randbits=COINS.randbits, randbelow=COINS.randbelow, token_hex=COINS.token_hex)
            vars(module)["secrets"] = drawn
    if (noise := sys.modules.get("pinq.curator.noise")) is not None:
        noise.os = SimpleNamespace(urandom=COINS.urandom)  # type: ignore[attr-defined]


def seed_of(name: str) -> str | None:
    """What a test, or a fixture of a file, is seeded by."""
    return None if name.startswith(OF_NOISE) else name
