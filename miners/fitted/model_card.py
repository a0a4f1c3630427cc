# SPDX-License-Identifier: Apache-2.0
"""A page of facts about a fitted model, and predicted probabilities against observed frequencies.

Privacy:
    Claim: a card is free. Why: it has the public schema, the parameters, the plan, which follows
    from both, the bill, and limits that are equal for all such models.

    Claim of ``Reliability``: none for the passed rows. They must be public, or the caller's own,
    because frequencies of classes among them are exact. The model costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape

import numpy as np

from miners.budget.plan import HEADINGS, Plan, loss_text
from miners.pictures import BLUE, PALE, Axes, axes_of
from pinq.errors import QueryError
from pinq.public.schema import Schema, unit_text

LEFT = "style='text-align:left'"
GENERAL = (
    "Epsilon bounds the knowledge that anybody can gain about one {unit} from this model; it says nothing about "
    "the model's accuracy.",
    "It was learned from noisy answers. Another fit would differ, mostly for rare values.",
    "Other releases of the same table are not in this epsilon; the data provider's audit has the sum.",
    "The model also depends on the policy's rules for rows before the count: bounds, undeclared values, rows of one "
    "unit.",
)


@dataclass(frozen=True)
class ModelCard:
    """A page about a model.

    Attributes:
        title: The miner and its target.
        limits: The known faults of such models, one sentence each.
    """

    title: str
    facts: Mapping[str, Mapping[str, str]]
    plan: Plan
    limits: tuple[str, ...]

    def to_markdown(self) -> str:
        parts = [f"# {self.title}"]
        for heading, facts in self.facts.items():
            parts += [f"## {heading}", "\n".join(f"- {name}: {_plain(text)}" for name, text in facts.items())]
        rows = [HEADINGS, ("---",) * len(HEADINGS), *(line.cells() for line in self.plan.lines)]
        table = "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in rows)
        notes = "\n".join(f"- {_plain(note)}" for note in self.plan.notes)
        limits = "\n".join(f"- {_plain(limit)}" for limit in self.limits)
        return "\n\n".join([*parts, "## Plan", table, *([notes] if notes else []), "## Known limits", limits]) + "\n"

    def to_html(self) -> str:
        parts = [f"<h2>{escape(self.title)}</h2>"]
        for heading, facts in self.facts.items():
            cells = (
                (f"<th {LEFT}>{escape(name)}</th>", f"<td {LEFT}>{escape(text)}</td>") for name, text in facts.items()
            )
            rows = "".join(f"<tr>{name}{text}</tr>" for name, text in cells)
            parts.append(f"<h3>{escape(heading)}</h3><table>{rows}</table>")
        limits = "".join(f"<li>{escape(limit)}</li>" for limit in self.limits)
        return "".join([*parts, "<h3>Plan</h3>", self.plan._repr_html_(), f"<h3>Known limits</h3><ul>{limits}</ul>"])

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


def model_card(
    *,
    miner: str,
    model: Mapping[str, str],
    dataset: str | None,
    schema: Schema,
    plan: Plan,
    cost: Fraction,
    limits: Sequence[str],
) -> ModelCard:
    """Makes the card of a miner; ``dataset`` is None if it is unknown, as after ``from_json``."""
    unit = unit_text(schema.bounded_unit)
    hidden = f"the contents of one {unit}" if schema.adjacency == "substitute" else f"the presence of one {unit}"
    data = {
        "dataset": dataset or "not known to a model that was stored",
        "policy": f"digest {schema.digest} of its public part, which the provider's ledger keeps",
        "columns": ", ".join(schema.columns),
        "rows": f"at most {schema.max_rows:,}",
        "privacy unit": unit,
        "neighbours": schema.adjacency,
    }
    factor = math.exp(min(float(plan.total), 700))
    left = plan.total - cost
    less = f"; {loss_text(left)} less than planned: answers that were paid before, or not needed" if left > 0 else ""
    privacy = {
        "epsilon": f"{loss_text(plan.total)}, delta 0",
        "meaning": f"{hidden} changes the probability of any model at most {factor:.3g}-fold",
        "charged by this fit": f"{loss_text(cost)}{less}",
    }
    general = [limit.format(unit=unit) for limit in GENERAL]
    facts = {"Model": {"miner": miner, **model}, "Data": data, "Privacy": privacy}
    return ModelCard(plan.title, facts, plan, (*limits, *plan.warnings, *general))


def _plain(text: str) -> str:
    """A text without meaning for Markdown's tables and lists."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


