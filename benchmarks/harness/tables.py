# SPDX-License-Identifier: Apache-2.0
"""Tables of results: means over runs, Markdown, and generated sections of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["by_algorithm", "markdown", "means", "measured_or_published", "number_of_runs", "replace_section", "summary"]


def summary(cells: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Returns the mean, standard deviation and standard error of each algorithm at each abscissa.

    Args:
        cells: The cells of one experiment and one measure.
        order: The algorithms, in the order of the table.

    Returns:
        Columns ``algorithm``, ``x``, ``n`` (the number of runs), ``mean``, ``sd``, ``se``.
    """
    table = cells.groupby(["algorithm", "x"])["value"].agg(n="count", mean="mean", sd="std").reset_index()
    table["se"] = table["sd"] / np.sqrt(table["n"])
    table["rank"] = table["algorithm"].map({name: rank for rank, name in enumerate(order)})
    return table.sort_values(["rank", "x"]).drop(columns="rank").reset_index(drop=True)


def measured_or_published(cells: pd.DataFrame, order: Sequence[str], published: Path) -> pd.DataFrame:
    """Returns the summary of a figure's cells; algorithms without cells have the lines of the published table."""
    table = summary(cells, order)
    if published.exists():
        before = pd.read_csv(published).rename(columns={"error": "mean"})
        table = pd.concat([table, before[~before["algorithm"].isin(table["algorithm"])]])
    ranks = {name: rank for rank, name in enumerate([*order, *sorted(set(table["algorithm"]) - set(order))])}
    return table.sort_values("algorithm", key=lambda names: names.map(ranks), kind="stable").reset_index(drop=True)


def means(cells: pd.DataFrame, published: Path) -> pd.DataFrame:
    """Returns the mean of each figure, measure, algorithm and abscissa; without cells, the published mean.

    Columns ``figure``, ``measure``, ``algorithm``, ``x``, ``n``, ``mean`` and ``sd``.
    """
    names = ["figure", "measure", "algorithm", "x"]
    grouped = cells.groupby(names, sort=False)["value"]
    table = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    before = pd.read_csv(published) if published.exists() else table.iloc[:0]
    return pd.concat([table, before]).drop_duplicates(names).reset_index(drop=True)


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def by_algorithm(table: pd.DataFrame, xs: Sequence[float], texts: Mapping[tuple[str, float], str]) -> list[list[str]]:
    """Returns a line for each algorithm: its name, the text at each abscissa, its number of runs."""
    return [
        [str(name), *(texts.get((str(name), float(x)), "") for x in xs), number_of_runs(rows["n"])]
        for name, rows in table.groupby("algorithm", sort=False)
    ]


def number_of_runs(counts: pd.Series) -> str:
    """Returns the number of runs of results, like ``20`` or ``10 to 20``."""
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def replace_section(page: Path, name: str, text: str, *, heading: str) -> None:
    """Replaces the text between two markers of a page; people write the text around them.

    Args:
        page: A file of Markdown; a missing file is created.
        name: The section's name: ``tables`` is between ``<!-- tables -->`` and
            ``<!-- end of tables -->``. A missing section is added at the end.
        text: The section.
        heading: The heading of a new page.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page_text = page.read_text(encoding="utf-8") if page.exists() else f"# {heading}\n"
    if start not in page_text:
        page_text += f"\n{start}\n{end}\n"
    before, rest = page_text.split(start, 1)
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
