# SPDX-License-Identifier: Apache-2.0
"""A first column without a name, as pandas writes the numbers of rows, is named, and proposed away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pinq
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from pinq.provider.check import check

FRAME = pd.DataFrame({"age": np.arange(300) % 60, "sex": ["f", "m"] * 150})


@pytest.mark.parametrize("titles", [0, 2])
def test_an_index_without_a_name_is_left_out(titles: int, tmp_path: Path) -> None:
    """Also below titles; the rows are all there."""
    file = tmp_path / "t.csv"
    file.write_text("a title\n" * titles + FRAME.to_csv(), encoding="utf-8")
    csv = Dialect(skip=titles) if titles else None
    text = pinq.propose(file, folder=tmp_path, csv=csv)
    assert "index: it" in text.partition("# Left out:")[2]
    (tmp_path / "t.yaml").write_text(text, encoding="utf-8")
    policy = pinq.load_policy(tmp_path / "t.yaml")
    assert list(policy.columns) == ["age", "sex"]
    report = check(policy)
    assert (report.source_rows, report.encoded_rows) == (300, 300)


@pytest.mark.parametrize("header", ["1,f,20", ",,sex", ",age,age", ",age,7"])
def test_a_row_is_never_taken_for_names(header: str, tmp_path: Path) -> None:
    """Nor are names made up for other columns."""
    file = tmp_path / "t.csv"
    file.write_text(header + "\n" + FRAME.to_csv(header=False), encoding="utf-8")
    with pytest.raises(PolicyError, match="The header of" if header.startswith(",") else "seems to be a row"):
        pinq.propose(file)
