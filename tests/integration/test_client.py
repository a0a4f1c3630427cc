# SPDX-License-Identifier: Apache-2.0
"""The client alone, against scripted answers: what it sends again, what it gives up on, what it makes of errors."""

from __future__ import annotations

import json
import operator
import pickle
import time
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import pinq
from pinq import errors
from pinq.analyst.client import RemoteSession
from pinq.analyst.lessons import LESSONS
from pinq.errors import BudgetExceeded, PinqError, TooManyRequests
from pinq.language.queries import Answer, Asked
from pinq.language.wire import PROTOCOL_HEADER, Failure, HistoryPage, WireBudget, status_of
from pinq.public.schema import Schema
from pinq.server.gate import failure

SCHEMA = Schema(columns={"s": {"type": "categorical", "values": ["f", "m"]}}, max_rows=10)
HELLO = {
    "dataset": "d",
    "analyst": "ana",
    "schema": SCHEMA.model_dump(mode="json"),
    "digest": SCHEMA.digest,
    "terms": "no terms",
}
ANSWER = Answer(id="x", verb="noisy_count", epsilon="0.1", values=(7,), scale=10.0, grid=1.0)

REAL = httpx.Client
Script = list[Callable[[httpx.Request], httpx.Response]]


def refusal(error: PinqError) -> Callable[[httpx.Request], httpx.Response]:
    sent = failure(error)
    return lambda _: httpx.Response(sent.status_code, headers=dict(sent.headers), content=bytes(sent.body))


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the answer was lost", request=request)


def answered(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text=ANSWER.text)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A handle on a server that follows a script; the bodies that it was sent; no pause is slept."""
    monkeypatch.setattr("pinq.analyst.client.time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))

    def make(script: Script, timeout: float = 60.0) -> tuple[Any, list[bytes]]:
        bodies: list[bytes] = []

        def serve(request: httpx.Request) -> httpx.Response:
            if request.method == "GET" and request.url.path == "/v1/d":
                return httpx.Response(200, json=HELLO)
            bodies.append(request.content)
            return script.pop(0)(request)

        monkeypatch.setattr(
            "pinq.analyst.client.httpx.Client", lambda **words: REAL(**words, transport=httpx.MockTransport(serve))
        )
        return pinq.connect("http://127.0.0.1/d", token="pinq_t", insecure_http=True, timeout=timeout), bodies

    return make


def test_what_is_lost_is_sent_again_as_it_was(connect: Callable[..., Any]) -> None:
    """Lost connections, a busy server, a gateway's own pages and a full minute are tried again with the very same bytes."""
    gateway = lambda _: httpx.Response(502, text="<html>bad gateway</html>")  # noqa: E731
    script = [
        lost,
        refusal(errors.Unavailable("restarting")),
        gateway,
        refusal(TooManyRequests("slow", 3.0)),
        lost,
        answered,
    ]
    handle, bodies = connect(script)
    assert handle.noisy_count(epsilon=0.1) == 7
    assert len(bodies) == 6
    assert len(set(bodies)) == 1
    assert len(json.loads(bodies[0])["id"]) == 32


@pytest.mark.parametrize(
    "error",
    [
        errors.QueryError("no"),
        errors.NotAuthorised(),
        errors.NotAllowed("no"),
        errors.EngineError(),
        BudgetExceeded("no", asked=Fraction(3, 10), remaining=Fraction(1, 5), scope="cap"),
    ],
)
def test_what_repeating_would_not_change_is_raised_at_once(error: PinqError, connect: Callable[..., Any]) -> None:
    """As the same class, with the same text and attributes."""
    handle, bodies = connect([refusal(error)])
    with pytest.raises(type(error)) as raised:
        handle.noisy_count(epsilon=0.1)
    assert len(bodies) == 1
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)


@pytest.mark.parametrize("first", [lost, refusal(errors.Unavailable("restarting"))])
def test_after_a_lost_attempt_nobody_says_that_nothing_was_spent(
    first: Callable[[httpx.Request], httpx.Response], connect: Callable[..., Any]
) -> None:
    """The first attempt may have been charged; without one the server's word stands."""
    error = errors.QueryError("no.")
    error.charged = Fraction(0)
    for script, claims in (([refusal(error)], 1), ([first, refusal(error)], 0)):
        with pytest.raises(errors.QueryError) as raised:
            connect(script)[0].noisy_count(epsilon=0.1)
        assert str(raised.value).count(errors.UNSPENT) == claims


