# SPDX-License-Identifier: Apache-2.0
"""The origin of results: the commit and the versions that measured them; ``python -m benchmarks.harness.origin``.

Each cell of a store has the key of its origin, and each folder of results a file ``origins.csv``: a line for
each experiment and origin, with the number of cells. The commit is the newest one of the main line below the
measuring tree, because commits of a branch get other names when they land. A plus sign follows if the code of the
tree differed from this commit. The command lists the experiments whose code has changed since, with the number of
commits and of changed lines, in the packages and in the experiment.
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
CHANGED = "+"  # after the commit of a tree that differs from it
AT_MOST = "≤ "  # before the commit that added results without a known origin


@cache
def origin() -> str:
    """Returns the commit of this tree, and the versions of Python and of the packages, as one text."""
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES if _installed(name)]
    return "; ".join([commit_of(), f"Python {platform.python_version()}", *versions])


def commit_of() -> str:
    """Returns the newest commit of the main line below this tree, with a plus sign if the code differs from it.

    Without a main line, it is the tree's own commit.
    """
    commit = _git("merge-base", "HEAD", "main") or _git("rev-parse", "HEAD")
    changed = commit and _git("diff", "--name-only", commit, "--", *CODE, "benchmarks/papers")
    return commit[:12] + (CHANGED if changed else "")


def write_origins(cells: pd.DataFrame, folder: Path, keys: Sequence[str] = ()) -> None:
    """Writes the origins of each experiment's cells, most cells first.

    Published lines stay if the experiment, or one of its algorithms, has no cells. An experiment of ``keys`` that
    was published without a line gets the commit of its table.
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
    """Returns the table of an experiment; if no experiment has a separate table, all tables of the folder."""
    own = any((folder / f"{other}.csv").exists() for other in keys)
    return [folder / f"{key}.csv"] if own else sorted(set(folder.glob("*.csv")) - {folder / ORIGINS})


def _algorithms(folder: Path, key: object) -> set[str]:
    """Returns the algorithms of a figure's table; none if it has no separate table."""
    path = folder / f"{key}.csv"
    return set(pd.read_csv(path)["algorithm"]) if path.exists() else set()


def moved(results: Path = RESULTS) -> list[list[str]]:
    """Returns a line for each folder and commit: the size of later changes, and the experiments of the commit.

    Tables without a known origin count as measured before the commit that added them.
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
    """Returns the commit that changed any of some tables last; their numbers were measured before it."""
    if not tables:
        return AT_MOST
    return AT_MOST + _git("log", "-1", "--format=%h", "--abbrev=12", "--", *map(str, tables))


def _since(commit: str, own: str) -> tuple[int, int]:
    """Returns the number of later commits that changed the code, and the number of changed lines."""
    paths = ["--", *CODE, own]
    commits = _git("rev-list", "--count", f"{commit}..HEAD", *paths)
    numbers = [line.split("\t")[:2] for line in _git("diff", "--numstat", commit, "HEAD", *paths).splitlines()]
    return int(commits or 0), sum(int(count) for pair in numbers for count in pair if count.isdigit())


def _git(*words: str) -> str:
    """Returns the output of a git command; empty without git, or without such a commit."""
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
    """Prints the results whose code has changed."""
    lines = moved()
    print(markdown(["results", "commit", "commits since", "lines changed", "experiments"], lines) if lines else "None.")


if __name__ == "__main__":
    main()
