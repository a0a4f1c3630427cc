# SPDX-License-Identifier: Apache-2.0
"""The page on which a provider grants, extends and revokes, and reads what an epsilon means."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui

from pinq.errors import PinqError, PolicyError
from pinq.ledger.events import here
from pinq.provider import grants, policy_file
from pinq.provider.grants import make_terms
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon, laplace_interval, max_belief
from pinq_workbench.folder import Folder
from pinq_workbench.parts import Act, Draft, attempt, choice, command, field, frame, page, section, sure, table, tell

if TYPE_CHECKING:
    from pinq.public.schema import Schema


EXTEND, LIMIT, REISSUE, REVOKE = "Extend", "Set these limits", "Issue another token", "Revoke"
AT_ONCE = (REISSUE, REVOKE)


class Granting:
    """The page of each policy's grants.

    Args:
        folder: Whose policies.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def register(self) -> None:
        """Declares the page."""
        page("/policy/{name}/grants")(self._grants)

    async def _grants(self, name: str) -> None:
        with frame(f"Grants of {name}", self.folder.links(name)):
            policy = await attempt(tell(), lambda: load_policy(self.folder.file(name)))
            if policy is None:
                return
            self._accounts(name)
            draft = self.folder.draft(name)
            with section("The cap over all analysts together", f"The policy says {policy.cap:f}. They may collude."):
                with ui.row().classes("row-of"):
                    field("Cap", draft, "cap", "a lower one counts from the next grant or start on")
                    field("Because (of the cap)", draft, "because cap", "it stands in the log")

                async def cap(place: ui.label) -> None:
                    said = str(draft.get("cap") or ""), str(draft.get("because cap", ""))
                    await attempt(place, policy_file.change, self.folder.file(name), "cap", *said)
                    if not place.text:
                        ui.navigate.reload()

                Act("Change the cap", cap, main=False)
            with section("A new grant"):
                with ui.row().classes("row-of"):
                    field("Analyst", draft, "analyst")
                    field("Epsilon", draft, "epsilon", changed=lambda: _words.refresh())
                    field("Until (optional)", draft, "expires", "2030-01-31")
                with ui.row().classes("row-of"):
                    field("Most that one query may ask (optional)", draft, "most")
                    field("Queries a minute (optional)", draft, "pace")
                field("Because", draft, "because", "a contract, a purpose; it stands in the log")
                _words(draft, policy.schema_)
                token = ui.column().classes("full")

                async def act(where: ui.label) -> None:
                    account = await attempt(where, _grant, self.folder.file(name), draft)
                    if account is not None:
                        token.clear()
                        with token:
                            _show_token(account, policy.dataset)
                        self._accounts.refresh()

                Act("Grant", act)
                command(f"pinq grant {shlex.quote(name)} ANALYST --epsilon 1 --expires 2030-01-31 --because TEXT")

    @ui.refreshable_method
    def _accounts(self, name: str) -> None:
        """Shows who has what, and what changes it."""
        try:
            status = grants.show(self.folder.file(name))
        except PinqError as error:
            tell(str(error), "quiet")
            return
        ui.label(f"{status.spent} of {status.cap} spent by all together; {status.remaining} remains under the cap.")
        if not status.accounts:
            ui.label("Nobody was granted anything yet. The form below makes a grant.").classes("quiet")
            return
        rows = [
            [one.analyst, one.state, one.limit, one.spent, one.remaining, one.expires or "never", one.terms]
            for one in status.accounts
        ]
        table("Grants", ["analyst", "state", "limit >", "spent >", "remaining >", "until", "allowed"], rows)
        if names := [one.analyst for one in status.accounts if one.state != "revoked"]:
            with section("Change a grant"):
                self._changes(name, names)

    def _changes(self, name: str, names: list[str]) -> None:
        """Extends, revokes, changes what may be asked, replaces a token."""
        draft = self.folder.draft(name)
        choice("Whose", names, draft, "whose")
        with ui.row().classes("row-of"):
            field("Epsilon more", draft, "more")
            field("New end", draft, "end", "2030-01-31")
            field("Now: most that one query may ask", draft, "new most", "left empty: no limit")
            field("Now: queries a minute", draft, "new pace", "left empty: no limit")
        field("Because (of this change)", draft, "because now", "it stands in the log")
        token = ui.column().classes("full")

        def make(act: str) -> None:
            async def do(place: ui.label) -> None:
                if act in AT_ONCE and not await sure(f"{act} of {draft.get('whose')}? It counts at once."):
                    return
                account = await attempt(place, lambda: _changed(act, self.folder.file(name), draft))
                if account is not None and account.token:
                    token.clear()
                    with token:
                        _show_token(account, load_policy(self.folder.file(name)).dataset)
                elif account is not None:
                    self._accounts.refresh()

            Act(act, do, main=False)

        with ui.row().classes("row-of"):
            for act in (EXTEND, LIMIT, *AT_ONCE):
                make(act)
        acts = (
            "extend {} ANALYST --epsilon 0.5",
            "terms {} ANALYST --max-epsilon 0.1",
            "token {} ANALYST",
            "revoke {} ANALYST",
        )
        command("\n".join(f"pinq {act.format(shlex.quote(name))}" for act in acts))


