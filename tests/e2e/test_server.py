# SPDX-License-Identifier: Apache-2.0
"""The wall, as its two sides use it: a server process over TLS, a handle in this one."""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import numpy as np
import pandas as pd
import pytest

import pinq
from miners import DiffPID3
from pinq import ClassCount, Gini, Groups, Values
from pinq.language.queries import Query, Request
from pinq.language.wire import PROTOCOL_HEADER, SCHEMA_HEADER
from pinq.ledger.events import STORED_BYTES
from pinq.provider.grants import make_terms
from pinq.provider.opening import open_ledger
from pinq.server.openapi import QUERIES
from tests.support.processes.ports import free_port
from tests.support.processes.servers import (
    EVERY_TYPE,
    Certificate,
    Server,
    ask,
    every_type,
    pinq_command,
    publish,
    serving,
    token_of,
)

UNSPENT = {"epsilon": "1", "spent": "0", "remaining": "1", "room": STORED_BYTES}
HOSTILE = '"; drop table events; --'
WEIRD: dict[str, dict[str, Any]] = {
    HOSTILE: {"type": "categorical", "values": ["x' OR 1=1", "\u202eright to left", "k" * 10_240, "\U0001f60a ünï"]},
    "age of \u202e‮ person": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    """Four datasets behind TLS."""
    publish(place / "policies", "people")
    publish(place / "policies", "others")
    rows = pd.DataFrame({name: (column.get("values") or list(range(4)))[:4] * 10 for name, column in WEIRD.items()})
    publish(place / "policies", "weird", rows, columns=WEIRD, padding="40ms")
    publish(place / "policies", "types", every_type(), columns=EVERY_TYPE, cap=10**6)
    metrics = free_port()
    with serving(
        place / "policies",
        folder=place,
        certificate=Certificate.make(place),
        options=("--metrics-port", str(metrics), "--log", str(place / "requests.log")),
    ) as running:
        running.metrics = metrics  # type: ignore[attr-defined]
        yield running


@pytest.fixture
def policy(place: Path) -> Path:
    return place / "policies" / "people.yaml"


def test_the_same_face_over_the_wire(server: Server, policy: Path) -> None:
    """Counts, tables, choices, previews, budget, history and a miner work as in process; the bill is the ledger's."""
    token = token_of(policy, "ana", 10)
    with pinq.connect(server.url(), token=token, **server.words()) as h:
        assert h.schema == pinq.load_policy(policy).schema_
        count = h.noisy_count(epsilon=1)
        assert abs(count - 400) < 40
        assert (count.epsilon, count.scale) == (Fraction(1), 1.0)
        table = h.partition(Values("sex"), Values("income")).noisy_count(epsilon="0.5")
        assert table.shape == (2, 2)
        assert table.dtype == np.int64
        assert h.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.5) in (
            Values("sex"),
            Values("job"),
        )
        preview = h.preview("noisy_avg", "age", epsilon=1)
        assert (preview.cost, preview.remaining) == (Fraction(1), Fraction(7))
        assert h.budget == pinq.Budget(Fraction(10), Fraction(2), Fraction(8))
        tree = DiffPID3(epsilon=1.0, max_depth=2).fit(h, "income")
        assert tree.cost_ == 1
        assert h.budget.spent == 3
        history = h.history()
        assert history["answer"].iloc[0] == count
        assert isinstance(history["answer"].iloc[2], Values)
        with server.http(Authorization=f"Bearer {token}") as client:
            rest = client.get("/v1/people/history?start=1").json()
            assert (len(rest["lines"]), rest["more"]) == (len(history) - 1, False)
            assert client.get("/v1/people/history?start=-1").status_code == 400


