# SPDX-License-Identifier: Apache-2.0
"""The analyst's face: shapes, labels, indexing, budgets and history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
import pinq.provider.history
from miners import DiffPC45
from miners.tables import summary
from pinq import Budget, Cross, Cuts, Gini, Groups, Parts, PrivateQueryable, QueryError, Shards, Values
from pinq.errors import PolicyError, TooManyRequests
from pinq.ledger.events import Terms, now
from tests.support.requests.handles import ledger_of


def test_one_part_answers_with_one_value(in_memory: Callable[..., Any]) -> None:
    """Plain Python numbers of the promised kinds."""
    handle = in_memory(100)
    assert isinstance(handle.noisy_count(epsilon=1), int)
    assert isinstance(handle.noisy_sum("age", epsilon=1), float)
    assert isinstance(handle.noisy_avg("age", epsilon=1), float)
    assert isinstance(handle.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=1), Values)
    assert isinstance(handle.partition(Values("sex"))["Female"], PrivateQueryable)


def test_many_parts_answer_with_an_array_of_their_shape(in_memory: Callable[..., Any]) -> None:
    """One axis for each spec; a selection is flat; several levels keep their axes."""
    handle = in_memory(100)
    parts = handle.partition(Values("sex"), Cuts("age", (30, 60)))
    assert parts.shape == (2, 3)
    assert parts.noisy_count(epsilon=1).dtype == np.int64
    assert parts.noisy_sum("age", epsilon=1).shape == (2, 3)
    assert len(parts.exp_mech([Values("job")], score=Gini("income"), epsilon=1)) == 6
    assert parts[[0, 5]].shape == (2,)
    assert parts.partition(Values("job")).shape == (2, 3, 4)
    assert handle.parts().shape == (1,)
    assert handle.partition((Values("sex"), Values("job"))).shape == (2, 4)
    assert handle.partition(Cross((Values("sex"), Values("job"))), Shards(2)).shape == (2, 4, 2)


def test_parts_are_found_by_label_position_and_mask(in_memory: Callable[..., Any]) -> None:
    """A label or tuple of labels names one part; masks, lists and slices select."""
    handle = in_memory(1)
    parts = handle.partition(Values("sex"), Values("job"))
    assert repr(parts["Male", None]).startswith("PrivateQueryable(tiny, sex = Male, job missing; 4 columns, Budget(")
    mask = np.zeros((2, 4), dtype=bool)
    mask[1, 3] = True
    assert parts[mask].labels == ["sex = Male, job missing"]
    assert parts[[-1, 0]].labels == ["sex = Male, job missing", "sex = Female, job = clerk"]
    assert len(parts[2:5]) == 3
    assert parts[[0, 5]][1]._parts.at(0).key == parts["Male", "nurse"]._parts.at(0).key
    assert len(parts[[]]) == 0
    assert [str(one._parts.at(0)) for one in parts[:2]] == parts.labels[:2]
    for wrong in ([8], [-9], [0.5], np.ones(3, dtype=bool), "Female", ("Female", "x"), None):
        with pytest.raises(QueryError):
            parts[wrong]


def test_each_part_can_have_its_own_split(in_memory: Callable[..., Any]) -> None:
    """None leaves a part as it is; the whole frontier costs one epsilon."""
    handle = in_memory(1)
    frontier = handle.partition(Values("sex")).partition([Values("job"), None])
    assert frontier.labels == [
        "sex = Female, job = clerk",
        "sex = Female, job = nurse",
        "sex = Female, job = smith",
        "sex = Female, job missing",
        "sex = Male",
    ]
    frontier.noisy_count(epsilon=0.5)
    assert handle.budget.spent == Fraction(1, 2)
    with pytest.raises(QueryError, match="3 specs were given for 5 parts"):
        frontier.partition([Values("job")] * 3)


def test_a_frontier_that_became_empty_costs_nothing(in_memory: Callable[..., Any]) -> None:
    """No parts, no answers, no charge."""
    handle = in_memory(1)
    nobody = handle.partition(Values("sex"))[[]]
    assert nobody.noisy_count(epsilon=1).shape == (0,)
    assert nobody.noisy_avg("age", epsilon=1).tolist() == []
    assert nobody.exp_mech([Values("job")], score=Gini("income"), epsilon=1) == []
    assert handle.budget.spent == 0


def test_parts_join_where_they_are_disjoint(in_memory: Callable[..., Any]) -> None:
    """In order, flat; of one handle only."""
    handle = in_memory(1)
    by_sex = handle.partition(Values("sex"))
    joined = Parts.union(by_sex[[1]], by_sex["Female"].partition(Values("job")))
    assert joined.labels[:2] == ["sex = Male", "sex = Female, job = clerk"]
    with pytest.raises(QueryError, match="different handles"):
        Parts.union(by_sex, in_memory(1).partition(Values("sex")))
    with pytest.raises(QueryError, match="at least one"):
        Parts.union()


def test_the_same_partition_again_is_the_same_partition(granted: Callable[..., Any], tiny_policy: Any) -> None:
    """In this session or a later one of the same rows, under another spelling: the maximum over its parts, not their sum."""
    named = tiny_policy.model_copy(update={"rows_version": "one"})
    granted(1, policy=named).partition(Cuts("age", (50,)))[0].noisy_count(epsilon=0.5)
    later = granted(1, policy=named)
    later.partition(Cuts("age", (50.0,)))[1].noisy_count(epsilon=0.5)
    assert later.budget.spent == Fraction(1, 2)
    later.partition(Cuts("age", (51,)))[1].noisy_count(epsilon=0.5)
    assert later.budget == Budget(Fraction(1), Fraction(1), Fraction(0))


def test_answers_become_labelled_tables(in_memory: Callable[..., Any]) -> None:
    """A row for each part, a column for each spec."""
    handle = in_memory(100)
    parts = handle.partition(Values("sex"), Groups("job", (("clerk",), ("nurse", None))))
    table = parts.frame(parts.noisy_count(epsilon=1))
    assert list(table.columns) == ["sex", "job", "value"]
    assert len(table) == 4
    jobs = handle.partition(Values("job"))
    assert jobs.frame(np.arange(len(jobs)))["job"].tolist()[-1] is None
    assert list(parts[[0, 1]].frame([1, 2]).columns) == ["part", "value"]
    assert list(handle.shards(2).frame(np.array([1, 2])).columns) == ["shard", "value"]


def test_the_history_shows_what_was_asked_and_answered(
    in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charges and refusals, oldest first, with the total after each."""
    handle = in_memory(1)
    count = handle.noisy_count(epsilon=0.5)
    chosen = handle.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon=0.25)
    with pytest.raises(pinq.BudgetExceeded):
        handle.noisy_avg("age", epsilon=0.5)
    history = handle.history()
    assert isinstance(history, pd.DataFrame)
    assert history["asked"].tolist() == [
        "noisy_count on the whole table",
        "exp_mech by gini of income on the whole table",
        "noisy_avg of age on the whole table",
    ]
    assert history["spent"].tolist() == [0.5, 0.75, 0.75]
    assert history["epsilon"].sum() == 0.75
    assert history["epsilon"].isna().tolist() == [False, False, True]
    assert str(history["at"].dtype) == "datetime64[ms, UTC]"
    assert history["at"].is_monotonic_increasing
    assert history["outcome"].tolist() == ["answered", "answered", "refused (budget)"]
    assert history["answer"].tolist()[:2] == [count, chosen]
    with pytest.raises(pinq.QueryError, match="`start` is -1"):
        handle.history(-1)
    session = handle._session
    for start in range(5):
        assert session.history(start) == session.history()[start:]
        assert handle.history(start)["answer"].tolist() == history["answer"].tolist()[start:]
    with monkeypatch.context() as patched:
        patched.setattr("pinq.ledger.composition.Costs.charge", None)  # the fold has the totals: nothing is priced
        assert handle.history().equals(history)


