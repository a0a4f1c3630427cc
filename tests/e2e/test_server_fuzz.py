# SPDX-License-Identifier: Apache-2.0
"""Malformed requests by the thousand: each gets a refusal of one shape, none a stack trace, a row's value or SQL, and nothing is charged.

Two thousand in an ordinary run, the same ones each time; ten thousand in ``make assurance``; ``make attack`` (PINQ_ATTACK=1) sends fifty thousand.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import socket
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok

import pinq
from pinq.language.queries import Answer
from pinq.provider.opening import open_ledger
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.servers import COLUMNS, Server, people, publish, serving, token_of
from tests.support.requests.every_request import CATALOGUES

pytestmark = pytest.mark.long  # together: the last one counts the replies to all

MANY = 50_000 if os.environ.get("PINQ_ATTACK") else 10_000 if ASSURANCE else 1_000
VARIANTS = 9
FACTS = {"code", "message", "asked", "remaining", "scope", "retry_after", "parameter", "problem", "allowed"}
# What only the rows, the engine or the machine know. None of it stands in a request.
NEVER = re.compile(
    r"hildegard|7316\.25|traceback|file \"|line \d+, in|/tmp|\.py\b|\bselect\b|grouping sets|from codes|row_coin|sqlite|duckdb|pydantic\.dev|\.ledger",
    re.IGNORECASE,
)
FAST = settings(
    max_examples=MANY // (VARIANTS + 1), deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


class Target:
    """A connection that is kept alive, and a record of what came back."""

    def __init__(self, server: Server, token: str) -> None:
        self.port, self.statuses, self.ids = int(server.root.rsplit(":", 1)[1]), Counter[int](), set[str]()
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def send(
        self, body: bytes, path: str = "/v1/people/query", method: str = "POST", headers: dict[str, str] | None = None
    ) -> None:
        try:
            self.connection.request(method, path, body, headers or self.headers)
            response = self.connection.getresponse()
        except (http.client.BadStatusLine, ConnectionError):  # the server hung up on something that is no HTTP
            self.connection.close()
            return
        text = response.read().decode()
        if response.will_close:
            self.connection.close()
        self.statuses[response.status] += 1
        assert response.status < 500, (body[:500], text)
        assert not NEVER.search(text), (body[:500], text)
        if response.status == 200 and path.endswith("query"):
            self.ids.add(Answer.from_json(text).id)
        elif method != "HEAD" and response.status >= 400:
            failure = json.loads(text)
            assert set(failure) <= FACTS, text
            assert len(failure["message"]) < 20_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A dataset whose rows hold markers that must never be seen."""
    place = tmp_path_factory.mktemp("fuzz")
    rows = people(50).astype({"job": object, "age": float})
    rows.loc[0, "job"], rows.loc[1, "age"] = "Hildegard", 7316.25
    rows["name"] = "Hildegard"
    policy = publish(place, frame=rows)
    with serving(policy, folder=place, options=("--rate", "100000", "--log", os.devnull)) as server:
        found = Target(server, token_of(policy, epsilon=1000))
        yield found
        found.connection.close()
    print(f"\nsent {sum(found.statuses.values()):,} requests; answered with {dict(sorted(found.statuses.items()))}")
    note("malformed requests", sum(found.statuses.values()), f"statuses {dict(sorted(found.statuses.items()))}")
    assert sum(found.statuses.values()) > MANY // 2
    # A variant can mend a request, rarely; then it is a question like any other. Everything else was charged nothing.
    ledger = open_ledger(pinq.load_policy(policy))
    assert {event.request for event in ledger.log.events() if event.kind == "charge"} == found.ids
    assert found.statuses[200] < sum(found.statuses.values()) / 20
    assert found.statuses.keys() <= {200, 400, 401, 402, 404, 405, 429}  # many unknown datasets are many wrong tokens
    ledger.verify()
    ledger.close()


HOSTILE = [
    '"; drop table events; --',
    "' or 1=1 --",
    "\u202egnirts",
    "a\x00b",
    "",
    "k" * 10_240,
    "{0}",
    "%s",
    "../../etc/passwd",
    "<script>",
    "c0",
    "codes",
    "name",
    "NaN",
    "\ud83d\ude0a",
]
WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 10**400, 0, -1, 1]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(HOSTILE),
    st.lists(st.integers(-2, 3), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)
