# SPDX-License-Identifier: Apache-2.0
"""What stands for scikit-learn's base class and functions does what they do."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import sklearn.base
from sklearn.isotonic import isotonic_regression
from sklearn.metrics import r2_score
from sklearn.utils import get_tags

from miners import DiffPC45, DiffPID3, PublicRows
from miners.estimator import NotLearnedError, Parameterised, cloned
from miners.fitted.model_card import determination
from miners.tuning.suggestion import _monotone
from pinq.errors import QueryError
from pinq.public.plugins import EXTRAS, extra_of, install_line, optional
from tests.support.requests.catalogue import MINERS

MIXINS = {
    "classifier": sklearn.base.ClassifierMixin,
    "regressor": sklearn.base.RegressorMixin,
    "transformer": sklearn.base.TransformerMixin,
}


def theirs(kind: type[Parameterised]) -> Any:
    """A class of scikit-learn's with the same name, constructor and kind."""
    mixin = (MIXINS[kind._estimator_type],) if kind._estimator_type else ()
    return type(kind.__name__, (*mixin, sklearn.base.BaseEstimator), {"__init__": kind.__init__})


@pytest.mark.parametrize("name", sorted(MINERS))
def test_a_miner_says_of_itself_what_an_estimator_of_scikit_learn_says(name: str) -> None:
    """Parameters, text and tags are those of a subclass of ``BaseEstimator`` with the same constructor."""
    for params in ({}, {"epsilon": 0.25}):
        ours, other = MINERS[name](**params), theirs(MINERS[name])(**params)
        assert ours.get_params() == other.get_params()
        assert repr(ours) == repr(other)
        assert get_tags(ours) == get_tags(other)
        assert repr(cloned(ours)) == repr(sklearn.base.clone(ours)) == repr(ours)


def test_parameters_of_parameters_are_set_by_both_names() -> None:
    outer = PublicRows(DiffPC45(epsilon=2), None, "y")  # type: ignore[arg-type]
    assert outer.get_params()["estimator__epsilon"] == 2
    assert outer.set_params(estimator=DiffPID3(), estimator__epsilon=3, target="z").estimator.epsilon == 3
    assert outer.target == "z"
    assert get_tags(outer).estimator_type == "classifier"
    assert cloned(outer).estimator is not outer.estimator
    with pytest.raises(QueryError, match="DiffPID3 has no parameter ''"):
        outer.set_params(estimator__=5)


def test_a_parameter_that_is_not_there_is_named_and_none_is_set() -> None:
    miner = DiffPC45()
    with pytest.raises(QueryError, match=r"DiffPC45 has no parameter 'epsilom'.*did you mean 'epsilon'") as caught:
        miner.set_params(max_depth=3, epsilom=1)
    assert isinstance(caught.value, ValueError)
    assert miner.max_depth is None
    with pytest.raises(QueryError, match="DiffPC45 has no parameter 'epsilon__x': 'epsilon' has none of its own"):
        miner.set_params(max_depth=3, epsilon__x=1)
    assert miner.max_depth is None


def test_without_scikit_learn_an_unfitted_miner_raises_an_error_of_the_same_bases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever catches ValueError or AttributeError catches either."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.exceptions", None)
    with pytest.raises(NotLearnedError, match="DiffPC45 is not fitted yet: call `fit` first"):
        DiffPC45().predict(None)
    assert NotLearnedError.__bases__ == (ValueError, AttributeError)


def test_the_curve_of_means_is_scikit_learns_isotonic_one() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 5, 30):
        means = random.random(size)
        assert _monotone(means) == pytest.approx(isotonic_regression(means), abs=1e-12)


def test_determination_is_scikit_learns_r2() -> None:
    """Also with weights, and where nothing varies."""
    random = np.random.default_rng(1)
    truth, predicted, weight = random.random((3, 40))
    assert determination(truth, predicted) == pytest.approx(r2_score(truth, predicted), abs=1e-12)
    wanted = r2_score(truth, predicted, sample_weight=weight)
    assert determination(truth, predicted, weight) == pytest.approx(wanted, abs=1e-12)
    same = np.ones(3)
    assert (determination(same, same), determination(same, predicted[:3])) == (1.0, 0.0)


def test_what_is_not_installed_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of our own that cannot be imported for another reason is an error as it is."""
    monkeypatch.setitem(sys.modules, "scipy.cluster.hierarchy", None)
    with pytest.raises(ModuleNotFoundError, match="^drawing needs it: " + re.escape(install_line("plot")) + "$"):
        optional("scipy.cluster.hierarchy", "plot", "drawing needs it")
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"):
        optional("nowhere.module", "plot", "drawing needs it")
    assert (extra_of("pyarrow.csv"), extra_of("nowhere"), extra_of(None)) == ("provider", None, None)
    assert next(iter(EXTRAS)) == "provider", "what several extras bring, an analyst gets with it"
