# SPDX-License-Identifier: Apache-2.0
"""Noise that is too small, for tests that must notice it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pinq.curator.mechanisms
from tests.support.laws.laws import WEAK


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes all noise 30 % too small: the scale of noise and of noisy max, and the span of the weighted choice."""
    right_scale, right_choice = pinq.curator.mechanisms.scale_of, pinq.curator.mechanisms.choose_weighted

    def weaken() -> None:
        monkeypatch.setattr(
            pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: right_scale(sensitivity, epsilon / WEAK)
        )
        monkeypatch.setattr(
            "pinq.curator.candidates.selection.choose_weighted",
            lambda candidates, span, epsilon, *whole: right_choice(candidates, span, epsilon / WEAK, *whole),
        )

    return weaken
