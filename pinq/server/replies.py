# SPDX-License-Identifier: Apache-2.0
"""The analyst's routes: functions from an accepted request and its body to JSON.

The functions do not depend on HTTP, and run in any process.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pinq.curator.deadline import Deadline, Stopped
from pinq.errors import NotAuthorised, QueryError, Refusal, unspent
from pinq.language.queries import Request
from pinq.language.wire import CHANGED, Description, HistoryPage, WireBudget, WirePreview
from pinq.ledger.state import Account
from pinq.provider.history import budget as budget_of, page
from pinq.server.datasets import Dataset


@dataclass
class Visit:
    """The facts about a request on its way through the server.

    Attributes:
        leased: The open dataset of this name; any other for an unknown name.
        dataset, grant: The dataset and grant of its token; None until it is accepted.
        reason: The reason why a token's owner is unknown, for the log.
        clock: The time at which its work began; buckets are counted from it.
        padded: Whether it has waited for the end of its bucket.
    """

    dataset_name: str
    token: str
    route: str = ""
    address: str = "-"
    deadline: Deadline = field(default_factory=Deadline)
    leased: Dataset | None = None
    dataset: Dataset | None = None
    grant: Account | None = None
    request: str | None = None
    reason: str | None = None
    started: float = field(default_factory=time.monotonic)
    clock: float = field(default_factory=time.monotonic)
    padded: bool = False

    def authorise(self, *, fresh: bool = True) -> None:
        """Checks its token; unless ``fresh``, by the state that this process has read.

        Raises:
            NotAuthorised: One text, after reading one ledger, for an unknown dataset and for a token that is wrong,
                expired, revoked or another dataset's; the gate hides remaining differences of time.
        """
        self.dataset = self.grant = None
        assert self.leased is not None
        grant = (
            self.leased.ledger.grant_of_token(self.token)
            if fresh
            else self.leased.ledger.known_grant_of_token(self.token)
        )
        if grant is None or self.leased.name != self.dataset_name:
            raise NotAuthorised()
        self.dataset, self.grant = self.leased, grant

    @property
    def opened(self) -> tuple[Dataset, Account]:
        """The dataset and the grant of the token."""
        assert self.dataset is not None
        assert self.grant is not None
        return self.dataset, self.grant


Work = Callable[[Visit, bytes], str]
"""The work of a route: from an accepted visit and the body to JSON. It can be pickled."""


def begun(work: Work, visit: Visit, body: bytes) -> str:
    """Does a request's work after reading the ledger for its token.

    Raises:
        Stopped: Its turn is over.
        NotAuthorised: Its token opens nothing.
    """
    visit.authorise()
    visit.deadline.check()
    return work(visit, body)


def remembered(work: Work, visit: Visit, body: bytes) -> str:
    """Does work that reveals nothing before its charge, which checks the token.

    The ledger is read for the token alone only if this process does not know it. Otherwise a count over PostgreSQL
    would be 1.2 times as expensive.
    """
    try:
        visit.authorise(fresh=False)
    except NotAuthorised:
        return begun(work, visit, body)
    try:
        return work(visit, body)
    except (Refusal, NotAuthorised, Stopped):
        visit.authorise()  # after the end of a grant only this error shows; errors after a charge have one text
        raise


def describe(visit: Visit, _: bytes) -> str:
    """The public facts of a dataset for the analyst of a token."""
    dataset, grant = visit.opened
    schema = dataset.curator.schema
    description = Description(
        dataset=dataset.name,
        analyst=grant.analyst,
        schema=schema,
        digest=schema.digest,
        terms=str(grant.terms),
        tables=tuple(dataset.policy.tables) or None,
        cohorts=dataset.policy.cohorts,
    )
    unsaid = {name for name in ("tables", "cohorts") if getattr(description, name) is None}
    return description.model_dump_json(by_alias=True, exclude=unsaid)


def budget(visit: Visit, _: bytes, part: str = "") -> str:
    """The granted, spent and remaining budget."""
    dataset, grant = visit.opened
    wire = WireBudget.of(budget_of(dataset.ledger, grant.analyst, dataset.curator.version_below(part)))
    return wire.model_dump_json(exclude_none=True)


def history(visit: Visit, _: bytes, start: str) -> str:
    """A page of the analyst's lines of the log."""
    if not (start.isascii() and start.isdigit()):
        raise QueryError("the request's address is malformed: `start` is a number of lines.")
    dataset, grant = visit.opened
    bucket = dataset.policy.padding_seconds

    def admit(work: int) -> None:
        visit.deadline.admit(work)
        dataset.curator.meter(grant.analyst, work)

    lines_of_log = page(
        dataset.ledger, grant.analyst, int(start[:20]), dataset.curator.version, bucket=bucket, admit=admit
    )
    lines = (line.model_copy(update={"at": coarse(line.at, bucket)}) for line in lines_of_log.lines)
    return HistoryPage(lines=tuple(lines), more=lines_of_log.more).model_dump_json(exclude_none=True)


def coarse(at: str, bucket: float) -> str:
    """Rounds a time down to the bucket of the padding and to whole seconds.

    Finer times would show when a request's turn came, and so the duration of earlier requests.
    """
    thousandths, width = round(1000 * datetime.fromisoformat(at).timestamp()), round(1000 * bucket) or 1
    return datetime.fromtimestamp((thousandths - thousandths % width) // 1000, UTC).isoformat()


def query(visit: Visit, body: bytes, schema: str | None) -> str:
    """Answers a query."""
    dataset, grant = visit.opened
    try:
        request = _request(visit, body)
    except QueryError as error:
        with dataset.curator.refusing(grant.analyst, _id(body)):
            raise error from None
    with dataset.curator.refusing(grant.analyst, request.id):
        if _changed(visit, schema):
            visit.authorise()
            stored = dataset.curator.stored_answer(grant.analyst, request, str(schema))
            if stored is None:
                raise QueryError(CHANGED)
            return stored.text  # a paid answer that was lost on its way outlives the policy
        return dataset.curator.ask(grant.analyst, request, visit.deadline).text


@unspent()
def preview(visit: Visit, body: bytes, schema: str | None) -> str:
    """The cost and accuracy of a query."""
    dataset, grant = visit.opened
    request = _request(visit, body)
    if _changed(visit, schema):
        raise QueryError(CHANGED)
    return WirePreview.of(dataset.curator.preview(grant.analyst, request, visit.deadline)).model_dump_json()


@unspent()
def attempt(visit: Visit, body: bytes, schema: str | None) -> str:
    """Refuses and logs an act that exceeds the remaining budget; else returns the budget."""
    dataset, grant = visit.opened
    request = _request(visit, body)
    if _changed(visit, schema):
        raise QueryError(CHANGED)
    dataset.curator.attempt(grant.analyst, request, visit.deadline)
    return budget(visit, body)


def _request(visit: Visit, body: bytes) -> Request:
    request = Request.received(body)
    visit.request = request.id
    return request


_ID = re.compile("[!-~]{1,64}")


def _id(body: bytes) -> str:
    """The id in a body, which may be malformed; empty for none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    match content:
        case {"id": str(name)} if _ID.fullmatch(name):
            return name
    return ""


def _changed(visit: Visit, schema: str | None) -> bool:
    """Whether the client has another schema than the present one."""
    return schema is not None and schema != visit.opened[0].curator.schema.digest
