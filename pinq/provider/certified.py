# SPDX-License-Identifier: Apache-2.0
"""``verify_certificate`` computes a model again from the answers in a ledger.

A fit is deterministic given its answers. So the stored miner is fitted once more, on the ledger's answers under the
certificate's ids. If the same model comes out, the certificate holds.

Privacy:
    Claim: it reads no row. Why: it computes from released answers and from the model.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Session
from pinq.curator.monitor import identified
from pinq.errors import PinqError, QueryError
from pinq.language.queries import Answer, Budget, Certificate, Preview, Request
from pinq.ledger.composition import Costs
from pinq.ledger.events import Charged, Event
from pinq.provider.opening import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import MAX_EPSILON, Epsilon, Exact
from pinq.public.plugins import plugin
from pinq.public.schema import Schema

UNLIMITED = Exact(MAX_EPSILON)


@dataclass(frozen=True)
class Verified:
    """The proof that a model follows from the answers of a ledger, with their cost.

    Attributes:
        entries: Number and hash of each charge, in the order of the fit.
        loss: The cost of these answers alone, by the log's recursion.
        head: Number and hash of the log's last event.
    """

    miner: str
    analyst: str
    entries: tuple[str, ...]
    loss: Epsilon
    head: str

    def to_dict(self) -> dict[str, object]:
        return vars(self) | {"answers": len(self.entries), "loss": str(self.loss)}


def verify_certificate(
    certificate: str | os.PathLike[str],
    policy: str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str],
    ledger: str | os.PathLike[str] | None = None,
) -> Verified:
    """Proves that a model follows from the answers of a ledger, and returns their cost.

    Args:
        certificate: A file with the text of ``miner.certificate().to_json()``.
        policy: The policy of the ledger.
        model: A file with the text of ``miner.to_json()``.
        ledger: A ledger's file, instead of the policy's.

    Raises:
        QueryError: Not proved; the text says why.
        LedgerError: The ledger cannot be trusted.
    """
    stated, text = Certificate.from_json(_read(certificate)), _read(model)
    miner, ids = _stored(text), set(stated.requests)
    reason = "the ledger has no charge under the ids of the certificate."
    with closing(read_ledger(None if policy is None else load_policy(policy), ledger)) as opened:
        events = list[Event]()
        opened.verify(lambda event: events.append(event) if event.request in ids else None)
        # Ids are unique for one analyst only; two analysts who fit with `reuse` draw the same ids.
        for analyst in sorted({event.analyst for event in events}):
            session = _Answers(miner.schema_, opened.log.state.places)
            answers = opened.log.answers(analyst, ids)
            for event in events:
                if event.analyst == analyst and event.request in answers and isinstance(event.record, Charged):
                    session.add(event.record, f"{event.seq}:{event.hash}", answers[event.request])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # warnings of poor accuracy were shown at the first fit
                    part = stated.part.bind(session.schema).at(0)
                    again = miner.fitted_again(PrivateQueryable(cast(Session, session), part)).to_json()
            except PinqError as error:
                reason = str(error)
                continue
            if _rounded(again) == _rounded(text):
                head = f"{opened.log.seq}:{opened.log.last}"
                return Verified(repr(miner), analyst, tuple(session.used), session.costs.spent, head)
            reason = f"the answers make another model than {Path(model).name}."
    raise QueryError(f"not proved: {reason}")


class _Answers:
    """A session that replays charged answers, each once, for the query that was charged."""

    def __init__(self, schema: Schema, places: Mapping[int, str]) -> None:
        self.name, self.schema, self.costs, self.used = "replayed", schema, Costs(), list[str]()
        self.tables, self.cohorts, self._places, self._digest = (), None, places, schema.digest
        self._charges: defaultdict[tuple[str, Epsilon], deque[tuple[Charged, str, str]]] = defaultdict(deque)

    def add(self, charged: Charged, entry: str, answer: str) -> None:
        """Adds an answer after earlier ones to the same query. All answers are of one table."""
        self._digest = identified(self.schema.digest, self._places.get(charged.version, "").partition(" ")[0])
        self._charges[charged.query.identity, charged.epsilon].append((charged, entry, answer))

    def ask(self, request: Request) -> Answer:
        answers = self._charges[request.identity(self._digest), Epsilon.of(request.epsilon)]
        if not answers:
            raise QueryError(f"the fit asks a {request.verb} that was not charged under the ids of the certificate.")
        charged, entry, answer = answers.popleft()
        self.used.append(entry)
        self.costs.charge(charged.demand, charged.epsilon, charged.version, self._places)
        return Answer.from_json(answer)

    def preview(self, _: Request) -> Preview:
        """A preview without cost: the answers are paid."""
        return Preview(Exact(0), UNLIMITED, "")

    def attempt(self, _: Request) -> None:
        """Refuses nothing: the answers are paid."""

    def budget(self, _: str = "") -> Budget:
        return Budget(UNLIMITED, self.costs.spent.exact, UNLIMITED)


def _stored(text: str) -> Any:
    """Reads a stored model of any miner that can be fitted again."""
    miners = plugin("pinq.provider", "miners", "A model is made again by the package `miners`.")
    try:
        name = json.loads(text)["format"].removeprefix("pinq-")
        kind = getattr(miners, name if name in miners.__all__ else "")
        _ = kind.fitted_again
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise QueryError("not proved: this is no stored model of a miner that can be fitted again.") from None
    return kind.from_json(text)


def _rounded(text: str) -> object:
    """A model without its bill, numbers rounded to nine digits, because machines differ in the last digits."""
    tiny = 1e-9
    content = json.loads(text, parse_float=lambda digits: f"{float(digits):.9g}" if abs(float(digits)) > tiny else "0")
    return content | {"cost": ""}


def _read(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise QueryError(f"{Path(file).name} is not text.") from None
