# SPDX-License-Identifier: Apache-2.0
"""Long work of several callers, side by side in threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pinq.engine import arrays


def test_a_long_list_of_work_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads get a few items at a time: while the first is done, most of a hundred have not been asked for."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    asked, seen = list[int](), list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    def work(number: int) -> int:
        if not number:
            seen.append(len(asked))
        return 2 * number

    assert arrays.side_by_side(work, items()) == list(range(0, 200, 2))
    assert 2 <= seen[0] <= 1 + arrays.AHEAD * arrays.thread_count()


def test_what_waits_is_not_begun_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the first item that fails is the caller's, and of a hundred few were begun."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begun = list[int]()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        arrays.side_by_side(work, range(100))
    assert len(begun) <= 4 + arrays.AHEAD * arrays.thread_count()