def test_values_of_every_type_cross_the_wire(server: Server, place: Path) -> None:
    """Truth values, numbers, text that looks like either, missing, long and non-ASCII text: schema, parts, choices, history and a tree are as in process."""
    types = place / "policies" / "types.yaml"
    token = token_of(types, "ana", 10**5)
    with (
        pinq.connect(server.url("types"), token=token, **server.words()) as far,
        pinq.open(types, analyst="ana") as near,
    ):
        assert far.schema == near.schema
        assert repr(far.schema.columns) == repr(near.schema.columns)
        assert far.schema.digest == near.schema.digest == pinq.load_policy(types).schema_.digest
        for name in far.schema.columns:
            if name == "number":
                continue
            assert far.partition(Values(name)).labels == near.partition(Values(name)).labels
            labels = far.schema.categorical(name).labels
            groups = Groups(name, tuple((label,) for label in labels))
            counts = far.partition(groups).noisy_count(epsilon=1000)
            assert counts.tolist() == near.partition(Values(name)).noisy_count(epsilon=1000).tolist()
            chosen = far.exp_mech([groups], score=Gini("truth" if name != "truth" else "mixed"), epsilon=1)
            assert repr(chosen) == repr(groups)
            assert repr(far.history()["answer"].iloc[-1]) == repr(near.history()["answer"].iloc[-1]) == repr(groups)
            best = far.exp_mech(score=ClassCount(name), epsilon=1000)
            assert repr(best) == repr(labels[int(np.argmax(counts))])
            assert repr(far.history()["answer"].iloc[-1]) == repr(best)
        tree = DiffPID3(epsilon=1000, max_depth=2).fit(far, "truth")
        assert tree.cost_ == 1000
        assert np.mean(tree.predict(every_type()) == every_type()["truth"]) > 0.9


def test_errors_are_the_same_on_both_sides(server: Server, policy: Path) -> None:
    """Class, text and attributes of a refusal are those of the handle in process."""
    token = token_of(policy, "errors", 1)
    with pinq.connect(server.url(), token=token, **server.words()) as far, pinq.open(policy, analyst="errors") as near:
        for words in ({"epsilon": 2}, {"epsilon": "1.5"}):
            found = []
            for handle in (far, near):
                with pytest.raises(pinq.BudgetExceeded) as refused:
                    handle.noisy_count(**words)
                found.append((str(refused.value), refused.value.asked, refused.value.remaining, refused.value.scope))
            assert found[0] == found[1]
        forged = Request(id="x", verb="noisy_sum", epsilon="0.1", column="salary")
        texts = []
        for handle in (far, near):
            with pytest.raises(pinq.QueryError, match="there is no column 'salary'") as wrong:
                handle._session.ask(forged)
            texts.append(str(wrong.value))
        assert texts[0] == texts[1]
        assert far.budget == near.budget


@pytest.mark.parametrize(
    "epsilon",
    ["NaN", "inf", "-inf", "-1", "0", "1e-400", "1e400", "x", "", "9" * 60, 0.1, 10**30, None, True, [1], {"a": 1}],
)
def test_what_is_not_a_loss_is_refused(epsilon: Any, server: Server, policy: Path) -> None:
    """Whatever stands in for epsilon on the wire is refused with the allowed range, and nothing is charged."""
    analyst = f"loss-{os.urandom(4).hex()}"
    with server.http(Authorization=f"Bearer {token_of(policy, analyst, 1)}") as client:
        answer = ask(client, epsilon=epsilon)
        assert answer.status_code == 400
        assert answer.json()["code"] == "query"
        assert "greater than 0 and at most 1000000" in answer.json()["message"]
        assert client.get("/v1/people/budget").json() == UNSPENT


@pytest.mark.parametrize(
    "body",
    [
        '"column":"age"',
        '"column":"nosuch"',
        '"score":{"kind":"balance"}',
        '"each":true',
        '"textbook":true',
        '"which":[0,0]',
        '"epsilon":"0.2"',
        '"verb":"noisy_count"',
        '"parts":{"specs":[{"kind":"shards","count":0}]}',
        '"parts":{"specs":[{"kind":"cross","specs":[]}]}',
        '"parts":{"shape":[1.0]}',
        '"parts":{"shape":[true]}',
        '"parts":{"specs":[{"kind":"values","column":"sex","points":[1]}]}',
    ],
)
def test_a_request_means_one_thing(body: str, server: Server, policy: Path) -> None:
    """What its verb does not read, a value of another type, or a key that stands there already: refused by query and preview, nothing charged."""
    with server.http(Authorization=f"Bearer {token_of(policy, f'one-{os.urandom(4).hex()}', 1)}") as client:
        for route in ("query", "preview"):
            answer = client.post(
                f"/v1/people/{route}", content='{"id":"strict","verb":"noisy_count","epsilon":"0.1",' + body + "}"
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "query")
            assert answer.json()["message"].count("Nothing was spent") == 1
        assert client.get("/v1/people/budget").json() == UNSPENT


