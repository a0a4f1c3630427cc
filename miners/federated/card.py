# SPDX-License-Identifier: Apache-2.0
"""``Card`` says how a model of several holders was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from miners.budget.plan import loss_text
from miners.federated.source import Dropped
from miners.trees.strategy import many
from pinq.errors import QueryError

__all__ = ["Card"]


@dataclass(frozen=True)
class Card:
    """What a reader of the model should know of how it was made.

    Attributes:
        strategy: How splits were found.
        spent: What each holder's own ledger has charged while the fit went on, for something else
            under the same grant too; None where it did not say.
        dropped: Who was left behind, after how many rounds, and why. The counts of the tree are
            those of the others.
        rounds: How often the coordinator waited for answers.
        requests: How many requests each holder was sent.
        model: What was made.
    """

    strategy: str
    spent: Mapping[str, Fraction | None]
    dropped: tuple[Dropped, ...]
    rounds: int
    requests: Mapping[str, int]
    model: str = "Tree"

    def __repr__(self) -> str:
        holders, rounds = many(len(self.spent), "holder"), many(self.rounds, "round")
        lines = [f"{self.model} of {holders}, strategy {self.strategy!r}, {rounds}"]
        for name, spent in self.spent.items():
            charged = "does not say what it charged" if spent is None else f"spent {loss_text(spent)}"
            lines.append(f"  {name}: {charged}, {many(self.requests[name], 'request')}")
        return "\n".join([*lines, *(f"  {dropped}" for dropped in self.dropped)])

    def to_dict(self) -> dict[str, object]:
        """Returns the card as JSON has it."""
        return {
            "strategy": self.strategy,
            "spent": {name: None if spent is None else loss_text(spent) for name, spent in self.spent.items()},
            "dropped": [[dropped.holder, dropped.after, dropped.reason] for dropped in self.dropped],
            "rounds": self.rounds,
            "requests": dict(self.requests),
        }

    @classmethod
    def from_dict(cls, stored: Any, *, model: str = "Tree", of: str = "`card` of a stored DPTopDown") -> Card:
        """Reads what ``to_dict`` made. ``QueryError`` where it is something else.

        Args:
            stored: As JSON has it.
            model: What was made.
            of: Of what it is, for the error.
        """
        try:
            spent = {str(name): None if text is None else Fraction(text) for name, text in stored["spent"].items()}
            dropped = tuple(
                Dropped(str(holder), int(after), str(reason)) for holder, after, reason in stored["dropped"]
            )
            requests = {name: int(stored["requests"][name]) for name in spent}
            return cls(str(stored["strategy"]), spent, dropped, int(stored["rounds"]), requests, model)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise QueryError(f"{of} is not what `to_json` writes.") from None
