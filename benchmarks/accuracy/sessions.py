# SPDX-License-Identifier: Apache-2.0
"""The accuracy, traffic and time of a session of four parties: scorecards by real processes of `pinq secure`.

    python -m benchmarks.accuracy.sessions --runs 1

Each party is a process on this machine, over the loopback interface without TLS. Rows are those of
``benchmarks.accuracy.owners``. Measurements are kept in build/sessions/cells.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.scorecards import ADULT_CUTS
from benchmarks.accuracy.trees import table
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.measure import Experiment
from benchmarks.harness.tables import markdown, replace_section
from benchmarks.papers.secure.processes import free_ports, run_processes
from pinq_secure.id3.task import hold
from pinq_secure.session.session import Member, Session

__all__ = ["STUDY", "Parties", "write"]

PARTIES = 4
ROWS = 50_000  # declared, of all of them
LEARNER = "protocol: scorecard"
MEASURES = {
    "accuracy": "accuracy on UCI's test rows",
    "rounds": "additions of all parties",
    "kilobytes": "kB that a party sends",
    "processor_seconds": "seconds of a party's processor",
}


@dataclass(frozen=True)
class Parties(Experiment):
    """A scorecard of Adult among four parties of whom nobody pools noise, over epsilon."""

    key: str = "adult"
    title: str = "A session of four parties"
    xlabel: str = "epsilon"
    data: str = "adult"
    runs: int = 2
    xs: Sequence[float] = (0.25, 1.0, 4.0)
    learners: Sequence[str] = (LEARNER,)

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the figures of one session; all parties must have learned the same."""
        schema, target, frame = table(self.data)
        train, test = (frame[frame["fold"] == fold] for fold in ("train", "test"))
        dealt = np.random.default_rng(run).permutation(len(train)) % PARTIES
        members = [
            Member(name=f"party{number}", host="127.0.0.1", port=port, rows=ROWS // PARTIES)
            for number, port in enumerate(free_ports(PARTIES))
        ]
        session = Session.drafted(
            {
                "session": "adult",
                "protocol": "scorecard",
                "target": target,
                "parties": members,
                "columns": dict(schema.columns),
                "cuts": {name: tuple(points) for name, points in ADULT_CUTS.items()},
                "noise": "discrete-laplace",
                "epsilon": str(x),
                "colluding": 0,
            }
        )
        holdings = [hold(session.task, train[dealt == number]) for number in range(PARTIES)]
        outcomes = run_processes(session, holdings)
        cards: list[Any] = [outcome.scorecard for outcome, _ in outcomes if outcome.scorecard is not None]
        assert len({card.to_json() for card in cards}) == 1
        traffic = outcomes[0][1]
        numbers = {
            "accuracy": cards[0].score(test),
            "rounds": cards[0].owners_.rounds,
            "kilobytes": traffic.bytes_sent / 1000,
            "processor_seconds": traffic.processor_seconds,
        }
        return {LEARNER: {name: float(number) for name, number in numbers.items()}}


def write(experiments: Sequence[Parties], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``figures.csv`` and its section of the page."""
    grouped = cells.groupby(["figure", "measure", "algorithm", "x"], sort=False)["value"]
    means = grouped.agg(n="count", mean="mean").reset_index()
    means.to_csv(folder / "figures.csv", index=False, float_format="%.5g", lineterminator="\n")
    xs = experiments[0].xs
    lines = []
    for measure, rows in means.groupby("measure", sort=False):
        texts = {row.x: f"{row.mean:.4g}" for row in rows.itertuples()}
        lines.append([MEASURES[str(measure)], *(texts.get(x, "") for x in xs), rows["n"].min()])
    about = (
        f"Adult, the policy's cuts, {ROWS:,} rows declared in all, defaults, `colluding: 0`; four processes on one "
        "machine, means of the runs."
    )
    tables = markdown(["epsilon", *(f"{x:g}" for x in xs), "runs"], lines)
    heading = "A scorecard among four parties"
    replace_section(folder / "README.md", "figures", f"{about}\n\n{tables}", heading=heading)


STUDY = Study(
    name="sessions",
    module="benchmarks.accuracy.sessions",
    about=__doc__,
    experiments=lambda data: (Parties(),),
    data=("adult",),
    write=write,
    runs="2",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
