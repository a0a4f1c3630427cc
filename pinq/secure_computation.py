# SPDX-License-Identifier: Apache-2.0
"""The interface between the provider's side and an implementation of secure computation.

``pinq secure`` checks a policy, reads the rows and charges the ledger; the implementation knows
sessions, secret sharing and networks. It registers itself as the entry point ``computation`` of the
group ``pinq.provider.secure`` (``pinq.public.plugins``). ``miners.secure.provider`` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from pinq.language.specs import Cuts, Values
from pinq.public.plugins import install_line, plugin
from pinq.public.schema import Schema

MISSING = f"Computing among several parties needs an implementation: {install_line('secure')}."


@dataclass(frozen=True)
class Identity:
    """Files with a party's certificate chain and private key, PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Joining:
    """The parameters with which a party joins a session.

    Attributes:
        party: Its number.
        identity: Its certificate and key; None where the session names no certificates.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on, or None for the default.
        progress: Called with a line of text for each step.
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
        bytes_sent: To all other parties.
        seconds: By the clock.
        processor_seconds: The processor seconds of this party's process.
    """

    bytes_sent: int
    seconds: float
    processor_seconds: float


@dataclass(frozen=True)
class FieldSize:
    """The size of a session's secret numbers, and the number of parties that could read them.

    Attributes:
        bits: The longest numbers that are compared.
        field_bits: The size of the prime field in which they are computed.
        threshold: How many parties learn nothing, even if they pool their shares; one more could
            read everything.
    """

    bits: int
    field_bits: int
    threshold: int


@dataclass(frozen=True)
class Holding:
    """One party's rows, encoded: the distinct rows, and how often each occurs.

    Attributes:
        codes: The value of each attribute, then of the target; shape (attributes + 1, distinct rows).
        counts: Shape (distinct rows,).
    """

    codes: np.ndarray
    counts: np.ndarray

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    @cached_property
    def each(self) -> np.ndarray:
        """Every single row, shape (attributes + 1, rows)."""
        return np.repeat(self.codes, self.counts, axis=1)

    @staticmethod
    def joined(holdings: Sequence[Holding]) -> Holding:
        """All rows of several parties, as one holding."""
        codes = np.concatenate([holding.codes for holding in holdings], axis=1)
        return Holding(codes, np.concatenate([holding.counts for holding in holdings]))


class Booking(Protocol):
    """This party's ledger, as one run of a session pays from it.

    A run with noise is known by its session, so that a run that broke off goes on where it was.
    """

    def kept(self) -> list[str]:
        """Returns what the rounds of earlier attempts opened, from the first on; see ``keep``."""

    def noise_key(self, rounds: int) -> bytes:
        """Returns what this party's noise follows from, the same until the run is finished.

        Args:
            rounds: How many were opened before, and are kept at some party.
        """

    def pace(self) -> float:
        """Returns for how many seconds no further round may be charged."""

    def begin(self, run: str) -> None:
        """Hears that all parties agree on this run; logs it where nothing of it will be charged."""

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        """Charges a round, numbered from 0, unless it was charged before.

        Args:
            number: The number of the round.
            place: A digest of what it asks, and of what came before; the charge is for this alone.
            nano: Its cost, nano-epsilons.
            cells: How many values it opens.
        """

    def keep(self, number: int, opened: str) -> None:
        """Keeps what a charged round opened, unless it was kept before."""

    def finish(self) -> None:
        """Hears that the last round was opened."""


class SessionMember(Protocol):
    """One party as the session names it."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def lookups(self) -> int: ...
    @property
    def certificate_der(self) -> bytes | None: ...


class SecureSession(Protocol):
    """The agreement of all parties, as far as a provider checks it.

    See docs/secure.md for each field.
    """

    @property
    def session(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def noise(self) -> str: ...
    @property
    def epsilon(self) -> Decimal | None: ...
    @property
    def nano(self) -> int: ...
    @property
    def colluding_parties(self) -> int: ...
    @property
    def parties(self) -> Sequence[SessionMember]: ...
    @property
    def schema_(self) -> Schema: ...
    @property
    def splits(self) -> Sequence[Values | Cuts]: ...
    @property
    def opened(self) -> tuple[str, ...]: ...
    @property
    def text(self) -> str: ...
    @property
    def digest(self) -> str: ...

    def number(self, party: str) -> int:
        """Returns the number of a party that is given by number or name.

        Raises ``SessionError`` if there is none.
        """


class LearnedModel(Protocol):
    """A tree or a scorecard that a session opened."""

    def to_json(self) -> str: ...
    def export_text(self) -> str: ...


class OpenedValues(Protocol):
    """Numbers that a session opened, and what they are."""

    @property
    def what(self) -> str: ...
    @property
    def values(self) -> tuple[int, ...]: ...


class SecureResult(Protocol):
    """The result of a party."""

    @property
    def tree(self) -> LearnedModel | None: ...
    @property
    def scorecard(self) -> LearnedModel | None: ...
    @property
    def depths(self) -> tuple[int, ...] | None: ...
    @property
    def looked_up(self) -> np.ndarray: ...
    @property
    def opened(self) -> Sequence[OpenedValues]: ...


AnySession = TypeVar("AnySession")


class SecureComputation(Protocol[AnySession]):
    """An implementation of the protocols, for the sessions that it makes itself."""

    def load_session(self, path: Path) -> AnySession:
        """Reads a session file. Raises ``SessionError`` if it cannot be read or cannot be a session."""

    def draft_session(self, fields: Mapping[str, Any]) -> AnySession:
        """Makes a session of its fields, ``reveals`` filled in.

        ``QueryError`` that names each wrong field.
        """

    def field_size(self, session: AnySession) -> FieldSize:
        """Returns how large the session's secret numbers are."""

    def estimate(self, session: AnySession) -> str:
        """Returns what a party is going to send, and how long it takes, a sentence."""

    def plan(self, session: AnySession) -> str:
        """Returns the queries with their fractions of epsilon, as text.

        It is empty where nothing is asked step by step.
        """

    def certificate(self, text: str) -> bytes:
        """Returns the first certificate of a PEM file, DER. Raises ``ValueError`` if there is none."""

    def hold(self, session: AnySession, table: Any) -> Holding:
        """Encodes a pandas or Arrow table; rows with a missing or undeclared value are left out."""

    def lookup_codes(self, session: AnySession, table: Any) -> np.ndarray:
        """Encodes rows to look up, shape (rows, attributes).

        Raises ``QueryError`` if a value is missing or not declared.
        """

    def run(
        self,
        session: AnySession,
        joining: Joining,
        holding: Holding,
        *,
        lookups: np.ndarray | None,
        booking: Booking,
    ) -> tuple[SecureResult, Traffic]:
        """Runs one party's side of a session to its end.

        Args:
            session: The agreement.
            joining: Which party this is, and how it joins.
            holding: This party's rows.
            lookups: The codes of the rows that it looks up, or None.
            booking: This party's ledger. Each round is charged just before its shares leave.

        Raises:
            SessionError: The parties could not agree or finish. Errors of ``booking`` pass through.
        """

    def simulate(self, session: AnySession, holdings: Sequence[Holding]) -> SecureResult:
        """Runs all parties in this process; protects nothing.

        Returns what the first party would learn.
        """


def secure_computation() -> SecureComputation[SecureSession]:
    """Loads the registered implementation. Raises ``QueryError`` if there is none."""
    return plugin("pinq.secure", "computation", MISSING)
