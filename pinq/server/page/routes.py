# SPDX-License-Identifier: Apache-2.0
"""The provider's page, ``/provider``: budgets and refusals, and grants to make, change and end.

It has no script and takes nothing from elsewhere. Every view and every act needs a session
(``login.py``); an analyst's token opens none of it, and a session asks no question. Views are drawn
from the log (``views.py``). An act (``actions.py``) is a
form, a summary to confirm, and a page that says once what was done; a form that is sent twice acts
once.
"""

from __future__ import annotations

import hmac
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pinq.errors import PinqError, QueryError, TooManyRequests
from pinq.ledger.events import Signature
from pinq.server.datasets import Dataset, Datasets
from pinq.server.gate import read_body
from pinq.server.log import RequestLog
from pinq.server.page.actions import ACTS, Act, Form, holder
from pinq.server.page.login import Login, Notice, Session, WrongPassword
from pinq.server.page.views import ICON, PATH, SAFE, STYLE, Views

__all__ = ["create_page"]

MAX_FORM, MAX_FIELDS, FORM_SECONDS = 2**18, 10_000, 30.0
STATUSES: dict[type[PinqError], int] = {WrongPassword: 401, TooManyRequests: 429}
_HOME, _SIGN_IN = f"{PATH}/", f"{PATH}/login"
_log = logging.getLogger("pinq.server")

Endpoint = Callable[[Request], Awaitable[Response]]


def create_page(datasets: Datasets, login: Login, log: RequestLog, public_url: str) -> Starlette:
    """The page as an application of its own, to be mounted at ``PATH``.

    Args:
        datasets: What it shows and grants on.
        login: Who may.
        log: The provider's, for sign-ins and acts.
        public_url: Where analysts reach the server; empty for its own address.
    """
    page = _Page(datasets, login, log, public_url)
    app = Starlette(
        routes=[
            Route("/style.css", _asset(STYLE, "text/css")),
            Route("/icon.svg", _asset(ICON, "image/svg+xml")),
            Route("/login", page.safely(page.sign_in), methods=["GET", "POST"]),
            Route("/logout", page.acting(page.sign_out), methods=["POST"]),
            Route("/", page.viewing(page.overview)),
            Route("/datasets/{dataset}", page.viewing(page.dataset)),
            Route("/datasets/{dataset}/analyst", page.viewing(page.analyst)),
            Route("/datasets/{dataset}/{act}", page.viewing(page.ask), methods=["GET"]),
            Route("/datasets/{dataset}/{act}", page.acting(page.act), methods=["POST"]),
        ],
        exception_handlers={HTTPException: page.missing},
    )
    app.router.redirect_slashes = False  # such a redirect would follow the Host header
    return app


