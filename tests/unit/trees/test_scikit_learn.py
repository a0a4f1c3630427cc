# SPDX-License-Identifier: Apache-2.0
"""What a user of scikit-learn tries on a fitted miner: it works on frames, or says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    RocCurveDisplay,
    accuracy_score,
    classification_report,
    get_scorer,
    log_loss,
    roc_auc_score,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from miners import DiffPC45, DiffPID3, PublicRows, SuLQID3
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

mpl.use("Agg")

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=99, integer=True),
        "rate": Numeric(lower=0, upper=1),
        "job": Categorical(values=("clerk", "nurse", "smith", "baker"), nullable=True),
        "pay": Categorical(values=("low", "high")),
    },
    max_rows=3000,
)


def made_up() -> pd.DataFrame:
    """Rows whose pay mostly follows from age and job."""
    random = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "age": random.integers(0, 100, 3000).astype(float),
            "rate": random.random(3000),
            "job": random.choice(np.array(["clerk", "nurse", "smith", "baker", None], dtype=object), 3000),
        }
    )
    high = np.where(rows["job"].isin(["clerk", "nurse"]), rows["age"] >= 30, rows["age"] >= 70) ^ (
        random.random(3000) < 0.05
    )
    return rows.assign(pay=np.where(high, "high", "low"))


ROWS = made_up()
X, Y = ROWS.drop(columns="pay"), ROWS["pay"]


@pytest.fixture(scope="module")
def fitted() -> DiffPC45:
    """A tree with so little noise that it always finds what is there."""
    with simulated(SCHEMA, data=ROWS, epsilon=100) as handle:
        return DiffPC45(epsilon=100, max_depth=4).fit(handle, "pay")


def test_metrics(fitted: Any) -> None:
    predicted, shares = fitted.predict(X), fitted.predict_proba(X)
    assert (
        accuracy_score(Y, predicted)
        == fitted.score(X, Y)
        == fitted.score(ROWS)
        == get_scorer("accuracy")(fitted, X, Y)
        > 0.9
    )
    assert "high" in classification_report(Y, predicted)
    # scikit-learn takes for granted that classes are sorted; the schema declares "low" before "high".
    assert fitted.classes_.tolist() == ["high", "low"]
    assert fitted.tree_.classes == ("low", "high")
    assert (shares == fitted.tree_.predict_proba(X)[:, ::-1]).all()
    assert log_loss(Y == "high", shares[:, 0]) < 0.4
    assert get_scorer("roc_auc")(fitted, X, Y) == pytest.approx(roc_auc_score(Y == "high", shares[:, 0]))
    assert get_scorer("neg_log_loss")(fitted, X, Y) == pytest.approx(-log_loss(Y == "high", shares[:, 0]))


@pytest.mark.parametrize(("declared", "found"), [((3, 1, 2), [1, 2, 3]), ((True, False), [False, True])])
def test_classes_are_sorted_where_they_compare(declared: Any, found: Any) -> None:
    schema = Schema(columns={"x": Categorical(values=("u", "v")), "y": Categorical(values=declared)}, max_rows=100)
    with simulated(schema, rows=100, epsilon=1) as handle:
        miner = DiffPC45(epsilon=1, max_depth=1).fit(handle, "y")
    assert miner.classes_.tolist() == found
    rows = pd.DataFrame({"x": ["u", "v"]})
    shares = miner.tree_.predict_proba(rows)
    for place, value in enumerate(found):
        assert (miner.predict_proba(rows)[:, place] == shares[:, declared.index(value)]).all()
    assert DiffPC45.from_json(miner.to_json()).classes_.tolist() == found


def test_displays(fitted: Any) -> None:
    import matplotlib.pyplot as plt

    for display in (ConfusionMatrixDisplay, CalibrationDisplay, RocCurveDisplay):
        more = {} if display is ConfusionMatrixDisplay else {"pos_label": "high"}
        display.from_estimator(fitted, X, Y, **more)
    PartialDependenceDisplay.from_estimator(fitted, X.dropna(), ["age", "job"], categorical_features=["job"])
    plt.close("all")


def test_a_fitted_miner_is_frozen_and_scored_fold_by_fold(fitted: Any) -> None:
    folds = cross_val_score(FrozenEstimator(fitted), X, Y, cv=StratifiedKFold(5))
    assert folds.mean() == pytest.approx(fitted.score(X, Y), abs=1e-3)
    shares = cross_val_predict(FrozenEstimator(fitted), X, Y, method="predict_proba")
    assert np.allclose(shares, fitted.predict_proba(X))
    assert is_classifier(fitted)
    assert is_classifier(FrozenEstimator(fitted))


def test_pipelines(fitted: Any) -> None:
    older = make_pipeline(
        FunctionTransformer(lambda frame: frame.assign(age=frame["age"] - 1)), FrozenEstimator(fitted)
    )
    assert older.fit(X, Y).score(X.assign(age=X["age"] + 1), Y) == fitted.score(X, Y)
    with simulated(SCHEMA, data=ROWS, epsilon=100) as handle:
        alone = Pipeline([("tree", clone(fitted))]).fit(handle, "pay")
    assert alone.score(X, Y) > 0.9
    assert "DiffPC45" in alone._repr_html_()


def test_a_clone_is_not_fitted(fitted: Any) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)
    with pytest.raises(NotFittedError):
        copy.export_graphviz()


def test_what_counts_is_found_by_permuting_columns(fitted: Any) -> None:
    found = permutation_importance(fitted, X, Y, n_repeats=3, random_state=0)
    assert found.importances_mean[0] > 0.2
    assert found.importances_mean[2] > 0.1
    assert abs(found.importances_mean[1]) < 0.02


def test_wrappers_that_take_a_fitted_classifier(fitted: Any) -> None:
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted), cv=3).fit(X, Y)
    assert accuracy_score(Y, calibrated.predict(X)) > 0.9
    bold = FixedThresholdClassifier(FrozenEstimator(fitted), threshold=0.01, pos_label="high").fit(X, Y)
    assert (bold.predict(X) == "high").sum() >= (fitted.predict(X) == "high").sum()
    votes = VotingClassifier([("a", FrozenEstimator(fitted)), ("b", FrozenEstimator(fitted))], voting="soft").fit(X, Y)
    assert (votes.predict(X) == fitted.predict(X)).all()
    sizes, _, scores = learning_curve(FrozenEstimator(fitted), X, Y, cv=2, train_sizes=[0.5, 1.0])
    assert scores.shape == (len(sizes), 2)


def test_tables_of_any_make_give_the_same(fitted: Any) -> None:
    wanted = fitted.predict(X).tolist()
    assert fitted.predict(pa.Table.from_pandas(X)).tolist() == wanted
    assert fitted.predict(X.astype({"job": "category"})).tolist() == wanted
    assert fitted.predict(X.convert_dtypes(dtype_backend="pyarrow")).tolist() == wanted
    assert (
        fitted.predict(X[["job", "rate", "age"]].assign(more=1)).tolist() == wanted
    )  # columns count by name, not by place


def test_what_cannot_work_says_what_to_do(fitted: Any) -> None:
    with pytest.raises(QueryError, match=r"named columns.*pandas\.DataFrame\(rows, columns="):
        fitted.predict(X.to_numpy())
    with pytest.raises(QueryError, match="no column 'job'"):
        fitted.predict(X.drop(columns="job"))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: clone(fitted).fit(X, Y),
        lambda: cross_val_score(fitted, X, Y, error_score="raise"),
        lambda: CalibratedClassifierCV(fitted).fit(X, Y),
    )
    for attempt in attempts:
        with pytest.raises(QueryError, match=r"private handle, not from DataFrame.*miners\.PublicRows"):
            attempt()


# Public rows


def test_settings_are_compared_by_cross_validation_on_public_rows() -> None:
    search = GridSearchCV(
        PublicRows(DiffPC45(epsilon=1), SCHEMA, "pay"),
        {"estimator__epsilon": [0.001, 100], "estimator__max_depth": [1, 4]},
        cv=3,
    )
    search.fit(X, Y)
    assert search.best_params_ == {"estimator__epsilon": 100, "estimator__max_depth": 4}
    best = search.best_estimator_
    assert best.score(X, Y) > 0.9
    assert best.estimator_.cost_ == 100
    assert best.estimator_.export_text().startswith("Tree for `pay`")
    assert best.predict_proba(X).shape == (3000, 2)
    assert not hasattr(best.estimator, "tree_")  # what was passed is not touched


@pytest.mark.parametrize("miner", [DiffPC45, DiffPID3, SuLQID3])
def test_every_miner_learns_from_public_rows(miner: Any) -> None:
    assert cross_val_score(PublicRows(miner(epsilon=50, max_depth=3), SCHEMA, "pay"), X, Y, cv=2).min() > 0.75


def test_rows_are_matched_with_classes_by_place() -> None:
    shuffled = X.sample(frac=1, random_state=0)
    model = PublicRows(DiffPC45(epsilon=100, max_depth=4), SCHEMA, "pay").fit(
        shuffled, Y.loc[shuffled.index].to_numpy()
    )
    assert model.score(X, Y) > 0.9


def test_public_rows_must_be_a_frame_with_a_class_each() -> None:
    model = PublicRows(DiffPC45(), SCHEMA, "pay")
    with pytest.raises(QueryError, match="pandas frame"):
        model.fit(X.to_numpy(), Y)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="2,999 values for 3,000 rows"):
        model.fit(X, Y[1:])
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_search_without_public_rows_says_first_what_to_do() -> None:
    """After scikit-learn's own head, before any traceback, the report says how to wrap the miner."""
    searches: tuple[Callable[[], object], ...] = (
        lambda: cross_val_score(DiffPC45(), X, Y, cv=2),
        lambda: GridSearchCV(DiffPC45(), {"epsilon": [1]}, cv=2).fit(X, Y),
    )
    for search in searches:
        with pytest.raises(ValueError, match="PublicRows") as failed:
            search()
        _, details = str(failed.value).split("failed with the following error:\n")
        assert details.startswith("pinq.errors.QueryError: To cross-validate or search with scikit-learn, wrap")
        assert details.rstrip().endswith("Nothing was spent.")
    with pytest.raises(QueryError, match="private handle, not from dict") as direct:
        DiffPC45().fit({}, "pay")  # type: ignore[arg-type]
    assert direct.value.__cause__ is None