def test_a_history_fits_a_terminal(in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is left out, whatever was asked; and an empty history has the same columns of the same types."""
    handle = in_memory(1)
    empty = handle.history()
    handle.partition(Values("sex"), Values("job")).partition(Cuts("age", tuple(range(18, 90)))).noisy_count(epsilon=0.5)
    history = handle.history()
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = repr(history)
        assert text.splitlines()[0].split() == ["at", "asked", "epsilon", "spent", "outcome", "answer"]
        assert max(map(len, text.splitlines())) <= max(columns, 92)
    assert empty.columns.equals(history.columns)
    assert (empty.dtypes == history.dtypes).all()
    assert "answered" in repr(history)
    assert repr(history[["epsilon"]]) == repr(pd.DataFrame({"epsilon": [0.5]}))


@pytest.mark.parametrize(("seconds", "seen"), [(0, False), (1.9, False), (2.1, True)])
def test_padding_hides_an_answer_until_its_bucket_ends(
    seconds: float, seen: bool, in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was found within the first two seconds after its charge shows once they are over."""
    handle = in_memory(1)
    handle.noisy_count(epsilon=0.5)
    ledger = ledger_of(handle)
    charged = datetime.fromisoformat(ledger.log.lines("ana")[0].event.at)
    monkeypatch.setattr("pinq.provider.history.now", lambda: charged + timedelta(seconds=seconds))
    (line,) = pinq.provider.history.history(ledger, "ana", bucket=2.0)
    assert (line.outcome, line.answer is not None) == ("answered" if seen else "charged, not answered", seen)
    assert next(pinq.provider.history.history(ledger, "ana")).outcome == "answered"


def test_a_closed_handle_refuses_before_it_charges(granted: Callable[..., Any]) -> None:
    """Each verb, of the whole or of a part, and all that it knows; closing it again is nothing. So does a simulated one."""
    asked: list[Callable[[Any], Any]] = [
        lambda handle: handle.noisy_count(epsilon=0.25),
        lambda handle: parts.noisy_avg("age", epsilon=0.25),
        lambda handle: handle.preview("noisy_count", epsilon=0.25),
        lambda handle: handle.history(),
        lambda handle: handle.budget,
        lambda handle: handle.terms,
    ]
    parts: Any
    for handle in (granted(1), pinq.simulate(granted(1).schema, rows=5)):
        with handle:
            parts = handle.partition(Values("sex"))
            handle.noisy_count(epsilon=0.25)
        for ask in asked:
            with pytest.raises(QueryError, match=r"this handle is closed; open it again\. Nothing was spent\."):
                ask(handle)
        handle.close()
        assert repr(handle).endswith("4 columns, this handle is closed; open it again. Nothing was spent.)")
    assert granted(1).budget.spent == Fraction(1, 4)


def test_handles_show_themselves(in_memory: Callable[..., Any]) -> None:
    """In a console and in a notebook."""
    handle = in_memory(1)
    handle.noisy_count(epsilon=0.25)
    assert repr(handle) == "PrivateQueryable(tiny; 4 columns, Budget(epsilon=1, spent=0.25, remaining=0.75))"
    assert (f"{handle.budget.spent:.2f}", f"{handle.budget.spent}") == ("0.25", "1/4")
    assert f"{handle.preview('noisy_count', epsilon=0.25).cost:>6.1%}" == " 25.0%"
    assert "width:25.0%" in handle._repr_html_()
    parts = handle.partition(Values("sex"), Cuts("age", (50,)))
    assert (
        repr(parts)
        == "Parts(4 of tiny, shape (2, 2): sex = Female, age < 50; sex = Female, age >= 50; sex = Male, age < 50; sex = Male, age >= 50)"
    )
    assert parts._repr_html_().count("<li>") == 4


@pytest.mark.parametrize(
    "candidates", ["sex", None, 3, [3], ["sex"], [()], [[Values("sex")], [Values("job")]]], ids=repr
)
def test_candidates_that_are_none(candidates: Any, in_memory: Callable[..., Any]) -> None:
    """Refused before anything is asked."""
    handle = in_memory(1)
    with pytest.raises(QueryError):
        handle.exp_mech(candidates, score=Gini("income"), epsilon=0.1)
    assert handle.budget.spent == 0


def test_arguments_are_named(in_memory: Callable[..., Any]) -> None:
    """Epsilon is always written out."""
    handle = in_memory(1)
    with pytest.raises(TypeError):
        handle.noisy_count(0.1)
    with pytest.raises(QueryError, match="too many positional arguments; write preview"):
        handle.preview("noisy_count", 0.1)
    with pytest.raises(QueryError, match="at least one spec"):
        handle.partition()
    with pytest.raises(QueryError, match="`analyst` is ''"):
        pinq.open("none.yaml", analyst="")


def test_a_simulated_handle_is_free(tiny_policy: Any) -> None:
    """The same face over dummy rows: a budget that is enforced, no file, no log, and noise that its seed does not steer."""
    before = sorted(tiny_policy.folder.iterdir())
    one, other = (pinq.simulate(tiny_policy, rows=500, epsilon=1, seed=3) for _ in range(2))
    assert [one.partition(Values("sex")).noisy_count(epsilon=0.9).shape] == [(2,)]
    with pytest.raises(pinq.BudgetExceeded):
        one.noisy_count(epsilon=0.2)
    assert sorted(tiny_policy.folder.iterdir()) == before
    exact = [pinq.simulate(tiny_policy, rows=500, epsilon=10**6, seed=3).noisy_count(epsilon=10**5) for _ in range(2)]
    assert exact[0] == exact[1] > 400
    assert [one.budget.spent, other.budget.spent] == [Fraction(9, 10), 0]
    ledger_of(one).verify()


def test_a_fit_waits_for_the_pace_of_its_grant(
    granted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused in its middle it would have paid for nothing; a question by itself is told to come again."""
    handle = granted(1)
    ledger_of(handle).set_terms("ana", Terms(queries_per_minute=3))
    moment, waits = [now()], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        moment[0] += timedelta(seconds=seconds)

    for module in ("ledger.state", "ledger.log"):
        monkeypatch.setattr(f"pinq.{module}.now", lambda: moment[0])
    monkeypatch.setattr("miners.budget.plan.time", SimpleNamespace(sleep=sleep))  # no other thread's pauses
    with caplog.at_level("WARNING", logger="miners"):  # whatever another test of this process made of logging
        tree = DiffPC45(epsilon=0.5, max_depth=4).fit(handle, "sex")
    assert tree.cost_ <= Fraction(1, 2)
    assert waits
    assert max(waits) <= 60
    assert "allows 3 queries a minute" in caplog.text
    waits.clear()
    spent = handle.budget.spent
    summary(handle, epsilon=0.1)
    assert handle.budget.spent - spent == Fraction(1, 10)
    assert waits
    moment[0] += timedelta(seconds=61)
    for _ in range(3):
        handle.noisy_count(epsilon=0.01)
    with pytest.raises(TooManyRequests):
        handle.noisy_count(epsilon=0.01)


def test_a_loss_below_the_smallest_step_is_refused(in_memory: Callable[..., Any]) -> None:
    """It would be rounded up to a charge and a noise that nobody asked for."""
    with pytest.raises(QueryError, match=r"`epsilon` is 1e-15; the smallest step of a loss is 0\.000000001"):
        in_memory(1).noisy_count(epsilon=1e-15)


def test_other_objects_than_a_policy_say_what_to_write(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A table, a proposal's text, a schema, a file of rows."""
    frame.to_parquet(tmp_path / "rows.parquet")
    text = "A policy is a file, or what pinq.load_policy gives, not "
    given: Any
    for given, said in (
        (frame, f"{text}a DataFrame. For a table, write what pinq.propose\\(table\\) gives to a file"),
        (pinq.propose(frame), f"{text}the text of one"),
        (
            tmp_path / "rows.parquet",
            "it is no text in UTF-8. If it is a table, `pinq init .*rows.parquet > policy.yaml` proposes a policy",
        ),
    ):
        with pytest.raises(PolicyError, match=said):
            pinq.open(given, analyst="ana")
        with pytest.raises(PolicyError, match=said):
            pinq.simulate(given)


def test_a_simulated_handle_has_no_terms(frame: pd.DataFrame, in_memory: Callable[..., Any]) -> None:
    assert pinq.simulate(in_memory(1).schema, rows=5).terms == "no terms"