def test_a_remote_handle_teaches_what_a_local_one_does(connect: Callable[..., Any]) -> None:
    """Every lesson, word for word; the server is asked for the budget alone, which lessons do not pass."""
    left = httpx.Response(200, text=WireBudget(epsilon="1", spent="0", remaining="1").model_dump_json())
    remote, bodies = connect([lambda _: left] * 999)
    wishes: list[Callable[[Any], object]] = [operator.attrgetter(name) for name in (*LESSONS, "s", "misspelt")]
    wishes += [operator.itemgetter("s"), operator.itemgetter(0), len, list]
    with pinq.simulate(SCHEMA, rows=5, epsilon=1) as local:
        for wish in wishes:
            texts = []
            for handle in (remote, local):
                with pytest.raises(errors.QueryError) as taught:
                    wish(handle)
                texts.append(str(taught.value))
            assert texts[0] == texts[1]
    assert set(bodies) == {b""}


def test_patience_ends(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``timeout`` the last error is raised, and it says how to get an answer that was paid for."""
    clock = iter(range(0, 10**6, 7))
    ticking = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: float(next(clock)))
    monkeypatch.setattr("pinq.analyst.client.time", ticking)  # the module's alone: other threads keep their clock
    handle, bodies = connect([lost] * 99, timeout=60)
    with pytest.raises(pinq.Unavailable, match=r"within 60 s .*returns it at no further cost, with `reuse`"):
        handle.noisy_count(epsilon=0.1)
    assert 5 < len(bodies) < 12
    handle, bodies = connect([refusal(TooManyRequests("a minute is full", 120.0))] * 9, timeout=60)
    with pytest.raises(TooManyRequests) as slow:
        handle.noisy_count(epsilon=0.1)
    assert slow.value.retry_after == 120
    assert len(bodies) == 1, "waiting could not have helped"


def test_an_attempt_has_what_the_ones_before_it_left(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3 s two 503 take one second each, and pauses a part: the third attempt may take the rest and no more."""
    now, ends = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def overloaded(request: httpx.Request) -> httpx.Response:
        ends.append(now + request.extensions["timeout"]["read"])
        sleep(1)
        return httpx.Response(503)

    monkeypatch.setattr("pinq.analyst.client.time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    handle, _ = connect([overloaded] * 9, timeout=3)
    with pytest.raises(pinq.Unavailable):
        handle.noisy_count(epsilon=0.1)
    assert ends == pytest.approx([3, 3, 3])


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"code": 3}', '{"id": "x", "verb": "noisy_count"}'])
def test_what_is_no_answer(text: str, connect: Callable[..., Any]) -> None:
    """A 200 that is no answer is not taken for one."""
    handle, _ = connect([lambda _: httpx.Response(200, text=text)])
    with pytest.raises(pinq.Unavailable, match="is no Answer"):
        handle.noisy_count(epsilon=0.1)
    handle, _ = connect([lambda _: httpx.Response(418, text=text, headers={PROTOCOL_HEADER: "9"})])
    with pytest.raises(PinqError) as raised:
        handle.noisy_count(epsilon=0.1)
    assert "speaks protocol 9" in str(raised.value)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "PinqError"])
def test_every_error_crosses_the_wire(name: str) -> None:
    """Every class has a status, and comes back as itself."""
    kind = getattr(errors, name)
    error = kind.__new__(kind)
    error.args = ("some text",)
    if kind is BudgetExceeded:
        error = BudgetExceeded("some text", asked=Fraction(1, 3), remaining=Fraction(0), scope="analyst")
    if kind is TooManyRequests:
        error = TooManyRequests("some text", 2.5)
    back: Any = Failure.model_validate_json(Failure.of(error).model_dump_json()).error()
    assert type(back) is kind
    assert str(back) == "some text"
    assert 400 <= status_of(error) < 600
    if kind is BudgetExceeded:
        assert back.asked == Fraction(333333334, 10**9)
    assert type(Failure(code="of the future", message="x").error()) is PinqError


