# SPDX-License-Identifier: Apache-2.0
"""The growth of the time of fits and counts with rows, attributes, codes, classes, depth, trees and parts, one by one.

``python -m benchmarks.speed.growth`` writes CSVs and a picture into ``benchmarks/results/growth``. Each figure is of
the least of three calls, processor seconds of all threads and wall seconds, so that other work on the machine hardly
counts. Other libraries do the same in the same run on the same rows, if ``PEERS_PYTHON`` names an interpreter that has
them: private libraries count, or grow trees with random splits; the others grow trees. After more than LIMIT processor
seconds a library gets no larger table. Each line is kept below build as soon as it is measured, so a run that was
stopped, or a run of some series (``--series``), continues; ``--again`` measures all again. ``--mapped 100000000``
instead measures, in separate processes, a table whose codes are mapped from a file: two openings, a count and a fit,
with the peak of memory. The picture has the last of these figures too.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

import pinq
from benchmarks.harness.kept import KeptLines
from benchmarks.harness.publish import RESULTS, ROOT, single
from benchmarks.papers.diprime.baselines import DPExtraTrees
from benchmarks.speed.layer import forget, handle_over
from benchmarks.speed.peers import HISTOGRAMS, TREES, measured
from miners import DiffPC45
from pinq.engine import ArrayEngine, open_engine, sources
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy

ROWS = 1_000_000
CHUNK = 5_000_000
IN_MEMORY = 10_000_000  # rows; tables of more are mapped
LIMIT = 5.0  # processor seconds, after which a peer is not asked for more
QUICK = 2.0  # so long as a call takes less, the next one is timed three times
TARGET = "y"
OURS, OURS_MAPPED = "ours", "ours, mapped"
PEERS = Path(__file__).with_name("peers.py")
LABELS = {name: f"{name}, not private" for name in ("scikit-learn", "LightGBM")}
MAPPED_SERIES = {"fit": "rows", "count": "rows counted"}
STEPS = ("open", "open again", "fit", "count")
FIGURES = ("wall_seconds", "cpu_seconds")
STEP_FIGURES = (*FIGURES, "peak_mb", "own_mb")
ENDED = float("inf")  # what a peer took that ended without an answer
KEPT = ROOT / "build" / "growth"


@dataclass(frozen=True)
class Setting:
    """A measured setting: a table, and the trees that are grown on it.

    Attributes:
        rows: The rows of the table.
        attributes: Their number.
        codes: The codes of each attribute.
        classes: The classes of the target.
        depth: The depth of each tree.
        trees: The trees of a forest; 0 for a single tree.
    """

    rows: int = ROWS
    attributes: int = 10
    codes: int = 64
    classes: int = 2
    depth: int = 5
    trees: int = 0


@dataclass(frozen=True)
class Series:
    """A series of settings in which one number grows.

    Attributes:
        label: The text above its panel.
        sizes: The values of the number.
        peers: The names of the compared libraries.
        grows: The name of the growing number.
        base: All other numbers.
    """

    label: str
    sizes: tuple[int, ...]
    peers: Sequence[str]
    grows: str
    base: Setting = field(default_factory=Setting)

    @property
    def counts(self) -> bool:
        """Whether parts are counted; else trees grow."""
        return self.peers == tuple(HISTOGRAMS)

    def setting(self, size: int) -> Setting:
        """The setting of this size; so many parts are those of two columns."""
        grown = max(1, round(size**0.5)) if self.counts and self.grows == "codes" else size
        return replace(self.base, **{self.grows: grown})


MANY = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
CODES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
SERIES = {
    "rows": Series("tree: rows, 10 attributes of 64 codes", MANY, tuple(TREES), "rows"),
    "attributes": Series("tree: attributes of 64 codes", (2, 4, 8, 16, 32), tuple(TREES), "attributes"),
    "codes": Series("tree: codes of each of 4 attributes", CODES, tuple(TREES), "codes", Setting(attributes=4)),
    "classes": Series("tree: classes", (2, 4, 8, 16, 32), tuple(TREES), "classes"),
    "depth": Series("tree: depth", (1, 2, 4, 6, 8, 10), tuple(TREES), "depth"),
    "trees": Series("forest: trees of depth 5", (1, 4, 16, 64, 256), tuple(TREES), "trees"),
    "rows counted": Series("count: rows, 64 parts", MANY, tuple(HISTOGRAMS), "rows"),
    "parts": Series(
        "count: parts", (1, 9, 100, 1_024, 10_000, 99_856, 499_849), tuple(HISTOGRAMS), "codes", Setting(attributes=2)
    ),
}


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=IN_MEMORY, help="the largest table; up to 100,000,000 for peers")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES), help="which of them to measure")
    parser.add_argument("--again", action="store_true", help="forget lines that were measured before")
    parser.add_argument("--mapped", type=int, help="rows of a table that is mapped from a file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        json.dump(child(Path(asked.child[0]), asked.child[1]), sys.stdout)
    elif asked.mapped:
        mapped(asked.mapped, KeptLines(KEPT / "mapped.csv", ["rows", "step"], STEP_FIGURES, again=asked.again))
    else:
        kept = KeptLines(KEPT / "growth.csv", ["series", "size", "who"], FIGURES, again=asked.again)
        growth(asked.rows, asked.series, kept)


def growth(most: int, names: Sequence[str], kept: KeptLines) -> None:
    """Measures what is not kept of some series, and draws what is."""
    with tempfile.TemporaryDirectory(prefix="pinq-growth-") as folder:
        peers = Peers(Path(folder), kept)
        for name in names:
            for size in SERIES[name].sizes:
                if SERIES[name].setting(size).rows <= most:
                    own(name, size, kept)
                    peers.measure(name, size)
    lines = [(name, int(size), who, wall, cpu) for (name, size, who), (wall, cpu) in kept if cpu < ENDED]
    ranks = {name: rank for rank, name in enumerate(SERIES)}
    lines = sorted([*mapped_lines(), *lines], key=lambda line: (ranks[line[0]], line[1]))
    table = pd.DataFrame(lines, columns=["series", "size", "who", *FIGURES])
    page = single("growth/growth.csv", whole=is_whole(kept))
    table.to_csv(page, index=False)
    draw(table, page.with_suffix(".png"))


def is_whole(kept: KeptLines) -> bool:
    """Whether every table that fits into memory is measured, and every peer has been asked."""
    for name, series in SERIES.items():
        lines = [(name, str(size), OURS) for size in series.sizes if series.setting(size).rows <= IN_MEMORY]
        lines += [(name, str(series.sizes[0]), who) for who in series.peers]
        if not all(line in kept for line in lines):
            return False
    return True


def own(name: str, size: int, kept: KeptLines) -> None:
    """Measures ours, unless it is kept or the table does not fit into memory."""
    if SERIES[name].setting(size).rows <= IN_MEMORY and (name, str(size), OURS) not in kept:
        keep(kept, (name, size, OURS), least([measured(ask, 1)[0] for ask in three(name, size)]))


def keep(kept: KeptLines, key: tuple[str, int, str], spent: tuple[float, float]) -> None:
    """Keeps a line and prints it."""
    wall, cpu = spent
    kept.add(key, (round(wall, 4), round(cpu, 4)))
    name, size, who = key
    print(f"{name:14s}{size:>12,} {who:18s}{cpu:10.3f} CPU s{wall:10.3f} s", flush=True)


def least(spent: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the least wall and the least processor seconds of some calls."""
    wall, cpu = zip(*spent, strict=True)
    return min(wall), min(cpu)


