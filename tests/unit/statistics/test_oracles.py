# SPDX-License-Identifier: Apache-2.0
"""Where epsilon is so large that noise is 0, the statistics are those of scipy, lifelines and statsmodels, to 1e-6.

Tests by lifelines and statsmodels are skipped where these are not installed; ``make test-oracles`` installs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import pinq
from miners.statistics import (
    Result,
    compare,
    hazard_ratio,
    independence,
    logistic,
    odds_ratio,
    poisson,
    rate_ratio,
    risk_difference,
    survival,
)
from pinq.errors import QueryError

MISSING = "needs the extra `oracles`: make test-oracles"
SCHEMA = pinq.Schema(
    columns={
        "week": pinq.Numeric(lower=1, upper=30, integer=True),
        "ended": pinq.Categorical(values=("censored", "event", "other"), nullable=True),
        "event": pinq.Categorical(values=("no", "yes")),
        "arm": pinq.Categorical(values=("a", "b"), nullable=True),
        "grade": pinq.Categorical(values=("I", "II", "III")),
    },
    max_rows=1000,
)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    arm, n = rng.integers(0, 2, 400), 400
    week = np.clip(rng.exponential(12 + 8 * arm).astype(int) + 1, 1, 30)
    event = (rng.random(n) < 0.7) & (week < 30)
    ended = np.where(event, np.where(rng.random(n) < 0.3, "other", "event"), "censored")
    grade = np.array(["I", "II", "III"])[np.minimum(rng.integers(0, 3, n) + (arm & event), 2)]
    made = {"week": week, "ended": ended, "event": np.where(event, "yes", "no"), "arm": np.array(["a", "b"])[arm]}
    return pd.DataFrame({**made, "grade": grade})


@pytest.fixture(scope="module")
def handle(rows: pd.DataFrame) -> Any:
    missing = rows.head(3).assign(arm=None)  # are left out
    return pinq.simulate(SCHEMA, data=pd.concat([rows, missing], ignore_index=True), epsilon=10**6)


def close(numbers: Any, others: Any) -> None:
    np.testing.assert_allclose(np.asarray(numbers, dtype=float), np.asarray(others, dtype=float), rtol=0, atol=1e-6)


def ends_of(rows: pd.DataFrame) -> Any:
    seen = rows["event"] == "yes"
    return stats.CensoredData(uncensored=rows["week"][seen], right=rows["week"][~seen])


def test_survival(handle: Any, rows: pd.DataFrame) -> None:
    result = survival(handle, "week", "event", "arm", intervals=30, epsilon=10_000, reuse=True)
    one, two = (ends_of(rows[rows["arm"] == arm]) for arm in "ab")
    tested = stats.logrank(one, two)
    close([result.statistic, result.pvalue, result.df], [tested.statistic**2, tested.pvalue, 1])
    for arm, ends in (("a", one), ("b", two)):
        exact = stats.ecdf(ends).sf
        band = exact.confidence_interval(method="log-log")
        own = result.frame[result.frame["arm"] == arm].drop_duplicates("week", keep="last").set_index("week")
        own = own.loc[exact.quantiles[exact.probabilities > 0]].iloc[:-1]
        for name, numbers in (("value", exact), ("low", band.low), ("high", band.high)):
            close(own[name], numbers.probabilities[: len(own)])
        median = exact.quantiles[exact.probabilities <= 0.5][0]
        assert result.median.set_index("arm")["value"][arm] == median
    close(result.n, 400)


def test_cumulative_incidence_and_survival_add_up() -> None:
    """Of two kinds of event, each incidence, and the share without any, are one."""
    h = pinq.simulate(SCHEMA, rows=300, epsilon=10**6)
    one, other = (
        survival(h, "week", "ended", observed=kind, competing=[rest], intervals=6, epsilon=1000, reuse=True)
        for kind, rest in (("event", "other"), ("other", "event"))
    )
    none = survival(h, "week", "ended", observed="event", competing=["other"], intervals=6, epsilon=1000, reuse=True)
    assert np.isnan(none.pvalue)
    assert ((one["value"] + other["value"]).between(0, 1 + 1e-9)).all()
    assert (np.diff(one["value"]) >= -1e-9).all()


def test_independence(handle: Any) -> None:
    result = independence(handle, "arm", "grade", epsilon=10_000, reuse=True)
    table = result.observed.to_numpy()
    exact = stats.chi2_contingency(table, correction=False)
    close([result.statistic, result.pvalue, result.df], [exact.statistic, exact.pvalue, exact.dof])
    close(result.expected_freq, exact.expected_freq)
    close(result["value"], stats.contingency.association(np.rint(table).astype(int)))


def test_g_and_trend(handle: Any) -> None:
    h = handle
    likelihood = independence(h, "arm", "grade", test="log-likelihood", epsilon=10_000, reuse=True)
    table = likelihood.observed.to_numpy()
    exact = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    close([likelihood.statistic, likelihood.pvalue], [exact.statistic, exact.pvalue])
    trend = independence(h, "arm", "grade", test="trend", epsilon=10_000, reuse=True)
    arms, grades = np.repeat([0, 0, 0, 1, 1, 1], np.rint(table.ravel()).astype(int)), np.tile(np.arange(3), 2)
    grades = np.repeat(grades, np.rint(table.ravel()).astype(int))
    correlation = np.corrcoef(arms, grades)[0, 1]
    close([trend["value"][0], trend.statistic], [correlation, len(arms) * correlation**2])


def test_effects(handle: Any, rows: pd.DataFrame) -> None:
    words: dict[str, Any] = {"exposed": "b", "epsilon": 10_000, "reuse": True}
    table = pd.crosstab(rows["arm"], rows["event"]).loc[["b", "a"], ["yes", "no"]].to_numpy()
    (a, b), (c, d) = table.tolist()
    odds = stats.contingency.odds_ratio(table, kind="sample")
    own: Result = odds_ratio(handle, "event", "arm", **words)
    close([own["value"][0], *own.interval], [odds.statistic, *odds.confidence_interval(0.95)])
    risks = stats.contingency.relative_risk(a, a + b, c, c + d)
    own = rate_ratio(handle, "event", "arm", **words)
    close([own["value"][0], *own.interval], [risks.relative_risk, *risks.confidence_interval(0.95)])
    own = risk_difference(handle, "event", "arm", **words)
    one, two = a / (a + b), c / (c + d)
    half = stats.norm.ppf(0.975) * np.sqrt(one * (1 - one) / (a + b) + two * (1 - two) / (c + d))
    close([own["value"][0], *own.interval], [one - two, one - two - half, one - two + half])


def test_strata_and_person_time(handle: Any, rows: pd.DataFrame) -> None:
    words: dict[str, Any] = {"exposed": "b", "epsilon": 10_000, "reuse": True}
    top = bottom = 0.0
    for _, stratum in rows.groupby("grade"):
        (a, b), (c, d) = pd.crosstab(stratum["arm"], stratum["event"]).loc[["b", "a"], ["yes", "no"]].to_numpy()
        top, bottom = top + a * d / len(stratum), bottom + b * c / len(stratum)
    close(odds_ratio(handle, "event", "arm", "grade", **words)["value"], [top / bottom])
    rates = [(own["event"] == "yes").sum() / own["week"].sum() for _, own in rows.groupby("arm")]
    close(rate_ratio(handle, "event", "arm", time="week", bins=30, **words)["value"], [rates[1] / rates[0]])


def test_means_and_ranks_of_groups(handle: Any, rows: pd.DataFrame) -> None:
    """Welch's t of two groups and F of three, and ranks with ties."""
    words: dict[str, Any] = {"bins": 30, "epsilon": 10_000, "reuse": True}
    one, two = (rows["week"][rows["arm"] == arm] for arm in "ab")
    exact = stats.ttest_ind(one, two, equal_var=False)
    own = compare(handle, "week", "arm", **words)
    close([own.statistic, own.pvalue, own.df], [exact.statistic, exact.pvalue, exact.df])
    close(own.interval, exact.confidence_interval())
    for side in ("less", "greater"):
        exact_side = stats.ttest_ind(one, two, equal_var=False, alternative=side)
        close([compare(handle, "week", "arm", alternative=side, **words).pvalue], [exact_side.pvalue])
    close(own["value"], [one.mean() - two.mean(), one.mean(), two.mean()])
    whole = pinq.simulate(SCHEMA, data=rows, epsilon=10**6)
    three = [week for _, week in rows.groupby("grade")["week"]]
    exact = stats.alexandergovern(*three)  # another test; Welch's F agrees with it in the first digits
    own = compare(whole, "week", "grade", **words)
    assert own.pvalue == pytest.approx(exact.pvalue, abs=0.02)
    size, mean, spread = (np.array([getattr(week, what)() for week in three]) for what in ("count", "mean", "var"))
    weight = size / spread
    middle, share = weight @ mean / weight.sum(), weight / weight.sum()
    loose = ((1 - share) ** 2 / (size - 1)).sum()
    close(own.statistic, (weight * (mean - middle) ** 2).sum() / 2 / (1 + 2 / 8 * loose))
    close(own.pvalue, stats.f.sf(own.statistic, 2, 8 / 3 / loose))
    own, ranked = compare(whole, "week", "grade", test="rank", **words), stats.kruskal(*three)
    close([own.statistic, own.pvalue], [ranked.statistic, ranked.pvalue])
    assert compare(whole, "arm", "grade", epsilon=1000, reuse=True).test == "chi-square"