def test_one_id_is_answered_once(server: Server, policy: Path) -> None:
    """The same id again, also at the same moment from many threads, gets one answer for one charge; for another question it is refused."""
    with server.http(Authorization=f"Bearer {token_of(policy, 'once', 1)}") as client:
        answers: list[str] = []
        threads = [threading.Thread(target=lambda: answers.append(ask(client, id="same").text)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 12
        assert len(set(answers)) == 1
        assert json.loads(answers[0])["verb"] == "noisy_count"
        assert client.get("/v1/people/budget").json()["spent"] == "0.1"
        assert "another question" in ask(client, id="same", epsilon="0.2").json()["message"]


def test_the_identical_question_is_free_with_reuse(server: Server, policy: Path) -> None:
    """``reuse=True`` returns what was answered before, on either side of the wall, and only to who paid for it."""
    token = token_of(policy, "reuse", 1)
    with pinq.connect(server.url(), token=token, **server.words()) as far, pinq.open(policy, analyst="reuse") as near:
        first = far.partition(Values("job")).noisy_count(epsilon=0.2)
        for handle in (far, near):
            assert (handle.partition(Values("job")).noisy_count(epsilon=0.2, reuse=True) == first).all()
        assert far.budget.spent == Fraction(1, 5)
        assert not (
            far.partition(Values("job")).noisy_count(epsilon=0.2) == first
        ).all() or far.budget.spent == Fraction(2, 5)
        fresh = far.noisy_avg("age", epsilon=0.1, reuse=True)  # nothing stored: asked and charged
        assert far.budget.spent == Fraction(1, 2)
        assert near.noisy_avg("age", epsilon=0.1, reuse=True) == fresh
        chosen = near.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.1)
        assert far.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.1, reuse=True) == chosen
    with pinq.connect(server.url(), token=token_of(policy, "other", 1), **server.words()) as other:
        other.noisy_avg("age", epsilon=0.1, reuse=True)
        assert other.budget.spent == Fraction(1, 10)


def test_hostile_names_and_values(server: Server, place: Path) -> None:
    """SQL in a column's name, quotes, right-to-left text and a value of 10 kB are data like any other; a NUL is refused when the policy is checked."""
    token = token_of(place / "policies" / "weird.yaml", "ana", 500)
    with pinq.connect(server.url("weird"), token=token, **server.words()) as h:
        assert h.partition(Values(HOSTILE)).noisy_count(epsilon=50).tolist() == [10, 10, 10, 10]
        assert h.partition(Values(HOSTILE))["k" * 10_240].noisy_count(epsilon=50) == 10
        assert h.noisy_avg("age of \u202e‮ person", epsilon=50) == pytest.approx(1.5, abs=0.05)
        with pytest.raises(pinq.QueryError, match="there is no column"):
            h._session.ask(Request(id="nul", verb="noisy_sum", epsilon="1", column="a\x00b"))
        assert h.history()["asked"].iloc[0].count(HOSTILE) == 1
    good = publish(place / "nul").read_text(encoding="utf-8")
    for change in (("Female", '"x\\0y"'), ("  sex:", '  "s\\0x":')):
        (place / "nul" / "nul.yaml").write_text(good.replace(*change), encoding="utf-8")
        with pytest.raises(AssertionError, match="NUL"):
            pinq_command("check", place / "nul" / "nul.yaml")


def test_a_changed_schema_is_noticed(server: Server, policy: Path) -> None:
    """A handle that knows another schema than the server is told to connect again, before anything is charged."""
    token = token_of(policy, "schema", 1)
    with server.http(Authorization=f"Bearer {token}", **{SCHEMA_HEADER: "0" * 32}) as client:
        answer = ask(client)
        assert answer.status_code == 400
        assert "connect again" in answer.json()["message"]
        assert client.get("/v1/people/budget").json()["spent"] == "0"


def test_versions_are_negotiated(server: Server, policy: Path) -> None:
    """Another protocol, a path of another version, and a server that is none are each named for what they are."""
    token = token_of(policy, "versions", 1)
    with server.http(Authorization=f"Bearer {token}", **{PROTOCOL_HEADER: "2"}) as client:
        assert "speaks protocol 1, the client '2'" in ask(client).json()["message"]
        gone = client.post("/v2/people/query", json={})
        assert gone.status_code == 404
        assert "this server speaks protocol 1" in gone.json()["message"]
        assert gone.headers["Pinq-Revision"] == "5"
        assert client.get("/healthz").json()["protocols"] == ["1"]


