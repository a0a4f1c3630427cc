# SPDX-License-Identifier: Apache-2.0
"""The benchmark of growth measures what it says, on tables small enough for a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.harness.kept import KeptLines
from benchmarks.speed import growth
from benchmarks.speed.peers import measured


def test_every_series_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on an engine that remembers nothing of the time before; a panel for each."""
    small = {name: replace(series, base=replace(series.base, rows=300)) for name, series in growth.SERIES.items()}
    monkeypatch.setattr(growth, "SERIES", small)
    sizes = {"rows": 300, "attributes": 2, "codes": 9, "classes": 3, "depth": 2, "trees": 2}
    sizes |= {"rows counted": 300, "parts": 9}
    lines = []
    for series, size in sizes.items():
        spent = [measured(asking, 1)[0] for asking in growth.three(series, size)]
        assert len(spent) == 3
        lines.append((series, size, growth.OURS, *growth.least(spent)))
    table = pd.DataFrame(lines, columns=["series", "size", "who", "wall_seconds", "cpu_seconds"])
    growth.draw(table, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not measured again, and what a peer could not answer is not asked for more."""
    monkeypatch.delenv("PEERS_PYTHON", raising=False)
    monkeypatch.setattr(growth, "single", lambda name, whole: tmp_path / Path(name).name)
    rows = replace(growth.SERIES["rows"], sizes=(300, 400))
    monkeypatch.setattr(growth, "SERIES", growth.SERIES | {"rows": rows})
    monkeypatch.setattr(growth, "mapped_lines", list)
    begun = lines_in(tmp_path)
    begun.add(("rows", 300, growth.OURS), (7.0, 8.0))
    begun.add(("rows", 300, "LightGBM"), (growth.ENDED, growth.ENDED))
    growth.growth(400, ["rows"], lines_in(tmp_path))
    assert growth.Peers(tmp_path, lines_in(tmp_path))._last("rows", 400, "LightGBM") == growth.ENDED
    table = pd.read_csv(tmp_path / "growth.csv")
    assert table["size"].tolist() == [300, 400]
    assert table["cpu_seconds"][0] == 8.0
    again = {key: figures for key, figures in lines_in(tmp_path)}
    growth.growth(400, ["rows"], lines_in(tmp_path))
    assert dict(lines_in(tmp_path)) == again


def lines_in(folder: Path) -> KeptLines:
    """What is kept in a folder."""
    return KeptLines(folder / "kept.csv", ["series", "size", "who"], growth.FIGURES)


def test_peers_get_the_same_rows() -> None:
    """Keys of a cross are numbered over both columns; where rows are many they repeat."""
    assert np.bincount(growth.arrays("parts", 9)["keys"]).size == 9
    features = growth.arrays("attributes", 2)["features"]
    _, table = growth.of_setting(growth.SERIES["attributes"].setting(2))
    assert np.array_equal(features[:, 1], table["a1"].to_numpy())


def test_a_mapped_table_is_opened_twice_then_fitted_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process of its own would measure: seconds, and both peaks of memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("pinq.engine.sources.IN_MEMORY_BYTES", 10)  # so that it is as before afterwards
    growth.write(tmp_path / "t.parquet", 300)
    (tmp_path / "policy.json").write_text('{"rows": 300}')
    for step in ("open", "open again", "fit", "count"):
        figures = growth.child(tmp_path, step)
        assert set(figures) == {"wall_seconds", "cpu_seconds", "peak_mb", "own_mb"}
    assert len(list((tmp_path / "state").rglob("*.codes"))) == 1
