# SPDX-License-Identifier: Apache-2.0
"""The common code of all miners: checks, ``fit`` and ``plan``, predictions, pictures, stored text.

A ``Miner`` checks its parameters and gets a ``FitPlan``, which has the cost, texts and queries of a fit.

An analyst's install has no scikit-learn. If it is installed, its tools accept a miner as an estimator, because they
need methods and no base class: ``Parameterised`` has them.
"""

from __future__ import annotations

import copy
import inspect
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from decimal import Decimal
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from miners.budget.plan import (
    Plan,
    PlanLine,
    Storage,
    begin_fit,
    billed,
    loss_text,
    public_handle,
    remember_fit,
    require_given,
    silenced,
)
from miners.fitted.model_card import ModelCard, Reliability, determination, model_card
from miners.fitted.node import as_array, read_json
from miners.fitted.route import Frame, encode, encode_values, values_of
from miners.fitted.tree import Forest, Tree
from miners.pictures import Axes
from pinq.errors import QueryError, unspent
from pinq.public.checks import closest, require_kind, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, Exact
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from pinq.analyst.queryable import PrivateQueryable
    from pinq.language.queries import Certificate


Kind = Literal["classifier", "regressor", "transformer"] | None


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
        names, by_outer = self.param_names(), defaultdict[str, dict[Any, object]](dict)
        for name, value in params.items():
            outer, nested, key = name.partition("__")
            if outer not in names:
                raise QueryError(
                    f"{type(self).__name__} has no parameter {outer!r}{closest(outer, names)}; it has "
                    f"{', '.join(names)}."
                )
            if nested and not _has_params(params.get(outer, getattr(self, outer))):
                raise QueryError(f"{type(self).__name__} has no parameter {name!r}: {outer!r} has none of its own.")
            by_outer[outer][key if nested else None] = value
        for outer, values in by_outer.items():
            if None in values:
                setattr(self, outer, values.pop(None))
            if values:
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


P = TypeVar("P", bound=Parameterised)


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


VERSION = 1
TREE_LIMITS = (
    "If the noise exceeds a node's count, the node predicts as its parent does.",
    "A row stops at a node whose split needs a missing or undeclared value; this node predicts.",
)
FOREST_LIMITS = (
    *TREE_LIMITS,
    "A single tree is inaccurate, because it has a part of the rows or of epsilon; use the average of all trees.",
)
WRAP = (
    "To cross-validate or search with scikit-learn, wrap the miner: PublicRows(miner, schema, target), from miners, "
    "learns from public rows."
)


Source = TypeVar("Source", contravariant=True)


