# SPDX-License-Identifier: Apache-2.0
"""Long work, side by side in threads."""

from __future__ import annotations

import threading

import pytest

from pinq.engine import arrays


def test_what_waits_is_not_begun_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results come in the order of the items; the error of the first item that fails is the caller's, and ends the rest."""
    monkeypatch.setattr(arrays, "THREADS", 2)
    failed, begun = threading.Event(), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            raise TimeoutError
        failed.wait(0.1)
        return 2 * number

    assert arrays.side_by_side(lambda number: 2 * number, range(100)) == list(range(0, 200, 2))
    with pytest.raises(TimeoutError):
        arrays.side_by_side(work, range(100))
    failed.set()
    assert len(begun) < 100
