# SPDX-License-Identifier: Apache-2.0
"""The provider's acts on the page: a form becomes a plan, which is shown, confirmed and done.

What is done is an act of ``pinq.provider.grants``, as for the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pinq.errors import PinqError, QueryError
from pinq.ledger.events import VERBS, Signature, Terms
from pinq.ledger.state import Account
from pinq.provider import grants
from pinq.provider.arguments import future, make_terms, require_name
from pinq.provider.report.markup import when
from pinq.public.epsilon import ZERO, Epsilon
from pinq.server.datasets import Dataset

__all__ = ["ACTS", "Act", "Form", "Invalid", "Plan", "holder"]

T = TypeVar("T")


class Invalid(PinqError):
    """A form cannot be followed.

    Attributes:
        problems: By field; the empty name for what is about none.
    """

    code = "invalid"

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = dict(problems)


@dataclass
class Form:
    """What was typed into a form, and what is wrong with it."""

    fields: Mapping[str, Sequence[str]]
    problems: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A field without blanks around it; empty where it is missing."""
        return (self.fields.get(name) or [""])[0].strip()

    def all(self, name: str) -> list[str]:
        """The boxes that are ticked."""
        return list(self.fields.get(name) or ())

    def read(self, name: str, how: Callable[[str], T]) -> T | None:
        """A field, read; None where it is empty or wrong."""
        text = self.text(name)
        return self.check(name, lambda: how(text)) if text else None

    def need(self, name: str, how: Callable[[str], T]) -> T | None:
        """A field, read; None where it is wrong, and an empty one is."""
        return self.check(name, lambda: how(self.text(name)))

    def check(self, name: str, how: Callable[[], T]) -> T | None:
        """A value; where it is wrong, notes it at a field."""
        try:
            return how()
        except QueryError as error:
            self.problems.setdefault(name, str(error))
            return None

    def note(self, error: PinqError) -> None:
        """Notes what an act refused: at the fields that it names, or at none."""
        self.problems |= error.problems if isinstance(error, Invalid) else {"": str(error)}

    def require_right(self) -> None:
        """``Invalid`` where anything is wrong."""
        if self.problems:
            raise Invalid(self.problems)


@dataclass(frozen=True)
class Plan:
    """What will be done.

    Attributes:
        analyst: To whom.
        question: What is to be confirmed.
        summary: In words, for the one who confirms.
        warning: What to know before.
        do: Does it, in somebody's name.
        done: What to say then.
    """

    analyst: str
    question: str
    summary: tuple[tuple[str, str], ...]
    do: Callable[[Signature], grants.GrantReport]
    done: str
    warning: str = ""


@dataclass(frozen=True)
class Act:
    """A kind of change.

    Attributes:
        name: In addresses and in the log.
        title: Of its form.
        confirm: On the button that does it.
        plan: Reads a form. ``Invalid`` where it cannot be followed.
        asks: Whether there is anything to type beside the analyst's name.
        ends: Whether something ends that cannot be had back.
        note: What to know.
    """

    name: str
    title: str
    confirm: str
    plan: Callable[[Dataset, Form], Plan]
    asks: bool = True
    ends: bool = False
    note: str = ""


def _grant(of: Dataset, form: Form) -> Plan:
    analyst, epsilon, expires = form.text("analyst"), form.text("epsilon"), form.text("expires") or None
    form.need("analyst", lambda name: _new_name(of, name))
    limit, until = form.need("epsilon", Epsilon.exactly), form.read("expires", future)
    terms = _terms(of, form)
    form.require_right()
    assert limit is not None
    summary = (
        ("Analyst", analyst),
        ("Budget", f"epsilon {limit}"),
        ("Expires", when(until) if until else "never"),
        ("Allowed", _allowed(terms)),
    )
    question, done = f"Grant epsilon {limit} to {analyst}?", f"{analyst} was granted epsilon {limit}."
    warning = grants.cap_warning(of.ledger, analyst, limit)
    return Plan(
        analyst,
        question,
        summary,
        lambda by: grants.grant(of.ledger, analyst, epsilon, expires, terms, by=by),
        done,
        warning,
    )


def _extend(of: Dataset, form: Form) -> Plan:
    grant, epsilon, expires = holder(of, form), form.text("epsilon") or None, form.text("expires") or None
    more, until = form.read("epsilon", Epsilon.exactly) or ZERO, form.read("expires", future)
    if epsilon is None and expires is None:
        form.problems["epsilon"] = "Say how much more, until when, or both."
    form.require_right()
    limit, before = grant.limit + more, when(grant.expires) if grant.expires else "never"
    summary = (
        ("Analyst", grant.analyst),
        ("Budget", f"epsilon {grant.limit} + {more} = {limit}" if more else f"epsilon {limit}, unchanged"),
        ("Expires", f"{when(until)} (was: {before})" if until else f"{before}, unchanged"),
    )
    question, done = f"Extend the grant of {grant.analyst}?", f"The grant of {grant.analyst} was extended."
    warning = grants.cap_warning(of.ledger, grant.analyst, limit)
    return Plan(
        grant.analyst,
        question,
        summary,
        lambda by: grants.extend(of.ledger, grant.analyst, epsilon, expires, by=by),
        done,
        warning,
    )


