# SPDX-License-Identifier: Apache-2.0
"""``Parameterised`` has the methods that scikit-learn requires of an estimator, without scikit-learn.

Its tools accept a miner as an estimator, because they need methods and no base class.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from pinq.errors import QueryError
from pinq.public.checks import closest

Kind = Literal["classifier", "regressor", "transformer"] | None


class HasParams(Protocol):
    """An object that gives its parameters as scikit-learn's estimators do."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns each parameter by its name."""


P = TypeVar("P", bound=HasParams)


class NotLearnedError(ValueError, AttributeError):
    """An estimator's model is read before ``fit``; used without scikit-learn."""


class Parameterised:
    """An object whose constructor stores its parameters under their own names.

    Examples:
        >>> class Shift(Parameterised):
        ...     def __init__(self, by: int = 1, unit: str = "m") -> None:
        ...         self.by, self.unit = by, unit
        >>> Shift(by=2)
        Shift(by=2)
        >>> Shift().set_params(by=3, unit="m").get_params()
        {'by': 3, 'unit': 'm'}
    """

    _estimator_type: ClassVar[Kind] = None

    _former: ClassVar[str] = ""  # the name under which it is stored, where the class had another once

    @classmethod
    def kept_name(cls) -> str:
        """Returns the name under which a fitted one is stored."""
        return cls._former or cls.__name__

    @classmethod
    def param_names(cls) -> list[str]:
        """Returns the names of the constructor's parameters, sorted."""
        return sorted(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns each parameter by its name.

        Args:
            deep: Whether to include the parameters of a parameter, as ``outer__inner``.
        """
        params = {name: getattr(self, name) for name in self.param_names()}
        inner = [(name, value.get_params()) for name, value in params.items() if deep and _has_params(value)]
        return {f"{name}__{key}": value for name, values in inner for key, value in values.items()} | params

    def set_params(self, **params: object) -> Self:
        """Sets parameters and returns the miner; ``outer__inner`` names a parameter's parameter.

        Raises:
            QueryError: The parameter does not exist. The error is a ValueError, too.
        """
        names, inner = self.param_names(), defaultdict[str, dict[str, object]](dict)
        for name in params:
            outer, nested, _ = name.partition("__")
            if outer not in names:
                raise QueryError(
                    f"{type(self).__name__} has no parameter {outer!r}{closest(outer, names)}; it has "
                    f"{', '.join(names)}."
                )
            if nested and not _has_params(params.get(outer, getattr(self, outer))):
                raise QueryError(f"{type(self).__name__} has no parameter {name!r}: {outer!r} has none of its own.")
        for name, value in params.items():
            outer, nested, key = name.partition("__")
            if nested:
                inner[outer][key] = value
            else:
                setattr(self, name, value)
        for outer, values in inner.items():
            getattr(self, outer).set_params(**values)
        return self

    def _require_fitted(self, attribute: str) -> None:
        """Raises ``NotFittedError``, scikit-learn's or one like it, without the attribute."""
        if not hasattr(self, attribute):
            raise _not_fitted_error()(f"This {type(self).__name__} is not fitted yet: call `fit` first.")

    def __sklearn_tags__(self) -> object:
        """Returns the tags of an estimator for scikit-learn, from its own classes."""
        import sklearn.base

        kind = self._estimator_type
        mixins = () if kind is None else (getattr(sklearn.base, f"{kind.title()}Mixin"),)
        return type("Tagged", (*mixins, sklearn.base.BaseEstimator), {})().__sklearn_tags__()

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        params = self.get_params(deep=False).items()
        changed = [f"{name}={value!r}" for name, value in params if repr(value) != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"


def cloned(estimator: P) -> P:
    """Returns an estimator of the same kind and parameters that has learned nothing."""
    params = estimator.get_params(deep=False)
    return type(estimator)(
        **{name: cloned(value) if _has_params(value) else copy.deepcopy(value) for name, value in params.items()}
    )


def _has_params(value: object) -> bool:
    return hasattr(value, "get_params") and not inspect.isclass(value)


def _not_fitted_error() -> type[Exception]:
    """Returns scikit-learn's error, which its users catch, else one of the same bases."""
    try:
        from sklearn.exceptions import NotFittedError
    except ModuleNotFoundError:
        return NotLearnedError
    return NotFittedError
