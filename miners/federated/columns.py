# SPDX-License-Identifier: Apache-2.0
"""``agreed_schema`` compares the public columns of several holders."""

from __future__ import annotations

from collections.abc import Mapping

from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema

__all__ = ["agreed_schema"]

MAX_ROWS = 2**33


def agreed_schema(schemas: Mapping[str, Schema]) -> Schema:
    """Returns the columns that all holders declare alike, with the sum of their row caps.

    Raises:
        QueryError: Columns differ; names each difference.
    """
    (first, schema), *others = schemas.items()
    differences = [text for name, other in others for text in _differences(first, schema, name, other)]
    if differences:
        raise QueryError(
            f"the holders' public schemas differ: {'; '.join(differences)}. "
            "Their policies must declare the same columns alike."
        )
    rows = sum(declared.max_rows for declared in schemas.values())
    return schema.model_copy(update={"max_rows": min(MAX_ROWS, rows)})


def _differences(holder: str, ours: Schema, other: str, theirs: Schema) -> list[str]:
    """Names where two schemas do not give every row the same codes, one text each."""
    texts = [f"{other!r} has no column `{name}`" for name in ours.columns if name not in theirs.columns]
    texts += [f"{holder!r} has no column `{name}`" for name in theirs.columns if name not in ours.columns]
    for name, column in ours.columns.items():
        if name in theirs.columns and theirs.columns[name].digest != column.digest:
            details = _column_differences(holder, column, other, theirs.columns[name])
            texts += [f"`{name}`: {detail}" for detail in details]
    return texts


def _column_differences(
    holder: str, ours: Categorical | Numeric, other: str, theirs: Categorical | Numeric
) -> list[str]:
    """Names where two declarations of a column differ."""
    if ours.type != theirs.type:
        return [f"{ours.type} at {holder!r}, {theirs.type} at {other!r}"]
    left, right = (column.model_dump(exclude={"unreviewed", "cuts"}) for column in (ours, theirs))
    here, there = left.pop("values", ()), right.pop("values", ())  # none of a numeric column
    texts = [
        f"{field} is {left[field]} at {holder!r}, {right[field]} at {other!r}"
        for field in left
        if left[field] != right[field]
    ]
    if here != there:
        only_here = [value for value in here if value not in there]
        only_there = [value for value in there if value not in here]
        texts += [
            f"only {name!r} declares {', '.join(map(repr, values))}"
            for name, values in ((holder, only_here), (other, only_there))
            if values
        ] or [f"{holder!r} and {other!r} declare the same values in another order"]
    return texts