class State(Protocol):
    """The stored state of a miner, public as a whole.

    Attributes:
        kept_as: The state's name in JSON; with an underscore behind it, the name of the miner's attribute.
    """

    kept_as: ClassVar[str]

    @property
    def schema(self) -> Schema:
        """The public schema under which it was learned."""

    @property
    def target(self) -> str | None:
        """The predicted column; empty or None for none."""

    def to_dict(self) -> dict[str, Any]:
        """The model, as JSON has it."""

    def _repr_html_(self) -> str:
        """The model, as notebooks show it."""

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is whole and valid."""


class Model(State, Protocol):
    """A fitted state that predicts: a ``Tree``, a ``Forest``, a ``Card``.

    A new miner fits one of these, or a class with these methods.
    """

    @property
    def target(self) -> str:
        """The predicted column."""

    @property
    def classes(self) -> tuple[Value, ...]:
        """The target's values as declared; none for a numeric target."""

    @property
    def importances(self) -> Mapping[str, float]:
        """The importance of each column, with sum 1."""

    def predict(self, frame: Frame) -> np.ndarray:
        """Predicts the likeliest class or the mean of each row, shape (rows,)."""

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Predicts class probabilities, shape (rows, classes), as declared."""


class FitPlan(ABC, Generic[Source]):
    """A fit before its first query, every parameter checked: its cost, its texts, and its queries.

    ``Source`` is the type of what it queries: a private handle, or several data owners.
    """

    @property
    @abstractmethod
    def total(self) -> Epsilon:
        """The cost of all queries."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of the plan, in one line."""

    @abstractmethod
    def lines(self) -> Iterable[PlanLine]:
        """Returns a line for each query."""

    @abstractmethod
    def notes(self) -> Iterable[str]:
        """Useful facts, one sentence each."""

    @abstractmethod
    def warnings(self, rows: int | None) -> tuple[str, ...]:
        """Likely problems, one sentence each, for a number of rows; None for ``max_rows``."""

    @abstractmethod
    def rehearse(self, handle: PrivateQueryable) -> Storage:
        """Raises the refusals of the heaviest queries, before any is paid.

        Returns:
            The largest number of bytes that a ledger keeps of all queries.
        """

    def require(self, handle: PrivateQueryable) -> Self:
        """Raises every refusal that public facts foresee, before anything is paid.

        Returns:
            The fit, which stays within the bytes that the handle's ledger still keeps.
        """
        self.rehearse(handle).require(handle.budget.room)
        return self

    @property
    def needed(self) -> Epsilon:
        """The part of the total that is not paid yet."""
        return self.total

    @property
    def before(self) -> Epsilon:
        """The cost of the stored answers that the fit takes from the log."""
        return ZERO

    @abstractmethod
    def learn(self, source: Source) -> Any:
        """Sends all queries; returns the learned state."""

    def plan(self, rows: int | None) -> Plan:
        """The plan for a number of rows; None for ``max_rows``."""
        if rows is not None:
            whole_number("rows", rows, 0, 2**33)
        notes, warnings = tuple(self.notes()), self.warnings(rows)
        return Plan(self.title, tuple(self.lines()), self.total.exact, notes, warnings)


