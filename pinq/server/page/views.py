# SPDX-License-Identifier: Apache-2.0
"""What the provider's page shows: templates, filled from the log alone.

Texts in the log come from strangers: templates escape everything, and what does not print shows as
an escape.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from pinq import __version__
from pinq.errors import printable
from pinq.ledger.events import FREE, VERBS, Terms, now
from pinq.ledger.state import Account
from pinq.provider.grants import promised
from pinq.provider.report import html as audit_html
from pinq.provider.report.audit import Audit, Replay
from pinq.provider.report.chart import chart_of_all, charts_of_each
from pinq.provider.report.markup import Html, element, joined, when
from pinq.public.epsilon import Epsilon
from pinq.public.policy import Policy
from pinq.server.datasets import Dataset, Datasets
from pinq.server.page.actions import Act, Form, Plan
from pinq.server.page.login import Notice, Session

__all__ = ["ICON", "PATH", "STYLE", "Views"]

PATH = "/provider"
RECENT = 25
SAFE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STYLE = audit_html.STYLE + files("pinq.server.page").joinpath("templates/page.css").read_text(encoding="utf-8")
ICON = files("pinq.server.page").joinpath("templates/icon.svg").read_text(encoding="utf-8")
_VERBS = (
    "counts (noisy_count)",
    "sums (noisy_sum)",
    "averages (noisy_avg)",
    "choices, such as the split of a tree (exp_mech)",
)


class Views:
    """Pages over the datasets of a server."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._reports: dict[str, tuple[threading.Lock, Replay]] = {}
        env = Environment(
            loader=PackageLoader("pinq.server.page", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_printable,
        )
        env.filters |= {"prose": _prose, "epsilon": str, "when": when, "many": "{:,}".format}
        style = hashlib.sha256(STYLE.encode()).hexdigest()[:12]
        env.globals |= {
            "path": PATH,
            "version": __version__,
            "style": style,
            "bar": audit_html.bar,
            "cards": audit_html.cards,
            "short": audit_html.short,
            "state": audit_html.state,
        }
        self._env = env

    def sign_in(self, token: str, problem: str = "", status: int = 200) -> Response:
        """The form that asks for the password."""
        return self._page("login.html", None, status, token=token, problem=problem)

    def problem(self, session: Session | None, title: str, text: str, status: int) -> Response:
        """What went wrong, and nothing else."""
        return self._page("problem.html", session, status, title=title, text=text)

    def overview(self, session: Session) -> Response:
        """All datasets."""
        rows = []
        for name in self._datasets:
            with self._report(name) as audit:
                rows.append(_overview_row(name, audit))
        return self._page("overview.html", session, rows=rows)

    def dataset(self, session: Session, name: str) -> Response:
        """One dataset: its analysts, its spending, its last requests."""
        with self._report(name) as audit:
            accounts = sorted(
                audit.accounts.values(), key=lambda account: (account.state != "active", account.analyst.lower())
            )
            return self._page(
                "dataset.html",
                session,
                name=name,
                public=_public(self._datasets[name].policy),
                audit=audit,
                accounts=accounts,
                chart=chart_of_all(audit),
                tables=audit_html.tables(audit, RECENT),
            )

    def analyst(self, session: Session, name: str, analyst: str, notice: Notice | None, call: str) -> Response:
        """One analyst: budget, terms and requests; and once, what was just done."""
        with self._report(name) as audit:
            own = audit.of(analyst)
            (account,) = own.accounts.values()
            return self._page(
                "analyst.html",
                session,
                name=name,
                account=account,
                allowed=_allowed(account),
                notice=notice,
                call=call,
                chart=charts_of_each(own),
                tables=audit_html.tables(own, RECENT),
            )

    def form(self, session: Session, of: Dataset, act: Act, form: Form, status: int = 200) -> Response:
        """A form, with what was typed and what is wrong with it."""
        with self._report(of.name) as audit:
            return self._page(
                "form.html",
                session,
                status,
                name=of.name,
                act=act,
                form=form,
                problems=form.problems,
                columns=list(of.policy.columns),
                verbs=_VERBS,
                cap=audit.cap,
                promised=promised(of.ledger),
                account=audit.accounts.get(form.text("analyst")),
                today=now().date().isoformat(),
                limited=_limited(of, form),
            )

    def confirm(self, session: Session, of: Dataset, act: Act, form: Form, plan: Plan) -> Response:
        """What is to be confirmed. Each showing has a number, under which it is done once."""
        kept = [
            (name, value)
            for name, values in form.fields.items()
            if name not in ("csrf", "step", "once", "because")
            for value in values
        ]
        return self._page(
            "confirm.html",
            session,
            name=of.name,
            act=act,
            plan=plan,
            form=form,
            kept=kept,
            once=secrets.token_urlsafe(12),
        )

    def blank(self, of: Dataset, act: Act, analyst: str) -> Form:
        """A form as it is first shown: what is allowed now."""
        grant = of.ledger.grants().get(analyst)
        terms = grant.terms if act.name == "terms" and grant is not None else FREE
        fields = {
            "analyst": [analyst],
            "column": _ticked(list(of.policy.columns), terms.columns),
            "verb": _ticked(list(VERBS), terms.verbs),
        }
        if terms.max_epsilon_per_query is not None:
            fields["max_epsilon"] = [str(terms.max_epsilon_per_query)]
        if terms.queries_per_minute is not None:
            fields["per_minute"] = [str(terms.queries_per_minute)]
        return Form(fields)

    @contextmanager
    def _report(self, name: str) -> Iterator[Audit]:
        """A dataset's log so far. One page at a time reads it, for the next one may add to it."""
        lock, replay = self._reports.setdefault(name, (threading.Lock(), Replay(name)))
        with lock:
            yield replay.follow(self._datasets[name].ledger)

    def _page(self, template: str, session: Session | None, status: int = 200, **values: object) -> Response:
        text = self._env.get_template(template).render(session=session, **values)
        return Response(text, status, SAFE, "text/html; charset=utf-8")


def _overview_row(name: str, audit: Audit) -> dict[str, str | int | Epsilon]:
    """What the list of datasets shows of one."""
    accounts = audit.accounts.values()
    granted = [account for account in accounts if account.granted]
    return {
        "name": name,
        "spent": audit.joint,
        "cap": audit.cap,
        "left": audit.together.remaining,
        "active": sum(account.state == "active" for account in granted),
        "grants": len(granted),
        "answered": sum(account.answered for account in accounts),
        "refused": sum(account.refused.total() for account in accounts),
        "last": max((account.last for account in accounts), default=""),
    }


def _ticked(names: list[str], allowed: tuple[str, ...] | None) -> list[str]:
    return [str(number) for number, name in enumerate(names) if allowed is None or name in allowed]


def _limited(of: Dataset, form: Form) -> bool:
    """Whether a form limits more than the budget, or tries to: then that part of it stands open."""
    ticked = len(form.all("column")) == len(of.policy.columns) and len(form.all("verb")) == len(VERBS)
    return bool(
        not ticked
        or form.text("max_epsilon")
        or form.text("per_minute")
        or form.problems.keys() & {"max_epsilon", "per_minute", "verb"}
    )


def _allowed(account: Account) -> str:
    return "everything" if account.terms == Terms() else str(account.terms)


def _public(policy: Policy) -> str:
    bounded = policy.bounded_unit
    unit = "one row" if bounded is None else f"one {bounded.column}, at most {bounded.max_rows:,} rows"
    size = f"{len(policy.columns)} columns, at most {policy.max_rows:,} rows"
    return f"Protects {unit} ({policy.adjacency}); {size}. No raw data is shown here."


def _prose(text: str) -> Html:
    """Shows a message of the package, whose names stand in backticks."""
    pieces = text.split("`")
    last = len(pieces) - 1  # a backtick without a second one opens nothing
    return joined(element("code", piece) if i % 2 and i < last else piece for i, piece in enumerate(pieces))


def _printable(value: object) -> object:
    """Shows what does not print as an escape; numbers and HTML stay as they are."""
    return printable(value) if type(value) is str else value
