# SPDX-License-Identifier: Apache-2.0
"""Ways around a budget that must stay closed, and around the row-wise encoding."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import pinq
from pinq import AnyGrouping, Balance, Categorical, Cuts, Gini, Groups, Policy, QueryError, Values
from pinq.curator.monitor import Curator
from pinq.curator.prepared import PreparedQuery, Released
from pinq.curator.verbs import PREPARE
from pinq.engine import open_engine
from pinq.engine.sources import said_by
from pinq.errors import BudgetExceeded, EngineError, LedgerError, PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import Count, Request, WireParts
from pinq.language.specs import bind
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.provider.check import check
from pinq.provider.local import LocalSession
from pinq.provider.opening import open_ledger
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.requests.handles import engine_over

ONE = Epsilon.of(1)
COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["F", "M"]},
    "n": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
}
WHOLE = Demand.of(PartSet([Block(Part())]))


def policy(folder: Path, **fields: Any) -> Policy:
    return Policy(
        **{"dataset": "t", "source": "t.parquet", "cap": 1, "max_rows": 1000, "columns": COLUMNS, "folder": folder}
        | fields
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    pd.DataFrame({"sex": ["F", "M"] * 50, "n": range(100), "pid": [i // 2 for i in range(100)]}).to_parquet(
        tmp_path / "t.parquet"
    )
    return tmp_path


def granted(place: Path, epsilon: Epsilon = ONE, **fields: Any) -> pinq.PrivateQueryable:
    ledger = open_ledger(policy(place, **fields))
    ledger.grant("ana", epsilon)
    ledger.close()
    return pinq.open(policy(place, **fields), analyst="ana")


CSV = "v,w\n" + "'a',1\n#a,1\na,1\n" * 5


@pytest.mark.parametrize("row", ['"b",1', "#a", "a;1", "a,1,SECRET", "x|y|z", "b,'", "", ",", "a,1,,,,,", "\tb\t1"])
def test_one_more_csv_row_changes_no_other(tmp_path: Path, row: str) -> None:
    """A reader that sniffs quotes, comments or separators from the rows would break stability, and its errors would quote them."""
    columns = {
        "v": {"type": "categorical", "values": ["a", "'a'", "#a", "b"]},
        "w": {"type": "categorical", "values": ["1"]},
    }
    counts = []
    for text in (CSV, CSV + row + "\n", row.join(["v,w\n", "\n"]) + CSV[4:]):
        (tmp_path / "t.csv").write_text(text, encoding="utf-8")
        engine = engine_over(policy(tmp_path, source="t.csv", columns=columns, csv={"max_unreadable": 1}), salt=b"")
        parts = PartSet([Block(Part())], shape=()).split(bind(Values("v"), policy(tmp_path, columns=columns).schema_))
        counts.append(engine.tabulate(parts)[0].tolist())
        engine.close()
    assert counts[1] == counts[2]
    assert counts[0][:3] == [5, 5, 5]
    assert sum(abs(a - b) for a, b in zip(counts[0], counts[1], strict=True)) <= 1


def test_a_frames_column_of_a_type_that_is_none_is_refused_without_quoting_a_row(tmp_path: Path) -> None:
    """The text of an Arrow error would hold a value. A column that no policy declares is not looked at."""
    frame = pd.DataFrame({"sex": pd.Series([7j, 8j]), "n": [1, 2]})
    with pytest.raises(PolicyError, match="'sex' of `data` has the type complex128, which is not read") as error:
        open_engine(policy(tmp_path), data=frame, salt=b"")
    assert "7" not in str(error.value)
    frame = pd.DataFrame({"sex": ["F", "M"], "n": [1, 2], "other": [7j, 8j]})
    open_engine(policy(tmp_path, privacy_unit="row"), data=frame, salt=b"")[0].close()


@pytest.mark.parametrize(
    "change",
    [
        {"privacy_unit": "row"},
        {"adjacency": "substitute", "privacy_unit": {"column": "pid", "max_rows": 2}},
        {"privacy_unit": {"column": "pid", "max_rows": 1}},
    ],
)
def test_what_epsilon_means_cannot_change_under_grants(place: Path, change: dict[str, Any]) -> None:
    """Spent under one unit and asked under another could not be added."""
    unit: dict[str, Any] = {"privacy_unit": {"column": "pid", "max_rows": 2}}
    granted(place, **unit).noisy_count(epsilon=0.5)
    with pytest.raises(LedgerError, match="is not an epsilon of the other"):
        pinq.open(policy(place, **unit | change), analyst="ana")


def test_opening_never_raises_the_cap(place: Path) -> None:
    """A second policy with a higher cap adds nothing until the provider grants or extends under it; a lower one counts at once."""
    handle = granted(place, Epsilon(5 * 10**9))
    handle.noisy_count(epsilon=1)
    pinq.open(policy(place, cap=5), analyst="ana")
    assert handle.budget.remaining == 0
    with pytest.raises(BudgetExceeded, match="cap"):
        handle.noisy_count(epsilon=0.1)
    ledger = open_ledger(policy(place, cap=5))
    ledger.close()
    assert handle.budget.remaining == 4
    pinq.open(policy(place, cap=2), analyst="ana")
    assert handle.budget.remaining == 1


def test_opening_makes_no_ledger(place: Path) -> None:
    """A misspelt source gets none."""
    with pytest.raises(LedgerError, match="There is no ledger"):
        pinq.open(policy(place, source="misspelt.parquet"), analyst="ana")
    assert sorted(path.name for path in place.iterdir()) == ["t.parquet"]


def test_a_copied_model_derives_everything_anew() -> None:
    """Another domain is another partition, also for a policy that was changed in memory."""
    column = Categorical(values=("F", "M"))
    assert column.digest != column.model_copy(update={"values": ("M", "F")}).digest
    with pytest.raises(ValueError, match="twice"):
        column.model_copy(update={"values": ("M", "M")})


def test_a_charge_pays_for_one_meaning_only(place: Path) -> None:
    """A request that was charged and not answered is not answered under another schema."""
    loaded = policy(place)
    ledger = Ledger(str(place / "x.ledger"), "t")
    ledger.declare("x", Epsilon.of(1), {})
    ledger.grant("ana", ONE)
    schema = loaded.schema_
    parts = PartSet([Block(Part())], shape=()).split(bind(Values("sex"), schema))
    request = Request(id="r", verb="noisy_count", epsilon="1", parts=WireParts.of(parts.take([1])))  # type: ignore[arg-type]
    engine = engine_over(loaded, salt=b"")
    engine.close()
    with pytest.raises(EngineError):
        Curator(schema, ledger, engine).ask("ana", request)
    turned = loaded.model_copy(update={"columns": loaded.columns | {"sex": Categorical(values=("M", "F"))}})
    again = engine_over(turned, salt=b"")
    with pytest.raises(QueryError, match="another question"):
        Curator(turned.schema_, ledger, again).ask("ana", request)
    fresh = engine_over(loaded, salt=b"")
    assert len(Curator(schema, ledger, fresh).ask("ana", request).values) == 1
    assert ledger.grants()["ana"].spent == Epsilon.of(1)


def test_a_cut_under_an_open_ledger_is_noticed(tmp_path: Path) -> None:
    """The next transaction sees that the last event it knows is gone."""
    ledger = Ledger(tmp_path / "l.ledger", "t")
    ledger.declare("x", Epsilon.of(1), {})
    ledger.grant("ana", ONE)
    for number in range(3):
        ledger.charge("ana", str(number), WHOLE, Epsilon(1))
    with ledger.log.database.transaction(write=True):
        ledger.log.database.run("DELETE FROM events WHERE seq > 4")
        ledger.log.database.commit()
    with pytest.raises(LedgerError, match="cut or rolled back"):
        ledger.charge("ana", "next", WHOLE, Epsilon(1))


def test_too_many_axes_are_refused_before_the_charge(place: Path) -> None:
    """Arrays have a limit of their own."""
    handle = granted(place)
    parts = handle.parts()
    for _ in range(31):
        parts = parts.partition(Groups("sex", (("F",),)))
    with pytest.raises(QueryError, match="axes"):
        parts.partition(Groups("sex", (("F",),)))
    assert handle.budget.spent == 0


def test_preview_and_ask_agree_under_both_limits(place: Path) -> None:
    """``remaining`` of a preview is negative exactly where the request is refused."""
    shared = policy(place)
    ledger = open_ledger(shared)
    for name, epsilon in (("ana", ONE), ("bob", ONE)):
        ledger.grant(name, epsilon)
    ana, bob = (pinq.open(shared, analyst=name) for name in ("ana", "bob"))
    parts = [handle.partition(Values("sex")) for handle in (ana, bob)]
    parts[0]["F"].noisy_count(epsilon=0.7)
    assert bob.preview("noisy_count", epsilon=0.4).remaining < 0
    with pytest.raises(BudgetExceeded, match="the sum of what each analyst spent"):
        parts[1]["M"].noisy_count(epsilon=0.4)
    free = parts[0]["M"]
    assert free.preview("noisy_count", epsilon=0.7).cost == 0
    assert free.preview("noisy_count", epsilon=0.7).remaining == Epsilon.of("0.3").exact
    free.noisy_count(epsilon=0.7)
    ledger.close()


def test_a_miner_counts_what_it_will_really_cost(place: Path) -> None:
    """A fit on a disjoint part costs nothing more, and is not refused."""
    from miners import DiffPID3

    handle = granted(place, Epsilon(5 * 10**8))
    by_sex = handle.partition(Values("sex"))
    for name in ("F", "M"):
        part = by_sex[name]
        DiffPID3(epsilon=0.5, max_depth=1, cuts={"n": [5]}).fit(part, "sex")
    assert handle.budget.remaining == 0


def test_an_ended_grant_still_has_a_repr(place: Path) -> None:
    """A handle whose grant was revoked says that nothing remains."""
    handle = granted(place)
    ledger = open_ledger(policy(place))
    ledger.revoke("ana")
    assert handle.budget.remaining == 0
    assert "remaining=0" in repr(handle) + handle._repr_html_()
    ledger.close()


def test_history_shows_labels(place: Path) -> None:
    """Answers read as they were given."""
    handle = granted(place)
    handle.exp_mech(score=pinq.ClassCount("sex"), epsilon=0.2)
    handle.exp_mech([Cuts("n", (5,))], score=Gini("sex"), epsilon=0.2)
    assert handle.history()["answer"].iloc[0] in ("F", "M")
    assert handle.history()["answer"].iloc[1] == Cuts("n", (5,))


def test_what_is_empty_costs_nothing(place: Path) -> None:
    """A frontier that ran out of nodes gives empty answers."""
    handle = granted(place)
    none = handle.partition(Values("sex"))[[False, False]]
    assert none.noisy_count(epsilon=0.1).shape == (0,)
    assert none.exp_mech([Cuts("n", (5,))], score=Balance(), epsilon=0.1) == []
    assert len(none.partition([])) == 0
    assert handle.budget.spent == 0


def test_friendly_refusals(place: Path) -> None:
    """Common slips are told what would be right."""
    handle = granted(place)
    with pytest.raises(QueryError, match=r"did you mean Values\('sex'\)"):
        handle.partition("sex")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="one by one"):
        handle.partition([Values("sex")])  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"write Gini\(target\)"):
        handle.exp_mech([Values("sex")], score=Gini, epsilon=0.1)  # type: ignore[call-overload]
    parts = handle.partition(Values("sex"))
    assert str(parts[0]) == str(parts["F"]) == str(parts[pd.Series(["F"])[0]])
    frame = parts.frame(parts.noisy_count(epsilon=0.1))
    assert len(parts[frame["value"] > -(10**9)]) == 2  # type: ignore[call-overload]
    assert handle.preview("exp_mech", [AnyGrouping("sex")], score=Balance(), epsilon=0.1).cost > 0


def test_engine_failures_stay_out_of_the_analysts_sight(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By default nothing is printed anywhere."""
    handle = granted(place)
    assert isinstance(handle._session, LocalSession)
    handle._session._curator._engine.close()
    with pytest.raises(EngineError) as error:
        handle.noisy_count(epsilon=0.1)
    assert error.value.__cause__ is None
    assert capfd.readouterr().err == ""
    assert json.dumps(str(error.value)).count("Traceback") == 0


