# SPDX-License-Identifier: Apache-2.0
"""The benchmark of growth measures what it says, on tables small enough for a test."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.speed import growth


def test_every_series_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on an engine that remembers nothing of the time before; a panel for each."""
    monkeypatch.setattr(growth, "ROWS", 300)
    sizes = {"rows": 300, "attributes": 2, "codes": 9, "parts": 9}
    lines = []
    for series, size in sizes.items():
        seconds = [growth.processor_seconds(asking) for asking in growth.three(series, size)]
        assert len(seconds) == 3
        lines.append((series, size, min(seconds)))
    growth.draw(pd.DataFrame(lines, columns=["series", "size", "cpu_seconds"]), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_a_mapped_table_is_opened_twice_and_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of its own would measure: seconds, and both peaks of memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("pinq.engine.raw.IN_MEMORY_BYTES", 10)  # so that it is as before afterwards
    growth.write(tmp_path / "t.parquet", 300)
    (tmp_path / "policy.json").write_text('{"rows": 300}')
    for step in ("open", "open again", "fit"):
        figures = growth.child(tmp_path, step)
        assert set(figures) == {"wall_seconds", "cpu_seconds", "peak_mb", "own_mb"}
    assert len(list((tmp_path / "state").rglob("*.codes"))) == 1
