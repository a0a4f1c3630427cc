# SPDX-License-Identifier: Apache-2.0
"""``verify_certificate`` compares a model's certificate with the ledger that charged its answers.

Privacy:
    Claim: it reads no row. Why: it compares digests with the log, which holds what was released.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pinq.errors import LedgerError, QueryError
from pinq.ledger.composition import Costs
from pinq.ledger.events import Event
from pinq.ledger.requests import Answered, Charged
from pinq.provider.local import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.certificate import Certificate, Release, digest_of
from pinq.public.epsilon import Epsilon

__all__ = ["Verified", "verify_certificate"]


@dataclass(frozen=True)
class Verified:
    """A certificate that the ledger bears out.

    Attributes:
        certificate: What was verified.
        analyst: Whose answers they are.
        entries: Number and hash of each charge, in the certificate's order.
        loss: What the answers cost together by the log's own recursion, whatever else was asked.
        head: Number and hash of the log's last event.
        model: Whether the model itself was there and is the one.
    """

    certificate: Certificate
    analyst: str
    entries: tuple[tuple[int, str], ...]
    loss: Epsilon
    head: tuple[int, str]
    model: bool

    def to_dict(self) -> dict[str, object]:
        """Returns plain values, for JSON."""
        return {
            "miner": self.certificate.miner,
            "analyst": self.analyst,
            "answers": len(self.entries),
            "loss": str(self.loss),
            "claimed": self.certificate.epsilon,
            "model_verified": self.model,
            "entries": [f"{number}:{chained}" for number, chained in self.entries],
            "head": f"{self.head[0]}:{self.head[1]}",
        }


def verify_certificate(
    certificate: str | os.PathLike[str],
    policy: str | os.PathLike[str] | None = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
) -> Verified:
    """Compares a certificate with a ledger, with the policy and with the model.

    Args:
        certificate: A file with what ``miner.certificate().to_json()`` gave.
        policy: The policy whose ledger it is; its public part must be the certificate's.
        ledger: A ledger's file, instead of the policy's.
        model: A file with what ``miner.to_json()`` gave.

    Raises:
        QueryError: Something is not what the certificate says; the text says what.
        LedgerError: The ledger cannot be trusted, or its answers cost more than the model claims.
    """
    stated = Certificate.from_json(_read(certificate))
    loaded = None if policy is None else load_policy(policy)
    if loaded is not None and loaded.schema_.digest != stated.schema_digest:
        raise QueryError(
            f"the certificate is of a policy with the public part {stated.schema_digest}; this one has "
            f"{loaded.schema_.digest}."
        )
    if model is not None and digest_of(_read(model)) != stated.model:
        raise QueryError(f"{Path(model).name} is not the model of the certificate, or was changed.")
    with closing(read_ledger(loaded, ledger)) as opened:
        opened.verify()
        events = list(opened.events())
    analyst, charges = _charged(stated, events)
    costs = Costs()
    for _, charged in charges:
        costs.charge(charged.demand, charged.epsilon)
    if costs.spent > Epsilon.of(stated.epsilon):
        raise LedgerError(
            f"the answers of the certificate cost {costs.spent} together, more than the {stated.epsilon} it claims."
        )
    entries = tuple((event.seq, event.hash) for event, _ in charges)
    return Verified(stated, analyst, entries, costs.spent, (events[-1].seq, events[-1].hash), model is not None)


Charges = dict[tuple[str, str], tuple[Event, Charged]]
"""By analyst and request: the event, and what it charged."""


def _charged(stated: Certificate, events: Iterable[Event]) -> tuple[str, list[tuple[Event, Charged]]]:
    """Finds the charge of each release; ``QueryError`` where one is not there, or was another."""
    wanted = {release.request: release for release in stated.releases}
    charges: Charges = {}
    answers: dict[tuple[str, str], str] = {}
    for event in events:
        if event.request in wanted:
            key = (event.analyst, event.request)
            match event.record:
                case Charged() as charged:
                    charges[key] = event, charged
                case Answered() as answered:
                    answers[key] = answered.payload
    # Request ids are an analyst's own: ana's 17 and bob's 17 are two requests. The model is one
    # analyst's who was charged for all of its releases and got just these answers.
    analysts = {analyst for analyst, _ in charges}
    for analyst in sorted(analysts):
        if all(_matches(release, analyst, charges, answers) for release in wanted.values()):
            return analyst, [charges[analyst, release.request] for release in stated.releases]
    # No analyst matched: what nobody was charged for at all is named first.
    unmatched = (
        release
        for release in wanted.values()
        if not any(_matches(release, analyst, charges, answers) for analyst in analysts)
    )
    missing = next(unmatched, None)
    if missing is None:
        raise QueryError("no analyst got all answers of the certificate, or it names none; a model is one analyst's.")
    known = "has another question or answer" if any(key[1] == missing.request for key in charges) else "has no charge"
    raise QueryError(f"the ledger {known} under the id {missing.request!r} of the certificate's {missing.verb}.")


def _matches(release: Release, analyst: str, charges: Charges, answers: dict[tuple[str, str], str]) -> bool:
    key = analyst, release.request
    if key not in charges or answers.get(key) != release.answer:
        return False
    _, charged = charges[key]
    logged = charged.question.question, charged.question.verb, charged.epsilon
    return logged == (release.question, release.verb, Epsilon.of(release.epsilon))


def _read(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise QueryError(f"{Path(file).name} is not text.") from None
