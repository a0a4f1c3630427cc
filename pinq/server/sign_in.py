# SPDX-License-Identifier: Apache-2.0
"""Who a person is, by an ID token of the house's identity provider (OpenID Connect).

A token counts that the provider signed with a key which it publishes now, for this server's client,
and that has not expired. The person is what the claim of the policy says; a grant of that name, or
of a group that the token names, opens the dataset. Tokens of ours go on as without it.
"""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from pinq.analyst.tokens import person_digest
from pinq.errors import LedgerError, PinqError
from pinq.ledger.events import Signature, now
from pinq.provider.arguments import require_name
from pinq.public.epsilon import Epsilon
from pinq.public.plugins import optional
from pinq.public.policy import SignIn
from pinq.server.datasets import Dataset

__all__ = ["MAX_ID_TOKEN", "People", "Unknown"]

MAX_ID_TOKEN = 8192  # characters; half of what a request's headers may have
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384"]  # by public keys: none, and no shared secret
KEYS_SECONDS = 60.0  # how often keys are read again for one that is not known
TIMEOUT = 5.0  # seconds for the provider's answer
LEEWAY = 30  # seconds by which clocks may differ


class Unknown(Exception):
    """A token that says nobody; the text, for the provider's log, has no part of it."""


@dataclass(frozen=True)
class _Person:
    name: str
    groups: tuple[str, ...]


class People:
    """Tells who signed in at one identity provider.

    Args:
        declared: Of the policies; all that a server has are the same but for their groups.

    Raises:
        ModuleNotFoundError: The extra ``oidc`` is not installed.
    """

    def __init__(self, declared: SignIn) -> None:
        self._issuer, self._client, self._claim = declared.issuer.rstrip("/"), declared.client, declared.claim
        self._jwt = optional("joserfc.jwt", "oidc", "signing in needs joserfc")
        self._jwk = optional("joserfc.jwk", "oidc", "signing in needs joserfc")
        self._keys: Any = None
        self._read, self._lock = -KEYS_SECONDS, threading.Lock()

    @property
    def public(self) -> dict[str, str]:
        """Where to sign in, for clients."""
        return {"issuer": self._issuer, "client_id": self._client, "claim": self._claim}

    def opened_by(self, token: str, dataset: Dataset) -> str:
        """Returns the digest under which a token's person may have a grant of a dataset.

        A member of a group of the policy who has none gets one, once: an ended one stays ended.

        Raises:
            Unknown: The token does not count.
        """
        person = self._person(token)
        own, member = (person_digest(self._issuer, person.name, member=by_group) for by_group in (False, True))
        declared = dataset.policy.sign_in
        groups = {} if declared is None else declared.groups
        joined = next((group for group in groups if group in person.groups), None)
        if joined is None or dataset.ledger.knows(own):
            return own
        dataset.ledger.holder(member)  # reads what other processes logged
        if not dataset.ledger.knows(own) and not dataset.ledger.knows(member):
            grant, by = groups[joined], Signature(f"sign-in at {self._issuer}", f"group {joined}"[:200])
            expires = None if grant.days is None else now() + timedelta(days=grant.days)
            try:
                require_name(person.name)
                limit = Epsilon.exactly(grant.epsilon)
                dataset.ledger.grant(person.name, limit, expires, token=member, by=by)
            except (LedgerError, PinqError) as error:  # another grant has the name, or it is none
                raise Unknown(f"{person.name!r} cannot be granted what {joined!r} has: {error}") from None
        return member

    def _person(self, token: str) -> _Person:
        """The person whom a token names."""
        try:
            claims: dict[str, Any] = self._jwt.decode(token, self._key_set(token), algorithms=ALGORITHMS).claims
            self._jwt.JWTClaimsRegistry(
                leeway=LEEWAY,
                iss={"essential": True, "values": [self._issuer, f"{self._issuer}/"]},
                aud={"essential": True, "value": self._client},
                exp={"essential": True},
            ).validate(claims)
        except Unknown:
            raise
        except httpx.HTTPError as error:
            raise Unknown(f"{self._issuer} gives no keys: {type(error).__name__}") from None
        except Exception as error:  # of many classes; any of them is a token that does not count
            raise Unknown(f"an ID token does not count: {type(error).__name__}") from None
        name, groups = claims.get(self._claim), claims.get("groups")
        if (
            not isinstance(name, str)
            or not name
            or (self._claim == "email" and claims.get("email_verified") is not True)
        ):
            raise Unknown(f"an ID token has no {'verified ' if self._claim == 'email' else ''}{self._claim}")
        return _Person(name, tuple(map(str, groups)) if isinstance(groups, list) else ())

    def _key_set(self, token: str) -> Any:
        """The provider's public keys, read again where they lack a token's, and not at every guess."""
        with self._lock:
            stale = time.monotonic() - self._read >= KEYS_SECONDS
            if stale and not self._has_key_of(token):
                self._read = time.monotonic()
                with httpx.Client(verify=ssl.create_default_context(), timeout=TIMEOUT) as client:
                    found = client.get(f"{self._issuer}/.well-known/openid-configuration").raise_for_status().json()
                    if str(found["issuer"]).rstrip("/") != self._issuer:
                        raise Unknown("the provider calls itself otherwise")
                    keys = client.get(_secure(found["jwks_uri"], self._issuer)).raise_for_status().json()
                self._keys = self._jwk.KeySet.import_key_set(keys)
            return self._keys

    def _has_key_of(self, token: str) -> bool:
        if self._keys is None:
            return False
        jws: Any = optional("joserfc.jws", "oidc", "signing in needs joserfc")
        kid = jws.extract_compact(token.encode()).headers().get("kid")
        return kid is None or any(key.kid == kid for key in self._keys)


def _secure(url: str, issuer: str) -> str:
    """A URL that is as safe to read as the issuer's."""
    if not url.startswith(("https://", issuer)):
        raise Unknown("the provider's keys are not behind https://")
    return url
