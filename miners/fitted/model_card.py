# SPDX-License-Identifier: Apache-2.0
"""``ModelCard``: what a reader of a fitted model should know, on one page, as Markdown and HTML.

Privacy:
    Claim: a card is free. Why: it says the public schema, the parameters, the plan, which follows
    from both, the bill, and what is known of every such model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape

from miners.budget.plan import HEADINGS, Plan, loss_text
from pinq.public.schema import Schema, unit_text

__all__ = ["ModelCard", "model_card"]

LEFT = "style='text-align:left'"
GENERAL = (
    "Epsilon bounds what anybody can learn of one {unit} from this model; it does not say how right the model is.",
    "It was learned from noisy answers: fitted again it would differ, most where few rows were.",
    "What else was released of the same table is not in this epsilon; the data provider's audit has the sum.",
    "What the policy does to rows before they are counted (bounds, undeclared values, rows of one unit) is in the "
    "model too.",
)


@dataclass(frozen=True)
class ModelCard:
    """A page about a model.

    Attributes:
        title: The miner and what it predicts.
        facts: By heading: names and texts.
        plan: What the fit was to ask.
        limits: What is known to be wrong with such models, one sentence each.
    """

    title: str
    facts: Mapping[str, Mapping[str, str]]
    plan: Plan
    limits: tuple[str, ...]

    def to_markdown(self) -> str:
        """Returns the page as Markdown."""
        parts = [f"# {self.title}"]
        for heading, facts in self.facts.items():
            parts += [f"## {heading}", "\n".join(f"- {name}: {_plain(text)}" for name, text in facts.items())]
        rows = [HEADINGS, ("---",) * len(HEADINGS), *(line.cells() for line in self.plan.lines)]
        table = "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in rows)
        notes = "\n".join(f"- {_plain(note)}" for note in self.plan.notes)
        limits = "\n".join(f"- {_plain(limit)}" for limit in self.limits)
        return "\n\n".join([*parts, "## Plan", table, *([notes] if notes else []), "## Known limits", limits]) + "\n"

    def to_html(self) -> str:
        """Returns the page as a piece of HTML, for a notebook or a page of one's own."""
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
    """Puts a card together.

    Args:
        miner: The miner with its parameters, as Python writes it.
        model: What was learned, in names and texts.
        dataset: What the data are called; None where it is not known, as after ``from_json``.
        schema: The public schema under which it was learned.
        plan: What the fit was to ask.
        cost: What it charged.
        limits: Of this kind of model.
    """
    unit = unit_text(schema.bounded_unit)
    hidden = f"what one {unit} says" if schema.adjacency == "substitute" else f"whether one {unit} is in the table"
    data = {
        "dataset": dataset or "not known to a model that was stored",
        "policy": f"digest {schema.digest} of its public part, which the provider's ledger keeps",
        "columns": ", ".join(schema.columns),
        "rows": f"at most {schema.max_rows:,}",
        "privacy unit": unit,
        "neighbours": schema.adjacency,
    }
    privacy = {
        "epsilon": f"{loss_text(plan.total)}, delta 0",
        "meaning": f"{hidden} changes the chance of any model at most {_factor(plan.total)}-fold",
        "charged by this fit": f"{loss_text(cost)}{_difference(plan.total - cost)}",
    }
    general = [limit.format(unit=unit) for limit in GENERAL]
    facts = {"Model": {"miner": miner, **model}, "Data": data, "Privacy": privacy}
    return ModelCard(plan.title, facts, plan, (*limits, *plan.warnings, *general))


def _difference(left: Fraction) -> str:
    return "" if left <= 0 else f"; {loss_text(left)} less than planned: answers paid before, or not needed"


def _factor(epsilon: Fraction) -> str:
    """Returns e to an epsilon to three figures."""
    return f"{math.exp(min(float(epsilon), 700)):.3g}"


def _plain(text: str) -> str:
    """Returns a text that means nothing to Markdown's tables and lists."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
