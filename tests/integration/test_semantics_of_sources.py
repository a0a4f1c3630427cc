# SPDX-License-Identifier: Apache-2.0
"""What readers of tables are known to do to a row because of other rows, or of where the table came from, and what ours do not.

Four traps that broke proofs about other systems: a value is cast by a type that was guessed from all rows; NaN compares with nothing, so
it falls on either side of a cut, or on both; what is kept of a person depends on the order of rows; texts that a collation takes for equal
are one value. That no row changes another one's codes at all is tests/property/test_lines.py.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from pinq.errors import QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cuts, Values, bind
from pinq.policy.policy import Policy
from tests.support.requests.handles import encoded_rows, engine_over

FORMS = ["csv", "parquet", "duckdb", "pandas"]
source = pytest.mark.parametrize("form", FORMS)


def opened(form: str, frame: pd.DataFrame, columns: dict[str, Any], folder: Path, **terms: Any) -> Any:
    """An engine on the rows, read from a file of that form, or from memory."""
    declared = {"dataset": "d", "cap": 1, "max_rows": 1000, "columns": columns, **terms}
    if form == "pandas":
        return engine_over(Policy.model_validate(declared), data=frame, salt=b"s")
    file = folder / f"d.{form}"
    file.unlink(missing_ok=True)
    if form == "csv":
        frame.to_csv(file, index=False)
    elif form == "parquet":
        frame.to_parquet(file)
    else:
        with duckdb.connect(str(file)) as connection:
            connection.execute("CREATE TABLE d AS SELECT * FROM frame")
    where: Any = {"database": file.name, "table": "d"} if form == "duckdb" else file.name
    return engine_over(Policy.model_validate(declared | {"source": where, "folder": folder}), salt=b"s")


def counts(engine: Any, columns: dict[str, Any], spec: Any) -> list[int]:
    schema = Policy.model_validate({"dataset": "d", "cap": 1, "max_rows": 1000, "columns": columns}).schema_
    (table,) = engine.tabulate(PartSet([Block(Part())]).split(bind(spec, schema)))
    return [int(count) for count in np.ravel(table)]


NUMBER: dict[str, Any] = {"x": {"type": "numeric", "lower": 0, "upper": 9, "integer": True, "nullable": True}}
LABEL: dict[str, Any] = {"x": {"type": "categorical", "values": ["01070", "1", "1.0", "TRUE", "2020-01-01"]}}
OTHERS = ["2020-13-01", "1e999", "x", "0x10"]


@pytest.mark.parametrize("other", OTHERS)
@source
def test_one_row_casts_no_other(form: str, other: str, tmp_path: Path) -> None:
    """Labels that look like numbers, truth values or dates stay as they are written, whatever one more row looks like."""
    labels = LABEL["x"]["values"]
    engine = opened(form, pd.DataFrame({"x": [*labels, other]}), LABEL, tmp_path)
    assert counts(engine, LABEL, Values("x")) == [1] * len(labels)
    numbers = [str(number) for number in range(10)]
    engine = opened(form, pd.DataFrame({"x": [*numbers, other]}), NUMBER, tmp_path)
    assert [row[0] for row in encoded_rows(engine)][:10] == list(range(10))


@source
def test_nan_is_on_no_side_of_a_cut(form: str, tmp_path: Path) -> None:
    """NaN counts as missing, a part of its own and never one of numbers; both infinities and both zeros are numbers."""
    column = {"x": {"type": "numeric", "lower": -1, "upper": 1, "step": 0.5, "nullable": True}}
    rows = pd.DataFrame({"x": [math.nan, -math.inf, -0.0, 0.0, 0.5, math.inf, None]}, dtype=float)
    engine = opened(form, rows, column, tmp_path)
    assert counts(engine, column, Cuts("x", (0.0,))) == [1, 4, 2]
    assert counts(engine, column, Cuts("x", (-0.0,))) == [1, 4, 2]
    with pytest.raises(QueryError, match="not finite"):
        Cuts("x", (math.nan,))


PEOPLE: dict[str, Any] = {
    "x": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
    "s": {"type": "categorical", "values": ["a", "b"]},
}


@source
def test_the_order_of_rows_changes_nothing(form: str, tmp_path: Path) -> None:
    """The same rows in any order are the same table, also where of each person only some rows are kept."""
    draw = random.Random(6)
    rows = [{"x": draw.randrange(10), "s": draw.choice("ab"), "who": draw.randrange(8)} for _ in range(60)]
    kept = []
    for _ in range(3):
        draw.shuffle(rows)
        unit = {"privacy_unit": {"column": "who", "max_rows": 2}}
        kept.append(Counter(encoded_rows(opened(form, pd.DataFrame(rows), PEOPLE, tmp_path, **unit))))
    assert kept[0] == kept[1] == kept[2]
    assert sum(kept[0].values()) == 16


ALIKE = ["a", "A", "á", "a\u0301", "ß", "ss", "ﬁ", "fi", "a ", " a", "a\u200b", "İ", "i"]


@source
def test_texts_are_equal_only_if_their_characters_are(form: str, tmp_path: Path) -> None:
    """Case, accents, ligatures, blanks and how a letter is composed tell two values apart, in each source and in Python alike."""
    column = {"x": {"type": "categorical", "values": ALIKE}}
    frame = pd.DataFrame({"x": [label for number, label in enumerate(ALIKE, start=1) for _ in range(number)]})
    assert counts(opened(form, frame, column, tmp_path), column, Values("x")) == list(range(1, len(ALIKE) + 1))
    half = {"x": {"type": "categorical", "values": ALIKE[::2]}}
    assert counts(opened(form, frame, half, tmp_path), half, Values("x")) == list(range(1, len(ALIKE) + 1, 2))
