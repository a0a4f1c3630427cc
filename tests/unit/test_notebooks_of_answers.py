# SPDX-License-Identifier: Apache-2.0
"""A notebook of the workbench's answers: each cell runs, and shows its answer."""

from __future__ import annotations

import ast
import json

import pytest

pytest.importorskip("nicegui")
from pinq_workbench.analyst import notebook_of

CELLS = [
    "from miners.tables import crosstab\ntable = crosstab(h, rows='a b', epsilon='0.1', reuse=True)",
    "model = f(h)",
]


@pytest.mark.parametrize("url", ["https://host:8443/people", "http://127.0.0.1:1/people"])
def test_a_notebook_asks_again(url: str) -> None:
    """It connects first, without a token in it; the last line of a cell is its answer."""
    book = json.loads(notebook_of(url, CELLS))
    sources = [cell["source"] for cell in book["cells"]]
    assert (len(sources), book["nbformat"]) == (3, 4)
    assert url in sources[0]
    assert "getpass" in sources[0]
    assert ("insecure_http=True" in sources[0]) == url.startswith("http:")
    last = [ast.parse(source).body[-1] for source in sources[1:]]
    assert [ast.unparse(line) for line in last] == ["table", "model"]
