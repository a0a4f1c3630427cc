# SPDX-License-Identifier: Apache-2.0
"""``join`` takes a provider's rows into a computation among several parties.

::

    fit ── affordable? ── encode ── agree ── charge, share, open, keep: a round at a time ── result
    policy  ledger        engine    hash     ledger  shares only

Privacy:
    With noise, what a session opens is epsilon-DP for the rows of every party together, in the session's adjacency and
    privacy unit, which must be the policy's. The implementation claims that (pinq_secure/id3/public_tree.py). Each
    round is charged to the grant of ``analyst`` before anything of it is sent, and its opened values are its answer in
    the ledger. Without noise the exact result leaks, which no epsilon describes: the policy must declare ``secure:
    exact``, and the log gets an event instead of a charge. Refusals follow from session, policy and ledger, never from
    rows that the policy admits: a table with more than its ``max_rows``, for which there is no claim and no field,
    never takes part. One refusal follows from rows, and only this party sees it: a session that began with other rows
    does not continue with these. Held by: tests/e2e/test_secure_session.py, tests/integration/test_secure_provider.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pinq.analyst.tokens import require_private
from pinq.engine import Listed, TableRequest
from pinq.errors import PinqError, PolicyError, QueryError, SessionError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Axis, Values, bind
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import open_rows
from pinq.public.schema import Value
from pinq_secure.booking import LedgerBooking
from pinq_secure.id3.task import Holding
from pinq_secure.session.loss import Loss
from pinq_secure.session.network import Identity
from pinq_secure.session.party import Joining, Traffic, run_party
from pinq_secure.session.session import Session, first_certificate, load_session

NOTHING_LEFT = "Nothing left this party."


@dataclass(frozen=True)
class Result:
    """The result of this party.

    Attributes:
        run: The name of this run of the session in the ledger of each party.
        tree: The public tree as JSON (``miners.Tree.from_json``); None if it stays secret.
        scorecard: The fitted scorecard as JSON (``miners.FederatedScorecard.from_json``, of a numeric target
            ``FederatedScorecardRegressor``); None for trees.
        depths: SID3T: the lengths of paths.
        classes: The classes of the rows that this party looked up.
        traffic: The bytes that it sent, and the time of the protocol.
        loss: Epsilon and delta of a row, and the largest number of comparisons.
    """

    run: str
    tree: str | None
    scorecard: str | None
    depths: tuple[int, ...] | None
    classes: tuple[Value, ...]
    traffic: Traffic
    loss: Loss

    def to_dict(self) -> dict[str, object]:
        return {
            "run": self.run,
            "tree": None if self.tree is None else json.loads(self.tree),
            "scorecard": None if self.scorecard is None else json.loads(self.scorecard),
            "depths": self.depths,
            "classes": list(self.classes),
            "bytes_sent": self.traffic.bytes_sent,
            "seconds": round(self.traffic.seconds, 3),
            **self.loss.to_dict(),
        }


def join(
    session: str | os.PathLike[str] | Session,
    party: str,
    policy: str | os.PathLike[str] | Policy,
    *,
    agree: str,
    analyst: str | None = None,
    identity: Identity | None = None,
    lookups: Any = None,
    data: Any = None,
    wait: float = 600,
    listen: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Takes part in a session with a policy's rows.

    Args:
        session: A session file, or a loaded session.
        party: The number or name of this party.
        policy: The reviewed policy of the rows.
        agree: The session's hash (16 hexadecimal digits or more), as this party has checked it.
        analyst: The analyst whose grant is charged; required with noise.
        identity: This party's certificate and key; required if the session names certificates.
        lookups: SID3T and SID3S: a table of rows to classify.
        data: An Arrow table or pandas frame in place of the policy's source.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the session's.
        progress: A function that is called with a line of text for each step.

    Raises:
        SessionError: The hash differs, or the parties could not agree or finish.
        PolicyError: The policy does not fit the session, or does not permit it.
        BudgetExceeded, NotAuthorised, NotAllowed: The ledger refused; this party sent nothing.
    """
    agreed = load_session(Path(session)) if isinstance(session, (str, os.PathLike)) else session
    loaded, number = load_policy(policy), agreed.number(party)
    if len(agree) < 16 or not agreed.digest.startswith(agree.lower()):
        raise SessionError(
            f"the session's hash is {agreed.digest}, and not {agree!r}. "
            "Compare with the other parties which file is meant; give at least 16 digits."
        )
    require_fit(agreed, number, loaded)
    _require_identity(agreed, number, identity)
    joining = Joining(number, identity, wait, listen, progress)
    codes = None if lookups is None else agreed.task.lookup_codes(lookups)
    allowed = agreed.parties[number].lookups
    if codes is not None and len(codes) > allowed:
        raise QueryError(f"{len(codes)} rows are to be looked up; the session allows this party {allowed}.")
    with closing(open_ledger(loaded)) as ledger:
        booking = LedgerBooking(ledger, agreed, number, analyst, loaded.schema_)
        booking.require_affordable()
        holding, booking.version = _encoded_rows(agreed, loaded, ledger, data)
        booking.require_same_rows(holding)
        try:
            learned, traffic = run_party(agreed, joining, holding, booking, codes)
        except PinqError as error:
            error.charged = booking.charged.exact
            raise
    tree, scorecard = (None if model is None else model.to_json() for model in (learned.tree, learned.scorecard))
    # Only trees classify rows, and their target is categorical.
    values = agreed.schema_.categorical(agreed.target).values if len(learned.looked_up) else ()
    looked_up = tuple(values[number] for number in learned.looked_up)
    return Result(booking.run, tree, scorecard, learned.depths, looked_up, traffic, Loss.of(agreed))