@ui.refreshable
def _words(draft: Draft, schema: Schema) -> None:
    """Says what an epsilon means for a person, and draws what its noise does to counts."""
    try:
        epsilon = Epsilon.exactly(draft.get("epsilon") or "1")
    except PinqError as error:
        tell(str(error))
        return
    loss, most = float(epsilon.exact), max_belief(float(epsilon.exact), 0.5)
    who = "a person" if schema.privacy_unit != "row" else "a row"
    ui.label(
        f"With epsilon {epsilon} in all: somebody who gave it even chances that {who} is in the table may become "
        f"{most:.1%} sure at most, and {max_belief(loss, 0.01):.1%} sure from 1 %, whatever else they know."
    )
    for count in (100, 10_000):
        half = laplace_interval(1 / float(epsilon.per_row(schema.distance)), 0.95)
        ui.label(f"A count of {count:,} for all of it: {max(0, count - half):,} to {count + half:,} in 95 % of cases.")
        ui.html(_noise(count, half), sanitize=False)


def _noise(count: int, half: int) -> str:
    """Draws a count and the interval of its noise, on a line from nothing to twice the count."""
    low, high = (300 * min(max(0, end), 2 * count) / (2 * count) for end in (count - half, count + half))
    wide = max(2.0, high - low)
    return (
        f"<svg class='noise' viewBox='0 0 320 34' width='320' role='img'><title>{count:,} within {half:,}</title>"
        f"<line x1='0' y1='12' x2='300' y2='12'/><rect x='{low:.1f}' y='6' width='{wide:.1f}' height='12'/>"
        f"<text x='0' y='32'>0</text><text x='135' y='32'>{count:,}</text>"
        f"<text x='265' y='32'>{2 * count:,}</text></svg>"
    )


def _grant(file: Path, draft: Draft) -> grants.GrantReport:
    """Grants what the form says, as ``pinq grant`` does."""
    said = {name: str(draft.get(name) or "").strip() or None for name in ("expires", "most", "pace", "epsilon")}
    terms = make_terms(file, max_epsilon_per_query=said["most"], queries_per_minute=said["pace"])
    because = here(str(draft.get("because", "")))
    return grants.grant(file, str(draft.get("analyst", "")), said["epsilon"] or "", said["expires"], terms, by=because)


def _changed(act: str, file: Path, draft: Draft) -> grants.GrantReport:
    """Changes a grant as the form says. Raises ``PolicyError`` if none was chosen; others as in ``grants``."""
    analyst, by = str(draft.get("whose") or ""), here(str(draft.get("because now", "")))
    if not analyst:
        raise PolicyError("Choose whose grant it is.")
    if act == EXTEND:
        return grants.extend(file, analyst, draft.get("more") or None, draft.get("end") or None, by=by)
    if act in AT_ONCE:
        return (grants.revoke if act == REVOKE else grants.reissue)(file, analyst, by=by)
    most, pace = draft.get("new most") or None, draft.get("new pace") or None
    said = make_terms(file, max_epsilon_per_query=most, queries_per_minute=pace)
    kept = next(one.terms for one in grants.show(file).accounts if one.analyst == analyst)
    terms = replace(kept, max_epsilon_per_query=said.max_epsilon_per_query, queries_per_minute=said.queries_per_minute)
    return grants.set_terms(file, analyst, terms, by=by)


def _show_token(account: grants.GrantReport, dataset: str) -> None:
    tell(
        f"{account.analyst} was granted epsilon {account.limit}. This token is shown only now, and kept nowhere:",
        "good",
    )
    ui.label(account.token).classes("token")
    ui.button("Copy the token", on_click=lambda: ui.clipboard.write(account.token)).props("no-caps outline")
    for warning in account.warnings:
        ui.label(warning).classes("quiet")
    url = f"https://HOST:8443/{dataset}"
    python = f"import pathlib, pinq\nh = pinq.connect('{url}', token=pathlib.Path('FILE'))"
    lines = f"pinq workbench {url} --token-file FILE\n\n{python}"
    command(lines, "How the analyst uses it")
