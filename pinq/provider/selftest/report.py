# SPDX-License-Identifier: Apache-2.0
"""What the test of an installed system saw, as values, JSON and one HTML page.

Every number here is of made-up tables: the report may be shown to anybody.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pinq.provider.report.html import document, table
from pinq.provider.report.markup import Html, element, joined

__all__ = ["CANNOT", "EVALUATED", "Canary", "Check", "Finding", "Law", "Report", "Result"]

CANNOT = (
    "A lower bound refutes a claim or fails to; it never proves one. The proofs are in docs/privacy.md.",
    "Only these neighbouring tables were tried. They are the worst that are known of each question.",
    "A fault that shows with a probability below about one in ten thousand draws is not seen.",
    "Canaries bound what one fit gave away to one guesser; of grouped and averaged models they see little.",
    "Nothing here measures times, memory or what the machine's other users may see; docs/threat-model.md has them.",
)
EVALUATED = (
    ("Privacy parameter: is the loss as claimed?", "lower bounds of every verb and score, laws of the noise"),
    ("Privacy unit: rows, persons, both senses of neighbour", "claims on a replaced row and on a person's rows"),
    ("Correct implementation: sensitivity, noise, selection, floating point", "lower bounds and chi-square laws"),
    ("Composition: do the charges add up?", "each ledger's total against what was asked, its chain verified"),
    ("Errors and refusals as a channel", "they count as outcomes of a question"),
    ("Data mining on top", "canaries in one fit of each miner"),
    ("Trust model, access, side channels, data at rest", "not by this test: see the threat model"),
)


class _Bounded:
    """A loss that is bounded from below."""

    epsilon: float
    bound: float
    weaker: float | None

    @property
    def holds(self) -> bool:
        """Whether the claim is not refuted."""
        return self.bound <= self.epsilon

    @property
    def sharp(self) -> bool:
        """Whether the smaller noise would have been seen."""
        return self.weaker is not None and self.weaker > self.epsilon


@dataclass(frozen=True)
class Finding(_Bounded):
    """How much a question lost, at least.

    Attributes:
        name: What was asked.
        neighbours: In which sense the two tables are neighbours.
        epsilon: What was claimed.
        draws: From each table.
        bound: The loss is above this but for a chance of one in a million.
        weaker: The bound where noise is 15 % too small; None where it was not tried.
    """

    name: str
    neighbours: str
    epsilon: float
    draws: int
    bound: float
    weaker: float | None = None


@dataclass(frozen=True)
class Law:
    """Whether draws follow the law that they must follow exactly.

    Attributes:
        name: Of what.
        draws: How many.
        chance: Of draws at least as far from the law, by chi-square.
    """

    name: str
    draws: int
    chance: float

    @property
    def holds(self) -> bool:
        """Whether the law is not refuted, at one in a million."""
        return self.chance > 1e-6


@dataclass(frozen=True)
class Canary(_Bounded):
    """How often the presence of single rows was guessed from one fitted model.

    Attributes:
        name: The miner.
        epsilon: What the fit cost.
        guesses, right: How many, and how many of them were right.
        bound: The loss is above this but for a chance of one in a million.
        weaker: The bound of a fit at ten times epsilon: noise ten times too small.
    """

    name: str
    epsilon: float
    guesses: int
    right: int
    bound: float
    weaker: float


@dataclass(frozen=True)
class Check:
    """Something that either holds or does not: a ledger, a policy."""

    name: str
    holds: bool
    detail: str = ""


Result = Finding | Law | Canary | Check


@dataclass(frozen=True)
class Report:
    """What the whole test saw.

    Attributes:
        version: Of the package.
        at: When it began, UTC.
        seconds: How long it took.
        through: ``in this process`` or ``through a server``.
        findings, laws, canaries, checks: What was measured.
        left_out: What was not done: for want of time, or of a ledger.
    """

    version: str
    at: str
    seconds: float
    through: str
    findings: tuple[Finding, ...] = ()
    laws: tuple[Law, ...] = ()
    canaries: tuple[Canary, ...] = ()
    checks: tuple[Check, ...] = ()
    left_out: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether nothing was refuted."""
        results: list[Result] = [*self.findings, *self.laws, *self.canaries, *self.checks]
        return all(result.holds for result in results)

    @property
    def power(self) -> str:
        """How many faults the test would have seen, as a sentence."""
        questions, miners = (
            f"{sum(each.sharp for each in tried)} of {len(tried)}" for tried in (self.findings, self.canaries)
        )
        return f"Noise 15 % too small would have been seen in {questions} questions, a tenth of it in {miners} miners."

    def __repr__(self) -> str:
        verdict = "nothing refuted" if self.holds else "REFUTED"
        return f"Report({verdict}: {len(self.findings)} claims, {len(self.laws)} laws, {len(self.canaries)} miners)"

    def to_json(self) -> str:
        """Returns everything as JSON, with the verdicts."""
        return json.dumps(asdict(self) | {"holds": self.holds, "power": self.power, "cannot_show": CANNOT}, indent=1)

    def tables(self) -> list[tuple[str, Sequence[str], list[list[str]]]]:
        """Returns titles, heads and rows of texts, for a terminal and for a page."""
        claims = [
            [each.name, each.neighbours, f"{each.epsilon:g}", f"{each.draws:,}", f"{each.bound:.3f}", *_seen(each)]
            for each in self.findings
        ]
        laws = [[each.name, f"{each.draws:,}", f"{each.chance:.3g}", _verdict(each.holds)] for each in self.laws]
        canaries = [
            [each.name, f"{each.epsilon:g}", f"{each.right:,} of {each.guesses:,}", f"{each.bound:.3f}", *_seen(each)]
            for each in self.canaries
        ]
        checks = [[each.name, each.detail, _verdict(each.holds)] for each in self.checks]
        return [
            (
                "Loss of each question, from below",
                ("question", "neighbours", "claimed >", "draws >", "at least >", "15 % less noise >", "verdict"),
                claims,
            ),
            ("Exact laws", ("of", "draws >", "chance >", "verdict"), laws),
            (
                "Rows guessed from one fitted model",
                ("miner", "claimed >", "right >", "at least >", "a tenth of the noise >", "verdict"),
                canaries,
            ),
            ("Ledgers and policy", ("what", "detail", "verdict"), checks),
        ]

    def to_html(self) -> str:
        """Returns one self-contained page."""
        title = "Self-test of pinq"
        head = f"pinq {self.version}, {self.at} UTC, {self.through}, {self.seconds / 60:.1f} minutes"
        verdict = "Nothing was refuted." if self.holds else "A claim was refuted: do not release answers."
        pieces = [
            element("h1", title),
            element("p", head),
            element("p", element("b", verdict), " ", self.power),
            *(table(*shown, "") for shown in self.tables() if shown[2]),
            *([element("p", "Not done: ", "; ".join(self.left_out), ".")] if self.left_out else []),
            table(
                "What is evaluated",
                ("question ~", "here ~"),
                EVALUATED,
                "",
                "By the questions that NIST SP 800-226 asks of a guarantee of differential privacy.",
            ),
            element("h2", "What this cannot show"),
            element("ul", *(element("li", text) for text in CANNOT)),
        ]
        return document(title, joined(pieces, Html("\n")))


def _seen(result: Finding | Canary) -> list[str]:
    weaker = "" if result.weaker is None else f"{result.weaker:.3f}, {'seen' if result.sharp else 'not seen'}"
    return [weaker, _verdict(result.holds)]


def _verdict(holds: bool) -> str:
    return "holds" if holds else "REFUTED"
