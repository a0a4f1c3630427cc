# SPDX-License-Identifier: Apache-2.0
"""``Runtime`` names all that the protocols need of a library for secret sharing.

Arrays of *shares* hold one number modulo a prime p for each secret, as Python integers in object
arrays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np

__all__ = ["Connection", "Runtime", "SecretIntegers", "Shares"]

Shares = np.ndarray
"""One party's shares, objects that are Python integers; any shape."""


class Connection(Protocol):
    """Carries messages to and from one other party, each with a label that both ends know."""

    def send(self, label: int, payload: bytes) -> None:
        """Sends a message."""

    def receive(self, label: int) -> bytes | asyncio.Future[bytes]:
        """Returns the message of this label, or a future of it where it has not arrived."""


class SecretIntegers(Protocol):
    """Steps on secret integers of one field that need the other parties. No array is empty."""

    @property
    def modulus(self) -> int:
        """The prime p."""

    async def share(self, values: np.ndarray, owner: int) -> Shares:
        """Shares the values of party ``owner``; the others pass any array of their shape."""

    async def share_all(self, values: np.ndarray) -> list[Shares]:
        """Shares the values of every party; returns the shares of each party's array."""

    async def reshare(self, products: Shares) -> Shares:
        """Turns shares on polynomials of twice the degree into fresh shares of the same secrets."""

    async def is_negative(self, secrets: Shares, bits: int) -> Shares:
        """Returns shares of 1 where a secret of at most ``bits`` bits is below 0, else of 0."""

    async def is_zero(self, secrets: Shares) -> np.ndarray:
        """Opens whether each secret is 0, to all."""

    async def open(self, secrets: Shares, receiver: int | None) -> np.ndarray | None:
        """Opens secrets to all parties or to one, as signed numbers.

        Returns None at a party that receives nothing.
        """


class Runtime(Protocol):
    """One party's side of a computation among several."""

    @property
    def parties(self) -> int:
        """How many processes compute: all parties, or 1 in a simulation."""

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""

    def integers(self, bits: int) -> SecretIntegers:
        """Returns the field in which integers of at most ``bits`` bits are compared."""

    def keys_for(self, party: int) -> list[bytes]:
        """Returns the keys of common randomness that this party gives to another one."""

    def accept_keys(self, party: int, keys: Sequence[bytes]) -> None:
        """Takes the keys that another party gave."""