def test_the_certificate_is_checked(server: Server, policy: Path, tmp_path: Path) -> None:
    """An authority that did not sign the server's certificate is not good enough; no flag switches that off; plain HTTP is for loopback, by name."""
    token = token_of(policy, "tls", 1)
    stranger = Certificate.make(tmp_path)
    with pytest.raises(pinq.Unavailable, match="is not trusted"):
        pinq.connect(server.url(), token=token, verify=stranger.authority)
    with pytest.raises(pinq.QueryError, match="cannot be switched off"):
        pinq.connect(server.url(), token=token, verify=False)
    for url, insecure in (("http://127.0.0.1:1/x", False), ("http://example.org/x", True)):
        with pytest.raises(pinq.QueryError, match="go over https://"):
            pinq.connect(url, token=token, insecure_http=insecure)


def test_padding_sends_at_multiples_of_the_bucket(server: Server, place: Path) -> None:
    """With ``padding: 40ms`` answers and errors alike leave at the end of a bucket; without, they do not wait."""
    token = token_of(place / "policies" / "weird.yaml", "pad", 500)
    with server.http(Authorization=f"Bearer {token}") as client:
        client.get("/v1/weird/budget")
        took = []
        for path, words in (
            ("/v1/weird/query", {"id": "p", "verb": "noisy_count", "epsilon": "1"}),
            ("/v1/weird/query", {}),
            ("/v1/people/query", {}),
        ):
            times = []
            for _ in range(8):
                started = time.monotonic()
                client.post(path, json=words)
                times.append(time.monotonic() - started)
            took.append(min(times))
        assert took[0] > 0.039, "an answer did not wait"
        assert took[1] > 0.039, "an error did not wait"
        assert took[2] > 0.039, "a refused token shows that the dataset has no padding"
    with server.http(Authorization=f"Bearer {token_of(place / 'policies' / 'people.yaml', 'pad', 1)}") as client:
        times = []
        for _ in range(20):
            started = time.monotonic()
            assert client.get("/v1/people/budget").status_code == 200
            times.append(time.monotonic() - started)
        assert min(times) < 0.039, "no padding was declared"


def test_the_providers_view(server: Server, policy: Path, place: Path) -> None:
    """The log is JSON lines without values or tokens, readable by the provider alone; metrics count by dataset and hold no timings; both are off the public port."""
    token = token_of(policy, "logged", 1)
    with pinq.connect(server.url(), token=token, **server.words()) as h:
        answer = h.partition(Values("job")).noisy_count(epsilon=0.5)
        with pytest.raises(pinq.BudgetExceeded):
            h.noisy_count(epsilon=1)
    lines = [json.loads(line) for line in (place / "requests.log").read_text().splitlines()]
    mine = [line for line in lines if line.get("analyst") == "logged"]
    assert [(line["route"], line["status"]) for line in mine] == [("describe", 200), ("query", 200), ("query", 402)]
    assert set().union(*mine) == {
        "at",
        "event",
        "route",
        "dataset",
        "analyst",
        "address",
        "status",
        "code",
        "request",
        "ms",
    }
    text = (place / "requests.log").read_text()
    assert token not in text
    assert "nurse" not in text
    assert str(answer.tolist()) not in text
    assert (place / "requests.log").stat().st_mode & 0o777 == 0o600
    metrics = httpx.get(f"http://127.0.0.1:{server.metrics}/metrics", trust_env=False).text  # type: ignore[attr-defined]
    assert 'pinq_requests_total{dataset="people",route="query",status="402"}' in metrics
    assert 'pinq_refusals_total{code="budget",dataset="people"}' in metrics
    assert 'pinq_cap_epsilon{dataset="people"} 1000.0' in metrics
    assert "pinq_lost_log_lines_total 0.0" in metrics
    assert "seconds" not in metrics
    assert "bucket" not in metrics
    with server.http() as client:
        assert client.get("/metrics").status_code == 404


