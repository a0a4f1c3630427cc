# SPDX-License-Identifier: Apache-2.0
"""The claims of an ID token that count, and the names that a group grants."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pinq.analyst.tokens import digest, person_digest
from pinq.errors import LedgerError
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import GroupGrant, SignIn
from pinq.public.epsilon import Epsilon
from pinq.server.sign_in import LONGEST, People, Unknown

jwk = pytest.importorskip("joserfc.jwk", reason="signing in needs the extra `oidc`")
jws = pytest.importorskip("joserfc.jws", reason="signing in needs the extra `oidc`")

ISSUER = "https://house.example.org"
NOW = int(time.time())  # no part of a test's name: processes that run tests side by side collect equal names
CLAIMS = {
    "iss": ISSUER,
    "aud": "pinq",
    "sub": "17",
    "email": "ana@x.org",
    "email_verified": True,
    "groups": ["lab"],
}
KEY = jwk.RSAKey.generate_key(2048)


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> People:
    made = People(SignIn(issuer=ISSUER, client="pinq", claim="email"))
    monkeypatch.setattr(made, "_published", lambda: {"keys": [KEY.as_dict(private=False)]})
    made.renew()
    return made


def token(**claims: Any) -> str:
    """A signed token; a claim that is None is left out. Written by json, which also writes NaN."""
    soon = {"exp": int(time.time()) + 300}  # from now on: tests may run long after they were collected
    body = {name: value for name, value in (CLAIMS | soon | claims).items() if value is not None}
    return str(jws.serialize_compact({"alg": "RS256"}, json.dumps(body), KEY))


TIMES_OF_NO_KIND: tuple[Any, ...] = (
    1e300,
    10**400,
    math.inf,
    math.nan,
    -1,
    -1e9,
    True,
    False,
    str(NOW + 300),
    "",
    [NOW + 300],
    {},
)
ABSURD = (NOW + LONGEST + 3600, 1000 * (NOW + 300), 2**63, float(NOW + 2 * LONGEST))


@pytest.mark.parametrize("claim", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", [*TIMES_OF_NO_KIND, *ABSURD], ids=count())
def test_a_time_that_is_no_time_or_absurd_is_refused(people: People, claim: str, value: object) -> None:
    with pytest.raises(Unknown):
        people.opened_by(token(**{claim: value}), None)


@pytest.mark.parametrize("seconds", [60, 86_400, 300.5, LONGEST - 3600])
def test_a_time_to_come_is_accepted(people: People, seconds: float) -> None:
    now = int(time.time())
    assert people.opened_by(token(exp=now + seconds, iat=now, nbf=now - 1), None) == person_digest(ISSUER, "ana@x.org")


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({"aud": ["pinq"]}, True),
        ({"aud": ["pinq", "pinq"]}, True),
        ({"aud": ["pinq", "other"], "azp": "pinq"}, True),
        ({"azp": "pinq"}, True),
        ({"aud": ["pinq", "other"]}, False),
        ({"aud": ["pinq", "other"], "azp": ""}, False),
        ({"aud": ["pinq", "other"], "azp": ["pinq"]}, False),
        ({"aud": ["pinq", "other"], "azp": "other"}, False),
        ({"aud": "pinq", "azp": ["pinq"]}, False),
        ({"aud": ["pinq", 1], "azp": "pinq"}, False),
        ({"aud": {"pinq": 1}}, False),
        ({"aud": []}, False),
        ({"iss": [ISSUER]}, False),
        ({"sub": 17}, False),
        ({"jti": 17}, False),
        ({"email_verified": 1}, False),
        ({"email_verified": "true"}, False),
        ({"email": ["ana@x.org"]}, False),
        ({"email": "ana@x.org\nmember"}, False),
        ({"email": " ana@x.org"}, False),
        ({"email": "ana\ud800"}, False),
        ({"email": "a" * 10_000}, False),
    ],
)
def test_a_claim_of_another_kind_is_refused(people: People, claims: dict[str, Any], accepted: bool) -> None:
    """Also a token of several audiences that does not say that it was made for this client."""
    if accepted:
        people.opened_by(token(**claims), None)
    else:
        with pytest.raises(Unknown):
            people.opened_by(token(**claims), None)


# Each act leaves the ledger in a state in which the name was named and nobody has it: by a token, by sign-in, ...


def _by_token(ledger: Ledger) -> None:
    ledger.grant("ana@x.org", Epsilon.of(1), token=digest("pinq_old"))


def _without_token(ledger: Ledger) -> None:
    ledger.grant("ana@x.org", Epsilon.of(1))


def _by_sign_in(ledger: Ledger) -> None:
    ledger.grant("ana@x.org", Epsilon.of(1), token=person_digest(ISSUER, "ana@x.org"))


def _at_another_provider(ledger: Ledger) -> None:
    ledger.grant("ana@x.org", Epsilon.of(1), token=person_digest("https://earlier.example.org", "ana@x.org"))


def _by_group(ledger: Ledger) -> None:
    ledger.grant("ana@x.org", Epsilon.of(1), token=person_digest(ISSUER, "ana@x.org", member=True))


def _by_group_then_token(ledger: Ledger) -> None:
    _by_group(ledger)
    ledger.set_token("ana@x.org", digest("pinq_new"))


def _twice(ledger: Ledger) -> None:
    _by_group(ledger)
    ledger.revoke("ana@x.org")
    _by_token(ledger)


GRANTS = [_by_token, _without_token, _by_sign_in, _at_another_provider, _by_group, _by_group_then_token, _twice]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "t.ledger", "t")
    made.declare("d", Epsilon.of(100), {"columns": {}})
    return made


def signed_in(people: People, ledger: Ledger) -> str | None:
    """Signs in twice, as a client does that tries again; returns the name that has the dataset."""
    declared = SignIn(issuer=ISSUER, client="pinq", claim="email", groups={"lab": GroupGrant(epsilon=Decimal(5))})
    dataset: Any = SimpleNamespace(ledger=ledger, policy=SimpleNamespace(sign_in=declared))
    owner = None
    for _ in range(2):
        try:
            owner = ledger.grant_of_token(people.opened_by(token(), dataset))
        except Unknown:
            owner = None
    return None if owner is None else owner.analyst


@pytest.mark.parametrize("granted", GRANTS, ids=lambda granted: granted.__name__.strip("_"))
def test_a_revoked_person_stays_out_whatever_the_grant_was(
    people: People, ledger: Ledger, granted: Callable[[Ledger], None]
) -> None:
    granted(ledger)
    ledger.revoke("ana@x.org")
    assert signed_in(people, ledger) is None
    assert ledger.grants()["ana@x.org"].state == "revoked"
    ledger.grant("ana@x.org", Epsilon.of(2), token=person_digest(ISSUER, "ana@x.org"))  # by the data provider
    assert signed_in(people, ledger) == "ana@x.org"


def test_a_group_grants_a_name_that_the_ledger_has_never_named(people: People, ledger: Ledger) -> None:
    assert signed_in(people, ledger) == "ana@x.org"
    assert str(ledger.grants()["ana@x.org"].limit) == "5"


def test_a_revocation_by_another_process_counts_at_the_moment_of_the_grant(ledger: Ledger) -> None:
    """The name is looked for in the transaction that grants, so nothing can come between."""
    with_another = Ledger(ledger.url, "t")
    with_another.grant("ana@x.org", Epsilon.of(1), token=digest("pinq_old"))
    with_another.revoke("ana@x.org")
    with pytest.raises(LedgerError, match=r"names 'ana@x\.org' already"):
        ledger.grant("ana@x.org", Epsilon.of(5), again=False)
