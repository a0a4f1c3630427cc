# SPDX-License-Identifier: Apache-2.0
"""The parameters of a party that joins a session, and the interface of the ledger from which it pays.

``pinq_secure.booking`` implements it for the ledger of a policy; tests have simpler ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Identity:
    """Files with a party's certificate chain and private key, PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Joining:
    """The parameters with which a party joins a session.

    Attributes:
        identity: Its certificate and key; None if the session names no certificates.
        wait: The seconds within which all parties must join.
        listen: The address on which it accepts other parties; None for all, or for the session's local host.
        progress: A function that gets a line of text for each step.
    """

    party: int
    identity: Identity | None
    wait: float
    listen: str | None
    progress: Callable[[str], None]


@dataclass(frozen=True)
class Traffic:
    """The bytes that a party sent during the protocol, and its time, including the sharing of inputs.

    Attributes:
        processor_seconds: The processor seconds of this party's process.
    """

    bytes_sent: int
    seconds: float
    processor_seconds: float


class Booking(Protocol):
    """This party's ledger, from which one run of a session is paid.

    With noise, a session is one run: after an interruption it continues.
    """

    def kept(self) -> list[str]:
        """The opened values of all rounds so far, in order; see ``keep``."""

    def noise_key(self, rounds: int) -> bytes:
        """The key of this party's noise, constant until the run is finished.

        Args:
            rounds: The number of rounds that some party has stored.
        """

    def pace(self) -> float:
        """The seconds until a further round may be charged."""

    def begin(self, run: str) -> None:
        """Records that all parties agree on this run; a run without charges is logged too."""

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges a round, numbered from 0, unless it was charged before."""

    def keep(self, number: int, opened: str) -> None:
        """Stores the opened values of a charged round, unless they were stored before."""

    def finish(self) -> None:
        """Records that the last round was opened."""