def test_regressions_on_cells(handle: Any, rows: pd.DataFrame) -> None:
    """Coefficients are those of maximum likelihood, and standard errors those of the sandwich."""
    words: dict[str, Any] = {"epsilon": 10_000, "reuse": True}
    design = np.stack(
        [np.ones(400), *(rows[name] == part for name, part in (("arm", "b"), ("grade", "II"), ("grade", "III")))],
        axis=1,
    )
    models: list[tuple[Any, Any, Any, Any]] = [
        (logistic(handle, "event", ["arm", "grade"], **words), rows["event"] == "yes", expit, lambda p: p * (1 - p)),
        (poisson(handle, "week", ["arm", "grade"], bins=30, **words), rows["week"], np.exp, lambda mean: mean),
    ]
    for own, outcome, law, variance in models:
        mean = law(design @ own.params["coef"].to_numpy())
        close(design.T @ (outcome.to_numpy(dtype=float) - mean) / 400, np.zeros(4))
        bread = np.linalg.inv((design.T * variance(mean)) @ design)
        meat = (design.T * (outcome.to_numpy(dtype=float) - mean) ** 2) @ design
        close(own.params["std err"], np.sqrt(np.diag(bread @ meat @ bread)))
        close(own["value"], np.exp(own.params["coef"].to_numpy()[1:]))


