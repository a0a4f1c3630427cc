# SPDX-License-Identifier: Apache-2.0
"""Analysts who sign in at a real identity provider, through a real server."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import pinq
from pinq.analyst import client
from pinq.provider.grants import grant, reissue, revoke
from pinq.provider.report.audit import audit
from tests.support.processes import identity_providers as oidc
from tests.support.processes.commands import failed, run
from tests.support.processes.servers import Server, publish, serving

pytest.importorskip("joserfc", reason="signing in needs the extra `oidc`")

PEOPLE = (
    {"sub": "ana", "email": "ana@example.org", "email_verified": True},
    {"sub": "bob", "email": "bob@example.org", "email_verified": False, "groups": ["lab", "all"]},
    {"sub": "eve", "groups": ["all"]},
    {"sub": "ivy", "azp": "elsewhere"},
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    if not oidc.HAS_CODE_FLOW:
        pytest.skip(oidc.NO_CODE_FLOW)
    with oidc.issuing(*PEOPLE) as found:
        yield found


@pytest.fixture(scope="module")
def late() -> Iterator[str]:
    """Another one, whose tokens have expired when they come."""
    if not oidc.HAS_CODE_FLOW:
        pytest.skip(oidc.NO_CODE_FLOW)
    with oidc.issuing(*PEOPLE, seconds=-3600) as found:
        yield found


def policy_of(folder: Path, issuer: str, **words: Any) -> Path:
    declared = {"issuer": issuer, "client": "pinq", "groups": {"lab": {"epsilon": "0.5", "days": 30}}} | words
    return publish(folder, sign_in=declared)


def budget(server: Server, token: str) -> httpx.Response:
    with server.http(Authorization=f"Bearer {token}") as client:
        return client.get("/v1/people/budget")


@pytest.fixture
def policy(tmp_path: Path, issuer: str) -> Path:
    return policy_of(tmp_path, issuer)


@pytest.fixture
def server(policy: Path, tmp_path: Path) -> Iterator[Server]:
    with serving(policy, folder=tmp_path) as found:
        yield found


def reasons(server: Server) -> list[str]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [line["reason"] for line in lines if "reason" in line]


def test_whom_the_provider_granted_signs_in(policy: Path, server: Server, issuer: str) -> None:
    """Under the name that the identity provider gives, until the grant is revoked; a token of ours works beside it."""
    account = grant(policy, "ana", 2, sign_in=True)
    assert account.token == ""
    token = oidc.id_token(issuer, "ana")
    assert budget(server, token).json()["epsilon"] == "2"
    ours = grant(policy, "old", 1).token
    assert budget(server, ours).json()["epsilon"] == "1"
    reissue(policy, "old", sign_in=True)
    assert budget(server, ours).status_code == 401
    revoke(policy, "ana")
    assert budget(server, token).status_code == 401
    assert token not in server.log.read_text()


def test_a_member_of_a_group_gets_its_grant_once(policy: Path, server: Server, issuer: str) -> None:
    """It is logged as the group's, and an ended one stays ended however often its owner signs in."""
    token = oidc.id_token(issuer, "bob")
    assert budget(server, token).json()["epsilon"] == "0.5"
    assert budget(server, oidc.id_token(issuer, "bob")).json()["epsilon"] == "0.5"
    (act,) = [line for line in audit(policy).changes if line.analyst == "bob"]
    assert (act.by, act.because) == (f"sign-in at {issuer}", "group lab")
    revoke(policy, "bob")
    assert budget(server, oidc.id_token(issuer, "bob")).status_code == 401
    assert [line.kind for line in audit(policy).changes if line.analyst == "bob"] == ["grant", "revoke"]


def test_others_get_the_one_answer_and_the_log_says_why(policy: Path, server: Server, issuer: str, late: str) -> None:
    """Nobody's token, another client's, a changed one, one without a signature, and one of another provider."""
    grant(policy, "ana", 2, sign_in=True)
    grant(policy, "ivy", 2, sign_in=True)
    good = oidc.id_token(issuer, "ana")
    head, body, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "bob"}).encode()).decode().rstrip("=")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    tokens = [
        oidc.id_token(issuer, "eve"),
        oidc.id_token(issuer, "ana", client="elsewhere"),
        oidc.id_token(issuer, "ivy"),
        f"{head}.{forged}.{signature}",
        f"{unsigned}.{body}.",
        oidc.id_token(late, "ana"),
        f"{issuer}ana",
        "x" * 9000,
    ]
    answers = {(answer.status_code, answer.text) for answer in map(lambda token: budget(server, token), tokens)}
    assert len(answers) == 1
    assert answers.pop()[0] == 401
    said = " ".join(reasons(server))
    assert "an ID token does not count: InvalidClaimError" in said
    assert "BadSignatureError" in said
    assert budget(server, good).status_code == 200


