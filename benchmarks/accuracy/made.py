# SPDX-License-Identifier: Apache-2.0
"""Made-up tables of a shape that no table of UCI at hand has: wide, imbalanced, many classes, small.

Each attribute's values follow the class alone, with shares drawn once for each class. So points add
up, naive Bayes is right, and what differs is how much each attribute says and how many rows say it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pinq.public.schema import Categorical, Schema

__all__ = ["MADE", "Made"]


@dataclass(frozen=True)
class Made:
    """A made-up table.

    Attributes:
        rows: The number of rows, also declared.
        attributes: The number of attributes.
        values: The number of values of each attribute.
        shares: The proportions of the classes, in any unit.
        alike: The similarity of the classes' distributions of values; the larger, the less informative an attribute.
        informative: The number of informative attributes.
    """

    rows: int
    attributes: int
    values: int
    shares: tuple[float, ...]
    alike: float
    informative: int

    def table(self) -> tuple[Schema, str, pd.DataFrame]:
        """Returns the schema, the target and the rows: the same ones each time."""
        random = np.random.default_rng(0)
        shares = np.array(self.shares) / sum(self.shares)
        classes = random.choice(len(shares), self.rows, p=shares)
        values = [str(number) for number in range(self.values)]
        columns = {}
        for number in range(self.attributes):
            common = random.dirichlet(np.full(self.values, 2.0))
            own = random.dirichlet(self.alike * common, len(shares)) if number < self.informative else None
            laws = np.tile(common, (len(shares), 1)) if own is None else own
            # A row of class 2 has the first value whose cumulated share of class 2 its draw is below.
            drawn = (random.random((self.rows, 1)) > laws.cumsum(axis=1)[classes]).sum(axis=1)
            columns[f"a{number}"] = np.array(values)[np.minimum(drawn, self.values - 1)]
        columns["class"] = np.array([f"c{number}" for number in classes])
        declared = {name: Categorical(values=tuple(values)) for name in columns if name != "class"}
        target = Categorical(values=tuple(f"c{number}" for number in range(len(shares))))
        return Schema(columns={**declared, "class": target}, max_rows=self.rows), "class", pd.DataFrame(columns)


MADE: dict[str, Made] = {
    "made_wide": Made(1_000, 50, 2, (1, 1), alike=40, informative=50),
    "made_few_of_many": Made(2_000, 40, 6, (1, 1), alike=4, informative=4),
    "made_imbalanced": Made(5_000, 12, 5, (50, 1), alike=6, informative=12),
    "made_many_classes": Made(3_000, 12, 5, (1,) * 15, alike=6, informative=12),
    "made_small": Made(120, 6, 3, (2, 1), alike=6, informative=6),
}
"""The tables, by name."""
