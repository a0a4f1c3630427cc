# SPDX-License-Identifier: Apache-2.0
"""Where results come from: which commit measured them, with which versions; ``python -m benchmarks.harness.origin``.

Each cell of a store has the key of its origin, and each folder of results a file ``origins.csv``: a line for
each experiment and origin, with the number of cells. The commit is the newest one of the main line below the
tree that measured, since a branch's own commits get other names when they land; a plus sign follows where the
tree's code differed from it. The command lists the experiments whose code has moved since: how many commits, and
how many lines of the packages and of the experiment they changed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pandas as pd

from benchmarks.harness.publish import RESULTS, ROOT
from benchmarks.harness.tables import markdown

__all__ = ["ORIGINS", "commit_of", "main", "moved", "origin", "write_origins"]

ORIGINS = "origins.csv"
PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "opendp", "duckdb", "gmpy2")
CODE = ("pinq", "miners", "benchmarks/harness")
CHANGED = "+"  # behind the commit of a tree that differs from it
AT_MOST = "≤ "  # before the commit that brought results of which no origin is noted


@cache
def origin() -> str:
    """Returns the commit of this tree, and the versions of Python and of the packages, as one text."""
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES if _installed(name)]
    return "; ".join([commit_of(), f"Python {platform.python_version()}", *versions])


def commit_of() -> str:
    """Returns the newest commit of the main line below this tree; a plus sign follows where the code differs from it.

    Where there is no main line, it is the tree's own commit.
    """
    commit = _git("merge-base", "HEAD", "main") or _git("rev-parse", "HEAD")
    changed = commit and _git("diff", "--name-only", commit, "--", *CODE, "benchmarks/papers")
    return commit[:12] + (CHANGED if changed else "")


def write_origins(cells: pd.DataFrame, folder: Path, keys: Sequence[str] = ()) -> None:
    """Writes which origins the cells of each experiment have, most cells first.

    Lines stay that are published of experiments, or of some of their algorithms, without cells. One of ``keys``
    that is published without a line gets the commit of its table.
    """
    table = cells.groupby(["figure", "origin"]).size().rename("cells").reset_index()
    whole = [key for key, own in cells.groupby("figure") if _algorithms(folder, key) <= set(own["algorithm"])]
    published = pd.read_csv(folder / ORIGINS) if (folder / ORIGINS).exists() else table.iloc[:0]
    known = {*whole, *published["figure"]}
    older = [(key, _at_most(_tables(folder, key, keys)), 0) for key in keys if key not in known]
    undated = pd.DataFrame([line for line in older if line[1] != AT_MOST], columns=table.columns)
    table = pd.concat([table, published[~published["figure"].isin(whole)], undated])
    table = table.drop_duplicates(["figure", "origin"])
    table = table.sort_values(["figure", "cells"], ascending=[True, False])
    table.to_csv(folder / ORIGINS, index=False, lineterminator="\n")


def _tables(folder: Path, key: str, keys: Sequence[str]) -> list[Path]:
    """Returns the table of an experiment; where no experiment has one of its own, all tables of the folder."""
    own = any((folder / f"{other}.csv").exists() for other in keys)
    return [folder / f"{key}.csv"] if own else sorted(set(folder.glob("*.csv")) - {folder / ORIGINS})


def _algorithms(folder: Path, key: object) -> set[str]:
    """Returns the algorithms of a figure's table, none where it has no table of its own."""
    path = folder / f"{key}.csv"
    return set(pd.read_csv(path)["algorithm"]) if path.exists() else set()


def moved(results: Path = RESULTS) -> list[list[str]]:
    """Returns a line for each folder and commit: how much of the code has moved since, and which experiments it made.

    Where no origin is noted, it is at the latest the commit of the tables themselves.
    """
    lines = []
    for folder in sorted({path.parent for path in results.glob("*/*.csv")}):
        for commit, figures in _commits(folder).items():
            commits, changed = _since(commit.strip(AT_MOST + CHANGED), f"benchmarks/papers/{folder.name}")
            if commits or commit.endswith(CHANGED):
                lines.append([folder.name, commit, str(commits), f"{changed:,}", ", ".join(figures)])
    return lines


def _commits(folder: Path) -> dict[str, list[str]]:
    """Returns the experiments of a folder's results, by the commit that made them."""
    if not (folder / ORIGINS).exists():
        return {_at_most(sorted(folder.glob("*.csv"))): ["all"]}
    table = pd.read_csv(folder / ORIGINS, dtype=str)
    by_commit = table.groupby(table["origin"].str.split(";").str[0], sort=False)
    return {str(commit): sorted(set(rows["figure"])) for commit, rows in by_commit}


def _at_most(tables: Sequence[Path]) -> str:
    """Returns the commit that brought the latest of some tables: what they hold was measured before it."""
    if not tables:
        return AT_MOST
    return AT_MOST + _git("log", "-1", "--format=%h", "--abbrev=12", "--", *map(str, tables))


def _since(commit: str, own: str) -> tuple[int, int]:
    """Returns how many commits touched the code since one, and how many lines they changed."""
    paths = ["--", *CODE, own]
    commits = _git("rev-list", "--count", f"{commit}..HEAD", *paths)
    numbers = [line.split("\t")[:2] for line in _git("diff", "--numstat", commit, "HEAD", *paths).splitlines()]
    return int(commits or 0), sum(int(count) for pair in numbers for count in pair if count.isdigit())


def _git(*words: str) -> str:
    """Returns what git says of this tree; nothing where there is no git, or no such commit."""
    git = shutil.which("git")
    if git is None:
        return ""
    return subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def main() -> None:
    """Prints the results whose code has moved."""
    lines = moved()
    print(markdown(["results", "commit", "commits since", "lines changed", "experiments"], lines) if lines else "None.")


if __name__ == "__main__":
    main()
