# SPDX-License-Identifier: Apache-2.0
"""Routes rows down a tree: from columns of a table to codes, and from codes to nodes.

It is the same row-wise map as on the provider's side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from miners.fitted.node import Node
from pinq.errors import QueryError
from pinq.language.specs import Axis, bind
from pinq.public.checks import closest
from pinq.public.schema import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import ArrayLike


Frame: TypeAlias = "pd.DataFrame | pa.Table"
ColumnValues: TypeAlias = "pd.Series | pa.ChunkedArray | ArrayLike"

NODE_ANSWERS = "The node at which a row without a known value stops answers for it."
ROUTED_AT_ONCE = 2**15  # rows times trees whose nodes and bins a processor keeps at hand
CODES_A_ROW = 8  # a table of this many codes costs less than the search for a row's bin
PLACE_BITS = 32


class UndeclaredValueWarning(UserWarning):
    """Rows to be predicted have values that the schema does not declare.

    Such values are undeclared categories, text instead of numbers, or numbers far outside the bounds. No model can have
    learned from them.

    Examples:
        >>> import warnings
        >>> import pandas as pd, pinq
        >>> from miners import DiffPC45, UndeclaredValueWarning
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> tree = DiffPC45(epsilon=1, max_depth=2).fit(handle, "income")
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always")
        ...     _ = tree.predict(rows.head(5).assign(relationship="cousin"))
        >>> [one.category is UndeclaredValueWarning for one in told]
        [True]
    """


class Bins:
    """Ranges of a column's codes that no axis divides; single codes if an axis has a table of codes.

    Bin 0 is code -1. A cut of ``age`` at codes 30 and 60 makes the bins -1, 0 to 29, 30 to 59 and 60 upwards.

    Attributes:
        codes: The first code of each bin.
    """

    def __init__(self, column: Categorical | Numeric, axes: Sequence[Axis]) -> None:
        starts = {0, *(threshold for axis in axes for threshold in axis.thresholds or ())}
        starts |= {column.cells} if column.nullable else set()
        looked_up = any(axis.thresholds is None for axis in axes)
        self._distinct = column.codes
        self.codes = np.append(-1, np.arange(column.codes) if looked_up else sorted(starts))

    def finder(self, rows: int) -> Callable[[np.ndarray], np.ndarray]:
        """The function from codes to bins that is the fastest for so many rows."""
        if self._distinct > CODES_A_ROW * rows:
            return lambda codes: np.searchsorted(self.codes, codes, side="right") - 1
        # Code -1 stands at the end, where Python looks for it: of 4 codes and bins that start at 0
        # and 2 the table is [1, 1, 2, 2, 0]. In small integers a million codes stay in a cache.
        bins = np.arange(len(self.codes), dtype=np.min_scalar_type(len(self.codes)))
        return np.roll(np.repeat(bins, np.diff(self.codes, append=self._distinct)), -1).take


class Router:
    """Sends encoded rows down several trees at once, by one table look-up for each level.

    The codes of each column are first reduced to ``Bins``. Node v has a table from the bin of a row in v's column to
    the next node, which is v itself if the row stops. A root that cuts ``age`` at codes 30 and 60 has the table [0, 1,
    2, 3].
    """

    def __init__(self, schema: Schema, trees: Sequence[Sequence[Node]], depth: int) -> None:
        nodes = [node for tree in trees for node in tree]
        axes = [None if node.split is None else bind(node.split, schema).axes[0] for node in nodes]
        self.schema, self._depth = schema, depth
        self.columns = tuple(dict.fromkeys(str(axis.column) for axis in axes if axis is not None))
        self._bins = {
            name: Bins(schema.columns[name], [axis for axis in axes if axis is not None and axis.column == name])
            for name in self.columns
        }
        # All tables stand one behind another; that of node v begins at `start[v]`, and is looked up by
        # the bins in row `row[v]` of a block of rows. Row 0 is all zeros, for leaves.
        row_of = {name: 1 + row for row, name in enumerate(self.columns)}
        firsts = np.cumsum([0, *map(len, trees)])[:-1]
        first_of = np.repeat(firsts, [len(tree) for tree in trees]).tolist()
        tables = [
            np.array([number]) if axis is None else self._table(number - first, node, axis) + first
            for number, (first, node, axis) in enumerate(zip(first_of, nodes, axes, strict=True))
        ]
        start = np.cumsum([0, *map(len, tables)])[:-1]
        row = np.array([0 if axis is None else row_of[str(axis.column)] for axis in axes])
        self._rows = ROUTED_AT_ONCE // max(4, len(trees))  # in a block
        self._to = np.concatenate(tables)
        # Where a node's table begins and where its bins do are one number: they are looked up together.
        self._next = (start << PLACE_BITS | row * self._rows)[self._to]
        self._roots, self._root_rows = start[firsts, None], row[firsts]

    def _table(self, index: int, node: Node, axis: Axis) -> np.ndarray:
        """The node after node ``index``, for each bin of its column."""
        # For cuts at 30 and 60: codes -1, 0, 30 and 60, one for each bin, have the parts -1, 0, 1
        # and 2, so the row stops or goes to the first, second or third child.
        parts = axis.parts_of(self._bins[str(axis.column)].codes)
        return np.where(parts < 0, index, np.array(node.children)[parts])

    def reached(self, codes: Mapping[str, np.ndarray], rows: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields blocks of rows, and the nodes where they end, shape (trees, rows); numbers run through all trees."""
        finders = [(codes[name], column_bins.finder(rows)) for name, column_bins in self._bins.items()]
        bins = np.zeros((1 + len(finders), self._rows), dtype=np.int64)
        for first in range(0, rows, self._rows):
            block = slice(first, min(first + self._rows, rows))
            for row, (column_bins, find) in enumerate(finders, 1):
                bins[row, : block.stop - first] = find(column_bins[block])
            yield block, self._walk(bins, np.arange(block.stop - first))

    def _walk(self, bins: np.ndarray, positions: np.ndarray) -> np.ndarray:
        # At a root, all rows are split by one column.
        at = bins[self._root_rows, : len(positions)] + self._roots
        # Row 7 of a block at a node that is split by the second column has its bin at 2 * the block's rows + 7.
        for _ in range(self._depth - 1):
            place = self._next.take(at)
            at = place >> PLACE_BITS
            place &= (1 << PLACE_BITS) - 1
            place += positions
            at += bins.ravel().take(place)
        return self._to.take(at)


