# SPDX-License-Identifier: Apache-2.0
"""How long the keys of an identity provider count that gives no new ones."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from pinq.policy.policy import SignIn
from pinq.server import sign_in
from pinq.server.sign_in import KEYS_SECONDS, People, Unknown

jose = pytest.importorskip("joserfc.jwk", reason="signing in needs the extra `oidc`")
jwt = pytest.importorskip("joserfc.jwt", reason="signing in needs the extra `oidc`")

ISSUER = "https://house.example.org"


class House:
    """An identity provider with one key, that answers or does not, and a clock."""

    def __init__(self) -> None:
        self.key, self.answers, self.read, self.seconds = jose.RSAKey.generate_key(2048), True, 0, 10_000.0

    def keys(self) -> object:
        self.read += 1
        if not self.answers:
            raise httpx.ConnectError("nobody is there")
        return {"keys": [self.key.as_dict(private=False)]}

    def token(self) -> str:
        claims = {"iss": ISSUER, "aud": "pinq", "sub": "ana", "exp": time.time() + 86_400}
        return str(jwt.encode({"alg": "RS256"}, claims, self.key))


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    made = House()
    monkeypatch.setattr(sign_in, "monotonic", lambda: made.seconds)
    return made


@pytest.fixture
def opened(house: House, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    people = People(SignIn(issuer=ISSUER, client="pinq"))
    monkeypatch.setattr(people, "_published", house.keys)
    return lambda: people.opened_by(house.token(), None)


def test_known_keys_count_for_an_hour_without_their_provider(house: House, opened: Callable[[], str]) -> None:
    """Else a key that was stolen and withdrawn would open data for as long as the way to the provider is cut."""
    known = opened()
    house.answers = False
    house.seconds += KEYS_SECONDS - 1
    assert opened() == known
    house.seconds += 1
    with pytest.raises(Unknown, match="gives no keys"):
        opened()
    house.answers, house.seconds = True, house.seconds + sign_in.RETRY_SECONDS
    assert opened() == known


def test_keys_are_read_when_half_their_time_is_over_and_no_more_often_than_once_a_minute(
    house: House, opened: Callable[[], str]
) -> None:
    opened()
    opened()
    assert house.read == 1
    house.seconds += KEYS_SECONDS / 2
    opened()
    assert house.read == 2
    house.key = jose.RSAKey.generate_key(2048)
    for _ in range(5):
        with pytest.raises(Unknown):
            opened()
    assert house.read == 2
    house.seconds += sign_in.RETRY_SECONDS
    opened()
    assert house.read == 3