def three(name: str, size: int) -> Iterator[Callable[[], object]]:
    """Yields what is timed three times, each on an engine that remembers nothing."""
    series = SERIES[name]
    policy, table = of_setting(series.setting(size))
    engine, _ = open_engine(policy, data=table, salt=b"growth")
    assert isinstance(engine, ArrayEngine)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            handle = handle_over(policy, engine, Ledger(Path(folder) / f"{number}.ledger", policy.dataset))
            forget(engine)
            yield asking(handle, name, size)
    engine.close()


def asking(handle: pinq.PrivateQueryable, name: str, size: int) -> Callable[[], object]:
    """Returns a fit, or a count of parts: of a column's values, or of a cross of two columns'."""
    setting = SERIES[name].setting(size)
    if setting.trees:
        forest = DPExtraTrees(epsilon=1.0, max_depth=setting.depth, n_estimators=setting.trees, random_state=0)
        return partial(forest.fit, handle, TARGET)
    if not SERIES[name].counts:
        return partial(DiffPC45(epsilon=1.0, max_depth=setting.depth).fit, handle, TARGET)
    values = [pinq.Values("a0"), pinq.Values("a1")]
    parts = handle.partition(values[0] if name == "rows counted" else pinq.Cross(tuple(values)))
    asked = handle if name == "parts" and size == 1 else parts
    return lambda: asked.noisy_count(epsilon=1.0)