def test_the_openapi_document(server: Server) -> None:
    """Every route is described, with the request's schema and an example that the server takes; the page shows it."""
    with server.http() as client:
        document = client.get("/openapi.json").json()
        assert set(document["paths"]) == {
            "/healthz",
            "/v1/{dataset}",
            *(f"/v1/{{dataset}}/{name}" for name in ("attempt", "budget", "history", "query", "preview")),
        }
        body = document["paths"]["/v1/{dataset}/query"]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"] == {"$ref": "#/components/schemas/Request"}
        assert Request.received(json.dumps(body["example"])).verb == "noisy_count"
        assert {"Request", "Answer", "Failure", "WireParts", "Values", "AnyCut"} <= set(
            document["components"]["schemas"]
        )
        references = {word.split('"')[0] for word in json.dumps(document).split("#/components/schemas/")[1:]}
        assert references <= set(document["components"]["schemas"])
        assert client.get("/docs").status_code == 404


def test_what_is_served_fits_the_openapi_document(server: Server, policy: Path) -> None:
    """Each answer by its route; and a question is of one kind by its form alone: there is a schema for each."""
    token = token_of(policy, "schemas", 10)
    gini, sex = {"kind": "gini", "target": "income"}, {"kind": "values", "column": "sex"}
    questions: dict[str, dict[str, Any]] = {
        "Count": {"verb": "noisy_count"},
        "Sum": {"verb": "noisy_sum", "column": "age"},
        "Average": {"verb": "noisy_avg", "column": "age"},
        "Choose": {"verb": "exp_mech", "score": gini, "candidates": [[sex]]},
        "Vote": {"verb": "exp_mech", "score": {"kind": "class_count", "target": "sex"}},
    }
    with server.http(Authorization=f"Bearer {token}") as client:
        document = client.get("/openapi.json").json()

        def fits(name: str, value: object) -> bool:
            rules = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
            return bool(jsonschema_rs.validator_for(rules).is_valid(value))

        for name, path in (("Description", ""), ("WireBudget", "/budget"), ("HistoryPage", "/history")):
            assert fits(name, client.get(f"/v1/people{path}").json())
        kinds = [kind.__name__ for kind, _, _ in QUERIES]
        for name, said in questions.items():
            request = {"id": name, "epsilon": "0.1"} | said
            assert [kind for kind in kinds if fits(kind, request)] == [name]
            assert fits("Request", request)
            assert fits("Answer", ask(client, **request).json())
            assert fits("WirePreview", client.post("/v1/people/preview", json=request).json())
            assert not fits("Request", request | {"verb": "noisy_median"})
        assert not fits("Request", {"id": "x", "epsilon": "0.1", "verb": "noisy_count", "column": "age"})
        assert fits("Failure", client.get("/v1/nowhere/budget").json())
    assert set(kinds) == {kind.__name__ for kind in _kinds(Query) if not inspect.isabstract(kind)} - {"_NumberQuery"}


def _kinds(of: type) -> list[type]:
    kinds: list[type] = of.__subclasses__()
    return [kind for sub in kinds for kind in (sub, *_kinds(sub))]


def test_errors_of_routes_have_the_one_shape(server: Server) -> None:
    """What is not there, what takes no such method; and HEAD is answered where GET is."""
    with server.http() as client:
        for method, path, status in (
            ("GET", "/nowhere", 404),
            ("DELETE", "/v1/people/query", 405),
            ("PUT", "/healthz", 405),
        ):
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (status, "query")
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert client.head(path).status_code == 200
        assert client.head("/v1/people/budget").status_code == 401


