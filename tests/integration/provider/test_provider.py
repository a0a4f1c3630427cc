# SPDX-License-Identifier: Apache-2.0
"""What a provider does: proposing, checking, granting."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import pinq
from pinq.errors import LedgerError, PolicyError, QueryError
from pinq.provider import grants as provider
from pinq.provider.check import check
from pinq.provider.grants import make_terms, parse_expiry
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.proposal import propose
from pinq.public.epsilon import ZERO, Epsilon

ONE = Epsilon.of(1)


class TestCheck:
    def test_unreviewed_is_not_ready(self, people: Path) -> None:
        (people.parent / "p.yaml").write_text(propose(people), encoding="utf-8")
        report = check(people.parent / "p.yaml")
        assert not report.ready
        assert "columns.age.lower" in report.unreviewed
        assert (
            "guessed or read off the data and not reviewed: privacy_unit, max_rows, columns.age.type"
            in report.problems[0]
        )
        assert not list(people.parent.glob("*.ledger"))  # looking makes no ledger

    def test_counts(self, people: Path) -> None:
        columns = {
            "age": {"type": "numeric", "lower": 20, "upper": 60, "integer": True},
            "sex": {"type": "categorical", "values": ["f"]},
        }
        unit = {"column": "sex", "max_rows": 3}
        declared: dict[str, object] = {
            "dataset": "p",
            "source": "people.parquet",
            "cap": 1,
            "max_rows": 100,
            "columns": columns,
        }
        (people.parent / "p.yaml").write_text(yaml.safe_dump(declared))
        report = check(people.parent / "p.yaml")
        frame = pd.read_parquet(people)
        assert report.left_out == {"age": 0, "sex": int((frame.sex != "f").sum())}
        assert report.clamped == {"age": int(((frame.age < 20) | (frame.age > 60)).sum())}
        assert report.encoded_rows == int((frame.sex == "f").sum())
        assert report.problems == ("the source has 400 rows, more than max_rows (100); declare a bound that holds",)
        assert report.advice[0].startswith("sex: 266 rows (66 %) have no declared value and are left out")
        assert report.advice[1].startswith("age: ")
        del columns["sex"]
        (people.parent / "p.yaml").write_text(yaml.safe_dump(declared | {"max_rows": 500, "privacy_unit": unit}))
        assert check(people.parent / "p.yaml").over_unit == 400 - 6

    def test_rows_over_the_units_bound_are_noted(self, people: Path) -> None:
        """From a tenth of the rows on, as for every other loss."""
        declared: dict[str, object] = {
            "dataset": "p",
            "source": "people.parquet",
            "cap": 1,
            "max_rows": 500,
            "columns": {"age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True}},
        }
        for most, noted in ((1, True), (5, True), (6, False)):  # six numbers of visits, in 66 or 67 rows each
            (people.parent / "p.yaml").write_text(
                yaml.safe_dump(declared | {"privacy_unit": {"column": "num_visits", "max_rows": most * 11}})
            )
            report = check(people.parent / "p.yaml")
            assert report.over_unit == 400 - 66 * most
            assert bool(report.advice) == (report.over_unit >= 40) == noted
            assert not noted or report.advice[0].startswith(
                f"privacy_unit: {report.over_unit} rows ({report.over_unit / 4:.0f} %) are beyond the bound of num_visits"
            )

    @pytest.mark.parametrize(
        ("step", "note"),
        [
            (
                "0.03",
                "height: 140 to 210 is no whole number of steps of 0.03; the last cell is cut off at `upper`, and what lies in it counts as 210.005. With `upper: 210.02` all",
            ),
            ("0.05", ""),
        ],
    )
    def test_a_last_cell_that_is_cut_off_is_noted(self, people: Path, step: str, note: str) -> None:
        """Bounds that are no whole number of steps apart."""
        columns = {
            "height": {"type": "numeric", "lower": 140, "upper": 210, "step": float(step)},
            "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "step": 10},
        }
        (people.parent / "p.yaml").write_text(
            yaml.safe_dump({"dataset": "p", "source": "people.parquet", "cap": 1, "max_rows": 500, "columns": columns})
        )
        uneven = [advice for advice in check(people.parent / "p.yaml").advice if "steps" in advice]
        assert [advice[: len(note)] for advice in uneven] == ([note] if note else [])

    def test_no_row_encodes(self, people: Path) -> None:
        columns = {"sex": {"type": "categorical", "values": ["x"]}}
        declared = {"dataset": "p", "source": "people.parquet", "cap": 1, "max_rows": 500, "columns": columns}
        (people.parent / "p.yaml").write_text(yaml.safe_dump(declared))
        assert "no row can be encoded, so every answer would be noise alone" in check(people.parent / "p.yaml").problems


class TestGrants:
    def test_life_of_a_grant(self, policy: Path) -> None:
        given = provider.grant(policy, "ana", "1.0", "2999-01-31")
        assert (given.limit, given.spent, given.remaining, given.state, given.warnings) == (
            ONE,
            ZERO,
            ONE,
            "active",
            (),
        )
        assert given.expires == datetime(2999, 1, 31, 23, 59, 59, 999_999, UTC)
        pinq.open(policy, analyst="ana").noisy_count(epsilon=0.25)
        assert provider.extend(policy, "ana", 0.5).remaining == Epsilon.of("1.25")
        assert provider.extend(policy, "ana", expires="2999-06-01T12:00").expires == datetime(
            2999, 6, 1, 12, tzinfo=UTC
        )
        status = provider.show(policy)
        assert (status.cap, status.spent) == (Epsilon.of(2), Epsilon.of("0.25"))
        assert [(account.analyst, account.limit, account.spent) for account in status.accounts] == [
            ("ana", Epsilon.of("1.5"), Epsilon.of("0.25"))
        ]
        gone = provider.revoke(policy, "ana")
        assert (gone.state, gone.remaining, gone.spent) == ("revoked", ZERO, Epsilon.of("0.25"))

    def test_over_the_cap_warns(self, policy: Path) -> None:
        assert provider.grant(policy, "ana", 1.5).warnings == ()
        two = provider.grant(policy, "bea", 1)
        assert two.warnings[0].startswith("All grants together come to epsilon 2.5, above the cap of 2")
        assert provider.revoke(policy, "ana").warnings == ()

    def test_remaining_never_passes_the_cap(self, policy: Path) -> None:
        provider.grant(policy, "ana", 2)
        provider.grant(policy, "bea", 2)
        pinq.open(policy, analyst="ana").noisy_count(epsilon=2)
        bea = provider.show(policy).accounts[1]
        assert (bea.remaining, bea.state) == (ZERO, "cap reached")

    @pytest.mark.parametrize("name", ["", " ", "a\nb", " ana", "x" * 129, "\x1b[31m", "\u202eana", None])
    def test_bad_names(self, policy: Path, name: str) -> None:
        with pytest.raises(QueryError, match="it must be 1 to 128 printable characters"):
            provider.grant(policy, name, 1)
        assert not policy.with_name("people.parquet.ledger").exists()

    def test_refusals(self, policy: Path) -> None:
        with pytest.raises(LedgerError, match="There is no ledger"):
            provider.show(policy)
        with pytest.raises(LedgerError, match="There is no ledger"):
            provider.extend(policy, "ana", 1)
        provider.grant(policy, "ana", 1)
        with pytest.raises(LedgerError, match=r"'ana' already has a grant of epsilon 1. Use `pinq extend`"):
            provider.grant(policy, "ana", 1)
        with pytest.raises(LedgerError, match="'bea' has no grant; ana has"):
            provider.revoke(policy, "bea")
        with pytest.raises(QueryError, match="extend needs `epsilon`"):
            provider.extend(policy, "ana")
        with pytest.raises(QueryError, match="must be a finite number greater than 0"):
            provider.grant(policy, "bea", float("nan"))
        with pytest.raises(QueryError, match="which is past"):
            provider.grant(policy, "bea", 1, "2020-01-01")

    @pytest.mark.parametrize("epsilon", [1e-12, "0.1234567891", 1.0000000001])
    def test_what_is_allowed_is_never_rounded(self, policy: Path, epsilon: Any) -> None:
        """Up, a grant would be more than what was written; a charge is rounded up, and its preview says to what."""
        provider.grant(policy, "ana", "0.123456789")
        finer = "the smallest step of a loss is 0.000000001, so write at most nine decimals"
        for act in (
            lambda: provider.grant(policy, "bea", epsilon),
            lambda: provider.extend(policy, "ana", epsilon),
            lambda: make_terms(policy, max_epsilon_per_query=epsilon),
        ):
            with pytest.raises(QueryError, match=finer):
                act()
        assert [(account.analyst, account.limit.nano) for account in provider.show(policy).accounts] == [
            ("ana", 123_456_789)
        ]
        handle = pinq.open(policy, analyst="ana")
        assert "costs epsilon 0.000000002 " in repr(handle.preview("noisy_count", epsilon=1.5e-9))

    def test_a_lower_cap_counts_and_is_said_the_same_everywhere(self, policy: Path) -> None:
        """`check` says what waits, `show` shows it and writes nothing, every opening makes a lower cap count, only a provider's act makes a higher one."""
        provider.grant(policy, "ana", 2)
        content = yaml.safe_load(policy.read_text())

        def capped(cap: int) -> None:
            policy.write_text(yaml.safe_dump(content | {"cap": cap}, sort_keys=False))

        assert check(policy).advice == ()
        capped(1)
        assert check(policy).advice == (
            "cap: the log has 2, this policy 1; a lower cap counts from the next `pinq grant` or `extend`, opening or start of a server on",
        )
        before = {file: file.read_bytes() for file in policy.parent.iterdir()}
        shown = provider.show(policy)
        assert (shown.cap.nano, shown.accounts[0].remaining.nano) == (10**9, 10**9)
        assert {file: file.read_bytes() for file in policy.parent.iterdir()} == before
        pinq.open(policy, analyst="ana").close()
        assert check(policy).advice == ()
        capped(3)
        assert provider.show(policy).cap.nano == 10**9
        pinq.open(policy, analyst="ana").close()
        assert check(policy).advice == (
            "cap: the log has 1, this policy 3; a higher cap counts from the next `pinq grant` or `extend`, or start of a server on",
        )
        provider.extend(policy, "ana", 1)
        assert provider.show(policy).cap.nano == 3 * 10**9

    def test_an_unreviewed_policy_lowers_nothing(self, policy: Path) -> None:
        """Not even the cap: it opens nothing."""
        provider.grant(policy, "ana", 2)
        policy.write_text(policy.read_text().replace("cap: 2", "cap: 1") + "unreviewed: [max_rows]\n")
        assert provider.show(policy).cap.nano == 2 * 10**9

    @pytest.mark.parametrize(
        ("owners", "message"),
        [
            ((), "'nobody' has no grant; nobody has."),
            (("ana",), "'nobody' has no grant; ana has."),
            (("ana", "bob", "carl"), "'nobody' has no grant; ana, bob, carl have."),
        ],
    )
    def test_who_has_a_grant(self, policy: Path, owners: tuple[str, ...], message: str) -> None:
        """One or many."""
        open_ledger(load_policy(policy)).close()
        for name in owners:
            provider.grant(policy, name, 0.5)
        with pytest.raises(LedgerError, match=message):
            provider.revoke(policy, "nobody")

    def test_misspelt_source_gets_no_ledger(self, policy: Path) -> None:
        policy.write_text(policy.read_text().replace("people.parquet", "peeple.parquet"))
        with pytest.raises(PolicyError, match=r"There is no source .*peeple\.parquet\. Correct `source:` of 'people'"):
            provider.grant(policy, "ana", 1)
        assert not list(policy.parent.glob("*.ledger"))

    def test_revoke_and_show_need_no_review_and_no_data(self, policy: Path, people: Path) -> None:
        provider.grant(policy, "ana", 1)
        people.unlink()
        policy.write_text(policy.read_text() + "unreviewed: [max_rows]\n")
        assert provider.show(policy).accounts[0].analyst == "ana"
        assert provider.revoke(policy, "ana").state == "revoked"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31", datetime(2030, 1, 31, 23, 59, 59, 999_999, UTC)),
        (date(2030, 1, 31), datetime(2030, 1, 31, 23, 59, 59, 999_999, UTC)),
        ("2030-01-31T18:00", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        ("2030-01-31T18:00+02:00", datetime(2030, 1, 31, 16, tzinfo=UTC)),
        ("2030-01-31T18:00Z", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        (datetime(2030, 1, 31, 18, tzinfo=timezone(timedelta(hours=-1))), datetime(2030, 1, 31, 19, tzinfo=UTC)),
        (None, None),
    ],
)
def test_expiry(text: str, moment: datetime) -> None:
    assert parse_expiry(text) == moment


@pytest.mark.parametrize("text", ["soon", "", "2030-13-01", "0001-01-01T00:00+23:00"])
def test_bad_expiry(text: str) -> None:
    with pytest.raises(QueryError, match="`expires` is"):
        parse_expiry(text)


def test_a_warning_before_the_grants_pass_the_cap(policy: Path) -> None:
    """What a change would do to the sum of all grants can be known before it is made."""
    cap = Epsilon(load_policy(policy).cap_nano)
    provider.grant(policy, "ana", cap.exact)
    ledger = open_ledger(load_policy(policy))
    assert provider.cap_warning(ledger, "ana", cap) == ""
    assert "above the cap" in provider.cap_warning(ledger, "bea", Epsilon(1))
    ledger.close()
