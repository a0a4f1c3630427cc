# SPDX-License-Identifier: Apache-2.0
"""What four holders of Adult lose against one curator: scorecards from sums, with and without one noise.

    python -m benchmarks.accuracy.holders --runs 2

UCI's training rows are dealt at random to four holders, anew in each run. Measurements are kept in
build/holders/cells.csv, so that it goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.measures import MEASURES, figures
from benchmarks.accuracy.scorecards import ADULT_CUTS
from benchmarks.accuracy.trees import UNLIMITED_EPSILON, table
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.measure import Experiment
from benchmarks.harness.tables import markdown, replace_section
from miners import DPScorecard, Federation, Scorecard
from miners.federated.scorecard import CardStrategyName
from miners.secure import SecureFederation

__all__ = ["STUDY", "FourHolders", "write"]

HOLDERS = 4
ROWS = 50_000  # declared, of all of them
SETTINGS: dict[str, CardStrategyName | None] = {
    "one curator": None,
    "secure sums": "secure",
    "handles, turns": "turns",
    "handles, noisy_counts": "noisy_counts",
}
ABOUT = (
    "Adult, UCI's split, the policy's cuts, 50,000 rows declared in all, defaults; means ± standard deviation of the "
    "runs. *Secure sums*: `miners.secure.SecureFederation` with the noise of one curator (nobody pools noise)."
)


@dataclass(frozen=True)
class FourHolders(Experiment):
    """What scorecards of four holders reach, over epsilon."""

    key: str = "adult"
    title: str = "Scorecards of four holders"
    xlabel: str = "epsilon"
    data: str = "adult"
    runs: int = 5
    xs: Sequence[float] = (0.25, 1.0, 4.0)
    learners: Sequence[str] = tuple(SETTINGS)

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the figures of some settings in one run."""
        schema, target, frame = table("adult")
        train, test = (frame[frame["fold"] == fold] for fold in ("train", "test"))
        dealt = np.random.default_rng(run).permutation(len(train)) % HOLDERS
        tables = [train[dealt == holder][list(schema.columns)] for holder in range(HOLDERS)]
        fitted = {name: _fitted(SETTINGS[name], x, tables, target) for name in learners}
        return {name: figures(miner, test, target) for name, miner in fitted.items()}


def _fitted(setting: CardStrategyName | None, epsilon: float, tables: Sequence[pd.DataFrame], target: str) -> Any:
    schema = table("adult")[0]
    each = schema.model_copy(update={"max_rows": ROWS // HOLDERS})
    make = partial(DPScorecard, epsilon=epsilon, cuts=ADULT_CUTS)
    if setting == "secure":
        rows = ROWS // HOLDERS
        parties = SecureFederation.simulated(tables, schema=schema, epsilon=epsilon, rows=rows, colluding=0)
        return make(strategy=setting).fit(parties, target)
    with ExitStack() as opened:
        if setting is None:
            whole = schema.model_copy(update={"max_rows": ROWS})
            handle = opened.enter_context(pinq.simulate(whole, data=pd.concat(tables), epsilon=UNLIMITED_EPSILON))
            return Scorecard(epsilon=epsilon, cuts=ADULT_CUTS).fit(handle, target)
        handles = [opened.enter_context(pinq.simulate(each, data=rows, epsilon=UNLIMITED_EPSILON)) for rows in tables]
        return make(strategy=setting).fit(Federation(handles), target)


def write(experiments: Sequence[FourHolders], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``figures.csv`` and its section of the page."""
    grouped = cells.groupby(["figure", "measure", "algorithm", "x"], sort=False)["value"]
    means = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    means.to_csv(folder / "figures.csv", index=False, float_format="%.5g", lineterminator="\n")
    sections = ["## Four holders", ABOUT]
    for measure, rows in means.groupby("measure", sort=False):
        texts = {(row.algorithm, row.x): f"{row.mean:.4f} ± {row.sd:.4f}" for row in rows.itertuples()}
        xs = experiments[0].xs
        lines = [[name, *(texts.get((name, x), "") for x in xs), rows["n"].min()] for name in SETTINGS]
        head = [str(measure), *(f"{x:g}" for x in xs), "runs"]
        sections += [f"{MEASURES[str(measure)].capitalize()}:\n\n{markdown(head, lines)}"]
    replace_section(folder / "README.md", "figures", "\n\n".join(sections), heading="Scorecards of four holders")


STUDY = Study(
    name="holders",
    module="benchmarks.accuracy.holders",
    about=__doc__,
    experiments=lambda data: (FourHolders(),),
    data=("adult",),
    write=write,
    runs="5",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
