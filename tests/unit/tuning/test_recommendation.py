# SPDX-License-Identifier: Apache-2.0
"""What is recommended follows from public facts, says why, and can be fitted as it is."""

from __future__ import annotations

from typing import Any

import pytest

from miners import recommend
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

CLASS = {"y": Categorical(values=("n", "p"))}
NUMERIC = {name: Numeric(lower=0, upper=9, integer=True) for name in "abc"}
WORDS = {name: Categorical(values=("u", "v", "w")) for name in "def"}

SIX = {"six": Categorical(values=tuple("uvwxyz"))}
TEN = {"ten": Categorical(values=tuple("0123456789"))}


def schema(*parts: dict[str, Any], rows: int = 10_000) -> Schema:
    return Schema(columns={name: column for part in (*parts, CLASS) for name, column in part.items()}, max_rows=rows)


@pytest.mark.parametrize(
    ("columns", "target", "epsilon", "name"),
    [
        (WORDS, "y", 0.1, "Scorecard"),
        (WORDS, "y", 1, "Scorecard"),
        (WORDS | SIX, "six", 0.1, "Scorecard"),
        (WORDS | SIX, "six", 1, "DiffPC45"),
        (WORDS | SIX | {f"w{number}": WORDS["d"] for number in range(9)}, "six", 1, "Scorecard"),
        (NUMERIC | WORDS, "y", 0.1, "Scorecard"),
        (NUMERIC | SIX, "six", 1, "DiffPC45"),
        (NUMERIC | SIX, "six", 0.01, "DiffPC45"),
        (NUMERIC | WORDS, "a", 1, "ScorecardRegressor"),
        (NUMERIC | TEN, "ten", 1, "LinearDiscriminant"),
        (NUMERIC | TEN, "ten", 0.001, "Scorecard"),
        (WORDS | TEN, "ten", 1, "Scorecard"),
    ],
)
def test_the_kind_of_columns_decides(columns: Any, target: str, epsilon: float, name: str) -> None:
    """And for trees how many rows times epsilon there are for each class."""
    answer = recommend(schema(columns), target, epsilon)
    assert answer.name == answer.alternatives[0].name == name
    assert answer.miner.epsilon == epsilon
    assert answer.alternatives[-1].name == "Synthesizer"
    assert repr(answer).startswith(f"{name}(epsilon={epsilon}")
    for other in answer.alternatives:
        assert other.name in repr(answer)
        assert other.name in answer._repr_html_()


def test_fewer_rows_are_another_table() -> None:
    """``max_rows`` may be given where the schema's bound is loose; a hopeless table is warned of."""
    wide = schema({f"n{number}": NUMERIC["a"] for number in range(12)} | SIX)
    assert recommend(wide, "six", 0.5).name == "DiffPC45"
    assert recommend(wide, "six", 0.5, max_rows=650).name == "Scorecard"
    assert recommend(wide, "six", 0.5, max_rows=651).name == "DiffPC45"
    assert recommend(wide, "six", 0.1, max_rows=500).name == "DiffPC45"
    few = recommend(schema(WORDS), "y", 0.1, max_rows=100)
    assert "Warning: at epsilon 0.1" in repr(few)
    assert "max_rows times epsilon 10" in str(few.facts)


def test_pairs_are_offered_where_a_pair_can_follow_its_attributes() -> None:
    """A third step is the first that can; of one attribute there is no pair."""
    wide = schema(WORDS | {f"w{number}": WORDS["d"] for number in range(9)})
    assert "pairs=True" in repr(recommend(wide, "y", 1).miner)
    assert "pairs=True" not in repr(recommend(wide, "y", 0.01).miner)
    assert "pairs=True" not in repr(recommend(schema({"d": WORDS["d"]}), "y", 1).miner)


def test_terms_forbid_what_uses_other_verbs() -> None:
    """Without sums a tree is named, for a number the synthesizer; without every verb there is none."""
    counts = ("noisy_count", "exp_mech")
    answer = recommend(schema(NUMERIC, WORDS), "y", 1, verbs=counts)
    assert [other.name for other in answer.alternatives] == ["DiffPC45", "Synthesizer"]
    assert "terms" in answer.reason
    assert recommend(schema(NUMERIC, WORDS), "y", 1, verbs=(*counts, "noisy_sum")).name == "Scorecard"
    assert recommend(schema(NUMERIC, WORDS), "a", 1, verbs=counts).name == "Synthesizer"
    with pytest.raises(QueryError, match="`verbs` are noisy_count"):
        recommend(schema(WORDS), "y", 1, verbs=["noisy_count"])


def test_what_is_recommended_fits_as_it_is() -> None:
    """At the epsilon that was asked for."""
    with simulated(schema(WORDS), rows=500, epsilon=1) as handle:
        assert recommend(handle.schema, "y", 1).miner.fit(handle, "y").cost_ == 1


def test_wrong_parameters_are_refused() -> None:
    """Each by its name."""
    with pytest.raises(QueryError, match="`schema` is str"):
        recommend("schema", "y", 1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`max_rows` is 0"):
        recommend(schema(WORDS), "y", 1, max_rows=0)
    with pytest.raises(QueryError, match="no column 'z'"):
        recommend(schema(WORDS), "z", 1)
    with pytest.raises(QueryError, match="epsilon"):
        recommend(schema(WORDS), "y", 0)
