# SPDX-License-Identifier: Apache-2.0
"""``suggest``: the solver against a curve that is known, the whole against real miners, and what it refuses."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.base import BaseEstimator

from miners import DiffPID3, SuLQID3, suggest
from pinq.errors import QueryError
from pinq.public.plugins import install_line
from pinq.public.schema import Categorical, Numeric, Schema

mpl.use("Agg")

SCHEMA = Schema(
    columns={
        "a": Categorical(values=("x", "y")),
        "b": Categorical(values=("x", "y"), nullable=True),
        "n": Numeric(lower=0, upper=9, integer=True),
        "c": Categorical(values=(0, 1)),
    },
    max_rows=5000,
)


class Known(BaseEstimator):  # type: ignore[misc]
    """A classifier whose accuracy is a known function of epsilon: 0.9 at exactly 1, plus an error of its own in each run."""

    def __init__(self, epsilon: float = 1.0, spread: float = 0.0) -> None:
        self.epsilon = epsilon
        self.spread = spread

    def fit(self, handle: Any, target: Any) -> Any:
        return self

    def score(self, table: Any) -> Any:
        luck = float(np.mean(table["n"])) - 4.5  # of the fresh rows, hence the same for every epsilon
        return min(1.0, 0.9 + 0.08 * math.log10(self.epsilon) + self.spread * luck)


def ask(miner: Any, **changed: Any) -> Any:
    return suggest(miner, SCHEMA, "c", **({"rows": 200, "accuracy": 0.9, "runs": 3, "progress": False} | changed))


@pytest.mark.parametrize("limits", [(0.01, 100), (0.3, 1.9), (0.5, 700)])
def test_the_solver_finds_a_known_answer(limits: Any) -> None:
    found = ask(Known(), limits=limits)
    assert 1 <= found.epsilon <= 1.15
    assert [one.epsilon for one in found.curve] == sorted(one.epsilon for one in found.curve)
    assert all(one.mean == pytest.approx(0.9 + 0.08 * math.log10(one.epsilon)) for one in found.curve)
    assert found.between == (found.epsilon, found.epsilon)  # no spread, no doubt


def test_errors_of_the_means_widen_the_answer() -> None:
    found = ask(Known(spread=0.5), runs=8)
    low, high = found.between
    assert (low or 0) <= found.epsilon <= (high or math.inf)
    assert (low, high) != (found.epsilon, found.epsilon)


def test_the_smallest_epsilon_may_do_and_the_largest_may_not() -> None:
    easy = ask(Known(), limits=(2, 50))
    assert easy.epsilon == 2
    assert "smallest that was tried" in repr(easy)
    hard = ask(Known(), accuracy=0.99, limits=(0.1, 2))
    assert hard.epsilon is None
    assert "No epsilon up to 2 reaches a mean accuracy of 99.0% from 200 rows; 2 reaches 92.4%" in repr(hard)
    assert hard.plot().get_xscale() == "log"


def test_a_real_miner_needs_more_for_fewer_rows() -> None:
    """With ten times the rows far less epsilon does: the answers differ tenfold but for chance, and are told apart by far less."""
    few, many = (
        suggest(
            DiffPID3(max_depth=2),
            SCHEMA,
            "c",
            rows=rows,
            accuracy=0.85,
            runs=8,
            depth=2,
            limits=(0.01, 5),
            progress=False,
        )
        for rows in (200, 5000)
    )
    assert many.epsilon is not None
    assert few.epsilon is None or few.epsilon > 2 * many.epsilon
    assert many.curve[0].runs == 8
    assert many.curve[0].mean < 0.85 <= many.curve[-1].mean + 0.05
    assert many.miner == "DiffPID3(max_depth=2)"
    html = many._repr_html_()
    assert "nothing about the real table" in html
    assert f"{many.epsilon:g}" in html
    axes = many.plot()
    assert [line.get_label() for line in axes.lines if "epsilon" in str(line.get_label())] == [
        f"epsilon {many.epsilon:g}"
    ]


def test_the_miner_is_left_as_it_was() -> None:
    miner = SuLQID3(epsilon=7, max_depth=1)
    found = ask(miner, limits=(1, 10), accuracy=0.6)
    assert miner.epsilon == 7
    assert not hasattr(miner, "tree_")
    assert found.miner == "SuLQID3(max_depth=1)"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 5001}, "`rows` is 5001; it must be a whole number from 1 to 5,000"),
        ({"rows": 0}, "`rows` is 0"),
        ({"accuracy": 1}, "`accuracy` is 1; it must be above 0 and below 1"),
        ({"accuracy": "high"}, "`accuracy` is 'high'"),
        ({"limits": (1, 1)}, "`limits`"),
        ({"limits": (0, 1)}, "`limits`"),
        ({"limits": 3}, "`limits`"),
        ({"runs": 1}, "`runs` is 1"),
        ({"depth": 0}, "`depth` is 0"),
        ({"noise": 1.5}, "`noise` is 1.5"),
    ],
)
def test_wrong_parameters_are_named(changed: Any, message: Any) -> None:
    with pytest.raises(QueryError, match=message):
        ask(DiffPID3(), **changed)


def test_wrong_miners_schemas_and_targets_are_named() -> None:
    with pytest.raises(QueryError, match="pass one like DiffPC45"):
        ask(DiffPID3)
    with pytest.raises(QueryError, match="not a classifier with a parameter `epsilon`"):
        ask(object())
    with pytest.raises(QueryError, match=r"it must be a Schema, like `handle\.schema`"):
        suggest(DiffPID3(), {"a": 1}, "c", rows=10, accuracy=0.9)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`n` is numeric"):
        suggest(DiffPID3(), SCHEMA, "n", rows=10, accuracy=0.9)
    with pytest.raises(QueryError, match="`criterion`"):
        ask(DiffPID3(criterion="luck"))


def test_means_are_read_off_a_monotone_curve() -> None:
    """A mean that falls by chance does not make the answer jump: neighbours are pooled."""
    from miners.tuning.suggestion import TrialMean, _crossing

    curve = tuple(TrialMean(epsilon, 0.0, 0.0, 2) for epsilon in (0.1, 1.0, 10.0, 100.0))
    assert _crossing(curve, np.array([0.5, 0.9, 0.7, 1.0]), 0.8) == 1.0  # 0.9 and 0.7 pool to 0.8
    assert _crossing(curve, np.array([0.5, 0.6, 0.7, 0.7]), 0.8) is None
    assert _crossing(curve, np.array([0.8, 0.9, 0.9, 1.0]), 0.8) == 0.1
    assert _crossing(curve, np.array([0.5, 0.6, 0.7, 0.9]), 0.8) == 100.0  # nothing is said of what was not tried


def test_without_the_providers_side_it_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "from pinq.public.plugins import EXTRAS\n"
        "for packages in EXTRAS.values(): sys.modules.update(dict.fromkeys(packages))\n"
        "from miners import DiffPID3, suggest\n"
        "from pinq import Schema\n"
        "schema = Schema(columns={name: {'type': 'categorical', 'values': ['x', 'y']} for name in 'ab'}, max_rows=10)\n"
        "try:\n    suggest(DiffPID3(), schema, 'b', rows=10, accuracy=0.9)\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert install_line("provider") in done.stdout