@pytest.mark.parametrize("allowed", ["", "a whole number from 1 to 9"])
def test_what_an_error_says_of_a_parameter_crosses_the_wire(allowed: str) -> None:
    """The client's face can name the parameter, as the server's can; an older client reads the message."""
    error = errors.QueryError("is 0", parameter="rows", allowed=allowed)
    failure = Failure.of(error)
    back: Any = failure.error()
    assert str(back) == failure.message == str(error)
    assert (back.parameter, back.problem, back.allowed) == ("rows", "is 0", allowed)
    assert back.worded({"rows": "--rows"}) == str(error).replace("`rows`", "--rows")


def test_small_things_cross_the_wire_exactly() -> None:
    """Budgets are exact, histories keep their answers."""
    budget = pinq.Budget(Fraction(1), Fraction(1, 10**9), Fraction(10**9 - 1, 10**9))
    assert WireBudget.model_validate_json(WireBudget.of(budget).model_dump_json()).budget() == budget
    assert f"{WireBudget.of(budget).budget().epsilon:.2f}" == "1.00"
    history = HistoryPage(lines=(Asked(at="t", about="x", spent="1", outcome="answered", answer=ANSWER),))
    assert HistoryPage.model_validate_json(history.model_dump_json(exclude_none=True)) == history


def test_a_long_history_comes_in_pages(connect: Callable[..., Any]) -> None:
    """The client asks for what it does not have yet, until there is no more; a server that promises more and sends nothing ends it too."""
    lines = [Asked(at="t", about=str(number), spent="1", outcome="answered") for number in range(5)]
    asked: list[str] = []

    def serve(pages: int) -> Callable[[httpx.Request], httpx.Response]:
        def answer(request: httpx.Request) -> httpx.Response:
            start = int(request.url.params["start"])
            asked.append(request.url.params["start"])
            page = HistoryPage(lines=tuple(lines[start:pages][:2]), more=start < 4)
            return httpx.Response(200, text=page.model_dump_json())

        return answer

    h, _ = connect([serve(5)] * 3)
    assert h.history()["asked"].tolist() == list("01234")
    h, _ = connect([serve(2)] * 2)
    assert h.history()["asked"].tolist() == list("01")
    h, _ = connect([serve(5)] * 1)
    assert h.history(start=4)["asked"].tolist() == ["4"]
    assert asked == ["0", "2", "4", "0", "2", "4"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "adult",
        "https://",
        "https://host",
        "https://host/",
        "ftp://host/adult",
        "https://user:pw@host/adult",
        "https://host/adult?x=1",
        "https://host:port/adult",
        3,
        None,
    ],
)
def test_urls_are_checked(url: Any) -> None:
    """A URL without a dataset, with a password or of another kind is refused with an example."""
    with pytest.raises(pinq.QueryError, match=r"it must be like https://stats\.example\.org:8443/adult"):
        pinq.connect(url, token="pinq_t")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "60", True, None])
def test_timeouts_are_checked(timeout: Any) -> None:
    """Patience is a number of seconds."""
    with pytest.raises(pinq.QueryError, match="`timeout` is"):
        pinq.connect("https://host/adult", token="pinq_t", timeout=timeout)


def test_a_closed_remote_handle_refuses(connect: Callable[..., Any]) -> None:
    handle, _ = connect([])
    handle.close()
    with pytest.raises(pinq.QueryError, match=r"this handle is closed; open it again\. Nothing was spent"):
        handle.noisy_count(epsilon=0.1)
    handle.close()


def test_a_remote_handle_is_not_pickled(connect: Callable[..., Any]) -> None:
    """It would carry its token elsewhere; and no text that it shows of itself holds the token."""
    handle, _ = connect([lambda _: httpx.Response(200, text='{"epsilon": "1", "spent": "0", "remaining": "1"}')] * 3)
    with pytest.raises(TypeError, match="carry its token"):
        pickle.dumps(handle)
    assert "pinq_t" not in repr(handle) + handle._repr_html_() + str(vars(handle._session))
    assert isinstance(handle._session, RemoteSession)


def test_another_reading_of_the_schema_is_noticed(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the two sides' schemas do not read the same, nothing is asked."""
    monkeypatch.setitem(HELLO, "digest", "0" * 32)
    with pytest.raises(pinq.Unavailable, match="same version of pinq on both sides"):
        connect([])