class _Page:
    """From requests to views and acts."""

    def __init__(self, datasets: Datasets, login: Login, log: RequestLog, public_url: str) -> None:
        self._datasets, self._login, self._log = datasets, login, log
        self._public_url = public_url.rstrip("/")
        self._views = Views(datasets)

    # What every request goes through

    def safely(self, endpoint: Endpoint) -> Endpoint:
        """Whatever goes wrong becomes a page that says so; what is not ours, one fixed text."""

        async def safe(http: Request) -> Response:
            try:
                return await endpoint(http)
            except HTTPException:
                raise
            except ClientDisconnect:
                return Response(status_code=400)
            except PinqError as error:
                return self._views.problem(self._session(http), "That did not work", str(error), 409)
            except Exception:
                _log.exception("the provider's page failed")
                text = "The file that `PINQ_LOG` names has the details, where there is one. Please report it."
                return self._views.problem(None, "Something unexpected went wrong", text, 500)

        return safe

    def viewing(self, view: Callable[[Request, Session], Response]) -> Endpoint:
        """A view, for who has signed in."""

        async def endpoint(http: Request) -> Response:
            session = self._session(http)
            return _go(_SIGN_IN) if session is None else await run_in_threadpool(view, http, session)

        return self.safely(endpoint)

    def acting(self, act: Callable[[Request, Session, Form], Response]) -> Endpoint:
        """What a form asks for, if this session was given the form."""

        async def endpoint(http: Request) -> Response:
            session = self._session(http)
            if session is None:
                return _go(_SIGN_IN)
            form = await _read_form(http)
            if not hmac.compare_digest(form.text("csrf").encode(), session.csrf.encode()):
                return self._views.problem(
                    session,
                    "This form is not of this session",
                    "Nothing was changed. Open the page again and repeat what you did.",
                    403,
                )
            return await run_in_threadpool(act, http, session, form)

        return self.safely(endpoint)

    async def missing(self, http: Request, error: Exception) -> Response:
        """A page for an address that is none; who has not signed in learns nothing from it."""
        session, status = self._session(http), getattr(error, "status_code", 404)
        if session is None:
            return _go(_SIGN_IN)
        return self._views.problem(session, "There is no such page", "Start from the list of datasets.", status)

    # Signing in and out

    async def sign_in(self, http: Request) -> Response:
        """The form, and what it asks for."""
        if http.method != "POST":
            return _go(_HOME) if self._session(http) is not None else self._sign_in_form(http)
        form, address = await _read_form(http), http.client.host if http.client else "-"
        cookie = http.cookies.get(_name(http, "form"), "")
        if not hmac.compare_digest(form.text("csrf").encode(), self._login.form_token(cookie).encode()):
            return self._sign_in_form(http, "The form was too old, or cookies are off. Try again.", 403)
        try:
            opened = await self._login.open((form.fields.get("password") or [""])[0], address)
        except (WrongPassword, TooManyRequests) as error:
            self._log.write("sign-in refused", address=address, code=error.code)
            refused = self._sign_in_form(http, str(error), STATUSES[type(error)])
            if isinstance(error, TooManyRequests):
                refused.headers["Retry-After"] = str(math.ceil(error.retry_after))
            return refused
        self._log.write("sign-in", address=address)
        response = _go(_HOME)
        _set_cookie(http, response, "session", opened)
        return response

    def _sign_in_form(self, http: Request, problem: str = "", status: int = 200) -> Response:
        cookie = http.cookies.get(_name(http, "form")) or secrets.token_urlsafe(32)  # the same one in every window
        response = self._views.sign_in(self._login.form_token(cookie), problem, status)
        _set_cookie(http, response, "form", cookie)
        return response

    def sign_out(self, http: Request, _: Session, __: Form) -> Response:
        """Ends the session."""
        self._login.close(http.cookies.get(_name(http, "session"), ""))
        response = _go(_SIGN_IN)
        response.delete_cookie(_name(http, "session"), secure=_secure(http), httponly=True, samesite="strict")
        return response

    # Views

    def overview(self, _: Request, session: Session) -> Response:
        """All datasets."""
        return self._views.overview(session)

    def dataset(self, http: Request, session: Session) -> Response:
        """One dataset."""
        return self._views.dataset(session, self._named(http).name)

    def analyst(self, http: Request, session: Session) -> Response:
        """One analyst."""
        notice = session.notice(http.query_params.get("done", ""))
        name = self._named(http).name
        extra = "" if _secure(http) else ", insecure_http=True"
        call = f'pinq.connect("{self._public_url or _root(http)}/{name}", token=...{extra})'
        return self._views.analyst(session, name, http.query_params.get("name", ""), notice, call)

    # Acts

    def ask(self, http: Request, session: Session) -> Response:
        """A form; where there is nothing to type, what is to be confirmed."""
        of, act = self._named(http), _act(http)
        form = self._views.blank(of, act, http.query_params.get("analyst", ""))
        if act.name != "grant":
            holder(of, form)
        return (
            self._views.form(session, of, act, form)
            if act.asks
            else self._views.confirm(session, of, act, form, act.plan(of, form))
        )

    def act(self, http: Request, session: Session, form: Form) -> Response:
        """What a form asks for: once it is right, to confirm it; once it is confirmed, to do it."""
        of, act = self._named(http), _act(http)
        step, number = form.text("step"), form.text("once")
        try:
            if step == "back":
                return self._views.form(session, of, act, form)
            if step == "do" and number:
                return _go(session.once(number, lambda: self._do(http, of, act, form, number)))
            return self._views.confirm(session, of, act, form, act.plan(of, form))
        except PinqError as error:
            if not act.asks:
                raise
            form.note(error)
            return self._views.form(session, of, act, form, 422)

    def _do(self, http: Request, of: Dataset, act: Act, form: Form, number: str) -> tuple[str, Notice]:
        plan, address = act.plan(of, form), http.client.host if http.client else "-"
        account = plan.do(Signature(f"provider page, {address}", form.text("because")))
        self._log.write("act", act=act.name, dataset=of.name, analyst=plan.analyst, address=address)
        query = f"name={quote(plan.analyst, safe='')}&done={quote(number, safe='')}"
        return f"{PATH}/datasets/{of.name}/analyst?{query}", Notice(plan.done, account.warnings, account.token)

    # Small things

    def _session(self, http: Request) -> Session | None:
        return self._login.session(http.cookies.get(_name(http, "session"), ""))

    def _named(self, http: Request) -> Dataset:
        dataset = self._datasets.get(http.path_params["dataset"])
        if dataset is None:
            raise HTTPException(404)
        return dataset


def _act(http: Request) -> Act:
    act = ACTS.get(http.path_params["act"])
    if act is None:
        raise HTTPException(404)
    return act


async def _read_form(http: Request) -> Form:
    body = await read_body(http, MAX_FORM, FORM_SECONDS)
    try:
        return Form(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise QueryError("the form is malformed. Nothing was changed.") from None


def _asset(text: str, kind: str) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return Response(text, headers=SAFE | {"Cache-Control": "public, max-age=86400"}, media_type=kind)

    return endpoint


def _root(http: Request) -> str:
    """Where this server is: its own address, for the Host header is whatever somebody wrote."""
    host, port = http.scope.get("server") or ("localhost", None)
    usual = {"http": 80, "https": 443}[http.url.scheme]
    name = f"[{host}]" if ":" in host else host
    return f"{http.url.scheme}://{name}" + ("" if port in (None, usual) else f":{port}")


def _go(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303, SAFE)


def _secure(http: Request) -> bool:
    return http.url.scheme == "https"


def _name(http: Request, what: str) -> str:
    """A cookie that only this host can set, where there is TLS."""
    return f"__Host-pinq-{what}" if _secure(http) else f"pinq-{what}"


def _set_cookie(http: Request, response: Response, what: str, value: str) -> None:
    response.set_cookie(_name(http, what), value, secure=_secure(http), httponly=True, samesite="strict", path="/")