class Peers:
    """The other libraries, each asked for more as long as it is quick enough.

    Args:
        folder: The folder for their tables.
        kept: Lines that are measured.
    """

    def __init__(self, folder: Path, kept: KeptLines) -> None:
        self._python, self._folder, self._kept = os.environ.get("PEERS_PYTHON"), folder, kept

    def measure(self, name: str, size: int) -> None:
        """Measures who is not kept for a table of a series, those that were quick enough so far."""
        missing = [who for who in SERIES[name].peers if (name, str(size), who) not in self._kept]
        asked = [who for who in missing if self._last(name, size, who) <= LIMIT]
        if not asked or self._python is None:
            return
        path = self._folder / "rows.npz"
        rows: dict[str, Any] = arrays(name, size)
        np.savez(path, **rows)
        for who in asked:
            rounds = "3" if self._last(name, size, who) < QUICK else "1"
            command = [self._python, str(PEERS), who, rounds, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            spent = json.loads(done.stdout or '"ended"')
            if isinstance(spent, str):
                print(f"{name:14s}{size:>12,} {who:18s}{spent}", flush=True)
                self._kept.add((name, size, who), (ENDED, ENDED))
            else:
                keep(self._kept, (name, size, who), least(spent))

    def _last(self, name: str, size: int, who: str) -> float:
        """Processor seconds that it took for the largest smaller table, 0 for none."""
        keys = [(name, str(smaller), who) for smaller in SERIES[name].sizes if smaller < size]
        return next((self._kept[key][1] for key in reversed(keys) if key in self._kept), 0.0)


def arrays(name: str, size: int) -> dict[str, np.ndarray]:
    """The inputs of a library: keys and their number, or features and classes."""
    series, setting = SERIES[name], SERIES[name].setting(size)
    _, table = of_setting(replace(setting, rows=min(setting.rows, IN_MEMORY)))
    columns = [
        np.tile(table[f"a{number}"].to_numpy(), -(-setting.rows // IN_MEMORY)) for number in range(setting.attributes)
    ]
    if not series.counts:
        classes = np.resize(table[TARGET].to_numpy(), setting.rows)
        trees = {"depth": np.array(setting.depth), "trees": np.array(setting.trees)}
        return {"features": np.column_stack(columns), "classes": classes, **trees}
    if name == "rows counted":
        return {"keys": columns[0], "size": np.array(setting.codes)}
    keys = columns[0].astype(np.int64) * setting.codes + columns[1]
    return {"keys": keys, "size": np.array(size)}


def of_setting(setting: Setting) -> tuple[Policy, pa.Table]:
    """Makes up the table of a setting."""
    return made_up(setting.rows, setting.attributes, setting.codes, classes=setting.classes)


def made_up(rows: int, attributes: int, codes: int, seed: int = 0, *, classes: int = 2) -> tuple[Policy, pa.Table]:
    """Makes up numeric attributes of so many cells, and a target whose classes lean on the first two."""
    random = np.random.default_rng(seed)
    kind = np.min_scalar_type(codes - 1)
    columns = {f"a{number}": random.integers(0, codes, rows, dtype=kind) for number in range(attributes)}
    lean = (columns["a0"] / codes + columns["a1"] / codes) / 2
    # Of two classes the second with the probability of the lean; of more, as many steps up of so many coins.
    columns[TARGET] = np.zeros(rows, dtype=np.uint8)
    for _ in range(classes - 1):
        columns[TARGET] += random.random(rows) < lean
    return policy_of(rows, attributes, codes, classes), pa.table(columns)


def policy_of(rows: int, attributes: int, codes: int, classes: int = 2) -> Policy:
    """The policy of such a table."""
    numeric = {"type": "numeric", "lower": 0, "upper": max(1, codes - 1), "integer": True}
    columns = {f"a{number}": numeric for number in range(attributes)}
    return Policy(
        dataset="growth",
        cap=10**6,
        max_rows=2 * rows,
        columns=columns | {TARGET: {"type": "categorical", "values": list(range(classes))}},
    )


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draws a panel for each series, both axes logarithmic, with a line for each library."""
    fig, panels = plt.subplots(2, len(SERIES) // 2, figsize=(16, 7.4), layout="constrained")
    names = list(dict.fromkeys(table["who"]))
    colours = dict(zip([OURS, *TREES, *HISTOGRAMS], plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
    colours[OURS_MAPPED] = colours[OURS]
    for axes, (name, series) in zip(panels.ravel(), SERIES.items(), strict=True):
        for who in names:
            own = table[(table["series"] == name) & (table["who"] == who)]
            width, style = (2.5 if who.startswith(OURS) else 1.2), (":" if who == OURS_MAPPED else "-")
            axes.plot(
                own["size"], own["cpu_seconds"], style, marker="o", markersize=4, linewidth=width, color=colours[who]
            )
        if (table["series"] == name).any():
            axes.set(xscale="log", yscale="log")
        axes.set_title(series.label, fontsize=9)
        axes.xaxis.set_minor_formatter(NullFormatter())
        if series.sizes[-1] < MANY[0]:
            axes.set_xticks(series.sizes, [str(size) for size in series.sizes])
        axes.grid(alpha=0.25)
    for axes in panels[:, 0]:
        axes.set_ylabel("processor seconds")
    lines = [
        Line2D([], [], color=colours[who], marker="o", markersize=4, linestyle=":" if who == OURS_MAPPED else "-")
        for who in names
    ]
    fig.legend(lines, [LABELS.get(who, who) for who in names], loc="outside lower center", ncols=len(names), fontsize=9)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def mapped_lines() -> list[tuple[str, int, str, float, float]]:
    """Returns the lines of tables that were mapped from a file, as they were measured last."""
    path = RESULTS / "growth" / "mapped.csv"
    steps = csv.DictReader(path.read_text().splitlines() if path.exists() else [])
    return [
        (
            MAPPED_SERIES[step["step"]],
            int(step["rows"]),
            OURS_MAPPED,
            float(step["wall_seconds"]),
            float(step["cpu_seconds"]),
        )
        for step in steps
        if step["step"] in MAPPED_SERIES
    ]


def mapped(rows: int, kept: KeptLines) -> None:
    """Measures a table of so many rows in a file, and one of a tenth of the rows, unless they are kept."""
    sizes = (rows // 10, rows)
    for size in sizes:
        if not all((str(size), step) in kept for step in STEPS):
            with tempfile.TemporaryDirectory(prefix="pinq-growth-") as folder:
                measure_steps(size, Path(folder), kept)
    lines = [(size, step, *kept[str(size), step]) for size in sizes for step in STEPS]
    page = single("growth/mapped.csv", whole=rows >= MANY[-1])
    pd.DataFrame(lines, columns=["rows", "step", *STEP_FIGURES]).to_csv(page, index=False)


def measure_steps(size: int, own_folder: Path, kept: KeptLines) -> None:
    """Measures each step with a table of so many rows, in a process of its own."""
    write(own_folder / "t.parquet", size)
    (own_folder / "policy.json").write_text(json.dumps({"rows": size}))
    for step in STEPS:
        environment = os.environ | {"XDG_STATE_HOME": str(own_folder / "state")}
        command = [sys.executable, "-m", "benchmarks.speed.growth", "--child", str(own_folder), step]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        figures = json.loads(done.stdout)
        print(f"{size:>13,} rows  {step:10s}", figures, flush=True)
        kept.add((size, step), [figures[name] for name in STEP_FIGURES])


def write(path: Path, rows: int) -> None:
    """Writes a made-up table, whose rows repeat after some millions."""
    _, chunk = made_up(min(CHUNK, rows), 10, 64)
    with pq.ParquetWriter(path, chunk.schema) as writer:
        for start in range(0, rows, CHUNK):
            writer.write_table(chunk.slice(0, min(CHUNK, rows - start)))


def watch(own: list[int]) -> None:
    """Notes the megabytes that are this process's own and no page of a mapped file, ten times a second."""
    while True:
        status = Path("/proc/self/status").read_text()
        own.append(int(status.partition("RssAnon:")[2].split()[0]) // 1024)
        time.sleep(0.1)


def child(own_folder: Path, step: str) -> dict[str, float]:
    """Opens a table; for the last steps also fits a tree, or counts.

    Returns:
        Seconds of the step, the peak of resident memory with pages of mapped files, and without.
    """
    rows = json.loads((own_folder / "policy.json").read_text())["rows"]
    policy = policy_of(rows, 10, 64).model_copy(
        update={"source": "t.parquet", "folder": own_folder, "memory_limit": "1GB"}
    )
    sources.IN_MEMORY_BYTES = 0  # a small table too is mapped
    own = [0]  # a step that takes less than the first look leaves 0
    threading.Thread(target=watch, args=(own,), daemon=True).start()
    opened = list[ArrayEngine]()
    ((wall, cpu),) = measured(lambda: opened.append(_mapped_engine(policy)), 1)
    if step in MAPPED_SERIES:
        with tempfile.TemporaryDirectory() as folder:
            handle = handle_over(policy, opened[0], Ledger(Path(folder) / "l.ledger", policy.dataset))
            ((wall, cpu),) = measured(asking(handle, MAPPED_SERIES[step], rows), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"wall_seconds": round(wall, 3), "cpu_seconds": round(cpu, 3), "peak_mb": peak, "own_mb": max(own)}


def _mapped_engine(policy: Policy) -> ArrayEngine:
    engine, _ = open_engine(policy, salt=b"growth")
    assert isinstance(engine, ArrayEngine)
    return engine


if __name__ == "__main__":
    main()
