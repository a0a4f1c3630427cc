# SPDX-License-Identifier: Apache-2.0
"""``NativeRuntime`` and its parts name what we use of MPyC, which has no types of its own.

Names are MPyC's, also those that begin with an underscore. Only ``mpyc_runtime`` meets objects of
these types.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableSequence, Sequence
from typing import Protocol, overload

import numpy as np

from miners.secure.mpc.runtime import Connection

__all__ = ["Field", "FieldArray", "NativeRuntime", "Party", "RuntimeModule", "SecureArray", "SecureIntegers"]


class FieldArray(Protocol):
    """An array of numbers modulo the field's prime, one party's shares or opened numbers."""

    @property
    def value(self) -> np.ndarray: ...
    def signed_(self) -> np.ndarray: ...


class Field(Protocol):
    """A prime field."""

    modulus: int
    order: int

    def array(self, values: np.ndarray) -> FieldArray: ...


class SecureIntegers(Protocol):
    """The kind of secure integers of one length: its field, and its arrays."""

    field: Field

    def array(self, shares: FieldArray) -> SecureArray: ...


class SecureArray(Protocol):
    """An array of secure integers: shares that may still be on their way."""

    sectype: SecureIntegers
    shape: tuple[int, ...]


class Party(Protocol):
    """One party, with the connection to it."""

    protocol: Connection | None


class NativeRuntime(Protocol):
    """MPyC's own runtime of one party."""

    parties: Sequence[Party]
    pid: int
    threshold: int
    _loop: asyncio.AbstractEventLoop

    def SecInt(self, bits: int) -> SecureIntegers: ...
    @overload
    def input(self, values: SecureArray) -> Sequence[SecureArray]: ...
    @overload
    def input(self, values: SecureArray, senders: int) -> SecureArray: ...
    def gather(self, secure: SecureArray) -> Awaitable[FieldArray]: ...
    def output(
        self, shares: FieldArray, receivers: int | None = None, threshold: int | None = None
    ) -> Awaitable[FieldArray | None]: ...
    def np_sgn(self, secure: SecureArray, *, l: int, LT: bool) -> SecureArray: ...  # noqa: E741
    def np_is_zero_public(self, secure: SecureArray) -> Awaitable[np.ndarray]: ...
    def prfs(self, order: int) -> object: ...
    def _reshare(self, shares: FieldArray) -> Awaitable[FieldArray]: ...
    def _prss_uci(self) -> bytes: ...
    def _prss_keys_to_peer(self, party: int) -> Sequence[bytes]: ...
    def _prss_keys_from_peer(self, party: int, keys: bytes) -> None: ...


class RuntimeModule(Protocol):
    """The module ``mpyc.runtime``."""

    pickle: object
    mpc: NativeRuntime
    Party: Callable[[int], Party]


Runtimes = Callable[[int, MutableSequence[Party], object], NativeRuntime]
"""Makes a party's runtime from its number, all parties, and options."""