def test_too_much_is_refused(server: Server, policy: Path) -> None:
    """Bodies that are too large, nested too deep or ask for too many cells are refused for what they are; nothing is charged."""
    with server.http(Authorization=f"Bearer {token_of(policy, 'much', 1)}") as client:

        def refused(content: bytes | str) -> str:
            answer = client.post("/v1/people/query", content=content)
            assert answer.status_code == 400, answer.text
            return str(answer.json()["message"])

        assert "larger than 8,388,608 bytes" in refused(b" " * (8 * 2**20 + 1))
        assert "recursion limit" in refused("[" * 100_000)
        deep = {
            "specs": [{"kind": "cuts", "column": "age", "points": [50]}],
            "nodes": [[i, 0, 0] for i in range(100)],
            "asked": [[100, -1]],
        }
        assert "nested more than 64 deep" in refused(
            json.dumps({"id": "d", "verb": "noisy_count", "epsilon": "0.1", "parts": deep})
        )
        wide = {
            "specs": [{"kind": "cross", "specs": [{"kind": "shards", "count": 65535, "key": key} for key in range(2)]}],
            "asked": [[0, 0]],
            "shape": [65535, 65535],
        }
        assert "parts; at most 1,048,576 are possible" in refused(
            json.dumps({"id": "w", "verb": "noisy_count", "epsilon": "0.1", "parts": wide})
        )
        lists = [
            [
                {
                    "kind": "cross",
                    "specs": [{"kind": "shards", "count": 60_000, "key": key}, {"kind": "values", "column": "job"}],
                }
                for key in range(200)
            ]
        ]
        ask_all = {
            "id": "h",
            "verb": "exp_mech",
            "epsilon": "0.1",
            "score": {"kind": "gini", "target": "income"},
            "candidates": lists,
        }
        assert "cells; at most 67,108,864 are possible" in refused(json.dumps(ask_all))
        assert "at most 32" in refused(
            json.dumps({"id": "s", "verb": "noisy_count", "epsilon": "0.1", "parts": {"shape": [10**18] * 9_999}})
        )
        assert client.get("/v1/people/budget").json()["spent"] == "0"
    with server.http() as stranger:
        assert stranger.post("/v1/people/query", content=b" " * (9 * 2**20)).status_code == 401, (
            "a body was read for somebody without a token"
        )
        assert stranger.request("GET", "/v1/people/budget", content=b" " * (9 * 2**20)).status_code == 401, (
            "a body of a GET was read"
        )


def test_terms_of_a_grant(server: Server, policy: Path) -> None:
    """Columns, verbs, size and pace that a grant does not allow are refused on both sides of the wall, logged, and can be changed at once."""
    token = token_of(
        policy,
        "terms",
        10,
        terms=make_terms(
            policy,
            max_epsilon_per_query="0.5",
            columns=["sex", "income"],
            verbs=["count", "choose"],
            queries_per_minute=3,
        ),
    )
    with (
        pinq.connect(server.url(), token=token, timeout=5, **server.words()) as far,
        pinq.open(policy, analyst="terms") as near,
    ):
        for handle in (far, near):
            with pytest.raises(
                pinq.NotAllowed, match=r"does not allow the column job; it allows sex, income\. .* Nothing was spent\.$"
            ):
                handle.partition(Values("job")).noisy_count(epsilon=0.1)
            with pytest.raises(pinq.NotAllowed, match="does not allow noisy_sum; it allows noisy_count, exp_mech"):
                handle.noisy_sum("age", epsilon=0.1)
            with pytest.raises(pinq.NotAllowed, match=r"at most 0\.5 for one query; 0\.6 was asked"):
                handle.noisy_count(epsilon=0.6)
            with pytest.raises(pinq.NotAllowed):
                handle.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.1)
            with pytest.raises(pinq.NotAllowed):
                handle.preview("noisy_count", epsilon=0.6)
        assert (
            far.terms
            == near.terms
            == "epsilon at most 0.5 a query; columns sex, income; verbs noisy_count, exp_mech; 3 queries a minute"
        )
        far.noisy_count(epsilon=0.1)
        near.noisy_count(epsilon=0.1)
        far.partition(Values("sex")).noisy_count(epsilon=0.1)
        for handle in (far, near):
            with pytest.raises(pinq.TooManyRequests, match="allows 3 queries a minute") as slow:
                handle.noisy_count(epsilon=0.1)
            assert 0 < slow.value.retry_after <= 60
        assert "terms changed" in pinq_command(
            "terms", policy, "terms", "--no-limits", "--columns", "job,age", "--verbs", "sum"
        )
        assert abs(far.noisy_sum("age", epsilon=0.1)) < 10**6
        pinq_command("terms", policy, "terms", "--verbs", "all")
        with pytest.raises(pinq.NotAllowed, match="the columns income, sex; it allows job, age"):
            far.partition(Values("sex"), Values("income")).noisy_count(epsilon=0.1)
    ledger = open_ledger(pinq.load_policy(policy))
    reasons = [
        event.record.to_body()["reason"]
        for event in ledger.log.events()
        if event.analyst == "terms" and event.kind == "refusal"
    ]
    ledger.close()
    assert reasons.count("not-allowed") == 9
    assert reasons.count("too-many-requests") == 2
