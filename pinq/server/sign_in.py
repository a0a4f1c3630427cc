# SPDX-License-Identifier: Apache-2.0
"""The identity of a person, by an ID token of the organisation's identity provider (OpenID Connect).

A token is valid if the identity provider signed it with a published key, for this server's client,
and it has not expired. Each claim must have the type that the standards give it, and a token for
several clients must name this one as its authorised party. The policy's claim names the person. A
grant of this name, or of a group in the token, opens the dataset. Tokens of grants work as without
sign-in.
"""

from __future__ import annotations

import math
import ssl
import threading
from datetime import timedelta
from time import monotonic, time
from typing import Any

from pinq.analyst.tokens import person_digest
from pinq.errors import PinqError, QueryError
from pinq.ledger.events import Signature, now
from pinq.policy.policy import SignIn
from pinq.provider.opening import require_name
from pinq.public.epsilon import Epsilon
from pinq.public.plugins import optional
from pinq.server.datasets import Dataset

MAX_ID_TOKEN = 8192  # characters; half of what a request's headers may have
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384"]  # by public keys: none, and no shared secret
KEYS_SECONDS = 3600.0  # the time for which read keys are valid; they are renewed after half of it
RETRY_SECONDS = 60.0  # the least time between two readings of keys
TIMEOUT = 5.0  # seconds for the provider's answer
LEEWAY = 30  # seconds by which clocks may differ
LONGEST = 31 * 86_400  # the longest remaining validity of an ID token, in seconds; usual are minutes, at most 30 days
TEXTS, TIMES = ("iss", "sub", "azp", "jti"), ("exp", "iat", "nbf")  # claims by the type of their values


class Unknown(Exception):
    """An invalid token; the text, for the provider's log, contains no part of the token."""