class Miner(Parameterised, ABC):
    """A miner makes all decisions before its first query, and lists its queries in a plan.

    A fitted miner has a bill, a model card, a text and a certificate.

    Attributes:
        epsilon: The cost of ``fit``, a parameter of each miner.
        schema_: The public schema under which it learned.
        cost_: The exact cost of the last ``fit``. ``set_params`` does not change it.
        feature_names_in_: The schema's columns other than the target, shape (n_features_in_,).
        n_features_in_: The number of these columns.
        card_: The ``Card`` of a scorecard; the ``Participants`` of a tree of several data owners.
        owners_: The ``Participants`` of a scorecard of several data owners.
        model_: The ``SyntheticTable`` of a synthesizer.
        fitted_on_: The name of the data; not in ``to_json``.
    """

    epsilon: Any
    schema_: Schema
    cost_: Fraction
    card_: Any
    owners_: Any
    model_: Any
    fitted_on_: str
    feature_names_in_: np.ndarray
    n_features_in_: int
    _state: type[State]
    _limits: tuple[str, ...] = ()
    _other: ClassVar[str] = ""  # the miner that predicts targets of the other kind
    _certificate: Certificate | None = None
    _fit_params: dict[str, Any]

    @abstractmethod
    def _checked(self, schema: Schema, target: str) -> FitPlan[Any]:
        """The fit, with every parameter checked before anything is spent."""

    def _require_target(self, schema: Schema, target: str) -> None:
        """Raises ``QueryError`` unless this miner can predict a column, and the column has several values."""
        column, is_numeric = schema.column(target), target in schema.numeric_columns
        if is_numeric != isinstance(self, Regressor):
            kind, predicts = "categorical", "the mean of a numeric column"
            if is_numeric:
                kind, predicts = "numeric", "the values of a categorical column"
            name = type(self).__name__
            raise QueryError(f"the target `{target}` is {kind}; take {self._other}, for {name} predicts {predicts}.")
        if column.cells < 2:
            raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn.")

    def fit(self, handle: PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Learns from the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: The column to predict.
            reuse: Whether to use the stored answers of an identical earlier fit, at no cost, for example if a
                cell of a notebook runs again. Forests need a ``random_state``.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            fit = self._checked(public_schema(handle), target)
        return self._run(fit, handle, target, reuse=reuse)

    def _run(self, fit: FitPlan[Any], handle: PrivateQueryable, target: object, *, reuse: bool) -> Self:
        """Sends all queries of a checked fit, after its warnings and the check of the budget."""
        with unspent():
            require_given(self)
            warnings = fit.warnings(None)
            if reuse is False:
                fit = fit.require(handle)
            querying, certificate = begin_fit(
                self, handle, target or None, fit.needed, warnings, reuse=reuse, before=fit.before
            )
        with billed(handle) as spent, silenced(warnings):  # `begin_fit` gave the warnings
            model, cost = fit.learn(querying), spent()
        remember_fit(self, handle, certificate())
        return self._fitted(model, cost)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        return type(self)(**self._fit_params).fit(handle, self._model.target or "")

    def plan(self, schema: Schema, target: str, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict.
            rows: The number of rows of the table, if it is known; by default the schema's
                ``max_rows``. It serves the warning only.
        """
        fit = self._checked(required_schema(schema), target)
        fit.rehearse(public_handle(schema))
        return fit.plan(rows)

    @property
    def unspent_(self) -> Fraction:
        """The part of ``epsilon`` that the fit did not spend.

        Some remains if all leaves of a "paper" tree are early, or if answers were reused.
        """
        self._require_fitted("cost_")
        return Exact(Epsilon.of(self._fit_params["epsilon"]).exact - self.cost_)

    def certificate(self) -> Certificate:
        """Returns the ids of the model's charged answers, for the owner of the ledger; free.

        ``pinq audit POLICY --certificate FILE --model FILE`` computes the model from these answers
        again.

        Raises:
            QueryError: The model was not fitted in this process, was fitted on several data owners,
                or used public randomness without a seed.
        """
        if self._certificate is None:
            raise QueryError(
                "only a model that was fitted in this process, on one handle, has a certificate: "
                "take it right after `fit` and keep it with the model."
            )
        if self._fit_params.get("random_state", 0) is None:
            raise QueryError("is None, so the fit cannot be made again; fit with a number", parameter="random_state")
        return self._certificate

    def card(self) -> ModelCard:
        """Returns the model card: data, policy, epsilon, plan, bill, known limits.

        It prints as Markdown, shows as HTML, and ``to_markdown`` and ``to_html`` give either.
        """
        self._require_fitted("cost_")
        fitted = type(self)(**self._fit_params)
        return model_card(
            miner=repr(fitted),
            model=self._description(),
            dataset=getattr(self, "fitted_on_", None),
            schema=self.schema_,
            plan=self._plan_of(fitted),
            cost=self.cost_,
            limits=self._limits,
        )

    def _repr_html_(self) -> str:
        """The parameters, and after a fit the cost and the model, as HTML."""
        if not hasattr(self, "cost_"):
            return f"<p>{escape(repr(self))}, not fitted</p>"
        return f"<p>{escape(repr(self))}, cost {loss_text(self.cost_)}</p>{self._shown()}"

    def _shown(self) -> str:
        return str(self._model._repr_html_())

    def to_json(self) -> str:
        """Returns the fitted miner as text: its parameters, its cost and its model."""
        stored = self._stored()
        params = {name: _param_out(value) for name, value in self.get_params(deep=False).items()}
        head = {"format": f"pinq-{self.kept_name()}", "version": VERSION, "params": params}
        return json.dumps({**head, "cost": loss_text(self.cost_), **stored}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads a result of ``to_json``; raises ``QueryError`` for another text."""
        stored, name, allowed = read_json(text), cls.kept_name(), cls.param_names()
        if not isinstance(stored, dict) or stored.get("format") != f"pinq-{name}" or stored.get("version") != VERSION:
            raise QueryError(
                f"this is not a stored {name}: its `format` must be 'pinq-{name}' and its `version` {VERSION}."
            )
        params, cost = stored.get("params"), cast("EpsilonLike", stored.get("cost"))
        if not isinstance(params, dict) or not set(params) <= set(allowed):
            keys = ", ".join(allowed)
            raise QueryError(f"`params` of a stored {name} must be an object with no other keys than {keys}.")
        try:
            json.dumps(params, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise QueryError(f"`params` of a stored {name} have a value that JSON does not allow: {error}.") from None
        # A fit whose questions were all paid for before costs nothing.
        paid = Fraction(0) if cost == "0" else Epsilon.of(cost, name="cost").exact
        return cls(**params)._restored(stored, paid)

    @property
    def _model(self) -> Any:
        """The fitted state, such as ``tree_`` or ``card_``."""
        self._require_fitted(f"{self._state.kept_as}_")
        return getattr(self, f"{self._state.kept_as}_")

    def to_frame(self) -> pd.DataFrame:
        """Returns the model as a table."""
        return self._model.to_frame()

    def _description(self) -> Mapping[str, str]:
        """The texts about the model on its card, by name."""
        return {"learned": self._in_a_line()}

    def _in_a_line(self) -> str:
        return repr(self._model)

    def _plan_of(self, fitted: Any) -> Plan:
        """The plan of a miner with the parameters of the fit."""
        return fitted.plan(self.schema_, self._model.target)

    def _stored(self) -> dict[str, object]:
        return {self._state.kept_as: self._model.to_dict()}

    def _restored(self, stored: Mapping[str, Any], cost: Fraction) -> Self:
        """Takes the model from JSON; raises ``QueryError`` if there is no valid model."""
        return self._fitted(self._state.from_dict(stored.get(self._state.kept_as)), cost)

    def _fitted(self, model: Any, cost: Fraction, columns: Iterable[str] = (), name: str = "") -> Self:
        """Stores the model and the facts of its fit; by default the schema's columns and the state's name."""
        setattr(self, f"{name or self._state.kept_as}_", model)
        self.schema_, self.cost_ = model.schema, cost
        self._fit_params = self.get_params(deep=False)  # of this fit; set_params may change them later
        names = [name for name in columns or model.schema.columns if name != model.target]
        self.feature_names_in_, self.n_features_in_ = np.array(names, dtype=object), len(names)
        return self


def _param_out(value: object) -> object:
    """A parameter in JSON; an exact loss becomes decimal text with the same value."""
    match value:
        case Fraction() | Decimal() | Epsilon():
            return str(Epsilon.of(value))
        case np.generic():
            return value.item()
        case Mapping():
            return {str(key): _param_out(item) for key, item in value.items()}
        case list() | tuple() | np.ndarray():
            return [_param_out(item) for item in value]
    return value


def _importances(miner: Classifier | Regressor) -> np.ndarray:
    """The importance of each column of ``feature_names_in_``."""
    importances: Mapping[str, float] = miner._model.importances
    return np.array([importances.get(name, 0.0) for name in miner.feature_names_in_], dtype=np.float64)


class Classifier(Miner):
    """A fitted miner that predicts the values of a categorical column.

    Attributes:
        classes_: The declared values of the target, shape (classes,); sorted, as scikit-learn expects. The fitted
            model's ``classes`` has them as declared.
    """

    classes_: np.ndarray
    _estimator_type = "classifier"
    _other = "DiPriMeTreeRegressor"

    @property
    def feature_importances_(self) -> np.ndarray:
        """The importance of each column, shape (n_features_in_,), with sum 1; free.

        In the order of ``feature_names_in_``; all 0 if nothing was learned. For trees it is the decrease of impurity by
        a column's splits, for scorecards the spread of its points.
        """
        return _importances(self)

    def predict(self, X: Frame) -> np.ndarray:
        """Predicts the likeliest class of each row of a pandas or Arrow table, shape (rows,)."""
        return np.asarray(self._model.predict(X))

    def predict_proba(self, X: Frame) -> np.ndarray:
        """Predicts class probabilities, shape (rows, classes), in the order of ``classes_``."""
        return np.asarray(self._model.predict_proba(X)[:, _sorted(self._model.classes)])

    def score(self, X: Frame, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Returns the accuracy: the proportion of rows whose class is predicted.

        Args:
            X: A pandas or Arrow table.
            y: The true classes; by default the target's column of ``X``. A missing or undeclared
                class counts as not predicted.
            sample_weight: A weight for each row.
        """
        model: Model = self._model
        truth = encode(model.schema, model.target, X) if y is None else encode_values(model.schema, model.target, y)
        predicted = encode_values(model.schema, model.target, model.predict(X))
        require_pairs(truth, predicted)
        if not len(truth):
            raise QueryError("there is no row to score.")
        weights = None if sample_weight is None else np.asarray(sample_weight)
        return float(np.average(truth == predicted, weights=weights))

    def reliability(
        self, X: Frame, y: ArrayLike | None = None, *, label: Value | None = None, bins: int = 10
    ) -> Reliability:
        """Compares predicted probabilities of a class with observed ones; ``.plot()`` draws them.

        Args:
            X: A pandas or Arrow table of rows that are public or the caller's own.
            y: The true classes; by default the target's column of ``X``. Rows without a declared
                class do not count.
            label: The class; by default the last declared one.
            bins: The number of bins of predicted probabilities, 2 to 100.

        Raises:
            QueryError: There is no row, or no such class.
        """
        model: Model = self._model
        number = whole_number("bins", bins, 2, 100)
        classes = list(model.classes)
        if label is not None and label not in classes:
            raise QueryError(f"is {label!r}", parameter="label", allowed=f"one of {', '.join(map(repr, classes))}")
        position = len(classes) - 1 if label is None else classes.index(label)
        truth = encode(model.schema, model.target, X) if y is None else encode_values(model.schema, model.target, y)
        probabilities = model.predict_proba(X)
        require_pairs(truth, probabilities)
        has_class = (truth >= 0) & (truth < len(classes))
        return Reliability.of(
            probabilities[has_class, position], truth[has_class] == position, bins=number, label=str(classes[position])
        )

    def _fitted(self, model: Any, cost: Fraction, columns: Iterable[str] = (), name: str = "") -> Self:
        self.classes_ = as_array(model.classes)[_sorted(model.classes)]
        return super()._fitted(model, cost, columns, name)


class Regressor(Miner):
    """A fitted miner that predicts the mean of a numeric column."""

    _estimator_type = "regressor"
    _other = "DiPriMeTreeClassifier"

    @property
    def feature_importances_(self) -> np.ndarray:
        """The importance of each column, shape (n_features_in_,), with sum 1; see ``Classifier``."""
        return _importances(self)

    def predict(self, X: Frame) -> np.ndarray:
        """Predicts the mean for each row, shape (rows,); for a column of dates the nearest date, datetime64."""
        model: Model = self._model
        return model.schema.numeric(model.target).shown(model.predict(X))

    def score(self, X: Frame, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Returns the coefficient of determination.

        1 means predictions without error, and 0 predictions no better than the mean. Dates are compared
        in days, and times in minutes.

        Args:
            X: A pandas or Arrow table.
            y: The true values; by default the target's column of ``X``. Rows whose value is missing
                do not count.
            sample_weight: A weight for each row.
        """
        model: Model = self._model
        truth = model.schema.numeric(model.target).numbers_of(values_of(model.target, X) if y is None else y)
        predicted = model.predict(X)
        require_pairs(truth, predicted)
        has_value = ~np.isnan(truth)
        if has_value.sum() < 2:
            raise QueryError("there are fewer than two rows with a value to score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[has_value]
        return determination(truth[has_value], predicted[has_value], weight)


class GrownMiner(Miner):
    """A fitted miner whose state is a ``Tree`` or a ``Forest``.

    Attributes:
        tree_: The fitted ``Tree``, of a miner that fits one.
        forest_: The fitted ``Forest``, of a miner that fits one.
    """

    tree_: Tree
    forest_: Forest
    _state: type[Tree | Forest] = Tree
    _limits: tuple[str, ...] = TREE_LIMITS

    def rules(self) -> pd.DataFrame:
        """Returns a rule for each leaf, in descending order of rows; see ``Tree.rules``."""
        return self._model.rules()

    def export_text(self, *, max_depth: int | None = None) -> str:
        """The tree, or all trees, as indented text."""
        return self._model.export_text(max_depth=max_depth)

    def export_graphviz(self, **chosen: int | None) -> str:
        """The tree in Graphviz's DOT language; see ``Tree.export_graphviz`` and ``Forest.export_graphviz``."""
        return self._model.export_graphviz(**chosen)

    def plot(self, ax: Axes | None = None, **chosen: int | None) -> Axes:
        """Draws the tree with matplotlib; see ``Tree.plot`` and ``Forest.plot``."""
        return self._model.plot(ax, **chosen)


def public_schema(handle: object) -> Schema:
    """Returns the schema of a handle. Raises ``QueryError`` if something else was passed.

    For a table, the cause of the error says how to use scikit-learn, because its searches print the whole
    traceback of a failed fit, cause first.
    """
    schema = schema_of(handle)
    if schema is not None:
        return schema
    if hasattr(handle, "owners"):
        raise QueryError(
            f"this miner learns from one private handle, not from {type(handle).__name__}. FederatedTopDown, "
            "FederatedScorecard and FederatedScorecardRegressor learn from several; fit them on the federation."
        )
    raise QueryError(
        f"`fit` learns from a private handle, not from {type(handle).__name__}; open one with pinq.open, "
        "or pinq.simulate to try for free; miners.PublicRows lets scikit-learn cross-validate on rows that anybody "
        "may see."
    ) from (QueryError(WRAP) if hasattr(handle, "shape") else None)


def schema_of(handle: object) -> Schema | None:
    """Returns the schema of a handle; None for any other object."""
    schema = getattr(handle, "schema", None)
    return schema if isinstance(schema, Schema) and callable(getattr(handle, "preview", None)) else None


def required_schema(schema: object) -> Schema:
    """Returns a schema; raises ``QueryError`` for anything else."""
    require_kind(
        [schema],
        Schema,
        lambda: (
            f"`plan` reads a public schema, not {type(schema).__name__}; pass `handle.schema`, or "
            "pinq.load_policy(...).schema_."
        ),
    )
    return cast("Schema", schema)


def require_word(name: str, value: object, words: Sequence[str | None]) -> None:
    """Raises ``QueryError`` unless a parameter is one of some words."""
    if value in words:
        return
    near = closest(str(value), [word for word in words if word is not None])
    allowed = " or ".join(map(repr, words)) if len(words) == 2 else f"one of {', '.join(map(repr, words))}"
    raise QueryError(f"is {value!r}{near}", parameter=name, allowed=allowed)


def require_pairs(values: Sized, rows: Sized) -> None:
    """Raises ``QueryError`` unless there is a true value for each row."""
    if len(values) != len(rows):
        raise QueryError(f"`y` has {len(values):,} values for {len(rows):,} rows.")


def _sorted(classes: Sequence[Value]) -> np.ndarray:
    """The positions of the classes in sorted order; the declared order if they cannot be compared."""
    try:
        return np.argsort(as_array(classes), kind="stable")
    except TypeError:
        return np.arange(len(classes))


Learner = Classifier | Regressor
"""A miner that learns from one handle and predicts."""