def encode_rows(
    schema: Schema, names: Iterable[str], frame: Frame, *, otherwise: str = NODE_ANSWERS
) -> dict[str, np.ndarray]:
    """The codes of the columns that a model needs; see ``encode``.

    It warns of undeclared categories, of texts and missing values in a numeric column, and of
    numbers that lie outside the declared bounds by more than the width of the bounds; ``otherwise``
    says how such rows are treated. The warning counts rows, so these must be public.
    """
    # In small integers: new memory for a million rows takes longer than their codes.
    codes = {
        name: encode(schema, name, frame).astype(np.min_scalar_type(-schema.columns[name].codes)) for name in names
    }
    complaints = [
        complaint
        for name, column_codes in codes.items()
        for complaint in _complaints(schema, name, values_of(name, frame), column_codes)
    ]
    if complaints:
        warnings.warn(f"{'; '.join(complaints)}. {otherwise}", UndeclaredValueWarning, stacklevel=5)
    return codes


def length(frame: Frame) -> int:
    """The number of rows of a pandas or Arrow table."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise QueryError(
            f"a pandas or Arrow table with named columns is needed, not {type(frame).__name__}; "
            "pandas.DataFrame(rows, columns=[...]) names them."
        )
    return len(frame)


def encode(schema: Schema, name: str, frame: Frame) -> np.ndarray:
    """The codes of one column of a pandas or Arrow table, shape (rows,); -1 for an undeclared value."""
    return encode_values(schema, name, values_of(name, frame))


def values_of(name: str, frame: Frame) -> pd.Series:
    """One column of a pandas or Arrow table; a column 0 of a frame is the one called "0".

    Raises:
        QueryError: It is no such table, or has no such column.
    """
    import pandas as pd

    length(frame)
    labels = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    names = list(map(str, labels))
    if name not in names:
        raise QueryError(
            f"the table has no column {name!r}{closest(name, names)}, which the model needs; "
            f"it has {', '.join(names) or 'none'}."
        )
    if names.count(name) > 1:
        raise QueryError(f"the table has more than one column {name!r}.")
    values = frame[labels[names.index(name)]]
    return values.to_pandas() if hasattr(values, "to_pandas") else pd.Series(values)


def encode_values(schema: Schema, name: str, values: ColumnValues) -> np.ndarray:
    """The codes of a sequence of values of one column."""
    import pandas as pd

    if name in schema.numeric_columns:
        return schema.numeric_columns[name].encode(values)
    # Text is looked up once for each distinct value. A missing value has index -1, the last one.
    series = pd.Series(values)
    if isinstance(series.dtype, pd.CategoricalDtype):
        indices, distinct = series.cat.codes.to_numpy(), series.cat.categories
    else:
        indices, distinct = pd.factorize(series, use_na_sentinel=True)
    distinct_values = [*pd.Series(distinct).astype(object), None]
    # By indices of this width, a look-up takes half the time.
    return np.asarray(schema.columns[name].encode(distinct_values)[indices.astype(np.intp, copy=False)])


def _complaints(schema: Schema, name: str, series: pd.Series, codes: np.ndarray) -> list[str]:
    """The numbers of rows with undeclared values, in words."""
    numeric = schema.numeric_columns.get(name)
    if numeric is None:
        odd = codes < 0
    else:
        numbers, (low, high) = numeric.numbers_of(series), (float(numeric.lower), float(numeric.upper))
        odd = ~((numbers >= low) & (numbers <= high))
    if not odd.any():
        return []
    present = series[odd].notna().to_numpy()
    if numeric is None:
        faults = {
            f"a value of `{name}` that the schema does not declare": present,
            f"no `{name}`, of which no value may be missing": ~present,
        }
    else:
        numbers = numbers[odd]
        faults = {
            f"no number as `{name}`": present & np.isnan(numbers),
            f"no `{name}`, of which no value may be missing": ~present & (not numeric.nullable),
            f"a `{name}` far outside its bounds, which counts as the nearer bound": np.abs(numbers - (low + high) / 2)
            > 1.5 * (high - low),
        }
    return [f"{rows.sum():,} of {len(codes):,} rows have {fault}" for fault, rows in faults.items() if rows.any()]