COLUMN = st.one_of(st.sampled_from([*COLUMNS, *HOSTILE]), WEIRD)
VALUE = st.one_of(st.sampled_from(["Female", "clerk", ">50K", None, 30, 30.5]), WEIRD)
KINDS = [kind for catalogue in CATALOGUES for kind in catalogue]
FIELDS = {
    "kind": st.one_of(st.sampled_from(KINDS), WEIRD),
    "column": COLUMN,
    "points": st.one_of(st.lists(VALUE, max_size=4), WEIRD),
    "count": WEIRD,
    "key": WEIRD,
    "target": COLUMN,
    "groups": st.one_of(st.lists(st.lists(VALUE, max_size=3), max_size=3), WEIRD),
}
SPEC = st.fixed_dictionaries(
    {"kind": FIELDS["kind"]}, optional={name: field for name, field in FIELDS.items() if name != "kind"}
)
ANY_SPEC = st.one_of(
    SPEC, SPEC, SPEC, st.builds(lambda specs: {"kind": "cross", "specs": specs}, st.lists(SPEC, max_size=3)), WEIRD
)
NUMBERS = st.lists(st.one_of(st.integers(-2, 5), WEIRD), max_size=3)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "specs": st.lists(ANY_SPEC, max_size=3),
        "nodes": st.lists(NUMBERS, max_size=3),
        "asked": st.lists(NUMBERS, max_size=3),
        "shape": NUMBERS,
        "extra": WEIRD,
    },
)
POINTS = st.fixed_dictionaries(
    {"kind": st.just("points")},
    optional={
        "specs": st.lists(ANY_SPEC, max_size=2),
        "tables": st.lists(NUMBERS, max_size=2),
        "base": WEIRD,
        "extra": WEIRD,
    },
)
LOSS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["logistic", "softmax", "residuals"]), "target": COLUMN},
    optional={
        "points": st.one_of(POINTS, st.lists(POINTS, max_size=3), WEIRD),
        "positive": st.one_of(st.lists(VALUE, max_size=2), WEIRD),
        "limit": WEIRD,
        "hessian": WEIRD,
        "rows": WEIRD,
    },
)
GRADIENT = st.fixed_dictionaries(
    {"kind": st.just("gradient"), "derivatives": st.one_of(LOSS, WEIRD)}, optional={"threshold": WEIRD}
)
EPSILON = st.one_of(
    st.sampled_from(["0.1", "-1", "0", "nan", "inf", "1e400", "1e-400", "0x1", "١", "1_0", " 1"]), WEIRD
)
REQUEST = st.fixed_dictionaries(
    {
        "id": st.one_of(st.uuids().map(str), WEIRD),
        "verb": st.one_of(st.sampled_from(["noisy_count", "noisy_sum", "noisy_avg", "exp_mech"]), WEIRD),
        "epsilon": EPSILON,
    },
    optional={
        "parts": st.one_of(PARTS, WEIRD),
        "column": st.one_of(COLUMN, LOSS),
        "by": st.one_of(st.lists(ANY_SPEC, max_size=3), WEIRD),
        "score": st.one_of(SPEC, GRADIENT, WEIRD),
        "candidates": st.one_of(st.lists(st.lists(ANY_SPEC, max_size=3), max_size=2), WEIRD),
        "which": NUMBERS,
        "reuse": WEIRD,
        "textbook": WEIRD,
        "extra": WEIRD,
    },
).filter(lambda found: len(found) > 3 or found["epsilon"] != "0.1")


def variants(body: bytes, chance: random.Random) -> Iterator[bytes]:
    """The body itself, and pieces of it in disorder."""
    yield body
    for _ in range(VARIANTS):
        place = chance.randrange(len(body) + 1)
        length = chance.choice([0, 1, 1, 2, 8])
        fresh = bytes(chance.choice(b'{}[]",:-0129aNe\\u\x00\xff ') for _ in range(chance.choice([0, 1, 1, 2])))
        yield chance.choice(
            [
                body[:place] + fresh + body[place + length :],
                body[:place],
                body + body[:place],
                body[:place] + body[place : place + 40] * 3 + body[place:],
            ]
        )


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(request=REQUEST, chance=st.randoms(use_true_random=False))
@FAST
def test_the_grammar_of_queries(request: dict[str, Any], chance: random.Random, target: Target) -> None:
    """Requests with every field wrong in every way, and their bytes in disorder."""
    for body in variants(json.dumps(request).encode(), chance):
        target.send(body, path=chance.choice(["/v1/people/query"] * 9 + ["/v1/people/preview"]))


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_the_openapi_document(mode: schemathesis.GenerationMode, target: Target) -> None:
    """What schemathesis makes of the document, both as it allows and as it forbids."""
    target.connection.request("GET", "/openapi.json")
    document = json.loads(target.connection.getresponse().read())
    api = schemathesis.openapi.from_dict(document)
    operations = [operation.ok() for operation in api.get_all_operations() if isinstance(operation, Ok)]
    assert len(operations) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # schemathesis' own
        for operation in operations:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(FAST, max_examples=MANY // 200)
            def run(case: Any) -> None:
                words = case.as_transport_kwargs(base_url="http://x")
                body = words.get("json", words.get("data", b""))
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                path = words["url"].removeprefix("http://x").replace("%7Bdataset%7D", "people") or "/"
                headers = {
                    name: value
                    for name, value in (words.get("headers") or {}).items()
                    if name.lower().startswith("pinq") and value.isascii() and value.isprintable()
                }
                for where in {path, re.sub(r"^/v1/[^/]*", "/v1/people", path)}:
                    target.send(content, where, words["method"], target.headers | headers)

            with suppress(Unsatisfiable):  # nothing about /healthz can be wrong
                run()


def test_what_is_no_http(target: Target) -> None:
    """Broken framing, headers without end, lies about lengths: the server answers 400 or hangs up, and goes on serving."""
    chance, token = random.Random(3), target.headers["Authorization"]
    bodies = [
        b"\x00" * 100,
        b"GET /v1/people HTTP/9.9\r\n\r\n",
        b"POST /v1/people/query HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/people/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: "
        + token.encode()
        + b"\r\n\r\nZZ\r\nxx\r\n0\r\n\r\n",
        b"POST /v1/people/query HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"GET /v1/people HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    for number in range(300):
        body = (
            bodies[number]
            if number < len(bodies)
            else bytes(chance.choice(b"GET POST/v1\r\n: people\x00\xff") for _ in range(200))
        )
        with socket.create_connection(("127.0.0.1", target.port), timeout=10) as raw:
            try:
                raw.sendall(body)
                raw.shutdown(socket.SHUT_WR)
                said = raw.recv(65536).decode(errors="replace")
            except OSError:
                continue
        assert not NEVER.search(said)
        assert not said or said.split()[1] in ("400", "401", "404", "405", "429", "431"), said
    with suppress(OSError), socket.create_connection(("127.0.0.1", target.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(4000):
            raw.sendall(b"x: " + b"y" * 1000 + b"\r\n")
        pytest.fail("the server takes headers without end")
    target.connection.request("GET", "/healthz")
    assert target.connection.getresponse().read()
