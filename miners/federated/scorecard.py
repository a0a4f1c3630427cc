# SPDX-License-Identifier: Apache-2.0
"""Scorecards from several data holders, each behind its own layer and ledger."""

from __future__ import annotations

from dataclasses import dataclass

from miners.federated.card_miner import CardStrategyName, HoldersCardMiner
from miners.scorecards.scorecard import Scorecard, ScorecardRegressor

__all__ = ["CardStrategyName", "DPScorecard", "DPScorecardRegressor"]


@dataclass(kw_only=True, repr=False, eq=False)
class DPScorecard(HoldersCardMiner, Scorecard):
    """A scorecard for classes from several data holders' tables.

    A coordinator that none of them needs to trust learns it. ``fit`` takes a ``Federation`` of
    handles, parties that add up under secret sharing, or one handle. The holders hold disjoint
    people, so the fit costs ``epsilon`` at each of them, in the terms of its own policy.

    Args:
        epsilon: What ``fit`` costs at each holder.
        strategy: How attributes are chosen. ``"turns"``: each step's attribute is chosen by one
            holder, in turns, and all holders sum the gradients of its cells, each with noise of its
            own. The others ask for counts and sums alone, and take attributes in the order that
            noisy tables of classes give: ``"noisy_counts"`` of handles; ``"secure"``, with one
            noise for all, of parties that add up under secret sharing, a
            ``miners.secure.SecureFederation``.
        steps: How many attributes are mended, 0 to 200; None for as many as public facts let
            expect to be of use.
        attributes: Columns to look at; None for all but the target.
        cuts: Cut points for numeric attributes; see ``Scorecard``.
        resume: Take answers to the same questions that were paid for before. A fit that was broken
            off is repeated so and pays only for what is new.

    Attributes:
        card_: The fitted scorecard.
        holders_: Who took part, what it cost there, who was dropped.
        classes_: The declared values of the target, shape (classes,).
        feature_importances_: How much each column says, shares of 1.
        schema_: The public columns under which it was learned.
        cost_: The largest of what the holders charged, exact: ``epsilon`` unless some of it had
            been paid for before. Who does not say counts as ``epsilon``.

    Privacy:
        Adjacency: at each holder its policy's. Claim: ``fit`` is ``epsilon``-DP at each holder, in
        its own policy's terms, whatever the coordinator and the other holders do.
        Why: what a holder is asked adds up to ``epsilon`` (``miners.federated.card_asking``); its
        ledger charges and enforces just that. A person is one holder's only, so nothing adds up
        over holders. Of parties that add up, only noisy sums are opened
        (``miners.secure.sums.together``).
        Exact: nano-epsilons. Held by: tests/unit/federated/test_holders_scorecard.py,
        tests/contract/test_every_miner.py.

    References:
        See ``Scorecard``; Wang, Dick & Balcan 2020 for strategies among holders.

    Examples:
        >>> DPScorecard(epsilon=0.5, strategy="secure")
        DPScorecard(epsilon=0.5, strategy='secure')
    """

    strategy: CardStrategyName = "turns"
    resume: bool = False
    _other = "DPScorecardRegressor"


@dataclass(kw_only=True, repr=False, eq=False)
class DPScorecardRegressor(HoldersCardMiner, ScorecardRegressor):
    """A scorecard for the mean of a numeric column, from several data holders' tables.

    ``fit`` asks whom ``DPScorecard`` asks, for sums of clamped residuals in place of gradients.

    Args:
        epsilon: What ``fit`` costs at each holder.
        strategy: How attributes are chosen; see ``DPScorecard``. Where nobody chooses, the order
            follows from noisy tables of the target's two halves.
        steps: How many attributes are mended, 0 to 200; None for as many as public facts let
            expect to be of use.
        attributes: Columns to look at; None for all but the target.
        cuts: Cut points for numeric attributes; see ``Scorecard``.
        resume: Take answers to the same questions that were paid for before.

    Attributes:
        card_: The fitted scorecard.
        holders_: Who took part, what it cost there, who was dropped.
        feature_importances_: How much each column says, shares of 1.
        schema_: The public columns under which it was learned.
        cost_: The largest of what the holders charged, exact; see ``DPScorecard``.

    Privacy:
        Adjacency: at each holder its policy's. Claim: ``fit`` is ``epsilon``-DP at each holder, in
        its own policy's terms, whatever the coordinator and the other holders do.
        Why: as for ``DPScorecard``: the questions are of the same kinds, at shares that add up to
        ``epsilon``. A residual is clamped to a bound that follows from the noisy histogram of all
        holders; it and the row's count are two bins that cost that bound together (privacy.md 8.5).
        Of parties that add up, units follow from that bound, so a row moves as many as
        ``miners.secure.sums.additions`` says.
        Exact: nano-epsilons. Held by: tests/unit/federated/test_holders_scorecard.py,
        tests/unit/secure/test_secure_scorecard.py, tests/contract/test_every_miner.py.

    References:
        See ``DPScorecard``.

    Examples:
        >>> DPScorecardRegressor(epsilon=0.5, strategy="secure")
        DPScorecardRegressor(epsilon=0.5, strategy='secure')
    """

    strategy: CardStrategyName = "turns"
    resume: bool = False
    _other = "DPScorecard"