SURE = 1.96  # standard errors on each side


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted probabilities of a class and its observed frequencies, in bins of equal width.

    Attributes:
        predicted: Mean predicted probability of each bin, shape (bins,); NaN in an empty bin.
        happened: Proportion of the bin's rows with the class, shape (bins,); NaN in an empty bin.
        rows: Rows of each bin, shape (bins,).
    """

    predicted: np.ndarray
    happened: np.ndarray
    rows: np.ndarray
    label: str

    def __repr__(self) -> str:
        return f"Reliability of {self.label!r}: {self.rows.sum():,} rows, off by {self.off:.3f} in the mean"

    @classmethod
    def of(cls, probabilities: np.ndarray, happened: np.ndarray, *, bins: int, label: str) -> Reliability:
        """Bins rows by their predicted probabilities.

        Args:
            probabilities: Predicted probability of the class, shape (rows,).
            happened: Whether the row has the class, shape (rows,).
            bins: The number of bins.
            label: The class.
        """
        if not len(probabilities):
            raise QueryError("there is no row for a comparison of probabilities.")
        # In ten bins .37 is in bin 3, and 1 in bin 9, the last.
        number = np.minimum((probabilities * bins).astype(int), bins - 1)
        rows = np.bincount(number, minlength=bins)
        sums = [np.bincount(number, weights, bins) for weights in (probabilities, happened.astype(np.float64))]
        predicted, happened_shares = (np.where(rows > 0, total / np.maximum(rows, 1), np.nan) for total in sums)
        return cls(predicted, happened_shares, rows, label)

    @property
    def off(self) -> float:
        """The mean difference of predicted probabilities and observed frequencies, weighted by rows."""
        return float(np.nansum(np.abs(self.predicted - self.happened) * self.rows) / self.rows.sum())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws observed frequencies over predicted probabilities; the size of a dot follows its number of rows.

        Bars show the range in which chance leaves 95 % of the proportions of so many rows.

        Raises:
            ImportError: matplotlib is not installed.
        """
        ax = axes_of("shares", ax, (4.5, 4.5))
        occupied = self.rows > 0
        predicted, happened, rows = self.predicted[occupied], self.happened[occupied], self.rows[occupied]
        ax.plot([0, 1], [0, 1], color=PALE, linewidth=1, linestyle="--")
        # A share of .3 among 100 rows deviates by sqrt(.3 * .7 / 100) = .046 by chance.
        error = SURE * np.sqrt(happened * (1 - happened) / rows)
        ax.errorbar(predicted, happened, yerr=error, color=BLUE, linewidth=1, capsize=2)
        ax.scatter(predicted, happened, s=8 + 140 * rows / rows.max(), color=BLUE)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=f"predicted share of {self.label}", ylabel="share that happened")
        ax.set_title(f"{rows.sum():,} rows, off by {self.off:.3f} in the mean", fontsize=10)
        return ax


def determination(truth: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Returns the coefficient of determination: 1 - (mean squared error) / (variance).

    Without variance it is 1 if all is right, else 0.

    Args:
        truth: The true values, shape (rows,).
        predicted: The predicted values, shape (rows,).
        weight: A weight for each row, shape (rows,).
    """
    error = np.average((truth - predicted) ** 2, weights=weight)
    variance = np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight)
    return float(1 - error / variance) if variance else float(not error)
