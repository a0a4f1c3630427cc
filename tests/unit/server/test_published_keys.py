# SPDX-License-Identifier: Apache-2.0
"""How long the keys of an identity provider count that gives no new ones."""

from __future__ import annotations

import threading
import time

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
def people(house: House, monkeypatch: pytest.MonkeyPatch) -> People:
    made = People(SignIn(issuer=ISSUER, client="pinq"))
    monkeypatch.setattr(made, "_published", house.keys)
    made.renew()
    return made


def test_known_keys_count_for_an_hour_without_their_provider(house: House, people: People) -> None:
    """Else a key that was stolen and withdrawn would open data for as long as the way to the provider is cut."""
    known = people.opened_by(house.token(), None)
    house.answers = False
    house.seconds += KEYS_SECONDS - 1
    people.renew()
    assert people.opened_by(house.token(), None) == known
    house.seconds += 1
    with pytest.raises(Unknown, match="gives no keys"):
        people.opened_by(house.token(), None)
    house.answers = True
    people.renew()
    assert people.opened_by(house.token(), None) == known


def test_a_newer_key_is_asked_for_and_no_request_reads_it(house: House, people: People) -> None:
    """A token that the known keys did not sign wakes the thread; a text that cannot be a token does not."""
    for text in ("", "x", "a.b.c", "pinq_0123", "." * 300, house.token().rpartition(".")[0]):
        with pytest.raises(Unknown):
            people.opened_by(text, None)
    assert not people._renewal.is_set()
    house.key = jose.RSAKey.generate_key(2048)
    for _ in range(5):
        with pytest.raises(Unknown):
            people.opened_by(house.token(), None)
    assert house.read == 1
    assert people._renewal.is_set()
    people.renew()
    assert people.opened_by(house.token(), None)


def test_a_hanging_provider_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread hangs at it; tokens of known keys open at once, and made-up ones are refused at once."""
    house, hangs, asked = House(), threading.Event(), threading.Event()
    people = People(SignIn(issuer=ISSUER, client="pinq"))
    monkeypatch.setattr(people, "_published", house.keys)
    monkeypatch.setattr(sign_in, "RETRY_SECONDS", 0.01)
    people.begin()

    def hang() -> object:
        asked.set()
        hangs.wait(60)
        raise TimeoutError

    monkeypatch.setattr(people, "_published", hang)
    stranger, good = jose.RSAKey.generate_key(2048), house.token()
    made_up = str(jwt.encode({"alg": "RS256"}, {"iss": ISSUER, "exp": time.time() + 60}, stranger))
    with pytest.raises(Unknown):
        people.opened_by(made_up, None)
    assert asked.wait(30), "the thread reads the keys again"
    for _ in range(50):
        assert people.opened_by(good, None)
        with pytest.raises(Unknown):
            people.opened_by(made_up, None)
    assert not hangs.is_set()
    people.close()
    hangs.set()
