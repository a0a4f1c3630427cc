# SPDX-License-Identifier: Apache-2.0
"""What linear models share: faces of a fitted state that shows itself, and how stored arrays are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import numpy as np

from miners.estimator import HandleMiner, Model
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon, EpsilonLike

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["LinearMiner", "LinearParameters", "arrays_in", "reading", "text_html"]

W = TypeVar("W")


class Shown(Model, Protocol):
    """A fitted state that shows itself."""

    def to_frame(self) -> pd.DataFrame: ...
    def export_text(self) -> str: ...
    def plot(self, ax: Axes | None = None) -> Axes: ...


@dataclass(kw_only=True, repr=False, eq=False)
class LinearParameters:
    """The parameters of linear models; each says what they are."""

    epsilon: EpsilonLike = 1.0
    attributes: Sequence[str] | None = None


class LinearMiner(LinearParameters, HandleMiner[W], Generic[W]):
    """A linear model of a target."""

    @property
    def _state_shown(self) -> Shown:
        return cast(Shown, self._model)

    def _shown(self) -> str:
        return text_html(self.export_text())

    def to_frame(self) -> pd.DataFrame:
        """Returns what was learned as a table, a row for each term (of each class)."""
        return self._state_shown.to_frame()

    def export_text(self) -> str:
        """The report as text."""
        return self._state_shown.export_text()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws coefficients with 95 % intervals, or means of classes as a map. It needs matplotlib."""
        return self._state_shown.plot(ax)

    def _total(self, work: W) -> Epsilon:
        return Epsilon.of(self.epsilon)

    def _notes(self, work: W) -> tuple[str, ...]:
        return ("noise of products is in squares of a column's deviation.",)


def text_html(text: str) -> str:
    """A report as HTML."""
    return f"<pre>{escape(text)}</pre>"


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Makes ``QueryError`` of whatever a stored model that is none raises."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise QueryError(f"this is not a stored {what}: {error}") from None


def arrays_in(stored: Mapping[str, Any], **shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Stored arrays by name. ``ValueError`` where one is not finite or has not its shape; -1 is any length."""
    arrays = [np.array(stored[name], dtype=np.float64) for name in shapes]
    for (name, shape), array in zip(shapes.items(), arrays, strict=True):
        fits = len(shape) == array.ndim and all(many in (-1, own) for many, own in zip(shape, array.shape, strict=True))
        if not fits or not np.isfinite(array).all():
            raise ValueError(f"its {name} do not fit its columns")
    return arrays