def _change_terms(of: Dataset, form: Form) -> Plan:
    grant, asked = holder(of, form), _terms(of, form)
    form.require_right()
    kept = grant.terms  # what the form does not show stays as it was
    terms = replace(asked, work_per_minute=kept.work_per_minute, stored_bytes=kept.stored_bytes)
    summary = (
        ("Analyst", grant.analyst),
        ("Allowed until now", _allowed(grant.terms)),
        ("Allowed from now on", _allowed(terms)),
    )
    question, done = f"Change what {grant.analyst} may ask?", f"What {grant.analyst} may ask was changed."
    return Plan(
        grant.analyst, question, summary, lambda by: grants.set_terms(of.ledger, grant.analyst, terms, by=by), done
    )


def _reissue(of: Dataset, form: Form) -> Plan:
    grant = holder(of, form)
    form.require_right()
    question, done = f"Issue another token to {grant.analyst}?", f"{grant.analyst} has a new token."
    return Plan(
        grant.analyst,
        question,
        (("Analyst", grant.analyst),),
        lambda by: grants.reissue(of.ledger, grant.analyst, by=by),
        done,
    )


def _revoke(of: Dataset, form: Form) -> Plan:
    grant = holder(of, form)
    form.require_right()
    summary = (("Analyst", grant.analyst), ("Spent", f"{grant.spent} of {grant.limit}"))
    question, done = f"Revoke the grant of {grant.analyst}?", f"The grant of {grant.analyst} was revoked."
    return Plan(grant.analyst, question, summary, lambda by: grants.revoke(of.ledger, grant.analyst, by=by), done)


ACTS = {
    act.name: act
    for act in (
        Act(
            "grant",
            "Grant a new analyst",
            "Grant",
            _grant,
            note="The token that opens the grant is shown once, after you confirm.",
        ),
        Act("extend", "Extend a grant", "Extend", _extend),
        Act("terms", "Change what may be asked", "Change", _change_terms, note="Counts from the next query on."),
        Act(
            "token",
            "Issue another token",
            "Issue a new token",
            _reissue,
            asks=False,
            ends=True,
            note="The token used until now ends at once. The new one is shown once.",
        ),
        Act(
            "revoke",
            "Revoke a grant",
            "Revoke",
            _revoke,
            asks=False,
            ends=True,
            note="The analyst gets no further answer from this moment on. What was spent stays spent.",
        ),
    )
}


def _new_name(of: Dataset, analyst: str) -> None:
    require_name(analyst)
    known = of.ledger.grants().get(analyst)
    if known is not None and not known.revoked:
        raise QueryError(f"{analyst!r} already has a grant of epsilon {known.limit}; extend that one.")


def holder(of: Dataset, form: Form) -> Account:
    """Returns the grant that a form is about. ``Invalid`` where there is none."""
    analyst = form.text("analyst")
    grant = of.ledger.grants().get(analyst)
    if grant is None or grant.revoked:
        raise Invalid({"": f"{analyst!r} has no grant of {of.name}" + (" any more: it was revoked." if grant else ".")})
    return grant


def _terms(of: Dataset, form: Form) -> Terms:
    """Reads the terms. Everything ticked is no limit, also for what the policy may gain later."""
    columns, verbs = list(of.policy.columns), list(VERBS)
    ticked = {
        name: {text for text in form.all(name) if text.isascii() and text.isdigit()} for name in ("column", "verb")
    }
    allowed_columns = [name for number, name in enumerate(columns) if str(number) in ticked["column"]]
    allowed_verbs = [name for number, name in enumerate(verbs) if str(number) in ticked["verb"]]
    if not allowed_verbs:
        form.problems["verb"] = "Allow at least one."
    most, rate = form.text("max_epsilon") or None, form.text("per_minute") or None
    form.check("max_epsilon", lambda: make_terms(of.policy, max_epsilon_per_query=most))
    form.check("per_minute", lambda: make_terms(of.policy, queries_per_minute=rate))
    if "max_epsilon" in form.problems or "per_minute" in form.problems:
        return Terms()
    return make_terms(
        of.policy,
        max_epsilon_per_query=most,
        columns=None if allowed_columns == columns else allowed_columns,
        verbs=None if allowed_verbs == verbs else allowed_verbs,
        queries_per_minute=rate,
    )


def _allowed(terms: Terms) -> str:
    return "everything" if terms == Terms() else str(terms)