def require_fit(session: Session, party: int, policy: Policy) -> None:
    """Raises ``PolicyError`` unless the policy fits the session and permits the values to open."""
    if policy.tables:
        raise PolicyError(f"{policy.dataset!r} has several tables, and a session reads one: use a policy of one table.")
    policy.require_reviewed()
    schema, member = session.schema_, session.parties[party]
    problems = []
    for name, column in schema.columns.items():
        policy_column = policy.columns.get(name)
        if policy_column is None:
            problems.append(f"the policy has no column `{name}`")
        elif policy_column.digest != column.digest:
            problems.append(f"`{name}` has another domain in the policy")
    if (policy.adjacency, policy.privacy_unit) != (schema.adjacency, schema.privacy_unit):
        problems.append("adjacency or privacy unit differ, so an epsilon of one is not an epsilon of the other")
    if policy.max_rows > member.rows:
        problems.append(
            f"the policy admits {policy.max_rows:,} rows, the session only {member.rows:,} of {member.name}"
        )
    if session.noise == "none" and policy.secure != "exact":
        problems.append(
            "the session opens exact results, which leak; the policy does not permit that (`secure: exact`). "
            "Or use `noise: discrete-laplace`"
        )
    if problems:
        raise PolicyError(
            f"The policy of {policy.dataset!r} and the session do not fit: {'; '.join(problems)}. {NOTHING_LEFT}"
        )


def _require_identity(session: Session, party: int, identity: Identity | None) -> None:
    """Raises ``SessionError`` if the others would refuse this party."""
    member = session.parties[party]
    if identity is None:
        if member.certificate_der is not None:
            raise SessionError("the session names certificates: give this party's certificate and key.")
        return
    if member.certificate_der is None:
        raise SessionError("the session names no certificates, so TLS cannot be used; join without --cert and --key.")
    try:
        with open(identity.key, encoding="ascii") as key:
            require_private(key, Path(identity.key), "the key")
        shown = first_certificate(Path(identity.certificate).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise SessionError(f"the certificate {identity.certificate} or its key cannot be read: {error}.") from None
    if shown != member.certificate_der:
        raise SessionError(
            f"the certificate {identity.certificate} is not the one that the session names for {member.name}, "
            "so the others would turn it away. "
            "Name your party and its certificate, or agree on a session with the new one."
        )


def _encoded_rows(session: Session, policy: Policy, ledger: Ledger, data: Any) -> tuple[Holding, int]:
    """Reads this party's distinct rows with a known target, their counts and their version, in one pass.

    Raises ``PolicyError`` if there are more than the policy admits.
    """
    axes: list[Axis] = [bind(split, policy.schema_).axes[0] for split in session.task.splits]
    axes.append(Values(session.target).axis(policy.schema_)[0])  # numeric ones may have more cells than a partition
    rows = open_rows(policy, ledger, data)
    with closing(rows.engine):
        tables = rows.engine.tabulate(PartSet([Block(Part())]), [TableRequest(tuple(axes), "listed")], None)
    table = cast(Listed, tables[0])  # as requested
    codes = table.codes.astype(np.int64)
    # The code after those of values stands for a missing one.
    has_target = codes[-1] < session.schema_.column(session.target).cells
    holding = Holding(codes[:, has_target], table.counts[has_target].astype(np.int64))
    if holding.rows > policy.max_rows:
        raise PolicyError(
            f"The table of {policy.dataset!r} has more rows than its policy's `max_rows`. "
            f"Correct one of them (see `pinq check`). {NOTHING_LEFT}"
        )
    return holding, rows.version