def test_an_unreadable_source_is_explained_to_the_provider_only(place: Path) -> None:
    """What the engine says of a damaged file may quote it: `check` repeats that, opening does not."""
    granted(place)
    (place / "t.parquet").write_bytes(b"secret-name is not Parquet")
    with pytest.raises(PolicyError, match="`pinq check` says why") as error:
        pinq.open(policy(place), analyst="ana")
    assert "Parquet" not in str(error.value)
    with pytest.raises(PolicyError, match=r"cannot be read: .*arquet"):
        check(policy(place))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Invalid Input Error: no file", "no file"),
        ("IO Error: no Error: here", "no Error: here"),
        ("INTERNAL Error: x\nstack", "x"),
        ("X" * 60, "X" * 60),
    ],
)
def test_the_class_of_a_databases_error_is_left_out(text: str, said: str) -> None:
    """Whatever its text is, in a moment."""
    assert said_by(duckdb.Error(text)) == said


@pytest.mark.parametrize(
    "made", [["no number"], [10**400, math.nan, None], [1, 2.5, object()]], ids=["text", "mixed", "object"]
)
def test_an_answer_that_cannot_be_written_is_the_one_error_after_a_charge(
    place: Path, monkeypatch: pytest.MonkeyPatch, made: list[Any]
) -> None:
    """Numbers become an answer under the guard too: whatever they are, they choose no error."""

    def count(query: Count, parts: PartSet, schema: Schema) -> PreparedQuery:
        return replace(PREPARED(query, parts, schema), release=lambda slices, epsilon: Released(made))

    handle, PREPARED = granted(place), PREPARE[Count]
    table: dict[Any, Any] = PREPARE
    monkeypatch.setitem(table, Count, count)
    with pytest.raises(EngineError) as error:
        handle.noisy_count(epsilon=0.5)
    assert str(error.value) == str(EngineError())
    assert handle.budget.spent == Fraction(1, 2)
