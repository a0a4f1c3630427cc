# SPDX-License-Identifier: Apache-2.0
"""Docstrings are learned from: each public name has an example that runs, with its output."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest

import miners
import miners.statistics
import miners.tables
import pinq
import pinq_secure
from tests.support.house.checkout import ROOT

FITTED_BY_OTHERS = {"FitWarning", "Forest", "Tree", "UndeclaredValueWarning"}
MODULES = (pinq, miners, miners.statistics, miners.tables, pinq_secure)
# A server, a damaged ledger or other parties are needed to meet these.
ELSEWHERE = {
    *("EngineError", "InternalError", "LedgerError", "NotAllowed", "NotAuthorised", "TooManyRequests", "Unavailable"),
    *("connect", "Member", "Session", "load_session", "noisy_sum"),
}
EXAMPLES = [
    found
    for module in MODULES
    for name in module.__all__
    for found in doctest.DocTestFinder(recurse=False).find(getattr(module, name), name)
    if found.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_prints_what_it_says(example: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the data of the demo, from the root of a clone, with any noise."""
    monkeypatch.chdir(ROOT)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example).failed == 0


def test_every_public_name_has_an_example() -> None:
    """But for errors and sessions that need another process."""
    shown = {example.name for example in EXAMPLES}
    named = {name for module in MODULES for name in module.__all__ if callable(getattr(module, name))}
    assert named - shown == ELSEWHERE


def test_every_miner_shows_a_fit() -> None:
    """A constructor alone teaches nothing."""
    shown = {example.name: "".join(one.source for one in example.examples) for example in EXAMPLES}
    for name in set(miners.__all__) - FITTED_BY_OTHERS:
        public: Any = getattr(miners, name)
        if inspect.isclass(public) and hasattr(public, "fit"):
            assert ".fit(" in shown.get(name, "") or "cross_val_score" in shown.get(name, ""), name
