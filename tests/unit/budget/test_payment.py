# SPDX-License-Identifier: Apache-2.0
"""What a fit says while it goes on, and where it was broken off."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from miners import DiffPC45
from miners.budget import plan
from miners.trees.tree_miner import GreedyFit
from pinq.public.schema import Categorical, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(columns={name: Categorical(values=("a", "b")) for name in ("x", "y")}, max_rows=100)


def test_a_long_fit_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a terminal or a notebook; elsewhere it says nothing."""
    monkeypatch.setattr(plan, "QUIET", 0.0)
    with simulated(SCHEMA, rows=20, epsilon=10) as handle:
        DiffPC45(epsilon=1, max_depth=1).fit(handle, "y")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        DiffPC45(epsilon=2, max_depth=1).fit(handle, "y")
    assert "miners.DiffPC45.fit: 100% of the queries" in capsys.readouterr().err


def test_an_interrupt_says_what_was_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that the same call with reuse goes on."""
    with simulated(SCHEMA, rows=20, epsilon=10) as handle:

        def interrupted(*_: Any) -> Any:
            handle.noisy_count(epsilon=0.25)
            raise KeyboardInterrupt

        monkeypatch.setattr(GreedyFit, "learn", interrupted)
        with pytest.raises(KeyboardInterrupt) as raised:
            DiffPC45(epsilon=1, max_depth=1).fit(handle, "y")
    (note,) = raised.value.__notes__
    assert note.startswith("The answers so far have cost epsilon 0.25.")
    assert "reuse=True" in note
