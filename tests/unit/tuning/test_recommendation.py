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


def schema(*parts: dict[str, Any], rows: int = 10_000) -> Schema:
    return Schema(columns={name: column for part in (*parts, CLASS) for name, column in part.items()}, max_rows=rows)


@pytest.mark.parametrize(
    ("columns", "target", "epsilon", "name"),
    [
        (WORDS, "y", 0.1, "Scorecard"),
        (WORDS, "y", 1, "DiffPC45"),
        (WORDS | {f"w{number}": WORDS["d"] for number in range(9)}, "y", 1, "Scorecard"),
        (NUMERIC | WORDS, "y", 0.1, "Scorecard"),
        (NUMERIC, "y", 1, "DiffPC45"),
        (NUMERIC, "y", 0.05, "DiffPC45"),
        (NUMERIC | WORDS, "a", 1, "ScorecardRegressor"),
    ],
)
def test_the_kind_of_columns_decides(columns: Any, target: str, epsilon: float, name: str) -> None:
    """And for trees how many rows times epsilon there are for each class."""
    answer = recommend(schema(columns), target, epsilon)
    assert answer.name == answer.alternatives[0].name == name
    assert answer.miner.epsilon == epsilon
    assert answer.alternatives[-1].name == "Synthesizer"
    assert f"{name}(epsilon={epsilon}): " in repr(answer)
    for other in answer.alternatives:
        assert other.name in repr(answer)
        assert other.name in answer._repr_html_()


def test_fewer_rows_are_another_table() -> None:
    """``max_rows`` may be given where the schema's bound is loose; a hopeless table is warned of."""
    wide = schema({f"n{number}": NUMERIC["a"] for number in range(12)})
    assert recommend(wide, "y", 1).name == "DiffPC45"
    assert recommend(wide, "y", 1, max_rows=600).name == "Scorecard"
    assert recommend(wide, "y", 1, max_rows=601).name == "DiffPC45"
    assert recommend(wide, "y", 0.1, max_rows=500).name == "DiffPC45"
    few = recommend(schema(WORDS), "y", 0.1, max_rows=100)
    assert "Warning: at epsilon 0.1" in repr(few)
    assert "max_rows times epsilon 10" in str(few.facts)


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