def test_a_token_is_looked_at_whether_or_not_there_is_the_dataset(server: Server, late: str) -> None:
    """Else how long that takes, and what the log says, would tell which names are datasets."""
    with server.http(Authorization=f"Bearer {oidc.id_token(late, 'ana')}") as client:
        assert client.get("/v1/nothing/budget").status_code == 401
    (reason,) = reasons(server)  # a key's number is looked at before its signature where the library numbers keys
    assert re.fullmatch("an ID token does not count: (BadSignature|InvalidKeyId)Error", reason)


def test_an_expired_token_ends(late: str, tmp_path: Path) -> None:
    """Leeway aside, by the moment that its provider set."""
    policy = policy_of(tmp_path, late)
    grant(policy, "ana", 2, sign_in=True)
    with serving(policy, folder=tmp_path) as server:
        assert budget(server, oidc.id_token(late, "ana")).status_code == 401
        assert "an ID token does not count: ExpiredTokenError" in reasons(server)


def test_an_address_counts_once_it_is_verified(issuer: str, tmp_path: Path) -> None:
    policy = policy_of(tmp_path, issuer, claim="email")
    grant(policy, "ana@example.org", 2, sign_in=True)
    grant(policy, "bob@example.org", 2, sign_in=True)
    with serving(policy, folder=tmp_path) as server:
        assert budget(server, oidc.id_token(issuer, "ana")).status_code == 200
        assert budget(server, oidc.id_token(issuer, "bob")).status_code == 401
        assert "an ID token has no email, or none that is verified" in reasons(server)


def test_what_the_command_line_says(policy: Path, tmp_path: Path) -> None:
    done = run("grant", policy, "ana", "--epsilon", 1, "--sign-in")
    assert "ana: granted." in done.stdout
    assert "pinq_" not in done.stdout
    assert "signs in from now on" in run("token", policy, "ana", "--sign-in").stdout
    plain = publish(tmp_path / "plain", dataset="plain")
    failed(run("grant", plain, "ana", "--epsilon", 1, "--sign-in"), "The policy names no identity provider")
    with serving(plain, folder=tmp_path) as server, pytest.raises(pinq.Unavailable, match="knows no identity provider"):
        pinq.connect(server.url("plain"), sign_in=True, **server.words())


def test_a_provider_without_the_device_flow_is_said(server: Server, issuer: str) -> None:
    with pytest.raises(pinq.Unavailable, match="has no device flow, so nobody can sign in from here"):
        pinq.connect(server.url(), sign_in=True, **server.words())


@pytest.mark.skipif(not oidc.HAS_DEVICE_FLOW, reason=oidc.NO_DEVICE_FLOW)
def test_the_device_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A person enters a code elsewhere; an expired token is renewed without them; a member of a group needs no grant."""
    monkeypatch.setattr(client, "INTERVAL", 0.05)
    browsers = list[threading.Thread]()

    def shown(text: str) -> None:
        if found := re.fullmatch(r"To sign in, open (\S+) and enter (\S+)", text):
            browsers.append(threading.Thread(target=oidc.enter, args=(*found.groups(), "ada")))
            browsers[-1].start()
        else:
            said.append(text)

    said = list[str]()
    monkeypatch.setattr("builtins.print", shown)
    with oidc.issuing_to_devices() as issuer:
        policy = policy_of(tmp_path, issuer)
        with (
            serving(policy, folder=tmp_path) as server,
            pinq.connect(server.url(), sign_in=True, **server.words()) as h,
        ):
            assert said == ["Signed in as ada, which is the name to be granted."]
            assert float(h.budget.epsilon) == 0.5
            assert abs(h.noisy_count(epsilon=0.4) - 400) < 90
            signed: Any = h._session._client.auth  # type: ignore[attr-defined]
            signed._token = "expired.as.one"
            assert float(h.budget.spent) == 0.4
            assert signed._token != "expired.as.one"
    for browser in browsers:
        browser.join()
