# SPDX-License-Identifier: Apache-2.0
"""The loss of four owners against one curator: scorecards from sums, with and without one noise.

    python -m benchmarks.accuracy.owners --runs 2

Classes on Adult (UCI's training rows), a mean on Appliances Energy (three quarters of the rows);
they are dealt at random to four owners, anew in each run. Measurements are kept in
build/owners/cells.csv, so that it goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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
from benchmarks.harness.pictures import over_epsilon
from benchmarks.harness.tables import markdown, replace_section
from miners import FederatedScorecard, FederatedScorecardRegressor, Federation, Scorecard, ScorecardRegressor
from miners.federated.owners_miner import StrategyName
from pinq.public.schema import Schema
from pinq_secure import SecureFederation

__all__ = ["STUDY", "FourOwners", "write"]

OWNERS = 4
SETTINGS: dict[str, StrategyName | None] = {
    "one curator": None,
    "secure sums": "secure",
    "handles, turns": "turns",
    "handles, noisy_counts": "noisy_counts",
}
ABOUT = (
    "{split}, {rows:,} rows declared in all, defaults; means ± standard deviation of the runs. *Secure sums*: "
    "`pinq_secure.SecureFederation` with the noise of one curator (nobody pools noise)."
)


@dataclass(frozen=True)
class FourOwners(Experiment):
    """The accuracy of scorecards of four owners, over epsilon.

    Attributes:
        rows: The declared number of rows of all owners.
        split: The way to split rows, in words.
        section: The name of its section on the page, and of its table.
        cuts: The cuts of numeric attributes; None for the miner's default.
    """

    key: str
    title: str
    data: str
    rows: int
    split: str
    section: str
    xlabel: str = "epsilon"
    runs: int = 5
    xs: Sequence[float] = (0.25, 1.0, 4.0)
    learners: Sequence[str] = tuple(SETTINGS)
    cuts: Mapping[str, Sequence[float]] | None = None

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the figures of some settings in one run."""
        schema, target, frame = table(self.data)
        random = np.random.default_rng(run)
        if "fold" not in frame:
            frame = frame.assign(fold=np.where(random.permutation(len(frame)) % 4 == 0, "test", "train"))
        train, test = (frame[frame["fold"] == fold] for fold in ("train", "test"))
        dealt = random.permutation(len(train)) % OWNERS
        tables = [train[dealt == owner][list(schema.columns)] for owner in range(OWNERS)]
        fitted = {name: self._fitted(SETTINGS[name], x, tables, schema, target) for name in learners}
        return {name: figures(miner, test, target) for name, miner in fitted.items()}

    def _fitted(
        self,
        setting: StrategyName | None,
        epsilon: float,
        tables: Sequence[pd.DataFrame],
        schema: Schema,
        target: str,
    ) -> Any:
        alone, among = KINDS[target in schema.numeric_columns]
        rows = self.rows // OWNERS
        if setting == "secure":
            parties = SecureFederation.simulated(tables, schema=schema, epsilon=epsilon, rows=rows, colluding=0)
            return among(epsilon=epsilon, cuts=self.cuts, strategy=setting).fit(parties, target)
        with ExitStack() as opened:
            if setting is None:
                whole = schema.model_copy(update={"max_rows": self.rows})
                handle = opened.enter_context(pinq.simulate(whole, data=pd.concat(tables), epsilon=UNLIMITED_EPSILON))
                return alone(epsilon=epsilon, cuts=self.cuts).fit(handle, target)
            each = schema.model_copy(update={"max_rows": rows})
            handles = [opened.enter_context(pinq.simulate(each, data=own, epsilon=UNLIMITED_EPSILON)) for own in tables]
            return among(epsilon=epsilon, cuts=self.cuts, strategy=setting).fit(Federation(handles), target)


KINDS: dict[bool, tuple[Any, Any]] = {
    False: (Scorecard, FederatedScorecard),
    True: (ScorecardRegressor, FederatedScorecardRegressor),
}  # by whether the target is a number: for one handle, and for several
ADULT = FourOwners(
    "adult",
    "Scorecards of four owners",
    "adult",
    50_000,
    "Adult, UCI's split, the policy's cuts",
    "figures",
    cuts=ADULT_CUTS,
)
APPLIANCES = FourOwners(
    "appliances_energy",
    "Scorecards of a mean, of four owners",
    "appliances_energy",
    20_000,
    "Appliances Energy, three quarters of the rows to learn from, another split in each run",
    "means",
)


def write(experiments: Sequence[FourOwners], cells: pd.DataFrame, folder: Path) -> None:
    """Writes the table of each experiment that has measurements, and its section of the page."""
    for experiment in experiments:
        measured = cells[cells["figure"] == experiment.key]
        if len(measured):
            _write(experiment, measured, folder)


def _write(experiment: FourOwners, cells: pd.DataFrame, folder: Path) -> None:
    grouped = cells.groupby(["figure", "measure", "algorithm", "x"], sort=False)["value"]
    means = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    means.to_csv(folder / f"{experiment.section}.csv", index=False, float_format="%.5g", lineterminator="\n")
    head = "Four owners" if experiment is ADULT else "A mean of four owners"
    sections = [f"## {head}", ABOUT.format(split=experiment.split, rows=experiment.rows)]
    for measure, rows in means.groupby("measure", sort=False):
        texts = {(row.algorithm, row.x): f"{row.mean:.4f} ± {row.sd:.4f}" for row in rows.itertuples()}
        lines = [[name, *(texts.get((name, x), "") for x in experiment.xs), rows["n"].min()] for name in SETTINGS]
        headings = [str(measure), *(f"{x:g}" for x in experiment.xs), "runs"]
        sections += [f"{MEASURES[str(measure)].capitalize()}:\n\n{markdown(headings, lines)}"]
    first = means["measure"].iloc[0]
    drawn, picture, ylabel = means[means["measure"] == first], f"{experiment.section}.png", MEASURES[first]
    over_epsilon(folder / picture, drawn, list(SETTINGS), title=experiment.title, ylabel=ylabel)
    sections += [f"![{ylabel.capitalize()}, over epsilon]({picture})"]
    page = folder / "README.md"
    replace_section(page, experiment.section, "\n\n".join(sections), heading="Scorecards of four owners")


STUDY = Study(
    name="owners",
    module="benchmarks.accuracy.owners",
    about=__doc__,
    experiments=lambda data: tuple(each for each in (ADULT, APPLIANCES) if each.data in data),
    data=("adult", "appliances_energy"),
    write=write,
    runs="5",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