def test_alternatives(handle: Any) -> None:
    """One side of an effect has half of both; other words, and tests without a side, are refused before the charge."""
    words: dict[str, Any] = {"epsilon": 10_000, "reuse": True}
    both = odds_ratio(handle, "event", "arm", exposed="a", **words)
    sides = {
        side: odds_ratio(handle, "event", "arm", exposed="a", alternative=side, **words) for side in ("less", "greater")
    }
    toward = "greater" if both.statistic > 0 else "less"
    close([sides[toward].pvalue, sides["less"].pvalue + sides["greater"].pvalue], [both.pvalue / 2, 1])
    assert sides["less"].interval == both.interval
    spent = handle.budget.spent
    wrong: list[tuple[Any, tuple[str, str], dict[str, Any]]] = [
        (odds_ratio, ("event", "arm"), {"exposed": "a", "alternative": "more"}),
        (compare, ("week", "arm"), {"alternative": ["less"]}),
        (compare, ("week", "grade"), {"alternative": "less"}),
        (compare, ("week", "arm"), {"alternative": "less", "test": "rank"}),
        (compare, ("event", "arm"), {"alternative": "less"}),
    ]
    for function, columns, asked in wrong:
        with pytest.raises(QueryError, match="alternative"):
            function(handle, *columns, **asked, epsilon=1)
    assert handle.budget.spent == spent


def test_a_picture_of_survival_falls_within_long_intervals(handle: Any) -> None:
    """Of 3 intervals of 10 weeks a curve has 31 points, of 30 of a week each only their ends."""
    for intervals, points in ((3, 31), (30, 31)):
        curves = survival(handle, "week", "event", intervals=intervals, epsilon=10_000, reuse=True)
        (line,) = curves.plot().get_lines()
        at, value = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        assert len(at) == points
        ends = curves.frame.drop_duplicates("week", keep="last")
        close(np.interp(ends["week"], at, value), ends["value"])
        assert len(np.unique(value)) > 20


@pytest.mark.filterwarnings("ignore")  # of pandas, about lifelines
def test_curves_and_log_rank_of_lifelines(handle: Any, rows: pd.DataFrame) -> None:
    """Kaplan-Meier with its band, the median and the restricted mean of each arm, and the test of three groups."""
    lifelines = pytest.importorskip("lifelines", reason=MISSING)
    result = survival(handle, "week", "event", "arm", intervals=30, epsilon=10_000, reuse=True)
    for arm in "ab":
        own, seen = rows[rows["arm"] == arm], rows["event"][rows["arm"] == arm] == "yes"
        exact = lifelines.KaplanMeierFitter().fit(own["week"], seen)
        ours = result.frame[result.frame["arm"] == arm].drop_duplicates("week", keep="last").set_index("week")
        weeks = [week for week in ours.index if 0 < exact.predict(week) < 1]
        close(ours["value"][weeks], exact.predict(weeks))
        band = exact.confidence_interval_.reindex(ours.index, method="ffill").loc[weeks]
        close(ours[["low", "high"]].loc[weeks], band)
        assert result.median.set_index("arm")["value"][arm] == exact.median_survival_time_
        mean = lifelines.utils.restricted_mean_survival_time(exact, t=30)
        close(result.restricted_mean.set_index("arm")["value"][arm], mean)
    whole_table = pinq.simulate(SCHEMA, data=rows, epsilon=10**6)
    of_grades = survival(whole_table, "week", "event", "grade", intervals=30, epsilon=10_000, reuse=True)
    whole = lifelines.statistics.multivariate_logrank_test(rows["week"], rows["grade"], rows["event"] == "yes")
    close([of_grades.statistic, of_grades.pvalue, of_grades.df], [whole.test_statistic, whole.p_value, 2])


