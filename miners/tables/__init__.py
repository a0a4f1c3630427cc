# SPDX-License-Identifier: Apache-2.0
"""Everyday tables from a private handle: cross tables, histograms, quantiles, summaries.

They use the five query methods, divide one epsilon over them, and give each number its interval. Read ``table.py``
first, then ``counts.py``.
"""

from miners.tables.columns import where
from miners.tables.counts import crosstab, histogram, top_k
from miners.tables.groups import correlation, grouped, quantiles, std, summary, variance
from miners.tables.table import Table

__all__ = [
    "Table",
    "correlation",
    "crosstab",
    "grouped",
    "histogram",
    "quantiles",
    "std",
    "summary",
    "top_k",
    "variance",
    "where",
]


def __dir__() -> list[str]:
    return [*__all__]
