# SPDX-License-Identifier: Apache-2.0
"""Who may ask: tokens on the wire, in files, in the ledger; and what a wrong one learns."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import pinq
from pinq.analyst.tokens import PREFIX, digest, find_token, new_token
from pinq.errors import NotAuthorised, QueryError
from pinq.ledger.events import now
from pinq.provider.opening import open_ledger
from pinq.server.gate import REFUSAL_SECONDS
from tests.support.processes.servers import Server, pinq_command, publish, serving, token_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two datasets on loopback."""
    place = tmp_path_factory.mktemp("tokens")
    for name in ("people", "others"):
        publish(place / "policies", name)
    with serving(place / "policies", folder=place) as running:
        running.place = place / "policies"  # type: ignore[attr-defined]
        yield running


def policy_of(server: Server, name: str = "people") -> Path:
    return server.place / f"{name}.yaml"  # type: ignore[attr-defined]


def test_one_answer_for_every_token_that_does_not_count(server: Server) -> None:
    """Wrong, none, expired, revoked, replaced, another dataset's, an unknown dataset: the same bytes and headers for each, on every route."""
    policy = policy_of(server)
    brief = token_of(policy, "brief", 1, expires=now() + timedelta(seconds=1))
    revoked, replaced = token_of(policy, "revoked", 1), token_of(policy, "replaced", 1)
    foreign = token_of(policy_of(server, "others"), "foreign", 1)
    with server.http() as client:
        for token in (revoked, replaced):  # both opened the dataset a moment ago, and end at once
            assert client.get("/v1/people/budget", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        pinq_command("revoke", policy, "revoked", "--yes")
        fresh = pinq_command("token", policy, "replaced").splitlines()[-1]
        assert client.get("/v1/people/budget", headers={"Authorization": f"Bearer {fresh}"}).status_code == 200
        time.sleep(1.1)
        seen = set()
        for path in ("", "/budget", "/history", "/history?start=x", "/query", "/preview"):
            for dataset, token in [
                ("people", new_token()),
                ("people", ""),
                ("people", "x" * 500),
                ("people", brief),
                ("people", revoked),
                ("people", replaced),
                ("people", foreign),
                ("nowhere", foreign),
                ("nowhere", fresh),
                ("people", digest(fresh)),
            ]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                method = "POST" if path in ("/query", "/preview") else "GET"
                answer = client.request(
                    method,
                    f"/v1/{dataset}{path}",
                    headers=headers,
                    json={"id": "1", "verb": "noisy_count", "epsilon": "0.1"} if method == "POST" else None,
                )
                assert answer.elapsed.total_seconds() >= REFUSAL_SECONDS  # whatever looking it up took
                seen.add(
                    (
                        answer.status_code,
                        answer.text,
                        tuple(sorted((k, v) for k, v in answer.headers.items() if k != "date")),
                    )
                )
        assert len(seen) == 1, seen
        status, text, _ = seen.pop()
        assert status == 401
        assert json.loads(text) == {"code": "not-authorised", "message": str(NotAuthorised())}
    asked = pinq_command(
        "query", server.url(), "count", "--epsilon", "0.5", "--insecure-http", "--json", PINQ_TOKEN=fresh
    )
    assert abs(json.loads(asked)["value"] - 400) < 60
    asked = pinq_command(
        "table", "histogram", server.url(), "sex", "--epsilon", "0.5", "--insecure-http", "--json", PINQ_TOKEN=fresh
    )
    assert abs(sum(row["value"] for row in json.loads(asked)["rows"]) - 400) < 90
    with pytest.raises(AssertionError, match="the token"):
        pinq_command(
            "query",
            server.url(),
            "count",
            "--epsilon",
            "0.5",
            "--insecure-http",
            "--analyst",
            "replaced",
            PINQ_TOKEN=fresh,
        )
    with pytest.raises(pinq.NotAuthorised, match="No valid grant"):
        pinq.connect(server.url(), token=new_token(), **server.words())


def test_a_token_that_has_ended_learns_nothing_of_its_request(server: Server) -> None:
    """This process knows the token; it was revoked by another one since: it is told so, not what is wrong with the request."""
    policy = policy_of(server)
    token = token_of(policy, "ended", 1)
    with server.http() as client:

        def ask(column: str) -> tuple[int, str]:
            question = {"id": column, "verb": "noisy_sum", "epsilon": "0.1", "column": column}
            answer = client.post("/v1/people/query", headers={"Authorization": f"Bearer {token}"}, json=question)
            return answer.status_code, answer.text

        status, text = ask("nowhere")
        assert (status, "nowhere" in text) == (400, True)
        pinq_command("revoke", policy, "ended", "--yes")
        status, text = ask("elsewhere")
        assert (status, json.loads(text)["code"]) == (401, "not-authorised")


def test_a_token_is_kept_nowhere(server: Server) -> None:
    """`pinq grant` prints a token of 256 bits once, alone on its line; the ledger holds its digest only, and the log of requests nothing of it."""
    policy = policy_of(server)
    printed = pinq_command("grant", policy, "printed", "--epsilon", "1").splitlines()
    assert re.fullmatch(r"pinq_[A-Za-z0-9_-]{43}", printed[-1])
    as_json = json.loads(pinq_command("grant", policy, "printed as json", "--epsilon", "1", "--json"))
    files = [file for file in policy.parent.iterdir() if ".ledger" in file.name]
    assert files
    kept = b"".join(file.read_bytes() for file in files) + server.log.read_bytes()
    for token in (printed[-1], as_json["token"]):
        with pinq.connect(server.url(), token=token, **server.words()) as h:
            assert h.budget.epsilon == 1
        assert token.encode() not in kept
        assert token.removeprefix(PREFIX).encode() not in kept
        assert digest(token).encode() in kept
    assert "token" not in json.loads(pinq_command("show", policy, "--json"))["analysts"][0]


def test_where_the_client_finds_its_token(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument, file, environment, and lines of the user's own file, in this order; a file that others may read is refused."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PINQ_TOKEN", "PINQ_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    url = server.url()
    with pytest.raises(QueryError, match=r"`token` for .* is missing"):
        pinq.connect(url, **server.words())
    file = tmp_path / "pinq" / "tokens"
    file.parent.mkdir()
    file.write_text(f"# mine\nhttps://elsewhere/people pinq_a\n{url} pinq_b\n")
    file.chmod(0o644)
    with pytest.raises(QueryError, match="readable by others"):
        find_token(url, None)
    file.chmod(0o600)
    assert find_token(url, None) == "pinq_b"
    assert find_token(url + "/", None) == "pinq_b"
    with pytest.raises(QueryError, match=r"`token` for .* is missing"):
        find_token(url + "x", None)
    alone = tmp_path / "alone"
    alone.write_text("pinq_c\n")
    alone.chmod(0o640)
    with pytest.raises(QueryError, match="chmod 600"):
        find_token(url, alone)
    alone.chmod(0o600)
    assert find_token(url, alone) == "pinq_c"
    monkeypatch.setenv("PINQ_TOKEN_FILE", str(alone))
    assert find_token(url, None) == "pinq_c"
    monkeypatch.setenv("PINQ_TOKEN", "pinq_d")
    assert find_token(url, None) == "pinq_d"
    assert find_token(url, "pinq_e") == "pinq_e"
    for wrong in ("two words", "ünicode", "x" * 300, tmp_path / "none"):
        with pytest.raises(QueryError):
            find_token(url, wrong)


def test_a_thousand_guesses(tmp_path: Path) -> None:
    """After 1,000 wrong tokens in a minute 401 becomes 429; who has a token is let in, whether or not the server saw it before."""
    policy = publish(tmp_path)
    known, late = token_of(policy, "known", 1), token_of(policy, "late", 1)
    with serving(policy, folder=tmp_path, options=("--log", str(tmp_path / "log"))) as server:
        with server.http() as client:

            def budget(token: str) -> int:
                return client.get("/v1/people/budget", headers={"Authorization": f"Bearer {token}"}).status_code

            assert budget(known) == 200
            with ThreadPoolExecutor(8) as pool:
                codes = list(pool.map(budget, [new_token() for _ in range(1200)]))
        assert set(codes) == {401, 429}
        assert 1000 <= codes.count(401) <= 1016
        with server.http() as client:
            answer = client.get("/v1/people/budget", headers={"Authorization": f"Bearer {late}"})
            assert answer.status_code == 200
            assert client.get("/v1/people/budget", headers={"Authorization": f"Bearer {known}"}).status_code == 200
            answer = client.get("/v1/people/budget", headers={"Authorization": f"Bearer {new_token()}"})
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
    ledger = open_ledger(pinq.load_policy(policy))
    assert [event.kind for event in ledger.log.events()] == ["created", "policy", "grant", "grant", "version"], (
        "guesses must not fill the ledger"
    )
    ledger.close()
