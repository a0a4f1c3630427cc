# SPDX-License-Identifier: Apache-2.0
"""What a data frame does and a handle does not: each wish gets an error that shows the line to write."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import typing
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import pinq
from pinq import Parts, PrivateQueryable, QueryError, Values
from pinq.analyst.lessons import LESSONS, LINES
from pinq.analyst.queryable import Verbs
from tests.support.tables.mixed_schema import SCHEMA

WORDS = [
    "where", "filter", "query", "groupby", "agg", "count", "sum", "mean", "median", "quantile", "min", "max", "std",
    "var", "describe", "hist", "plot", "value_counts", "columns", "dtypes", "shape", "size", "unique", "head", "tail",
    "sample", "iloc", "loc", "iterrows", "itertuples", "to_pandas", "to_numpy", "to_csv", "to_dict", "collect", "corr",
    "sort_values", "merge", "join", "apply", "assign", "drop", "select", "fit",
]  # fmt: skip


@pytest.fixture(scope="module")
def h() -> Iterator[PrivateQueryable]:
    """A handle whose budget is large enough for every line."""
    with pinq.simulate(SCHEMA, rows=200, epsilon=100) as handle:
        yield handle


def written(error: BaseException) -> str:
    """The line that an error shows, with its import."""
    _, *lines = str(error).splitlines()
    return "\n".join(line.strip() for line in lines)


def run(code: str, **names: Any) -> Any:
    """What the last line of a lesson gives."""
    *imports, line = code.splitlines()
    exec("\n".join(imports), names)
    return eval(line, names)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.names.split()[0])
def test_every_wish_is_answered_by_a_line_that_runs(h: PrivateQueryable, line: Any) -> None:
    """By the columns of the user's own table, on a handle."""
    for name in line.names.split():
        assert not hasattr(h, name)
        with pytest.raises(AttributeError, match=rf"^A handle has no `{name}`\. To ") as taught:
            getattr(h, name)
    code = written(taught.value)
    assert "{" not in line.code or re.search(r"'(age|job|sex)'|age=", code)
    assert run(code, h=h) is not None


def test_what_people_know_of_frames_is_all_there(h: PrivateQueryable) -> None:
    """No word leads to two lines, and no word of a line is a verb of the handle."""
    assert set(WORDS) <= set(LESSONS)
    named = [name for line in LINES for name in line.names.split()]
    assert len(named) == len(set(named))
    assert not set(named) & set(dir(h))
    assert set(dir(pd.DataFrame)) & set(named) >= {"groupby", "iloc", "T", "empty"} - {"empty"}


def test_parts_teach_too(h: PrivateQueryable) -> None:
    """Verbs are shown on the parts themselves, tables on the handle that they come from."""
    parts = h.partition(Values("sex"))
    for name, line in LESSONS.items():
        if name in ("shape", "union"):  # which parts have
            continue
        with pytest.raises(QueryError, match=rf"^Parts have no `{name}`") as taught:
            getattr(parts, name)
        code = written(taught.value)
        assert ("parts." in code) == line.on_parts
        if line.on_parts:
            assert run(code, parts=parts).shape == (2,)


def test_brackets_rows_and_length_teach(h: PrivateQueryable) -> None:
    """A column, several, a row, going through rows, their number, and columns as attributes."""
    for wish, kind in [
        (lambda: h["age"], float),
        (lambda: h["sex"], object),
        (lambda: h[["age", "sex"]], object),
        (lambda: h[0], PrivateQueryable),
        (lambda: h[:5], PrivateQueryable),
        (lambda: h[pd.Series([True, False])], PrivateQueryable),
        (lambda: list(h), PrivateQueryable),
        (lambda: "age" in h, PrivateQueryable),
        (lambda: pd.DataFrame(list(h)), PrivateQueryable),
        (lambda: len(h), int),
        (lambda: h.age, float),  # type: ignore[attr-defined]
        (lambda: h.partition(Values("sex")).wage, object),  # type: ignore[attr-defined]
    ]:
        with pytest.raises(QueryError, match=r"[wW]rite") as taught:
            wish()  # type: ignore[no-untyped-call]
        assert isinstance(run(written(taught.value), h=h, parts=h.partition(Values("sex"))), kind)
    with pytest.raises(QueryError, match=r"no column 'agee' \(did you mean 'age'\?\)"):
        h["agee"]


def test_a_lesson_keeps_odd_names(h: PrivateQueryable) -> None:
    """A column that is no Python name is written so that the line runs; a table without numbers says so."""
    columns = {"body height (cm)": pinq.Numeric(lower=0, upper=1, integer=True), "a": SCHEMA.columns["sex"]}
    with pinq.simulate(pinq.Schema(columns=columns, max_rows=10), rows=5, epsilon=10) as odd:
        with pytest.raises(QueryError, match="body height") as taught:
            _ = odd.filter  # type: ignore[attr-defined]
        assert isinstance(run(written(taught.value), h=odd), PrivateQueryable)
    with pinq.simulate(pinq.Schema(columns={"a": SCHEMA.columns["sex"]}, max_rows=10), rows=5, epsilon=10) as plain:
        with pytest.raises(QueryError, match=r"noisy_avg\('a numeric column'"):
            _ = plain.mean  # type: ignore[attr-defined]
        with pytest.raises(QueryError, match="a='F'"):
            plain[0]


def test_other_names_are_errors_as_ever(h: PrivateQueryable) -> None:
    """A misspelt verb is suggested; what Python asks for by itself is not there; nothing is spent; a handle is true."""
    spent = h.budget.spent
    with pytest.raises(AttributeError, match=r"no `noisy_cuont` \(did you mean 'noisy_count'\?\); it has .*partition"):
        _ = h.noisy_cuont  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="_ipython_display_"):
        _ = h._ipython_display_  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        pickle.dumps(h)
    with pytest.raises(TypeError):
        copy.deepcopy(h)
    assert h
    assert h.budget.spent == spent


def test_a_fault_inside_a_property_is_told_as_it_is(h: PrivateQueryable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks for another attribute when a property raises an AttributeError; a handle has it, and says so."""
    monkeypatch.setattr(type(h._session), "budget", lambda _: object().spent)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'object' object has no attribute 'spent'"):
        _ = h.budget


@pytest.mark.parametrize("kind", [PrivateQueryable, Parts])
def test_faces_say_what_they_return(kind: type[Any]) -> None:
    """Editors complete what a verb gives: no public face returns Any, in none of its forms."""
    for name, face in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") and name != "__getitem__":
            continue
        forms = typing.get_overloads(face) or [face]
        for form in forms:
            returned = inspect.signature(form).return_annotation
            assert returned not in ("Any", Any, inspect.Signature.empty), name
            assert returned != "object" or name == "exp_mech"
    assert len(typing.get_overloads(Verbs.exp_mech)) == 4
    assert all("Any" not in str(form.__annotations__["return"]) for form in typing.get_overloads(Verbs.exp_mech))