class People:
    """Identifies persons by the ID tokens of one identity provider.

    Args:
        declared: The declaration of the policies; all policies of a server agree except in groups.

    Attributes:
        public: The address for sign-in, for clients.

    Raises:
        ModuleNotFoundError: The extra ``oidc`` is not installed.
    """

    def __init__(self, declared: SignIn) -> None:
        self._issuer, self._client, self._claim = declared.issuer.rstrip("/"), declared.client, declared.claim
        self.public = {"issuer": self._issuer, "client_id": self._client, "claim": self._claim}
        self._jwt: Any = optional("joserfc.jwt", "oidc", "signing in needs joserfc")
        self._jwk: Any = optional("joserfc.jwk", "oidc", "signing in needs joserfc")
        self._jws: Any = optional("joserfc.jws", "oidc", "signing in needs joserfc")
        self._keys: Any = None
        self._keys_time = -math.inf
        self._renewal, self._over = threading.Event(), threading.Event()

    def opened_by(self, token: str, dataset: Dataset | None) -> str:
        """The digest under which a token's person may have a grant of a dataset.

        A group of the policy grants only a name that the ledger has never named: an ended grant of any
        kind stays ended until the data provider grants the name again. For an unknown dataset the token
        is checked too, so that response times do not reveal names of datasets.

        Raises:
            Unknown: The token is not valid.
        """
        name, groups = self._person(token)
        person, member = (person_digest(self._issuer, name, member=by_group) for by_group in (False, True))
        granted = dataset.policy.sign_in.groups if dataset is not None and dataset.policy.sign_in is not None else {}
        joined = next((group for group in granted if group in groups), None)
        if dataset is None or joined is None or dataset.ledger.knows(person):
            return person
        dataset.ledger.grant_of_token(member)  # reads what other processes logged
        if not dataset.ledger.knows(person) and not dataset.ledger.knows(member):
            grant, by = granted[joined], Signature(f"sign-in at {self._issuer}", f"group {joined}"[:200])
            expires = None if grant.days is None else now() + timedelta(days=grant.days)
            try:
                limit = Epsilon.exactly(grant.epsilon)
                dataset.ledger.grant(name, limit, expires, token=member, by=by, again=False)
            except PinqError as error:
                if not dataset.ledger.knows(member):  # else another request of this person was just granted
                    raise Unknown(f"{name!r} cannot be granted what {joined!r} has: {error}") from None
        return member

    def _person(self, token: str) -> tuple[str, list[object]]:
        """The name and the groups of a token's person."""
        try:
            claims = self._claims(token)
            self._jwt.JWTClaimsRegistry(
                leeway=LEEWAY,
                iss={"essential": True, "values": [self._issuer, f"{self._issuer}/"]},
                aud={"essential": True, "value": self._client},
                azp={"value": self._client},  # the client for which it was made
                exp={"essential": True},
            ).validate(claims)
            self._require_kinds(claims)
        except Unknown:
            raise
        except Exception as error:  # errors of many classes; each means an invalid token
            raise Unknown(f"an ID token does not count: {type(error).__name__}") from None
        name, groups = claims.get(self._claim), claims.get("groups")
        verified = self._claim != "email" or claims.get("email_verified") is True
        if not isinstance(name, str) or not name or not verified:
            raise Unknown(f"an ID token has no {self._claim}, or none that is verified")
        try:
            require_name(name)
        except QueryError as error:
            raise Unknown(f"an ID token's {self._claim} {error}") from None
        return name, groups if isinstance(groups, list) else []

    def _require_kinds(self, claims: dict[str, Any]) -> None:
        """Raises ``Unknown`` for a claim of another type, an absurd time, or a token made for another client."""
        for text in TEXTS:
            if not isinstance(claims.get(text, ""), str):
                raise Unknown(f"an ID token's {text} is no text")
        latest = time() + LONGEST
        for moment in TIMES:
            # In Python a bool is an int. Every comparison with NaN is false.
            if type(claims.get(moment, 0)) not in (int, float) or not 0 <= claims.get(moment, 0) <= latest:
                raise Unknown(f"an ID token's {moment} is no time within {LONGEST // 86_400} days")
        audience = claims["aud"]
        others = set(audience) - {self._client} if isinstance(audience, list) else ()
        if others and (claims.get("azp") != self._client or {*map(type, others)} != {str}):
            raise Unknown("an ID token for several clients was not made for this one (azp)")

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token that the identity provider signed with a known key."""
        self._jws.extract_compact(token.encode())  # a malformed token must not trigger a renewal of keys
        if monotonic() >= self._keys_time + KEYS_SECONDS:
            raise Unknown(f"{self._issuer} gives no keys")
        try:
            return self._jwt.decode(token, self._keys, algorithms=ALGORITHMS).claims
        except Exception:
            self._renewal.set()  # perhaps the key is newer
            raise

    # The keys; no request waits for them

    def begin(self) -> None:
        """Reads the keys, then renews them in a thread until ``close``."""
        self.renew()
        threading.Thread(target=self._renewing, name="pinq-keys", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._renewal.set()

    def renew(self) -> None:
        """Reads the provider's keys; if that fails, the keys of the last hour stay valid."""
        self._renewal.clear()
        try:
            self._keys, self._keys_time = self._jwk.KeySet.import_key_set(self._published()), monotonic()
        except Exception:  # errors of many classes; none may end a server
            self._renewal.set()

    def _renewing(self) -> None:
        while not self._over.wait(RETRY_SECONDS):
            self._renewal.wait(KEYS_SECONDS / 2)
            self.renew()

    def _published(self) -> Any:
        import httpx  # a fifth of a second of each server's start, which most need not

        with httpx.Client(verify=ssl.create_default_context(), timeout=TIMEOUT) as client:
            configuration = client.get(f"{self._issuer}/.well-known/openid-configuration").raise_for_status().json()
            if configuration["issuer"].rstrip("/") != self._issuer or not configuration["jwks_uri"].startswith(
                ("https://", self._issuer)
            ):
                raise ValueError("another provider, or keys that anybody on the way may change")
            return client.get(configuration["jwks_uri"]).raise_for_status().json()