def test_regressions_of_statsmodels(handle: Any, rows: pd.DataFrame) -> None:
    """Logistic and Poisson regression with robust errors; hazard ratios as Poisson's of rows by interval, with errors by row."""
    api = pytest.importorskip("statsmodels.api", reason=MISSING)
    words: dict[str, Any] = {"epsilon": 10_000, "reuse": True}
    parts = [rows["arm"] == "b", rows["grade"] == "II", rows["grade"] == "III"]
    design = np.stack([np.ones(len(rows)), *parts], axis=1).astype(float)
    event = (rows["event"] == "yes").to_numpy(dtype=float)
    models: list[tuple[Any, Any]] = [
        (logistic(handle, "event", ["arm", "grade"], **words), api.GLM(event, design, api.families.Binomial())),
        (
            poisson(handle, "week", ["arm", "grade"], bins=30, **words),
            api.GLM(rows["week"], design, api.families.Poisson()),
        ),
    ]
    for own, model in models:
        exact = model.fit(tol=1e-12, cov_type="HC0")
        close(own.params["coef"], exact.params)
        close(own.params["std err"], exact.bse)
        close(own.params["P>|z|"], exact.pvalues)
        close(own.params[["low", "high"]], exact.conf_int())
    own = hazard_ratio(handle, "week", "event", "arm", intervals=5, **words)
    ended, fifth = (rows["week"].to_numpy() - 1) // 6, np.arange(5)
    spent = 6.0 * (fifth < ended[:, None]) + 3.5 * (fifth == ended[:, None])
    happened = (fifth == ended[:, None]) * event[:, None]
    columns = np.concatenate(
        [np.tile(np.eye(5), (len(rows), 1)), np.repeat(parts[0].to_numpy(dtype=float), 5)[:, None]], axis=1
    )
    at_risk = spent.ravel() > 0
    piecewise = api.GLM(
        happened.ravel()[at_risk], columns[at_risk], api.families.Poisson(), offset=np.log(spent.ravel()[at_risk])
    )
    clusters = {"groups": np.repeat(np.arange(len(rows)), 5)[at_risk], "use_correction": False}
    exact = piecewise.fit(tol=1e-12, cov_type="cluster", cov_kwds=clusters)
    close([np.log(own["value"][0]), *np.log(own.interval)], [exact.params[5], *exact.conf_int()[5]])


def test_tables_and_means_of_statsmodels(handle: Any, rows: pd.DataFrame) -> None:
    """Odds ratios, ratios of risks, chi-square, and Welch's F of three groups."""
    tables, oneway = (
        pytest.importorskip(f"statsmodels.stats.{room}", reason=MISSING) for room in ("contingency_tables", "oneway")
    )
    words: dict[str, Any] = {"epsilon": 10_000, "reuse": True}

    def counts(of: pd.DataFrame) -> np.ndarray:
        return np.asarray(pd.crosstab(of["arm"], of["event"]).loc[["b", "a"], ["yes", "no"]], dtype=float)

    exact = tables.Table2x2(counts(rows), shift_zeros=False)
    own: Result = odds_ratio(handle, "event", "arm", exposed="b", **words)
    close(
        [own["value"][0], *own.interval, own.pvalue],
        [exact.oddsratio, *exact.oddsratio_confint(), exact.oddsratio_pvalue()],
    )
    own = rate_ratio(handle, "event", "arm", exposed="b", **words)
    close(
        [own["value"][0], *own.interval, own.pvalue],
        [exact.riskratio, *exact.riskratio_confint(), exact.riskratio_pvalue()],
    )
    strata = tables.StratifiedTable([counts(own) for _, own in rows.groupby("grade")])
    close(odds_ratio(handle, "event", "arm", "grade", exposed="b", **words)["value"], [strata.oddsratio_pooled])
    close(rate_ratio(handle, "event", "arm", "grade", exposed="b", **words)["value"], [strata.riskratio_pooled])
    own, whole = (
        independence(handle, "arm", "grade", **words),
        tables.Table(pd.crosstab(rows["arm"], rows["grade"]), shift_zeros=False),
    )
    close(
        [own.statistic, own.pvalue],
        [whole.test_nominal_association().statistic, whole.test_nominal_association().pvalue],
    )
    simulated = pinq.simulate(SCHEMA, data=rows, epsilon=10**6)
    own, welch = compare(simulated, "week", "grade", bins=30, **words), oneway.anova_oneway(rows["week"], rows["grade"])
    close([own.statistic, own.pvalue], [welch.statistic, welch.pvalue])
